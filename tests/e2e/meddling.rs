//! Other hands in the daemon's folders: records edited, moved, added, deleted, and folders taken away.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, outcomes, text, wait_until, with};

/// A running handoff whose specialist waits for the mark `go`.
fn running(root: &Root) -> Value {
    root.drop_request(
        "x",
        &with(
            orders("mark up; await go; echo done"),
            json!({ "mine": 1.0 }),
        ),
    );
    root.mark("x.up");
    root.record("in-progress", "x")
}

fn ends_untouched(root: &Root, before: &Value) {
    wait_until("it is put back", || {
        (root.record_in("in-progress", "x").as_ref() == Some(before)).then_some(())
    });
    root.allow("go");
    let record = root.completed("x");
    assert_eq!(outcomes(&record), ["completed"]);
    assert_eq!(record["mine"].to_string(), "1.0");
    assert_eq!(record["output"]["text"], "done\n");
    assert_eq!(root.mark("x.up").lines().count(), 1, "it ran once");
    assert_eq!(root.states_of("x"), ["completed"]);
}

#[test]
fn a_running_handoff_s_record_that_was_edited_is_put_back() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let before = running(&root);
    let path = root.state("in-progress", "x");
    fs::write(
        &path,
        with(before.clone(), json!({ "status": "completed" })).to_string(),
    )
    .unwrap();
    ends_untouched(&root, &before);
}

#[test]
fn a_running_handoff_s_record_that_was_moved_away_is_put_back() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let before = running(&root);
    fs::rename(root.state("in-progress", "x"), root.path("elsewhere.json")).unwrap();
    ends_untouched(&root, &before);
}

#[test]
fn a_running_handoff_s_record_that_was_moved_to_pending_starts_nothing() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let before = running(&root);
    fs::rename(root.state("in-progress", "x"), root.pending("x.json")).unwrap();
    // Who finds it first decides: it is refused as a duplicate, or moved back.
    wait_until("it is gone from pending/", || {
        (!root.pending("x.json").exists()).then_some(())
    });
    ends_untouched(&root, &before);
    for name in root.names("handoffs/failed") {
        let (duplicate, code) = root.failed(name.trim_end_matches(".json"));
        assert_eq!(code, "DUPLICATE_ID", "{duplicate}");
    }
}

#[test]
fn a_running_handoff_s_record_that_was_moved_to_a_final_folder_is_not_believed() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let before = running(&root);
    fs::rename(root.state("in-progress", "x"), root.state("failed", "x")).unwrap();
    wait_until("it is put back", || {
        (root.record_in("in-progress", "x").as_ref() == Some(&before)).then_some(())
    });
    root.allow("go");
    let record = root.record_that("completed", "x", |_| true);
    assert_eq!(outcomes(&record), ["completed"]);
    assert_eq!(record["output"]["text"], "done\n");
    assert_eq!(root.mark("x.up").lines().count(), 1, "it ran once");
    assert_eq!(
        root.record_in("failed", "x"),
        None,
        "it stands in one folder only"
    );
}

#[test]
fn a_stranger_s_file_in_the_way_of_an_outcome_is_set_aside_and_not_lost() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &orders("mark up; await go; exit 64"));
    root.mark("x.up");
    fs::write(root.state("failed", "x"), "a stranger's").unwrap();
    root.allow("go");
    let record = wait_until("the outcome", || {
        let bytes = fs::read(root.state("failed", "x")).ok()?;
        serde_json::from_slice::<Value>(&bytes).ok()
    });
    assert_eq!(record["error"]["code"], "PROCESSING_ERROR");
    let aside = root.names(".handoffd/aside");
    let kept = fs::read_to_string(root.path(".handoffd/aside").join(&aside[0])).unwrap();
    assert_eq!(kept, "a stranger's");
}

#[test]
fn a_record_moved_away_while_no_daemon_ran_does_not_start_a_second_attempt() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    // The first one is ended for it, as its record is gone; what matters is the order.
    let sh = "pid=$HANDOFF_ROOT/marks/x.pid; [ -e $pid ] && kill -0 $(cat $pid) && mark overlap; \
              echo $$ >$pid; mark up; await go";
    root.drop_request("x", &orders(sh));
    root.mark("x.up");
    daemon.kill();
    fs::rename(root.state("in-progress", "x"), root.pending("x.json")).unwrap();
    let _daemon = Daemon::start(&root);
    root.assert_works("good");
    root.allow("go");
    root.completed("x");
    assert_eq!(root.states_of("x"), ["completed"]);
    assert!(!root.path("marks/x.overlap").exists());
}

