//! `kill -9`: of the daemon, of the keeper, of both, while attempts run.

use rustix::process::Signal;
use serde_json::json;

use crate::common::{
    Daemon, Root, is_alive, keeper, keepers, kill, kill_keeper, orders, outcomes, text, wait_until,
    with,
};

#[test]
fn an_attempt_that_outlives_the_daemon_is_adopted_and_not_run_twice() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    root.drop_request(
        "good",
        &orders("mark up; await go; result '{\"summary\": \"long work\"}'"),
    );
    root.drop_request("bad", &orders("mark up; await go; echo sorry >&2; exit 65"));
    root.mark("good.up");
    root.mark("bad.up");
    daemon.kill();
    let _daemon = Daemon::start(&root);
    assert_eq!(root.states_of("good"), ["in-progress"]);
    root.allow("go");
    let record = root.completed("good");
    assert_eq!(outcomes(&record), ["completed"]);
    assert_eq!(record["result"]["summary"], "long work");
    let (record, _) = root.failed("bad");
    assert_eq!(record["handoffd"]["attempts"][0]["exit_code"], 65);
    assert!(text(&record["error"]["message"]).contains("sorry"));
    for id in ["good", "bad"] {
        assert_eq!(root.mark(&format!("{id}.up")).lines().count(), 1);
    }
    root.assert_audit_is_sound();
}

#[test]
fn an_attempt_that_ended_while_no_daemon_ran_is_judged_by_its_exit_code() {
    let root = Root::with("defaults.retry.max_retries = 0");
    let daemon = Daemon::start(&root);
    let all = [
        ("ok", "exit 0"),
        ("bad", "exit 3"),
        ("killed", "kill -KILL $$"),
        ("liar", "echo '{\"status\": \"complete\"}'; exit 1"),
    ];
    for (id, end) in all {
        root.drop_request(id, &orders(&format!("mark up; await go; {end}")));
    }
    let pids: Vec<i32> = all
        .iter()
        .map(|(id, _)| {
            let mark = root.mark(&format!("{id}.up"));
            mark.split_whitespace().nth(1).unwrap().parse().unwrap()
        })
        .collect();
    daemon.kill();
    root.allow("go");
    wait_until("they end", || {
        pids.iter().all(|pid| !is_alive(*pid)).then_some(())
    });
    wait_until("the keeper leaves", || {
        keepers(root.dir()).is_empty().then_some(())
    });
    let _daemon = Daemon::start(&root);
    assert_eq!(
        root.completed("ok")["handoffd"]["attempts"][0]["exit_code"],
        0
    );
    assert_eq!(
        root.failed("bad").0["handoffd"]["attempts"][0]["exit_code"],
        3
    );
    assert_eq!(
        root.failed("killed").0["handoffd"]["attempts"][0]["signal"],
        9
    );
    assert_eq!(
        root.failed("liar").0["handoffd"]["attempts"][0]["exit_code"],
        1
    );
}

#[test]
fn a_deadline_holds_while_no_daemon_runs_and_after_it() {
    let root = Root::with("defaults.retry.max_retries = 0");
    let daemon = Daemon::start(&root);
    let limit = json!({ "timeout_seconds": 1.5 });
    root.drop_request(
        "x",
        &with(orders("away far; stubborn; mark up; forever"), limit),
    );
    let pid = root.pid_mark("x.far");
    root.mark("x.up");
    daemon.kill();
    wait_until("the keeper ends it", || (!is_alive(pid)).then_some(()));
    let _daemon = Daemon::start(&root);
    let (record, code) = root.failed("x");
    assert_eq!(code, "TIMEOUT");
    assert_eq!(outcomes(&record), ["timeout"]);
}

/// Told to end, and taking its time: what the daemon's death falls into.
const SLOW_TO_GO: &str = "trap 'mark told' TERM; mark up; while :; do sleep 0.05; done";

#[test]
fn a_cancel_that_was_under_way_is_still_a_cancel_after_a_crash() {
    // Adopted while it goes, taken over by another keeper, and over before anybody looks.
    for (with_keeper, gone) in [(false, false), (true, false), (false, true)] {
        let root = Root::with("defaults.kill_grace = '1s'");
        let daemon = Daemon::start(&root);
        root.drop_request("x", &orders(&format!("away far; {SLOW_TO_GO}")));
        let pid = root.pid_mark("x.far");
        root.mark("x.up");
        let revision = root.record("in-progress", "x")["handoffd"]["revision"].clone();
        let command = json!({ "action": "cancel", "handoff_id": "x", "by": "kim",
            "comment": "no more", "revision": revision });
        root.command("c.json", &command);
        root.mark("x.told");
        let keeper = keeper(root.dir());
        daemon.kill();
        if with_keeper {
            kill(keeper, Signal::KILL);
        }
        if gone {
            wait_until("it is over", || (!is_alive(pid)).then_some(()));
        }
        let _daemon = Daemon::start(&root);
        let (record, code) = root.failed("x");
        assert_eq!(code, "CANCELLED");
        assert_eq!(outcomes(&record), ["cancelled"]);
        let message = text(&record["error"]["message"]);
        assert_eq!(message, "cancelled while it ran, by kim: no more");
        wait_until("the command is gone", || {
            (root.names("handoffs/control") == ["rejected"]).then_some(())
        });
        assert!(root.names("handoffs/control/rejected").is_empty());
        assert_eq!(root.told("x", "command"), 1);
        root.assert_audit_is_sound();
    }
}

