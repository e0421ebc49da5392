//! Commands through `control/`: carried out once and deleted, or set aside with the reason.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, is_alive, orders, outcomes, text, wait_until, with};

fn cancel(root: &Root, name: &str, id: &str) {
    root.command(
        name,
        &json!({ "action": "cancel", "handoff_id": id, "by": "ann", "comment": "no" }),
    );
}

pub fn retry(root: &Root, name: &str, id: &str) {
    root.command(name, &json!({ "action": "retry", "handoff_id": id }));
}

/// Waits until a command was carried out: deleted, and not refused.
fn obeyed(root: &Root, name: &str) {
    wait_until(name, || {
        (!root.path("handoffs/control").join(name).exists()).then_some(())
    });
    assert!(
        !root.path("handoffs/control/rejected").join(name).exists(),
        "{name} was refused"
    );
}

/// Waits until a command was refused, and returns the reason.
pub fn refused(root: &Root, name: &str) -> String {
    let folder = root.path("handoffs/control/rejected");
    let reason: Value = wait_until(&format!("the refusal of {name}"), || {
        let bytes = fs::read(folder.join(format!("{name}.reason.json"))).ok()?;
        folder
            .join(name)
            .exists()
            .then(|| serde_json::from_slice(&bytes).unwrap())
    });
    text(&reason["reason"])
}

#[test]
fn cancel_reaches_a_handoff_wherever_it_stands() {
    let root = Root::with("daemon.max_concurrent = 1");
    let _daemon = Daemon::start(&root);
    root.drop_request(
        "running",
        &orders("child kid; away far; stubborn; mark up; forever"),
    );
    root.mark("running.up");
    root.drop_request("queued", &orders("mark ran"));
    let later = json!({ "not_before": "2999-01-01T00:00:00Z" });
    root.drop_request("parked", &with(orders("mark ran"), later));
    root.drop_request(
        "dependent",
        &with(orders("mark ran"), json!({ "depends_on": ["queued"] })),
    );
    root.record("waiting", "parked");
    root.record("waiting", "dependent");
    for id in ["queued", "parked", "running"] {
        let name = format!("cancel-{id}.json");
        cancel(&root, &name, id);
        let (record, code) = root.failed(id);
        assert_eq!(code, "CANCELLED", "{id}");
        let message = text(&record["error"]["message"]);
        assert!(
            message.contains("ann") && message.contains("no"),
            "{message}"
        );
        obeyed(&root, &name);
    }
    let (record, _) = root.failed("running");
    assert_eq!(outcomes(&record), ["cancelled"]);
    for name in ["running.kid", "running.far"] {
        assert!(!is_alive(root.pid_mark(name)), "{name}");
    }
    assert_eq!(root.failed("dependent").1, "DEPENDENCY_MISSING");
    root.assert_works("next");
    assert!(!root.path("marks/queued.ran").exists());
    root.assert_audit_is_sound();
}

#[test]
fn retry_gives_a_failed_one_a_new_budget_and_a_waiting_one_its_turn() {
    let root = Root::with("defaults.retry.max_retries = 1\ndefaults.retry.delay = '50ms'");
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &orders("[ $HANDOFF_ATTEMPT -ge 4 ]"));
    assert_eq!(outcomes(&root.failed("x").0), ["failed", "failed"]);
    retry(&root, "again.json", "x");
    let record = root.record_that("completed", "x", |_| true);
    assert_eq!(
        outcomes(&record),
        ["failed", "failed", "failed", "completed"]
    );
    assert_eq!(
        record["handoffd"]["previous"][0]["error"]["code"],
        "PROCESSING_ERROR"
    );
    obeyed(&root, "again.json");

    let policy = json!({ "retry_policy": { "retry_delay_seconds": 3600 } });
    root.drop_request("y", &with(orders("[ $HANDOFF_ATTEMPT = 2 ]"), policy));
    root.record("waiting", "y");
    retry(&root, "now.json", "y");
    assert_eq!(outcomes(&root.completed("y")), ["failed", "completed"]);
    obeyed(&root, "now.json");

    root.drop_request("z", &orders("mark up; forever"));
    root.mark("z.up");
    cancel(&root, "stop.json", "z");
    root.failed("z");
    fs::write(
        root.path("handoffs/control/yaml.yaml"),
        "action: retry\nhandoff_id: z\n",
    )
    .unwrap();
    root.record_that("in-progress", "z", |_| true);
    obeyed(&root, "yaml.yaml");
}

/// How many lines of the audit log tell of a refused command.
fn refusals(root: &Root) -> usize {
    let lines = root.names("audit").into_iter().filter_map(|name| {
        let text = fs::read_to_string(root.path("audit").join(name)).ok()?;
        Some(text.matches("\"event\":\"command_refused\"").count())
    });
    lines.sum()
}

