//! Forged outcomes: files that somebody else puts into `completed/` or `failed/` for a handoff that
//! runs, waits or ended otherwise. They are reported, left alone and never believed.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, text, wait_until, with};

fn json_of(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// The record as it stands in `from`, told as completed by somebody who knows the format.
fn forge(root: &Root, from: &str, id: &str) -> Value {
    let mut forged = root.record_in(from, id).unwrap();
    let now = forged["handoffd"]["attempts"][0]["started_at"].clone();
    let fields = forged.as_object_mut().unwrap();
    for gone in ["error", "waiting", "failed_at", "timestamp_failed"] {
        fields.remove(gone);
    }
    let over = json!({ "status": "completed", "completed_at": now, "timestamp_completed": now,
        "execution_time_seconds": 1.5, "output": { "text": "forged" } });
    let mut forged = with(forged, over);
    let revision = forged["handoffd"]["revision"].as_u64().unwrap();
    forged["handoffd"]["revision"] = (revision + 7).into();
    forged["handoffd"]["to"] = "completed".into();
    if let Some(attempts) = forged["handoffd"]["attempts"].as_array_mut() {
        for attempt in attempts {
            attempt["ended_at"] = now.clone();
            attempt["outcome"] = "completed".into();
        }
    }
    forged
}

fn listed(root: &Root, args: &[&str], id: &str) -> Vec<String> {
    let output = root.cli(&[&["list", "--json"], args].concat());
    let rows = String::from_utf8(output.stdout).unwrap();
    rows.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|row| row["id"] == id)
        .map(|row| text(&row["state"]))
        .collect()
}

/// All that looks at `x` sees it in this state, and nobody takes it for completed.
fn assert_seen(root: &Root, state: &str) {
    let waited = root.cli(&["wait", "x", "--timeout", "300ms"]);
    assert_eq!(waited.status.code(), Some(124), "{waited:?}");
    assert_eq!(
        json_of(&root.cli(&["show", "x", "--json"]))["status"],
        state
    );
    assert_eq!(listed(root, &[], "x"), [state]);
    assert_eq!(listed(root, &["--state", state], "x"), [state]);
    assert!(listed(root, &["--state", "completed"], "x").is_empty());
    assert!(listed(root, &["--limit", "5"], "x") == [state]);
    assert_eq!(
        json_of(&root.cli(&["explain", "x", "--json"]))["state"],
        state
    );
    let status = json_of(&root.cli(&["status", "--json"]));
    assert_eq!(status["counts"][state], 1, "{status:#}");
    assert_eq!(status["counts"]["completed"], 0, "{status:#}");
    let running = usize::from(state == "in_progress");
    assert_eq!(status["running"].as_array().unwrap().len(), running);
}

fn assert_reported(root: &Root) {
    wait_until("the forged file is reported", || {
        let told = root.problems();
        let wanted = ["handoffs/completed/ has files that the daemon did not put there: x.json"];
        wanted.iter().all(|it| told.contains(it)).then_some(())
    });
}

/// What `check --deep` says of the two files, with what to do.
fn breaches(root: &Root) -> Vec<(String, String)> {
    let checked = root.cli(&["check", "--deep", "--json"]);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    let told = json_of(&checked);
    let told = told["deep"]["breaches"].as_array().unwrap().iter();
    let told = told.filter(|it| it["invariant"] == "one_folder");
    told.map(|it| (text(&it["path"]), text(&it["do"])))
        .collect()
}

fn assert_deep_names_the_forged_file(root: &Root) {
    let told = breaches(root);
    let [(path, advice)] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert_eq!(path, "handoffs/completed/x.json");
    assert!(advice.contains("mv handoffs/completed/x.json "), "{advice}");
}

#[test]
fn a_forged_outcome_of_one_that_runs_is_never_believed() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request(
        "x",
        &orders("mark began; await go; echo '{\"output\": \"real\"}'"),
    );
    root.mark("x.began");
    let forged = forge(&root, "in-progress", "x");
    // As a stranger would write it, and as somebody would who knows the format.
    for forged in [json!({ "status": "completed", "output": "forged" }), forged] {
        fs::write(root.state("completed", "x"), forged.to_string()).unwrap();
        assert_reported(&root);
        assert_seen(&root, "in_progress");
        assert_deep_names_the_forged_file(&root);
    }
    root.allow("go");
    let waited = root.cli(&["wait", "x"]);
    assert_eq!(waited.status.code(), Some(0));
    assert_eq!(json_of(&waited)["output"], "real");
    assert_eq!(listed(&root, &[], "x"), ["completed"]);
    wait_until("it is reported no more", || {
        (root.problems() == "[]").then_some(())
    });
}

