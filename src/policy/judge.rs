//! The verdict on an attempt that ended: from its exit, the reason it was ended for, and what
//! it left behind, to what that means.
//!
//! The order of the rules is the contract: why it was ended comes first, then what a result
//! asks for at any exit code (`retry_after_seconds`, blocked, `needs_review`, failed), then the
//! exit code, then the claim of success.

use serde_json::{Map, Value};

use crate::policy::reports::{asks_for_clarification, broken_report};
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::record::AttemptOutcome;
use crate::protocol::result::{Claim, Output, claim, wrong_fields};

/// How the main process ended, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    Unknown,
    /// It has not: a resident process answered, and lives on.
    Lives,
}

impl Exit {
    /// Nothing that can be known of it speaks against what was given back.
    fn is_fine(self) -> bool {
        matches!(self, Self::Code(0) | Self::Unknown | Self::Lives)
    }
}

/// Why the daemon ended an attempt, where it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedFor {
    Timeout,
    Stall,
    Cancel,
    Linger,
    Flood,
    Stop,
}

/// All that is known of an attempt that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    pub exit: Exit,
    pub why: Option<EndedFor>,
    pub result_file: Output,
    pub stdout: Output,
    /// The last lines of its stderr.
    pub stderr_tail: String,
    /// The limits that were in force, in words, for the messages.
    pub limits: Limits,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Limits {
    pub timeout: String,
    pub stall_timeout: String,
    pub max_output: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub code: ErrorCode,
    pub message: String,
    pub detail_code: Option<String>,
    pub retryable: bool,
    pub outcome: AttemptOutcome,
    pub result: Option<Map<String, Value>>,
    pub actions: Vec<String>,
    /// The fields that are wrong, for `validation.errors`.
    pub fields: Vec<FieldError>,
    /// An artifact came, but it does not match its schema.
    pub invalid_output: bool,
    /// What the verify command said against it.
    pub verify: Option<Value>,
}

/// What an attempt that succeeded gave back.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Success {
    pub result: Option<Map<String, Value>>,
    /// What it printed beside its result, or instead of one.
    pub text: Option<String>,
    pub warnings: Vec<String>,
    pub delivered: Delivered,
}

/// What the daemon found of it by itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Delivered {
    /// As `output.artifacts` shows them, the main one first.
    pub artifacts: Vec<Value>,
    pub compliance: Option<Compliance>,
    /// Something was there to be checked, and it held.
    pub checked: bool,
    /// What the verify command said.
    pub verify: Option<Value>,
    /// The text was kept as an artifact, so it does not stand in the record too.
    pub text_kept: bool,
}

/// Whether an artifact matches its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compliance {
    Valid,
    Unchecked,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// What it left is still to be delivered, and may turn out to be wrong.
    Completed(Success),
    Held {
        wait_ms: u64,
        reason: String,
    },
    /// As [`Completed`](Self::Completed), but a person is to look at it.
    NeedsReview(Success),
    /// It can't go on by itself.
    Blocked(Map<String, Value>),
    /// It asks for sub-tasks, and goes on when they have ended.
    Delegate(Map<String, Value>),
    Failed(Failure),
    Cancelled,
    /// It has to run again through no fault of its own. A stop of the daemon is not counted.
    Interrupted {
        counted: bool,
        reason: String,
    },
}

/// The longest hold that a result can ask for.
const MAX_HOLD_SECONDS: f64 = 7.0 * 24.0 * 3600.0;

