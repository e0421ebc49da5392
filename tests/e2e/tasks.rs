//! Tasks: outcomes update the state of the task that they belong to, once.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, text, wait_until, with};

fn state_of(root: &Root, task: &str) -> Option<Value> {
    let bytes = fs::read(root.path(&format!("context/state/{task}.json"))).ok()?;
    Some(serde_json::from_slice(&bytes).unwrap())
}

fn for_task(sh: &str, task: &str) -> Value {
    let context = json!({ "context": { "task_id": task, "task_title": "Login" } });
    with(orders(sh), context)
}

const DECIDES: &str = "echo '{\"status\": \"complete\", \"decisions\": [{\"decision\": \"JWT\", \
    \"rationale\": \"no sessions\"}]}'";

#[test]
fn an_id_that_is_used_again_brings_something_new() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    for version in 1..=2 {
        root.drop_request("same", &for_task(DECIDES, "T-1"));
        root.completed("same");
        let state = state_of(&root, "T-1").unwrap();
        assert_eq!(state["version"], version);
        assert_eq!(state["applied"].as_array().unwrap().len(), version);
        fs::remove_file(root.state("completed", "same")).unwrap();
    }
}

#[test]
fn an_outcome_makes_the_state_and_the_next_one_adds_to_it() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("one", &for_task(DECIDES, "T-1"));
    root.completed("one");
    let state = state_of(&root, "T-1").unwrap();
    assert_eq!(state["version"], 1);
    assert_eq!(state["task_title"], "Login");
    assert_eq!(state["decisions_made"][0]["decision"], "JWT");
    assert_eq!(state["decisions_made"][0]["agent"], "@fake");
    assert!(text(&state["applied"][0]).starts_with("one#1 "));

    let sh = "printf '%s' \"$HANDOFF_SUMMARY\" >marks/summary; test -f \"$HANDOFF_STATE_FILE\"";
    root.drop_request("two", &for_task(sh, "T-1"));
    root.completed("two");
    let summary = fs::read_to_string(root.path("marks/summary")).unwrap();
    assert!(summary.starts_with("Task: T-1 - Login"), "{summary}");
    assert!(summary.contains("JWT: no sessions"), "{summary}");
    assert!(summary.ends_with("State file: context/state/T-1.json"));
    assert_eq!(state_of(&root, "T-1").unwrap()["version"], 2);
}

#[test]
fn delivered_artifacts_are_in_the_state_with_their_hashes() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let sh = "echo '{\"artifact\": {\"a\": 1}}'";
    let output = json!({ "expected_output": {
        "destination": "artifacts/{task_id}/a.json", "artifact_type": "source" } });
    root.drop_request("x", &with(for_task(sh, "T-1"), output));
    let record = root.completed("x");
    let artifact = &state_of(&root, "T-1").unwrap()["artifacts"][0];
    assert_eq!(artifact["path"], "artifacts/T-1/a.json");
    assert_eq!(artifact["artifact_type"], "source");
    assert_eq!(artifact["content_hash"], record["output"]["sha256"]);
}

#[test]
fn a_gate_that_fails_sends_the_work_back_with_its_reason() {
    let root = Root::with(
        "phases.order = ['planning', 'testing', 'completed']\n\
         gates = [{ name = 'unit', phases = ['testing'], \
         command = ['sh', '-c', 'cat >marks/gate; test -f marks/good'] }]",
    );
    let _daemon = Daemon::start(&root);
    let sh = "echo \"$HANDOFF_LAST_ERROR\" >marks/error.$HANDOFF_ATTEMPT; \
              if [ $HANDOFF_ATTEMPT = 2 ]; then touch marks/good; fi; \
              echo '{\"status\": \"complete\", \"phase\": \"planning\", \"summary\": \"s\", \
              \"handoff\": {\"next_phase\": \"testing\", \"context\": \"c\", \"next_agent\": \"fake\"}}'";
    let request = with(for_task(sh, "T-1"), json!({ "daemon": "max_hops" }));
    root.drop_request("x", &request);
    let record = root.completed("x");
    assert_eq!(crate::common::outcomes(&record), ["failed", "completed"]);
    let told = fs::read_to_string(root.path("marks/error.2")).unwrap();
    assert!(told.contains("unit: exited with 1"), "{told}");
    let gate: Value = serde_json::from_slice(&fs::read(root.path("marks/gate")).unwrap()).unwrap();
    assert_eq!(gate["phase"], "testing", "it sees the state as it would be");
    let state = state_of(&root, "T-1").unwrap();
    assert_eq!(state["phase"], "testing");
    assert!(state["quality_gates_passed"].to_string().contains("unit"));
}

#[test]
fn a_phase_that_may_not_follow_is_refused_by_name() {
    let root = Root::with(
        "phases.order = ['planning', 'testing', 'completed']\ndefaults.retry.max_retries = 0",
    );
    let _daemon = Daemon::start(&root);
    let sh = "echo '{\"status\": \"complete\", \"phase\": \"planning\", \"summary\": \"s\", \
              \"handoff\": {\"next_phase\": \"complete\"}}'";
    root.drop_request("x", &for_task(sh, "T-1"));
    let (record, code) = root.failed("x");
    assert_eq!(code, "VALIDATION_FAILED");
    assert_eq!(
        record["validation"]["errors"][0]["field"],
        "handoff.next_phase"
    );
    assert!(
        text(&record["error"]["message"]).contains("testing"),
        "{record:#}"
    );
}

