//! Artifacts of dropped reports: checked, measured and registered like those of an attempt.

use std::fs::{self, File};

use serde_json::{Value, json};

use crate::common::{Daemon, Root, text, wait_until, with};

const DESIGN: &str = "docs/design.md";

fn report(more: Value) -> Value {
    let report = json!({
        "status": "complete", "phase": "architecture", "summary": "Designed 3 tiles and a store",
        "artifacts": [DESIGN], "handoff": { "context": "Test each tile", "next_phase": "complete" },
    });
    with(report, more)
}

fn handed_on(sh: &str) -> Value {
    report(json!({ "sh": sh, "handoff": {
        "next_agent": "@fake", "next_phase": "implementation", "context": "Build the tiles",
    } }))
}

fn furnished(config: &str) -> Root {
    let root = Root::with(config);
    fs::create_dir(root.path("docs")).unwrap();
    fs::write(root.path(DESIGN), "# Design\n").unwrap();
    root
}

/// The registry's lines of one handoff.
fn registered(root: &Root, id: &str) -> Vec<Value> {
    let lines = fs::read_to_string(root.path("artifacts/registry.jsonl")).unwrap_or_default();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter(|line: &Value| line["handoff_id"] == id)
        .collect()
}

fn warnings(record: &Value) -> String {
    record["acknowledgment"]["warnings"].to_string()
}

#[test]
fn artifacts_of_a_report_are_registered_with_its_outcome() {
    let root = furnished("");
    let _daemon = Daemon::start(&root);
    root.drop_request("done", &report(json!({})));
    root.drop_request("review", &report(json!({ "status": "needs_review" })));
    let to = json!({ "handoff": { "next_agent": "human", "context": "Which one?" } });
    root.drop_request("person", &report(to));
    for id in ["review", "person"] {
        let waiting = root.record("waiting", id);
        assert_eq!(waiting["output"]["artifact_path"], DESIGN, "{id}");
        assert!(registered(&root, id).is_empty(), "{id} is not decided");
        root.command(
            &format!("{id}.json"),
            &json!({ "action": "approve", "handoff_id": id }),
        );
    }
    for id in ["done", "review", "person"] {
        let record = root.completed(id);
        let artifact = &record["output"]["artifacts"][0];
        assert_eq!(artifact["path"], DESIGN, "{id}: {record:#}");
        assert_eq!(artifact["size_bytes"], 9, "{id}");
        let lines = registered(&root, id);
        assert_eq!(lines.len(), 1, "{id}");
        for key in ["artifact_id", "sha256", "size_bytes"] {
            assert_eq!(lines[0][key], artifact[key], "{id}: {key}");
        }
    }
    let own =
        json!({ "output": { "mine": 1.0 }, "validation": { "tests": 12, "status": "passed" } });
    root.drop_request("own", &report(own.clone()));
    let record = root.completed("own");
    for (key, value) in own.as_object().unwrap() {
        assert_eq!(record["handoffd"]["submitted"][key], *value, "{key}");
    }
    assert_eq!(
        (
            &record["output"]["mine"],
            &record["output"]["artifact_path"]
        ),
        (&json!(1.0), &json!(DESIGN))
    );
    let validation = &record["validation"];
    assert_eq!(
        (
            &validation["status"],
            &validation["claimed"],
            &validation["tests"]
        ),
        (&json!("passed"), &json!("passed"), &json!(12))
    );
    let done = root.completed("done");
    assert_eq!(done["validation"]["status"], "passed");
    assert_eq!(warnings(&done), "null");
    // A blocked report delivers nothing.
    let blocked = json!({ "status": "blocked", "blocked_reason": "unknown", "attempted": ["a"],
                          "handoff": { "context": "c" } });
    root.drop_request("blocked", &report(blocked));
    let (record, code) = root.failed("blocked");
    assert_eq!(code, "BLOCKED");
    assert_eq!(record["output"], Value::Null);
    assert!(registered(&root, "blocked").is_empty());
    root.assert_audit_is_sound();
}