pub fn judge(ended: &Ended) -> Verdict {
    match ended.why {
        Some(EndedFor::Cancel) => return Verdict::Cancelled,
        Some(EndedFor::Stop) => {
            return Verdict::Interrupted {
                counted: false,
                reason: "the daemon was stopped while it ran".to_owned(),
            };
        }
        Some(EndedFor::Timeout) => return Verdict::Failed(timed_out(ended)),
        Some(EndedFor::Stall) => return Verdict::Failed(stalled(ended)),
        Some(EndedFor::Flood) => return Verdict::Failed(flooded(ended)),
        Some(EndedFor::Linger) | None => {}
    }
    let mut warnings = Vec::new();
    let (result, text) = match choose(ended, &mut warnings) {
        Ok(chosen) => chosen,
        Err(broken) => return Verdict::Failed(*broken),
    };
    let exit = if ended.why == Some(EndedFor::Linger) {
        Exit::Code(0)
    } else {
        ended.exit
    };
    let claimed = result.as_ref().and_then(claim);
    let wrong = result.as_ref().map(wrong_fields).unwrap_or_default();
    if wrong.iter().any(|error| error.field == "status") {
        return Verdict::Failed(wrong_result(wrong, result));
    }
    if exit == Exit::Unknown && claimed.is_none() {
        return Verdict::Interrupted {
            counted: true,
            reason: "its process is gone and its exit code was lost".to_owned(),
        };
    }
    if let Some(result) = &result
        && let Some(asked) = result
            .get("retry_after_seconds")
            .filter(|asked| !asked.is_null())
    {
        return match asked.as_f64() {
            Some(seconds) if wrong.is_empty() => held(seconds, result),
            _ => Verdict::Failed(wrong_result(wrong, Some(result.clone()))),
        };
    }
    let claimed = match &result {
        Some(result) if asks_for_clarification(result) => Some(Claim::Blocked),
        _ => claimed,
    };
    // After a bad exit only a result that admits a failure counts, so only that must be right.
    let admits = claimed.is_some_and(Claim::counts_at_any_exit);
    if !wrong.is_empty() && (admits || exit.is_fine()) {
        return Verdict::Failed(wrong_result(wrong, result));
    }
    if let (Some(Claim::Blocked | Claim::NeedsReview), Some(result)) = (claimed, &result)
        && let Some(broken) = broken_report(claimed, result)
    {
        return Verdict::Failed(broken);
    }
    match (claimed, result) {
        (Some(Claim::Blocked), Some(result)) => Verdict::Blocked(result),
        (Some(Claim::NeedsReview), Some(result)) => Verdict::NeedsReview(Success {
            result: Some(result),
            text,
            warnings,
            delivered: Delivered::default(),
        }),
        (Some(Claim::Failed), Some(result)) => {
            Verdict::Failed(claimed_failure(exit, result, &ended.stderr_tail))
        }
        (claimed, result) if exit.is_fine() => succeeded(claimed, result, text, warnings),
        (_, result) => Verdict::Failed(bad_exit(exit, result, ended)),
    }
}

type Chosen = (Option<Map<String, Value>>, Option<String>);

/// The result file wins over stdout. A broken result file is a failure; odd text on stdout is
/// only text, but one that looks like a broken result is worth a warning.
fn choose(ended: &Ended, warnings: &mut Vec<String>) -> Result<Chosen, Box<Failure>> {
    match &ended.result_file {
        Output::Result { result, text } => return Ok((Some(result.clone()), text.clone())),
        Output::Text(text) => return Ok((None, Some(text.clone()))),
        Output::Broken { why, .. } if matches!(ended.exit, Exit::Code(0) | Exit::Lives) => {
            return Err(Box::new(failure(
                ErrorCode::ValidationFailed,
                format!("the result at HANDOFF_RESULT is not a JSON object: {why}"),
                vec![
                    "Write the result to a temporary file beside HANDOFF_RESULT and rename it"
                        .to_owned(),
                ],
            )));
        }
        Output::TooLarge if matches!(ended.exit, Exit::Code(0) | Exit::Lives) => {
            return Err(Box::new(oversized(ended)));
        }
        Output::Broken { .. } | Output::TooLarge | Output::Nothing => {}
    }
    Ok(match &ended.stdout {
        Output::Nothing | Output::TooLarge => (None, None),
        Output::Result { result, text } => (Some(result.clone()), text.clone()),
        Output::Text(text) => (None, Some(text.clone())),
        Output::Broken { why, text } => {
            warnings.push(format!(
                "stdout began like a JSON result but could not be read as one ({why}); it is kept \
                 as text"
            ));
            (None, Some(text.clone()))
        }
    })
}

