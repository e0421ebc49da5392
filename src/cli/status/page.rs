//! What `status` says: as one page of any length, or as many lines as a terminal has.

use crate::cli::style::{
    Ink, columns, columns_within, ink, line, local, moment, moment_within, safe, span, width, words,
};
use crate::inspect::links::thing;
use crate::inspect::status::{RunningRow, Status};
use crate::inspect::summary::Row;
use crate::protocol::lifecycle::State;

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

fn problem(problem: &str) -> String {
    format!(
        "{} {}",
        ink("problem:", Ink::Bad),
        safe(problem, true).replace('\n', "\n  ")
    )
}

fn counts(status: &Status) -> String {
    let counts: Vec<String> = State::ALL
        .iter()
        .map(|state| {
            let count = status.counts.get(state.status()).copied().unwrap_or(0);
            format!("{count} {}", state.status().replace('_', " "))
        })
        .collect();
    counts.join(", ")
}

/// What is waited for, in two lines at most.
fn waits(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    if !status.waiting_on.is_empty() {
        let waits: Vec<String> = status
            .waiting_on
            .iter()
            .map(|(on, n)| format!("{n} for {}", safe(thing(on), false)))
            .collect();
        lines.push(format!("waiting: {}", waits.join(", ")));
    }
    if let Some((id, age)) = &status.oldest_pending {
        lines.push(format!(
            "oldest pending: {} ({})",
            safe(id, false),
            span(*age)
        ));
    }
    lines
}

fn last_hour(status: &Status) -> String {
    let (completed, failed) = status.last_hour;
    format!("last hour: {completed} completed, {failed} failed")
}

fn running(running: &RunningRow) -> Vec<String> {
    let left = running
        .deadline_in
        .map(|left| format!("{} left", span(left)));
    let process = running.pid.map(|pid| format!("process {pid}"));
    vec![
        safe(&running.row.id, false),
        safe(running.row.agent.as_deref().unwrap_or("?"), false),
        format!("attempt {}", running.attempt),
        left.unwrap_or_default(),
        process.unwrap_or_default(),
    ]
}

fn failure(row: &Row, at: String, message: impl Fn(&str) -> String) -> Vec<String> {
    let (code, text) = row.error.clone().unwrap_or_default();
    vec![at, safe(&row.id, false), safe(&code, false), message(&text)]
}

/// All of it.
pub fn once(status: &Status) -> String {
    let mut lines = vec![headline(status)];
    lines.extend(status.problems.iter().map(|it| problem(it)));
    lines.push(counts(status));
    lines.extend(waits(status));
    lines.push(last_hour(status));
    let mut table = |title: &str, rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            lines.extend([String::new(), ink(title, Ink::Bold)]);
            lines.push(columns(&rows).trim_end().to_owned());
        }
    };
    table("RUNNING", status.running.iter().map(running).collect());
    let failures = status.failed_lately.iter();
    let failures = failures.map(|row| failure(row, moment(row.updated_at), |it| words(it, 60)));
    table("FAILED LATELY", failures.collect());
    if !status.failed_lately.is_empty() {
        lines.push(ink("for what to do: handoffd show ID", Ink::Dim));
    }
    lines.join("\n") + "\n"
}

/// The part whose lines are no list.
const WAITING: &str = "WAITING";

/// A part of the page that is watched.
struct Part {
    title: &'static str,
    lines: Vec<String>,
}

