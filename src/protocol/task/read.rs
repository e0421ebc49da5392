//! Whether a document is a task's state: every known field that is there has its type.
//!
//! Little is required, because agents begin with little; what a handoff needs is asked by its
//! gate. Unknown fields are nobody's business here.

use serde_json::{Map, Value};

use super::entry::Severity;
use super::phase::Phase;
use super::{FORMAT, StateError, TaskId};
use crate::clock::Wall;
use crate::protocol::field::{FieldError, Reader, present};

pub(super) fn check(doc: &Map<String, Value>) -> Result<(TaskId, u64), StateError> {
    let mut reader = Reader::default();
    format(&mut reader, doc)?;
    let task = task_id(&mut reader, doc);
    let version = version(&mut reader, doc);
    for key in [
        "task_title",
        "context_summary",
        "source_agent",
        "target_agent",
    ] {
        reader.string(doc, key);
    }
    for key in ["phase_started_at", "handoff_timestamp"] {
        if let Some(text) = reader.string(doc, key)
            && Wall::parse(text).is_none()
        {
            reader.wrong(key, "expected an RFC 3339 instant");
        }
    }
    for key in ["phase", "previous_phase"] {
        phase(&mut reader, doc, key);
    }
    for key in [
        "warnings",
        "quality_gates_passed",
        "quality_gates_failed",
        "applied",
    ] {
        reader.strings(doc, key);
    }
    reader.object(doc, "quality_gate_results");
    for (key, one) in LISTS {
        entries(&mut reader, doc, key, one);
    }
    reader
        .finish(task.zip(version))
        .map_err(StateError::Invalid)
}

/// Checks one entry; its fields are named below `path`.
type CheckEntry = fn(&mut Reader, &Map<String, Value>, &str);

const LISTS: [(&str, CheckEntry); 3] = [
    ("artifacts", artifact),
    ("decisions_made", decision),
    ("blocking_issues", issue),
];

fn format(reader: &mut Reader, doc: &Map<String, Value>) -> Result<(), StateError> {
    let Some(value) = present(doc, "format") else {
        return Ok(());
    };
    match value.as_u64() {
        Some(FORMAT) => Ok(()),
        Some(0) | None if !is_beyond_u64(value) => {
            reader.expected("format", "1", value);
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

fn task_id(reader: &mut Reader, doc: &Map<String, Value>) -> Option<TaskId> {
    if present(doc, "task_id").is_none() {
        reader.wrong("task_id", "missing");
        return None;
    }
    let parsed = TaskId::parse(reader.string(doc, "task_id")?);
    parsed.map_err(|error| reader.wrong("task_id", error)).ok()
}

fn version(reader: &mut Reader, doc: &Map<String, Value>) -> Option<u64> {
    let Some(value) = present(doc, "version") else {
        reader.wrong(
            "version",
            "missing; a new state has 1, a changed one the stored one's + 1",
        );
        return None;
    };
    let version = value.as_u64().filter(|version| *version > 0);
    if version.is_none() {
        reader.expected("version", "an integer from 1", value);
    }
    version
}

fn phase(reader: &mut Reader, doc: &Map<String, Value>, key: &str) {
    if let Some(value) = present(doc, key)
        && Phase::of(value).is_none()
        && value.as_str().is_none()
    {
        reader.expected(key, "a word or an integer", value);
    }
}

fn entries(reader: &mut Reader, doc: &Map<String, Value>, key: &str, check: CheckEntry) {
    match present(doc, key) {
        None => {}
        Some(Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                let path = format!("{key}[{index}]");
                match item {
                    Value::Object(entry) => check(reader, entry, &path),
                    other => reader.expected(path, "an object", other),
                }
            }
        }
        Some(other) => reader.expected(key, "an array", other),
    }
}

/// A field that says what the entry is about.
fn required(reader: &mut Reader, entry: &Map<String, Value>, path: &str, key: &str) {
    let path = format!("{path}.{key}");
    if present(entry, key).is_none() {
        reader.wrong(path, "missing");
    } else if reader.string(entry, &path).is_some_and(str::is_empty) {
        reader.wrong(path, "must not be empty");
    }
}

fn artifact(reader: &mut Reader, entry: &Map<String, Value>, path: &str) {
    required(reader, entry, path, "path");
    for key in ["artifact_type", "content_hash"] {
        reader.string(entry, &format!("{path}.{key}"));
    }
    if let Some(size) = present(entry, "size_bytes")
        && size.as_u64().is_none()
    {
        reader.expected(format!("{path}.size_bytes"), "a number of bytes", size);
    }
}

fn decision(reader: &mut Reader, entry: &Map<String, Value>, path: &str) {
    required(reader, entry, path, "decision");
    for key in ["rationale", "timestamp", "agent"] {
        reader.string(entry, &format!("{path}.{key}"));
    }
    match present(entry, "alternatives") {
        None => {}
        Some(Value::Array(items)) if items.iter().all(Value::is_string) => {}
        Some(other) => {
            reader.expected(format!("{path}.alternatives"), "an array of strings", other);
        }
    }
}

fn issue(reader: &mut Reader, entry: &Map<String, Value>, path: &str) {
    required(reader, entry, path, "issue");
    reader.string(entry, &format!("{path}.suggested_action"));
    if let Some(value) = present(entry, "severity")
        && value.as_str().and_then(Severity::parse).is_none()
    {
        let what = "blocker, high, medium or low";
        reader.expected(format!("{path}.severity"), what, value);
    }
    if let Some(value) = present(entry, "requires_human")
        && !value.is_boolean()
    {
        reader.expected(format!("{path}.requires_human"), "true or false", value);
    }
}

/// What is wrong with one entry that is to be added to a list.
pub fn check_entry(key: &str, entry: &Map<String, Value>, path: &str) -> Vec<FieldError> {
    let mut reader = Reader::default();
    for (list, check) in LISTS {
        if list == key {
            check(&mut reader, entry, path);
        }
    }
    reader.finish::<()>(Some(())).err().unwrap_or_default()
}
