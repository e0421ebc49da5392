//! What a success leaves in the record.

use serde_json::{Map, Value};

use crate::clock::Wall;
use crate::policy::judge::{Compliance, Delivered, Success};
use crate::policy::next::seconds;
use crate::protocol::lifecycle::State;
use crate::protocol::record::{LIFTED, Record};

/// Writes a success into the record and decides it for `completed/`.
pub fn complete(record: &mut Record, success: Success, at: Wall) {
    finish(record, at);
    fill(record, success);
}

/// Decides a record for `completed/` that has all else already.
pub fn finish(record: &mut Record, at: Wall) {
    record.decide(State::Completed);
    record.set("completed_at", at.to_string());
    record.set("timestamp_completed", at.to_string());
    record.set("execution_time_seconds", seconds(record.execution_ms()));
}

/// Adds warnings of the daemon's own to those that stand in a record, each once.
pub fn warn(record: &mut Record, warnings: Vec<String>) {
    let ours = record.meta.lifted.iter().any(|key| key == "warnings");
    let mut all = match record.doc.get("warnings").filter(|_| ours) {
        Some(Value::Array(known)) => known.clone(),
        Some(other) => vec![other.clone()],
        None => Vec::new(),
    };
    let before = all.len();
    for warning in warnings.into_iter().map(Value::String) {
        if !all.contains(&warning) {
            all.push(warning);
        }
    }
    if all.len() > before {
        record.lift("warnings", Value::Array(all));
    }
}

/// Writes what came of a success into the record.
pub fn fill(record: &mut Record, success: Success) {
    let Success {
        result,
        text,
        warnings,
        delivered,
    } = success;
    let result = result.unwrap_or_default();
    for key in LIFTED {
        lift_from(record, &result, key);
    }
    let text = text.filter(|_| !delivered.text_kept);
    if text.is_some() || delivered.compliance.is_some() {
        record.lift("output", output(result.get("output"), text, &delivered));
    }
    record.lift("validation", verified(result.get("validation"), &delivered));
    merge_acknowledgment(record, &result);
    let received = record
        .doc
        .get("acknowledgment")
        .and_then(|it| it.get("warnings")?.as_array())
        .cloned()
        .unwrap_or_default();
    if !warnings.is_empty() || !received.is_empty() {
        let mut all = match result.get("warnings") {
            Some(Value::Array(theirs)) => theirs.clone(),
            Some(other) => vec![other.clone()],
            None => Vec::new(),
        };
        all.extend(received);
        all.extend(warnings.into_iter().map(Value::String));
        record.lift("warnings", Value::Array(all));
    }
    record.set("result", Value::Object(result));
}

/// Writes into a record that waits what it delivered, if it did.
pub fn deliver(record: &mut Record, delivered: &Delivered) {
    if !delivered.artifacts.is_empty() {
        let theirs = record.doc.get("output").cloned();
        record.lift("output", output(theirs.as_ref(), None, delivered));
        let claimed = record.doc.get("validation").cloned();
        record.lift("validation", verified(claimed.as_ref(), delivered));
    }
}

/// The specialist's output, with what the daemon knows of the artifacts.
fn output(theirs: Option<&Value>, text: Option<String>, delivered: &Delivered) -> Value {
    let mut output = match theirs {
        Some(Value::Object(output)) => output.clone(),
        Some(other) => Map::from_iter([("value".to_owned(), other.clone())]),
        None => Map::new(),
    };
    if let Some(text) = text {
        output.entry("text").or_insert(Value::String(text));
    }
    if let Some(Value::Object(first)) = delivered.artifacts.first() {
        let shown = [
            ("artifact_id", "artifact_id"),
            ("artifact_path", "path"),
            ("artifact_type", "artifact_type"),
            ("sha256", "sha256"),
            ("size_bytes", "size_bytes"),
        ];
        for (name, from) in shown {
            if let Some(value) = first.get(from) {
                output.insert(name.to_owned(), value.clone());
            }
        }
        output.insert(
            "artifacts".to_owned(),
            Value::Array(delivered.artifacts.clone()),
        );
    }
    if let Some(compliance) = delivered.compliance {
        let word = match compliance {
            Compliance::Valid => "valid",
            Compliance::Unchecked => "unchecked",
        };
        output.insert("schema_compliance".to_owned(), word.into());
    }
    Value::Object(output)
}

/// It was received, but nobody begins to work on it.
pub fn not_starting(record: &mut Record) {
    let acknowledgment = record.doc.get_mut("acknowledgment");
    if let Some(starting) = acknowledgment.and_then(|it| it.get_mut("starting")) {
        *starting = false.into();
    }
}

/// What the specialist acknowledged is added to what the daemon did.
pub(super) fn merge_acknowledgment(record: &mut Record, result: &Map<String, Value>) {
    let Some(Value::Object(theirs)) = result.get("acknowledgment") else {
        return;
    };
    let mut merged = match record.doc.get("acknowledgment") {
        Some(Value::Object(ours)) => ours.clone(),
        _ => Map::new(),
    };
    merged.extend(theirs.clone());
    let asks = theirs.get("action").and_then(Value::as_str) == Some("request_clarification");
    if asks && !theirs.contains_key("starting") {
        merged.insert("starting".to_owned(), false.into());
    }
    record.set("acknowledgment", Value::Object(merged));
}

/// The specialist's word stands as `claimed`; `status` is the daemon's own finding, and where
/// there was nothing to check it says so.
pub(super) fn verified(claimed: Option<&Value>, delivered: &Delivered) -> Value {
    let mut validation = match claimed {
        Some(Value::Object(fields)) => fields.clone(),
        Some(other) => Map::from_iter([("status".to_owned(), other.clone())]),
        None => Map::new(),
    };
    // What only the daemon says may not be said by the specialist.
    let own = validation.shift_remove("verify");
    if let Some(word) = validation.shift_remove("status") {
        validation.insert("claimed".to_owned(), word);
    }
    if let Some(own) = own {
        validation.insert("claimed_verify".to_owned(), own);
    }
    let status = if delivered.checked {
        "passed"
    } else {
        "unchecked"
    };
    validation.shift_insert(0, "status".to_owned(), status.into());
    if let Some(verify) = &delivered.verify {
        validation.insert("verify".to_owned(), verify.clone());
    }
    Value::Object(validation)
}

pub(super) fn lift_from(record: &mut Record, result: &Map<String, Value>, key: &str) {
    if let Some(value) = result.get(key) {
        record.lift(key, value.clone());
    }
}
