//! What people and machines are shown of a root that works.

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, wait_until, with};

fn said(root: &Root, args: &[&str]) -> String {
    let output = root.cli(args);
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn as_json(root: &Root, args: &[&str]) -> Value {
    let output = root.cli(&[args, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The keys of an explanation, in order.
fn keys(explained: &Value) -> Vec<&str> {
    let keys = explained.as_object().unwrap().keys();
    keys.map(String::as_str).collect()
}

const ALWAYS: [&str; 4] = ["id", "state", "waker", "sentences"];

#[test]
fn a_full_slot_is_explained_and_counted_with_its_limit() {
    let root = Root::with("specialists.'@fake'.max_concurrent = 1");
    let _daemon = Daemon::start(&root);
    root.drop_request("first", &orders("mark up; await go; exit 0"));
    root.mark("first.up");
    root.drop_request("second", &orders("exit 0"));
    root.drop_request("third", &orders("exit 0"));
    let held = wait_until("both are held", || {
        let held = as_json(&root, &["explain", "third"]);
        (held["position"] == 2).then_some(held)
    });
    assert_eq!(held["state"], "pending");
    assert_eq!(held["waiting_on"], "slots");
    assert_eq!(held["limit"], json!({"name": "max_concurrent", "value": 1}));
    assert_eq!(held["waker"], "queue");
    assert!(held["sentences"][0].as_str().unwrap().contains("third"));
    let running = as_json(&root, &["explain", "first"]);
    assert_eq!(running["waker"], "process");
    assert!(running["until"].as_str().unwrap().ends_with('Z'));
    let status = as_json(&root, &["status"]);
    assert_eq!(status["waiting_on"], json!({"slots": 2}));
    assert!(said(&root, &["status"]).contains("2 for a slot"));
    root.allow("go");
    root.completed("third");
    let over = as_json(&root, &["explain", "third"]);
    assert_eq!(keys(&over), ALWAYS);
    assert_eq!(over["waker"], Value::Null);
}

#[test]
fn all_slots_of_the_daemon_are_a_limit_too() {
    let root = Root::with("daemon.max_concurrent = 1\nspecialists.other.command = ['true']");
    let _daemon = Daemon::start(&root);
    root.drop_request("first", &orders("mark up; await go; exit 0"));
    root.mark("first.up");
    root.drop_request("second", &json!({"target": {"agent_id": "other"}}));
    let held = as_json(&root, &["explain", "second"]);
    assert_eq!(held["waiting_on"], "slots");
    assert_eq!(held["limit"], json!({"name": "max_concurrent", "value": 1}));
    root.allow("go");
    root.completed("second");
}

#[test]
fn a_rate_and_a_hold_name_when_they_end() {
    let root = Root::with(
        "specialists.'@fake'.rate = '1/h'\n\
         specialists.quota.command = ['echo', '{\"retry_after_seconds\": 3000}']",
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("first", &orders("exit 0"));
    root.completed("first");
    root.drop_request("second", &orders("exit 0"));
    let quota = json!({"target": {"agent_id": "quota"}});
    root.drop_request("held", &quota);
    root.record("waiting", "held");
    // The daemon knows of the hold a moment after it is written.
    wait_until("the daemon knows", || {
        root.log()
            .contains("waiting handoff_id=\"held\"")
            .then_some(())
    });
    root.drop_request("behind", &quota);
    for (id, word) in [("second", "rate"), ("behind", "hold")] {
        let explained = as_json(&root, &["explain", id]);
        assert_eq!(explained["waiting_on"], word, "{explained}");
        assert!(explained["until"].is_string(), "{explained}");
    }
    let held = as_json(&root, &["explain", "held"]);
    assert_eq!(
        (&held["waiting_on"], &held["waker"]),
        (&json!("time"), &json!("timer"))
    );
    assert!(said(&root, &["explain", "second"]).contains("the next may start at"));
    assert_eq!(
        as_json(&root, &["status"])["waiting_on"],
        json!({"time": 1, "rate": 1, "hold": 1})
    );
}

#[test]
fn what_waits_says_for_what_in_one_word() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let later = json!({"not_before": "2099-01-01T00:00:00Z"});
    root.drop_request("time", &with(orders("exit 0"), later));
    let needs = json!({"depends_on": ["time"]});
    root.drop_request("dependency", &with(orders("exit 0"), needs));
    root.drop_request("human", &json!({"target": {"agent_id": "human"}}));
    for (id, waker) in [
        ("time", "timer"),
        ("dependency", "dependency"),
        ("human", "human"),
    ] {
        root.record("waiting", id);
        let told = as_json(&root, &["explain", id]);
        assert_eq!(
            (&told["waiting_on"], &told["waker"]),
            (&json!(id), &json!(waker))
        );
        assert_eq!(told["state"], "waiting");
    }
    let until = as_json(&root, &["explain", "time"])["until"].clone();
    assert_eq!(until, "2099-01-01T00:00:00.000Z");
    assert_eq!(
        as_json(&root, &["status"])["waiting_on"],
        json!({"time": 1, "dependency": 1, "human": 1})
    );
}
