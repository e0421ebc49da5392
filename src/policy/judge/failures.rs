//! What failed attempts are told: message, advice, and whether to try again.

use serde_json::{Map, Value};

use super::{Ended, Exit, Failure, Limits};
use crate::protocol::attempt::AttemptOutcome;
use crate::protocol::error::{ErrorCode, QUOTED};
use crate::protocol::field::FieldError;
use crate::protocol::result::Output;

/// What to do about fields that the last attempt still had wrong. A retry by hand begins anew, so
/// nothing is said of what it is told.
pub const MEND: &str = "Fix what validation.errors lists, then retry";

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

pub(super) fn timed_out(ended: &Ended) -> Failure {
    let limit = &ended.limits.timeout;
    let message = with_tail(format!("the attempt ran past its limit of {limit}"), ended);
    Failure {
        outcome: AttemptOutcome::Timeout,
        ..failure(
            ErrorCode::Timeout,
            message,
            vec![
                "Raise timeout_seconds in the request, or raise the specialist's timeout and \
                 send the daemon SIGHUP; then retry"
                    .to_owned(),
                match ended.stderr_tail.as_str() {
                    "" => "Make the specialist log its progress to stderr: it wrote nothing there",
                    _ => "Read the attempt's log to see where it hung",
                }
                .to_owned(),
            ],
        )
    }
}

/// Its artifacts could not be read within the time that the attempt may take.
pub fn unread_in_time(limits: &Limits) -> Failure {
    let message = format!(
        "the time limit of {} passed while the daemon read the artifacts of the attempt",
        limits.timeout
    );
    Failure {
        outcome: AttemptOutcome::Timeout,
        ..failure(
            ErrorCode::Timeout,
            message,
            vec![
                "Make the specialist write smaller artifacts, or lower daemon.max_artifact_size \
                 to refuse large ones at once"
                    .to_owned(),
                "Or raise timeout_seconds in the request, then retry".to_owned(),
            ],
        )
    }
}

pub(super) fn stalled(ended: &Ended) -> Failure {
    let limit = &ended.limits.stall_timeout;
    let message = format!(
        "the attempt stalled: no output, no CPU use and no touch of HANDOFF_HEARTBEAT for {limit}"
    );
    Failure {
        outcome: AttemptOutcome::Stalled,
        ..failure(
            ErrorCode::Timeout,
            with_tail(message, ended),
            vec![
                "Make the specialist touch HANDOFF_HEARTBEAT while it waits".to_owned(),
                "Raise the specialist's stall_timeout, send the daemon SIGHUP, then retry"
                    .to_owned(),
            ],
        )
    }
}

pub(super) fn flooded(ended: &Ended) -> Failure {
    let limit = &ended.limits.max_output;
    failure(
        ErrorCode::ProcessingError,
        format!("the attempt printed more than {limit}"),
        vec![
            "Write large output to a file below artifacts/ instead of printing it".to_owned(),
            "Or raise daemon.max_output_size, send the daemon SIGHUP, then retry".to_owned(),
        ],
    )
}

pub(super) fn oversized(ended: &Ended) -> Failure {
    let limit = &ended.limits.max_output;
    failure(
        ErrorCode::ValidationFailed,
        format!("the result at HANDOFF_RESULT is larger than daemon.max_output_size ({limit})"),
        vec![
            "Make the specialist write a smaller result: put large data into files below \
             artifacts/ and list them in the result's artifacts"
                .to_owned(),
            "Or raise daemon.max_output_size, send the daemon SIGHUP, then retry".to_owned(),
        ],
    )
}

/// A result with fields that can't be acted on.
pub(super) fn wrong_result(fields: Vec<FieldError>, result: Option<Map<String, Value>>) -> Failure {
    let list: Vec<String> = fields.iter().take(20).map(ToString::to_string).collect();
    Failure {
        result,
        fields,
        ..failure(
            ErrorCode::ValidationFailed,
            format!("invalid result: {}", list.join("; ")),
            vec![MEND.to_owned()],
        )
    }
}

/// What to do about an end of which only the log can say more, if there is one.
pub fn mend_cause(stderr_tail: &str) -> String {
    match stderr_tail {
        "" => {
            "Make the specialist log errors to stderr (it wrote nothing there), fix the cause \
             and retry"
        }
        _ => "Read the attempt's log, fix the cause and retry",
    }
    .to_owned()
}

pub fn exit_words(exit: Exit) -> String {
    match exit {
        Exit::Lives => "still runs".to_owned(),
        Exit::Code(code) => format!("exited with {code}"),
        Exit::Signal(SIGXFSZ) => format!("was killed by signal {SIGXFSZ} (SIGXFSZ)"),
        Exit::Signal(signal) => format!("was killed by signal {signal}"),
        Exit::Unknown => "ended; its exit code is lost".to_owned(),
    }
}

pub(super) fn claimed_failure(
    exit: Exit,
    result: Map<String, Value>,
    stderr_tail: &str,
) -> Failure {
    let mut told = failure(
        ErrorCode::ProcessingError,
        match exit {
            Exit::Lives => "the specialist reported failure".to_owned(),
            _ => format!("the specialist reported failure and {}", exit_words(exit)),
        },
        vec![
            match stderr_tail {
                "" => "Read result in the record, fix the cause and retry",
                _ => "Read result in the record and the attempt's log, fix the cause and retry",
            }
            .to_owned(),
        ],
    );
    if !stderr_tail.is_empty() && result.get("error").is_none() {
        told.message = format!("{}{QUOTED}{stderr_tail}", told.message);
    }
    heed_error(&mut told, &result);
    told.result = Some(result);
    told
}

/// The signal of a process that writes past its limit on the size of files, and how a shell exits of
/// whose command that was the end.
const SIGXFSZ: i32 = 25;
const SHELL_SAYS_SIGXFSZ: i32 = 128 + SIGXFSZ;

pub(super) fn bad_exit(exit: Exit, result: Option<Map<String, Value>>, ended: &Ended) -> Failure {
    let mut told = failure(
        ErrorCode::ProcessingError,
        with_tail(format!("the specialist {}", exit_words(exit)), ended),
        vec![mend_cause(&ended.stderr_tail)],
    );
    if let Exit::Signal(SIGXFSZ) | Exit::Code(SHELL_SAYS_SIGXFSZ) = exit {
        let what = format!(
            "the specialist {}: it wrote a file larger than its limit",
            exit_words(exit)
        );
        told.message = with_tail(what, ended);
        told.actions = vec![
            "Make the specialist write smaller files".to_owned(),
            "Or set the specialist's rlimits.fsize (the default is four times \
             daemon.max_artifact_size), send the daemon SIGHUP, then retry"
                .to_owned(),
        ];
    }
    if let Exit::Code(code @ (64 | 65 | 77 | 78)) = exit {
        told.retryable = false;
        let what = match code {
            64 => "a usage error",
            65 => "bad input data",
            77 => "a permission problem",
            _ => "a configuration error",
        };
        told.actions = vec![format!("Exit code {code} means {what}: fix it, then retry")];
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
        (_, Output::Text(text) | Output::Unreported { text, .. }) => tail_of(text, 2000),
        _ => return message,
    };
    format!("{message}{QUOTED}{said}")
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
