//! Reports and packages on their way: what a report sets in motion, and that a document stays
//! what it was, over waits and when it comes again.

use std::fs;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::common::{Daemon, Root, outcomes, text, with};
use crate::dialects::{assert_kept, read};

#[test]
fn what_the_daemon_writes_over_is_kept_beside_it() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let displaced = json!({
        "status": "whatever", "output": {"mine": 1.0}, "validation": [1e300], "metadata": 7,
        "warnings": "mine", "errors": null, "next_steps": {"a": 1}, "result": "old",
        "started_at": "never", "completed_at": 3, "acknowledgment": "mine too",
        "execution_time_seconds": 12_345_678_901_234_567_890_123_f64,
    });
    let request = with(
        json!({ "target": { "agent_id": "@fake" }, "input": { "data": {
            "sh": "echo '{\"output\": 1, \"metadata\": 2, \"warnings\": [], \"errors\": [], \"next_steps\": []}'"
        } } }),
        displaced.clone(),
    );
    root.drop_request("x", &request);
    let record = root.completed("x");
    assert_kept(&request, &record);
    assert_eq!(record["status"], "completed");
    for key in ["status", "output", "validation", "result", "acknowledgment"] {
        assert_eq!(
            record["handoffd"]["submitted"][key], displaced[key],
            "{key}"
        );
    }
}

/// As a person would: the record goes back to where it came from.
fn resubmit(root: &Root, id: &str) {
    fs::rename(
        root.state("failed", id),
        root.pending(&format!("{id}.json")),
    )
    .unwrap();
}

#[test]
fn a_resubmission_is_read_in_its_own_dialect_again() {
    let root = Root::with("defaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    let sh = "mark ran; [ $HANDOFF_ATTEMPT -gt 1 ] || exit 65";
    let package = json!({ "sh": sh, "handoff": {
        "from": { "agent": "a" }, "to": { "agent": "fake" }, "priority": "high",
        "context": { "summary": "Two tables and an index" },
    } });
    let report = json!({ "sh": sh, "status": "complete", "phase": "design", "handoff": {
        "next_agent": "@fake", "next_phase": "build", "context": "Two tables and an index",
    } });
    let blocked = read("dialects", "report-blocked.json");
    let all = [
        ("package", &package),
        ("report", &report),
        ("blocked", &blocked),
    ];
    for (id, document) in all {
        root.drop_request(id, document);
        let (record, _) = root.failed(id);
        assert_kept(document, &record);
        resubmit(&root, id);
    }
    for (id, document) in all {
        let record = match id {
            "blocked" => root.record_that("failed", id, |record| {
                record["handoffd"]["previous"].is_array()
            }),
            _ => root.completed(id),
        };
        assert_kept(document, &record);
        assert_eq!(record["handoffd"]["previous"].as_array().unwrap().len(), 1);
        match id {
            "blocked" => assert_eq!(record["error"]["code"], "BLOCKED"),
            _ => assert_eq!(outcomes(&record), ["failed", "completed"]),
        }
    }
    let submitted = &root.completed("report")["handoffd"]["submitted"];
    assert_eq!(submitted["status"], "complete", "the producer's, not ours");
}

#[test]
fn a_report_acts_as_the_result_that_it_is() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let report = |status: &str, handoff: Value| {
        json!({ "agent": "dev", "status": status, "phase": "build", "sh": "mark ran",
                "summary": "Three tiles with 12 tests", "handoff": handoff })
    };
    let next = json!({ "next_agent": "@fake", "context": "Test each tile" });
    let nobody = json!({ "next_agent": null, "context": "Test each tile" });
    root.drop_request("on", &report("complete", next.clone()));
    root.drop_request("end", &report("complete", nobody.clone()));
    root.drop_request("review", &report("needs_review", nobody));
    root.drop_request(
        "person",
        &report(
            "complete",
            json!({
                "next_agent": "human", "context": "Look at it",
            }),
        ),
    );
    let unknown = json!({ "next_agent": "@nobody", "context": "Test each tile" });
    root.drop_request("unknown", &report("complete", unknown));
    root.completed("on");
    root.mark("on.ran");
    let ended = root.completed("end");
    assert_eq!(outcomes(&ended).len(), 0);
    assert_eq!(ended["result"]["status"], "complete");
    assert_eq!(ended["result"]["handoff"]["context"], "Test each tile");
    assert_eq!(ended["result"]["acknowledgment"], Value::Null);
    assert_eq!(ended["validation"]["status"], "unchecked");
    for id in ["review", "person"] {
        assert_eq!(root.record("waiting", id)["waiting"]["on"], "human");
    }
    assert_eq!(root.failed("unknown").1, "UNKNOWN_AGENT");
    daemon.kill();
    let _daemon = Daemon::start(&root);
    root.assert_works("good");
    for id in ["review", "person"] {
        assert_eq!(root.states_of(id), ["waiting"]);
        assert!(!root.path(&format!("marks/{id}.ran")).exists());
    }
    assert!(!root.path("marks/end.ran").exists());
}

