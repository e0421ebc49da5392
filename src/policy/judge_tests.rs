//! The table of verdicts: exit × result × reason.

use super::*;
use crate::policy::reports::blocked;

pub(in crate::policy) fn ended(exit: Exit, stdout: &str) -> Ended {
    Ended {
        exit,
        why: None,
        result_file: Output::Nothing,
        stdout: Output::read(stdout.as_bytes()),
        stderr_tail: String::new(),
        limits: Limits::default(),
        phase: None,
        strict: false,
        max_hold: Duration::from_secs(24 * 3600),
    }
}

/// A verdict in one word, with `+` where it may be retried and `-` where not.
pub(in crate::policy) fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Completed { .. } => "completed".to_owned(),
        Verdict::Held { wait_ms, .. } => format!("held {wait_ms}"),
        Verdict::NeedsReview { .. } => "needs_review".to_owned(),
        Verdict::Blocked(..) => "blocked".to_owned(),
        Verdict::Delegate(_) => "delegate".to_owned(),
        Verdict::Postponed { .. } => "postponed".to_owned(),
        Verdict::Cancelled => "cancelled".to_owned(),
        Verdict::Interrupted { counted, .. } => format!("interrupted {counted}"),
        Verdict::Failed(told) => {
            format!("{}{}", told.code, if told.retryable { "+" } else { "-" })
        }
    }
}

