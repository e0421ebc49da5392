//! What each verdict makes of a record.

use std::time::Duration;

use super::*;
use crate::policy::judge::{Ended, Limits, judge};
use crate::protocol::attempt::Attempt;
use crate::protocol::result::Output;

fn facts(exit: Exit) -> Facts<'static> {
    Facts {
        now: Now {
            wall: Wall(1_000_000),
            boot_ms: 5_000,
        },
        boot: "boot",
        retry: RetryPolicy {
            max_retries: 3,
            delay: Duration::from_secs(30),
            multiplier: 2.0,
            max_delay: Duration::from_secs(3600),
            jitter: 0.0,
        },
        chance: 0.0,
        max_interruptions: 2,
        exit,
        log: None,
        usage: None,
        ran_ms: 1234,
        cancelled: "while it ran",
        id: "x",
        config: Box::leak(Box::default()),
    }
}

fn running() -> Record {
    let doc = serde_json::from_str(r#"{"target":{"agent_id":"a"},"warnings":["mine"]}"#).unwrap();
    let mut record = Record::admit(doc, "x", None);
    start(&mut record);
    record
}

fn start(record: &mut Record) {
    record.decide(State::InProgress);
    record
        .meta
        .attempts
        .push(Attempt::begun(record.meta.next_attempt(), Wall(0)));
}

fn end(record: &mut Record, exit: Exit, stdout: &str) -> Decision {
    let ended = Ended {
        exit,
        why: None,
        result_file: Output::Nothing,
        stdout: Output::read(stdout.as_bytes()),
        stderr_tail: String::new(),
        limits: Limits::default(),
        phase: None,
        strict: false,
        max_hold: std::time::Duration::from_secs(24 * 3600),
    };
    conclude(record, judge(&ended), &facts(exit))
}

#[test]
fn a_completed_record_carries_the_result_and_what_is_lifted_from_it() {
    let mut record = running();
    let result = r#"{"status":"complete","output":{"n":1},"validation":{"status":"passed","tests":9},"next_steps":["ship"],"own":true}"#;
    let decision = end(&mut record, Exit::Code(0), result);
    assert_eq!(
        (decision.to, decision.event),
        (State::Completed, "completed")
    );
    assert_eq!(record.doc["status"], "completed");
    assert_eq!(
        record.doc["completed_at"],
        record.doc["timestamp_completed"]
    );
    assert_eq!(record.doc["execution_time_seconds"].to_string(), "1.234");
    assert_eq!(record.doc["result"]["own"], true);
    assert_eq!(record.doc["output"]["n"], 1);
    assert_eq!(record.doc["next_steps"][0], "ship");
    assert_eq!(
        record.doc["validation"],
        json!({"status": "unchecked", "tests": 9, "claimed": "passed"})
    );
    assert_eq!(
        record.doc["warnings"][0], "mine",
        "no warnings in the result: the producer's stay"
    );
    assert_eq!(
        record.meta.attempts[0].outcome,
        Some(AttemptOutcome::Completed)
    );
    assert_eq!(record.meta.attempts[0].exit_code, Some(0));
}

#[test]
fn text_is_kept_as_output() {
    let mut record = running();
    end(&mut record, Exit::Code(0), "hello\n");
    assert_eq!(record.doc["output"]["text"], "hello\n");
}

#[test]
fn a_retry_that_is_cancelled_before_its_turn_does_not_count() {
    let mut record = running();
    end(&mut record, Exit::Code(1), "");
    assert_eq!(record.doc["waiting"]["on"], "retry");
    fail(&mut record, &cancelled("while it waited"), 1, Wall(0));
    assert_eq!(record.doc["retry_count"], 0);
    assert_eq!(record.doc["retry_available"], true);
}

#[test]
fn failures_retry_after_30_60_120_and_then_fail() {
    let mut record = running();
    let mut waits = Vec::new();
    loop {
        let decision = end(&mut record, Exit::Code(1), "");
        if decision.to == State::Failed {
            break;
        }
        assert_eq!(decision.event, "retry_scheduled");
        assert_eq!(record.doc["waiting"]["on"], "retry");
        waits.push(record.meta.timer.clone().unwrap().length_ms);
        start(&mut record);
        assert!(!record.doc.contains_key("waiting"));
    }
    assert_eq!(waits, [30_000, 60_000, 120_000]);
    assert_eq!(record.meta.attempts.len(), 4);
    assert_eq!(record.doc["retry_count"], 3);
    assert_eq!(record.doc["max_retries"], 3);
    assert_eq!(record.doc["retry_available"], false);
    assert_eq!(record.doc["error"]["code"], "PROCESSING_ERROR");
    assert_eq!(record.doc["error"]["severity"], "error");
    assert!(
        !record.doc["recovery_actions"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert_eq!(record.doc["failed_at"], record.doc["timestamp_failed"]);
    assert_eq!(record.doc["execution_time_seconds"].to_string(), "4.936");
}

#[test]
fn a_hold_counts_no_attempt_and_stops_the_agent() {
    let mut record = running();
    let decision = end(&mut record, Exit::Code(0), r#"{"retry_after_seconds":60}"#);
    assert!(decision.holds_agent);
    assert_eq!(record.doc["waiting"]["on"], "time");
    assert_eq!(record.meta.retries, 0);
    assert!(record.meta.holds_agent);
    assert_eq!(record.meta.attempts[0].outcome, Some(AttemptOutcome::Held));
}

#[test]
fn an_attempt_that_the_system_could_not_start_counts_for_nothing() {
    let mut record = running();
    for (at, length) in [1000, 2000, 4000].into_iter().enumerate() {
        let reason = "(creating a process for it): Resource temporarily unavailable".to_owned();
        let decision = conclude(
            &mut record,
            Verdict::Postponed { reason },
            &facts(Exit::Unknown),
        );
        assert_eq!(
            (decision.to, decision.event),
            (State::Waiting, "interrupted")
        );
        assert_eq!((record.meta.retries, record.meta.interruptions), (0, 0));
        assert_eq!(record.meta.timer.as_ref().unwrap().length_ms, length);
        assert_eq!(
            record.meta.attempts[at].outcome,
            Some(AttemptOutcome::Interrupted)
        );
        assert_eq!(record.doc["waiting"]["on"], "retry");
        start(&mut record);
    }
}

#[test]
fn lost_attempts_run_again_at_once_up_to_the_limit() {
    let mut record = running();
    let first = end(&mut record, Exit::Unknown, "");
    assert_eq!((first.to, first.event), (State::Waiting, "interrupted"));
    assert_eq!(record.meta.timer.as_ref().unwrap().length_ms, 0);
    assert_eq!(record.meta.retries, 0);
    start(&mut record);
    let second = end(&mut record, Exit::Unknown, "");
    assert_eq!(second.to, State::Failed);
    assert_eq!(record.doc["error"]["code"], "INTERRUPTED");
}

#[test]
fn a_stop_of_the_daemon_is_never_counted() {
    let mut record = running();
    for _ in 0..5 {
        let verdict = Verdict::Interrupted {
            counted: false,
            reason: "stop".to_owned(),
        };
        assert_eq!(
            conclude(&mut record, verdict, &facts(Exit::Signal(15))).to,
            State::Waiting
        );
        start(&mut record);
    }
    assert_eq!(record.meta.interruptions, 0);
}

#[test]
fn the_digest_for_the_next_attempt_is_bounded() {
    let mut record = running();
    let long = format!(
        r#"{{"status":"failed","error":{{"message":"{}"}}}}"#,
        "é".repeat(50_000)
    );
    end(&mut record, Exit::Code(1), &long);
    let digest = last_error_digest(&record).unwrap();
    assert!(digest.starts_with("PROCESSING_ERROR: "));
    assert!(digest.len() < 2 * DIGEST_BYTES, "{}", digest.len());
}

#[test]
fn a_claimed_validation_failure_is_kept_beside_the_verdict() {
    let mut record = running();
    record.meta.retries = 3;
    let result = r#"{"validation":{"status":"failed","errors":["e1"]}}"#;
    assert_eq!(end(&mut record, Exit::Code(0), result).to, State::Failed);
    assert_eq!(record.doc["error"]["code"], "VALIDATION_FAILED");
    assert_eq!(record.doc["validation"]["status"], "failed");
    assert_eq!(record.doc["validation"]["claimed"], "failed");
    assert_eq!(record.doc["validation"]["errors"][0], "e1");
}

#[test]
fn the_cost_of_an_attempt_stands_in_the_record_whatever_became_of_it() {
    let usage = serde_json::json!({"cost_usd": 0.5, "input_tokens": 10});
    for (exit, stdout, outcome) in [
        (0, r#"{"status": "complete"}"#, AttemptOutcome::Completed),
        (1, r#"{"status": "failed"}"#, AttemptOutcome::Failed),
        (0, r#"{"retry_after_seconds": 5}"#, AttemptOutcome::Held),
        (
            0,
            r#"{"status": "needs_review", "summary": "s", "phase": "p"}"#,
            AttemptOutcome::NeedsReview,
        ),
    ] {
        let mut record = running();
        let verdict = judge(&Ended {
            exit: Exit::Code(exit),
            why: None,
            result_file: Output::Nothing,
            stdout: Output::read(stdout.as_bytes()),
            stderr_tail: String::new(),
            limits: Limits::default(),
            max_hold: std::time::Duration::from_secs(24 * 3600),
            phase: None,
            strict: false,
        });
        let facts = Facts {
            usage: usage.as_object().cloned(),
            ..facts(Exit::Code(exit))
        };
        conclude(&mut record, verdict, &facts);
        let attempt = &record.meta.attempts[0];
        assert_eq!(attempt.outcome, Some(outcome));
        assert_eq!(attempt.usage, usage.as_object().cloned(), "{outcome:?}");
        let read = Record::read(&record.to_bytes()).unwrap();
        assert_eq!(read.meta.attempts[0].usage, usage.as_object().cloned());
    }
}

#[test]
fn the_question_is_the_reason_of_the_wait() {
    let mut record = running();
    let stdout = r#"{"status": "needs_review", "summary": "s", "phase": "p", "handoff": {"context": "c"},
                     "question": {"text": "Ship it?", "options": ["now", "later"]}}"#;
    end(&mut record, Exit::Code(0), stdout);
    assert_eq!(record.doc["waiting"]["reason"], "Ship it?");
    assert_eq!(record.doc["waiting"]["options"]["later"], "");
}
