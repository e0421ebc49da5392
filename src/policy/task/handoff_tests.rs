//! Handoffs as tables: what is laid on a state, what is refused, what is applied once.

use serde_json::{Map, Value, json};

use super::handoff::New;
use super::*;
use crate::clock::Wall;
use crate::config::{Context, Gate, Phases};
use crate::protocol::task::{Phase, TaskState};

const NOW: Wall = Wall(1_800_000_000_000);

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other}"),
    }
}

fn before() -> TaskState {
    TaskState::from_document(object(json!({
        "format": 1, "task_id": "T-1", "task_title": "Log in", "phase": "implementing",
        "previous_phase": "planning", "phase_started_at": "2026-01-01T00:00:00.000Z",
        "artifacts": [{"path": "plan.md", "artifact_type": "doc", "mine": 1}],
        "context_summary": "old", "decisions_made": [{"decision": "d0", "rationale": "r0", "extra": [1]}],
        "blocking_issues": [{"issue": "old", "severity": "low"}], "warnings": ["w0"],
        "quality_gates_passed": [], "quality_gates_failed": [], "quality_gate_results": {},
        "source_agent": "planner", "target_agent": "coder",
        "handoff_timestamp": "2026-01-01T00:00:00.000Z", "version": 4, "stranger": {"deep": 1},
    })))
    .unwrap()
}

fn delta(document: Value) -> Delta {
    let (delta, wrong) = Delta::read(&object(document), Some("coder"), NOW);
    assert_eq!(wrong, []);
    delta
}

fn new(before: &TaskState, delta: &Delta, key: Option<&str>) -> New {
    match draft(before, delta, key, &Phases::default(), NOW).unwrap() {
        Draft::New(new) => *new,
        Draft::Already { held } => panic!("already there, held: {held}"),
    }
}

fn settled(before: &TaskState, delta: &Delta, key: Option<&str>) -> Step {
    let new = new(before, delta, key);
    settle(
        &new,
        &Found::new(),
        Vec::new(),
        &Phases::default(),
        &[],
        NOW,
    )
}

fn handed_on(step: Step) -> TaskState {
    match step {
        Step::HandedOn(state) => state,
        other => panic!("{other:?}"),
    }
}

/// A whole handoff, with everything in it.
fn work() -> Delta {
    delta(json!({
        "to": "tester", "phase": "testing", "warnings": ["w1"],
        "artifacts": ["a.rs", {"path": "b.rs", "type": "code", "sha256": "ff", "size_bytes": 2}],
        "decisions": [{"decision": "JWT", "reason": "stateless", "alternatives": ["sessions"]}],
        "blocking_issues": [{"issue": "slow", "severity": "medium"}],
        "quality_gates": {"passed": ["unit"], "failed": ["human"]},
    }))
}

#[test]
fn exactly_the_delta_is_found_afterwards() {
    let old = before();
    let state = handed_on(settled(&old, &work(), Some("h#1")));
    let mut want = old.into_document();
    let at = NOW.to_string();
    for (key, value) in [
        ("phase", json!("testing")),
        ("previous_phase", json!("implementing")),
        ("phase_started_at", json!(at)),
        (
            "artifacts",
            json!([{"path": "plan.md", "artifact_type": "doc", "mine": 1}, {"path": "a.rs"},
                {"path": "b.rs", "size_bytes": 2, "artifact_type": "source", "content_hash": "ff"}]),
        ),
        (
            "context_summary",
            json!("Log in\nPhase: testing; artifacts: 3; decisions: 2\n- d0: r0\n- JWT: stateless"),
        ),
        (
            "decisions_made",
            json!([{"decision": "d0", "rationale": "r0", "extra": [1]},
                {"decision": "JWT", "alternatives": ["sessions"], "rationale": "stateless",
                 "timestamp": at, "agent": "coder"}]),
        ),
        (
            "blocking_issues",
            json!([{"issue": "slow", "severity": "medium", "suggested_action": "", "requires_human": false}]),
        ),
        ("warnings", json!(["w0", "w1"])),
        // What an agent says of a gate that is ours does not count.
        ("quality_gates_passed", json!(["unit", "pre-handoff"])),
        (
            "quality_gate_results",
            json!({"unit": {"status": "passed", "reason": "", "at": at, "claimed": true},
                "pre-handoff": {"status": "passed", "reason": "the task state has every required \
                 field", "at": at}}),
        ),
        ("source_agent", json!("coder")),
        ("target_agent", json!("tester")),
        ("handoff_timestamp", json!(at)),
        ("version", json!(5)),
        ("applied", json!(["h#1"])),
    ] {
        want.insert(key.to_owned(), value);
    }
    let (found, want) = (Value::Object(state.into_document()), Value::Object(want));
    assert_eq!(found, want);
    assert_eq!(found.to_string(), want.to_string(), "the order of the keys");
}