#[test]
fn a_time_out_that_was_under_way_is_still_one_after_a_crash() {
    let root = Root::with("defaults.kill_grace = '2s'\ndefaults.retry.max_retries = 0");
    let daemon = Daemon::start(&root);
    root.drop_request(
        "x",
        &with(orders(SLOW_TO_GO), json!({ "timeout_seconds": 1 })),
    );
    root.mark("x.told");
    let keeper = keeper(root.dir());
    daemon.kill();
    kill(keeper, Signal::KILL);
    let _daemon = Daemon::start(&root);
    let (record, code) = root.failed("x");
    assert_eq!(
        (code.as_str(), outcomes(&record)),
        ("TIMEOUT", vec!["timeout".to_owned()])
    );
}

#[test]
fn a_retry_s_wait_survives_and_is_not_served_twice() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let policy = json!({ "retry_policy": { "retry_delay_seconds": 3 } });
    root.drop_request("x", &with(orders("[ $HANDOFF_ATTEMPT = 2 ]"), policy));
    let until = text(&root.record("waiting", "x")["waiting"]["until"]);
    daemon.kill();
    let daemon = Daemon::start(&root);
    assert_eq!(
        text(&root.record("waiting", "x")["waiting"]["until"]),
        until
    );
    daemon.kill();
    let _daemon = Daemon::start(&root);
    let record = root.completed("x");
    assert!(text(&record["started_at"]) >= until);
    assert_eq!(outcomes(&record), ["failed", "completed"]);
}

#[test]
fn without_daemon_and_keeper_attempts_are_still_found_and_never_doubled() {
    keeper_and_daemon_are_killed(Daemon::start);
}

#[test]
fn without_cgroups_too_attempts_are_found_after_the_keeper_is_killed() {
    keeper_and_daemon_are_killed(Daemon::start_without_cgroups);
}

fn keeper_and_daemon_are_killed(start: fn(&Root) -> Daemon) {
    let root = Root::new();
    let daemon = start(&root);
    for n in 0..3 {
        root.drop_request(&format!("x{n}"), &orders("alone await go; echo whole"));
    }
    for n in 0..3 {
        root.mark(&format!("x{n}.notes"));
    }
    let keeper = keeper(root.dir());
    daemon.kill();
    kill(keeper, Signal::KILL);
    wait_until("the keeper is gone", || (!is_alive(keeper)).then_some(()));
    let _daemon = start(&root);
    root.allow("go");
    for n in 0..3 {
        let id = format!("x{n}");
        root.completed(&id);
        assert!(
            !root.mark(&format!("{id}.notes")).contains("overlap"),
            "{id}"
        );
    }
}

#[test]
fn a_keeper_that_is_killed_under_a_living_daemon_is_replaced() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &orders("alone await go"));
    root.mark("x.notes");
    let keeper = keeper(root.dir());
    kill(keeper, Signal::KILL);
    wait_until("another keeper", || {
        keepers(root.dir())
            .iter()
            .any(|pid| *pid != keeper && !is_alive(keeper))
            .then_some(())
    });
    root.drop_request("y", &orders("exit 0"));
    root.completed("y");
    root.allow("go");
    root.completed("x");
    assert!(!root.mark("x.notes").contains("overlap"));
}

#[test]
fn an_attempt_lost_too_often_is_given_up() {
    let root = Root::with("daemon.max_interruptions = 2");
    let mut daemon = Daemon::start(&root);
    root.drop_request(
        "x",
        &orders("echo $$ >$HANDOFF_ROOT/marks/pid.$HANDOFF_ATTEMPT; forever"),
    );
    for attempt in 1..=2 {
        let pid = root.pid_mark(&format!("pid.{attempt}"));
        daemon.kill();
        // As a machine that goes down: everyone, and nobody is left to write anything.
        for keeper in keepers(root.dir()) {
            kill(keeper, Signal::KILL);
        }
        kill(pid, Signal::KILL);
        wait_until("all are gone", || {
            (keepers(root.dir()).is_empty() && !is_alive(pid)).then_some(())
        });
        daemon = Daemon::start(&root);
    }
    let (record, code) = root.failed("x");
    assert_eq!(code, "INTERRUPTED");
    assert_eq!(outcomes(&record), ["interrupted", "interrupted"]);
}

#[test]
fn a_hundred_running_specialists_survive_an_upgrade() {
    let root = Root::with("daemon.max_concurrent = 100\ndefaults.retry.max_retries = 0");
    let daemon = Daemon::start(&root);
    let sh = "mark up; await go; exit ";
    for n in 0..100 {
        root.drop_request(&format!("x{n}"), &orders(&format!("{sh}{}", n % 50)));
    }
    for n in 0..100 {
        root.mark(&format!("x{n}.up"));
    }
    daemon.kill();
    let _daemon = Daemon::start(&root);
    assert_eq!(root.names("handoffs/in-progress").len(), 100);
    root.allow("go");
    for n in 0..100 {
        let id = format!("x{n}");
        let state = if n % 50 == 0 { "completed" } else { "failed" };
        let record = root.record(state, &id);
        assert_eq!(
            record["handoffd"]["attempts"][0]["exit_code"],
            n % 50,
            "{id}"
        );
        assert_eq!(outcomes(&record).len(), 1);
        assert_eq!(root.mark(&format!("{id}.up")).lines().count(), 1);
    }
}

#[test]
fn what_a_killed_keeper_had_not_forgotten_yet_is_forgotten() {
    let root = Root::with("daemon.max_concurrent = 2");
    let _daemon = Daemon::start(&root);
    root.drop_request("stays", &orders("mark up; await go"));
    root.mark("stays.up");
    for round in 0..3 {
        for n in 0..5 {
            root.assert_works(&format!("r{round}-{n}"));
        }
        kill_keeper(&root);
    }
    root.allow("go");
    root.completed("stays");
    wait_until("all to be forgotten", || {
        let known = handoffd::keeper::journal::read(&root.path(".handoffd/run")).unwrap();
        known.is_empty().then_some(())
    });
}