#[test]
fn a_folder_that_was_deleted_and_made_again_is_noticed() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.assert_works("before");
    for folder in [
        "pending",
        "control",
        "completed",
        "failed",
        "waiting",
        "in-progress",
    ] {
        // The daemon makes them again while they go; whoever insists wins.
        wait_until("the folder is deleted", || {
            fs::remove_dir_all(root.path("handoffs").join(folder)).ok()
        });
    }
    for folder in [
        "pending",
        "control",
        "completed",
        "failed",
        "waiting",
        "in-progress",
    ] {
        // The daemon may have been faster.
        let _ = fs::create_dir(root.path("handoffs").join(folder));
    }
    root.assert_works("after");
    root.drop_request("bad", &orders("exit 64"));
    root.failed("bad");
    let later = json!({ "not_before": "2999-01-01T00:00:00Z" });
    root.drop_request("later", &with(orders("exit 0"), later));
    root.record("waiting", "later");
    root.command(
        "c.json",
        &json!({ "action": "cancel", "handoff_id": "later" }),
    );
    assert_eq!(root.failed("later").1, "CANCELLED");
    // Deleted only: the daemon makes it anew, with nobody's help.
    fs::remove_dir_all(root.path("handoffs/pending")).unwrap();
    wait_until("pending/ is back", || {
        root.path("handoffs/pending").is_dir().then_some(())
    });
    root.assert_works("again");
}

#[test]
fn a_state_folder_that_leads_out_of_the_root_is_refused_and_told_of() {
    let outside = tempfile::tempdir().unwrap();
    let root = Root::with("daemon.rescan = '200ms'");
    let daemon = Daemon::start(&root);
    root.assert_works("before");
    for folder in ["completed", "failed", "waiting", "in-progress"] {
        let path = root.path("handoffs").join(folder);
        let away = root.path(folder);
        fs::rename(&path, &away).unwrap();
        // The daemon makes it again if it is seen without it.
        wait_until("the link stands", || {
            let _ = fs::remove_dir(&path);
            std::os::unix::fs::symlink(outside.path(), &path).ok()
        });
        wait_until("it is told", || {
            let told = format!("{folder} is a symlink that leads out of the root");
            root.problems().contains(&told).then_some(())
        });
        root.drop_request(folder, &orders("exit 0"));
        fs::remove_file(&path).unwrap();
        wait_until("the folder is back", || {
            let _ = fs::remove_dir(&path);
            fs::rename(&away, &path).ok()
        });
        root.completed(folder);
        wait_until("it is told no more", || {
            (!root.problems().contains("symlink")).then_some(())
        });
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "{folder}");
    }
    daemon.kill();
    let path = root.path("handoffs/failed");
    fs::rename(&path, root.path("failed")).unwrap();
    std::os::unix::fs::symlink(outside.path(), &path).unwrap();
    for args in [["run", "--drain"], ["check", "--deep"]] {
        let output = root.cli(&args);
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(!output.status.success(), "{said:?}");
        assert!(said.concat().contains("leads out of the root"), "{said:?}");
    }
    // A link that stays inside harms nobody.
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(root.path("failed"), &path).unwrap();
    let _daemon = Daemon::start(&root);
    root.drop_request("bad", &orders("exit 64"));
    root.failed("bad");
}

#[test]
fn an_edited_wait_is_believed_only_where_it_is_still_a_record() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let later = json!({ "not_before": "2999-01-01T00:00:00Z" });
    root.drop_request("x", &with(orders("exit 0"), later.clone()));
    root.drop_request("y", &with(orders("exit 0"), later));
    root.record("waiting", "x");
    root.record("waiting", "y");
    // As long as the claim is not on disk, the bytes from before it would be put back.
    wait_until("both are settled", || {
        root.names(".handoffd/tmp").is_empty().then_some(())
    });
    daemon.kill();
    fs::write(root.state("waiting", "x"), "{\"half\":").unwrap();
    fs::remove_file(root.state("waiting", "y")).unwrap();
    let _daemon = Daemon::start(&root);
    let (record, _) = root.failed("x");
    assert!(text(&record["error"]["message"]).contains("damaged"));
    assert!(root.states_of("y").is_empty(), "deleted is deleted");
    root.assert_works("good");
}

