//! What an attempt gives back, and what is made of it.

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, outcomes, text, with};

/// One retry, at once: two attempts mean that it was tried again, one that it was not.
const ONE_RETRY: &str = "defaults.retry.max_retries = 1\ndefaults.retry.delay = '10ms'";

fn result_of(root: &Root, id: &str, sh: &str) -> Value {
    root.drop_request(id, &orders(sh));
    root.completed(id)
}

#[test]
fn a_result_is_taken_from_wherever_it_was_left() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let record = result_of(
        &root,
        "json",
        "printf '\\n {\"output\": [1.0], \"x\": 1e400}\\n'",
    );
    let raw = std::fs::read_to_string(root.state("completed", "json")).unwrap();
    assert!(raw.contains("1e400"), "as it was written: {raw}");
    assert_eq!(record["output"].to_string(), "[1.0]");

    let sh = "echo '{\"summary\": \"printed\"}'; result '{\"summary\": \"left\"}'";
    assert_eq!(result_of(&root, "both", sh)["result"]["summary"], "left");

    let sh = "printf '# Report\\n\\nWords.\\n\\n```json\\n{\"status\": \"ok\", \"summary\": \"block\"}\\n```\\n'";
    let record = result_of(&root, "markdown", sh);
    assert_eq!(record["result"]["summary"], "block");
    assert!(
        record.to_string().contains("Words."),
        "the text is kept: {record:#}"
    );

    let record = result_of(&root, "text", "echo plain words");
    assert_eq!(record["output"]["text"], "plain words\n");
    let record = result_of(&root, "odd", "printf '{ not json'");
    assert_eq!(record["output"]["text"], "{ not json");
    assert!(
        !record["warnings"].as_array().unwrap().is_empty(),
        "somebody should be told"
    );
    let record = result_of(&root, "nothing", ":");
    assert_eq!(record["output"], Value::Null);
    let sh = "printf '\\357\\273\\277{\"summary\": \"marked\"}'";
    assert_eq!(
        result_of(&root, "marked", sh)["result"]["summary"],
        "marked"
    );
    let sh = "printf '\\357\\273\\277{\"status\": \"failed\"}' >$HANDOFF_RESULT; exit 0";
    root.drop_request(
        "marked-file",
        &with(orders(sh), json!({ "retry_policy": { "max_retries": 0 } })),
    );
    assert_eq!(root.failed("marked-file").1, "PROCESSING_ERROR");
    let record = result_of(&root, "bytes", "printf 'a\\377b'");
    assert_eq!(record["output"]["text"], "a\u{fffd}b");
    // The last attempt's result does not count for the next one.
    let sh = "if [ $HANDOFF_ATTEMPT = 1 ]; then result '{\"summary\": \"old\"}'; exit 1; fi";
    let record = result_of(&root, "fresh", sh);
    assert_eq!(record["result"]["summary"], Value::Null);
    assert_eq!(outcomes(&record), ["failed", "completed"]);
}

#[test]
fn exit_codes_say_whether_to_try_again() {
    let root = Root::with(ONE_RETRY);
    let _daemon = Daemon::start(&root);
    let cases = [
        ("exit 1", 2),
        ("exit 2", 2),
        ("exit 64", 1),
        ("exit 65", 1),
        ("exit 66", 2),
        ("exit 77", 1),
        ("exit 78", 1),
        ("exit 127", 2),
        ("exit 255", 2),
        ("kill -KILL $$", 2),
        ("kill -SEGV $$", 2),
        ("echo '{\"status\": \"complete\"}'; exit 1", 2),
    ];
    for (n, (sh, _)) in cases.iter().enumerate() {
        root.drop_request(&format!("c{n}"), &orders(sh));
    }
    for (n, (sh, attempts)) in cases.iter().enumerate() {
        let (record, code) = root.failed(&format!("c{n}"));
        assert_eq!(code, "PROCESSING_ERROR", "{sh}");
        assert_eq!(outcomes(&record).len(), *attempts, "{sh}");
        let attempt = &record["handoffd"]["attempts"][0];
        let (exit, signal) = (&attempt["exit_code"], &attempt["signal"]);
        match *sh {
            "kill -KILL $$" => assert_eq!((exit, signal), (&Value::Null, &json!(9))),
            "kill -SEGV $$" => assert_eq!((exit, signal), (&Value::Null, &json!(11))),
            _ => {
                let expected: u64 = sh.rsplit_once(' ').unwrap().1.parse().unwrap();
                assert_eq!((exit, signal), (&json!(expected), &Value::Null), "{sh}");
            }
        }
    }
}

