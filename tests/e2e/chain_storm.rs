//! Chains and `kill -9` together: every follow-up once, every parent woken once.

use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Daemon, Dice, Root, ask, child, children, outcomes, wait_until, with};

const KILLS: u64 = 12;
/// The handoffs of one chain: three steps, one helper, three sub-tasks.
const EACH: usize = 7;

const CONFIG: &str = "daemon.max_concurrent = 8\nroutes.blocked.unknown = '@guard'\n\
    workflows.w.steps = [{ phase = 'a', agent = '@a' }, { phase = 'b', agent = '@b' }, \
                         { phase = 'c', agent = '@c' }]";

/// Blocked until somebody has helped, however often it was started.
const STUCK: &str = r#"mark ran; if ! grep -q '"returns"'; then
echo '{"status": "blocked", "blocked_reason": "unknown", "phase": "b", "attempted": ["x"],
"handoff": {"context": "help"}}'; fi"#;

const BOSS: &str = r#"mark ran; if ! grep -q '"returns"'; then
echo '{"status": "delegate", "handoff": {"children": [{"agent": "@kid"}, {"agent": "@kid"},
{"agent": "@kid"}]}}'; fi"#;

/// How many chains at once: fewer than promised where the machine is busy.
fn chains() -> usize {
    let asked = std::env::var("E2E_CHAINS").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(30)
}

/// The outcomes of what began, without attempts that a kill forestalled.
fn begun(record: &Value) -> Vec<String> {
    let mut all = outcomes(record);
    all.retain(|outcome| outcome != "interrupted");
    all
}

#[test]
fn every_follow_up_is_made_once_and_every_parent_woken_once() {
    let mut dice = Dice::thrown();
    let ran = "mark ran";
    let team = [
        ("a", ran),
        ("b", STUCK),
        ("c", BOSS),
        ("guard", ran),
        ("kid", ran),
    ];
    let root = Root::team(CONFIG, &team);
    let (chains, all) = (chains(), chains() * EACH);
    let state = json!({ "workflow_state": { "name": "w" } });
    for n in 0..chains {
        root.drop_request(&format!("h{n}"), &with(ask("@a"), state.clone()));
    }
    let completed = || root.names("handoffs/completed").len();
    let mut daemon = Daemon::start(&root);
    for round in 0..KILLS {
        let share = usize::try_from(round).unwrap() * all / 14;
        wait_until("some progress", || (completed() >= share).then_some(()));
        dice.pause(Duration::from_millis(30));
        daemon.kill();
        daemon = Daemon::start(&root);
    }
    for n in 0..chains {
        let first = root.completed(&format!("h{n}"));
        let second = root.completed(&child(&first));
        assert_eq!(begun(&second), ["blocked", "completed"]);
        let ids = children(&second);
        assert_eq!(ids.len(), 2, "a helper and the next step: {second:#}");
        assert_eq!(second["handoffd"]["returns"].as_array().unwrap().len(), 1);
        let third = root.completed(&ids[1]);
        assert_eq!(begun(&third), ["delegated", "completed"]);
        assert_eq!(third["handoffd"]["returns"].as_array().unwrap().len(), 3);
        let kids = children(&third);
        for id in kids.iter().chain([&ids[0]]) {
            assert_eq!(begun(&root.completed(id)), ["completed"]);
            assert_eq!(root.mark(&format!("{id}.ran")).lines().count(), 1, "{id}");
        }
    }
    for folder in ["pending", "in-progress", "waiting", "failed"] {
        let left = root.names(&format!("handoffs/{folder}"));
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
    assert_eq!(completed(), all);
    assert_eq!(daemon.terminate(), Some(0));
    assert!(
        root.names(".handoffd/tmp").is_empty(),
        "{:?}",
        root.names(".handoffd/tmp")
    );
    root.assert_audit_is_sound();
}

#[test]
fn a_drain_works_off_whole_chains() {
    let ran = "mark ran";
    let team = [
        ("a", ran),
        ("b", STUCK),
        ("c", BOSS),
        ("guard", ran),
        ("kid", ran),
    ];
    let root = Root::team(CONFIG, &team);
    let state = json!({ "workflow_state": { "name": "w" } });
    for n in 0..10 {
        root.drop_request(&format!("h{n}"), &with(ask("@a"), state.clone()));
    }
    let drained = root.cli(&["run", "--drain"]);
    assert!(drained.status.success(), "{drained:?}");
    assert_eq!(root.names("handoffs/completed").len(), 10 * EACH);
}

#[test]
fn reports_questions_and_cancels_survive_it_too() {
    const MANY: usize = 24;
    let ran = "mark ran";
    let asks = r#"mark ran; if ! grep -q '"returns"'; then
        echo '{"status": "delegate", "handoff": {"children": [{"agent": "human"}]}}'; fi"#;
    let slow = r#"if ! grep -q '"returns"'; then
        echo '{"status": "delegate", "handoff": {"children": [{"agent": "@sleeper"},
        {"agent": "@sleeper"}]}}'; fi"#;
    let team = [
        ("dev", ran),
        ("guard", ran),
        ("asks", asks),
        ("slow", slow),
        ("sleeper", "sleep 600"),
    ];
    let root = Root::team(
        "daemon.max_concurrent = 64\nroutes.blocked.unknown = '@guard'",
        &team,
    );
    let report = json!({
        "agent": "@dev", "status": "blocked", "phase": "p", "blocked_reason": "unknown",
        "attempted": ["a"], "handoff": {"context": "c"},
    });
    for n in 0..MANY {
        root.drop_request(&format!("r{n}"), &report);
        root.drop_request(&format!("q{n}"), &ask("@asks"));
        if n < 8 {
            root.drop_request(&format!("c{n}"), &ask("@slow"));
        }
    }
    let mut daemon = Daemon::start(&root);
    for n in 0..MANY {
        // Each is answered or cancelled at whatever moment this is.
        let helped =
            |id: &str| root.record_that("waiting", id, |it| it["waiting"]["on"] == "handoff");
        let asked = child(&helped(&format!("q{n}")));
        root.waiting(&asked);
        root.answer("approve", &asked, json!({ "comment": "yes" }));
        if n < 8 {
            helped(&format!("c{n}"));
            let cancel = json!({ "action": "cancel", "handoff_id": format!("c{n}") });
            root.command(&format!("c{n}.json"), &cancel);
        }
        if n % 3 == 2 {
            daemon.kill();
            daemon = Daemon::start(&root);
        }
    }
    for n in 0..MANY {
        let helped = root.completed(&format!("r{n}"));
        assert_eq!(begun(&helped), ["completed"]);
        let guard = child(&helped);
        assert_eq!(root.mark(&format!("{guard}.ran")).lines().count(), 1);
        let answered = root.completed(&format!("q{n}"));
        assert_eq!(begun(&answered), ["delegated", "completed"]);
        let said = &answered["handoffd"]["returns"];
        assert_eq!(said[0]["result"]["summary"], "yes");
        assert_eq!(said.as_array().unwrap().len(), 1);
    }
    for n in 0..8 {
        let (record, code) = root.failed(&format!("c{n}"));
        assert_eq!(code, "CANCELLED");
        for kid in children(&record) {
            assert_eq!(root.failed(&kid).1, "CANCELLED", "{kid}");
        }
    }
    for folder in ["pending", "in-progress", "waiting"] {
        let left = root.names(&format!("handoffs/{folder}"));
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
    assert_eq!(root.names("handoffs/failed").len(), 24);
    assert_eq!(daemon.terminate(), Some(0));
    root.assert_audit_is_sound();
}
