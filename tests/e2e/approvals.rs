//! Answers of people and the states of tasks: an approval never skips a gate.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, outcomes, text, wait_until, with};

const GATED: &str = "phases.order = ['planning', 'implementing', 'testing', 'completed']\n\
    gates = [\
    { name = 'ready', phases = ['implementing'], command = ['sh', '-c', 'echo x >>marks/ready; \
      test ! -e marks/unready'] }, \
    { name = 'unit', phases = ['testing'], command = ['sh', '-c', 'cat >marks/unit; \
      test ! -e marks/broken'] }]";

const ISSUE: &str = "\"blocking_issues\": [{\"issue\": \"which db?\", \"severity\": \"blocker\", \
    \"requires_human\": true}]";

fn state_of(root: &Root, task: &str) -> Value {
    let bytes = fs::read(root.path(&format!("context/state/{task}.json"))).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn for_task(sh: &str) -> Value {
    with(
        orders(sh),
        json!({ "context": { "task_id": "T-1", "task_title": "Login" } }),
    )
}

/// Orders for a result that goes on to `next`, with these members besides.
fn on_to(next: &str, more: &str) -> String {
    let comma = if more.is_empty() { "" } else { ", " };
    format!(
        "echo '{{\"status\": \"complete\", \"phase\": \"p\", \"summary\": \"s\"{comma}{more}, \
         \"handoff\": {{\"next_phase\": \"{next}\", \"context\": \"c\"}}}}'"
    )
}

fn approve(root: &Root, id: &str) {
    root.command(
        &format!("approve-{id}.json"),
        &json!({ "action": "approve", "handoff_id": id, "by": "ann", "comment": "sqlite" }),
    );
}

#[test]
fn an_approved_issue_skips_no_gate_and_does_not_freeze_the_task() {
    let root = Root::with(GATED);
    let _daemon = Daemon::start(&root);
    root.drop_request("plan", &for_task(&on_to("implementing", ISSUE)));
    root.record("waiting", "plan");
    assert!(!root.path("marks/ready").exists(), "a person comes first");
    approve(&root, "plan");
    let record = root.completed("plan");
    assert_eq!(record["answer"]["by"], "ann");
    let state = state_of(&root, "T-1");
    assert_eq!(state["phase"], "implementing");
    assert!(root.path("marks/ready").exists(), "its own gate was asked");
    let passed = state["quality_gates_passed"].to_string();
    assert!(passed.contains("ready"), "{passed}");

    root.drop_request("code", &for_task(&on_to("testing", "")));
    let record = root.completed("code");
    assert_eq!(record.get("warnings"), None, "{record:#}");
    let state = state_of(&root, "T-1");
    assert_eq!(state["phase"], "testing");
    assert_eq!(state["blocking_issues"], json!([]));
    let seen: Value = serde_json::from_slice(&fs::read(root.path("marks/unit")).unwrap()).unwrap();
    assert_eq!(seen["phase"], "testing");
    let passed = state["quality_gates_passed"].to_string();
    assert!(passed.contains("unit"), "{passed}");
}

#[test]
fn a_gate_that_fails_after_an_approved_issue_fails_the_next_work() {
    let root = Root::with(&format!("{GATED}\ndefaults.retry.max_retries = 0"));
    let _daemon = Daemon::start(&root);
    root.drop_request("plan", &for_task(&on_to("implementing", ISSUE)));
    root.record("waiting", "plan");
    approve(&root, "plan");
    root.completed("plan");
    fs::write(root.path("marks/broken"), "").unwrap();
    root.drop_request("code", &for_task(&on_to("testing", "")));
    let (record, code) = root.failed("code");
    assert_eq!(code, "VALIDATION_FAILED");
    let message = text(&record["error"]["message"]);
    assert!(message.contains("unit: exited with 1"), "{message}");
    assert_eq!(state_of(&root, "T-1")["phase"], "implementing");
}

#[test]
fn approved_work_whose_own_gate_fails_goes_back_with_the_answer_and_the_reason() {
    let root = Root::with(GATED);
    let _daemon = Daemon::start(&root);
    fs::write(root.path("marks/unready"), "").unwrap();
    let sh = format!(
        "echo \"$HANDOFF_LAST_ERROR\" >marks/error.$HANDOFF_ATTEMPT; \
         if [ $HANDOFF_ATTEMPT = 2 ]; then rm marks/unready; {}; else {}; fi",
        on_to("implementing", ""),
        on_to("implementing", ISSUE)
    );
    root.drop_request("plan", &for_task(&sh));
    root.record("waiting", "plan");
    approve(&root, "plan");
    let record = root.completed("plan");
    assert_eq!(outcomes(&record), ["failed", "completed"]);
    assert_eq!(record["answer"]["comment"], "sqlite", "the answer stays");
    assert_eq!(
        record["handoffd"]["attempts"][0]["error"]["code"],
        "VALIDATION_FAILED"
    );
    let told = fs::read_to_string(root.path("marks/error.2")).unwrap();
    assert!(told.contains("ready: exited with 1"), "{told}");
    assert_eq!(state_of(&root, "T-1")["phase"], "implementing");
    wait_until("its line in the log", || {
        (root.told("plan", "gates_failed") == 1).then_some(())
    });
}

#[test]
fn approved_work_whose_gate_fails_for_good_keeps_the_answer_and_says_why() {
    let root = Root::with(&format!("{GATED}\ndefaults.retry.max_retries = 0"));
    let _daemon = Daemon::start(&root);
    fs::write(root.path("marks/unready"), "").unwrap();
    root.drop_request("plan", &for_task(&on_to("implementing", ISSUE)));
    root.record("waiting", "plan");
    approve(&root, "plan");
    let (record, code) = root.failed("plan");
    assert_eq!(code, "VALIDATION_FAILED");
    assert_eq!(record["answer"]["by"], "ann");
    assert_eq!(record["result"]["summary"], "s", "the work is not lost");
    assert_eq!(record["validation"]["status"], "failed");
    let warnings = record["warnings"].to_string();
    assert!(
        warnings.contains("approved by ann") && warnings.contains("ready: exited with 1"),
        "{warnings}"
    );
    let state = state_of(&root, "T-1");
    assert_ne!(state["phase"], "implementing");
    assert_eq!(state["quality_gates_failed"], json!(["ready"]));
    let said = root.cli(&["explain", "plan"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("ready: exited with 1"), "{said}");
}

#[test]
fn a_dropped_report_passes_the_gates_of_its_next_phase() {
    let root = Root::with(GATED);
    let _daemon = Daemon::start(&root);
    fs::write(root.path("marks/unready"), "").unwrap();
    let report = |agent: &str| {
        json!({
            "agent": agent, "status": "complete", "phase": "planning", "summary": "Planned it all",
            "context": { "task_id": "T-1" },
            "handoff": { "next_phase": "implementing", "context": "c", "next_agent": null },
        })
    };
    root.drop_request("one", &report("planner"));
    let (record, code) = root.failed("one");
    assert_eq!(code, "VALIDATION_FAILED");
    let message = text(&record["error"]["message"]);
    assert!(message.contains("ready: exited with 1"), "{message}");
    fs::remove_file(root.path("marks/unready")).unwrap();
    root.drop_request("two", &report("planner"));
    root.completed("two");
    assert_eq!(state_of(&root, "T-1")["phase"], "implementing");
}

#[test]
fn explain_names_what_of_completed_work_is_not_in_the_state() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    fs::create_dir_all(root.path("context/state/T-1.json")).unwrap();
    root.drop_request("x", &for_task(&on_to("testing", "")));
    root.completed("x");
    let said = root.cli(&["explain", "x"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("the state of task T-1 lacks this outcome"),
        "the warning is shown: {said}"
    );
}
