//! What follows from a verdict: the record's next content and the folder it goes to.
//!
//! Everything a person reads about an outcome is written here, so that messages, recovery
//! actions and the fields beside them can't drift apart.

use serde_json::{Map, Value, json};

use crate::clock::{Now, Wall};
use crate::policy::judge::{Compliance, Delivered, Exit, Failure, Success, Verdict, tail_of};
use crate::policy::retry::RetryPolicy;
use crate::protocol::error::ErrorCode;
use crate::protocol::lifecycle::State;
use crate::protocol::record::{AttemptError, AttemptOutcome, LIFTED, Record};
use crate::protocol::timer::Timer;

/// The most of a failure that is handed to the next attempt.
pub const DIGEST_BYTES: usize = 2000;

/// How many wrong fields the next attempt is told of.
const SHOWN_FIELDS: usize = 20;

/// What is known when an attempt is concluded.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    pub now: Now,
    pub boot: &'a str,
    pub retry: RetryPolicy,
    /// From 0 to 1, for the jitter.
    pub chance: f64,
    pub max_interruptions: u32,
    pub exit: Exit,
    pub log: Option<String>,
    pub ran_ms: u64,
    /// When, by whom and why it was cancelled, if it was.
    pub cancelled: &'a str,
}

/// What was decided, for the engine and the audit log. The record itself carries the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub to: State,
    pub event: &'static str,
    /// The specialist's other handoffs wait as long as this one.
    pub holds_agent: bool,
}

/// Closes the running attempt in the record and decides where the record goes.
pub fn conclude(record: &mut Record, verdict: Verdict, facts: &Facts<'_>) -> Decision {
    match verdict {
        Verdict::Completed(success) => {
            close(record, AttemptOutcome::Completed, None, facts);
            complete(record, success, facts.now.wall);
            decided(State::Completed, "completed")
        }
        Verdict::Held { wait_ms, reason } => {
            close(record, AttemptOutcome::Held, None, facts);
            wait(
                record,
                "time",
                Some(wait_ms),
                &reason,
                facts.now,
                facts.boot,
            );
            record.meta.holds_agent = true;
            Decision {
                to: State::Waiting,
                event: "held",
                holds_agent: true,
            }
        }
        Verdict::NeedsReview { result } => {
            close(record, AttemptOutcome::NeedsReview, None, facts);
            let reason = result
                .get("summary")
                .and_then(Value::as_str)
                .unwrap_or("the specialist asks for a review")
                .to_owned();
            record.set("result", Value::Object(result));
            wait(record, "human", None, &reason, facts.now, facts.boot);
            decided(State::Waiting, "needs_review")
        }
        Verdict::Cancelled => {
            let told = cancelled(facts.cancelled);
            close(record, AttemptOutcome::Cancelled, Some(&told), facts);
            fail(record, &told, facts.retry.max_retries, facts.now.wall);
            decided(State::Failed, "cancelled")
        }
        Verdict::Interrupted { counted, reason } => interrupted(record, counted, &reason, facts),
        Verdict::Failed(told) => failed(record, &told, facts),
    }
}

fn decided(to: State, event: &'static str) -> Decision {
    Decision {
        to,
        event,
        holds_agent: false,
    }
}

fn failed(record: &mut Record, told: &Failure, facts: &Facts<'_>) -> Decision {
    close(record, told.outcome, Some(told), facts);
    if told.retryable && record.meta.retries < facts.retry.max_retries {
        record.meta.retries += 1;
        let n = record.meta.retries;
        let length = facts.retry.wait(n, facts.chance);
        let length_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let reason = format!(
            "retry {n} of {} after {}: {}",
            facts.retry.max_retries, told.code, told.message
        );
        wait(
            record,
            "retry",
            Some(length_ms),
            &digest(&reason),
            facts.now,
            facts.boot,
        );
        return decided(State::Waiting, "retry_scheduled");
    }
    if let Some(result) = &told.result {
        record.set("result", Value::Object(result.clone()));
        lift_from(record, result, "warnings");
        lift_from(record, result, "errors");
        merge_acknowledgment(record, result);
    }
    if told.invalid_output {
        record.lift("output", json!({"schema_compliance": "invalid"}));
    }
    fail(record, told, facts.retry.max_retries, facts.now.wall);
    decided(State::Failed, "failed")
}

