//! Gates one by one: what passes, and what the reason says where it doesn't.

use serde_json::{Value, json};

use super::gates::*;
use crate::config::{Gate, Phases};
use crate::protocol::task::{Phase, TaskState};

fn state(over: &Value) -> TaskState {
    let mut doc = json!({
        "task_id": "t", "task_title": "T", "phase": "implementing", "source_agent": "a",
        "target_agent": "b", "version": 1,
    });
    let (Value::Object(doc), Value::Object(over)) = (&mut doc, over) else {
        panic!()
    };
    doc.extend(over.clone());
    TaskState::from_document(doc.clone()).unwrap()
}

fn phases() -> Phases {
    Phases {
        order: Vec::new(),
        requires: [(
            "testing".to_owned(),
            vec!["code".to_owned(), "test".to_owned()],
        )]
        .into(),
    }
}

fn hash(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn entry(path: &str, kind: &str, hash: &str) -> Value {
    json!({"path": path, "artifact_type": kind, "content_hash": hash})
}

#[test]
fn the_pre_handoff_gate_asks_for_what_the_next_agent_needs() {
    assert!(pre_handoff(&state(&json!({})), 0, true).passed);
    for (over, word) in [
        (json!({"task_title": " "}), "task_title"),
        (json!({"phase": null}), "phase"),
        (json!({"source_agent": ""}), "source_agent"),
        (json!({"target_agent": null}), "target_agent"),
        (
            json!({"decisions_made": [{"decision": "d", "rationale": "r"},
                {"decision": "JWT", "agent": "@coder"}, {"decision": "x", "rationale": "  "}]}),
            "the decision \"JWT\" of @coder has no rationale (and 1 more)",
        ),
    ] {
        let result = pre_handoff(&state(&over), 0, true);
        assert!(!result.passed && result.reason.contains(word), "{result:?}");
    }
    let end = json!({"phase": "completed", "target_agent": ""});
    assert!(pre_handoff(&state(&end), 0, true).passed);
    let open = json!({"phase": "testing", "target_agent": ""});
    assert!(pre_handoff(&state(&open), 0, false).passed);
}

#[test]
fn what_others_decided_without_a_reason_is_not_asked_for() {
    let state = state(&json!({"decisions_made": [{"decision": "old"}, {"decision": "new"}]}));
    for (known, passed) in [(0, false), (1, false), (2, true)] {
        assert_eq!(pre_handoff(&state, known, true).passed, passed, "{known}");
    }
    let named = without_reason(&state, 1).unwrap();
    assert_eq!(named, "the decision \"new\" has no rationale");
}

#[test]
fn a_phase_is_entered_only_with_what_it_requires() {
    let (one, two) = (hash('1'), hash('2'));
    let testing = Phase::named("testing").unwrap();
    let check = |artifacts: Value, found: &[(&str, Result<&str, &str>)]| {
        let state = state(&json!({ "artifacts": artifacts }));
        let found: Found = found
            .iter()
            .map(|(path, what)| {
                let what = what.map(str::to_owned).map_err(str::to_owned);
                ((*path).to_owned(), what)
            })
            .collect();
        phase_gate(&state, &testing, &phases(), &found).unwrap()
    };
    let both = [("s", Ok(one.as_str())), ("t", Ok(two.as_str()))];
    let good = json!([entry("s", "source", &one), entry("t", "test", &two)]);
    assert!(check(good.clone(), &both).passed);
    // A later entry for a path replaces what was said before, for better and for worse.
    let mended = json!([
        entry("s", "code", &two),
        entry("t", "test", &two),
        entry("s", "code", &one)
    ]);
    assert!(check(mended, &both).passed);
    let spoiled = json!([
        entry("s", "code", &one),
        entry("t", "test", &two),
        entry("s", "code", &two)
    ]);
    assert!(
        check(spoiled, &both)
            .reason
            .contains("does not match its content_hash")
    );
    // One good artifact of a type is enough.
    let more = json!([
        entry("q", "test", &one),
        entry("s", "source", &one),
        entry("t", "test", &two)
    ]);
    assert!(check(more, &both).passed);
    for (artifacts, found, word) in [
        (
            json!([]),
            &both[..],
            "no source artifact exists; no test artifact exists",
        ),
        (
            json!([entry("s", "source", &one)]),
            &both[..],
            "no test artifact",
        ),
        (good.clone(), &both[..1], "t was not checked"),
        (
            good,
            &[both[0], ("t", Err("it is not there"))][..],
            "t: it is not there",
        ),
        (
            json!([entry("s", "source", "abc"), entry("t", "test", &two)]),
            &both[..],
            "not a SHA-256",
        ),
    ] {
        let result = check(artifacts, found);
        assert!(!result.passed && result.reason.contains(word), "{result:?}");
    }
    let free = Phase::named("reviewing").unwrap();
    assert!(phase_gate(&state(&json!({})), &free, &phases(), &Found::new()).is_none());
}

#[test]
fn only_entering_a_phase_asks_for_anything() {
    let state = state(&json!({"artifacts": [
        entry("d", "doc", ""), entry("t", "test", ""), entry("s", "code", ""), entry("t", "test", "")
    ]}));
    let gate = |name: &str, phase: &str| Gate {
        name: name.to_owned(),
        phases: vec![phase.to_owned()],
        command: vec!["true".to_owned()],
    };
    let gates = [
        gate("unit", "testing"),
        gate("lint", "reviewing"),
        gate("three", "3"),
    ];
    let asked = |phase: Value| {
        let asked = Asked::of(&state, Phase::of(&phase).as_ref(), &phases(), &gates);
        let names: Vec<String> = asked.commands.into_iter().map(|gate| gate.name).collect();
        (asked.paths, names)
    };
    let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        asked(json!("testing")),
        (owned(&["s", "t"]), owned(&["unit"]))
    );
    assert_eq!(asked(json!("reviewing")), (vec![], owned(&["lint"])));
    assert_eq!(asked(json!(3)), (vec![], owned(&["three"])));
    assert_eq!(asked(json!(null)), (vec![], vec![]));
}