#[test]
fn what_a_result_says_of_itself_counts_at_any_exit_code() {
    let root = Root::with(ONE_RETRY);
    let _daemon = Daemon::start(&root);
    // Result, exit code, then: error code, detail code, attempts.
    let cases = [
        (
            json!({ "status": "blocked", "blocked_reason": "unknown", "phase": "p",
                    "attempted": ["all"], "handoff": { "context": "c" } }),
            1,
            "BLOCKED",
            None,
            1,
        ),
        (
            json!({ "status": "failed" }),
            0,
            "PROCESSING_ERROR",
            None,
            2,
        ),
        (
            json!({ "status": "failed", "error": { "retryable": false, "message": "never" } }),
            0,
            "PROCESSING_ERROR",
            None,
            1,
        ),
        (
            json!({ "status": "failed", "error": { "retryable": true, "code": "E_QUOTA" } }),
            64,
            "PROCESSING_ERROR",
            Some("E_QUOTA"),
            2,
        ),
        (
            json!({ "error": { "retryable": true } }),
            78,
            "PROCESSING_ERROR",
            None,
            2,
        ),
        (
            json!({ "error": { "code": "E_X", "message": "m" } }),
            1,
            "PROCESSING_ERROR",
            Some("E_X"),
            2,
        ),
        (
            json!({ "status": "splendid" }),
            0,
            "VALIDATION_FAILED",
            None,
            2,
        ),
        (json!({ "status": 7 }), 0, "VALIDATION_FAILED", None, 2),
        (
            json!({ "validation": { "status": "failed" } }),
            0,
            "VALIDATION_FAILED",
            None,
            2,
        ),
        (
            json!({ "retry_after_seconds": "soon" }),
            0,
            "VALIDATION_FAILED",
            None,
            2,
        ),
    ];
    for (n, (result, exit, ..)) in cases.iter().enumerate() {
        root.drop_request(
            &format!("c{n}"),
            &orders(&format!("echo '{result}'; exit {exit}")),
        );
    }
    for (n, (result, _, expected, detail, attempts)) in cases.iter().enumerate() {
        let (record, code) = root.failed(&format!("c{n}"));
        assert_eq!(code, *expected, "{result}");
        assert_eq!(record["error"]["detail_code"].as_str(), *detail, "{result}");
        assert_eq!(outcomes(&record).len(), *attempts, "{result}");
        if let Some(message) = result["error"]["message"].as_str() {
            assert!(text(&record["error"]["message"]).contains(message));
        }
        if code == "BLOCKED" {
            assert_eq!(outcomes(&record), ["blocked"]);
            assert_eq!(record["result"], *result);
        }
    }
}

#[test]
fn a_blocked_report_that_lacks_what_helps_others_fails() {
    let root = Root::with(ONE_RETRY);
    let _daemon = Daemon::start(&root);
    let blocked = json!({ "status": "blocked", "phase": "p", "summary": "s",
        "blocked_reason": "unknown", "attempted": ["a"], "handoff": { "context": "c" } });
    let without = |key: &str| {
        let mut it = blocked.clone();
        it.as_object_mut().unwrap().remove(key);
        it
    };
    let next = json!({ "handoff": { "context": "c", "next_agent": "@fake" } });
    let cases = [
        (without("blocked_reason"), 1, "blocked_reason"),
        (without("attempted"), 0, "attempted"),
        (without("handoff"), 0, "handoff.blockers"),
        (with(blocked.clone(), next), 0, "handoff.next_agent"),
        (json!({ "status": "finished", "phase": "p" }), 0, "status"),
    ];
    for (n, (result, exit, _)) in cases.iter().enumerate() {
        let sh = format!("echo '{result}'; exit {exit}");
        root.drop_request(&format!("c{n}"), &orders(&sh));
    }
    for (n, (result, _, field)) in cases.iter().enumerate() {
        let (record, code) = root.failed(&format!("c{n}"));
        assert_eq!(code, "VALIDATION_FAILED", "{result}");
        assert_eq!(outcomes(&record).len(), 2, "{result}");
        let wrong = record["validation"]["errors"].to_string();
        assert!(wrong.contains(field), "{wrong}");
    }
}

#[test]
fn a_review_waits_for_a_person_also_over_a_restart() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let sh = "mark ran; echo '{\"status\": \"needs_review\", \"phase\": 1, \"summary\": \"look\"}'; exit 1";
    root.drop_request("x", &orders(sh));
    let record = root.record("waiting", "x");
    assert_eq!(record["waiting"]["on"], "human");
    assert_eq!(record["result"]["summary"], "look");
    assert_eq!(outcomes(&record), ["needs_review"]);
    root.drop_request("person", &json!({ "target": { "agent_id": "human" } }));
    assert_eq!(root.record("waiting", "person")["waiting"]["on"], "human");
    daemon.kill();
    let _daemon = Daemon::start(&root);
    root.assert_works("good");
    assert_eq!(root.states_of("x"), ["waiting"]);
    assert_eq!(root.states_of("person"), ["waiting"]);
    assert_eq!(root.mark("x.ran").lines().count(), 1);
}

#[test]
fn a_broken_result_file_is_a_failure_and_a_link_is_not_followed() {
    let root = Root::with(ONE_RETRY);
    let _daemon = Daemon::start(&root);
    root.drop_request("broken", &orders("printf '{\"a\"' >$HANDOFF_RESULT"));
    let (record, code) = root.failed("broken");
    assert_eq!(code, "VALIDATION_FAILED");
    assert!(text(&record["error"]["message"]).contains("HANDOFF_RESULT"));
    root.drop_request("link", &orders("ln -s /etc/passwd $HANDOFF_RESULT"));
    let (record, code) = root.failed("link");
    assert_eq!(code, "VALIDATION_FAILED");
    assert!(!record.to_string().contains("root:"));
    root.drop_request("pipe", &orders("mkfifo $HANDOFF_RESULT"));
    root.failed("pipe");
    root.drop_request("folder", &orders("mkdir $HANDOFF_RESULT"));
    root.failed("folder");
    root.assert_works("good");
}