fn succeeded(
    claimed: Option<Claim>,
    result: Option<Map<String, Value>>,
    text: Option<String>,
    warnings: Vec<String>,
) -> Verdict {
    if let (Some(Claim::Delegate), Some(result)) = (claimed, &result) {
        return Verdict::Delegate(result.clone());
    }
    if let Some(broken) = result.as_ref().and_then(|it| broken_report(claimed, it)) {
        return Verdict::Failed(broken);
    }
    let says_failed = result
        .as_ref()
        .and_then(|result| result.get("validation")?.get("status")?.as_str())
        == Some("failed");
    if says_failed {
        let mut refused = failure(
            ErrorCode::ValidationFailed,
            "the specialist reports that its own validation failed".to_owned(),
            vec!["Look at validation in the record, mend the work and retry".to_owned()],
        );
        refused.result = result;
        return Verdict::Failed(refused);
    }
    Verdict::Completed(Success {
        result,
        text,
        warnings,
        delivered: Delivered::default(),
    })
}

fn held(seconds: f64, result: &Map<String, Value>) -> Verdict {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounded above"
    )]
    let wait_ms = (seconds.min(MAX_HOLD_SECONDS) * 1000.0).ceil() as u64;
    let said = result
        .get("error")
        .and_then(|error| error.get("message"))
        .or_else(|| result.get("summary"))
        .and_then(Value::as_str);
    let reason = match said {
        Some(said) => format!("the specialist asked to be left alone for {seconds} s: {said}"),
        None => format!("the specialist asked to be left alone for {seconds} s"),
    };
    Verdict::Held { wait_ms, reason }
}

pub fn failure(code: ErrorCode, message: String, actions: Vec<String>) -> Failure {
    Failure {
        code,
        message,
        detail_code: None,
        retryable: code.retries_by_itself(),
        outcome: AttemptOutcome::Failed,
        result: None,
        actions,
        fields: Vec::new(),
        invalid_output: false,
        verify: None,
    }
}

fn timed_out(ended: &Ended) -> Failure {
    let limit = &ended.limits.timeout;
    let message = with_tail(format!("the attempt ran past its limit of {limit}"), ended);
    Failure {
        outcome: AttemptOutcome::Timeout,
        ..failure(
            ErrorCode::Timeout,
            message,
            vec![
                "Raise timeout_seconds in the request, or timeout of the specialist".to_owned(),
                "Look at the attempt's log for where it hung".to_owned(),
            ],
        )
    }
}

fn stalled(ended: &Ended) -> Failure {
    let limit = &ended.limits.stall_timeout;
    let message = format!(
        "the attempt stalled: for {limit} it neither wrote, nor used the processor, nor touched \
         HANDOFF_HEARTBEAT"
    );
    Failure {
        outcome: AttemptOutcome::Stalled,
        ..failure(
            ErrorCode::Timeout,
            with_tail(message, ended),
            vec![
                "Let the specialist touch HANDOFF_HEARTBEAT while it waits for others".to_owned(),
                "Raise stall_timeout of the specialist".to_owned(),
            ],
        )
    }
}

fn flooded(ended: &Ended) -> Failure {
    let limit = &ended.limits.max_output;
    failure(
        ErrorCode::ProcessingError,
        format!("the attempt printed more than {limit}"),
        vec![
            "Write large output to a file below artifacts/ instead of printing it".to_owned(),
            "Raise daemon.max_output_size".to_owned(),
        ],
    )
}