#[test]
fn a_human_is_asked_until_one_has_answered() {
    let open = state(&json!({"blocking_issues": [
        {"issue": "slow", "severity": "low"},
        {"issue": "which\nlicence", "severity": "high", "requires_human": true},
        {"issue": "price", "requires_human": true},
    ]}));
    let waits = human_gate(&open, None).unwrap();
    assert!(!waits.passed);
    assert!(
        waits.reason.ends_with("which licence (and 1 more)"),
        "{}",
        waits.reason
    );
    let passed = human_gate(&open, Some("Ann")).unwrap();
    assert!(passed.passed && passed.reason.contains("Ann"));
    let quiet = state(&json!({"blocking_issues": [{"issue": "x", "severity": "blocker"}]}));
    assert!(human_gate(&quiet, None).is_none());
}

#[test]
fn claims_are_read_in_the_usual_forms() {
    let names = |value: Value| {
        claimed(&value)
            .into_iter()
            .map(|claim| {
                assert!(claim.claimed);
                (claim.name, claim.passed)
            })
            .collect::<Vec<_>>()
    };
    let want = [("unit".to_owned(), true), ("lint".to_owned(), false)];
    for form in [
        json!({"passed": ["unit"], "failed": ["lint"]}),
        json!([{"name": "unit", "passed": true}, {"gate": "lint", "status": "failed"}, {"name": "?"}]),
        json!({"unit": true, "lint": {"status": "fail", "reason": "x"}, "odd": 3}),
    ] {
        assert_eq!(names(form.clone()), want, "{form}");
    }
    assert!(names(json!("all good")).is_empty());
}

#[test]
fn a_gate_stands_in_one_list_with_its_last_reason() {
    let mut state = state(
        &json!({"quality_gates_passed": ["unit", "old"], "quality_gates_failed": ["lint"],
        "quality_gate_results": {"old": {"reason": "kept"}}}),
    );
    let results = [
        GateResult::new("unit", false, "3 failed"),
        GateResult::new("lint", true, "clean"),
    ];
    record(&mut state, &results, "now");
    assert_eq!(state.gates_passed().collect::<Vec<_>>(), ["old", "lint"]);
    assert_eq!(state.gates_failed().collect::<Vec<_>>(), ["unit"]);
    assert_eq!(state.gate_reason("unit"), Some("3 failed"));
    assert_eq!(state.gate_reason("old"), Some("kept"));
}
