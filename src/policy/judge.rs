//! The verdict on an attempt that ended: from its exit, the reason it was ended for, and what
//! it left behind, to what that means.
//!
//! The order of the rules is the contract: why it was ended comes first, then what a result
//! asks for at any exit code (`retry_after_seconds`, blocked, `needs_review`, failed), then the
//! exit code, then the claim of success.

mod failures;

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::policy::reports::{Known, asks_for_clarification, check};
use crate::protocol::attempt::AttemptOutcome;
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::result::{Claim, Output, claim, wrong_fields};

pub use failures::{MEND, exit_words, failure, mend_cause, tail_of, unread_in_time};
use failures::{bad_exit, claimed_failure, flooded, oversized, stalled, timed_out, wrong_result};

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
    /// The phase that the request names.
    pub phase: Option<String>,
    /// The rules of quality count to the letter.
    pub strict: bool,
    /// The longest hold.
    pub max_hold: Duration,
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
    /// It can't go on by itself. With warnings.
    Blocked(Map<String, Value>, Vec<String>),
    /// It asks for sub-tasks, and goes on when they have ended.
    Delegate(Map<String, Value>),
    Failed(Failure),
    Cancelled,
    /// The system could not start it, for a reason that passes. Nothing is counted.
    Postponed {
        reason: String,
    },
    /// It has to run again through no fault of its own. A stop of the daemon is not counted.
    Interrupted {
        counted: bool,
        reason: String,
    },
}

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
    let (mut result, text) = match choose(ended, &mut warnings) {
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
            reason: "its process has ended and its exit code is lost".to_owned(),
        };
    }
    if let Some(result) = &result
        && let Some(asked) = result
            .get("retry_after_seconds")
            .filter(|asked| !asked.is_null())
    {
        return match asked.as_f64() {
            Some(seconds) if wrong.is_empty() => held(seconds, result, ended.max_hold),
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
    let claimed = match &result {
        Some(result) if claimed.is_none() && asks_for_others(result) => Some(Claim::Delegate),
        _ => claimed,
    };
    if (exit.is_fine() || admits)
        && claimed != Some(Claim::Failed)
        && let Some(result) = &mut result
    {
        let known = Known {
            phase: ended.phase.as_deref(),
            text: text.as_deref(),
            strict: ended.strict,
        };
        match check(claimed, result, known) {
            Ok(more) => warnings.extend(more),
            Err(broken) => return Verdict::Failed(*broken),
        }
    }
    match (claimed, result) {
        (Some(Claim::Blocked), Some(result)) => Verdict::Blocked(result, warnings),
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

/// Whether a result without a status has sub-tasks for others.
fn asks_for_others(result: &Map<String, Value>) -> bool {
    let children = result.get("handoff").and_then(|it| it.get("children"));
    children
        .and_then(Value::as_array)
        .is_some_and(|it| !it.is_empty())
}

type Chosen = (Option<Map<String, Value>>, Option<String>);

/// The result file wins over stdout. A broken result file is a failure; odd text on stdout is
/// only text, but one that looks like a broken result is worth a warning.
fn choose(ended: &Ended, warnings: &mut Vec<String>) -> Result<Chosen, Box<Failure>> {
    match &ended.result_file {
        Output::Result {
            result,
            text,
            remark,
        } => {
            warnings.extend(remark.clone());
            return Ok((Some(result.clone()), text.clone()));
        }
        Output::Unreported { why, text } => {
            warnings.push(why.clone());
            return Ok((None, Some(text.clone())));
        }
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
        Output::Result {
            result,
            text,
            remark,
        } => {
            warnings.extend(remark.clone());
            (Some(result.clone()), text.clone())
        }
        Output::Unreported { why, text } => {
            warnings.push(why.clone());
            (None, Some(text.clone()))
        }
        Output::Text(text) => (None, Some(text.clone())),
        Output::Broken { why, text } => {
            warnings.push(format!(
                "stdout starts like a JSON result but does not parse ({why}); kept as text"
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
    let says_failed = result
        .as_ref()
        .and_then(|result| result.get("validation")?.get("status")?.as_str())
        == Some("failed");
    if says_failed {
        let mut refused = failure(
            ErrorCode::ValidationFailed,
            "the specialist reported that its own validation failed".to_owned(),
            vec!["Read validation in the record, fix the work and retry".to_owned()],
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

fn held(seconds: f64, result: &Map<String, Value>, most: Duration) -> Verdict {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounded above"
    )]
    let wait_ms = (seconds.min(most.as_secs_f64()) * 1000.0).ceil() as u64;
    let said = result
        .get("error")
        .and_then(|error| error.get("message"))
        .or_else(|| result.get("summary"))
        .and_then(Value::as_str);
    let mut reason = format!("the specialist asked to pause for {seconds} s");
    if seconds > most.as_secs_f64() {
        let most = most.as_secs_f64();
        let _ = write!(reason, ", and gets {most} s (defaults.max_hold)");
    }
    if let Some(said) = said {
        let _ = write!(reason, ": {said}");
    }
    Verdict::Held { wait_ms, reason }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
pub(in crate::policy) mod tests;
