//! `handoffd status`: everything at a glance.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;

use crate::cli::style::{Ink, columns, ink, line, local, safe, span};
use crate::cli::{Global, Outcome, out};
use crate::clock::Clock;
use crate::inspect::links::thing;
use crate::inspect::status::{Status, gather};
use crate::protocol::lifecycle::State;

#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0, even if no daemon runs or there are problems.")]
pub struct Options {
    /// Refresh until interrupted
    #[arg(long)]
    watch: bool,
}

pub fn status(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    // What is wrong with it, `check` says.
    let config = global.load_config().ok();
    let mut is_first = true;
    loop {
        let status = gather(&layout, config.as_ref(), Clock::System.now())?;
        let text = if global.json {
            format!("{}\n", status.to_json())
        } else {
            page(&status)
        };
        let mut out = out::lock();
        if options.watch && !global.json {
            if std::io::stdout().is_terminal() {
                // Home, and clear what is below: no flicker.
                write!(out, "\u{1b}[H\u{1b}[J")?;
            } else if !is_first {
                writeln!(out)?;
            }
        }
        is_first = false;
        out.write_all(text.as_bytes())?;
        out.flush()?;
        if !options.watch {
            return Ok(0);
        }
        drop(out);
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Whether a daemon runs, and for how much longer.
fn headline(status: &Status) -> String {
    let root = safe(&status.root, false);
    let daemon = &status.daemon;
    let (true, Some(pid), Some(since)) = (daemon.running, daemon.pid, daemon.since) else {
        if daemon.hidden {
            let own = "can't read .handoffd/";
            return format!("can't tell whether a daemon runs on {root}: {own}");
        }
        let none = ink("no daemon", Ink::Bad);
        return format!("{none} on {root}. Start one: handoffd run --root {root}");
    };
    let process = format!("on {root} (process {pid}, since {})", local(since));
    if daemon.stopping {
        let stopping = ink("stopping", Ink::Busy);
        return format!("{stopping} {process}: it waits for its attempts and starts nothing new");
    }
    format!("{} {process}", ink("running", Ink::Good))
}

fn page(status: &Status) -> String {
    let mut text = String::new();
    let mut say = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    say(headline(status));
    for problem in &status.problems {
        say(format!(
            "{} {}",
            ink("problem:", Ink::Bad),
            safe(problem, true).replace('\n', "\n  ")
        ));
    }
    let counts: Vec<String> = State::ALL
        .iter()
        .map(|state| {
            let count = status.counts.get(state.status()).copied().unwrap_or(0);
            format!("{count} {}", state.status().replace('_', " "))
        })
        .collect();
    say(counts.join(", "));
    if !status.waiting_on.is_empty() {
        let waits: Vec<String> = status
            .waiting_on
            .iter()
            .map(|(on, n)| format!("{n} for {}", safe(thing(on), false)))
            .collect();
        say(format!("waiting: {}", waits.join(", ")));
    }
    if let Some((id, age)) = &status.oldest_pending {
        say(format!(
            "oldest pending: {} ({})",
            safe(id, false),
            span(*age)
        ));
    }
    let (completed, failed) = status.last_hour;
    say(format!("last hour: {completed} completed, {failed} failed"));
    if !status.running.is_empty() {
        say(String::new());
        say(ink("RUNNING", Ink::Bold));
        let rows: Vec<Vec<String>> = status
            .running
            .iter()
            .map(|running| {
                vec![
                    safe(&running.row.id, false),
                    safe(running.row.agent.as_deref().unwrap_or("?"), false),
                    format!("attempt {}", running.attempt),
                    running
                        .pid
                        .map(|pid| format!("process {pid}"))
                        .unwrap_or_default(),
                    running
                        .deadline_in
                        .map(|d| format!("{} left", span(d)))
                        .unwrap_or_default(),
                ]
            })
            .collect();
        say(columns(&rows).trim_end().to_owned());
    }
    if !status.failed_lately.is_empty() {
        say(String::new());
        say(ink("FAILED LATELY", Ink::Bold));
        let rows: Vec<Vec<String>> = status
            .failed_lately
            .iter()
            .map(|row| {
                let (code, message) = row.error.clone().unwrap_or_default();
                vec![
                    local(row.updated_at),
                    safe(&row.id, false),
                    safe(&code, false),
                    line(&message, 60),
                ]
            })
            .collect();
        say(columns(&rows).trim_end().to_owned());
        say(ink("for what to do: handoffd show ID", Ink::Dim));
    }
    text
}
