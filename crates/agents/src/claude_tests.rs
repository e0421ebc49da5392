use std::path::PathBuf;

use super::*;

fn exit(code: i32, stderr: &str) -> Exit {
    Exit {
        code: Some(code),
        stderr: stderr.to_owned(),
    }
}

fn ending(stream: &str, exit: &Exit) -> Ending {
    let mut claude = Claude::default();
    for line in stream.lines() {
        claude.line(line);
    }
    claude.ending(exit)
}

macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../tests/streams/claude-2.1.327-", $name, ".jsonl"))
    };
}

#[test]
fn a_recorded_answer_is_read() {
    let ending = ending(recorded!("plain"), &exit(0, ""));
    assert_eq!(ending.ended, Ended::Through);
    assert_eq!(ending.text.as_deref(), Some("Hello from the stub."));
    assert_eq!(ending.report, None);
    assert_eq!(
        ending.session.as_deref(),
        Some("11111111-2222-4333-8444-555555555555")
    );
    assert_eq!(ending.model.as_deref(), Some("claude-opus-5-5"));
    let Figures::OfSession(sums) = ending.figures else {
        panic!("the figures are sums")
    };
    assert_eq!((sums.input_tokens, sums.output_tokens), (100, 20));
    assert_eq!(sums.cost_usd, Some(0.0008));
}

#[test]
fn a_recorded_report_is_read_with_the_sums_of_the_session() {
    let ending = ending(recorded!("resumed-report"), &exit(0, ""));
    assert_eq!(ending.ended, Ended::Through);
    let report = ending.report.unwrap();
    assert_eq!(report["status"], "complete");
    let Figures::OfSession(sums) = ending.figures else {
        panic!("the figures are sums")
    };
    assert!(sums.input_tokens > 100, "{sums:?}");
}

#[test]
fn a_recorded_denial_names_what_was_asked_and_the_rule_that_allows_it() {
    let ending = ending(recorded!("denied"), &exit(0, ""));
    let denied: Vec<&Denied> = ending.denied.iter().collect();
    assert_eq!(denied.len(), 1);
    assert_eq!(denied[0].what, "write /srv/shop/made.txt");
    assert_eq!(denied[0].rule, "Edit(//srv/shop/made.txt)");
}

#[test]
fn recorded_failures_are_told_apart() {
    let quota = ending(recorded!("429"), &exit(1, ""));
    assert!(
        matches!(&quota.ended, Ended::Quota { until: None, said } if said.contains("rate limit")),
        "{:?}",
        quota.ended
    );
    let login = ending(recorded!("401"), &exit(1, ""));
    assert!(
        matches!(&login.ended, Ended::Trouble(it) if it.kind == Kind::NotLoggedIn),
        "{:?}",
        login.ended
    );
    let gone = ending(recorded!("no-session"), &exit(1, ""));
    assert_eq!(gone.ended, Ended::NoSession);
}

#[test]
fn the_time_at_which_a_quota_is_back_is_taken_from_its_event() {
    let event = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1800000000}}"#;
    let stream = format!("{event}\n{}", recorded!("429"));
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let ended = ending(&stream, &exit(1, "")).ended;
    assert!(
        matches!(&ended, Ended::Quota { until: Some(until), .. } if *until == at),
        "{ended:?}"
    );
    // A warning is not the end of a quota.
    let warning = event.replace("rejected", "allowed_warning");
    let ended = ending(&format!("{warning}\n{}", recorded!("429")), &exit(1, "")).ended;
    assert!(matches!(ended, Ended::Quota { until: None, .. }));
}

#[test]
fn a_stream_without_an_end_says_why() {
    let begun = recorded!("plain").lines().next().unwrap();
    for (stream, stderr, expected) in [
        (begun, "", Kind::CutOff),
        ("", "error: unknown option '--json-schema'", Kind::TooOld),
        ("", "Not logged in · Please run /login", Kind::NotLoggedIn),
    ] {
        let ended = ending(stream, &exit(1, stderr)).ended;
        assert!(
            matches!(&ended, Ended::Trouble(it) if it.kind == expected),
            "{stderr}: {ended:?}"
        );
    }
    let taken = "Error: Session ID 66fd66da is already in use.";
    assert_eq!(ending("", &exit(1, taken)).ended, Ended::SessionExists);
}