#[test]
fn a_command_that_can_t_be_set_aside_is_told_of_and_goes_once_it_can() {
    for in_the_way in ["a link", "a link to nowhere", "a file"] {
        let root = Root::new();
        let _daemon = Daemon::start(&root);
        root.assert_works("good");
        let outside = tempfile::tempdir().unwrap();
        let rejected = root.path("handoffs/control/rejected");
        fs::rename(&rejected, root.path("handoffs/control/.r")).unwrap();
        match in_the_way {
            "a link" => std::os::unix::fs::symlink(outside.path(), &rejected).unwrap(),
            "a link to nowhere" => {
                std::os::unix::fs::symlink(outside.path().join("not-there"), &rejected).unwrap();
            }
            _ => fs::write(&rejected, "mine").unwrap(),
        }
        // Bytes that are no command, and a command that nobody can obey.
        fs::write(root.path("handoffs/control/evil"), "attacker").unwrap();
        cancel(&root, "nobody.json", "nosuch");
        wait_until("it is told", || {
            let told = root.problems();
            let stuck = told.contains("can't move the refused command handoffs/control/evil away");
            (stuck && told.contains("control/rejected is")).then_some(())
        });
        root.assert_works("better");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        assert_eq!(refusals(&root), 0, "{in_the_way}");
        fs::remove_file(&rejected).unwrap();
        assert!(refused(&root, "evil").contains("must end in .json"));
        assert!(refused(&root, "nobody.json").contains("nosuch"));
        wait_until("the problem is gone", || {
            (root.problems() == "[]").then_some(())
        });
        wait_until("the lines", || (refusals(&root) >= 2).then_some(()));
        assert_eq!(refusals(&root), 2, "{in_the_way}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        assert_eq!(root.names("handoffs/control"), [".r", "rejected"]);
    }
}

#[test]
fn a_stuck_command_that_somebody_takes_away_is_forgotten() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.assert_works("good");
    let rejected = root.path("handoffs/control/rejected");
    fs::remove_dir(&rejected).unwrap();
    fs::write(&rejected, "mine").unwrap();
    cancel(&root, "nobody.json", "nosuch");
    wait_until("it is told", || {
        root.problems().contains("nobody.json").then_some(())
    });
    fs::remove_file(root.path("handoffs/control/nobody.json")).unwrap();
    wait_until("it is forgotten", || {
        (root.problems() == "[]").then_some(())
    });
}

#[test]
fn what_has_nothing_to_act_on_is_told_what_to_do_instead() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("done", &orders("mark ran"));
    root.completed("done");
    root.drop_request("runs", &orders("mark up; forever"));
    root.mark("runs.up");
    let cases = [
        (
            "retry",
            "done",
            "can't retry done: already completed; to run it again: handoffd retry \
             --again done",
        ),
        (
            "retry",
            "runs",
            "can't retry runs: it is in progress; cancel it first, or wait until it ends",
        ),
        (
            "cancel",
            "done",
            "can't cancel done: already completed; nothing of it runs",
        ),
        (
            "approve",
            "done",
            "can't approve done: already completed; there is nothing to approve",
        ),
    ];
    for (action, id, reason) in cases {
        let name = format!("{action}-{id}.json");
        root.command(&name, &json!({ "action": action, "handoff_id": id }));
        assert_eq!(refused(&root, &name), reason);
    }
    fs::rename(
        root.path("handoffs/completed/done.json"),
        root.path("handoffs/pending/done.json"),
    )
    .unwrap();
    let again = root.record_that("completed", "done", |record| {
        !record["handoffd"]["previous"].is_null()
    });
    assert_eq!(outcomes(&again), ["completed", "completed"]);
}

#[test]
fn a_retry_does_not_pass_over_what_is_still_lacking() {
    let root = Root::with("defaults.retry.max_retries = 0\ndefaults.dependency_wait = '200ms'");
    let _daemon = Daemon::start(&root);
    root.drop_request("first", &orders("[ $HANDOFF_ATTEMPT = 2 ]"));
    let after = json!({ "depends_on": ["first"] });
    root.drop_request("second", &with(orders("mark ran"), after));
    assert_eq!(root.failed("second").1, "DEPENDENCY_MISSING");
    retry(&root, "early.json", "second");
    let reason = refused(&root, "early.json");
    assert!(
        reason.contains("second") && reason.contains("first"),
        "{reason}"
    );
    assert!(!root.path("marks/second.ran").exists());
    retry(&root, "first.json", "first");
    root.record_that("completed", "first", |_| true);
    retry(&root, "again.json", "second");
    root.record_that("completed", "second", |_| true);

    let needs = json!({ "requires_artifacts": ["artifacts/needed.txt"] });
    root.drop_request("third", &with(orders("mark ran"), needs));
    assert_eq!(root.failed("third").1, "DEPENDENCY_MISSING");
    retry(&root, "third.json", "third");
    root.record_that("failed", "third", |record| {
        record["handoffd"]["previous"].as_array().map(Vec::len) == Some(1)
    });
    assert!(!root.path("marks/third.ran").exists());
}

