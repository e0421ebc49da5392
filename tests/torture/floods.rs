//! Floods: thousands of commands, links of a chain, broken files and dependents at once. A request
//! that comes behind them starts while most of them are still to be dealt with.
//!
//! What counts is the order, not the time: machines differ. The daemon is stopped while a flood is
//! dropped, so that all of it is there when the daemon looks.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, wait_until, with};
use crate::report::times;

/// A rescan would find the flood in the order of the folder.
const RESCAN: &str = "daemon.rescan = '1h'";

/// How many come at once: fewer than inotify keeps events for, so that none is lost.
fn many(name: &str) -> usize {
    times(name, 3_000, 15_000)
}

/// Drops a flood of files and then a request, all at one moment as the daemon sees it.
fn drop_at_once(root: &Root, daemon: &Daemon, folder: &str, files: &[(String, Value)]) {
    let staging = root.path("staging");
    fs::create_dir_all(&staging).unwrap();
    let name = |id: &str| format!("{id}.json");
    for (id, document) in files {
        fs::write(staging.join(name(id)), document.to_string()).unwrap();
    }
    daemon.signal(Signal::STOP);
    for (id, _) in files {
        let path = root.path("handoffs").join(folder).join(name(id));
        fs::rename(staging.join(name(id)), path).unwrap();
    }
    root.drop_request("probe", &orders("exit 0"));
    daemon.signal(Signal::CONT);
}

/// How many files of a flood are still in this folder.
fn left(root: &Root, folder: &str) -> usize {
    let names = root.names(&format!("handoffs/{folder}"));
    let is_of_flood = |name: &&String| name.starts_with("n-");
    names.iter().filter(is_of_flood).count()
}

/// The request ends before half of the flood is dealt with.
fn assert_overtakes(root: &Root, folder: &str, all: usize) {
    root.completed("probe");
    let left = left(root, folder);
    assert!(left > all / 2, "{left} of {all} were left in {folder}/");
}

/// Waits for a number that only goes down, for as long as it does.
fn wait_for_all(mut left: impl FnMut() -> usize) {
    let mut before = left();
    while before > 0 {
        before = wait_until("fewer to be left", || {
            Some(left()).filter(|now| *now < before)
        });
    }
}

#[test]
fn a_request_behind_a_long_chain_does_not_wait_for_it() {
    let root = Root::with(RESCAN);
    let daemon = Daemon::start(&root);
    root.drop_request("n-0", &orders("await go"));
    root.record("in-progress", "n-0");
    let links = many("links");
    let chain: Vec<(String, Value)> = (1..=links)
        .map(|n| {
            let link = json!({ "depends_on": [format!("n-{}", n - 1)] });
            (format!("n-{n}"), with(orders("exit 0"), link))
        })
        .collect();
    drop_at_once(&root, &daemon, "pending", &chain);
    assert_overtakes(&root, "pending", links);
    wait_for_all(|| left(&root, "pending"));
    assert_eq!(left(&root, "waiting"), links);
    root.allow("go");
    root.completed("n-3");
}

#[test]
fn a_request_behind_many_refused_commands_does_not_wait_for_them() {
    let root = Root::with(RESCAN);
    let daemon = Daemon::start(&root);
    let commands = many("commands");
    let flood: Vec<(String, Value)> = (0..commands)
        .map(|n| {
            let id = format!("n-{n}");
            (id.clone(), json!({ "action": "cancel", "handoff_id": id }))
        })
        .collect();
    drop_at_once(&root, &daemon, "control", &flood);
    assert_overtakes(&root, "control", commands);
    wait_for_all(|| left(&root, "control"));
    // Each with the reason beside it.
    assert_eq!(left(&root, "control/rejected"), 2 * commands);
}

#[test]
fn a_request_behind_many_refused_ones_does_not_wait_for_them() {
    let root = Root::with(RESCAN);
    let daemon = Daemon::start(&root);
    let refused = many("refused");
    let flood: Vec<(String, Value)> = (0..refused)
        .map(|n| {
            let unknown = json!({ "target": { "agent_id": "@nobody" } });
            (format!("n-{n}"), unknown)
        })
        .collect();
    drop_at_once(&root, &daemon, "pending", &flood);
    assert_overtakes(&root, "pending", refused);
    wait_for_all(|| left(&root, "pending"));
    wait_until("the last outcome", || {
        (left(&root, "failed") == refused).then_some(())
    });
}

#[test]
fn thousands_that_fail_with_the_one_that_they_wait_for_hold_up_nobody() {
    let root = Root::with(&format!("{RESCAN}\ndefaults.retry.max_retries = 0"));
    let daemon = Daemon::start(&root);
    root.drop_request("one", &orders("await go; exit 64"));
    root.record("in-progress", "one");
    let dependents = many("dependents");
    let flood: Vec<(String, Value)> = (0..dependents)
        .map(|n| {
            let waits = json!({ "depends_on": ["one"] });
            (format!("n-{n}"), with(orders("exit 0"), waits))
        })
        .collect();
    drop_at_once(&root, &daemon, "pending", &flood);
    wait_for_all(|| dependents - left(&root, "waiting"));
    root.allow("go");
    root.failed("one");
    daemon.signal(Signal::STOP);
    root.drop_request("probe", &orders("exit 0"));
    daemon.signal(Signal::CONT);
    root.completed("probe");
    let left_waiting = left(&root, "waiting");
    assert!(left_waiting > dependents / 10, "{left_waiting} were left");
    wait_for_all(|| left(&root, "waiting"));
    assert_eq!(left(&root, "failed"), dependents);
}
