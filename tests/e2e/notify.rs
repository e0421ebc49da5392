//! People are told, and ended handoffs are kept: after the outcome, and in nobody's way.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, is_alive, orders, text, wait_until, with};

/// A command that leaves what it was told in `marks/`, and what it was given.
const TELL: &str = "#!/bin/sh\n\
    cat >\"marks/$HANDOFF_ID.$HANDOFF_EVENT.tmp\"\n\
    env >\"marks/$HANDOFF_ID.env\"\n\
    pwd >\"marks/$HANDOFF_ID.pwd\"\n\
    mv \"marks/$HANDOFF_ID.$HANDOFF_EVENT.tmp\" \"marks/$HANDOFF_ID.$HANDOFF_EVENT\"\n";

const ALL: &str = "notify.failed = ['sh', 'tell.sh']\n\
    notify.completed = ['sh', 'tell.sh']\n\
    notify.waiting_human = ['sh', 'tell.sh']";

fn root(config: &str) -> Root {
    let root = Root::with(config);
    fs::write(root.path("tell.sh"), TELL).unwrap();
    root
}

/// What was told of this, once it was.
fn told(root: &Root, mark: &str) -> Value {
    wait_until(&format!("news: {mark}"), || {
        let bytes = fs::read(root.path("marks").join(mark)).ok()?;
        Some(serde_json::from_slice(&bytes).unwrap())
    })
}

fn for_person(gate: &Value) -> Value {
    json!({
        "target": {"agent_id": "human"}, "context": {"summary": "two ways are open"},
        "gate": gate,
    })
}

