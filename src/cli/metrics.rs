//! `handoffd metrics`: the figures that the metrics port serves.

use clap::Args;

use crate::cli::{Global, Outcome, out};
use crate::clock::Clock;
use crate::figures::http;
use crate::inspect::daemon::Daemon;
use crate::inspect::figures::from_files;

#[derive(Debug, Args)]
#[command(
    after_help = "Prints OpenMetrics text. Asks the daemon if it serves metrics ([metrics] listen). Otherwise computes them from the files: counters cover the last 64 MiB of the audit log, and figures that only a running daemon knows are empty."
)]
pub struct Options {
    /// Compute them from the files, even if a daemon serves them
    #[arg(long)]
    files: bool,
}

pub fn metrics(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    let address = Daemon::of(&layout).metrics.filter(|_| !options.files);
    let asked = address.map(|address| (address, http::fetch(address)));
    let text = match asked {
        Some((_, Ok(text))) => text,
        other => {
            if let Some((address, Err(error))) = other {
                out::talk!("the daemon at {address} does not answer ({error}); using the files:");
            }
            let slots = global.load_config()?.daemon.max_concurrent;
            from_files(&layout, slots, Clock::System.now())?.text()
        }
    };
    out::put(text)?;
    Ok(0)
}
