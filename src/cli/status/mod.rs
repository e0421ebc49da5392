//! `handoffd status`: everything at a glance, once or again and again.

mod page;
mod watch;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;

use crate::cli::{Failed, Global, Outcome, out};
use crate::clock::Clock;
use crate::config::Config;
use crate::inspect::status::{Status, gather};
use crate::spool::layout::Layout;

/// How often what is watched is drawn.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0, even if no daemon runs or there are problems.")]
pub struct Options {
    /// Draw it again every second; q leaves
    #[arg(long)]
    watch: bool,
}

pub fn status(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    // What is wrong with it, `check` says.
    let config = global.load_config().ok();
    let look = || now(&layout, config.as_ref());
    if options.watch && !global.json && can_draw() {
        return watch::watch(look);
    }
    let mut is_first = true;
    loop {
        let status = look()?;
        let text = if global.json {
            format!("{}\n", status.to_json())
        } else {
            page::once(&status)
        };
        let mut out = out::lock();
        if options.watch && !global.json && !is_first {
            writeln!(out)?;
        }
        is_first = false;
        out.write_all(text.as_bytes())?;
        out.flush()?;
        if !options.watch {
            return Ok(0);
        }
        drop(out);
        std::thread::sleep(EVERY);
    }
}

fn now(layout: &Layout, config: Option<&Config>) -> Result<Status, Failed> {
    Ok(gather(layout, config, Clock::System.now())?)
}

/// Whether stdout is a terminal that a page can be drawn on.
fn can_draw() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stdout().is_terminal() && !is_dumb
}
