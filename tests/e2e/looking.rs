//! Looking at a root whose daemon was killed.

use std::fs;

use crate::common::{Daemon, Root, orders, wait_until};

fn said(root: &Root, args: &[&str]) -> String {
    let output = root.cli(args);
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
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
    assert_eq!(said(&root, &["logs", "x"]), "early\n");
    root.allow("go");
    wait_until("its end", || {
        journal(&root).contains(r#"{"gone""#).then_some(())
    });
    let before = journal(&root);
    assert_eq!(said(&root, &["logs", "x"]), "early\nlate\n");
    assert_eq!(said(&root, &["logs", "-f", "x"]), "early\nlate\n");
    // What the keeper was writing when it was killed.
    let path = root.path(".handoffd/run/attempts.0.jsonl");
    fs::write(&path, before.clone() + r#"{"forget":{"key":{"id":"x"#).unwrap();
    assert_eq!(said(&root, &["logs", "x"]), "early\nlate\n");
    assert!(journal(&root).ends_with("\"x"), "it was only read");
    fs::write(&path, before).unwrap();
    let _daemon = Daemon::start(&root);
    root.completed("x");
    assert_eq!(said(&root, &["logs", "x"]), "early\nlate\n");
}
