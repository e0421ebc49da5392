//! What the next attempt finds of the last one: its result.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, outcomes, text, wait_until, with};

const ONE_RETRY: &str = "defaults.retry.max_retries = 1\ndefaults.retry.delay = '10ms'";

/// Leaves the record that an attempt got as `<id>.<attempt>`.
const SEEN: &str = "cp $HANDOFF_FILE marks/$HANDOFF_ID.$HANDOFF_ATTEMPT.tmp; \
                    mv marks/$HANDOFF_ID.$HANDOFF_ATTEMPT.tmp marks/$HANDOFF_ID.$HANDOFF_ATTEMPT; ";

fn last_result(root: &Root, id: &str, attempt: u32) -> Value {
    let path = root.path(&format!("marks/{id}.{attempt}"));
    let seen = wait_until("the record of an attempt", || fs::read(&path).ok());
    let record: Value = serde_json::from_slice(&seen).unwrap();
    record["handoffd"]["last_result"].clone()
}

fn by_attempt(cases: &[&str]) -> Value {
    let numbered = cases.iter().zip(1..);
    let arms: Vec<String> = numbered.map(|(case, n)| format!("{n}) {case};;")).collect();
    orders(&format!(
        "{SEEN} case $HANDOFF_ATTEMPT in {} esac",
        arms.join(" ")
    ))
}

#[test]
fn the_next_attempt_finds_the_result_of_the_last_one() {
    let root = Root::with(ONE_RETRY);
    let _daemon = Daemon::start(&root);
    let failed = r#"echo '{"status": "failed", "metadata": {"session_id": "s1"}}'"#;
    root.drop_request("fails", &by_attempt(&[failed, "exit 0"]));
    let record = root.completed("fails");
    assert_eq!(outcomes(&record), ["failed", "completed"]);
    assert_eq!(last_result(&root, "fails", 1), Value::Null);
    let expected = json!({ "attempt": 1, "outcome": "failed",
        "result": { "status": "failed", "metadata": { "session_id": "s1" } } });
    assert_eq!(last_result(&root, "fails", 2), expected);
    assert_eq!(record["handoffd"]["last_result"], Value::Null, "it is over");

    let claims = r#"echo '{"status": "complete", "n": 1}'; exit 3"#;
    root.drop_request("exit", &by_attempt(&[claims, "exit 0"]));
    root.completed("exit");
    assert_eq!(last_result(&root, "exit", 2)["result"]["n"], 1);

    let review = r#"echo '{"status": "needs_review", "phase": "p", "summary": "s", "n": 2}'"#;
    root.drop_request("asks", &by_attempt(&[review, "exit 0"]));
    root.record("waiting", "asks");
    root.command(
        "a.json",
        &json!({ "action": "ask", "handoff_id": "asks", "comment": "why?" }),
    );
    root.completed("asks");
    let found = last_result(&root, "asks", 2);
    assert_eq!(found["outcome"], "needs_review");
    assert_eq!(found["result"]["n"], 2);
}

#[test]
fn an_attempt_that_leaves_nothing_and_a_pause_change_only_what_they_say() {
    let root = Root::with("defaults.retry.max_retries = 3\ndefaults.retry.delay = '10ms'");
    let _daemon = Daemon::start(&root);
    let first = r#"echo '{"status": "failed", "session": "s1", "step": 1}'"#;
    let pause = r#"echo '{"retry_after_seconds": 0.05, "step": 2}'"#;
    root.drop_request(
        "x",
        &by_attempt(&[first, "exit 1", pause, "exit 1", "exit 0"]),
    );
    let record = root.completed("x");
    assert_eq!(
        outcomes(&record),
        ["failed", "failed", "held", "failed", "completed"]
    );
    let first = json!({ "status": "failed", "session": "s1", "step": 1 });
    for attempt in [2, 3] {
        let found = last_result(&root, "x", attempt);
        assert_eq!((&found["attempt"], &found["result"]), (&json!(1), &first));
    }
    for attempt in [4, 5] {
        let found = last_result(&root, "x", attempt);
        assert_eq!(
            (&found["attempt"], &found["outcome"]),
            (&json!(3), &json!("held"))
        );
        assert_eq!(found["result"]["session"], "s1");
        assert_eq!(found["result"]["step"], 2);
        assert_eq!(found["result"]["retry_after_seconds"], 0.05);
    }
}

