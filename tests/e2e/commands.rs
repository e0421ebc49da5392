//! `handoff_command`: what an agent that the daemon runs is given of its task.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, text, with};

const KEYS: [&str; 6] = [
    "task_id",
    "target_agent",
    "phase",
    "state_delta",
    "context_summary",
    "state_file",
];

/// The record as an attempt found it, which had `cp "$HANDOFF_FILE" marks/NAME` in its orders.
fn seen(root: &Root, name: &str) -> Value {
    serde_json::from_slice(&fs::read(root.path(&format!("marks/{name}"))).unwrap()).unwrap()
}

fn for_task(sh: &str) -> Value {
    with(
        orders(sh),
        json!({ "context": { "task_id": "T-1", "task_title": "Login" } }),
    )
}

fn keys(command: &Value) -> Vec<&str> {
    let command = command.as_object().unwrap();
    command.keys().map(String::as_str).collect()
}

#[test]
fn each_attempt_finds_the_command_for_its_task_in_its_record() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let sh = "cp \"$HANDOFF_FILE\" marks/one; echo '{\"status\": \"complete\", \"phase\": \"p\", \
        \"summary\": \"s\", \"decisions\": [{\"decision\": \"JWT\", \"rationale\": \"r\"}, \
        {\"decision\": \"sqlite\", \"rationale\": \"r\"}], \"blocking_issues\": [\"slow\"], \
        \"handoff\": {\"next_phase\": \"testing\", \"context\": \"c\"}}'";
    let own = json!({ "handoff_command": { "mine": 1.0 } });
    root.drop_request("one", &with(for_task(sh), own.clone()));
    let ended = root.completed("one");
    for record in [&seen(&root, "one"), &ended] {
        let command = &record["handoff_command"];
        assert_eq!(keys(command), KEYS, "{command:#}");
        assert_eq!(command["task_id"], "T-1");
        assert_eq!(command["target_agent"], "@fake");
        assert_eq!(command["state_file"], "context/state/T-1.json");
        assert_eq!(
            command["state_delta"],
            json!({"artifacts_added": 0, "decisions_made": 0, "blocking_issues": 0})
        );
        let kept = &record["handoffd"]["submitted"]["handoff_command"];
        assert_eq!(kept, &own["handoff_command"], "the producer's value");
    }

    // The next one gets what the first one brought, in each of its attempts.
    let sh = "cp \"$HANDOFF_FILE\" marks/two.$HANDOFF_ATTEMPT; test $HANDOFF_ATTEMPT = 2";
    root.drop_request("two", &for_task(sh));
    root.completed("two");
    for name in ["two.1", "two.2"] {
        let command = &seen(&root, name)["handoff_command"];
        assert_eq!(command["phase"], "testing");
        assert_eq!(
            command["state_delta"],
            json!({"artifacts_added": 0, "decisions_made": 2, "blocking_issues": 1})
        );
        let summary = text(&command["context_summary"]);
        assert!(summary.starts_with("Task: T-1 - Login\n"), "{summary}");
        assert!(summary.contains("sqlite"), "{summary}");
    }

    // Submitted once more, the producer's value is still the producer's.
    fs::rename(root.state("completed", "one"), root.pending("one.json")).unwrap();
    let record = root.record_that("completed", "one", |record| {
        record["handoffd"]["attempts"].as_array().unwrap().len() == 2
    });
    let kept = &record["handoffd"]["submitted"]["handoff_command"];
    assert_eq!(kept, &own["handoff_command"]);
    let earlier = &record["handoffd"]["previous"][0];
    assert_eq!(earlier.get("handoff_command"), None, "no outcome");
}

#[test]
fn a_package_hands_on_what_it_brings_itself() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let package = json!({ "handoff": {
        "from": { "agent": "spec" }, "to": { "agent": "fake", "phase": "design" },
        "context": {
            "summary": "Twelve stories", "task_id": "T-1",
            "decisions": [{ "decision": "OAuth2", "rationale": "customers ask for it" }],
        },
    }, "input": { "data": { "sh": "cp \"$HANDOFF_FILE\" marks/pack; exit 0" } } });
    root.drop_request("pack", &package);
    root.completed("pack");
    let command = &seen(&root, "pack")["handoff_command"];
    assert_eq!(keys(command), KEYS, "{command:#}");
    assert_eq!(command["phase"], "design");
    assert_eq!(command["state_delta"]["decisions_made"], 1);
    assert!(text(&command["context_summary"]).contains("OAuth2"));
}

#[test]
fn without_a_task_there_is_no_command_and_a_state_that_is_broken_is_said() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let own = json!({ "handoff_command": "mine" });
    root.drop_request("bare", &with(orders("exit 0"), own));
    let record = root.completed("bare");
    assert_eq!(record.get("handoff_command"), None, "{record:#}");
    assert_eq!(record["handoffd"]["submitted"]["handoff_command"], "mine");

    fs::create_dir_all(root.path("context/state")).unwrap();
    fs::write(root.path("context/state/T-1.json"), "garbage").unwrap();
    root.drop_request("broken", &for_task("exit 0"));
    let record = root.completed("broken");
    let summary = text(&record["handoff_command"]["context_summary"]);
    assert!(summary.contains("T-1.json is broken"), "{summary}");
}