#[test]
fn who_goes_on_with_a_report_finds_its_artifacts_registered() {
    let root = furnished("");
    let _daemon = Daemon::start(&root);
    let look = "cp $HANDOFF_ROOT/artifacts/registry.jsonl $HANDOFF_ROOT/marks/$HANDOFF_ID.seen";
    root.drop_request("x", &handed_on(look));
    let gate = json!({ "gate": { "name": "look" } });
    root.drop_request("gated", &with(handed_on(look), gate));
    root.record("waiting", "gated");
    assert!(registered(&root, "gated").is_empty());
    root.command(
        "a.json",
        &json!({ "action": "approve", "handoff_id": "gated" }),
    );
    for id in ["x", "gated"] {
        let record = root.completed(id);
        let seen = root.mark(&format!("{id}.seen"));
        let lines = seen.lines().map(|line| serde_json::from_str(line).unwrap());
        let own: Vec<Value> = lines
            .filter(|line: &Value| line["handoff_id"] == id)
            .collect();
        assert_eq!(own.len(), 1, "before it began: {seen}");
        assert_eq!(own[0]["path"], DESIGN);
        assert_eq!(registered(&root, id), own);
        assert_eq!(
            warnings(&record),
            "null",
            "its own file is no news: {record:#}"
        );
    }
}

#[test]
fn an_artifact_that_is_missing_is_a_warning_and_to_the_letter_an_error() {
    for strict in [false, true] {
        let root = furnished(&format!("intake.strict = {strict}"));
        let _daemon = Daemon::start(&root);
        let missing = json!({ "artifacts": [DESIGN, "docs/none.md", { "type": "doc" }] });
        for (id, document) in [("end", report(json!({}))), ("on", handed_on("exit 0"))] {
            root.drop_request(id, &with(document, missing.clone()));
            if strict {
                let (record, _) = root.failed(id);
                let told = text(&record["error"]["message"]);
                assert!(told.contains("docs/none.md"), "{told}");
                assert!(registered(&root, id).is_empty());
                continue;
            }
            let told = warnings(&root.completed(id));
            assert!(told.contains("artifacts[1]: artifact docs/none.md does not exist"));
            assert!(told.contains("rule artifact-exists") && told.contains("rule artifact-path"));
            assert_eq!(told.matches("artifacts[").count(), 2, "{told}");
            assert_eq!(registered(&root, id).len(), 1);
        }
        if strict {
            root.drop_request("only", &report(json!({ "artifacts": ["docs/none.md"] })));
            assert_eq!(root.failed("only").1, "DEPENDENCY_MISSING");
        } else {
            let status = &root.completed("end")["validation"]["status"];
            assert_eq!(*status, "unchecked", "one of them was not there");
        }
    }
}

#[test]
fn paths_of_a_report_are_read_as_those_of_a_result() {
    let root = furnished("");
    let huge = File::create(root.path("docs/huge.bin")).unwrap();
    huge.set_len(3 << 40).unwrap();
    let _daemon = Daemon::start(&root);
    let whole = root.path(DESIGN).display().to_string();
    for (id, named) in [("dot", "./docs/design.md"), ("whole", whole.as_str())] {
        root.drop_request(id, &report(json!({ "artifacts": [named] })));
        let record = root.completed(id);
        assert_eq!(record["output"]["artifact_path"], DESIGN, "{id}");
        assert_eq!(warnings(&record), "null", "{id}");
    }
    for (id, named, why) in [
        ("folder", "docs/", "not registered"),
        ("url", "https://example.org/pull/7", "not registered"),
        ("huge", "docs/huge.bin", "max_artifact_size"),
        ("own", "handoffs/pending", "the daemon's own"),
    ] {
        root.drop_request(id, &report(json!({ "artifacts": [named] })));
        let record = root.completed(id);
        let told = warnings(&record);
        assert!(
            told.contains("artifacts[0]") && told.contains(why),
            "{told}"
        );
        assert_eq!(record["output"], Value::Null, "{id}");
    }
    for (id, named) in [("up", "../secret.md"), ("root", "/etc/passwd")] {
        root.drop_request(id, &report(json!({ "artifacts": [named] })));
        let (record, code) = root.failed(id);
        assert_eq!(code, "SCHEMA_VALIDATION_FAILED", "{id}");
        assert!(text(&record["error"]["message"]).contains(named));
    }
}

