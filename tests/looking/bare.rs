//! A root that no daemon has run on: what is missing is empty, and looking at it makes nothing.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use super::Root;

/// No more than somebody makes who drops a first request.
fn bare() -> Root {
    let root = Root {
        dir: tempfile::tempdir().unwrap(),
    };
    fs::create_dir_all(root.path("handoffs/pending")).unwrap();
    let request = json!({ "target": { "agent_id": "@coder" } });
    root.put("pending", "first", 1, &request);
    root
}

/// Every file and folder below, in order.
pub(super) fn tree(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        found.push(path.display().to_string());
        if path.is_dir() {
            found.extend(tree(&path));
        }
    }
    found.sort();
    found
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn looking_at_a_bare_root_finds_little_and_makes_nothing() {
    let root = bare();
    let before = tree(root.dir.path());
    for args in [
        &["list"][..],
        &["list", "--archived"],
        &["list", "--state", "failed"],
        &["status"],
        &["audit", "--verify"],
        &["show", "first"],
        &["explain", "first"],
        &["chain", "first"],
        &["metrics"],
        &["artifacts", "list"],
        &["artifacts", "verify"],
        &["archive", "--dry-run"],
        &[
            "prune",
            "--completed",
            "1d",
            "--failed",
            "1d",
            "--logs",
            "1d",
            "--dry-run",
        ],
        &["check"],
        &["check", "--deep"],
    ] {
        let output = root.run(args);
        let told = said(&output);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {told}");
        assert!(!told.contains("os error"), "{args:?}: {told}");
        assert_eq!(tree(root.dir.path()), before, "{args:?}");
    }
    let listed = said(&root.run(&["list"]));
    assert!(listed.contains("first"), "{listed}");
    let verified = root.run(&["audit", "--verify", "--json"]);
    let verdict: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!(
        (&verdict["sound"], &verdict["lines"]),
        (&json!(true), &json!(0))
    );
    let waited = root.run(&["wait", "first", "--timeout", "10ms"]);
    assert_eq!(waited.status.code(), Some(124), "{}", said(&waited));
    let unknown = said(&root.run(&["audit", "first"]));
    assert!(
        unknown.contains("has no handoff with the id first"),
        "{unknown}"
    );
}

#[test]
fn what_is_packed_is_waited_for_where_its_folder_is_gone() {
    let root = Root::new();
    root.put("completed", "done", 4, &super::completed());
    root.run(&["archive"]);
    let packed = root.run(&["wait", "done"]);
    assert_eq!(packed.status.code(), Some(0), "{}", said(&packed));
    for folder in ["in-progress", "waiting", "completed", "failed", "control"] {
        fs::remove_dir(root.path("handoffs").join(folder)).unwrap_or_default();
    }
    assert!(!root.path("handoffs/completed").exists());
    let waited = root.run(&["wait", "done", "--timeout", "10s"]);
    assert_eq!(waited.status.code(), Some(0), "{}", said(&waited));
    assert_eq!(waited.stdout, packed.stdout);
    assert!(!root.path("handoffs/completed").exists(), "it only looks");
}

#[test]
fn what_is_dropped_can_be_cancelled_before_a_daemon_has_run() {
    let root = bare();
    let told = root.see(&["cancel", "first"]);
    assert!(
        told.contains("the next one carries out the command"),
        "{told}"
    );
    let commands = fs::read_dir(root.path("handoffs/control")).unwrap();
    assert_eq!(commands.count(), 1);
}

#[test]
fn a_root_where_nothing_could_be_made_is_found_without_trying() {
    let root = bare();
    fs::write(root.path("audit"), "in the way").unwrap();
    let before = tree(root.dir.path());
    let output = root.run(&["check"]);
    let told = said(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("audit: Not a directory"), "{told}");
    assert_eq!(tree(root.dir.path()), before);
}