fn interrupted(record: &mut Record, counted: bool, reason: &str, facts: &Facts<'_>) -> Decision {
    let told = Failure {
        code: ErrorCode::Interrupted,
        message: reason.to_owned(),
        detail_code: None,
        retryable: false,
        outcome: AttemptOutcome::Interrupted,
        result: None,
        actions: Vec::new(),
        fields: Vec::new(),
        invalid_output: false,
        verify: None,
    };
    close(record, AttemptOutcome::Interrupted, Some(&told), facts);
    record.meta.interruptions += u32::from(counted);
    if record.meta.interruptions >= facts.max_interruptions {
        let told = Failure {
            message: format!(
                "an attempt was lost {} times (max_interruptions); the last time: {reason}",
                record.meta.interruptions
            ),
            actions: vec![
                "Find out what takes the specialist down with the daemon or the machine (memory, \
                 the system's log)"
                    .to_owned(),
                "Then retry it".to_owned(),
            ],
            ..told
        };
        fail(record, &told, facts.retry.max_retries, facts.now.wall);
        return decided(State::Failed, "failed");
    }
    let reason = format!("interrupted ({reason}); it runs again when a place is free");
    wait(record, "retry", Some(0), &reason, facts.now, facts.boot);
    decided(State::Waiting, "interrupted")
}

/// Writes how the running attempt ended, if one is listed as running.
fn close(record: &mut Record, outcome: AttemptOutcome, told: Option<&Failure>, facts: &Facts<'_>) {
    let Some(attempt) = record.meta.attempts.last_mut() else {
        return;
    };
    if attempt.outcome.is_some() {
        return;
    }
    attempt.outcome = Some(outcome);
    attempt.ended_at = Some(facts.now.wall);
    attempt.milliseconds = Some(facts.ran_ms);
    match facts.exit {
        Exit::Code(code) => attempt.exit_code = Some(code),
        Exit::Signal(signal) => attempt.signal = Some(signal),
        Exit::Unknown => {}
    }
    attempt.log.clone_from(&facts.log);
    attempt.error = told.map(|told| AttemptError {
        code: told.code.to_string(),
        message: digest(&told.message),
        fields: told.fields.iter().take(SHOWN_FIELDS).cloned().collect(),
    });
}

