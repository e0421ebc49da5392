//! `handoffd run`: the daemon, in the foreground.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::cli::{Failed, Global, Outcome, config_failed, out};
use crate::config::Config;
use crate::engine::start;
use crate::engine::start_error::StartError;
use crate::service::logs::{self, LogFormat};
use crate::service::notify::Notifier;
use crate::spool::layout::Layout;

#[derive(Debug, Default, Args)]
#[command(
    after_help = "SIGTERM and SIGINT stop the daemon as daemon.on_stop says; a second signal ends all attempts at once. SIGHUP reads the configuration again. HANDOFFD_LOG sets the log level: error, warn, info, debug.\n\nExit codes: 0 stopped or drained, 2 the configuration or the root is wrong, 3 another daemon runs on the root, 75 the machine lacks a resource for now and another start may succeed."
)]
pub struct Options {
    /// Run everything that can run, retries included, then exit
    #[arg(long)]
    drain: bool,
    /// The format of log lines
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: LogFormat,
}

/// The start failed for something that may pass: a service manager tries again. `EX_TEMPFAIL`.
const TRY_AGAIN: u8 = 75;

pub fn run(global: &Global, options: &Options) -> Outcome {
    logs::init(options.log_format);
    let layout = global.layout_to_run()?;
    let engine = start::Options {
        root: layout.root().to_owned(),
        config: global.config.clone(),
        drain: options.drain,
        program: own_program(),
        observer: Arc::new(Notifier::from_env()),
    };
    match start::run(&engine, |config, watching| {
        greet(&layout, config, watching, options);
    }) {
        Ok(()) => Ok(0),
        Err(error) if error.is_passing() => Err(Failed {
            exit: TRY_AGAIN,
            ..Failed::thing("TRY_AGAIN", error)
        }),
        Err(StartError::Config(error)) => Err(config_failed(error)),
        Err(error @ StartError::Locked { .. }) => Err(Failed {
            exit: 3,
            ..Failed::thing("LOCKED", error)
        }),
        Err(error) => Err(Failed::usage("START", error)),
    }
}

/// The program that runs now, also after an upgrade replaced its file.
fn own_program() -> PathBuf {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() {
        own
    } else {
        std::env::current_exe().unwrap_or(own)
    }
}

/// Who is there, and how to use it. Where stderr is to be JSON, these are log lines too.
fn greet(layout: &Layout, config: &Config, watching: &str, options: &Options) {
    let say = |line: String| match options.log_format {
        LogFormat::Human => out::talk!("{line}"),
        LogFormat::Json => tracing::info!("{}", line.trim_start()),
    };
    say(format!(
        "handoffd {} on {}",
        env!("CARGO_PKG_VERSION"),
        layout.root().display()
    ));
    let agents: Vec<String> = config.specialists.keys().map(ToString::to_string).collect();
    if agents.is_empty() {
        say("  no specialist is configured: add one to handoffd.toml, then send SIGHUP".to_owned());
    } else {
        say(format!("  specialists: {}", agents.join(", ")));
    }
    if options.drain {
        say("  draining: running everything that can run, then exiting".to_owned());
    } else {
        say(format!(
            "  drop requests into {}/<id>.json",
            layout.pending().display()
        ));
        say(format!(
            "  outcomes appear in completed/ and failed/ ({watching})"
        ));
    }
}