#[test]
fn a_forged_outcome_of_one_that_runs_is_reported_before_the_next_rescan() {
    let root = Root::with("daemon.rescan = '1h'");
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &orders("mark began; await go"));
    root.mark("x.began");
    fs::write(root.state("failed", "x"), "{}").unwrap();
    wait_until("it is reported", || {
        root.problems()
            .contains("handoffs/failed/ has files")
            .then_some(())
    });
    assert_seen(&root, "in_progress");
    fs::remove_file(root.state("failed", "x")).unwrap();
    root.allow("go");
    root.completed("x");
}

#[test]
fn a_forged_outcome_of_one_that_waits_is_never_believed() {
    let root = Root::with("defaults.retry.delay = '1h'");
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &orders("exit 1"));
    root.record("waiting", "x");
    let forged = forge(&root, "waiting", "x");
    fs::write(root.state("completed", "x"), forged.to_string()).unwrap();
    assert_reported(&root);
    assert_seen(&root, "waiting");
    assert_deep_names_the_forged_file(&root);
}

#[test]
fn of_two_outcomes_the_one_that_the_log_knows_is_believed() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    root.drop_request("x", &orders("exit 64"));
    root.failed("x");
    let later = with(orders("mark ran"), json!({ "depends_on": ["x"] }));
    let forged = forge(&root, "failed", "x");
    fs::write(root.state("completed", "x"), forged.to_string()).unwrap();
    assert_reported(&root);
    for round in 0..2 {
        let waited = root.cli(&["wait", "x"]);
        assert_eq!(waited.status.code(), Some(1));
        assert_eq!(json_of(&waited)["status"], "failed");
        assert_eq!(
            json_of(&root.cli(&["show", "x", "--json"]))["status"],
            "failed"
        );
        assert_eq!(listed(&root, &[], "x"), ["failed"]);
        assert!(listed(&root, &["--state", "completed"], "x").is_empty());
        assert_deep_names_the_forged_file(&root);
        // Who depends on it is not let go by a forged success.
        let id = format!("later{round}");
        root.drop_request(&id, &later);
        assert_eq!(root.failed(&id).1, "DEPENDENCY_MISSING");
    }
    // A retry works on the genuine one.
    let retried = root.cli(&["retry", "x"]);
    assert_eq!(retried.status.code(), Some(0), "{retried:?}");
    wait_until("it ran again", || {
        let record = root.record_in("failed", "x")?;
        (record["handoffd"]["attempts"].as_array()?.len() == 2).then_some(())
    });
    assert!(root.state("completed", "x").exists(), "it is left alone");
    drop(daemon);
}

#[test]
fn an_outcome_that_the_log_never_heard_of_is_believed_by_nobody() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &orders("exit 64"));
    root.failed("x");
    let forged = forge(&root, "failed", "x");
    fs::remove_file(root.state("failed", "x")).unwrap();
    fs::write(root.state("completed", "x"), forged.to_string()).unwrap();
    assert_reported(&root);
    for command in ["wait", "show"] {
        let said = root.cli(&[command, "x", "--json"]);
        assert_eq!(said.status.code(), Some(1), "{command}");
        assert_eq!(json_of(&said)["error"]["code"], "NO_RECORD", "{command}");
    }
    let explained = String::from_utf8(root.cli(&["explain", "x"]).stdout).unwrap();
    assert!(
        explained.contains("no line for this outcome"),
        "{explained}"
    );
    assert!(
        explained.contains("mv handoffs/completed/x.json"),
        "{explained}"
    );
}

#[test]
fn row_61_a_restart_does_not_believe_a_forged_outcome() {
    let root = Root::with("daemon.on_stop = 'detach'");
    let daemon = Daemon::start(&root);
    root.drop_request(
        "x",
        &orders("mark began; await go; echo '{\"output\": \"real\"}'"),
    );
    root.mark("x.began");
    wait_until("its line", || {
        (root.told("x", "started") == 1).then_some(())
    });
    daemon.kill();
    let forged = forge(&root, "in-progress", "x");
    fs::write(root.state("completed", "x"), forged.to_string()).unwrap();
    let _daemon = Daemon::start(&root);
    assert_reported(&root);
    assert_seen(&root, "in_progress");
    root.allow("go");
    let waited = root.cli(&["wait", "x"]);
    assert_eq!(waited.status.code(), Some(0));
    let record = json_of(&waited);
    assert_eq!(record["output"], "real");
    assert_eq!(record["handoffd"]["attempts"].as_array().unwrap().len(), 1);
}