#[test]
fn a_report_brings_its_decisions_and_artifacts_to_its_task() {
    let root = furnished("");
    let _daemon = Daemon::start(&root);
    let brings = |task: &str| {
        json!({
            "context": { "task_id": task },
            "artifacts": [{ "path": DESIGN, "type": "doc" }, "docs/none.md"],
            "decisions": [{ "decision": "One store", "rationale": "it is small" }],
        })
    };
    let result = json!({ "status": "complete", "summary": "Built 3 tiles",
                         "decisions": [{ "decision": "Grid", "rationale": "fits" }] });
    let sh = format!("(cat $HANDOFF_FILE; echo) >$HANDOFF_ROOT/marks/seen; echo '{result}'");
    root.drop_request("on", &with(handed_on(&sh), brings("T")));
    root.drop_request("end", &with(report(json!({})), brings("U")));
    for (id, task, decided) in [
        ("on", "T", &["One store", "Grid"][..]),
        ("end", "U", &["One store"]),
    ] {
        root.completed(id);
        let state = fs::read(root.path(&format!("context/state/{task}.json"))).unwrap();
        let state: Value = serde_json::from_slice(&state).unwrap();
        let decisions = state["decisions_made"].as_array().unwrap();
        let decisions: Vec<String> = decisions.iter().map(|it| text(&it["decision"])).collect();
        assert_eq!(decisions, decided, "{id}");
        let artifacts = state["artifacts"].as_array().unwrap();
        assert_eq!(
            artifacts.len(),
            1,
            "what is not there is no artifact: {state:#}"
        );
        assert_eq!(artifacts[0]["size_bytes"], 9);
        assert_eq!(
            artifacts[0]["content_hash"],
            registered(&root, id)[0]["sha256"]
        );
    }
    let handed: Value = serde_json::from_str(&root.mark("seen")).unwrap();
    let command = &handed["handoff_command"];
    assert_eq!(command["state_delta"]["artifacts_added"], 1);
    assert_eq!(command["state_delta"]["decisions_made"], 1);
    let summary = text(&command["context_summary"]);
    assert!(summary.contains("9 bytes in total"), "{summary}");
}

#[test]
fn what_a_blocked_report_knows_is_in_its_task_once() {
    let root = furnished("routes.blocked.missing_requirements = 'human'");
    let daemon = Daemon::start(&root);
    let blocked = |reason: &str, task: &str| {
        report(json!({
            "agent": "fake", "status": "blocked", "blocked_reason": reason, "attempted": ["a"],
            "handoff": { "context": "Which provider?", "blockers": ["no provider"] },
            "context": { "task_id": task }, "sh": "exit 0",
            "decisions": [{ "decision": "One store", "rationale": "it is small" }],
            "blocking_issues": [{ "issue": "No provider", "severity": "high",
                                  "suggested_action": "Ask the owner" }],
        }))
    };
    let knows = |task: &str, issues: usize| {
        wait_until(&format!("the state of {task}"), || {
            let state = fs::read(root.path(&format!("context/state/{task}.json"))).ok()?;
            let state: Value = serde_json::from_slice(&state).ok()?;
            assert_eq!(state["decisions_made"].as_array()?.len(), 1, "{state:#}");
            assert_eq!(state["artifacts"].as_array()?.len(), 1, "{state:#}");
            (state["blocking_issues"].as_array()?.len() == issues).then_some(())
        });
    };
    root.drop_request("nobody", &blocked("unknown", "T"));
    root.drop_request("person", &blocked("missing_requirements", "U"));
    assert_eq!(root.failed("nobody").1, "BLOCKED");
    root.record("waiting", "person");
    knows("T", 1);
    knows("U", 1);
    daemon.kill();
    let _daemon = Daemon::start(&root);
    root.command(
        "a.json",
        &json!({ "action": "approve", "handoff_id": "person", "comment": "A" }),
    );
    root.completed("person");
    // The result that followed names no issue.
    knows("U", 0);
    // Where its author is no specialist here, the answer is what comes of it.
    let foreign = with(
        blocked("missing_requirements", "V"),
        json!({ "agent": "elsewhere" }),
    );
    root.drop_request("foreign", &foreign);
    root.record("waiting", "foreign");
    root.command(
        "b.json",
        &json!({ "action": "approve", "handoff_id": "foreign", "comment": "Take A" }),
    );
    assert_eq!(root.completed("foreign")["result"]["summary"], "Take A");
    knows("V", 0);
    root.assert_audit_is_sound();
}

#[test]
fn artifacts_of_reports_are_registered_once_whenever_the_daemon_dies() {
    const EACH: usize = 12;
    let root = furnished("daemon.max_concurrent = 4");
    let mut daemon = Daemon::start(&root);
    for n in 0..EACH {
        let document = if n % 2 == 0 {
            report(json!({}))
        } else {
            handed_on("exit 0")
        };
        root.drop_request(&format!("r{n}"), &document);
        if n % 3 == 2 {
            daemon.kill();
            daemon = Daemon::spawn(&root, |_| {});
        }
    }
    for n in 0..EACH {
        let id = format!("r{n}");
        root.completed(&id);
        assert_eq!(registered(&root, &id).len(), 1, "{id}");
    }
    assert!(root.names("handoffs/failed").is_empty());
    drop(daemon);
}
