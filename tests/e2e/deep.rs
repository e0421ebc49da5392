//! `check --deep`: no false alarm beside a daemon that works, and a true one where it is due.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, text, wait_until, with};

fn deep(root: &Root) -> (Option<i32>, Value) {
    let output = root.cli(&["check", "--deep", "--json"]);
    let shown = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let told = String::from_utf8_lossy(&output.stderr);
        panic!("{error}: {told}")
    });
    (output.status.code(), shown)
}

#[test]
fn a_root_at_work_has_no_breaches_and_a_damaged_one_has() {
    let root = Root::with("daemon.max_concurrent = 4");
    let daemon = Daemon::start(&root);
    root.drop_bytes("broken.json", b"{");
    root.drop_request("unknown", &json!({ "target": { "agent_id": "nobody" } }));
    let later = json!({ "not_before": "2999-01-01T00:00:00Z" });
    root.drop_request("later", &with(orders("exit 0"), later));
    root.drop_request(
        "after",
        &with(orders("exit 0"), json!({ "depends_on": ["later"] })),
    );
    root.drop_request("long", &orders("mark up; await go"));
    root.mark("long.up");
    let many = 150;
    for n in 0..many {
        let end = if n % 5 == 0 { "exit 65" } else { "exit 0" };
        root.drop_request(&format!("x{n}"), &orders(end));
    }
    // Beside the work, again and again: what moves is no breach.
    let ended = || root.names("handoffs/completed").len() + root.names("handoffs/failed").len();
    let mut looks = 0;
    while ended() < many || looks == 0 {
        let (code, shown) = deep(&root);
        assert_eq!(code, Some(0), "{shown:#}");
        looks += 1;
    }
    root.failed("broken");
    root.failed("unknown");
    let (code, shown) = deep(&root);
    assert_eq!(code, Some(0), "{shown:#}");
    assert_eq!(shown["deep"]["breaches"], json!([]));
    root.allow("go");
    root.completed("long");
    wait_until("all have ended", || (ended() >= many + 4).then_some(()));
    assert_eq!(daemon.terminate(), Some(0));
    let (code, shown) = deep(&root);
    assert_eq!(code, Some(0), "{shown:#}");
    assert!(shown["deep"]["examined"]["records"].as_u64() >= Some(many as u64));
    let record = root.state("completed", "x1");
    let bytes = fs::read(&record).unwrap();
    fs::write(&record, &bytes[..bytes.len() / 2]).unwrap();
    let (code, shown) = deep(&root);
    assert_eq!(code, Some(1), "{shown:#}");
    assert_eq!(shown["ok"], false);
    let [breach] = shown["deep"]["breaches"].as_array().unwrap().as_slice() else {
        panic!("{shown:#}")
    };
    assert_eq!(text(&breach["path"]), "handoffs/completed/x1.json");
    assert_eq!(text(&breach["invariant"]), "whole_record");
    let told = root.cli(&["check", "--deep"]);
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("handoffs/completed/x1.json"), "{told}");
    assert!(told.contains("→"), "{told}");
}

/// What is said of the state of the task `T`.
fn said_of_the_task(root: &Root) -> String {
    let (code, shown) = deep(root);
    assert_eq!(code, Some(1), "{shown:#}");
    let [breach] = shown["deep"]["breaches"].as_array().unwrap().as_slice() else {
        panic!("{shown:#}")
    };
    assert_eq!(text(&breach["path"]), "context/state/T.json");
    assert_eq!(text(&breach["invariant"]), "tasks");
    text(&breach["problem"])
}

#[test]
fn a_task_whose_phase_does_not_follow_from_its_outcomes_is_found() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    for (id, phase) in [("one", "testing"), ("two", "reviewing")] {
        let result = json!({ "status": "complete", "summary": "s", "phase": "p",
                             "handoff": { "next_phase": phase, "context": "c" } });
        let task = json!({ "context": { "task_id": "T" } });
        root.drop_request(id, &with(orders(&format!("echo '{result}'")), task));
        root.completed(id);
    }
    assert_eq!(daemon.terminate(), Some(0));
    let (code, shown) = deep(&root);
    assert_eq!(code, Some(0), "{shown:#}");
    let path = root.path("context/state/T.json");
    let sound: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let put = |state: &Value| fs::write(&path, state.to_string()).unwrap();
    let frozen = with(sound.clone(), json!({ "phase": "testing" }));
    put(&frozen);
    assert!(said_of_the_task(&root).contains("its history says reviewing"));
    // The state of before the second outcome, and one that waits for an answer that was given.
    let history = fs::read_to_string(root.path("context/state/T.history.jsonl")).unwrap();
    let applied = sound["applied"].as_array().unwrap();
    let older = with(frozen, json!({ "version": 1, "applied": [applied[0]] }));
    put(&older);
    assert!(said_of_the_task(&root).contains("lacks the outcome of two"));
    let held = format!("{}=human", text(&applied[1]));
    put(&with(older, json!({ "applied": [applied[0], held] })));
    assert!(said_of_the_task(&root).contains("waits for a human's answer to two"));
    // History and state agree, but the record says something else.
    let forged = history.replace("reviewing", "planning");
    fs::write(root.path("context/state/T.history.jsonl"), forged).unwrap();
    put(&with(sound, json!({ "phase": "planning" })));
    assert!(said_of_the_task(&root).contains("two moves it to reviewing"));
}