#[test]
fn what_is_not_brought_stays() {
    let state = handed_on(settled(&before(), &Delta::default(), None));
    let mut changed = Vec::new();
    for (key, value) in state.document() {
        if before().document().get(key) != Some(value) {
            changed.push(key.as_str());
        }
    }
    let want = ["context_summary", "handoff_timestamp", "version"];
    assert_eq!(changed, want);
    let none = handed_on(settled(
        &before(),
        &delta(json!({"blocking_issues": []})),
        None,
    ));
    assert_eq!(none.issues().len(), 0);
}

#[test]
fn the_same_outcome_is_applied_once() {
    let once = handed_on(settled(&before(), &work(), Some("h#1")));
    let again = draft(&once, &work(), Some("h#1"), &Phases::default(), NOW).unwrap();
    assert_eq!(again, Draft::Already { held: false });
    // The next attempt is another outcome.
    let next = handed_on(settled(&once, &work(), Some("h#2")));
    assert_eq!(next.applied().collect::<Vec<_>>(), ["h#1", "h#2"]);
    let mut state = next;
    for attempt in 0..300 {
        state = handed_on(settled(
            &state,
            &Delta::default(),
            Some(&format!("k#{attempt}")),
        ));
    }
    assert_eq!(state.applied().len(), crate::protocol::task::MAX_APPLIED);
    assert_eq!(state.applied().last(), Some("k#299"));
}

#[test]
fn a_question_to_a_human_holds_the_phase_and_its_answer_moves_it() {
    let mut asks = work();
    asks.blocking = Some(vec![object(
        json!({"issue": "which?", "requires_human": true}),
    )]);
    let step = settled(&before(), &asks, Some("h#1"));
    let Step::WaitsForHuman { state, reason } = step else {
        panic!("{step:?}")
    };
    assert!(reason.contains("which?"));
    assert_eq!(state.phase().unwrap().name(), "implementing");
    assert_eq!(state.target_agent(), "coder");
    assert_eq!((state.decisions().len(), state.issues().len()), (2, 1));
    assert_eq!(state.gates_failed().collect::<Vec<_>>(), ["human"]);
    assert_eq!(state.version(), 5);
    let again = draft(&state, &asks, Some("h#1"), &Phases::default(), NOW).unwrap();
    assert_eq!(again, Draft::Already { held: true });

    asks.approved_by = Some("Ann".to_owned());
    let state = handed_on(settled(&state, &asks, Some("h#1")));
    assert_eq!(state.phase().unwrap().name(), "testing");
    assert_eq!(state.target_agent(), "tester");
    assert_eq!(state.decisions().len(), 2, "not a second time");
    assert_eq!(state.applied().collect::<Vec<_>>(), ["h#1"]);
    assert!(state.gates_passed().any(|name| name == HUMAN));
    let again = draft(&state, &asks, Some("h#1"), &Phases::default(), NOW).unwrap();
    assert_eq!(again, Draft::Already { held: false });
}

