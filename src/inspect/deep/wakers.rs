//! Whoever has not ended is waited for: by a clock, by other handoffs, by a person, by a process.

use std::collections::HashSet;

use super::gather::{Digest, Seen, Wait};
use super::{Fault, Invariant, Report};
use crate::keeper::journal;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;

pub fn check(layout: &Layout, seen: &Seen, works: bool, report: &mut Report) {
    let known: HashSet<(String, u32)> = journal::read(layout.run())
        .unwrap_or_default()
        .into_iter()
        .map(|entry| (entry.key.id, entry.key.attempt))
        .collect();
    for (id, standings) in &seen.ids {
        for standing in standings {
            let Some(record) = &standing.record else {
                continue;
            };
            // What is decided is carried on by whoever reads the decision.
            if record.to.is_some_and(|to| to != standing.state) {
                continue;
            }
            let fault = match (standing.state, &record.wait) {
                (State::Waiting, Some(wait)) => sleeping(layout, seen, id, wait),
                (State::InProgress, _) => running(&known, id, record, works),
                _ => None,
            };
            report
                .breaches
                .extend(fault.map(|fault| fault.at(standing.path.clone(), standing.identity)));
        }
    }
}

fn sleeping(layout: &Layout, seen: &Seen, id: &str, wait: &Wait) -> Option<Fault> {
    let never = |what: String| {
        let then = format!("run it: handoffd retry {id}; or end it: handoffd cancel {id}");
        Some(Fault::new(Invariant::Waker, what, then))
    };
    let missing = || {
        let is_there = |id: &&String| {
            seen.exists(id) || layout.is_taken(id) || layout.submission(id).is_some()
        };
        wait.ids.iter().find(|id| !is_there(id))
    };
    if !wait.agent {
        return never("it waits, but its target is missing".to_owned());
    }
    match wait.on.as_str() {
        "retry" | "time" if !wait.has_end => never("it waits for a time, but has none".to_owned()),
        "dependency" if wait.ids.is_empty() && !wait.artifacts => {
            never("it waits for handoffs, but names none".to_owned())
        }
        "handoff" if wait.ids.is_empty() => {
            never("it waits for helpers, but names none".to_owned())
        }
        "handoff" | "dependency" if !wait.has_end && missing().is_some() => {
            let missing = missing().map(String::as_str).unwrap_or_default();
            never(format!(
                "it waits for {missing}, which does not exist, without a time limit"
            ))
        }
        "retry" | "time" | "dependency" | "handoff" | "human" => None,
        "" => never("it is in waiting/ without saying for what".to_owned()),
        other => never(format!("it waits for {other}, which is not a known reason")),
    }
}

fn running(
    known: &HashSet<(String, u32)>,
    id: &str,
    record: &Digest,
    works: bool,
) -> Option<Fault> {
    let attempt = record.running?;
    if known.contains(&(id.to_owned(), attempt)) {
        return None;
    }
    let then = if works {
        "restart the daemon: it checks what became of the attempt and runs it again"
    } else {
        "start the daemon: it checks what became of the attempt and runs it again"
    };
    let what = format!("in progress, but the keeper does not know attempt {attempt}");
    Some(Fault::new(Invariant::Waker, what, then))
}
