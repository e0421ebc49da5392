//! Strangers: files of other hands in the daemon's folders, taken up, refused or left alone and told of.

use std::fs;

use serde_json::json;

use crate::common::{Daemon, Root, orders, outcomes, text, wait_until, with};

#[test]
fn a_foreign_file_in_in_progress_or_waiting_is_treated_as_interrupted() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    root.assert_works("good");
    fs::write(
        root.state("in-progress", "a"),
        orders("mark ran").to_string(),
    )
    .unwrap();
    fs::write(root.state("waiting", "b"), orders("mark ran").to_string()).unwrap();
    for id in ["a", "b"] {
        root.completed(id);
        assert_eq!(root.mark(&format!("{id}.ran")).lines().count(), 1);
        assert_eq!(root.states_of(id), ["completed"]);
    }
    daemon.kill();
    // One that claims to be ours and to run: nobody knows of such an attempt.
    let claims = json!({ "status": "in_progress", "handoffd": { "format": 1, "revision": 3,
        "to": "in_progress", "attempts": [{ "number": 1, "started_at": "2020-01-01T00:00:00Z" }] } });
    let forged = with(orders("mark ran"), claims);
    fs::write(root.state("in-progress", "c"), forged.to_string()).unwrap();
    fs::write(root.state("waiting", "d"), "{ broken").unwrap();
    fs::write(root.state("in-progress", "e"), "").unwrap();
    let _daemon = Daemon::start(&root);
    let record = root.completed("c");
    assert_eq!(
        outcomes(&record).last().map(String::as_str),
        Some("completed")
    );
    for id in ["d", "e"] {
        assert_eq!(root.failed(id).1, "SCHEMA_VALIDATION_FAILED");
        let bytes = root.path(&format!("handoffs/failed/{id}.rejected"));
        wait_until("its bytes", || bytes.exists().then_some(()));
    }
}

#[test]
fn what_can_be_no_record_is_told_of_while_it_lies_there() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    root.assert_works("good");
    fs::write(root.path("handoffs/waiting/y.yaml"), "target: x").unwrap();
    fs::write(root.path("handoffs/waiting/.mine.tmp"), "being written").unwrap();
    fs::write(root.path("handoffs/in-progress/notes.txt"), "mine").unwrap();
    fs::create_dir(root.path("handoffs/in-progress/sub")).unwrap();
    fs::create_dir(root.path("handoffs/waiting/sub.json")).unwrap();
    fs::create_dir(root.path("handoffs/control/sub")).unwrap();
    let all_told = || {
        let told = root.problems();
        let wanted = [
            "waiting/ that are not records: y.yaml;",
            "in-progress/ that are not records: notes.txt, sub;",
            "ignored the folder handoffs/waiting/sub.json",
            "folders in handoffs/control/: sub;",
        ];
        let all = wanted.iter().all(|wanted| told.contains(wanted));
        (all && !told.contains("mine")).then_some(())
    };
    wait_until("all are told", all_told);
    daemon.kill();
    let _daemon = Daemon::start(&root);
    wait_until("all are told again", all_told);
    root.assert_works("better");
    fs::remove_file(root.path("handoffs/waiting/y.yaml")).unwrap();
    fs::remove_file(root.path("handoffs/in-progress/notes.txt")).unwrap();
    for folder in ["in-progress/sub", "waiting/sub.json", "control/sub"] {
        fs::remove_dir(root.path("handoffs").join(folder)).unwrap();
    }
    wait_until("all are forgotten", || {
        (root.problems() == "[]").then_some(())
    });
}

