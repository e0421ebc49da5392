//! When a handoff starts: times, dependencies, priorities, limits, rates and holds.

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, outcomes, text, wait_until, with};

fn after(ids: &[&str]) -> Value {
    with(orders("mark ran"), json!({ "depends_on": ids }))
}

/// All of them fail without a run, and one at least is told of the circle; who comes to it
/// later may only see that the one before it failed.
fn circle_failed(root: &Root, ids: &[&str]) {
    let mut named = false;
    for id in ids {
        let (record, code) = root.failed(id);
        assert_eq!(code, "DEPENDENCY_MISSING", "{id}");
        named |= text(&record["error"]["message"]).contains("circle");
        assert_eq!(record["handoffd"]["attempts"], json!([]));
    }
    assert!(named, "nobody says that it is a circle");
}

#[test]
fn nothing_starts_before_its_time() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let soon = chrono::Utc::now() + chrono::Duration::milliseconds(1500);
    let request = with(orders("exit 0"), json!({ "not_before": soon.to_rfc3339() }));
    root.drop_request("later", &request);
    let parked = root.record("waiting", "later");
    assert_eq!(parked["waiting"]["on"], "time");
    let record = root.completed("later");
    let started = chrono::DateTime::parse_from_rfc3339(&text(&record["started_at"])).unwrap();
    assert!(started.timestamp_millis() >= soon.timestamp_millis());
    let past = with(
        orders("exit 0"),
        json!({ "not_before": "2001-01-01T00:00:00" }),
    );
    root.drop_request("past", &past);
    root.completed("past");
}

#[test]
fn a_dependent_waits_for_all_and_then_runs() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("b", &after(&["a", "not-yet"]));
    let parked = root.record("waiting", "b");
    assert_eq!(parked["waiting"]["on"], "dependency");
    assert_eq!(parked["waiting"]["ids"], json!(["a", "not-yet"]));
    root.drop_request("a", &orders("exit 0"));
    root.completed("a");
    assert_eq!(root.states_of("b"), ["waiting"]);
    root.drop_request("not-yet", &orders("exit 0"));
    root.completed("b");
    root.drop_request("c", &after(&["a", "b"]));
    root.completed("c");
}

#[test]
fn a_failed_dependency_fails_its_dependents_at_once() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("c", &after(&["b"]));
    root.drop_request("b", &after(&["a"]));
    root.record("waiting", "b");
    root.record("waiting", "c");
    root.drop_request("a", &orders("exit 64"));
    for (id, culprit) in [("b", "a"), ("c", "b")] {
        let (record, code) = root.failed(id);
        assert_eq!(code, "DEPENDENCY_MISSING");
        assert!(
            text(&record["error"]["message"]).contains(&format!("its dependency {culprit} failed"))
        );
        assert_eq!(record["handoffd"]["attempts"], json!([]));
        assert_eq!(record["retry_available"], true, "once {culprit} is mended");
    }
    root.drop_request("d", &after(&["a"]));
    assert_eq!(
        root.failed("d").1,
        "DEPENDENCY_MISSING",
        "failed long before"
    );
}

#[test]
fn a_dependency_that_never_comes_is_waited_for_only_so_long() {
    let root = Root::with("defaults.dependency_wait = '700ms'");
    let daemon = Daemon::start(&root);
    root.drop_request("x", &after(&["ghost"]));
    root.record("waiting", "x");
    let (record, code) = root.failed("x");
    assert_eq!(code, "DEPENDENCY_MISSING");
    assert!(text(&record["error"]["message"]).contains("ghost"));
    // One that exists but takes its time is not missing.
    root.drop_request("slow", &orders("mark up; await go"));
    root.mark("slow.up");
    root.drop_request("y", &after(&["slow"]));
    root.drop_request("z", &after(&["ghost"]));
    root.failed("z");
    assert_eq!(root.states_of("y"), ["waiting"]);
    daemon.kill();
    let _daemon = Daemon::start(&root);
    root.allow("go");
    root.completed("y");
}

#[test]
fn circles_fail_at_once_and_as_a_whole() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("self", &after(&["self"]));
    let (record, _) = root.failed("self");
    assert!(text(&record["error"]["message"]).contains("depends_on"));
    root.drop_request("a", &after(&["b"]));
    root.drop_request("b", &after(&["a"]));
    circle_failed(&root, &["a", "b"]);
    root.drop_request("p", &after(&["q"]));
    root.drop_request("q", &after(&["r"]));
    root.drop_request("r", &after(&["p"]));
    circle_failed(&root, &["p", "q", "r"]);
    root.assert_works("fine");
}