fn oversized(ended: &Ended) -> Failure {
    let limit = &ended.limits.max_output;
    failure(
        ErrorCode::ValidationFailed,
        format!("the result at HANDOFF_RESULT is larger than daemon.max_output_size ({limit})"),
        vec![
            "Let the specialist write a smaller result: large things go into files below \
             artifacts/, which the result lists in artifacts"
                .to_owned(),
            "Or raise daemon.max_output_size, send the daemon SIGHUP, then retry".to_owned(),
        ],
    )
}

/// A result with fields that can't be acted on.
fn wrong_result(fields: Vec<FieldError>, result: Option<Map<String, Value>>) -> Failure {
    let list: Vec<String> = fields.iter().take(20).map(ToString::to_string).collect();
    Failure {
        result,
        fields,
        ..failure(
            ErrorCode::ValidationFailed,
            format!("the result is not right: {}", list.join("; ")),
            vec!["Let the specialist mend these fields; its next attempt is told of them".into()],
        )
    }
}

pub fn exit_words(exit: Exit) -> String {
    match exit {
        Exit::Lives => "lives on".to_owned(),
        Exit::Code(code) => format!("exited with {code}"),
        Exit::Signal(signal) => format!("was killed by signal {signal}"),
        Exit::Unknown => "ended, its exit code is lost".to_owned(),
    }
}

fn claimed_failure(exit: Exit, result: Map<String, Value>, stderr_tail: &str) -> Failure {
    let mut told = failure(
        ErrorCode::ProcessingError,
        match exit {
            Exit::Lives => "the specialist reported failure".to_owned(),
            _ => format!("the specialist reported failure and {}", exit_words(exit)),
        },
        vec!["Look at result and at the attempt's log, mend the cause and retry".to_owned()],
    );
    if !stderr_tail.is_empty() && result.get("error").is_none() {
        told.message = format!("{}; its last words: {stderr_tail}", told.message);
    }
    heed_error(&mut told, &result);
    told.result = Some(result);
    told
}

fn bad_exit(exit: Exit, result: Option<Map<String, Value>>, ended: &Ended) -> Failure {
    let mut told = failure(
        ErrorCode::ProcessingError,
        with_tail(format!("the specialist {}", exit_words(exit)), ended),
        vec!["Look at the attempt's log, mend the cause and retry".to_owned()],
    );
    if let Exit::Code(code @ (64 | 65 | 77 | 78)) = exit {
        told.retryable = false;
        let what = match code {
            64 => "how it is called (usage)",
            65 => "the request's data",
            77 => "a permission",
            _ => "its configuration",
        };
        told.actions = vec![format!(
            "Exit code {code} speaks of {what}: mend that, then retry"
        )];
    }
    if let Some(result) = &result {
        heed_error(&mut told, result);
    }
    told.result = result;
    told
}

/// What a result says of its own failure wins over the table.
fn heed_error(told: &mut Failure, result: &Map<String, Value>) {
    let Some(error) = result.get("error") else {
        return;
    };
    if let Some(message) = error.as_str().or_else(|| error.get("message")?.as_str()) {
        message.clone_into(&mut told.message);
    }
    if let Some(code) = error.get("code").and_then(Value::as_str) {
        match ErrorCode::parse(code) {
            Some(known) => {
                told.code = known;
                told.retryable = told.retryable && known.retries_by_itself();
            }
            None => told.detail_code = Some(code.to_owned()),
        }
    }
    if let Some(retryable) = error.get("retryable").and_then(Value::as_bool) {
        told.retryable = retryable;
    }
}

fn with_tail(message: String, ended: &Ended) -> String {
    let said = match (&ended.stderr_tail, &ended.stdout) {
        (tail, _) if !tail.is_empty() => tail.clone(),
        (_, Output::Text(text)) => tail_of(text, 2000),
        _ => return message,
    };
    format!("{message}; its last words: {said}")
}

/// The end of a text, cut at a character.
pub fn tail_of(text: &str, most: usize) -> String {
    let text = text.trim_end();
    let start = text.len().saturating_sub(most);
    let start = (start..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    text[start..].to_owned()
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
