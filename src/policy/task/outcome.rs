//! An outcome as the state of its task remembers it, and what a state must say after its outcomes.

use serde_json::Value;

use super::handoff::HELD;
use crate::clock::Wall;
use crate::protocol::attempt::Attempt;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::task::{Change, Phase, TaskId, TaskState};
use crate::protocol::view::View;

/// The task of a record, if it names one.
pub fn task_of(record: &Record) -> Option<TaskId> {
    let named = View::of_record(record).context("task_id")?.as_str()?;
    TaskId::parse(named).ok()
}

/// Names an outcome for good. An id whose record was deleted is free again, and counts its attempts
/// anew, so when it began is part of it; a report, which has no attempt, knows when it ended.
pub fn key_of(id: &str, attempt: Option<&Attempt>, record: &Record) -> String {
    let number = attempt.map_or(0, |attempt| attempt.number);
    let at = match attempt {
        Some(attempt) => attempt.started_at.to_string(),
        None => (record.doc.get("completed_at").and_then(Value::as_str))
            .or(record.meta.request_sha256.as_deref())
            .unwrap_or_default()
            .to_owned(),
    };
    format!("{id}#{number} {at}")
}

fn text<'r>(record: &'r Record, key: &str) -> &'r str {
    record
        .doc
        .get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// What the record of a completed handoff says that the state of its task must know.
#[derive(Debug, Clone, PartialEq)]
pub struct Completed {
    pub task: TaskId,
    pub key: String,
    pub at: Wall,
    /// Where its result moves the task, if it says so.
    pub phase: Option<Phase>,
}

impl Completed {
    /// None where the record says itself that its outcome is not in the state, or not all of it.
    pub fn of(record: &Record, id: &str) -> Option<Self> {
        let task = task_of(record)?;
        let result = record.doc.get("result")?.as_object()?;
        if record.meta.to != Some(State::Completed) {
            return None;
        }
        let warnings = record.doc.get("warnings").and_then(Value::as_array);
        let mut warnings = warnings.into_iter().flatten().filter_map(Value::as_str);
        let left_out = [
            format!("the state of task {task} lacks this outcome"),
            format!("task {task} stays in its phase"),
        ];
        if warnings.any(|said| left_out.iter().any(|it| said.starts_with(it.as_str()))) {
            return None;
        }
        let next = result
            .get("handoff")
            .and_then(|handoff| handoff.get("next_phase"));
        Some(Self {
            key: key_of(id, record.meta.attempts.last(), record),
            at: Wall::parse(text(record, "completed_at"))?,
            phase: next.and_then(Phase::asked),
            task,
        })
    }
}

/// What is wrong with a state, held against the outcomes of its task and its own history, which has
/// a line for each of its versions.
pub fn contradiction(
    state: &TaskState,
    history: &[Change],
    outcomes: &[(&str, &Completed)],
    most_applied: usize,
) -> Option<String> {
    let named = |phase: Option<&Value>| {
        let phase = phase.and_then(Phase::of);
        phase.map_or_else(|| "none".to_owned(), |phase| phase.name())
    };
    let last = history.last()?;
    let phase = named(state.document().get("phase"));
    if phase != named(Some(&last.phase)) {
        return Some(format!(
            "its phase is {phase}, but its history says {} for version {}",
            named(Some(&last.phase)),
            last.version
        ));
    }
    let applied: Vec<&str> = state.applied().collect();
    let began = history.first()?.at;
    for (id, outcome) in outcomes {
        if applied.contains(&outcome.key.as_str()) {
            continue;
        }
        let is_held = |known: &&str| known.strip_suffix(HELD) == Some(outcome.key.as_str());
        if applied.iter().any(is_held) {
            return Some(format!(
                "its phase is {phase} and it waits for a human's answer to {id}, but {id} is \
                 completed"
            ));
        }
        // A state remembers so many outcomes, and none of before it was begun.
        if applied.len() < most_applied && outcome.at >= began {
            return Some(format!(
                "its phase is {phase}, and it lacks the outcome of {id}, which is completed"
            ));
        }
    }
    let newest = applied.last()?;
    let (id, outcome) = outcomes.iter().find(|(_, it)| it.key == *newest)?;
    let moved = history
        .iter()
        .rfind(|change| change.changed.iter().any(|key| key == "applied"))?;
    let (there, wanted) = (Phase::of(&moved.phase), outcome.phase.as_ref()?);
    (there.as_ref() != Some(wanted)).then(|| {
        format!(
            "its phase is {} after the outcome of {id}, but {id} moves it to {wanted}",
            named(Some(&moved.phase))
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protocol::task::change;

    const KEY: &str = "x#1 2026-11-19T08:00:00.000Z";

    fn state(phase: &str, version: u64, applied: &[&str]) -> TaskState {
        let doc = json!({"task_id": "T", "version": version, "phase": phase, "applied": applied});
        TaskState::from_document(doc.as_object().unwrap().clone()).unwrap()
    }

    fn outcome(key: &str, at: i64, phase: Option<&str>) -> Completed {
        Completed {
            task: TaskId::parse("T").unwrap(),
            key: key.to_owned(),
            at: Wall(at),
            phase: phase.and_then(Phase::named),
        }
    }

    #[test]
    fn a_phase_that_does_not_follow_is_found() {
        let first = state("planning", 1, &[]);
        let after = |phase: &str, applied: &[&str]| state(phase, 2, applied);
        let held = format!("{KEY}{HELD}");
        for (stored, told, outcome, said) in [
            // All is well.
            (
                "testing",
                after("testing", &[KEY]),
                outcome(KEY, 5, Some("testing")),
                None,
            ),
            (
                "testing",
                after("testing", &[KEY]),
                outcome(KEY, 5, None),
                None,
            ),
            // The outcome of before the state was begun, and of another task's time.
            (
                "testing",
                after("testing", &[]),
                outcome("y#1", 0, Some("planning")),
                None,
            ),
            (
                "planning",
                after("testing", &[KEY]),
                outcome(KEY, 5, Some("testing")),
                Some("its history says testing"),
            ),
            (
                "planning",
                after("planning", &[]),
                outcome(KEY, 5, Some("testing")),
                Some("lacks the outcome of x"),
            ),
            (
                "planning",
                after("planning", &[&held]),
                outcome(KEY, 5, Some("testing")),
                Some("waits for a human"),
            ),
            (
                "planning",
                after("planning", &[KEY]),
                outcome(KEY, 5, Some("testing")),
                Some("moves it to testing"),
            ),
        ] {
            let history = [
                change(None, &first, Wall(1)),
                change(Some(&first), &told, Wall(2)),
            ];
            let mut stored_state = told.clone();
            stored_state.set("phase", stored);
            let found = contradiction(&stored_state, &history, &[("x", &outcome)], 3);
            match said {
                None => assert_eq!(found, None, "{outcome:?}"),
                Some(said) => assert!(
                    found.as_ref().is_some_and(|it| it.contains(said)),
                    "{said}: {found:?}"
                ),
            }
        }
    }

    #[test]
    fn a_full_memory_accuses_nobody() {
        let (first, told) = (state("a", 1, &[]), state("a", 2, &["1", "2", "3"]));
        let history = [
            change(None, &first, Wall(1)),
            change(Some(&first), &told, Wall(2)),
        ];
        let lost = outcome("x#1", 5, None);
        assert_eq!(contradiction(&told, &history, &[("x", &lost)], 3), None);
        assert!(contradiction(&told, &history, &[("x", &lost)], 4).is_some());
    }
}
