//! What follows from a verdict: the record's next content and the folder it goes to.
//!
//! Everything a person reads about an outcome is written here, so that messages, recovery
//! actions and the fields beside them can't drift apart.

use serde_json::{Map, Value, json};

use crate::clock::{Now, Wall};
use crate::config::Config;
use crate::policy::complete::{
    complete, fill, lift_from, merge_acknowledgment, not_starting, verified, warn,
};
use crate::policy::follow::{Author, Followed, after_success};
use crate::policy::helpers::{delegated, stuck};
use crate::policy::human::{Kind, ask_person};
use crate::policy::judge::{Delivered, Exit, Failure, Success, Verdict, failure, tail_of};
use crate::policy::retry::RetryPolicy;
use crate::policy::starts::{self, SAID};
use crate::protocol::attempt::{AttemptError, AttemptOutcome, sum_up_holds};
use crate::protocol::error::ErrorCode;
use crate::protocol::lifecycle::State;
use crate::protocol::question::Inquiry;
use crate::protocol::record::Record;
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
    /// What the attempt cost, by its own count.
    pub usage: Option<Map<String, Value>>,
    pub ran_ms: u64,
    /// When, by whom and why it was cancelled, if it was.
    pub cancelled: &'a str,
    pub id: &'a str,
    pub config: &'a Config,
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
            succeeded(record, success, facts)
        }
        Verdict::Held { wait_ms, reason } => {
            close(record, AttemptOutcome::Held, None, facts);
            sum_up_holds(&mut record.meta.attempts, record.meta.spent);
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
        Verdict::NeedsReview(success) => {
            close(record, AttemptOutcome::NeedsReview, None, facts);
            let result = success.result.as_ref();
            let asked = result.and_then(Inquiry::of_result).and_then(|it| it.text);
            let summary = || result?.get("summary")?.as_str().map(str::to_owned);
            let reason = asked
                .or_else(summary)
                .unwrap_or_else(|| "the specialist asks for a review".to_owned());
            review(record, success, &reason, facts);
            decided(State::Waiting, "needs_review")
        }
        Verdict::Blocked(result, warnings) => {
            let decision = stuck(record, result, facts);
            warn(record, warnings);
            decision
        }
        Verdict::Delegate(result) => delegated(record, result, facts),
        Verdict::Cancelled => {
            let told = cancelled(facts.cancelled);
            close(record, AttemptOutcome::Cancelled, Some(&told), facts);
            fail(record, &told, facts.retry.max_retries, facts.now.wall);
            decided(State::Failed, "cancelled")
        }
        Verdict::Postponed { reason } => postponed(record, &reason, facts),
        Verdict::Interrupted { counted, reason } => interrupted(record, counted, &reason, facts),
        Verdict::Failed(told) => failed(record, &told, facts),
    }
}

/// The work is done. A blocking issue that requires a person comes before what is next.
fn succeeded(record: &mut Record, success: Success, facts: &Facts<'_>) -> Decision {
    let result = success.result.clone().unwrap_or_default();
    if let Some(issue) = human_issue(&result) {
        let reason = format!("a human must decide: {issue}");
        review(record, success, &reason, facts);
        return decided(State::Waiting, "needs_review");
    }
    let at = facts.now.wall;
    complete(record, success, at);
    let author = Author::Specialist;
    let followed = after_success(record, facts.id, &result, author, facts.config, at);
    link(record, followed);
    decided(State::Completed, "completed")
}

/// Parks delivered work for a person to look at.
fn review(record: &mut Record, success: Success, reason: &str, facts: &Facts<'_>) {
    fill(record, success);
    ask_person(record, Kind::Review, reason, facts.now, facts.boot);
}

/// The first blocking issue that only a person can resolve.
pub fn human_issue(result: &Map<String, Value>) -> Option<String> {
    let issues = result.get("blocking_issues")?.as_array()?;
    issues
        .iter()
        .find(|issue| issue.get("requires_human") == Some(&Value::Bool(true)))
        .map(|issue| {
            let told = issue.get("issue").and_then(Value::as_str);
            told.unwrap_or("an unnamed issue").to_owned()
        })
}

/// Links a record with what it sets in motion.
pub fn link(record: &mut Record, followed: Followed) {
    warn(record, followed.warnings);
    if let Some(spawn) = followed.spawn {
        record.meta.links.children.push(spawn.id.clone());
        record.meta.links.spawns = vec![spawn];
    }
}

