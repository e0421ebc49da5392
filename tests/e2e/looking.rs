//! Looking at a root whose daemon was killed, or is about to leave.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, wait_until, with};

fn said(root: &Root, args: &[&str]) -> String {
    let output = root.cli(args);
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn status(root: &Root) -> Value {
    serde_json::from_slice(&root.cli(&["status", "--json"]).stdout).unwrap()
}

fn journal(root: &Root) -> String {
    fs::read_to_string(root.path(".handoffd/run/attempts.0.jsonl")).unwrap()
}

#[test]
fn what_an_attempt_said_is_shown_while_no_daemon_runs_also_after_its_end() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let says = "echo early >&2; mark up; await go; echo late >&2; exit 0";
    root.drop_request("x", &orders(says));
    root.mark("x.up");
    daemon.kill();
    let logs = |options: &[&str]| said(&root, &[&["logs", "x", "--stderr"], options].concat());
    assert_eq!(logs(&[]), "early\n");
    root.allow("go");
    wait_until("its end", || {
        journal(&root).contains(r#"{"gone""#).then_some(())
    });
    let before = journal(&root);
    assert_eq!(logs(&[]), "early\nlate\n");
    assert_eq!(logs(&["-f"]), "early\nlate\n");
    // What the keeper was writing when it was killed.
    let path = root.path(".handoffd/run/attempts.0.jsonl");
    fs::write(&path, before.clone() + r#"{"forget":{"key":{"id":"x"#).unwrap();
    assert_eq!(logs(&[]), "early\nlate\n");
    assert!(journal(&root).ends_with("\"x"), "it was only read");
    fs::write(&path, before).unwrap();
    let _daemon = Daemon::start(&root);
    root.completed("x");
    assert_eq!(logs(&[]), "early\nlate\n");
}

#[test]
fn a_daemon_that_nobody_has_reaped_does_not_run() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    assert_eq!(status(&root)["daemon"]["running"], true);
    daemon.signal(Signal::KILL);
    wait_until("its end", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
        stat.contains(") Z ").then_some(())
    });
    wait_until("it is told", || {
        (status(&root)["daemon"]["running"] == false).then_some(())
    });
    let told = said(&root, &["status"]);
    assert!(told.starts_with("no daemon on"), "{told}");
    drop(Daemon::start(&root));
    daemon.kill();
}

#[test]
fn a_daemon_that_waits_for_its_attempts_says_that_it_is_stopping() {
    let root = Root::with("daemon.shutdown_grace = \"5m\"");
    let mut daemon = Daemon::start(&root);
    root.drop_request("x", &orders("mark up; await go; exit 0"));
    root.mark("x.up");
    assert_eq!(status(&root)["daemon"]["stopping"], false);
    daemon.signal(Signal::TERM);
    wait_until("it tells", || {
        (status(&root)["daemon"]["stopping"] == true).then_some(())
    });
    assert_eq!(status(&root)["daemon"]["running"], true);
    let told = said(&root, &["status"]);
    assert!(told.starts_with("stopping on"), "{told}");
    let request = root.path("later.json");
    let later = with(orders("exit 0"), json!({ "handoff_id": "later" }));
    fs::write(&request, later.to_string()).unwrap();
    let told = said(&root, &["submit", request.to_str().unwrap()]);
    assert!(told.contains("is stopping"), "{told}");
    let told = said(&root, &["wait", "later", "--timeout", "10ms"]);
    assert!(told.contains("is stopping"), "{told}");
    let told = said(&root, &["explain", "later"]);
    assert!(told.contains("is stopping"), "{told}");
    root.allow("go");
    assert_eq!(daemon.exit_code(), Some(0));
    assert_eq!(status(&root)["daemon"]["stopping"], false);
}
