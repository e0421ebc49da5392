//! Retries that somebody asks for: what they leave out, and what they can't do.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Daemon, Root, kill, orders, wait_until};
use crate::control::{refused, retry};

#[test]
fn a_bulk_retry_runs_neither_refused_bytes_nor_duplicates() {
    let root = Root::with("defaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    root.drop_request("done", &orders("exit 0"));
    root.completed("done");
    root.drop_request("done", &orders("mark twice"));
    root.failed("done~2");
    root.drop_bytes("words.md", b"only words");
    root.failed("words");
    root.drop_request("broken", &orders("exit 1"));
    root.failed("broken");
    let retried = root.cli(&["retry", "--since", "1h", "--yes"]);
    let told = String::from_utf8(retried.stderr).unwrap();
    assert_eq!(retried.status.code(), Some(0), "{told}");
    let left_out = told.lines().find(|line| line.starts_with("left out: "));
    let left_out = left_out.unwrap_or_else(|| panic!("{told}"));
    assert!(
        left_out.contains("1 refused file") && left_out.contains("1 duplicate"),
        "{told}"
    );
    assert!(
        told.contains("retry broken: done") && !told.contains("retry words"),
        "{told}"
    );
    root.record_that("failed", "broken", |record| {
        record["handoffd"]["attempts"].as_array().unwrap().len() == 2
    });
    assert_eq!(root.states_of("done~2"), ["failed"]);
    // Who names it means it.
    root.cli(&["retry", "done~2"]);
    root.record_that("completed", "done~2", |_| true);
}

/// Requests that are refused before they are admitted as work, and the reason that a retry gives.
const WITHOUT_TARGET: [(&str, &str, &str); 7] = [
    ("none.json", r#"{"x": 1}"#, "target.agent_id: missing"),
    (
        "empty.json",
        r#"{"target": {"agent_id": ""}}"#,
        "target.agent_id",
    ),
    (
        "odd.json",
        r#"{"target": {"agent_id": 7}}"#,
        "target.agent_id",
    ),
    (
        "unknown.json",
        r#"{"target": {"agent_id": "@nobody"}}"#,
        "@nobody",
    ),
    (
        "package.yaml",
        "handoff:\n  from:\n    agent: a\n  to:\n    reason: r\n  context:\n    summary: Words that say it\n",
        "handoff.to.agent",
    ),
    (
        "report.json",
        r#"{"status": "blocked", "handoff": {"next_agent": "@fake"}}"#,
        "handoff.next_agent",
    ),
    (
        "field.json",
        r#"{"target": {"agent_id": "@fake"}, "timeout_seconds": -1}"#,
        "timeout_seconds",
    ),
];

#[test]
fn a_retry_of_a_request_without_a_usable_target_is_refused_and_its_error_stays() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    for (name, bytes, reason) in WITHOUT_TARGET {
        let id = name.split_once('.').unwrap().0;
        root.drop_bytes(name, bytes.as_bytes());
        let before = root.failed(id).0;
        // From the command line, and from a script.
        let said = root.cli(&["retry", id]);
        let told = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(1), "{id}: {told}");
        assert!(
            told.contains(reason) && told.contains("handoffs/pending/"),
            "{told}"
        );
        let command = format!("again-{id}.json");
        retry(&root, &command, id);
        assert!(refused(&root, &command).contains(reason), "{id}");
        assert_eq!(root.states_of(id), ["failed"], "{id}");
        assert_eq!(root.failed(id).0, before, "{id}");
    }
    // In bulk they are left out, and what can run does.
    root.drop_request("fails", &orders("exit 64"));
    root.failed("fails");
    let said = root.cli(&["retry", "--since", "1h", "--yes"]);
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(
        told.contains("5 requests without a usable target"),
        "{told}"
    );
    // Those with a target are asked for, and the daemon knows why they can't run.
    assert_eq!(said.status.code(), Some(1), "{told}");
    assert!(told.contains("retry field: refused"), "{told}");
    assert!(told.contains("retry fails: done"), "{told}");
    for (name, ..) in WITHOUT_TARGET {
        let id = name.split_once('.').unwrap().0;
        assert_eq!(root.states_of(id), ["failed"], "{id}");
    }
    // The advice of the error works, once it is fixed.
    fs::write(root.state("failed", "none"), orders("exit 0").to_string()).unwrap();
    fs::rename(root.state("failed", "none"), root.pending("none.json")).unwrap();
    root.record_that("completed", "none", |_| true);
    // A specialist that was added since is known.
    root.configure("specialists.'@nobody'.command = ['true']");
    let daemon = fs::read(root.path(".handoffd/daemon.json")).unwrap();
    let daemon: Value = serde_json::from_slice(&daemon).unwrap();
    let pid = i32::try_from(daemon["pid"].as_i64().unwrap()).unwrap();
    kill(pid, Signal::HUP);
    wait_until("the retry is taken", || {
        (root.cli(&["retry", "unknown"]).status.code() == Some(0)).then_some(())
    });
    root.record_that("completed", "unknown", |_| true);
}

#[test]
fn a_retry_of_an_input_that_still_breaks_its_schema_fails_once_more_with_the_same_words() {
    let root = Root::new();
    fs::create_dir(root.path("schemas")).unwrap();
    let schema = root.path("schemas/s.json");
    fs::write(&schema, r#"{"required": ["name"]}"#).unwrap();
    let _daemon = Daemon::start(&root);
    let mut request = orders("exit 0");
    request["input"]["schema"] = "s.json".into();
    root.drop_request("x", &request);
    let (before, code) = root.failed("x");
    assert_eq!(code, "SCHEMA_VALIDATION_FAILED");
    assert_eq!(root.cli(&["retry", "x"]).status.code(), Some(0));
    let record = root.record_that("failed", "x", |record| {
        record["handoffd"]["previous"][0].is_object()
    });
    assert_eq!(record["error"]["message"], before["error"]["message"]);
    fs::write(&schema, r#"{"type": "object"}"#).unwrap();
    assert_eq!(root.cli(&["retry", "x"]).status.code(), Some(0));
    root.record_that("completed", "x", |_| true);
}
