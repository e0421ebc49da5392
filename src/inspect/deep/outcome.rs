//! What an ended record must say: when, how, and what can be done.

use serde_json::Value;

use super::{Fault, Invariant};
use crate::clock::Wall;
use crate::protocol::error::ErrorCode;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;

const COMPARE: &str = "compare it with its lines in the audit log (handoffd audit ID); handoffd \
does not trust an outcome that was edited by hand";

/// What is missing or contradicts itself in the outcome of a record that has ended.
pub fn check(record: &Record, state: State) -> Vec<Fault> {
    let wrong = match state {
        State::Completed => completed(record),
        State::Failed if record.meta.to != Some(State::Waiting) => failed(record),
        _ => Vec::new(),
    };
    wrong
        .into_iter()
        .map(|what| Fault::new(Invariant::Outcome, what, COMPARE))
        .collect()
}

fn completed(record: &Record) -> Vec<String> {
    let mut wrong = times(record, "completed_at", "timestamp_completed");
    if record.doc.contains_key("error") {
        wrong.push("completed, but has an error".to_owned());
    }
    wrong
}

fn failed(record: &Record) -> Vec<String> {
    let mut wrong = times(record, "failed_at", "timestamp_failed");
    let error = record.doc.get("error");
    let of_error = |key: &str| error.and_then(|error| error.get(key)?.as_str());
    match of_error("code") {
        None => wrong.push("failed, but has no error.code".to_owned()),
        Some(code) if ErrorCode::parse(code).is_none() => {
            wrong.push(format!("{code} is not an error code"));
        }
        Some(_) => {}
    }
    if of_error("message").is_none_or(str::is_empty) {
        wrong.push("failed, but has no error.message".to_owned());
    }
    let number = |key: &str| record.doc.get(key).and_then(Value::as_u64);
    match (number("retry_count"), number("max_retries")) {
        (Some(count), Some(most)) if count > most => wrong.push(format!(
            "retried {count} times, but only {most} retries are allowed"
        )),
        (Some(_), Some(_)) => {}
        _ => wrong.push("retry_count or max_retries is missing".to_owned()),
    }
    if !record
        .doc
        .get("retry_available")
        .is_some_and(Value::is_boolean)
    {
        wrong.push("retry_available is missing".to_owned());
    }
    if !record
        .doc
        .get("recovery_actions")
        .is_some_and(Value::is_array)
    {
        wrong.push("recovery_actions are missing".to_owned());
    }
    wrong
}

/// Both names for the moment of the end, and the time that it took.
fn times(record: &Record, at: &str, same: &str) -> Vec<String> {
    let text = |key: &str| record.doc.get(key).and_then(Value::as_str);
    let mut wrong = Vec::new();
    if text(at).and_then(Wall::parse).is_none() {
        wrong.push(format!("{at} is missing or not a time"));
    }
    if text(at) != text(same) {
        wrong.push(format!("{at} and {same} differ"));
    }
    let seconds = record.doc.get("execution_time_seconds");
    if !seconds.is_some_and(Value::is_number) {
        wrong.push("execution_time_seconds is missing".to_owned());
    }
    wrong
}