#[test]
fn what_waits_first_is_still_what_it_was_afterwards() {
    let root = Root::with("specialists.dev.command = ['sh', '-c', 'touch marks/dev']");
    let _daemon = Daemon::start(&root);
    let report = |status: &str| {
        let mut report = read("dialects", "report-blocked.json");
        report["agent"] = "dev".into();
        report["status"] = status.into();
        report
    };
    let person = json!({ "target": { "agent_id": "human" } });
    let all = [
        ("end", report("complete"), "completed", ""),
        ("block", report("blocked"), "failed", "BLOCKED"),
        ("review", report("needs_review"), "waiting", "human"),
        ("person", person, "waiting", "human"),
    ];
    for (id, document, ..) in &all {
        let after = json!({ "depends_on": ["first"] });
        root.drop_request(&format!("{id}-after"), &with(document.clone(), after));
        let soon = SystemTime::now() + Duration::from_millis(1500);
        let soon = humantime::format_rfc3339_millis(soon).to_string();
        let later = json!({ "not_before": soon });
        root.drop_request(&format!("{id}-later"), &with(document.clone(), later));
    }
    for (id, ..) in &all {
        for (when, on) in [("after", "dependency"), ("later", "time")] {
            let waits = |record: &Value| record["waiting"]["on"] == on;
            root.record_that("waiting", &format!("{id}-{when}"), waits);
        }
    }
    root.drop_request("first", &json!({ "target": { "agent_id": "@fake" } }));
    for (id, document, state, what) in &all {
        for when in ["after", "later"] {
            let id = format!("{id}-{when}");
            let record = root.record_that(state, &id, |record| {
                record["waiting"]["on"] == *what || record["waiting"].is_null()
            });
            if *state == "failed" {
                assert_eq!(record["error"]["code"], *what, "{id}");
            }
            assert_eq!(outcomes(&record).len(), 0, "{id}");
            assert_eq!(record["acknowledgment"]["received"], true, "{id}");
            assert_kept(document, &record);
        }
    }
    assert!(
        !root.path("marks/dev").exists(),
        "a report is no order to its writer"
    );
    root.assert_works("good");
}

#[test]
fn a_report_that_breaks_its_rules_is_acknowledged_with_all_of_them() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let blockers = |id: &str, handoff: Value, more: Value| {
        let report = json!({ "status": "complete", "agent": "@dev", "handoff": handoff });
        root.drop_request(id, &with(report, more));
        let (record, code) = root.failed(id);
        assert_eq!(code, "SCHEMA_VALIDATION_FAILED");
        let said = &record["acknowledgment"];
        assert_eq!(
            (&said["received"], &said["from"]),
            (&json!(true), &json!("@dev"))
        );
        assert_eq!(said["understood"], "partial");
        assert_eq!(said["action"], "request_clarification");
        let blockers = said["blockers"].as_array().unwrap();
        let field = |it: &Value| text(it).split_once(": ").unwrap().0.to_owned();
        blockers.iter().map(field).collect::<Vec<_>>()
    };
    let nx = json!({ "next_agent": "nx" });
    let said = json!({ "phase": "d", "summary": "s" });
    assert_eq!(blockers("one", nx.clone(), said), ["handoff.context"]);
    assert_eq!(
        blockers("all", nx, json!({})),
        ["phase", "summary", "handoff.context"]
    );
}
