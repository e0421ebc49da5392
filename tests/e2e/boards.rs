//! The boards in `context/`: what they show, and that nothing they lose is lost.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, wait_until, with};

const PHASES: &str = "context/phase-status.json";
const CURRENT: &str = "context/state/current.json";

fn work(sh: &str, project: &str, phase: u32) -> Value {
    let told = json!({
        "source": { "agent_id": "@boss" }, "target": { "agent_id": "@fake", "phase": phase },
        "context": { "project_id": project },
    });
    with(orders(sh), told)
}

fn read(root: &Root, path: &str) -> Option<Value> {
    serde_json::from_slice(&fs::read(root.path(path)).ok()?).ok()
}

/// Waits until a phase is shown this way.
fn phase(root: &Root, project: &str, phase: &str, status: &str, id: &str) -> Value {
    wait_until(
        &format!("{project}/{phase} shown as {status} of {id}"),
        || {
            let shown = read(root, PHASES)?;
            let shown = &shown["projects"][project]["phases"][phase];
            (shown["status"] == status && shown["handoff_id"] == id).then(|| shown.clone())
        },
    )
}

/// Waits until a handoff is listed this way, and only once.
fn listed(root: &Root, id: &str, status: &str) -> Value {
    wait_until(&format!("{id} listed as {status}"), || {
        let shown = read(root, CURRENT)?;
        let of_id = |it: &&Value| it["id"] == id;
        let found: Vec<&Value> = shown["handoffs"].as_array()?.iter().filter(of_id).collect();
        assert!(found.len() < 2, "{id} is listed twice");
        let found = *found.first()?;
        (found["status"] == status).then(|| found.clone())
    })
}

#[test]
fn both_show_where_everything_stands() {
    let root = Root::with("defaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    root.drop_request("a", &work("mark up; await go", "p1", 13));
    let shown = phase(&root, "p1", "13", "in_progress", "a");
    assert_eq!(shown["agent"], "@fake");
    assert!(shown["started_at"].is_string());
    let entry = listed(&root, "a", "in_progress");
    assert_eq!(
        (&entry["from"], &entry["to"]),
        (&json!("@boss"), &json!("@fake"))
    );
    root.drop_request("b", &work("exit 1", "p1", 14));
    root.drop_request("c", &work("exit 0", "p2", 13));
    root.drop_request(
        "d",
        &with(work("exit 0", "p2", 14), json!({ "depends_on": ["never"] })),
    );
    let failed = phase(&root, "p1", "14", "failed", "b");
    assert_eq!(failed["error"], "PROCESSING_ERROR");
    assert!(failed["failed_at"].is_string());
    phase(&root, "p2", "13", "completed", "c");
    assert_eq!(
        phase(&root, "p2", "14", "waiting", "d")["waiting_on"],
        "dependency"
    );
    root.allow("go");
    let ended = phase(&root, "p1", "13", "completed", "a");
    let record = root.completed("a");
    for key in ["started_at", "completed_at"] {
        assert_eq!(ended[key], record[key], "{key}");
    }
    for (id, status) in [
        ("a", "completed"),
        ("b", "failed"),
        ("c", "completed"),
        ("d", "waiting"),
    ] {
        listed(&root, id, status);
    }
    // The other dialects too.
    let package = json!({ "handoff": {
        "from": { "agent": "spec" }, "to": { "agent": "fake", "phase": "design" },
        "context": { "summary": "Twelve stories", "project_id": "p3" },
    } });
    root.drop_request("package", &package);
    phase(&root, "p3", "design", "completed", "package");
    let entry = listed(&root, "package", "completed");
    assert_eq!(
        (&entry["from"], &entry["to"]),
        (&json!("spec"), &json!("fake"))
    );
    let report = json!({ "agent": "dev", "status": "needs_review", "phase": "build",
                         "summary": "Three tiles", "handoff": { "context": "Look at the tiles" } });
    root.drop_request("report", &report);
    assert_eq!(
        phase(&root, "default", "build", "waiting", "report")["waiting_on"],
        "human"
    );
}

#[test]
fn a_dropped_report_shows_the_phase_that_it_completed() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let report = |phase: &str, next: &str, agent: Value| {
        json!({
            "agent": "architect", "status": "complete", "phase": phase,
            "summary": "Designed the dashboard as compound components",
            "handoff": { "next_phase": next, "next_agent": agent, "context": "Three widgets" },
            "input": { "data": { "sh": "mark up; await go" } },
        })
    };
    // One that hands on: its own phase is completed, the next one is the next agent's.
    root.drop_request(
        "design",
        &report("architecture", "implementation", json!("fake")),
    );
    phase(&root, "default", "implementation", "in_progress", "design");
    let done = phase(&root, "default", "architecture", "completed", "design");
    assert_eq!(done["agent"], "@architect");
    assert!(done["completed_at"].is_string(), "{done:#}");
    // One that ends its work, and one that a person has to look at.
    root.drop_request("tests", &report("testing", "complete", Value::Null));
    phase(&root, "default", "testing", "completed", "tests");
    assert_eq!(listed(&root, "tests", "completed")["phase"], "testing");
    let shown = read(&root, PHASES).unwrap();
    assert_eq!(shown["projects"]["default"]["phases"].get("complete"), None);
    // A crash and a lost board change nothing of it.
    daemon.kill();
    fs::remove_file(root.path(PHASES)).unwrap();
    let _daemon = Daemon::start(&root);
    phase(&root, "default", "architecture", "completed", "design");
    phase(&root, "default", "testing", "completed", "tests");
    root.allow("go");
    phase(&root, "default", "implementation", "completed", "design");
    phase(&root, "default", "architecture", "completed", "design");
}