#[test]
fn what_can_t_be_carried_out_is_set_aside_with_the_reason() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.assert_works("done");
    cancel(&root, "unknown.json", "nobody");
    assert!(refused(&root, "unknown.json").contains("nobody"));
    cancel(&root, "late.json", "done");
    assert!(refused(&root, "late.json").contains("completed"));
    retry(&root, "needless.json", "done");
    refused(&root, "needless.json");
    root.command(
        "odd.json",
        &json!({ "action": "explode", "handoff_id": "done" }),
    );
    assert!(refused(&root, "odd.json").contains("action"));
    root.command("empty.json", &json!({}));
    assert!(refused(&root, "empty.json").contains("handoff_id"));
    root.command(
        "sly.json",
        &json!({ "action": "cancel", "handoff_id": "../../etc/passwd" }),
    );
    refused(&root, "sly.json");
    fs::write(root.path("handoffs/control/broken.json"), "{ nonsense").unwrap();
    assert!(refused(&root, "broken.json").contains("line 1"));
    fs::write(root.path("handoffs/control/note.txt"), "hello").unwrap();
    refused(&root, "note.txt");
    std::os::unix::fs::symlink("/dev/zero", root.path("handoffs/control/link.json")).unwrap();
    refused(&root, "link.json");
    root.drop_request("busy", &orders("mark up; await go"));
    root.mark("busy.up");
    retry(&root, "busy.json", "busy");
    assert!(refused(&root, "busy.json").contains("in progress"));
    root.allow("go");
    root.completed("busy");
    assert_eq!(root.completed("done")["status"], "completed", "untouched");
    assert_eq!(root.names("handoffs/control"), ["rejected"]);
    root.assert_works("good");
    root.assert_audit_is_sound();
}

#[test]
fn a_command_may_name_the_revision_that_it_answers() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let later = json!({ "not_before": "2999-01-01T00:00:00Z" });
    root.drop_request("x", &with(orders("exit 0"), later));
    let record = root.waiting("x");
    let revision = record["handoffd"]["revision"].as_u64().unwrap();
    let command =
        |revision: u64| json!({ "action": "cancel", "handoff_id": "x", "revision": revision });
    root.command("old.json", &command(revision + 1));
    assert!(refused(&root, "old.json").contains("revision"));
    assert_eq!(root.states_of("x"), ["waiting"]);
    root.command("right.json", &command(revision));
    assert_eq!(root.failed("x").1, "CANCELLED");
    obeyed(&root, "right.json");
}

#[test]
fn a_running_handoff_is_cancelled_only_at_the_revision_that_is_named() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &orders("mark up; forever"));
    root.mark("x.up");
    let record = root.record("in-progress", "x");
    let revision = record["handoffd"]["revision"].as_u64().unwrap();
    let command =
        |revision: u64| json!({ "action": "cancel", "handoff_id": "x", "revision": revision });
    root.command("old.json", &command(revision + 7));
    assert!(refused(&root, "old.json").contains("revision"));
    assert_eq!(root.states_of("x"), ["in-progress"]);
    root.command("right.json", &command(revision));
    assert_eq!(root.failed("x").1, "CANCELLED");
    obeyed(&root, "right.json");
}

#[test]
fn commands_that_came_while_nobody_was_there_are_carried_out() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    root.drop_request("runs", &orders("mark up; forever"));
    root.mark("runs.up");
    root.drop_request("fails", &orders("[ $HANDOFF_ATTEMPT = 2 ] || exit 64"));
    root.failed("fails");
    daemon.kill();
    cancel(&root, "a.json", "runs");
    retry(&root, "b.json", "fails");
    root.drop_request("new", &orders("mark ran"));
    cancel(&root, "c.json", "new");
    let _daemon = Daemon::start(&root);
    let (record, code) = root.failed("runs");
    assert_eq!(
        (code.as_str(), outcomes(&record)),
        ("CANCELLED", vec!["cancelled".to_owned()])
    );
    root.record_that("completed", "fails", |_| true);
    for name in ["a.json", "b.json"] {
        obeyed(&root, name);
    }
    wait_until("new ends", || {
        ["completed", "failed"]
            .iter()
            .find(|end| root.state(end, "new").exists())
    });
}

#[test]
fn an_answer_that_the_daemon_refuses_is_told_with_its_reason() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let to_a_person = json!({"target": {"agent_id": "human"}});
    root.drop_request("dropped", &to_a_person);
    root.record("waiting", "dropped");
    let output = root.cli(&["ask", "dropped", "--comment", "why?"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no agent sent it"), "{said}");
    let sent = with(to_a_person, json!({"source": {"agent_id": "@stranger"}}));
    root.drop_request("asked", &sent);
    root.record("waiting", "asked");
    // Whether somebody could answer it is known to the daemon alone.
    let output = root.cli(&["ask", "asked", "--comment", "why?", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["status"], "refused");
    let reason = text(&told["reason"]);
    assert!(reason.contains("not a configured specialist"), "{reason}");
    assert_eq!(root.states_of("asked"), ["waiting"]);
    let output = root.cli(&["reject", "asked", "--comment", "not now", "--by", "me"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, "reject asked: done\n");
    let (record, code) = root.failed("asked");
    assert_eq!(code, "REJECTED");
    assert_eq!(record["answer"]["comment"], "not now");
}