#[test]
fn an_issue_that_requires_a_person_waits_and_shows() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let sh = "echo '{\"status\": \"complete\", \"blocking_issues\": [{\"issue\": \"which db?\", \
              \"severity\": \"blocker\", \"requires_human\": true}]}'";
    root.drop_request("x", &for_task(sh, "T-1"));
    let record = root.record("waiting", "x");
    assert_eq!(record["waiting"]["on"], "human");
    assert!(text(&record["waiting"]["reason"]).contains("which db?"));
    let state = state_of(&root, "T-1").unwrap();
    assert_eq!(state["blocking_issues"][0]["issue"], "which db?");
    root.command(
        "a.json",
        &json!({ "action": "approve", "handoff_id": "x", "by": "ann" }),
    );
    root.completed("x");
    let state = state_of(&root, "T-1").unwrap();
    assert!(state.to_string().contains("approved by ann"), "{state:#}");
}

#[test]
fn a_crash_between_outcome_and_state_loses_nothing_and_repeats_nothing() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    // Whoever holds the lock keeps the effect waiting after the outcome is decided.
    fs::create_dir_all(root.path("context/state")).unwrap();
    let lock = fs::File::create(root.path("context/state/T-1.lock")).unwrap();
    lock.lock().unwrap();
    root.drop_request("x", &for_task(DECIDES, "T-1"));
    root.record_that("in-progress", "x", |record| {
        record["handoffd"]["to"] == "completed"
    });
    daemon.kill();
    assert_eq!(state_of(&root, "T-1"), None);
    drop(lock);
    let _daemon = Daemon::start(&root);
    root.completed("x");
    let state = wait_until("the state", || state_of(&root, "T-1"));
    assert_eq!(state["version"], 1);
    assert_eq!(state["decisions_made"].as_array().unwrap().len(), 1);
    assert_eq!(state["applied"].as_array().unwrap().len(), 1);
}

/// A result that hands its task on.
fn on(phase: &str, more: &str) -> String {
    format!(
        "echo '{{\"status\": \"complete\", \"phase\": \"p\", \"summary\": \"Two tables, an index\"{more}, \
         \"handoff\": {{\"next_phase\": \"{phase}\", \"context\": \"c\"}}}}'"
    )
}