#[test]
fn what_is_deleted_or_broken_under_a_running_daemon_comes_back() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("a", &work("exit 0", "p", 1));
    phase(&root, "p", "1", "completed", "a");
    listed(&root, "a", "completed");
    fs::remove_file(root.path(PHASES)).unwrap();
    fs::remove_file(root.path(CURRENT)).unwrap();
    phase(&root, "p", "1", "completed", "a");
    listed(&root, "a", "completed");
    fs::write(root.path(PHASES), "{\"projects\":").unwrap();
    fs::write(root.path(CURRENT), "").unwrap();
    phase(&root, "p", "1", "completed", "a");
    listed(&root, "a", "completed");
    root.remove_folder("context");
    phase(&root, "p", "1", "completed", "a");
    listed(&root, "a", "completed");
}

#[test]
fn a_link_in_the_place_of_their_folder_is_not_followed() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let elsewhere = tempfile::tempdir().unwrap();
    root.drop_request("before", &work("exit 0", "p", 1));
    phase(&root, "p", "1", "completed", "before");
    // The daemon may make the folder again in between.
    wait_until("a link in its place", || {
        root.remove_folder("context/state");
        let made = std::os::unix::fs::symlink(elsewhere.path(), root.path("context/state"));
        made.ok()
    });
    let result = r#"echo '{"status": "complete", "decisions": []}'"#;
    let task = json!({ "context": { "task_id": "T", "project_id": "p" } });
    root.drop_request("during", &with(orders(result), task));
    let during = root.completed("during");
    let warned = during["warnings"].to_string();
    assert!(warned.contains("context/state"), "{warned}");
    root.drop_request("after", &work("exit 0", "p", 2));
    phase(&root, "p", "2", "completed", "after");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    fs::remove_file(root.path("context/state")).unwrap();
    root.drop_request("mended", &work("exit 0", "p", 3));
    listed(&root, "mended", "completed");
}

#[test]
fn after_a_crash_they_are_right_whatever_is_left_of_them() {
    for lost in ["nothing", "one", "both", "torn", "format"] {
        let root = Root::with("defaults.retry.max_retries = 0");
        let daemon = Daemon::start(&root);
        root.drop_request("old", &work("exit 0", "p", 1));
        root.drop_request("long", &work("mark up; await go", "p", 2));
        phase(&root, "p", "1", "completed", "old");
        phase(&root, "p", "2", "in_progress", "long");
        // The last batch dies with the daemon.
        root.drop_request("new", &work("exit 1", "p", 1));
        root.drop_request("other", &work("exit 0", "q", 1));
        root.failed("new");
        root.completed("other");
        daemon.kill();
        match lost {
            "one" => fs::remove_file(root.path(CURRENT)).unwrap(),
            "both" => fs::remove_dir_all(root.path("context")).unwrap(),
            "torn" => fs::write(root.path(PHASES), "{\"format\": 1, \"proj").unwrap(),
            "format" => fs::write(root.path(PHASES), "{\"format\": 1, \"projects\": 7}").unwrap(),
            _ => {}
        }
        let _daemon = Daemon::start(&root);
        phase(&root, "p", "1", "failed", "new");
        phase(&root, "q", "1", "completed", "other");
        phase(&root, "p", "2", "in_progress", "long");
        for (id, status) in [
            ("old", "completed"),
            ("new", "failed"),
            ("other", "completed"),
            ("long", "in_progress"),
        ] {
            listed(&root, id, status);
        }
        root.allow("go");
        phase(&root, "p", "2", "completed", "long");
        listed(&root, "long", "completed");
    }
}
