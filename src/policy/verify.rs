//! The verdict on a verify command: whether somebody other than the specialist says that the
//! work is right.

use serde_json::{Map, Value, json};

use crate::policy::judge::{EndedFor, Exit, Failure, Limits, failure, tail_of};
use crate::protocol::attempt::AttemptOutcome;
use crate::protocol::error::ErrorCode;
use crate::protocol::error::SAID;
use crate::protocol::result::Output;

/// The most of what it printed that is kept in the record.
const KEPT: usize = 4000;

#[derive(Debug, Clone, PartialEq)]
pub enum Verified {
    /// It holds; this is what was said.
    Yes(Value),
    No(Box<Failure>),
    Cancelled,
    Stopped,
    /// Its end is not known: it must be asked again.
    Again,
}

pub fn judge_verify(
    exit: Exit,
    why: Option<EndedFor>,
    stdout: &Output,
    stderr_tail: &str,
    limits: &Limits,
) -> Verified {
    let told = match why {
        Some(EndedFor::Cancel) => return Verified::Cancelled,
        Some(EndedFor::Stop) => return Verified::Stopped,
        Some(EndedFor::Timeout) => timed_out(&format!("ran past its limit of {}", limits.timeout)),
        Some(EndedFor::Stall) => timed_out(&format!("stalled for {}", limits.stall_timeout)),
        Some(EndedFor::Flood) => refused(&format!("printed more than {}", limits.max_output)),
        // A verify command that left a whole result and lingers has not said how it ended.
        Some(EndedFor::Linger) => refused("did not exit after it left a result"),
        None => match exit {
            Exit::Unknown | Exit::Lives => return Verified::Again,
            Exit::Code(0) if !claims_failure(stdout) => {
                return Verified::Yes(said(exit, stdout, stderr_tail));
            }
            Exit::Code(0) => refused("exited with 0, but reported failure"),
            Exit::Code(code) => refused(&format!("exited with {code}")),
            Exit::Signal(signal) => refused(&format!("was killed by signal {signal}")),
        },
    };
    let mut told = told;
    let words = match stdout {
        _ if !stderr_tail.is_empty() => stderr_tail.to_owned(),
        Output::Text(text) | Output::Unreported { text, .. } => tail_of(text, KEPT / 2),
        Output::Result { result, .. } => Value::Object(result.clone()).to_string(),
        _ => String::new(),
    };
    if !words.is_empty() {
        told.message = format!("{}{SAID}{}", told.message, tail_of(&words, KEPT / 2));
    }
    told.verify = Some(said(exit, stdout, stderr_tail));
    Verified::No(Box::new(told))
}

/// One that could not even be started.
pub fn not_started(why: &str) -> Failure {
    let mut told = refused(&format!("could not be started: {why}"));
    told.actions = vec!["Correct the specialist's verify in handoffd.toml, then retry".to_owned()];
    told
}

fn claims_failure(stdout: &Output) -> bool {
    let Output::Result { result, .. } = stdout else {
        return false;
    };
    let status = result.get("status").and_then(Value::as_str);
    matches!(status, Some("failed" | "blocked"))
}

fn refused(what: &str) -> Failure {
    failure(
        ErrorCode::ValidationFailed,
        format!("not verified: the verify command {what}"),
        vec![
            "Read validation.verify in the record; fix the work or the verify command, then retry"
                .to_owned(),
        ],
    )
}

fn timed_out(what: &str) -> Failure {
    let mut told = failure(
        ErrorCode::Timeout,
        format!("not verified: the verify command {what}"),
        vec![
            "Raise the specialist's timeout and send the daemon SIGHUP, or make verify faster; \
             then retry"
                .to_owned(),
        ],
    );
    told.outcome = AttemptOutcome::Timeout;
    told
}

/// What the record keeps of it.
fn said(exit: Exit, stdout: &Output, stderr_tail: &str) -> Value {
    let mut said = Map::new();
    match exit {
        Exit::Code(code) => said.insert("exit_code".to_owned(), code.into()),
        Exit::Signal(signal) => said.insert("signal".to_owned(), signal.into()),
        Exit::Unknown | Exit::Lives => None,
    };
    match stdout {
        Output::Nothing | Output::TooLarge => {}
        Output::Result { result, .. } => {
            said.insert("result".to_owned(), json!(result));
        }
        Output::Text(text) | Output::Unreported { text, .. } | Output::Broken { text, .. } => {
            said.insert("output".to_owned(), tail_of(text, KEPT).into());
        }
    }
    if !stderr_tail.is_empty() {
        said.insert("stderr".to_owned(), tail_of(stderr_tail, KEPT).into());
    }
    Value::Object(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(exit: Exit, why: Option<EndedFor>, stdout: &str) -> Verified {
        let limits = Limits::default();
        judge_verify(exit, why, &Output::read(stdout.as_bytes()), "", &limits)
    }

    #[test]
    fn only_exit_0_verifies() {
        assert!(
            matches!(judged(Exit::Code(0), None, "ok"), Verified::Yes(said) if said["output"] == "ok")
        );
        assert!(matches!(judged(Exit::Code(0), None, r#"{"coverage":87}"#),
            Verified::Yes(said) if said["result"]["coverage"] == 87));
        for (exit, why, stdout, code) in [
            (Exit::Code(1), None, "", ErrorCode::ValidationFailed),
            (Exit::Signal(9), None, "", ErrorCode::ValidationFailed),
            (
                Exit::Code(0),
                None,
                r#"{"status":"failed"}"#,
                ErrorCode::ValidationFailed,
            ),
            (
                Exit::Signal(15),
                Some(EndedFor::Timeout),
                "",
                ErrorCode::Timeout,
            ),
        ] {
            let Verified::No(told) = judged(exit, why, stdout) else {
                panic!("{exit:?}");
            };
            assert_eq!(told.code, code);
            assert!(told.retryable);
        }
        assert_eq!(judged(Exit::Unknown, None, ""), Verified::Again);
        assert_eq!(
            judged(Exit::Signal(15), Some(EndedFor::Cancel), ""),
            Verified::Cancelled
        );
    }
}
