//! What a failure advises, done word for word: it must work.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, text, wait_until, with};

fn advice(record: &Value) -> String {
    let actions = record["recovery_actions"].as_array().unwrap();
    let actions: Vec<String> = actions.iter().map(text).collect();
    actions.join("\n")
}

/// Does what stands behind the last colon.
fn follow(root: &Root, advice: &str) {
    let command = advice.rsplit_once(": ").unwrap().1;
    let done = Command::new("sh")
        .args(["-c", command])
        .current_dir(root.dir())
        .status();
    assert!(done.unwrap().success(), "{command}");
}

#[test]
fn refused_bytes_that_were_mended_are_taken_as_advised() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let request = orders("exit 0").to_string();
    for (id, name, mended) in [
        ("a", "a.json", request.clone()),
        (
            "b",
            "b.md",
            format!("# Please\n\n```json\n{request}\n```\n"),
        ),
        ("c", "c.yaml", format!("---\n{request}\n")),
        ("d", "d.yml", format!("---\n{request}\n")),
    ] {
        root.drop_bytes(name, b"{ [");
        let (notice, _) = root.failed(id);
        let kept = root.path(&format!("handoffs/failed/{id}.rejected"));
        wait_until("the bytes", || kept.exists().then_some(()));
        fs::write(kept, mended).unwrap();
        follow(&root, &advice(&notice));
        root.completed(id);
    }
    // Its own id is no name, and the one that it was dropped under is taken.
    root.drop_bytes("a.md", b"only words");
    let (notice, _) = root.failed("a~2");
    let told = advice(&notice);
    assert!(told.contains("handoffs/pending/<id>.md"), "{told}");
    root.command(
        "again.json",
        &json!({ "action": "retry", "handoff_id": "a~2" }),
    );
    let reason = root.path("handoffs/control/rejected/again.json.reason.json");
    let reason = wait_until("the reason", || fs::read_to_string(&reason).ok());
    assert!(reason.contains("handoffs/pending/<id>.md"), "{reason}");
}

/// Changes a failed record and moves it back.
fn mend(root: &Root, id: &str, change: impl FnOnce(&mut Value)) {
    let (mut record, _) = root.failed(id);
    change(&mut record);
    let path = root.state("failed", id);
    fs::write(&path, record.to_string()).unwrap();
    fs::rename(&path, root.pending(&format!("{id}.json"))).unwrap();
}

fn free(root: &Root, id: &str) {
    mend(root, id, |record| {
        record.as_object_mut().unwrap().remove("depends_on");
    });
    root.completed(id);
}

#[test]
fn what_can_be_mended_in_its_record_is_moved_back() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    fs::create_dir_all(root.path("artifacts")).unwrap();
    fs::write(root.path("artifacts/old.txt"), "somebody's").unwrap();
    let request = with(
        orders(r#"echo made > "$HANDOFF_ARTIFACT""#),
        json!({ "expected_output": { "destination": "artifacts/old.txt" } }),
    );
    root.drop_request("taken", &request);
    let told = advice(&root.failed("taken").0);
    assert!(told.ends_with("Then move the file back to handoffs/pending/"));
    mend(&root, "taken", |record| {
        record["expected_output"]["destination"] = "artifacts/new.txt".into();
    });
    root.completed("taken");
    root.drop_request("asked", &json!({ "target": { "agent_id": "human" } }));
    root.waiting("asked");
    root.answer("reject", "asked", json!({ "comment": "what for?" }));
    let told = advice(&root.failed("asked").0);
    assert!(told.ends_with("Then move the file back to handoffs/pending/"));
    mend(&root, "asked", |record| {
        record["why"] = "for the release".into();
    });
    root.waiting("asked");
}

#[test]
fn what_depends_on_itself_runs_once_it_does_not() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let after = |id: &str| with(orders("exit 0"), json!({ "depends_on": [id] }));
    root.drop_request("self", &after("self"));
    let (record, _) = root.failed("self");
    let (message, told) = (text(&record["error"]["message"]), advice(&record));
    assert!(message.contains("depends on itself"), "{message}");
    assert!(
        told.contains("Remove self from depends_on in handoffs/failed/self.json")
            && told.contains("move the file back to handoffs/pending/")
            && !told.contains("retry"),
        "{told}"
    );
    free(&root, "self");
    root.drop_request("a", &after("b"));
    root.drop_request("b", &after("a"));
    let [a, b] = ["a", "b"].map(|id| advice(&root.failed(id).0));
    assert!([a, b].iter().any(|told| told.contains("handoffs/failed/")
        && told.contains("move that file back to handoffs/pending/")),);
    free(&root, "a");
    root.command("b.json", &json!({ "action": "retry", "handoff_id": "b" }));
    root.record_that("completed", "b", |_| true);
}

#[test]
fn a_result_that_is_too_large_is_told_what_helps() {
    let root = Root::with("daemon.max_output_size = '2KiB'\ndefaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    root.drop_request(
        "big",
        &orders(r#"printf '{"summary":"%05000d"}' 1 > "$HANDOFF_RESULT""#),
    );
    let (record, code) = root.failed("big");
    assert_eq!(code, "VALIDATION_FAILED");
    let told = advice(&record);
    assert!(
        told.contains("artifacts/") && told.contains("daemon.max_output_size"),
        "{told}"
    );
}

#[test]
fn a_changed_artifact_is_not_mended_by_a_retry() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let made = with(
        orders(r#"echo made > "$HANDOFF_ARTIFACT""#),
        json!({ "expected_output": { "destination": "artifacts/a.txt" } }),
    );
    root.drop_request("first", &made);
    root.completed("first");
    fs::write(root.path("artifacts/a.txt"), "changed").unwrap();
    let shown = root.cli(&["check", "--deep"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("artifact a of first") && !shown.contains("retry"),
        "{shown}"
    );
    let told = shown
        .lines()
        .find(|line| line.contains("its follow-ups again"));
    follow(&root, told.unwrap_or_else(|| panic!("{shown}")));
    root.record_that("completed", "first", |record| {
        record["handoffd"]["attempts"].as_array().unwrap().len() == 2
    });
    assert_eq!(daemon.terminate(), Some(0));
    assert_eq!(root.cli(&["check", "--deep"]).status.code(), Some(0));
}