#[test]
fn exit_codes_and_results() {
    use Exit::{Code, Lives, Signal, Unknown};
    let cases: &[(Exit, &str, &str)] = &[
        (Code(0), "", "completed"),
        (Lives, "{}", "completed"),
        (Lives, r#"{"status":"complete"}"#, "completed"),
        (Lives, r#"{"status":"failed"}"#, "PROCESSING_ERROR+"),
        (Lives, r#"{"status":"dunno"}"#, "VALIDATION_FAILED+"),
        (Lives, r#"{"retry_after_seconds":2}"#, "held 2000"),
        (Code(0), "plain text", "completed"),
        (Code(0), r#"{"status":"complete"}"#, "completed"),
        (
            Code(0),
            r#"{"status":"completed","output":{}}"#,
            "completed",
        ),
        (Code(0), r#"{"anything":1}"#, "completed"),
        (Code(0), r#"{"status":"compl"#, "completed"),
        (Code(1), "", "PROCESSING_ERROR+"),
        (Code(1), r#"{"status":"complete"}"#, "PROCESSING_ERROR+"),
        (Code(64), "", "PROCESSING_ERROR-"),
        (Code(65), "", "PROCESSING_ERROR-"),
        (Code(66), "", "PROCESSING_ERROR+"),
        (Code(77), "", "PROCESSING_ERROR-"),
        (Code(78), "", "PROCESSING_ERROR-"),
        (
            Code(78),
            r#"{"error":{"retryable":true}}"#,
            "PROCESSING_ERROR+",
        ),
        (Signal(9), "", "PROCESSING_ERROR+"),
        (Code(0), r#"{"status":"failed"}"#, "PROCESSING_ERROR+"),
        (
            Code(3),
            r#"{"status":"failed","error":{"retryable":false}}"#,
            "PROCESSING_ERROR-",
        ),
        (
            Code(0),
            r#"{"status":"failed","error":{"code":"E_QUOTA"}}"#,
            "PROCESSING_ERROR+",
        ),
        (
            Code(0),
            r#"{"status":"failed","error":{"code":"DEPENDENCY_MISSING"}}"#,
            "DEPENDENCY_MISSING-",
        ),
        (
            Code(0),
            r#"{"status":"failed","error":{"code":"TIMEOUT"}}"#,
            "TIMEOUT+",
        ),
        (Code(0), r#"{"retry_after_seconds":1.5}"#, "held 1500"),
        (
            Code(9),
            r#"{"status":"failed","retry_after_seconds":60}"#,
            "held 60000",
        ),
        (
            Code(0),
            r#"{"retry_after_seconds":-1}"#,
            "VALIDATION_FAILED+",
        ),
        (
            Code(0),
            r#"{"retry_after_seconds":"soon"}"#,
            "VALIDATION_FAILED+",
        ),
        (Code(0), r#"{"retry_after_seconds":1e300}"#, "held 86400000"),
        (Code(0), r#"{"retry_after_seconds":null}"#, "completed"),
        (Code(0), r#"{"status":"done"}"#, "completed"),
        (Code(0), r#"{"status":"success"}"#, "completed"),
        (Code(0), r#"{"status":"ok"}"#, "completed"),
        (Unknown, r#"{"status":"ok"}"#, "completed"),
        (Code(1), r#"{"status":"ok"}"#, "PROCESSING_ERROR+"),
        (Code(0), r#"{"status":"OK"}"#, "VALIDATION_FAILED+"),
        (Code(0), r#"{"status":"dunno"}"#, "VALIDATION_FAILED+"),
        (Code(1), r#"{"status":7}"#, "VALIDATION_FAILED+"),
        (
            Code(0),
            r#"{"validation":{"status":"failed"}}"#,
            "VALIDATION_FAILED+",
        ),
        (Code(0), r#"{"status":"delegate"}"#, "delegate"),
        (Unknown, "", "interrupted true"),
        (Unknown, "text", "interrupted true"),
        (Unknown, r#"{"output":1}"#, "interrupted true"),
        (Unknown, r#"{"status":"complete"}"#, "completed"),
        (Unknown, r#"{"status":"compl"#, "interrupted true"),
        (Unknown, r#"{"status":"failed"}"#, "PROCESSING_ERROR+"),
    ];
    for (exit, stdout, expected) in cases {
        assert_eq!(
            word(&judge(&ended(*exit, stdout))),
            *expected,
            "{exit:?} {stdout}"
        );
    }
}

#[test]
fn reports_keep_to_their_rules() {
    use Exit::Code;
    let cases: &[(Exit, &str, &str)] = &[
        (Code(0), r#"{"status":"blocked"}"#, "VALIDATION_FAILED+"),
        (
            Code(7),
            r#"{"status":"blocked","phase":"p","summary":"s","blocked_reason":"unknown",
                "attempted":["a"],"handoff":{"blockers":["b"],"next_agent":null}}"#,
            "blocked",
        ),
        (
            Code(7),
            r#"{"status":"blocked","phase":"p","summary":"s","blocked_reason":"unknown",
                "attempted":["a"],"handoff":{"blockers":["b"],"next_agent":"x"}}"#,
            "VALIDATION_FAILED+",
        ),
        (
            Code(0),
            r#"{"acknowledgment":{"action":"request_clarification"}}"#,
            "blocked",
        ),
        (
            Code(7),
            r#"{"status":"blocked","blocked_reason":"lazy","attempted":["a"],
                "handoff":{"context":"c"}}"#,
            "blocked",
        ),
        (
            Code(7),
            r#"{"status":"blocked","blocked_reason":3,"attempted":["a"],
                "handoff":{"context":"c"}}"#,
            "VALIDATION_FAILED+",
        ),
        (
            Code(7),
            r#"{"status":"blocked","blocked_reason":"unknown","attempted":[],
                "handoff":{"context":"c"}}"#,
            "VALIDATION_FAILED+",
        ),
        (
            Code(7),
            r#"{"status":"blocked","blocked_reason":"unknown","attempted":["a"],"summary":"s"}"#,
            "VALIDATION_FAILED+",
        ),
        (Code(7), r#"{"status":"needs_review"}"#, "needs_review"),
        (
            Code(0),
            r#"{"status":"complete","phase":[],"files_modified":"a","handoff":{}}"#,
            "completed",
        ),
        (
            Code(0),
            r#"{"handoff":{"children":[{"agent":"a"}]}}"#,
            "delegate",
        ),
        (
            Code(7),
            r#"{"status":"needs_review","phase":"p","summary":"s"}"#,
            "needs_review",
        ),
        (
            Code(0),
            r#"{"handoff":{"next_agent":"x","context":"c"},"phase":"p"}"#,
            "completed",
        ),
        (
            Code(0),
            r#"{"status":"complete","phase":"p","handoff":{"next_agent":"x","context":"c"}}"#,
            "completed",
        ),
    ];
    for (exit, stdout, expected) in cases {
        let verdict = judge(&ended(*exit, stdout));
        assert_eq!(word(&verdict), *expected, "{exit:?} {stdout}");
    }
}

#[test]
fn what_is_acted_on_must_be_right() {
    for (code, stdout, expected, field) in [
        (0, r#"{"status":"dunno"}"#, "VALIDATION_FAILED+", "status"),
        (
            0,
            r#"{"retry_after_seconds":0}"#,
            "VALIDATION_FAILED+",
            "retry_after_seconds",
        ),
        (0, r#"{"artifacts":{}}"#, "VALIDATION_FAILED+", "artifacts"),
        (
            0,
            r#"{"handoff":{"next_agent":7}}"#,
            "VALIDATION_FAILED+",
            "handoff.next_agent",
        ),
        (0, r#"{"decisions":"d"}"#, "VALIDATION_FAILED+", "decisions"),
        (
            1,
            r#"{"status":"failed","error":{"retryable":"no"}}"#,
            "VALIDATION_FAILED+",
            "error.retryable",
        ),
        // It failed by its exit code; what it left need not be right.
        (1, r#"{"artifacts":{}}"#, "PROCESSING_ERROR+", ""),
        (
            64,
            r#"{"error":{"retryable":"no"}}"#,
            "PROCESSING_ERROR-",
            "",
        ),
    ] {
        let verdict = judge(&ended(Exit::Code(code), stdout));
        assert_eq!(word(&verdict), expected, "{stdout}");
        let Verdict::Failed(told) = verdict else {
            panic!()
        };
        let fields: Vec<&str> = told.fields.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(fields.concat(), field, "{stdout}");
        assert!(told.result.is_some(), "{stdout}");
    }
    for fine in [
        r#"{"summary":7,"metadata":"m","validation":[],"files_modified":1,"x":null}"#,
        r#"{"handoff":null,"artifacts":null,"error":null}"#,
    ] {
        let verdict = judge(&ended(Exit::Code(0), fine));
        assert_eq!(word(&verdict), "completed", "{fine}");
    }
}

#[test]
fn why_it_was_ended_comes_first() {
    let whole = r#"{"status":"complete"}"#;
    for (why, expected) in [
        (EndedFor::Timeout, "TIMEOUT+"),
        (EndedFor::Stall, "TIMEOUT+"),
        (EndedFor::Flood, "PROCESSING_ERROR+"),
        (EndedFor::Cancel, "cancelled"),
        (EndedFor::Stop, "interrupted false"),
        (EndedFor::Linger, "completed"),
    ] {
        let ended = Ended {
            why: Some(why),
            ..ended(Exit::Signal(15), whole)
        };
        assert_eq!(word(&judge(&ended)), expected, "{why:?}");
    }
}

#[test]
fn only_what_was_said_is_to_be_looked_at() {
    for (why, exit, stdout) in [
        (None, Exit::Code(1), ""),
        (None, Exit::Code(0), r#"{"status":"failed"}"#),
        (Some(EndedFor::Timeout), Exit::Signal(15), ""),
    ] {
        for words in ["", "no such host"] {
            let ended = Ended {
                why,
                stderr_tail: words.to_owned(),
                ..ended(exit, stdout)
            };
            let Verdict::Failed(told) = judge(&ended) else {
                panic!()
            };
            let advice = told.actions.join("; ");
            let named = advice.contains("the attempt's log");
            assert_eq!(named, !words.is_empty(), "{advice}");
        }
    }
    let blocked = |result: &str| blocked(serde_json::from_str(result).unwrap()).actions;
    assert_eq!(
        blocked(r#"{"acknowledgment":{"questions":["q"]}}"#).len(),
        1
    );
    assert_eq!(blocked(r#"{"attempted":["all"]}"#).len(), 2);
}

#[test]
fn the_result_file_wins_over_stdout() {
    let mut told = ended(Exit::Code(0), r#"{"status":"failed"}"#);
    told.result_file = Output::read(br#"{"status":"complete","summary":"file"}"#);
    let Verdict::Completed(Success { result, .. }) = judge(&told) else {
        panic!()
    };
    assert_eq!(result.unwrap()["summary"], "file");
}

#[test]
fn a_result_file_that_was_cut_short_is_not_a_success() {
    let mut told = ended(Exit::Code(0), "");
    told.result_file = Output::read(br#"{"status":"comp"#);
    assert_eq!(word(&judge(&told)), "VALIDATION_FAILED+");
}

#[test]
fn a_result_file_that_is_too_large_is_told_what_makes_it_smaller() {
    let mut told = ended(Exit::Code(0), "");
    told.result_file = Output::TooLarge;
    assert_eq!(word(&judge(&told)), "VALIDATION_FAILED+");
    let Verdict::Failed(told) = judge(&told) else {
        panic!()
    };
    assert!(told.message.contains("larger than daemon.max_output_size"));
    let advice = told.actions.join("; ");
    for part in [
        "smaller result",
        "artifacts/",
        "raise daemon.max_output_size",
    ] {
        assert!(advice.contains(part), "{advice}");
    }
    assert!(!advice.contains("rename"), "{advice}");
}

#[test]
fn the_failure_says_what_the_specialist_said_last() {
    let mut told = ended(Exit::Code(2), "");
    told.stderr_tail = "no such table: users".to_owned();
    let Verdict::Failed(told) = judge(&told) else {
        panic!()
    };
    assert_eq!(
        told.message,
        "the specialist exited with 2; its last words: no such table: users"
    );
}

#[test]
fn a_foreign_code_is_kept_beside_ours() {
    let told = ended(
        Exit::Code(1),
        r#"{"error":{"code":"E_QUOTA","message":"no credit"}}"#,
    );
    let Verdict::Failed(told) = judge(&told) else {
        panic!()
    };
    assert_eq!(told.detail_code.as_deref(), Some("E_QUOTA"));
    assert_eq!(told.message, "no credit");
}

#[test]
fn a_tail_is_cut_at_a_character() {
    assert_eq!(tail_of("aé", 1), "");
    assert_eq!(tail_of("aé\n", 2), "é");
    assert_eq!(tail_of("short", 100), "short");
}