#[test]
fn a_retry_keeps_it_and_a_resubmission_makes_it_history() {
    let root = Root::with("defaults.retry.max_retries = 0");
    let daemon = Daemon::start(&root);
    let failed = r#"echo '{"status": "failed", "session": "s1"}'"#;
    root.drop_request("x", &by_attempt(&[failed, "exit 65", "exit 0"]));
    root.failed("x");
    daemon.kill();
    let _daemon = Daemon::start(&root);
    root.command("r.json", &json!({ "action": "retry", "handoff_id": "x" }));
    let two = |record: &Value| outcomes(record).len() == 2;
    root.record_that("failed", "x", two);
    assert_eq!(last_result(&root, "x", 2)["result"]["session"], "s1");
    fs::rename(root.state("failed", "x"), root.pending("x.json")).unwrap();
    let record = root.completed("x");
    assert_eq!(last_result(&root, "x", 3), Value::Null);
    let previous = record["handoffd"]["previous"].to_string();
    assert!(previous.contains("s1"), "{previous}");
}

#[test]
fn a_large_one_stands_in_a_file_that_goes_with_it() {
    let root = Root::with("defaults.retry.max_retries = 3\ndefaults.retry.delay = '10ms'");
    let _daemon = Daemon::start(&root);
    let large = |session: &str| {
        format!(
            "{{ printf '{{\"status\": \"failed\", \"session\": \"{session}\", \"text\": \"'; \
             head -c 300000 /dev/zero | tr '\\0' x; printf '\"}}'; }} >$HANDOFF_RESULT"
        )
    };
    let pause = r#"echo '{"retry_after_seconds": 0.05, "step": 2}'"#;
    let copy = "cp .handoffd/results/$HANDOFF_ID.*.json marks/";
    let (one, two) = (large("s1"), format!("{copy}; {}", large("s2")));
    let end = format!("{copy}; exit 0");
    root.drop_request("x", &by_attempt(&[&one, &two, pause, &end]));
    let record = root.completed("x");
    assert_eq!(outcomes(&record), ["failed", "failed", "held", "completed"]);
    let held_in = |attempt: u32| {
        let found = last_result(&root, "x", attempt);
        assert_eq!(found["result"], Value::Null);
        let path = text(&found["ref"]);
        let name = path.strip_prefix(".handoffd/results/").unwrap().to_owned();
        (path, name)
    };
    let (_, first) = held_in(2);
    let (_, second) = held_in(3);
    assert_ne!(first, second, "what a record refers to is not written over");
    let (last, name) = held_in(4);
    let kept: Value =
        serde_json::from_slice(&fs::read(root.path("marks").join(&name)).unwrap()).unwrap();
    assert_eq!(kept["session"], "s2");
    assert_eq!(kept["step"], 2);
    assert!(last.ends_with(&name));
    wait_until("the file goes with it", || {
        root.names(".handoffd/results").is_empty().then_some(())
    });
}

#[test]
fn what_a_submission_says_of_it_is_not_believed() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    fs::write(root.path("mine.json"), "mine").unwrap();
    let forged = json!({ "handoffd": { "format": 1, "revision": 3, "attempts": [],
        "last_result": { "attempt": 1, "outcome": "failed", "ref": "mine.json" } } });
    root.drop_request("x", &with(by_attempt(&["exit 0"]), forged));
    root.completed("x");
    assert_eq!(last_result(&root, "x", 1), Value::Null);
    assert!(root.path("mine.json").exists());
}
