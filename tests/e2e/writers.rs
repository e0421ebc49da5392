//! Producers that write in place: slowly, in pieces, with pauses, or never to the end.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::thread;
use std::time::Duration;

use crate::common::{Daemon, Root, orders, outcomes, wait_until};

/// Longer than the `settle` of these tests: a producer that pauses, not a wait for anything.
fn pause() {
    thread::sleep(Duration::from_millis(250));
}

#[test]
fn a_slow_writer_of_json_is_waited_for_while_it_holds_the_file() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let text = orders("mark ran").to_string();
    let mut file = File::create(root.pending("slow.json")).unwrap();
    for piece in text.as_bytes().chunks(text.len() / 5) {
        file.write_all(piece).unwrap();
        file.flush().unwrap();
        pause();
    }
    drop(file);
    assert_eq!(outcomes(&root.completed("slow")), ["completed"]);
    assert_eq!(root.mark("slow.ran").lines().count(), 1);
    assert!(root.names("handoffs/failed").is_empty());
}

#[test]
fn a_slow_writer_of_yaml_is_not_taken_at_its_first_words() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let mut file = File::create(root.pending("slow.yaml")).unwrap();
    for piece in [
        "target:\n  agent_id: fake\n",
        "input:\n  data:\n    sh: echo one",
        " two",
        " three\nend: true\n",
    ] {
        file.write_all(piece.as_bytes()).unwrap();
        file.flush().unwrap();
        pause();
    }
    drop(file);
    let record = root.completed("slow");
    assert_eq!(record["output"]["text"], "one two three\n");
    assert_eq!(record["end"], true);
}

#[test]
fn many_writers_in_pieces_are_all_understood() {
    let root = Root::with("daemon.max_concurrent = 4");
    let _daemon = Daemon::start(&root);
    let text = orders("exit 0").to_string();
    let mut files: Vec<File> = (0..20)
        .map(|n| File::create(root.pending(&format!("w{n}.json"))).unwrap())
        .collect();
    for piece in text.as_bytes().chunks(20) {
        for file in &mut files {
            file.write_all(piece).unwrap();
        }
    }
    drop(files);
    for n in 0..20 {
        root.completed(&format!("w{n}"));
    }
    assert!(root.names("handoffs/failed").is_empty());
}

#[test]
fn a_writer_that_opens_the_file_again_within_settle_is_understood() {
    let root = Root::with("daemon.settle = '3s'");
    let _daemon = Daemon::start(&root);
    let text = orders("exit 0").to_string();
    let (first, second) = text.split_at(30);
    fs::write(root.pending("twice.json"), first).unwrap();
    pause();
    let mut file = OpenOptions::new()
        .append(true)
        .open(root.pending("twice.json"))
        .unwrap();
    file.write_all(second.as_bytes()).unwrap();
    drop(file);
    root.completed("twice");
}

#[test]
fn a_writer_that_gave_up_is_told_so_once_it_has_let_go() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let mut file = File::create(root.pending("half.json")).unwrap();
    file.write_all(b"{\"target\": ").unwrap();
    pause();
    root.assert_works("meanwhile");
    assert!(
        root.pending("half.json").exists(),
        "somebody still holds it"
    );
    drop(file);
    assert_eq!(root.failed("half").1, "SCHEMA_VALIDATION_FAILED");
}

#[test]
fn a_file_that_is_replaced_before_its_turn_runs_as_what_it_became() {
    let root = Root::with("daemon.max_concurrent = 1");
    let _daemon = Daemon::start(&root);
    root.drop_request("first", &orders("mark up; await go"));
    root.mark("first.up");
    root.drop_request("x", &orders("echo old"));
    root.drop_request("gone", &orders("mark ran"));
    root.drop_request(
        "seen",
        &serde_json::json!({ "target": { "agent_id": "@nobody" } }),
    );
    root.failed("seen");
    root.drop_request("x", &orders("echo new"));
    fs::remove_file(root.pending("gone.json")).unwrap();
    root.allow("go");
    assert_eq!(root.completed("x")["output"]["text"], "new\n");
    root.assert_works("next");
    assert!(root.states_of("gone").is_empty() && !root.path("marks/gone.ran").exists());
}

#[test]
fn polling_finds_what_no_event_tells() {
    let root = Root::with("daemon.watch = 'poll'\ndaemon.rescan = '200ms'");
    let _daemon = Daemon::start(&root);
    root.assert_works("renamed");
    fs::write(root.pending("in-place.yaml"), "target: {agent_id: fake}\n").unwrap();
    root.completed("in-place");
    root.command(
        "c.json",
        &serde_json::json!({ "action": "cancel", "handoff_id": "nobody" }),
    );
    wait_until("the refusal", || {
        root.path("handoffs/control/rejected/c.json")
            .exists()
            .then_some(())
    });
}
