//! What must hold of a root that was worked off after a power cut.

use handoffd::inspect::deep::{Invariant, examine_root};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::workload::{BROKEN, Fact};

/// What is broken after a cut at this position of the log.
pub fn judge(root: &Path, facts: &[(usize, Fact)], cut: usize) -> Vec<String> {
    let known: Vec<&Fact> = facts
        .iter()
        .filter(|(position, _)| *position <= cut)
        .map(|(_, fact)| fact)
        .collect();
    let mut broken: Vec<String> = known
        .iter()
        .filter_map(|fact| check(root, fact, &known))
        .collect();
    match examine_root(root) {
        // Of a request that its producer never synced, the cut may take the record and leave the
        // line that tells of its end: docs/reliability.md, "What is not covered".
        Ok(found) => broken.extend(
            found
                .breaches
                .iter()
                .filter(|breach| {
                    breach.invariant != Invariant::Audit || !breach.path.ends_with("lazy.json")
                })
                .map(|breach| format!("{breach:?}")),
        ),
        Err(error) => broken.push(format!("the root can't be looked at: {error}")),
    }
    broken
}

fn check(root: &Path, fact: &Fact, known: &[&Fact]) -> Option<String> {
    match fact {
        Fact::Dropped { id, ends } => ended_as(root, id, ends, known),
        Fact::Ended { id, record } => still_says(root, id, record, known),
        Fact::Resubmitting { .. } => None,
        Fact::Approved { id } => stands_in(root, id, "completed"),
        Fact::Resubmitted { id } => {
            let record = record_in(root, "failed", id);
            let previous = record["handoffd"]["previous"].as_array();
            previous
                .is_none_or(Vec::is_empty)
                .then(|| format!("{id} was resubmitted, and nothing tells: {record}"))
        }
    }
}

fn stands_in(root: &Path, id: &str, state: &str) -> Option<String> {
    let states = states_of(root, id);
    (states != [state]).then(|| format!("{id} stands in {states:?}, not in {state}"))
}

fn record_in(root: &Path, state: &str, id: &str) -> Value {
    let bytes = fs::read(place(root, state, id)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

fn place(root: &Path, state: &str, id: &str) -> PathBuf {
    root.join("handoffs").join(state).join(format!("{id}.json"))
}

fn states_of(root: &Path, id: &str) -> Vec<&'static str> {
    ["pending", "in-progress", "waiting", "completed", "failed"]
        .into_iter()
        .filter(|state| place(root, state, id).exists())
        .collect()
}

fn is_resubmitted(id: &str, known: &[&Fact]) -> bool {
    known
        .iter()
        .any(|fact| matches!(fact, Fact::Resubmitting { id: other } if other == id))
}

fn is_dropped(wanted: &str, known: &[&Fact]) -> bool {
    known
        .iter()
        .any(|fact| matches!(fact, Fact::Dropped { id, .. } if id == wanted))
}

fn ended_as(root: &Path, id: &str, ends: &'static str, known: &[&Fact]) -> Option<String> {
    let mut state = ends;
    let waits_for_others = id == "gated" || id == "after" && !is_dropped("made", known);
    if waits_for_others && states_of(root, id) == ["waiting"] {
        state = "waiting";
    }
    if let Some(elsewhere) = stands_in(root, id, state) {
        return Some(elsewhere);
    }
    if id == "broken" {
        let kept = fs::read(root.join("handoffs/failed/broken.rejected")).unwrap_or_default();
        return (kept != BROKEN).then(|| "the bytes of broken are not what they were".to_owned());
    }
    let record = record_in(root, state, id);
    let attempts = record["handoffd"]["attempts"].as_array();
    let completed = attempts
        .into_iter()
        .flatten()
        .filter(|attempt| attempt["outcome"] == "completed")
        .count();
    let expected = usize::from(state == "completed");
    (completed != expected).then(|| format!("{id} completed {completed} times: {record}"))
}

/// An outcome that somebody was told is there, byte for byte; one that was moved back by hand is
/// in the history of what came of it.
fn still_says(root: &Path, id: &str, told: &[u8], known: &[&Fact]) -> Option<String> {
    let told_doc: Value = serde_json::from_slice(told).ok()?;
    let state = if told_doc["status"] == "completed" {
        "completed"
    } else {
        "failed"
    };
    let now = fs::read(place(root, state, id)).unwrap_or_default();
    if now == told {
        return None;
    }
    if is_resubmitted(id, known) {
        let record = record_in(root, state, id);
        let previous = record["handoffd"]["previous"].as_array();
        let kept = previous
            .into_iter()
            .flatten()
            .any(|earlier| earlier["failed_at"] == told_doc["failed_at"]);
        if kept {
            return None;
        }
    }
    Some(format!(
        "{id} was told as {state} and is not so any more: {}; told: {told_doc}",
        String::from_utf8_lossy(&now)
    ))
}