#[test]
fn a_name_that_can_t_be_an_id_is_refused_as_in_pending() {
    let root = Root::new();
    let later = with(
        orders("exit 0"),
        json!({ "not_before": "2999-01-01T00:00:00Z" }),
    );
    // A whole record under such a name is one that somebody renamed.
    {
        let _daemon = Daemon::start(&root);
        root.drop_request("x", &later);
        root.record("waiting", "x");
    }
    fs::rename(root.state("waiting", "x"), root.state("waiting", "a b")).unwrap();
    let _daemon = Daemon::start(&root);
    let request = orders("mark ran").to_string();
    for name in ["bad name", "h~9"] {
        fs::write(root.state("waiting", name), &request).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", root.state("in-progress", "a link")).unwrap();
    for name in ["a b", "bad name", "h~9", "a link"] {
        let digest = handoffd::protocol::digest::sha256(format!("{name}.json").as_bytes());
        let id = format!("rejected-{}", &digest[..12]);
        let (record, code) = root.failed(&id);
        assert_eq!(code, "SCHEMA_VALIDATION_FAILED", "{record:#}");
        assert!(text(&record["error"]["message"]).contains("not a valid id"));
        let bytes = root.path(&format!("handoffs/failed/{id}.rejected"));
        wait_until("its bytes", || {
            bytes.symlink_metadata().is_ok().then_some(())
        });
        assert!(root.states_of(name).is_empty(), "{name}");
    }
    assert!(root.names("marks").is_empty());
    root.assert_works("good");
}

#[test]
fn strangers_in_the_final_folders_are_left_alone() {
    let root = Root::new();
    fs::create_dir_all(root.path("handoffs/completed")).unwrap();
    fs::create_dir_all(root.path("handoffs/failed")).unwrap();
    fs::write(root.path("handoffs/completed/notes.txt"), "mine").unwrap();
    fs::write(root.state("failed", "y"), "not even JSON").unwrap();
    let _daemon = Daemon::start(&root);
    root.assert_works("good");
    let read = |path: &str| fs::read_to_string(root.path(path)).unwrap();
    assert_eq!(read("handoffs/completed/notes.txt"), "mine");
    assert_eq!(read("handoffs/failed/y.json"), "not even JSON");
    root.drop_request("y", &orders("exit 0"));
    assert_eq!(root.failed("y~2").1, "DUPLICATE_ID");
}

#[test]
fn strangers_that_come_into_the_final_folders_are_told_of_while_they_are_there() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.assert_works("good");
    root.drop_request("bad", &orders("exit 64"));
    root.failed("bad");
    root.drop_bytes("broken.json", b"{");
    root.failed("broken");
    let completed = |name: &str| root.path("handoffs/completed").join(name);
    fs::write(completed("notes.txt"), "mine").unwrap();
    fs::write(completed("doc.json"), orders("exit 0").to_string()).unwrap();
    fs::rename(root.state("failed", "bad"), completed("bad.json")).unwrap();
    fs::create_dir(root.path("handoffs/failed/sub")).unwrap();
    wait_until("all are told", || {
        let told = root.problems();
        let wanted = [
            "bad.json (its status is failed)",
            "doc.json (the record has no `handoffd` block)",
            "notes.txt (its name is not <id>.json)",
            "handoffs/failed/ has files that the daemon did not put there: sub (it is a folder);",
        ];
        wanted.iter().all(|it| told.contains(it)).then_some(())
    });
    // It is left alone, and what explains it does not take it for an outcome.
    let explained = |id: &str| String::from_utf8(root.cli(&["explain", id]).stdout).unwrap();
    for id in ["doc", "bad"] {
        let told = explained(id);
        let advice = format!("mv handoffs/completed/{id}.json");
        assert!(told.contains("not a record that belongs there"), "{told}");
        assert!(told.contains(&advice), "{told}");
    }
    for name in ["notes.txt", "doc.json", "bad.json"] {
        fs::remove_file(completed(name)).unwrap();
    }
    fs::remove_dir(root.path("handoffs/failed/sub")).unwrap();
    wait_until("all are forgotten", || {
        (root.problems() == "[]").then_some(())
    });
    // What the daemon itself puts there is nobody else's.
    for n in 0..20 {
        root.drop_request(&format!("x{n}"), &orders("exit $((HANDOFF_ATTEMPT * 64))"));
        root.drop_bytes(&format!("b{n}.json"), b"{");
    }
    for n in 0..20 {
        root.failed(&format!("x{n}"));
        root.failed(&format!("b{n}"));
    }
    fs::write(completed("last.txt"), "mine").unwrap();
    wait_until("another look", || {
        root.problems().contains("last.txt").then_some(())
    });
    assert!(
        !root
            .log()
            .contains("failed/ has files that the daemon did not put there: b")
    );
    assert!(
        !root
            .log()
            .contains("failed/ has files that the daemon did not put there: x")
    );
}

#[test]
fn pipes_in_two_folders_hold_nobody_up_and_what_was_refused_is_no_stranger() {
    let root = Root::with("daemon.rescan = '200ms'");
    let daemon = Daemon::start(&root);
    root.drop_request("a", &orders("exit 0"));
    root.completed("a");
    let pipe = |folder: &str, id: &str| {
        let (kind, mode) = (rustix::fs::FileType::Fifo, 0o600.into());
        rustix::fs::mknodat(rustix::fs::CWD, root.state(folder, id), kind, mode, 0).unwrap();
    };
    pipe("failed", "b");
    pipe("in-progress", "b");
    pipe("waiting", "c");
    root.failed("c");
    root.assert_works("meanwhile");
    wait_until("the stranger is told of", || {
        root.problems().contains("b.json").then_some(())
    });
    assert!(
        !root.problems().contains("c.rejected"),
        "{}",
        root.problems()
    );
    daemon.kill();
    pipe("waiting", "a");
    let _daemon = Daemon::start(&root);
    root.assert_works("afterwards");
}

#[test]
fn a_stranger_among_the_outcomes_is_not_waited_for() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    root.assert_works("good");
    drop(daemon);
    fs::write(root.state("completed", "notes"), r#"{"mine": true}"#).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, 0o600.into());
    let pipe = root.state("failed", "pipe");
    rustix::fs::mknodat(rustix::fs::CWD, pipe, kind, mode, 0).unwrap();
    for id in ["notes", "pipe"] {
        let output = root.cli(&["wait", id, "--json"]);
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let code = (output.status.code(), &said["error"]["code"]);
        assert_eq!(code, (Some(1), &json!("NO_RECORD")), "{id}");
    }
    // The same name on its way: somebody will say what becomes of it.
    fs::write(root.state("pending", "notes"), orders("exit 0").to_string()).unwrap();
    let output = root.cli(&["wait", "notes", "--timeout", "1ms"]);
    assert_eq!(output.status.code(), Some(124));
}

#[test]
fn what_is_taken_away_while_it_is_looked_at_is_no_duplicate() {
    let root = Root::with("daemon.max_concurrent = 50");
    let _daemon = Daemon::start(&root);
    // A stranger's mv beats the daemon, again and again.
    for n in 0..150 {
        let id = format!("x{n}");
        fs::write(
            root.pending(&format!("{id}.json")),
            orders("exit 0").to_string(),
        )
        .unwrap();
        let _ = fs::rename(
            root.pending(&format!("{id}.json")),
            root.state("in-progress", &id),
        );
    }
    for n in 0..150 {
        root.completed(&format!("x{n}"));
    }
    let log = root.log();
    assert!(!log.contains("the id is taken"), "{log}");
    assert!(root.names("handoffs/failed").is_empty());
}