/// As much of it as has room on `height` lines of `width` columns: first what runs, then what is
/// wrong, what is waited for, and what failed. Each part keeps room for the ones behind it.
pub fn within(status: &Status, (width, height): (usize, usize)) -> Vec<String> {
    let most = Some(width);
    let table = |rows: Vec<Vec<String>>| -> Vec<String> {
        let text = columns_within(&rows, most);
        text.lines().map(str::to_owned).collect()
    };
    let failures = status.failed_lately.iter().map(|row| {
        let at = moment_within(row.updated_at, most);
        failure(row, at, |it| line(it, width))
    });
    let parts = [
        Part {
            title: "RUNNING",
            lines: table(status.running.iter().map(running).collect()),
        },
        Part {
            title: "PROBLEMS",
            lines: (status.problems.iter().map(|it| safe(it, true)))
                .flat_map(|it| it.lines().map(str::to_owned).collect::<Vec<_>>())
                .collect(),
        },
        Part {
            title: WAITING,
            lines: waits(status),
        },
        Part {
            title: "FAILED LATELY",
            lines: table(failures.collect()),
        },
    ];
    let parts: Vec<Part> = parts
        .into_iter()
        .filter(|part| !part.lines.is_empty())
        .collect();
    let mut lines = vec![headline(status), counts(status)];
    // A blank line and the title above each part, and the last line of the page.
    let is_tall = height >= 24;
    let above = 1 + usize::from(is_tall);
    let mut room = height.saturating_sub(lines.len() + 1);
    for (at, part) in parts.iter().enumerate() {
        let kept = (parts.len() - at - 1) * (above + 1);
        let own = room.saturating_sub(kept).saturating_sub(above);
        let shown = part.lines.len().min(own);
        let hidden = part.lines.len() - shown;
        // The line that says so takes the place of one.
        let shown = if hidden > 0 && shown > 1 {
            shown - 1
        } else {
            shown
        };
        if shown == 0 {
            continue;
        }
        let hidden = part.lines.len() - shown;
        if is_tall {
            lines.push(String::new());
        }
        let is_told = hidden > 0 && shown < own;
        let title = match part.lines.len() {
            all if hidden > 0 && !is_told && part.title != WAITING => {
                format!("{} ({all})", part.title)
            }
            _ => part.title.to_owned(),
        };
        lines.push(ink(&title, Ink::Bold));
        lines.extend(part.lines.iter().take(shown).cloned());
        if is_told {
            lines.push(ink(&format!("… and {hidden} more"), Ink::Dim));
        }
        room = room.saturating_sub(above + shown + usize::from(is_told));
    }
    lines.truncate(height.saturating_sub(1));
    while lines.len() + 1 < height {
        lines.push(String::new());
    }
    let end = format!("{}   q leaves", last_hour(status));
    lines.push(ink(&width::cut(&end, width), Ink::Dim));
    lines.iter().map(|line| width::cut(line, width)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Wall;
    use crate::inspect::daemon::Daemon;

    fn row(id: &str) -> Row {
        Row {
            id: id.to_owned(),
            state: State::Failed,
            agent: Some("@coder-with-a-long-name".to_owned()),
            priority: crate::protocol::request::Priority::Normal,
            attempts: 1,
            updated_at: Wall(1_760_000_000_000),
            error: Some((
                "PROCESSING_ERROR".to_owned(),
                "the command exited with code 2: no such table".to_owned(),
            )),
            refused: false,
            waiting_on: None,
            until: None,
            reason: None,
            question: None,
        }
    }

    fn status(many: usize) -> Status {
        let running = |n| RunningRow {
            row: row(&format!("implement-the-checkout-page-{n}")),
            attempt: 1,
            pid: Some(4242),
            deadline_in: Some(Duration::from_secs(299)),
        };
        Status {
            root: "/srv/queues/a-root-with-a-rather-long-path/and-a-folder".to_owned(),
            daemon: Daemon::default(),
            counts: [("in_progress", many)].into(),
            waiting_on: [("human".to_owned(), 3), ("retry".to_owned(), 1)].into(),
            problems: (0..many).map(|n| format!("problem number {n}")).collect(),
            running: (0..many).map(running).collect(),
            failed_lately: (0..many).map(|n| row(&format!("broken-{n}"))).collect(),
            oldest_pending: Some(("the-first".to_owned(), Duration::from_secs(61))),
            last_hour: (4, 1),
        }
    }

    /// The page, whatever the time zone.
    fn seen(many: usize, size: (usize, usize)) -> String {
        let at = moment_within(row("x").updated_at, Some(size.0));
        within(&status(many), size)
            .join("\n")
            .replace(&at, "MM-DD HH:MM")
    }

    #[test]
    fn the_page_of_a_small_terminal() {
        insta::assert_snapshot!(seen(9, (60, 15)));
    }

    #[test]
    fn the_page_of_a_usual_terminal() {
        insta::assert_snapshot!(seen(2, (80, 24)));
    }

    #[test]
    fn it_fits_every_terminal_and_what_runs_comes_first() {
        for many in [0, 1, 3, 200] {
            for height in 15..60 {
                for width in [60, 61, 80, 120, 300] {
                    let page = within(&status(many), (width, height));
                    assert_eq!(page.len(), height, "{many} {width}x{height}");
                    assert!(page.iter().all(|line| width::of(line) <= width));
                    let all = ["RUNNING", "PROBLEMS", "WAITING", "FAILED LATELY"];
                    let titles: Vec<&str> = page
                        .iter()
                        .filter_map(|line| all.into_iter().find(|it| line.starts_with(it)))
                        .collect();
                    let wanted = if many == 0 { &all[2..3] } else { &all[..] };
                    assert_eq!(titles, wanted, "{many} {width}x{height}");
                }
            }
        }
        // Smaller ones get what has room.
        for size in [(1, 1), (10, 2), (0, 0), (59, 5)] {
            let page = within(&status(9), size);
            assert!(page.len() <= size.1.max(1), "{size:?}");
        }
    }
}
