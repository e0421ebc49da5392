//! The examples of "ADR-005: Agent Handoff State Format", with what becomes of each here.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::Root;

fn fixture(name: &str) -> String {
    let states = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/states");
    fs::read_to_string(states.join(name)).unwrap()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The same as `later` where it says something.
fn assert_has(later: &Value, earlier: &Value) {
    for (key, value) in earlier.as_object().unwrap() {
        assert_eq!(later[key], *value, "{key}");
    }
}

#[test]
fn a_whole_state_is_stored_field_by_field() {
    let root = Root::new();
    let whole = parsed(&fixture("whole.json"));
    root.ok(&["save", "-"], &whole.to_string());
    assert_has(&root.stored("TASK-001"), &whole);
    assert_has(
        &parsed(&root.ok(&["show", "TASK-001", "--json"], "")),
        &whole,
    );
    // The same version once more would overwrite what somebody else stored meanwhile.
    assert_eq!(
        root.error(&["save", "-"], &whole.to_string(), 1)["code"],
        "CONFLICT"
    );
}

#[test]
fn a_handoff_gives_the_next_agent_the_six_fields_of_a_command() {
    let root = Root::new();
    root.ok(&["save", "-"], &fixture("whole.json"));
    let handoff = fixture("handoff.json");
    let error = root.error(&["handoff", "TASK-002", "-"], &handoff, 1);
    assert!(
        error["message"].as_str().unwrap().contains("TASK-002"),
        "unknown: {error}"
    );
    let command = parsed(&root.ok(&["handoff", "TASK-001", "-"], &handoff));
    let keys: Vec<&String> = command.as_object().unwrap().keys().collect();
    let expected = [
        "task_id",
        "target_agent",
        "phase",
        "state_delta",
        "context_summary",
        "state_file",
    ];
    assert_eq!(keys, expected);
    assert_eq!(command["target_agent"], "dev-qa");
    assert_eq!(command["phase"], "testing");
    assert_eq!(
        command["state_delta"],
        json!({ "artifacts_added": 2, "decisions_made": 1, "blocking_issues": 0 })
    );
    let state = root.stored("TASK-001");
    assert_eq!(state["version"], 2);
    assert_eq!(
        (&state["phase"], &state["previous_phase"]),
        (&json!("testing"), &json!("implementing"))
    );
    assert_eq!(
        (&state["source_agent"], &state["target_agent"]),
        (&json!("dev-engineer"), &json!("dev-qa"))
    );
    assert_eq!(state["artifacts"].as_array().unwrap().len(), 3, "appended");
    assert_eq!(
        state["decisions_made"][1]["alternatives"],
        json!(["Sessions", "OAuth only"])
    );
    assert_eq!(state["blocking_issues"], json!([]), "replaced");
    let summary = command["context_summary"].as_str().unwrap();
    for line in [
        "Task: TASK-001 - Sign in by e-mail",
        "Phase: testing (from implementing)",
        "Artifacts: 3",
        "Blocking: none",
        "Gates: ",
        "State file: context/state/TASK-001.json",
    ] {
        assert!(summary.contains(line), "{summary}");
    }
}

#[test]
fn the_option_that_was_not_chosen_is_stored_as_it_is_with_a_version() {
    let root = Root::new();
    let mut state = parsed(&fixture("considered.json"));
    let error = root.error(&["save", "-"], &state.to_string(), 1);
    assert_eq!(error["field"], "version");
    state["version"] = 1.into();
    root.ok(&["save", "-"], &state.to_string());
    assert_has(&root.stored("TASK-001"), &state);
}

#[test]
fn fifty_artifacts_and_twenty_decisions_make_a_short_summary() {
    let root = Root::new();
    let mut state = parsed(&fixture("whole.json"));
    let many = |list: &Value, count: usize| Value::Array(vec![list[0].clone(); count]);
    state["artifacts"] = many(&state["artifacts"], 50);
    state["decisions_made"] = many(&state["decisions_made"], 20);
    root.ok(&["save", "-"], &state.to_string());
    let summary = root.ok(&["summary", "TASK-001"], "");
    assert!(summary.chars().count() < 2000, "{summary}");
    assert!(summary.contains("Artifacts: 50 (50 doc)") && summary.contains("Decisions: 20"));
}

#[test]
fn an_issue_that_requires_a_human_is_a_gate() {
    let root = Root::new();
    root.ok(&["save", "-"], &fixture("whole.json"));
    let mut handoff = parsed(&fixture("handoff.json"));
    handoff["blocking_issues"] = json!([{
        "issue": "Which provider?", "severity": "blocker", "suggested_action": "Ask the owner",
        "requires_human": true,
    }]);
    let output = root.state(&["handoff", "TASK-001", "-"], &handoff.to_string());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        root.stored("TASK-001")["phase"],
        "implementing",
        "a person has not answered"
    );
    root.ok(
        &["handoff", "TASK-001", "-", "--approved-by", "ada"],
        &handoff.to_string(),
    );
    assert_eq!(root.stored("TASK-001")["phase"], "testing");
}