#[test]
fn a_failed_gate_leaves_only_its_reason() {
    let gate = Gate {
        name: "unit".to_owned(),
        phases: vec!["testing".to_owned()],
        command: vec!["false".to_owned()],
    };
    let new = new(&before(), &work(), Some("h#1"));
    let gates = [gate];
    assert_eq!(new.asked(&Phases::default(), &gates).commands, gates);
    let said = vec![GateResult::new("unit", false, "exited with 1")];
    let step = settle(&new, &Found::new(), said, &Phases::default(), &gates, NOW);
    let Step::Failed { state, gates } = step else {
        panic!("{step:?}")
    };
    assert_eq!(gates.len(), 1);
    assert_eq!(state.gates_failed().collect::<Vec<_>>(), ["unit"]);
    assert_eq!(state.gate_reason("unit"), Some("exited with 1"));
    assert_eq!((state.version(), state.decisions().len()), (5, 1));
    assert_eq!(state.phase().unwrap().name(), "implementing");
    assert_eq!(
        state.applied().len(),
        0,
        "the next try is not the same outcome"
    );
}

#[test]
fn phases_move_as_the_order_allows() {
    let phases = Phases {
        order: ["planning", "implementing", "testing", "completed", "3"]
            .map(str::to_owned)
            .into(),
        ..Phases::default()
    };
    let try_move = |from: Value, to: Value| {
        let mut state = before();
        state.set("phase", from);
        let delta = Delta {
            phase: Phase::asked(&to),
            ..Delta::default()
        };
        draft(&state, &delta, None, &phases, NOW)
    };
    for (from, to) in [
        (json!("planning"), json!("implementing")),
        (json!("testing"), json!("complete")),
        (json!("testing"), json!("planning")),
        (json!("testing"), json!("testing")),
        (json!("completed"), json!(3)),
        (json!(null), json!("testing")),
        (json!("elsewhere"), json!("testing")),
    ] {
        assert!(try_move(from.clone(), to.clone()).is_ok(), "{from} to {to}");
    }
    let skipped = try_move(json!("planning"), json!("testing")).unwrap_err();
    assert!(
        skipped.to_string().contains("allowed are \"implementing\""),
        "{skipped}"
    );
    let unknown = try_move(json!("planning"), json!("elsewhere")).unwrap_err();
    assert!(
        unknown.to_string().contains("planning, implementing"),
        "{unknown}"
    );
    let free = Delta {
        phase: Phase::named("anything"),
        ..Delta::default()
    };
    assert!(draft(&before(), &free, None, &Phases::default(), NOW).is_ok());
}

#[test]
fn what_hands_nothing_on_need_not_be_complete() {
    let mut bare = before();
    bare.set("task_title", "");
    let mut adds = work();
    (adds.target, adds.phase, adds.hands_on) = (None, None, false);
    let state = handed_on(settled(&bare, &adds, Some("h#1")));
    assert_eq!(
        (state.decisions().len(), state.target_agent()),
        (2, "coder")
    );
    for hands_on in [
        Delta {
            hands_on: true,
            ..adds.clone()
        },
        Delta {
            target: Some("x".to_owned()),
            ..adds.clone()
        },
        Delta {
            phase: Phase::named("testing"),
            ..adds
        },
    ] {
        let step = settled(&bare, &hands_on, None);
        assert!(matches!(step, Step::Failed { .. }), "{step:?}");
    }
}

#[test]
fn a_result_may_move_the_phase_and_leave_open_who_is_next() {
    let mut nobody = before();
    nobody.set("target_agent", "");
    let mut moves = work();
    (moves.target, moves.hands_on) = (None, false);
    let state = handed_on(settled(&nobody, &moves, None));
    assert_eq!(state.phase().unwrap().name(), "testing");
    // Whoever hands on by a command does not leave it open.
    moves.hands_on = true;
    let step = settled(&nobody, &moves, None);
    assert!(matches!(step, Step::Failed { .. }), "{step:?}");
}

