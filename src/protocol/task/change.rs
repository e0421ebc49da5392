//! What one version of a state changed in the one before: the line that a history has of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FORMAT, TaskState};
use crate::clock::Wall;

/// One version, and what it brought.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Of the line itself.
    pub format: u64,
    pub version: u64,
    pub at: Wall,
    /// As it is after the change.
    pub phase: Value,
    /// Present only where the phase moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_phase: Option<Value>,
    pub source_agent: String,
    pub target_agent: String,
    pub delta: Counts,
    /// The fields that are not as they were, `version` left out.
    pub changed: Vec<String>,
}

/// How much came to the lists. A list that shrank or was rewritten shows in `changed` only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    pub artifacts_added: usize,
    pub decisions_made: usize,
    /// How many there are now: they are replaced, not added to.
    pub blocking_issues: usize,
}

pub fn change(before: Option<&TaskState>, after: &TaskState, at: Wall) -> Change {
    let phase = |state: &TaskState| state.doc.get("phase").cloned().unwrap_or_default();
    let moved = before
        .filter(|before| before.phase() != after.phase())
        .map(phase);
    let grown =
        |count: fn(&TaskState) -> usize| count(after).saturating_sub(before.map_or(0, count));
    Change {
        format: FORMAT,
        version: after.version,
        at,
        phase: phase(after),
        from_phase: moved,
        source_agent: after.source_agent().to_owned(),
        target_agent: after.target_agent().to_owned(),
        delta: Counts {
            artifacts_added: grown(|state| state.artifacts().len()),
            decisions_made: grown(|state| state.decisions().len()),
            blocking_issues: after.issues().len(),
        },
        changed: changed(before, after),
    }
}

fn changed(before: Option<&TaskState>, after: &TaskState) -> Vec<String> {
    let old = |key: &String| before.and_then(|before| before.doc.get(key));
    let gone = before.iter().flat_map(|before| before.doc.keys());
    let gone = gone.filter(|key| !after.doc.contains_key(*key));
    after
        .doc
        .iter()
        .filter(|(key, value)| old(key) != Some(*value))
        .map(|(key, _)| key)
        .chain(gone)
        .filter(|key| *key != "version")
        .cloned()
        .collect()
}