/// Writes a success into the record and decides it for `completed/`.
pub fn complete(record: &mut Record, success: Success, at: Wall) {
    let Success {
        result,
        text,
        warnings,
        delivered,
    } = success;
    record.decide(State::Completed);
    record.set("completed_at", at.to_string());
    record.set("timestamp_completed", at.to_string());
    record.set("execution_time_seconds", seconds(record.execution_ms()));
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

/// What the specialist acknowledged is added to what the daemon did.
fn merge_acknowledgment(record: &mut Record, result: &Map<String, Value>) {
    let Some(Value::Object(theirs)) = result.get("acknowledgment") else {
        return;
    };
    let mut merged = match record.doc.get("acknowledgment") {
        Some(Value::Object(ours)) => ours.clone(),
        _ => Map::new(),
    };
    merged.extend(theirs.clone());
    record.set("acknowledgment", Value::Object(merged));
}

/// The specialist's word stands as `claimed`; `status` is the daemon's own finding, and where
/// there was nothing to check it says so.
fn verified(claimed: Option<&Value>, delivered: &Delivered) -> Value {
    let mut validation = match claimed {
        Some(Value::Object(fields)) => fields.clone(),
        Some(other) => Map::from_iter([("status".to_owned(), other.clone())]),
        None => Map::new(),
    };
    if let Some(word) = validation.shift_remove("status") {
        validation.insert("claimed".to_owned(), word);
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

fn lift_from(record: &mut Record, result: &Map<String, Value>, key: &str) {
    if let Some(value) = result.get(key) {
        record.lift(key, value.clone());
    }
}

/// Writes a failure into the record and decides it for `failed/`.
pub fn fail(record: &mut Record, told: &Failure, max_retries: u32, at: Wall) {
    record.decide(State::Failed);
    record.set("failed_at", at.to_string());
    record.set("timestamp_failed", at.to_string());
    record.set("execution_time_seconds", seconds(record.execution_ms()));
    let mut error = json!({
        "code": told.code.as_str(),
        "message": told.message,
        "severity": "error",
        "timestamp": at.to_string(),
    });
    if let (Some(detail), Some(error)) = (&told.detail_code, error.as_object_mut()) {
        error.insert("detail_code".to_owned(), detail.clone().into());
    }
    record.set("error", error);
    if !record.meta.lifted.iter().any(|key| key == "validation") {
        record.lift("validation", failed_validation(told));
    }
    record.set(
        "retry_available",
        may_succeed_again(told, record.meta.retries, max_retries),
    );
    record.set("retry_count", record.meta.retries);
    record.set("max_retries", max_retries);
    record.set("recovery_actions", told.actions.clone());
}

fn failed_validation(told: &Failure) -> Value {
    let claimed = told
        .result
        .as_ref()
        .and_then(|result| result.get("validation"));
    let mut validation = match verified(claimed, &Delivered::default()) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let checked = !told.fields.is_empty()
        || matches!(
            told.code,
            ErrorCode::SchemaValidationFailed | ErrorCode::ValidationFailed
        );
    let status = if checked { "failed" } else { "unchecked" };
    validation.insert("status".to_owned(), status.into());
    if !told.fields.is_empty() {
        let fields = serde_json::to_value(&told.fields).unwrap_or_default();
        validation.insert("errors".to_owned(), fields);
    }
    if let Some(verify) = &told.verify {
        validation.insert("verify".to_owned(), verify.clone());
    }
    validation
        .entry("errors")
        .or_insert_with(|| Value::Array(Vec::new()));
    Value::Object(validation)
}

/// Whether dropping it again may help: unchanged or with its input mended, and the budget is
/// not used up.
fn may_succeed_again(told: &Failure, retries: u32, max_retries: u32) -> bool {
    match told.code {
        ErrorCode::DuplicateId | ErrorCode::Rejected => false,
        code if code.retries_by_itself() => retries < max_retries,
        _ => true,
    }
}

/// Parks the record. `length_ms` is absent for waits that no clock ends.
pub fn wait(
    record: &mut Record,
    on: &str,
    length_ms: Option<u64>,
    reason: &str,
    now: Now,
    boot: &str,
) {
    record.decide(State::Waiting);
    let mut waiting = Map::new();
    waiting.insert("on".to_owned(), on.into());
    record.meta.timer = length_ms.map(|length| Timer::new(now, boot, length));
    if let Some(timer) = &record.meta.timer {
        waiting.insert("until".to_owned(), timer.until.to_string().into());
    }
    waiting.insert("reason".to_owned(), reason.into());
    record.set("waiting", Value::Object(waiting));
}

/// A cancel, told the same way wherever the handoff stood.
pub fn cancelled(when: &str) -> Failure {
    Failure {
        code: ErrorCode::Cancelled,
        message: format!("cancelled {when}"),
        detail_code: None,
        retryable: false,
        outcome: AttemptOutcome::Cancelled,
        result: None,
        actions: vec!["To run it after all, drop a retry into control/".to_owned()],
        fields: Vec::new(),
        invalid_output: false,
        verify: None,
    }
}

/// A refusal before any attempt, with the fields that are wrong.
pub fn refusal(code: ErrorCode, message: String, actions: Vec<String>) -> Failure {
    Failure {
        code,
        message,
        detail_code: None,
        retryable: false,
        outcome: AttemptOutcome::Failed,
        result: None,
        actions,
        fields: Vec::new(),
        invalid_output: false,
        verify: None,
    }
}

/// What the next attempt is told of the last failure.
pub fn last_error_digest(record: &Record) -> Option<String> {
    let last = record
        .meta
        .current_attempts()
        .iter()
        .rev()
        .find_map(|a| a.error.as_ref())?;
    let text = format!("{}: {}", last.code, last.message);
    Some(text.replace('\0', "\u{fffd}"))
}

/// Bounds a message for places where only a digest belongs: its head and its tail.
fn digest(message: &str) -> String {
    if message.len() <= DIGEST_BYTES {
        return message.to_owned();
    }
    let head: String = message.chars().take(DIGEST_BYTES / 4).collect();
    format!("{head} […] {}", tail_of(message, DIGEST_BYTES / 2))
}

fn seconds(ms: u64) -> Value {
    let text = format!("{}.{:03}", ms / 1000, ms % 1000);
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

#[cfg(test)]
#[path = "next_tests.rs"]
mod tests;