fn later() -> Value {
    with(
        orders("exit 0"),
        json!({ "not_before": "2999-01-01T00:00:00Z" }),
    )
}

fn waits_no_more(root: &Root, id: &str) {
    wait_until("it is told", || {
        (root.told(id, "record_gone") > 0).then_some(())
    });
}

/// How often it is said that this handoff's record was taken away.
fn warnings(root: &Root, id: &str) -> usize {
    let about = format!("handoff_id=\"{id}\"");
    let lines = root.log();
    let said = |line: &str| line.contains("WARN") && line.contains("its record");
    let warned = |line: &&str| said(line) && line.contains(&about);
    lines.lines().filter(warned).count()
}

#[test]
fn a_wait_that_somebody_deleted_is_told_once_and_forgotten() {
    let root = Root::with("defaults.dependency_wait = '100ms'");
    let _daemon = Daemon::start(&root);
    for id in ["x", "stays"] {
        root.drop_request(id, &later());
        root.record("waiting", id);
    }
    let over = json!({ "depends_on": ["x"] });
    root.drop_request("after", &with(orders("exit 0"), over));
    root.record("waiting", "after");
    fs::remove_file(root.state("waiting", "x")).unwrap();
    waits_no_more(&root, "x");
    let (record, code) = root.failed("after");
    assert_eq!(code, "DEPENDENCY_MISSING");
    assert!(
        text(&record["error"]["message"]).contains('x'),
        "{record:#}"
    );
    wait_until("it is off the board", || {
        let board = fs::read_to_string(root.path("context/state/current.json")).ok()?;
        (board.contains("\"stays\"") && !board.contains("\"x\"")).then_some(())
    });
    // Listed again, because of another: nothing is said twice, and of nobody who is there.
    root.drop_request("more", &later());
    root.record("waiting", "more");
    fs::remove_file(root.state("waiting", "more")).unwrap();
    waits_no_more(&root, "more");
    assert_eq!(root.told("x", "record_gone"), 1);
    assert_eq!((warnings(&root, "x"), warnings(&root, "stays")), (1, 0));
    let log = root.log();
    assert!(log.contains("deleted from waiting/"), "{log}");
    assert!(root.states_of("x").is_empty(), "deleted is deleted");
    let deep = root.cli(&["check", "--deep"]);
    assert!(deep.status.success(), "{deep:?}");
    // Its id is free.
    root.assert_works("x");
    root.assert_audit_is_sound();
}

#[test]
fn a_wait_that_is_over_and_was_deleted_is_told_too() {
    // No rescan: its own time, and a command, find that it is gone.
    let root = Root::with("daemon.rescan = '1h'\ndefaults.retry.delay = '1s'");
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &orders("exit 1"));
    root.drop_request("y", &later());
    for id in ["x", "y"] {
        root.record("waiting", id);
        fs::remove_file(root.state("waiting", id)).unwrap();
    }
    root.command("c.json", &json!({ "action": "cancel", "handoff_id": "y" }));
    for id in ["x", "y"] {
        waits_no_more(&root, id);
        assert_eq!(warnings(&root, id), 1, "{id}");
    }
    let over = json!({ "depends_on": ["x"] });
    root.drop_request("after", &with(orders("exit 0"), over));
    root.record("waiting", "after");
    root.assert_works("good");
}

#[test]
fn a_wait_that_somebody_moved_to_a_final_folder_is_over() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &later());
    root.record("waiting", "x");
    let over = json!({ "depends_on": ["x"] });
    root.drop_request("after", &with(orders("exit 0"), over));
    root.record("waiting", "after");
    fs::rename(root.state("waiting", "x"), root.state("failed", "x")).unwrap();
    assert_eq!(root.failed("after").1, "DEPENDENCY_MISSING");
    wait_until("it is told", || (warnings(&root, "x") == 1).then_some(()));
}

#[test]
fn a_drain_does_not_wait_for_what_was_deleted() {
    let root = Root::new();
    root.drop_request("x", &later());
    let mut daemon = Daemon::spawn(&root, |command| {
        command.arg("--drain");
    });
    root.record("waiting", "x");
    fs::remove_file(root.state("waiting", "x")).unwrap();
    assert_eq!(daemon.exit_code(), Some(0));
    assert_eq!(root.told("x", "record_gone"), 1);
}