#[test]
fn limits_of_an_attempt_are_no_quota() {
    let stream = r#"{"type":"result","subtype":"error_max_budget_usd","is_error":false,"errors":["Reached maximum budget ($1)"]}"#;
    let ended = ending(stream, &exit(1, "")).ended;
    assert!(
        matches!(&ended, Ended::Trouble(it) if it.kind == Kind::LimitReached),
        "{ended:?}"
    );
}

#[test]
fn the_prompt_is_never_an_argument_and_the_session_is_named() {
    let turn = |start: &Start| {
        let granted = ["Edit(//made)".to_owned()];
        let args = ["--model".to_owned(), "opus".to_owned()];
        let turn = Turn {
            start,
            folder: std::path::Path::new("/nowhere"),
            schema_file: PathBuf::from("/tmp/s"),
            schema: "{}",
            granted: &granted,
            max_usd: Some(1.5),
            args: &args,
            program: None,
            mcp: None,
        };
        Claude::default().call(&turn).args.join(" ")
    };
    let new = turn(&Start::New("ID".to_owned()));
    assert!(
        new.contains("--session-id ID --max-budget-usd 1.5"),
        "{new}"
    );
    assert!(
        new.ends_with("--allowedTools=Edit(//made) --model opus"),
        "{new}"
    );
    assert!(turn(&Start::Resume("ID".to_owned())).contains("--resume ID"));
}

#[test]
fn a_hostile_stream_is_only_text() {
    let mut claude = Claude::default();
    for line in [
        "not json",
        "[1,2]",
        "{\"type\":7}",
        "{\"type\":\"assistant\",\"message\":{\"content\":[7,{\"type\":\"text\"}]}}",
        "{\"type\":\"rate_limit_event\"}",
        "{\"type\":\"result\",\"is_error\":\"yes\",\"permission_denials\":[{}],\"modelUsage\":[]}",
    ] {
        claude.line(line);
    }
    let ending = claude.ending(&exit(0, ""));
    assert!(matches!(ending.ended, Ended::Trouble(_)));
}

#[test]
fn a_recorded_limit_of_a_subscription_has_its_end() {
    let limit = ending(recorded!("usage-limit"), &exit(1, ""));
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_127_727);
    assert!(
        matches!(&limit.ended, Ended::Quota { until: Some(until), .. } if *until == end),
        "{:?}",
        limit.ended
    );
}

#[test]
fn a_recorded_break_and_an_unknown_model_are_told_apart() {
    for (stream, kind) in [
        (recorded!("cut-off"), Kind::NoNetwork),
        (recorded!("unknown-model"), Kind::UnknownModel),
    ] {
        let ended = ending(stream, &exit(1, "")).ended;
        assert!(
            matches!(&ended, Ended::Trouble(it) if it.kind == kind),
            "{ended:?}"
        );
    }
}

#[test]
fn a_long_pause_that_the_model_asks_for_is_when_the_quota_is_back() {
    let refused = |delay: u64| {
        let retry = format!(
            r#"{{"type":"system","subtype":"api_retry","retry_delay_ms":{delay},"error":"rate_limit"}}"#
        );
        let failed = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"later"}"#;
        ending(&format!("{retry}\n{failed}"), &exit(1, "")).ended
    };
    assert!(matches!(refused(2_000), Ended::Quota { until: None, .. }));
    let Ended::Quota {
        until: Some(until), ..
    } = refused(900_000)
    else {
        panic!("no time")
    };
    let left = until.duration_since(crate::clock::now()).unwrap();
    assert!(left <= Duration::from_secs(900) && left > Duration::from_secs(60));
}