#[test]
fn a_circle_that_was_dropped_while_nobody_watched_fails_too() {
    let root = Root::new();
    for (id, on) in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "c")] {
        root.drop_request(id, &after(&[on]));
    }
    let _daemon = Daemon::start(&root);
    circle_failed(&root, &["a", "b", "c"]);
    assert_eq!(root.failed("d").1, "DEPENDENCY_MISSING");
}

#[test]
fn urgent_ones_go_first() {
    let root = Root::with("daemon.max_concurrent = 1");
    let _daemon = Daemon::start(&root);
    root.drop_request("first", &orders("mark up; await go"));
    root.mark("first.up");
    let sh = "echo $HANDOFF_ID >>$HANDOFF_ROOT/marks/order";
    for (id, priority) in [
        ("d", "low"),
        ("c", "normal"),
        ("b", "high"),
        ("a", "critical"),
    ] {
        root.drop_request(id, &with(orders(sh), json!({ "priority": priority })));
    }
    // The queue is known to be whole once the last of it was seen: a refusal comes after it.
    root.drop_request("last", &json!({ "target": { "agent_id": "@nobody" } }));
    root.failed("last");
    root.allow("go");
    for id in ["a", "b", "c", "d"] {
        root.completed(id);
    }
    assert_eq!(root.mark("order"), "a\nb\nc\nd\n");
}

#[test]
fn a_specialists_limit_holds_it_back_and_nobody_else() {
    let root = Root::with(
        "specialists.'@one'.command = ['sh', '-c', 'cd marks; mkdir busy || touch overlap; \
         sleep 0.1; rmdir busy']\nspecialists.'@one'.max_concurrent = 1\ndaemon.max_concurrent = 8",
    );
    let _daemon = Daemon::start(&root);
    let ids: Vec<String> = (0..6).map(|n| format!("one-{n}")).collect();
    for id in &ids {
        root.drop_request(id, &json!({ "target": { "agent_id": "one" } }));
    }
    root.assert_works("other");
    for id in &ids {
        root.completed(id);
    }
    assert!(!root.path("marks/overlap").exists());
}

#[test]
fn a_rate_spaces_starts_out_also_over_a_restart() {
    let root =
        Root::with("specialists.'@rare'.command = ['true']\nspecialists.'@rare'.rate = '2/min'");
    let daemon = Daemon::start(&root);
    for n in 0..4 {
        root.drop_request(
            &format!("r{n}"),
            &json!({ "target": { "agent_id": "rare" } }),
        );
    }
    wait_until("two starts", || {
        (root.names("handoffs/completed").len() == 2).then_some(())
    });
    root.assert_works("other");
    daemon.kill();
    let _daemon = Daemon::start(&root);
    root.assert_works("another");
    let rare = |name: &String| name.starts_with('r');
    let done = root.names("handoffs/completed").into_iter().filter(rare);
    assert_eq!(done.count(), 2, "the other two have to wait their minute");
}

#[test]
fn a_hold_stops_the_specialist_and_is_no_attempt_spent() {
    let root = Root::with("defaults.retry.max_retries = 0");
    let daemon = Daemon::start(&root);
    let sh = "if [ $HANDOFF_ATTEMPT = 1 ]; then mark held; \
              printf '{\"retry_after_seconds\": 4, \"summary\": \"quota\"}'; exit 1; fi";
    root.drop_request("held", &orders(sh));
    let parked = root.record("waiting", "held");
    assert_eq!(parked["waiting"]["on"], "time");
    assert!(text(&parked["waiting"]["reason"]).contains("quota"));
    let until = text(&parked["waiting"]["until"]);
    // The record stands there a moment before the daemon knows that it does.
    wait_until("the daemon holds the specialist back", || {
        let log = root.log();
        let mut lines = log
            .lines()
            .filter(|line| line.contains(r#"handoff_id="held""#));
        lines.any(|line| !line.contains("started")).then_some(())
    });
    root.drop_request("other", &orders("mark ran"));
    let told = root.cli(&["explain", "other"]);
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(
        told.contains("To continue now: handoffd retry held"),
        "{told}"
    );
    daemon.kill();
    let _daemon = Daemon::start(&root);
    let started = |record: &Value| text(&record["started_at"]);
    let other = root.completed("other");
    assert!(
        started(&other) >= until,
        "{} before {until}",
        started(&other)
    );
    let record = root.completed("held");
    assert!(started(&record) >= until);
    assert_eq!(outcomes(&record), ["held", "completed"]);
}
