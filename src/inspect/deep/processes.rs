//! Attempts as processes: nothing of an ended one is alive, and nothing of it lies in `run/`.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::gather::Seen;
use super::{Fault, Invariant, Report};
use crate::keeper::wire::{RESIDENT, VERIFY};
use crate::keeper::{self, Users, alive_outside};
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;
use crate::spool::look::Identity;
use crate::spool::scan;

/// How long a process may take to be known as an attempt's after it was made.
const SETTLES_WITHIN: Duration = Duration::from_millis(200);

pub fn check(layout: &Layout, seen: &Seen, works: bool, report: &mut Report) -> io::Result<()> {
    alive(layout, seen, report)?;
    unclaimed(layout, report);
    left_in_run(layout, seen, works, report);
    Ok(())
}

/// The handoff that a key of the keeper's is about: what verifies its work has one of its own.
fn handoff_of(key: &str) -> &str {
    key.strip_suffix(VERIFY).unwrap_or(key)
}

fn alive(layout: &Layout, seen: &Seen, report: &mut Report) -> io::Result<()> {
    let mut attempts: BTreeMap<String, BTreeMap<u32, i32>> = BTreeMap::new();
    for process in alive_outside(layout.root(), &Users::of(layout.run()), None)? {
        report.examined.processes += 1;
        // None of them is an attempt: several at once are right.
        if process.key.id == RESIDENT {
            continue;
        }
        let id = handoff_of(&process.key.id).to_owned();
        let of_id = attempts.entry(id).or_default();
        of_id.insert(process.key.attempt, process.pid);
    }
    for (id, running) in attempts {
        let pids: Vec<i32> = running.values().copied().collect();
        if running.len() > 1 {
            let numbers: Vec<String> = running.keys().map(ToString::to_string).collect();
            let what = format!(
                "attempts {} of {id} run at the same time (processes {pids:?})",
                numbers.join(" and ")
            );
            let fault = Fault::new(
                Invariant::Attempts,
                what,
                "end the processes of the older \
            attempt",
            );
            report.breaches.push(fault.at("handoffs", None));
        }
        let standing = seen.of(&id);
        let Some(standing) = standing.filter(|standing| standing.state.is_final()) else {
            continue;
        };
        let what = format!("{id} has ended, but its process {} still runs", pids[0]);
        let then = format!("end it: kill {}", pids[0]);
        let fault = Fault::new(Invariant::Attempts, what, then);
        report
            .breaches
            .push(fault.at(standing.path.clone(), standing.identity));
    }
    Ok(())
}

/// Processes that the keeper holds and that belong to no attempt. What is there twice in a row is not
/// just being started.
fn unclaimed(layout: &Layout, report: &mut Report) {
    let look = || keeper::unclaimed(layout.run(), layout.root());
    let mut found = look();
    if !found.is_empty() {
        std::thread::sleep(SETTLES_WITHIN);
        let still = look();
        found.retain(|process| still.contains(process));
    }
    for (pid, _) in found {
        let what = format!("process {pid} is a child of the keeper but belongs to no attempt");
        let then =
            format!("the keeper ends it when the next attempt ends; to end it now: kill {pid}");
        let fault = Fault::new(Invariant::Attempts, what, then);
        report.breaches.push(fault.at("handoffs", None));
    }
}

/// What an attempt left in `run/` goes when its outcome is written; a daemon that was killed in
/// between takes it away at its next start.
fn left_in_run(layout: &Layout, seen: &Seen, works: bool, report: &mut Report) {
    let run = layout.run();
    let _ = scan::names(run, |name| {
        let text = name.to_string_lossy();
        let stem = [".result", ".beat", ".stdin", ".report"]
            .iter()
            .find_map(|end| text.strip_suffix(end));
        let Some((key, _)) = stem.and_then(|stem| stem.rsplit_once('.')) else {
            return;
        };
        let id = handoff_of(key);
        let ended = seen
            .of(id)
            .is_some_and(|standing| matches!(standing.state, State::Completed | State::Failed));
        if !ended {
            return;
        }
        let then = if works {
            "delete it: nothing needs it"
        } else {
            "start the daemon, which deletes it; or delete it"
        };
        let what = format!("{id} has ended, but left a file of its attempt");
        let path = run.join(&name);
        let fault = Fault::new(Invariant::Attempts, what, then);
        report
            .breaches
            .push(fault.at(layout.relative(&path), Identity::at(&path).ok()));
    });
}