#[test]
fn people_are_told_of_failures_completions_and_questions() {
    let root = root(ALL);
    let _daemon = Daemon::start_with(&root, |command| {
        command.env("SECRET", "x");
    });
    root.drop_request("good", &orders("exit 0"));
    root.drop_request(
        "bad",
        &with(orders("exit 1"), json!({"retry": {"max_retries": 0}})),
    );
    root.drop_request("asked", &for_person(&json!({"name": "way"})));
    root.drop_bytes("broken.json", b"{\"target\": ");
    assert_eq!(told(&root, "good.completed")["status"], "completed");
    assert_eq!(
        told(&root, "bad.failed")["error"]["code"],
        "PROCESSING_ERROR"
    );
    assert_eq!(told(&root, "asked.waiting_human")["waiting"]["on"], "human");
    assert_eq!(
        told(&root, "broken.failed")["error"]["code"],
        "SCHEMA_VALIDATION_FAILED"
    );
    let env = fs::read_to_string(root.path("marks/good.env")).unwrap();
    assert!(env.contains("HANDOFF_EVENT=completed") && env.contains("HANDOFF_ROOT="));
    assert!(!env.contains("SECRET"), "{env}");
    let cwd = fs::read_to_string(root.path("marks/good.pwd")).unwrap();
    assert_eq!(
        fs::canonicalize(cwd.trim()).unwrap(),
        fs::canonicalize(root.dir()).unwrap()
    );
    // An answer is news again.
    let output = root.cli(&[
        "approve",
        "asked",
        "--comment",
        "the left one",
        "--by",
        "me",
    ]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(told(&root, "asked.completed")["answer"]["by"], "me");
}

#[test]
fn a_deadline_that_comes_near_is_told_once_more() {
    let root = root(ALL);
    let _daemon = Daemon::start(&root);
    let gate = json!({"name": "g", "deadline": "30s", "warn_before": "29s 500ms"});
    root.drop_request("soon", &for_person(&gate));
    told(&root, "soon.waiting_human");
    assert_eq!(told(&root, "soon.deadline_near")["status"], "waiting");
    assert_eq!(root.states_of("soon"), ["waiting"]);
}

#[test]
fn commands_that_hang_or_fail_hold_up_nothing() {
    let root = root(
        "notify.completed = ['sh', '-c', 'echo $$ >marks/hangs; exec sleep 600']\n\
         notify.failed = ['./none']",
    );
    let daemon = Daemon::start(&root);
    for n in 0..20 {
        root.drop_request(&format!("x{n}"), &orders("exit 0"));
    }
    root.drop_request(
        "bad",
        &with(orders("exit 1"), json!({"retry": {"max_retries": 0}})),
    );
    for n in 0..20 {
        root.completed(&format!("x{n}"));
    }
    root.failed("bad");
    let hangs = root.pid_mark("hangs");
    root.assert_works("after");
    assert_eq!(daemon.terminate(), Some(0), "a stop does not wait for them");
    assert!(!is_alive(hangs), "nor leaves them behind");
}

#[test]
fn a_drain_ends_when_all_is_told() {
    let root = root(ALL);
    root.drop_request("last", &orders("exit 0"));
    let mut daemon = Daemon::spawn(&root, |command| {
        command.arg("--drain");
    });
    assert_eq!(daemon.exit_code(), Some(0));
    assert!(root.path("marks/last.completed").exists());
}

#[test]
fn what_came_as_a_package_is_kept_as_one() {
    let root = root("defaults.retry.max_retries = 0");
    let daemon = Daemon::start(&root);
    let package = |sh: &str| {
        json!({"sh": sh, "handoff": {"from": {"agent": "a"}, "to": {"agent": "fake"},
               "context": {"summary": "Two tables and an index"}}})
    };
    root.drop_request("request", &orders("exit 0"));
    root.drop_request("done", &package("exit 0"));
    root.drop_request("bad", &package("exit 65"));
    let mut refused = package("exit 0");
    refused["handoff"]["context"] = json!({});
    root.drop_request("refused", &refused);
    let path = |id: &str| root.path(&format!("audit/sessions/{id}/handoffs/{id}.yaml"));
    for (id, said) in [
        ("done", "Two tables"),
        ("bad", "PROCESSING_ERROR"),
        ("refused", "SCHEMA"),
    ] {
        let kept = wait_until(id, || fs::read_to_string(path(id)).ok());
        assert!(kept.contains(said), "{kept}");
    }
    root.completed("request");
    daemon.kill();
    fs::remove_file(path("bad")).unwrap();
    let _daemon = Daemon::start(&root);
    wait_until("what a crash took away", || fs::metadata(path("bad")).ok());
    root.completed("request");
    assert!(!path("request").exists());
}

#[test]
fn ended_handoffs_are_kept_as_packages_by_chain() {
    let root = root("audit.packages = true");
    let daemon = Daemon::start(&root);
    let next = "result '{\"status\": \"complete\", \"summary\": \"half of it\", \"phase\": \"one\", \
                \"handoff\": {\"next_agent\": \"@fake\", \"context\": \"the rest\"}}'";
    root.drop_request("job", &orders(next));
    root.drop_request(
        "bad",
        &with(orders("exit 1"), json!({"retry": {"max_retries": 0}})),
    );
    let forged = json!({"chain": "../../../elsewhere"});
    root.drop_request(
        "forged",
        &with(orders("exit 0"), json!({"handoffd": forged})),
    );
    let child = text(&root.completed("job")["handoffd"]["children"][0]);
    let package = |chain: &str, id: &str| {
        let path = format!("audit/sessions/{chain}/handoffs/{id}.yaml");
        wait_until(&path, || fs::read_to_string(root.path(&path)).ok())
    };
    assert!(package("job", "job").contains("half of it"));
    assert!(package("job", &child).starts_with("handoff:"));
    assert!(package("bad", "bad").contains("PROCESSING_ERROR"));
    package("forged", "forged");
    root.completed(&child);
    // What a crash took away is written at the next start.
    daemon.kill();
    let lost = root.path("audit/sessions/bad/handoffs/bad.yaml");
    fs::remove_file(&lost).unwrap();
    let _daemon = Daemon::start(&root);
    package("bad", "bad");
    root.assert_audit_is_sound();
}