#[test]
fn a_decision_without_a_rationale_is_a_warning_to_the_handoff_that_brings_it() {
    let root = Root::with("defaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    let sh = "echo '{\"status\": \"complete\", \"decisions\": [\"use sqlite\", {\"rationale\": \"r\"}]}'";
    root.drop_request("one", &for_task(sh, "T-1"));
    let record = root.completed("one");
    let warnings = record["warnings"].to_string();
    assert!(
        warnings.contains("the decision \\\"use sqlite\\\" of @fake has no rationale"),
        "{warnings}"
    );
    assert!(warnings.contains("decisions[1].decision"), "{warnings}");

    root.drop_request("two", &for_task(&on("testing", ""), "T-1"));
    let record = root.completed("two");
    assert_eq!(record.get("warnings"), None, "not its own: {record:#}");
    assert_eq!(state_of(&root, "T-1").unwrap()["phase"], "testing");

    let brings = on("reviewing", ", \"decisions\": [\"use redis\"]");
    root.drop_request("three", &for_task(&brings, "T-1"));
    let record = root.completed("three");
    let warnings = record["warnings"].to_string();
    assert!(
        warnings.contains("use redis\\\" of @fake has no rationale"),
        "{warnings}"
    );
    assert!(!warnings.contains("sqlite"), "{warnings}");
    assert_eq!(state_of(&root, "T-1").unwrap()["phase"], "reviewing");
}

#[test]
fn a_state_that_lacks_its_title_and_phase_holds_nobody_up() {
    let root = Root::with("defaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    fs::create_dir_all(root.path("context/state")).unwrap();
    let bare = "{\"task_id\": \"T-1\", \"version\": 3}";
    fs::write(root.path("context/state/T-1.json"), bare).unwrap();
    root.drop_request("x", &for_task(&on("testing", ""), "T-1"));
    root.completed("x");
    let state = state_of(&root, "T-1").unwrap();
    for (key, value) in [
        ("task_title", json!("Login")),
        ("phase", json!("testing")),
        ("previous_phase", json!("p")),
        ("version", json!(4)),
    ] {
        assert_eq!(state[key], value, "{key}");
    }
}

#[test]
fn an_outcome_that_cannot_go_into_its_state_says_so_in_the_record_and_the_log() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    fs::create_dir_all(root.path("context/state/folder.json")).unwrap();
    fs::write(root.path("context/state/broken.json"), "garbage").unwrap();
    let newer = "{\"task_id\": \"newer\", \"version\": 3, \"format\": 9}";
    fs::write(root.path("context/state/newer.json"), newer).unwrap();
    std::os::unix::fs::symlink("elsewhere", root.path("context/state/link.json")).unwrap();
    for (task, why) in [
        ("folder", "is a folder"),
        ("broken", "is broken and left as it is"),
        ("newer", "has format 9"),
        ("link", "is a symbolic link"),
    ] {
        root.drop_request(task, &for_task(DECIDES, task));
        let record = root.completed(task);
        let warnings = record["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let said = text(&warnings[0]);
        for part in [
            &format!("the state of task {task} lacks this outcome: "),
            why,
            &format!("handoffd state handoff {task}"),
        ] {
            assert!(said.contains(part), "{said}");
        }
        wait_until("its line in the log", || {
            (root.told(task, "state_unwritten") == 1).then_some(())
        });
    }
}

#[test]
fn what_a_blocked_specialist_decided_is_in_the_state_also_where_nobody_helps() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let sh = "echo '{\"status\": \"blocked\", \"phase\": \"p\", \"summary\": \"s\", \
        \"blocked_reason\": \"unknown\", \"attempted\": [\"a\"], \
        \"decisions\": [{\"decision\": \"JWT\", \"rationale\": \"r\"}], \
        \"handoff\": {\"context\": \"c\"}}'";
    root.drop_request("x", &for_task(sh, "T-1"));
    let (_, code) = root.failed("x");
    assert_eq!(code, "BLOCKED");
    let state = state_of(&root, "T-1").unwrap();
    assert_eq!(state["decisions_made"][0]["decision"], "JWT");
    assert_eq!(state["phase"], "p");
}

/// A package for `@fake` with decisions and artifacts of its own.
fn package(sh: &str) -> Value {
    json!({ "handoff": {
        "from": { "agent": "spec" }, "to": { "agent": "fake" },
        "context": {
            "summary": "Twelve stories", "task_id": "T-1",
            "decisions": [
                { "id": "D-001", "decision": "OAuth2", "rationale": "customers ask for it" },
                "no passwords",
            ],
            "artifacts": [{ "path": "stories.md", "type": "spec", "description": "the stories" }],
        },
    }, "input": { "data": { "sh": sh } } })
}

fn names_of(state: &Value, list: &str, key: &str) -> Vec<String> {
    let list = state[list].as_array().unwrap();
    list.iter().map(|entry| text(&entry[key])).collect()
}

#[test]
fn a_package_brings_its_own_decisions_and_artifacts_once() {
    let root = Root::with("defaults.retry.max_retries = 1");
    let _daemon = Daemon::start(&root);
    fs::write(root.path("stories.md"), "twelve").unwrap();
    let sh = "if [ $HANDOFF_ATTEMPT = 1 ]; then exit 1; fi; echo '{\"status\": \"complete\", \
        \"decisions\": [{\"decision\": \"JWT\", \"rationale\": \"no sessions\"}], \
        \"summary\": \"s\", \"phase\": \"p\", \
        \"handoff\": {\"next_phase\": \"testing\", \"context\": \"c\"}}'";
    root.drop_request("pack", &package(sh));
    root.completed("pack");
    let state = state_of(&root, "T-1").unwrap();
    let decisions = ["OAuth2", "no passwords", "JWT"];
    assert_eq!(names_of(&state, "decisions_made", "decision"), decisions);
    assert_eq!(state["decisions_made"][0]["agent"], "spec");
    assert_eq!(state["decisions_made"][0]["id"], "D-001", "fields are kept");
    let artifact = &state["artifacts"][0];
    assert_eq!(artifact["path"], "stories.md");
    assert_eq!(artifact["artifact_type"], "spec");
    assert_eq!(artifact["size_bytes"], 6);
    assert!(artifact["content_hash"].is_string(), "{artifact:#}");
    assert_eq!(
        state["phase"], "testing",
        "its bare decision holds nobody up"
    );

    // Submitted once more, it brings what its result says, and nothing of its own.
    fs::rename(root.state("completed", "pack"), root.pending("pack.json")).unwrap();
    root.record_that("completed", "pack", |record| {
        record["handoffd"]["attempts"].as_array().unwrap().len() == 3
    });
    let state = state_of(&root, "T-1").unwrap();
    let decisions = ["OAuth2", "no passwords", "JWT", "JWT"];
    assert_eq!(names_of(&state, "decisions_made", "decision"), decisions);
    assert_eq!(state["artifacts"].as_array().unwrap().len(), 1);
}

#[test]
fn a_package_whose_gate_fails_has_brought_its_own_all_the_same() {
    let root =
        Root::with("phases.requires = { testing = ['source'] }\ndefaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    fs::write(root.path("stories.md"), "twelve").unwrap();
    root.drop_request("pack", &package(&on("testing", "")));
    let (_, code) = root.failed("pack");
    assert_eq!(code, "VALIDATION_FAILED");
    let state = state_of(&root, "T-1").unwrap();
    assert_eq!(
        names_of(&state, "decisions_made", "decision"),
        ["OAuth2", "no passwords"]
    );
}
