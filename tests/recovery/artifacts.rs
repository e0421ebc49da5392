//! Artifacts and verify commands that a crash caught on their way.

use std::fs;

use serde_json::{Value, json};

use crate::root::{Root, SPECIALIST, decided, running};

const REGISTRY: &str = "artifacts/registry.jsonl";

/// A root with an artifact in its place.
fn furnished() -> Root {
    let root = Root::new();
    fs::create_dir(root.path("artifacts")).unwrap();
    root.put("artifacts/one.json", "1\n");
    root.put("artifacts/two.json", "2\n");
    root
}

/// A record that is decided as completed, with two artifacts.
fn delivered() -> Value {
    let artifact = |id: &str, sha256: &str| {
        json!({ "artifact_id": id, "path": format!("artifacts/{id}.json"), "size_bytes": 2,
                "sha256": sha256.repeat(64) })
    };
    let artifacts = json!([artifact("one", "1"), artifact("two", "2")]);
    let mut record = decided("completed");
    record["completed_at"] = "2026-01-01T00:00:01.000Z".into();
    record["output"] = json!({ "artifact_id": "one", "artifacts": artifacts });
    record["handoffd"]["lifted"] = json!(["output"]);
    record
}

/// The ids in the registry whose lines are whole.
fn registered(root: &Root) -> Vec<String> {
    let text = fs::read_to_string(root.path(REGISTRY)).unwrap();
    let whole = |line: &str| serde_json::from_str::<Value>(line).ok();
    text.lines()
        .filter_map(whole)
        .map(|line| line["artifact_id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn row_26_artifacts_of_a_decided_record_are_registered_before_it_is_moved() {
    let line = json!({
        "artifact_id": "one", "path": "artifacts/one.json", "sha256": "1".repeat(64),
        "size_bytes": 2, "handoff_id": "x", "created_at": "2026-01-01T00:00:01.000Z",
    })
    .to_string();
    for before in [
        None,
        Some(format!("{line}\n")),
        Some(line[..40].to_owned()),
        Some(line),
    ] {
        let root = furnished();
        if let Some(before) = &before {
            root.put(REGISTRY, before);
        }
        root.put("handoffs/in-progress/x.json", &delivered().to_string());
        root.recover();
        root.expect_completed("x", 0);
        assert_eq!(registered(&root), ["one", "two"], "{before:?}");
    }
}

#[test]
fn row_27_what_is_registered_is_not_registered_again() {
    let root = furnished();
    root.put("handoffs/in-progress/x.json", &delivered().to_string());
    root.recover();
    let lines = fs::read(root.path(REGISTRY)).unwrap();
    fs::rename(root.state("completed", "x"), root.state("in-progress", "x")).unwrap();
    root.recover();
    root.expect_completed("x", 0);
    assert_eq!(fs::read(root.path(REGISTRY)).unwrap(), lines);
}

/// An attempt of another boot that left a whole result, and what it delivers.
fn whole_result(root: &Root) {
    let mut record = running("another boot");
    record["expected_output"] = json!({ "destination": "artifacts/{handoff_id}-{timestamp}.json" });
    record["handoffd"]["destination"] = "artifacts/x-1.json".into();
    root.put("handoffs/in-progress/x.json", &record.to_string());
    let result = json!({ "status": "complete", "artifact": { "a": 1 } });
    root.put(".handoffd/run/x.1.result", &result.to_string());
}

#[test]
fn row_28_an_artifact_without_a_decision_is_judged_again_and_the_same() {
    for written in [None, Some("{\n  \"a\": 1\n}\n"), Some("{\"a")] {
        let root = furnished();
        if let Some(written) = written {
            root.put("artifacts/x-1.json", written);
        }
        whole_result(&root);
        root.recover();
        let record = root.expect_completed("x", 0);
        assert_eq!(record["output"]["artifact_path"], "artifacts/x-1.json");
        let bytes = fs::read(root.path("artifacts/x-1.json")).unwrap();
        assert_eq!(bytes, b"{\n  \"a\": 1\n}\n", "{written:?}");
        assert_eq!(registered(&root), ["x-1"]);
    }
}

#[test]
fn row_28_an_artifact_of_a_lost_attempt_is_the_handoff_s_own() {
    let root = furnished();
    whole_result(&root);
    fs::remove_file(root.path(".handoffd/run/x.1.result")).unwrap();
    root.put("artifacts/x-1.json", "half");
    let script = format!("{SPECIALIST}\nprintf whole >\"$HANDOFF_ARTIFACT\"\n");
    root.put("do.sh", &script);
    root.recover();
    let record = root.expect_completed("x", 1);
    assert_eq!(record["output"]["artifact_path"], "artifacts/x-1.json");
    let text = fs::read_to_string(root.path("artifacts/x-1.json")).unwrap();
    assert_eq!(text, "whole");
    assert_eq!(registered(&root), ["x-1"]);
}

#[test]
fn row_31_a_verify_command_that_never_began_is_asked_and_the_work_is_not_run_again() {
    for stale in [false, true] {
        let root = furnished();
        whole_result(&root);
        if stale {
            root.put(".handoffd/run/x~verify.1.stdin", "{\"half");
        }
        let config =
            "[specialists.a]\ncommand = [\"sh\", \"do.sh\"]\nverify = [\"sh\", \"check.sh\"]\n";
        root.put("handoffd.toml", config);
        let check = "cat >seen.json; echo asked >>checks; [ -e artifacts/x-1.json ]\n";
        root.put("check.sh", check);
        root.recover();
        let record = root.expect_completed("x", 0);
        assert_eq!(record["validation"]["status"], "passed");
        let checks = fs::read_to_string(root.path("checks")).unwrap();
        assert_eq!(checks, "asked\n");
        let seen = fs::read_to_string(root.path("seen.json")).unwrap();
        assert!(serde_json::from_str::<Value>(&seen).is_ok(), "{seen}");
        assert_eq!(registered(&root), ["x-1"]);
        let left = fs::read_dir(root.path(".handoffd/run")).unwrap().flatten();
        let left: Vec<_> = left.map(|it| it.file_name()).collect();
        let verify = |name: &std::ffi::OsString| name.to_string_lossy().contains("verify");
        assert!(!left.iter().any(verify), "{left:?}");
    }
}
