//! The audit log in the hands of somebody with the daemon's rights: what shows at once, what shows
//! against anchors, and that records are held against the log.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, text, wait_until};

/// The log's only file.
fn log(root: &Root) -> PathBuf {
    let names = root.names("audit");
    let name = names.iter().find(|name| name.starts_with("events-"));
    root.path("audit").join(name.unwrap())
}

fn hash(line: &str) -> String {
    handoffd::protocol::digest::sha256(line.as_bytes())
}

/// Makes the whole log anew, each line linked with the one before, after `edit` changed the lines.
fn forge(root: &Root, edit: impl Fn(&mut Vec<Value>)) {
    let path = log(root);
    let old = fs::read_to_string(&path).unwrap();
    let parse = |line| serde_json::from_str(line).unwrap();
    let mut lines: Vec<Value> = old.lines().map(parse).collect();
    edit(&mut lines);
    let (mut prev, mut new) = ("0".repeat(64), String::new());
    for (at, line) in lines.iter_mut().enumerate() {
        line["seq"] = (at + 1).into();
        line["prev"] = prev.into();
        let line = line.to_string();
        prev = hash(&line);
        new.push_str(&line);
        new.push('\n');
    }
    fs::write(path, new).unwrap();
}

/// As if somebody else had approved, or nobody had been there.
fn another_name(lines: &mut Vec<Value>) {
    for line in lines {
        if line["handoff_id"] == "a" {
            line["handoff_id"] = "z".into();
        }
    }
}

fn problems(root: &Root) -> String {
    let shown = root.cli(&["status", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    shown["problems"].to_string()
}

fn verify(root: &Root, more: &[&str]) -> (Option<i32>, Value) {
    let args = [&["audit", "--verify", "--json"], more].concat();
    let output = root.cli(&args);
    let shown = serde_json::from_slice(&output.stdout);
    (output.status.code(), shown.unwrap_or_default())
}

#[test]
fn a_log_rewritten_under_a_running_daemon_is_a_problem_and_an_event() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("a", &orders("exit 0"));
    root.completed("a");
    assert_eq!(verify(&root, &[]).0, Some(0));
    forge(&root, another_name);
    assert_eq!(verify(&root, &[]).0, Some(0), "the forgery is perfect");
    root.drop_request("b", &orders("exit 0"));
    root.completed("b");
    let shown = wait_until("the problem", || {
        let shown = problems(&root);
        shown.contains("changed by somebody else").then_some(shown)
    });
    assert!(shown.contains("audit --verify"), "{shown}");
    let lines = fs::read_to_string(log(&root)).unwrap();
    assert!(lines.contains("\"audit_altered\""), "{lines}");
    let (code, verdict) = verify(&root, &[]);
    assert_eq!((code, &verdict["sound"]), (Some(1), &json!(false)));
    let deep = root.cli(&["check", "--deep", "--json"]);
    assert_eq!(deep.status.code(), Some(1));
}

#[test]
fn a_log_that_was_made_anew_does_not_fit_its_anchors() {
    let root = Root::new();
    let kept = root.path("anchors.log");
    let line = format!(
        "audit.anchor = 'file:{}'\naudit.anchor_lines = 1",
        kept.display()
    );
    root.configure(&line);
    let daemon = Daemon::start(&root);
    for id in ["a", "b"] {
        root.drop_request(id, &orders("exit 0"));
        root.completed(id);
    }
    assert_eq!(daemon.terminate(), Some(0));
    let anchors = fs::read_to_string(&kept).unwrap();
    let last: Value = serde_json::from_str(anchors.lines().last().unwrap()).unwrap();
    let lines = fs::read_to_string(log(&root)).unwrap();
    let end = lines.lines().last().unwrap();
    assert_eq!(
        text(&last["hash"]),
        hash(end),
        "a stop anchors the last line"
    );
    // As a log of the system has it.
    let collected = root.path("collected");
    fs::write(
        &collected,
        anchors.replace("{\"", "Jan 1 box handoffd-anchor: {\""),
    )
    .unwrap();
    let against = ["--anchor", collected.to_str().unwrap()];
    let (code, verdict) = verify(&root, &against);
    assert_eq!(code, Some(0), "{verdict}");
    assert_eq!(verdict["anchors"], anchors.lines().count());

    forge(&root, another_name);
    assert_eq!(
        verify(&root, &[]).0,
        Some(0),
        "without anchors it is perfect"
    );
    let (code, verdict) = verify(&root, &against);
    assert_eq!(code, Some(1), "{verdict}");
    let first = text(&verdict["problems"][0]);
    assert!(
        first.contains("collected:") && first.contains("is not what it was"),
        "{first}"
    );
    // Nor does a shorter one, or none.
    forge(&root, |lines| lines.truncate(1));
    let (code, verdict) = verify(&root, &against);
    assert_eq!(code, Some(1));
    assert!(
        verdict["problems"].to_string().contains("is gone"),
        "{verdict}"
    );

    // A daemon that starts on it says so, and its next anchors don't hide it.
    let daemon = Daemon::start(&root);
    wait_until("the problem", || {
        problems(&root)
            .contains("while no daemon ran")
            .then_some(())
    });
    assert_eq!(daemon.terminate(), Some(0));
    assert!(
        fs::read_to_string(log(&root))
            .unwrap()
            .contains("audit_altered")
    );
    assert_eq!(
        verify(&root, &["--anchor", kept.to_str().unwrap()]).0,
        Some(1)
    );

    // Anchors of another root say nothing of this one.
    let others = anchors.replace(root.dir().to_str().unwrap(), "/elsewhere");
    fs::write(&collected, others).unwrap();
    let (code, verdict) = verify(&root, &against);
    assert_eq!(code, Some(1));
    assert_eq!(verdict["error"]["code"], "NO_ANCHORS", "{verdict}");
    let moved = [&against[..], &["--anchor-root", "/elsewhere"]].concat();
    assert!(
        verify(&root, &moved).1["problems"]
            .to_string()
            .contains("is gone")
    );
}

#[test]
fn anchors_that_nobody_takes_are_a_problem_until_somebody_does() {
    let root = Root::new();
    let fifo = root.path("anchors");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    root.configure(&format!("audit.anchor = 'file:{}'", fifo.display()));
    let daemon = Daemon::start(&root);
    root.drop_request("a", &orders("exit 0"));
    root.completed("a");
    wait_until("the problem", || {
        problems(&root)
            .contains("no anchor of the audit log")
            .then_some(())
    });
    let mut reader = fs::File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(&fifo)
        .unwrap();
    wait_until("an anchor", || {
        let mut said = String::new();
        let _ = reader.read_to_string(&mut said);
        said.contains("handoffd_anchor").then_some(())
    });
    wait_until("its end", || {
        (!problems(&root).contains("anchor")).then_some(())
    });
    assert_eq!(daemon.terminate(), Some(0));
}
