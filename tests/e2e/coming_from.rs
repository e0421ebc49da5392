//! `docs/coming-from.md`: the links that it names make the documents' own paths work, and a link out
//! of the root is refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, text, wait_until, with};

const PAGE: &str = include_str!("../../docs/coming-from.md");

/// Runs every shell block of the page in the root, as its reader would.
fn make_links(root: &Root) {
    let blocks = PAGE.split("```sh\n").skip(1);
    let script: String = blocks.filter_map(|it| it.split("```").next()).collect();
    assert_eq!(script.matches("ln -s").count(), 4, "{script}");
    let status = Command::new("sh")
        .args(["-euc", &script])
        .current_dir(root.dir())
        .status();
    assert!(status.unwrap().success());
}

fn read(root: &Root, path: &str) -> Value {
    wait_until(path, || {
        let bytes = fs::read(root.path(path)).ok()?;
        serde_json::from_slice(&bytes).ok()
    })
}

#[test]
fn the_documents_own_paths_work_through_the_links_of_the_page() {
    let root = Root::with("audit.packages = true");
    make_links(&root);
    let _daemon = Daemon::start(&root);
    let report = ".claude/.output/features/dash/architecture.md";
    fs::create_dir_all(root.path(report).parent().unwrap()).unwrap();
    fs::write(root.path(report), "# Design\n").unwrap();
    let result = json!({
        "status": "complete", "phase": "planning", "summary": "Wrote 3 user stories",
        "decisions": [{ "decision": "Tokens", "rationale": "nothing to keep" }],
    });
    let request = with(
        orders(&format!("echo '{result}'")),
        json!({ "context": { "task_id": "TASK-001", "task_title": "Log in" } }),
    );
    root.drop_request("HO-001", &request);
    root.completed("HO-001");
    // The state of the task, and what stands where.
    let state = read(&root, ".jerry/state/TASK-001.json");
    assert_eq!(state["decisions_made"][0]["decision"], "Tokens");
    let current = wait_until("the handoff is listed", || {
        let current = read(&root, "state/current.json");
        let listed = current["handoffs"].as_array()?.clone();
        listed.into_iter().find(|it| it["id"] == "HO-001")
    });
    assert_eq!(current["status"], "completed");
    // The package that is kept.
    let kept = ".project/07-audit/sessions/HO-001/handoffs/HO-001.yaml";
    wait_until(kept, || root.path(kept).exists().then_some(()));
    // An artifact by the document's own path.
    let package = json!({ "handoff": {
        "from": { "agent": "architect" }, "to": { "agent": "fake" },
        "context": { "summary": "Designed 3 widgets", "artifacts": [{ "path": report }] },
    }, "input": { "data": { "sh": "exit 0" } } });
    root.drop_request("HO-002", &package);
    root.completed("HO-002");
    // A report that names it by that path.
    let report = json!({
        "status": "complete", "phase": "architecture", "summary": "Designed 3 widgets",
        "artifacts": [report], "handoff": { "next_phase": "complete" },
    });
    root.drop_request("HO-003", &report);
    let record = root.completed("HO-003");
    assert_eq!(
        record["output"]["artifact_path"], report["artifacts"][0],
        "{record:#}"
    );
    // The link itself stays one, and the daemon's folder a folder.
    assert!(
        root.path("context/state")
            .symlink_metadata()
            .unwrap()
            .is_dir()
    );
    assert!(
        root.path(".jerry/state")
            .symlink_metadata()
            .unwrap()
            .is_symlink()
    );
}

#[test]
fn a_link_out_of_the_root_is_refused() {
    let root = Root::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("feature.md"), "secret").unwrap();
    symlink(outside.path(), root.path(".project")).unwrap();
    let _daemon = Daemon::start(&root);
    let package = json!({ "handoff": {
        "from": { "agent": "architect" }, "to": { "agent": "fake" },
        "context": {
            "summary": "Designed 3 widgets", "artifacts": [{ "path": ".project/feature.md" }],
        },
    } });
    root.drop_request("x", &package);
    let (record, code) = root.failed("x");
    assert_eq!(code, "SCHEMA_VALIDATION_FAILED", "{record:#}");
    let message = text(&record["error"]["message"]);
    assert!(message.contains(".project/feature.md"), "{message}");
}
