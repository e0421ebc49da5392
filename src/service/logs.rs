//! Where the daemon's log goes: to the journal with its fields, or to stderr as text.
//!
//! Under systemd stderr is a stream into the journal, which would keep a line of text and lose
//! what is in it. `JOURNAL_STREAM` names that stream by device and inode; where stderr is that very
//! stream, events go to the journal's own socket instead, each value as a field that can be asked
//! for (`handoff_id` becomes `F_HANDOFF_ID`). A terminal, a file, a pipe and `--log-format json` get
//! text.

use std::ffi::OsStr;
use std::io::IsTerminal;

use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    #[default]
    Human,
    Json,
}

/// Takes over all events of this process; to be called once.
pub fn init(format: LogFormat) {
    match journal().filter(|_| format == LogFormat::Human) {
        Some(layer) => tracing_subscriber::registry()
            .with(filter())
            .with(layer)
            .init(),
        None => to_stderr(format),
    }
}

fn filter() -> EnvFilter {
    EnvFilter::try_from_env("HANDOFFD_LOG").unwrap_or_else(|_| EnvFilter::new("info"))
}

fn to_stderr(format: LogFormat) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter())
        .with_writer(std::io::stderr)
        // It would complain on stderr, and panic where that is what can't be written.
        .log_internal_errors(false);
    match format {
        LogFormat::Human => {
            let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            builder.with_ansi(color).with_target(false).init();
        }
        LogFormat::Json => builder.json().flatten_event(true).with_target(false).init(),
    }
}

/// The way into the journal, if stderr leads there and it answers.
fn journal() -> Option<tracing_journald::Layer> {
    let stderr = rustix::fs::fstat(std::io::stderr()).ok()?;
    let stream = std::env::var_os("JOURNAL_STREAM")?;
    if !is_stream(&stream, stderr.st_dev, stderr.st_ino) {
        return None;
    }
    let layer = tracing_journald::layer().ok()?;
    Some(
        layer
            .with_syslog_identifier("handoffd".to_owned())
            // The crate's own mapping makes every info a notice, which is more than it is.
            .with_priority_mappings(PriorityMappings {
                info: Priority::Informational,
                debug: Priority::Debug,
                ..PriorityMappings::new()
            }),
    )
}

/// Whether `JOURNAL_STREAM` (`device:inode`) names this file. A process that was given the variable
/// and another stderr is not connected to the journal.
fn is_stream(named: &OsStr, device: u64, inode: u64) -> bool {
    let Some((named_device, named_inode)) = named.to_str().and_then(|it| it.split_once(':')) else {
        return false;
    };
    named_device.parse() == Ok(device) && named_inode.parse() == Ok(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stream_that_is_named_is_the_journal() {
        for (named, is) in [
            ("8:42", true),
            ("8:43", false),
            ("9:42", false),
            ("8", false),
            ("8:42:1", false),
            ("", false),
        ] {
            assert_eq!(is_stream(OsStr::new(named), 8, 42), is, "{named}");
        }
    }
}
