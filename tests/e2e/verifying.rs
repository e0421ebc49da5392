//! Verify commands: who looks at the work before it counts as done, and what a crash does.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::artifacts::lines_of;
use crate::common::{
    Daemon, FAKE, Root, is_alive, keeper, keepers, kill, orders, outcomes, text, wait_until, with,
};

/// A root whose specialist's work is verified by what the request says under `check`.
fn verified(config: &str) -> Root {
    Root::with(&format!(
        "specialists.'@fake'.verify = ['sh', '{FAKE}', 'check']\n{config}"
    ))
}

fn checked(sh: &str, check: &str) -> Value {
    with(orders(sh), json!({ "check": check }))
}

fn starts(root: &Root, mark: &str) -> usize {
    root.mark(mark).lines().count()
}

/// The process that left this mark.
fn pid_of(root: &Root, mark: &str) -> i32 {
    let line = root.mark(mark);
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn claimed_and_verified_stand_apart() {
    let root = verified("defaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    let claims = "mark ran; echo '{\"summary\": \"s\", \"validation\": {\"status\": \"passed\", \
                  \"coverage\": 87}}'";
    let all = [
        ("yes", "exit 0", "passed"),
        ("words", "echo fine", "passed"),
        ("figures", "echo '{\"tests\": 12}'", "passed"),
        ("no", "echo nope >&2; exit 1", "failed"),
        ("says-no", "echo '{\"status\": \"failed\"}'", "failed"),
        ("killed", "kill -KILL $$", "failed"),
    ];
    for (id, check, _) in all {
        root.drop_request(id, &checked(claims, check));
    }
    for (id, _, status) in all {
        let state = if status == "passed" {
            "completed"
        } else {
            "failed"
        };
        let record = root.record(state, id);
        let validation = &record["validation"];
        assert_eq!(validation["status"], status, "{id}: {record:#}");
        assert_eq!(validation["claimed"], "passed", "{id}");
        assert_eq!(validation["coverage"], 87, "{id}");
        assert_eq!(record["result"]["summary"], "s", "{id}");
        assert_eq!(starts(&root, &format!("{id}.ran")), 1, "{id}");
        if status == "failed" {
            assert_eq!(record["error"]["code"], "VALIDATION_FAILED", "{id}");
            assert!(text(&record["error"]["message"]).contains("verify"), "{id}");
        }
    }
    let said = |id: &str, state: &str| root.record(state, id)["validation"]["verify"].clone();
    assert_eq!(said("yes", "completed")["exit_code"], 0);
    assert_eq!(said("words", "completed")["output"], "fine");
    assert_eq!(said("figures", "completed")["result"]["tests"], 12);
    assert_eq!(said("no", "failed")["exit_code"], 1);
    assert_eq!(said("no", "failed")["stderr"], "nope");
    assert_eq!(said("killed", "failed")["signal"], 9);
    root.assert_audit_is_sound();
}

#[test]
fn what_was_said_against_it_reaches_the_next_attempt() {
    let root = verified("");
    let _daemon = Daemon::start(&root);
    let sh = "printf '%s\\n' \"$HANDOFF_LAST_ERROR\" >$HANDOFF_ROOT/marks/told.$HANDOFF_ATTEMPT";
    let check = "mark checked; [ $HANDOFF_ATTEMPT = 2 ] || { echo two tests fail >&2; exit 1; }";
    root.drop_request("x", &checked(sh, check));
    let record = root.completed("x");
    assert_eq!(outcomes(&record), ["failed", "completed"]);
    let error = &record["handoffd"]["attempts"][0]["error"];
    assert_eq!(error["code"], "VALIDATION_FAILED");
    assert!(root.mark("told.2").contains("two tests fail"));
    assert_eq!(starts(&root, "x.checked"), 2);
}

#[test]
fn only_work_that_succeeded_is_verified_and_with_all_that_it_left() {
    let root = Root::with(
        "defaults.retry.max_retries = 0\n\
         specialists.'@fake'.verify = ['sh', '-c', 'cat >marks/$HANDOFF_ID.stdin; echo >>marks/$HANDOFF_ID.stdin']\n\
         specialists.lost.command = ['true']\nspecialists.lost.verify = ['no/such/thing']",
    );
    let _daemon = Daemon::start(&root);
    let expected = json!({ "expected_output": { "destination": "artifacts/x.json" } });
    let sh = "echo '{\"summary\": \"s\", \"artifact\": {\"a\": 1}}'";
    root.drop_request("x", &with(orders(sh), expected.clone()));
    root.completed("x");
    let seen: Value = serde_json::from_str(&root.mark("x.stdin")).unwrap();
    assert_eq!(seen["handoff_id"], "x");
    assert_eq!(seen["result"]["summary"], "s");
    assert_eq!(seen["output"]["artifact_path"], "artifacts/x.json");
    for (id, sh) in [
        ("bad", "exit 3"),
        ("blocked", "echo '{\"status\": \"blocked\"}'"),
        ("nothing", "exit 0"),
    ] {
        root.drop_request(id, &with(orders(sh), expected.clone()));
        root.failed(id);
        assert!(!root.path(&format!("marks/{id}.stdin")).exists(), "{id}");
    }
    // What the person should look at is verified before.
    let review = "echo '{\"status\": \"needs_review\", \"phase\": \"p\", \"summary\": \"s\"}'";
    root.drop_request("review", &orders(review));
    root.record("waiting", "review");
    assert!(root.path("marks/review.stdin").exists());
    root.drop_request("lost", &json!({ "target": { "agent_id": "lost" } }));
    let (record, code) = root.failed("lost");
    assert_eq!(code, "VALIDATION_FAILED");
    let message = text(&record["error"]["message"]);
    assert!(message.contains("no/such/thing"), "{message}");
}

#[test]
fn a_verify_command_has_its_limits_and_leaves_nobody_behind() {
    let root = verified("defaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    let limit = json!({ "timeout_seconds": 2 });
    let slow = with(
        checked("exit 0", "away far; child near; stubborn; forever"),
        limit,
    );
    root.drop_request("slow", &slow);
    let (record, code) = root.failed("slow");
    assert_eq!(code, "TIMEOUT");
    assert_eq!(outcomes(&record), ["timeout"]);
    assert_eq!(record["validation"]["status"], "failed");
    assert!(text(&record["error"]["message"]).contains("verify"));
    root.drop_request("quick", &checked("exit 0", "away far; child near; exit 0"));
    root.completed("quick");
    for mark in ["slow.far", "slow.near", "quick.far", "quick.near"] {
        assert!(!is_alive(root.pid_mark(mark)), "{mark}");
    }
    root.drop_request(
        "gone",
        &checked("mark ran", "away far; mark up; stubborn; forever"),
    );
    root.mark("gone.up");
    root.command(
        "c.json",
        &json!({ "action": "cancel", "handoff_id": "gone" }),
    );
    let (record, code) = root.failed("gone");
    assert_eq!(code, "CANCELLED");
    assert_eq!(outcomes(&record), ["cancelled"]);
    assert!(!is_alive(root.pid_mark("gone.far")));
    assert!(!is_alive(pid_of(&root, "gone.up")));
    assert_eq!(starts(&root, "gone.ran"), 1);
    let left = root.names(".handoffd/run");
    assert!(!left.iter().any(|name| name.contains("verify")), "{left:?}");
}

#[test]
fn verifying_takes_a_place_like_the_work_itself() {
    let root = verified("daemon.max_concurrent = 1");
    let _daemon = Daemon::start(&root);
    let busy = "$HANDOFF_ROOT/marks/busy";
    let alone = format!("[ ! -e {busy} ] || mark overlap");
    let check = format!("touch {busy}; mark up; await go; rm {busy}");
    root.drop_request("x", &checked(&alone, &check));
    root.mark("x.up");
    for n in 0..5 {
        root.drop_request(&format!("y{n}"), &checked(&alone, &alone));
    }
    wait_until("all are read", || {
        let status = root.cli(&["status", "--json"]).stdout;
        let status: Value = serde_json::from_slice(&status).unwrap();
        (status["counts"]["pending"] == 5).then_some(())
    });
    root.allow("go");
    root.completed("x");
    for n in 0..5 {
        root.completed(&format!("y{n}"));
    }
    assert_eq!(root.names("marks"), ["go", "x.up"]);
}

#[test]
fn a_verify_command_that_outlives_the_daemon_is_adopted() {
    let root = verified("defaults.retry.max_retries = 0");
    let daemon = Daemon::start(&root);
    root.drop_request("yes", &checked("mark ran", "mark up; await go"));
    root.drop_request("no", &checked("mark ran", "mark up; await go; exit 1"));
    root.drop_request("gone", &checked("mark ran", "mark up; forever"));
    for id in ["yes", "no", "gone"] {
        root.mark(&format!("{id}.up"));
    }
    daemon.kill();
    let _daemon = Daemon::start(&root);
    for id in ["yes", "no", "gone"] {
        assert_eq!(root.states_of(id), ["in-progress"]);
    }
    root.command(
        "c.json",
        &json!({ "action": "cancel", "handoff_id": "gone" }),
    );
    assert_eq!(root.failed("gone").1, "CANCELLED");
    root.allow("go");
    assert_eq!(root.completed("yes")["validation"]["status"], "passed");
    assert_eq!(root.failed("no").1, "VALIDATION_FAILED");
    for id in ["yes", "no", "gone"] {
        assert_eq!(starts(&root, &format!("{id}.ran")), 1, "{id}");
        assert_eq!(starts(&root, &format!("{id}.up")), 1, "{id}");
    }
    root.assert_audit_is_sound();
}

#[test]
fn a_verify_command_that_ended_while_no_daemon_ran_is_believed() {
    let root = verified("defaults.retry.max_retries = 0");
    let daemon = Daemon::start(&root);
    root.drop_request(
        "yes",
        &checked("mark ran; echo '{\"a\": 1}'", "mark up; await go; echo ok"),
    );
    root.drop_request("no", &checked("mark ran", "mark up; await go; exit 7"));
    let pids = ["yes", "no"].map(|id| pid_of(&root, &format!("{id}.up")));
    daemon.kill();
    root.allow("go");
    wait_until("they end", || {
        (!pids.into_iter().any(is_alive) && keepers(root.dir()).is_empty()).then_some(())
    });
    let _daemon = Daemon::start(&root);
    let yes = root.completed("yes");
    assert_eq!(yes["validation"]["verify"]["output"], "ok");
    assert_eq!(yes["result"]["a"], 1);
    let (no, _) = root.failed("no");
    assert_eq!(no["validation"]["verify"]["exit_code"], 7);
    for id in ["yes", "no"] {
        assert_eq!(starts(&root, &format!("{id}.ran")), 1, "{id}");
        assert_eq!(starts(&root, &format!("{id}.up")), 1, "{id}");
    }
    let left = root.names(".handoffd/run");
    assert!(!left.iter().any(|name| name.contains("verify")), "{left:?}");
}

#[test]
fn without_daemon_and_keeper_it_is_asked_again_and_never_twice_at_once() {
    for with_daemon in [false, true] {
        let root = verified("defaults.retry.max_retries = 0");
        let mut daemon = Daemon::start(&root);
        root.drop_request("x", &checked("mark ran", "alone await go"));
        root.mark("x.notes");
        let keeper = keeper(root.dir());
        if with_daemon {
            daemon.kill();
            kill(keeper, Signal::KILL);
            wait_until("the keeper is gone", || (!is_alive(keeper)).then_some(()));
            daemon = Daemon::start(&root);
        } else {
            kill(keeper, Signal::KILL);
            wait_until("another keeper", || {
                let others = keepers(root.dir());
                (!is_alive(keeper) && !others.is_empty()).then_some(())
            });
        }
        root.allow("go");
        let record = root.completed("x");
        assert_eq!(record["validation"]["status"], "passed");
        assert!(!root.mark("x.notes").contains("overlap"));
        assert_eq!(starts(&root, "x.ran"), 1, "the work is done");
        drop(daemon);
    }
}

#[test]
fn a_daemon_that_leaves_its_attempts_leaves_verify_commands_too() {
    let root = verified("daemon.on_stop = 'detach'");
    let daemon = Daemon::start(&root);
    root.drop_request("x", &checked("mark ran", "mark up; await go"));
    root.mark("x.up");
    assert_eq!(daemon.terminate(), Some(0));
    let _daemon = Daemon::start(&root);
    root.allow("go");
    root.completed("x");
    assert_eq!(starts(&root, "x.ran"), 1);
    assert_eq!(starts(&root, "x.up"), 1);
}

#[test]
fn a_stop_in_the_middle_is_not_held_against_it() {
    let root = verified("daemon.shutdown_grace = '200ms'\ndefaults.retry.max_retries = 0");
    let daemon = Daemon::start(&root);
    root.drop_request("x", &checked("mark ran", "mark up; await go"));
    let pid = pid_of(&root, "x.up");
    assert_eq!(daemon.terminate(), Some(0));
    assert!(!is_alive(pid));
    let _daemon = Daemon::start(&root);
    root.allow("go");
    let record = root.completed("x");
    assert_eq!(record["handoffd"]["interruptions"], Value::Null);
    assert_eq!(outcomes(&record).last().unwrap(), "completed");
    let log = fs::read_dir(root.path(".handoffd/run")).unwrap();
    assert!(
        !log.flatten()
            .any(|it| it.file_name().to_string_lossy().ends_with(".stdin"))
    );
}

#[test]
fn a_cancel_while_it_is_verified_is_still_one_after_a_crash() {
    for with_keeper in [false, true] {
        let root = verified("defaults.kill_grace = '2s'");
        let daemon = Daemon::start(&root);
        let check = "trap 'mark told' TERM; mark up; while :; do sleep 0.05; done";
        root.drop_request("x", &checked("mark ran", check));
        root.mark("x.up");
        root.command("c.json", &json!({ "action": "cancel", "handoff_id": "x" }));
        root.mark("x.told");
        let keeper = keeper(root.dir());
        daemon.kill();
        if with_keeper {
            kill(keeper, Signal::KILL);
        }
        let _daemon = Daemon::start(&root);
        let (record, code) = root.failed("x");
        assert_eq!(code, "CANCELLED", "{record:#}");
        assert_eq!(outcomes(&record), ["cancelled"]);
        assert_eq!(starts(&root, "x.ran"), 1);
        assert_eq!(starts(&root, "x.up"), 1);
    }
}

#[test]
fn kills_in_between_lose_nothing_and_double_nothing() {
    let root = verified("");
    let mut daemon = Daemon::start(&root);
    let ids: Vec<String> = (0..24).map(|n| format!("x{n}")).collect();
    let expected = json!({ "expected_output": { "destination": "artifacts/{handoff_id}.json" } });
    for id in &ids {
        let sh = "mark ran; echo '{\"artifact\": {\"a\": 1}}'";
        root.drop_request(
            id,
            &with(
                checked(sh, "alone [ -s $HANDOFF_ARTIFACT ]"),
                expected.clone(),
            ),
        );
    }
    for done in [1, 3, 6, 10, 15, 20] {
        wait_until("some are done", || {
            (root.names("handoffs/completed").len() >= done).then_some(())
        });
        daemon.kill();
        daemon = Daemon::start(&root);
    }
    for id in &ids {
        let record = root.completed(id);
        assert_eq!(record["validation"]["status"], "passed", "{id}");
        assert_eq!(lines_of(&root, id).len(), 1, "{id}");
        // One that was claimed and never begun is listed too.
        let ran = starts(&root, &format!("{id}.ran"));
        assert!(ran <= outcomes(&record).len(), "{id}: {ran} {record:#}");
        assert!(
            !root.mark(&format!("{id}.notes")).contains("overlap"),
            "{id}"
        );
    }
    root.assert_audit_is_sound();
    drop(daemon);
}

#[test]
fn the_text_of_verified_work_is_kept_once() {
    let root = Root::with("specialists.'@fake'.verify = ['true']");
    let _daemon = Daemon::start(&root);
    let sh = "printf '# Tiles\\n\\n```json\\n{\"status\": \"ok\", \"summary\": \"s\"}\\n```\\n'";
    root.drop_request("x", &orders(sh));
    let record = root.completed("x");
    assert_eq!(record["output"]["artifact_path"], "artifacts/x.md");
    let mut kept = root.names("artifacts");
    kept.retain(|name| name != "registry.jsonl");
    assert_eq!(kept, ["x.md"]);
}