#[test]
fn one_is_judged_by_the_decisions_that_it_brings() {
    let mut bare = before();
    bare.append(
        "decisions_made",
        [json!({"decision": "sqlite", "agent": "one"})],
    );
    handed_on(settled(&bare, &work(), None));
    let mut brings = work();
    brings.decisions[0].shift_remove("rationale");
    let Step::Failed { gates, .. } = settled(&before(), &brings, None) else {
        panic!()
    };
    assert_eq!(
        gates[0].reason,
        "the decision \"JWT\" of coder has no rationale"
    );
}

#[test]
fn the_end_needs_no_next_agent() {
    let state = handed_on(settled(
        &before(),
        &delta(json!({"phase": "complete"})),
        None,
    ));
    assert!(state.phase().unwrap().is_completed());
    assert_eq!(state.target_agent(), "");
}

#[test]
fn a_new_state_begins_with_version_1() {
    let task = crate::protocol::task::TaskId::parse("n").unwrap();
    let blank = TaskState::begin(task, "New", NOW);
    let state = handed_on(settled(&blank, &work(), None));
    assert_eq!(state.version(), 1);
    assert_eq!(state.previous_phase(), None);
    TaskState::from_document(state.into_document()).unwrap();
}

#[test]
fn lists_are_mended_or_named() {
    let document = object(json!({
        "artifacts": [3, {"type": "x"}], "decisions": "none", "blocking_issues":
        ["broken build", {"issue": "odd", "severity": "awful"}], "phase": [],
    }));
    let (delta, wrong) = Delta::read(&document, None, NOW);
    let wrong: Vec<&str> = wrong.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(
        wrong,
        ["artifacts[0]", "artifacts[1].path", "decisions", "phase"]
    );
    let issues = delta.blocking.unwrap();
    assert_eq!(issues[0]["severity"], "blocker");
    assert_eq!(
        (&issues[1]["severity"], &issues[1]["severity_given"]),
        (&json!("blocker"), &json!("awful"))
    );
}

#[test]
fn a_result_says_what_is_next_and_nothing_more() {
    let result = object(json!({
        "status": "complete", "phase": "implementing", "warnings": ["w"], "approved_by": "me",
        "decisions": ["use tokens"], "from": "somebody else", "to": "nobody",
        "handoff": {"next_phase": "complete", "next_agent": "@tester"},
    }));
    let (delta, wrong) = Delta::of_result(&result, "coder", NOW);
    assert_eq!(wrong, []);
    assert_eq!(delta.phase, Phase::named("completed"));
    assert_eq!(delta.target.as_deref(), Some("@tester"));
    assert_eq!(delta.source.as_deref(), Some("coder"));
    assert_eq!(delta.decisions[0]["agent"], "coder");
    assert_eq!(delta.approved_by, None);
    assert_eq!(delta.blocking, Some(Vec::new()), "no key leaves no issue");
    assert!(delta.warnings.is_empty());
    let (plain, _) = Delta::of_result(&object(json!({"phase": "testing"})), "coder", NOW);
    assert_eq!((plain.phase, plain.target), (None, None));
}

#[test]
fn the_command_counts_what_came() {
    let state = handed_on(settled(&before(), &work(), None));
    let command = command(Some(&before()), &state, Limits::of(&Context::default()));
    assert_eq!(
        command["state_delta"],
        json!({"artifacts_added": 2, "decisions_made": 1, "blocking_issues": 1})
    );
    let keys: Vec<&String> = command.as_object().unwrap().keys().collect();
    let want = [
        "task_id",
        "target_agent",
        "phase",
        "state_delta",
        "context_summary",
        "state_file",
    ];
    assert_eq!(keys, want);
    assert_eq!(command["state_file"], "context/state/T-1.json");
    assert!(
        command["context_summary"]
            .as_str()
            .unwrap()
            .starts_with("Task: T-1 - Log in\n")
    );
}