pub(super) fn decided(to: State, event: &'static str) -> Decision {
    Decision {
        to,
        event,
        holds_agent: false,
    }
}

pub(super) fn failed(record: &mut Record, told: &Failure, facts: &Facts<'_>) -> Decision {
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
        outcome: AttemptOutcome::Interrupted,
        ..refusal(ErrorCode::Interrupted, reason.to_owned(), Vec::new())
    };
    close(record, AttemptOutcome::Interrupted, Some(&told), facts);
    record.meta.interruptions += u32::from(counted);
    if record.meta.interruptions >= facts.max_interruptions {
        let told = Failure {
            message: format!(
                "attempts were lost {} times (daemon.max_interruptions); last reason: {reason}",
                record.meta.interruptions
            ),
            actions: vec![
                "Find out what kills the specialist, the daemon or the machine (memory, the \
                 system log)"
                    .to_owned(),
                "Then retry the handoff".to_owned(),
            ],
            ..told
        };
        fail(record, &told, facts.retry.max_retries, facts.now.wall);
        return decided(State::Failed, "failed");
    }
    let reason = format!("interrupted ({reason}); it runs again when a slot is free");
    wait(record, "retry", Some(0), &reason, facts.now, facts.boot);
    decided(State::Waiting, "interrupted")
}

/// The system was short of something: it is started again when it has waited for a while.
fn postponed(record: &mut Record, reason: &str, facts: &Facts<'_>) -> Decision {
    let told = Failure {
        outcome: AttemptOutcome::Interrupted,
        ..refusal(
            ErrorCode::Interrupted,
            format!("{SAID} {reason}"),
            Vec::new(),
        )
    };
    close(record, AttemptOutcome::Interrupted, Some(&told), facts);
    let length = starts::wait_ms(&record.meta.attempts);
    let reason = format!("{}; the daemon tries again", told.message);
    wait(
        record,
        "retry",
        Some(length),
        &reason,
        facts.now,
        facts.boot,
    );
    decided(State::Waiting, "interrupted")
}

/// Writes how the running attempt ended, if one is listed as running.
pub(super) fn close(
    record: &mut Record,
    outcome: AttemptOutcome,
    told: Option<&Failure>,
    facts: &Facts<'_>,
) {
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
        Exit::Unknown | Exit::Lives => {}
    }
    attempt.log.clone_from(&facts.log);
    attempt.usage.clone_from(&facts.usage);
    attempt.error = told.map(|told| AttemptError {
        code: told.code.to_string(),
        message: digest(&told.message),
        fields: told.fields.iter().take(SHOWN_FIELDS).cloned().collect(),
    });
}

/// Writes a failure into the record and decides it for `failed/`.
pub fn fail(record: &mut Record, told: &Failure, max_retries: u32, at: Wall) {
    let waiting = record.doc.get("waiting");
    if waiting.and_then(|waiting| waiting.get("on")?.as_str()) == Some("retry") {
        // The one that it waits for is never made.
        record.meta.retries = record.meta.retries.saturating_sub(1);
    }
    record.decide(State::Failed);
    if record.meta.current_attempts().is_empty() {
        not_starting(record);
    }
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
        || told.verify.is_some()
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
    let actions = vec!["To run it after all, retry it".to_owned()];
    Failure {
        outcome: AttemptOutcome::Cancelled,
        ..refusal(ErrorCode::Cancelled, format!("cancelled {when}"), actions)
    }
}

/// A refusal before any attempt, with the fields that are wrong.
pub fn refusal(code: ErrorCode, message: String, actions: Vec<String>) -> Failure {
    Failure {
        retryable: false,
        ..failure(code, message, actions)
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
pub(super) fn digest(message: &str) -> String {
    if message.len() <= DIGEST_BYTES {
        return message.to_owned();
    }
    let head: String = message.chars().take(DIGEST_BYTES / 4).collect();
    format!("{head} […] {}", tail_of(message, DIGEST_BYTES / 2))
}

pub(super) fn seconds(ms: u64) -> Value {
    let text = format!("{}.{:03}", ms / 1000, ms % 1000);
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

#[cfg(test)]
#[path = "next_tests.rs"]
mod tests;
