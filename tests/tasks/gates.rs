//! Gates as `state handoff` runs them.

use std::fs;

use serde_json::json;

use crate::Root;

const CONFIG: &str = r#"
[defaults]
timeout = "2s"
kill_grace = "100ms"

[phases]
order = ["implementing", "testing", "reviewing", "completed"]
requires = { testing = ["source"] }

[[gates]]
name = "asks-the-state"
phases = ["reviewing"]
command = ["sh", "-c", "grep -q '\"phase\": \"reviewing\"' && test -e allowed && test \"$PWD\" = \"$HANDOFF_ROOT\""]
"#;

#[test]
fn phases_are_entered_in_order_and_with_what_they_require() {
    let root = Root::with(CONFIG);
    root.begin("T");
    let skipped = root.error(
        &["handoff", "T", "--to", "x", "--phase", "reviewing"],
        "",
        1,
    );
    assert_eq!(
        (&skipped["code"], &skipped["field"]),
        (&json!("PHASE_REFUSED"), &json!("phase"))
    );
    assert_eq!(root.stored("T")["version"], 1);

    let to_testing = ["handoff", "T", "--to", "tester", "--phase", "testing"];
    let decided = ["--decision", "d", "--because", "r"];
    let bare = root.error(&[&to_testing[..], &decided[..]].concat(), "", 1);
    assert_eq!(
        (&bare["code"], &bare["gates"]),
        (&json!("GATE_FAILED"), &json!(["phase"]))
    );
    let stored = root.stored("T");
    assert_eq!(
        (&stored["version"], &stored["phase"]),
        (&json!(2), &json!("implementing"))
    );
    assert_eq!(stored["quality_gates_failed"], json!(["phase"]));
    assert_eq!(
        stored.get("decisions_made"),
        None,
        "what failed brought nothing"
    );

    fs::write(root.path("a.rs"), "abc").unwrap();
    root.ok(
        &[&to_testing[..], &["--artifact", "code=a.rs"]].concat(),
        "",
    );
    let stored = root.stored("T");
    assert_eq!(stored["phase"], "testing");
    assert_eq!(stored["quality_gates_failed"], json!([]));
    assert!(stored["quality_gate_results"]["phase"]["reason"].is_string());
}

#[test]
fn a_command_gate_sees_the_state_as_it_would_be() {
    let root = Root::with(CONFIG);
    root.begin("T");
    fs::write(root.path("a.rs"), "abc").unwrap();
    let words = ["--phase", "testing", "--artifact", "source=a.rs"];
    root.ok(&[&["handoff", "T", "--to", "x"], &words[..]].concat(), "");
    let on = ["handoff", "T", "--to", "reviewer", "--phase", "reviewing"];
    let refused = root.error(&on, "", 1);
    assert_eq!(refused["gates"], json!(["asks-the-state"]));
    let stored = root.stored("T");
    assert_eq!(stored["quality_gates_failed"], json!(["asks-the-state"]));
    let reason = &stored["quality_gate_results"]["asks-the-state"]["reason"];
    assert_eq!(reason, "exited with 1");
    fs::write(root.path("allowed"), "").unwrap();
    root.ok(&on, "");
    let stored = root.stored("T");
    assert_eq!(
        (&stored["phase"], &stored["quality_gates_failed"]),
        (&json!("reviewing"), &json!([]))
    );
}

#[test]
fn a_gate_that_hangs_fails_in_time() {
    let config = CONFIG
        .replace("\"2s\"", "\"200ms\"")
        .replace("grep -q", "sleep 60; grep -q");
    let root = Root::with(&config.replace("requires = { testing = [\"source\"] }", ""));
    root.begin("T");
    root.ok(&["handoff", "T", "--to", "x", "--phase", "testing"], "");
    let refused = root.error(
        &["handoff", "T", "--to", "x", "--phase", "reviewing"],
        "",
        1,
    );
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("took longer than 200ms"), "{message}");
}

#[test]
fn a_human_is_waited_for() {
    let root = Root::new();
    root.begin("T");
    let asks = [
        "handoff",
        "T",
        "--to",
        "x",
        "--phase",
        "testing",
        "--needs-human",
        "which licence?",
    ];
    let waits = root.error(&asks, "", 1);
    assert_eq!(waits["code"], "HUMAN_REQUIRED");
    assert!(
        waits["message"]
            .as_str()
            .unwrap()
            .contains("which licence?")
    );
    let stored = root.stored("T");
    assert_eq!(
        (&stored["phase"], &stored["version"]),
        (&json!("implementing"), &json!(2))
    );
    assert_eq!(stored["blocking_issues"][0]["requires_human"], true);
    assert!(
        root.ok(&["summary", "T"], "")
            .contains("[blocker, human] which licence?")
    );
    let on = [
        "handoff",
        "T",
        "--to",
        "x",
        "--phase",
        "testing",
        "--keep-blocking",
    ];
    assert_eq!(root.error(&on, "", 1)["code"], "HUMAN_REQUIRED");
    root.ok(&[&on[..], &["--approved-by", "Ann"]].concat(), "");
    let stored = root.stored("T");
    assert_eq!(stored["phase"], "testing");
    assert_eq!(
        stored["quality_gate_results"]["human"]["reason"],
        "approved by Ann"
    );
}
