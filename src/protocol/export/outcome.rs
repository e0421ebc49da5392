//! The outcome in an export: what became of the handoff, out of the daemon's keys.

use serde_json::{Map, Value};

use crate::protocol::attempt::starts;
use crate::protocol::error::without_words;
use crate::protocol::record::Record;

/// The daemon's keys that say what became of it, in the order in which they are shown.
const SHOWN: [&str; 11] = [
    "started_at",
    "completed_at",
    "failed_at",
    "execution_time_seconds",
    "acknowledgment",
    "waiting",
    "answer",
    "error",
    "retry_available",
    "recovery_actions",
    "result",
];

/// How far it came; `None` as long as nothing was done with it.
pub(super) fn of(record: &Record) -> Option<Map<String, Value>> {
    let status = record
        .doc
        .get("status")
        .filter(|status| *status != "pending")?;
    let mut outcome = Map::new();
    outcome.insert("status".to_owned(), status.clone());
    outcome.insert("attempts".to_owned(), starts(&record.meta.attempts).into());
    let submitted = record.submitted_document();
    for key in SHOWN {
        // What is left of the producer's under such a name is not an outcome.
        if !submitted.contains_key(key) || record.meta.submitted.contains_key(key) {
            let value = record.doc.get(key).cloned();
            outcome.extend(value.map(|value| (key.to_owned(), value)));
        }
    }
    for key in &record.meta.lifted {
        if let Some(value) = record.doc.get(key) {
            outcome.insert(key.clone(), value.clone());
        }
    }
    once(&mut outcome, &record.meta.lifted);
    leave_out_words(&mut outcome);
    Some(outcome)
}

/// Leaves out what programs printed: the record keeps it, and a package goes to others.
fn leave_out_words(outcome: &mut Map<String, Value>) {
    for (key, field) in [("error", "message"), ("waiting", "reason")] {
        let text = outcome.get_mut(key).and_then(|value| value.get_mut(field));
        if let Some(Value::String(text)) = text {
            text.truncate(without_words(text).len());
        }
    }
    let verify = outcome.get_mut("validation");
    let verify = verify.and_then(|validation| validation.get_mut("verify")?.as_object_mut());
    if let Some(verify) = verify {
        verify.shift_remove("stderr");
    }
}

/// Leaves out of `result` what stands beside it.
fn once(outcome: &mut Map<String, Value>, lifted: &[String]) {
    let Some(Value::Object(mut result)) = outcome.shift_remove("result") else {
        return;
    };
    result.retain(|key, value| !lifted.contains(key) || outcome.get(key) != Some(value));
    if !result.is_empty() {
        outcome.insert("result".to_owned(), result.into());
    }
}
