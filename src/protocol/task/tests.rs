//! States as documents: what is kept, what is refused, what a change looks like.

use serde_json::json;

use super::*;
use crate::protocol::json::parse;

/// Every field of the format, with strangers at each level and numbers that are easily lost.
const WHOLE: &str = r#"{
  "task_id": "TASK-7", "task_title": "Log in", "phase": "testing", "previous_phase": 2,
  "phase_started_at": "2026-01-09T10:00:00.123456",
  "artifacts": [{"path": "src/a.rs", "artifact_type": "code", "content_hash": "ab", "size_bytes": 12, "lines": 1.50}],
  "context_summary": "so far", "estimate": 1e400,
  "decisions_made": [{"decision": "d", "rationale": "r", "timestamp": "2026-01-09T10:00:00Z", "agent": "a", "alternatives": ["x"], "cost": 12345678901234567890123}],
  "blocking_issues": [{"issue": "i", "severity": "high", "suggested_action": "s", "requires_human": true, "ticket": {"n": 1.0}}],
  "warnings": ["w"], "quality_gates_passed": ["p"], "quality_gates_failed": ["f"],
  "quality_gate_results": {"f": {"reason": "no"}}, "source_agent": "s", "target_agent": "t",
  "handoff_timestamp": "2026-01-09T10:00:00Z", "version": 3, "applied": ["x#1"], "mine": [1, {"b": 2}]
}"#;

fn state(text: &str) -> Result<TaskState, StateError> {
    match parse(text).unwrap() {
        Value::Object(map) => TaskState::from_document(map),
        other => panic!("{other}"),
    }
}

fn errors(text: &str) -> Vec<String> {
    match state(text).unwrap_err() {
        StateError::Invalid(errors) => errors.iter().map(|error| error.field.clone()).collect(),
        StateError::NewerFormat { found } => panic!("format {found}"),
    }
}

#[test]
fn every_field_is_read_and_nothing_is_rewritten() {
    let whole = state(WHOLE).unwrap();
    assert_eq!((whole.task().as_str(), whole.version()), ("TASK-7", 3));
    assert_eq!(whole.title(), "Log in");
    assert_eq!(whole.phase().unwrap().name(), "testing");
    assert_eq!(whole.previous_phase().unwrap().name(), "2");
    let artifact = whole.artifacts().next().unwrap();
    assert_eq!((artifact.path(), artifact.kind()), ("src/a.rs", "source"));
    assert_eq!(artifact.size_bytes(), Some(12));
    let decision = whole.decisions().next().unwrap();
    assert_eq!((decision.what(), decision.why()), ("d", "r"));
    let issue = whole.issues().next().unwrap();
    assert_eq!(issue.severity(), Severity::High);
    assert!(issue.requires_human());
    assert_eq!(whole.gate_reason("f"), Some("no"));
    assert_eq!(whole.applied().collect::<Vec<_>>(), ["x#1"]);
    let mut shown = whole.into_document();
    assert_eq!(shown.shift_remove("format"), Some(json!(1)));
    assert_eq!(
        Value::Object(shown).to_string(),
        parse(WHOLE).unwrap().to_string()
    );
}

#[test]
fn little_is_required() {
    assert!(state(r#"{"task_id": "x", "version": 1}"#).is_ok());
    assert!(state(r#"{"task_id": "x", "version": 1, "phase": null, "artifacts": null}"#).is_ok());
    assert_eq!(errors("{}"), ["task_id", "version"]);
}

#[test]
fn what_is_wrong_is_named_all_at_once() {
    let wrong = r#"{"task_id": "../x", "version": 0, "phase": 1.5, "warnings": "w",
      "handoff_timestamp": "yesterday", "task_title": 3, "quality_gate_results": [],
      "artifacts": [{"path": ""}, {"path": "p", "size_bytes": -1}, 7],
      "decisions_made": [{"rationale": 1}], "blocking_issues": [{"issue": "i", "severity": "awful",
      "requires_human": "yes"}]}"#;
    let mut found = errors(wrong);
    found.sort();
    assert_eq!(
        found,
        [
            "artifacts[0].path",
            "artifacts[1].size_bytes",
            "artifacts[2]",
            "blocking_issues[0].requires_human",
            "blocking_issues[0].severity",
            "decisions_made[0].decision",
            "decisions_made[0].rationale",
            "handoff_timestamp",
            "phase",
            "quality_gate_results",
            "task_id",
            "task_title",
            "version",
            "warnings",
        ]
    );
    for version in ["1.0", "-1", "\"1\"", "18446744073709551616"] {
        let text = format!(r#"{{"task_id": "x", "version": {version}}}"#);
        assert_eq!(errors(&text), ["version"], "{version}");
    }
}

#[test]
fn current_is_no_task() {
    assert_eq!(TaskId::parse("current"), Err(TaskIdError::Current));
    assert!(TaskId::parse("current.x").is_ok());
    for bad in ["", ".x", "a/b", "a b", "x~2", &"x".repeat(201)] {
        assert!(TaskId::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_newer_format_is_refused_before_anything_else() {
    for newer in ["2", "99", "99999999999999999999999"] {
        let text = format!(r#"{{"format": {newer}, "version": "v2-3"}}"#);
        let found = newer.to_owned();
        assert_eq!(state(&text).unwrap_err(), StateError::NewerFormat { found });
    }
    for wrong in ["0", "\"2\"", "1.5", "-1", "[]"] {
        let text = format!(r#"{{"task_id": "x", "version": 1, "format": {wrong}}}"#);
        assert_eq!(errors(&text), ["format"], "{wrong}");
    }
}

#[test]
fn a_change_counts_what_came_and_names_what_differs() {
    let before = state(WHOLE).unwrap();
    let mut after = before.clone();
    after.append("artifacts", [json!({"path": "b"}), json!({"path": "c"})]);
    after.set("phase", "reviewing");
    after.set("extra", true);
    after.raise_version();
    let seen = change(Some(&before), &after, Wall(0));
    assert_eq!(seen.version, 4);
    assert_eq!(
        (seen.phase, seen.from_phase),
        (json!("reviewing"), Some(json!("testing")))
    );
    assert_eq!(
        seen.delta,
        Counts {
            artifacts_added: 2,
            decisions_made: 0,
            blocking_issues: 1
        }
    );
    assert_eq!(seen.changed, ["phase", "artifacts", "extra"]);
    let first = change(None, &before, Wall(0));
    assert_eq!((first.from_phase, first.delta.decisions_made), (None, 1));
}
