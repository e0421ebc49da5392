//! Whether a document is a task's state: every known field that is there has its type.
//!
//! Little is required, because agents begin with little; what a handoff needs is asked by its
//! gate. Unknown fields are nobody's business here.

use serde_json::{Map, Value};

use super::{FORMAT, StateError, TaskId};
use crate::protocol::field::{FieldError, expected, present};
use crate::protocol::shape::{Field, MOST, Range, Shape, TEXTS, check_fields, field, join};

const ARTIFACT: &[Field] = &[
    field("path", Shape::Text, "Relative to the root"),
    field("artifact_type", Shape::Text, "The type of the artifact"),
    field("content_hash", Shape::Text, "SHA-256"),
    field(
        "size_bytes",
        Shape::Number(Range {
            what: "a number of bytes",
            least: 0.0,
            open: false,
            most: 9_007_199_254_740_992.0,
            whole: true,
        }),
        "Its size",
    ),
];

const DECISION: &[Field] = &[
    field("decision", Shape::Text, "The decision"),
    field("rationale", Shape::Text, "Why"),
    field("timestamp", Shape::Text, "When"),
    field("agent", Shape::Text, "The agent that decided"),
    field("alternatives", TEXTS, "The alternatives"),
];

const ISSUE: &[Field] = &[
    field("issue", Shape::Text, "The issue"),
    field(
        "severity",
        Shape::Word(&["blocker", "high", "medium", "low"]),
        "How severe it is",
    ),
    field("suggested_action", Shape::Text, "A suggestion"),
    field("requires_human", Shape::Bool, "Whether a human must decide"),
];

/// A list, the shape of its entries, and the field that an entry can't do without.
const LISTS: [(&str, &[Field], &str); 3] = [
    ("artifacts", ARTIFACT, "path"),
    ("decisions_made", DECISION, "decision"),
    ("blocking_issues", ISSUE, "issue"),
];

const fn list(of: &'static Shape) -> Shape {
    Shape::List {
        of,
        what: "an array",
        most: MOST * 100,
    }
}

/// The fields of a state, but for its task, its version and its format.
pub const STATE: &[Field] = &[
    field("task_title", Shape::Text, "The title of the task"),
    field("phase", Shape::Phase, "The phase of the task"),
    field("previous_phase", Shape::Phase, "The phase before"),
    field("phase_started_at", Shape::Instant, "When the phase began"),
    field(
        "artifacts",
        list(&Shape::Object(ARTIFACT)),
        "The artifacts of the task",
    ),
    field(
        "context_summary",
        Shape::Text,
        "The last decisions, in short",
    ),
    field(
        "decisions_made",
        list(&Shape::Object(DECISION)),
        "Decisions, with the reasons",
    ),
    field(
        "blocking_issues",
        list(&Shape::Object(ISSUE)),
        "Issues that block the task now",
    ),
    field("warnings", TEXTS, "Warnings for people"),
    field("quality_gates_passed", TEXTS, "Quality gates that passed"),
    field("quality_gates_failed", TEXTS, "Quality gates that failed"),
    field(
        "quality_gate_results",
        Shape::Map,
        "The reasons, by quality gate",
    ),
    field("source_agent", Shape::Text, "The agent that handed over"),
    field("target_agent", Shape::Text, "The agent that took over"),
    field("handoff_timestamp", Shape::Instant, "When"),
    field("applied", TEXTS, "Outcomes that are already in this state"),
];

pub(super) fn check(doc: &Map<String, Value>) -> Result<(TaskId, u64), StateError> {
    let mut errors = Vec::new();
    check_format(doc, &mut errors)?;
    let task = task_id(doc, &mut errors);
    let version = version(doc, &mut errors);
    check_fields(STATE, doc, "", &mut errors);
    for (key, _, needed) in LISTS {
        let items = doc.get(key).and_then(Value::as_array);
        for (at, item) in items.into_iter().flatten().enumerate() {
            if let Value::Object(entry) = item {
                check_needed(entry, &format!("{key}[{at}]"), needed, &mut errors);
            }
        }
    }
    match (task, version) {
        (Some(task), Some(version)) if errors.is_empty() => Ok((task, version)),
        _ => Err(StateError::Invalid(errors)),
    }
}

fn check_format(doc: &Map<String, Value>, errors: &mut Vec<FieldError>) -> Result<(), StateError> {
    let Some(value) = present(doc, "format") else {
        return Ok(());
    };
    match value.as_u64() {
        Some(FORMAT) => Ok(()),
        Some(0) | None if !is_beyond_u64(value) => {
            errors.push(expected("format", "1", value));
            Ok(())
        }
        _ => Err(StateError::NewerFormat {
            found: value.to_string().chars().take(40).collect(),
        }),
    }
}

/// Whether it is a whole number with more digits than anybody counts to.
fn is_beyond_u64(value: &Value) -> bool {
    value
        .as_number()
        .is_some_and(|n| n.as_u64().is_none() && n.as_str().bytes().all(|b| b.is_ascii_digit()))
}

fn task_id(doc: &Map<String, Value>, errors: &mut Vec<FieldError>) -> Option<TaskId> {
    let Some(value) = present(doc, "task_id") else {
        errors.push(FieldError::new("task_id", "missing"));
        return None;
    };
    let Some(text) = value.as_str() else {
        errors.push(expected("task_id", "a string", value));
        return None;
    };
    TaskId::parse(text)
        .map_err(|error| errors.push(FieldError::new("task_id", error)))
        .ok()
}

fn version(doc: &Map<String, Value>, errors: &mut Vec<FieldError>) -> Option<u64> {
    let Some(value) = present(doc, "version") else {
        errors.push(FieldError::new(
            "version",
            "missing; a new state has version 1, a changed state the stored version + 1",
        ));
        return None;
    };
    let version = value.as_u64().filter(|version| *version > 0);
    if version.is_none() {
        errors.push(expected("version", "an integer from 1", value));
    }
    version
}

/// The field that says what an entry is about.
fn check_needed(
    entry: &Map<String, Value>,
    path: &str,
    needed: &str,
    errors: &mut Vec<FieldError>,
) {
    match present(entry, needed) {
        None => errors.push(FieldError::new(join(path, needed), "missing")),
        Some(Value::String(text)) if text.is_empty() => {
            errors.push(FieldError::new(join(path, needed), "must not be empty"));
        }
        Some(_) => {}
    }
}

/// What is wrong with one entry that is to be added to a list.
pub fn check_entry(key: &str, entry: &Map<String, Value>, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (list, fields, needed) in LISTS {
        if list == key {
            check_fields(fields, entry, path, &mut errors);
            check_needed(entry, path, needed, &mut errors);
        }
    }
    errors
}
