//! How long a resident process lives: until its share is done or its command changes, and through
//! the ends of daemons and keepers.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use super::{command, pid_of, processes, resident, told};
use crate::common::{Daemon, FAKE, is_alive, keeper, kill, outcomes, wait_until, with};

#[test]
fn a_crash_while_the_work_is_verified_does_not_cost_the_work() {
    let root = resident(&format!(
        "specialists.'@res'.verify = ['sh', '{FAKE}', 'check']"
    ));
    let daemon = Daemon::start(&root);
    let check = json!({ "check": "mark checking; await go" });
    root.drop_request(
        "x",
        &with(told("mark ran; answer '\"summary\":\"s\"'"), check),
    );
    root.mark("x.checking");
    daemon.kill();
    let _daemon = Daemon::start(&root);
    root.allow("go");
    let record = root.completed("x");
    assert_eq!(outcomes(&record), ["completed"]);
    assert_eq!(record["result"]["summary"], "s");
    assert_eq!(root.mark("x.ran").lines().count(), 1);
    assert_eq!(root.mark("x.checking").lines().count(), 1);
}

#[test]
fn a_process_is_replaced_after_its_share_and_at_its_age() {
    let root = resident("specialists.'@res'.max_handoffs = 3");
    let _daemon = Daemon::start(&root);
    for n in 0..9 {
        root.drop_request(&format!("x{n}"), &told("ok"));
    }
    for n in 0..9 {
        assert_eq!(outcomes(&root.completed(&format!("x{n}"))), ["completed"]);
    }
    assert_eq!(processes(&root).len(), 3);
    // Each saw the end of file and left by itself.
    wait_until("all left", || {
        (root.mark("resident.let-go").lines().count() == 3).then_some(())
    });

    let root = resident("specialists.'@res'.max_age = '1s'\nspecialists.'@res'.linger = '200ms'");
    let _daemon = Daemon::start(&root);
    root.drop_request("old", &told("trap '' TERM; ok; sleep 600"));
    let pid = pid_of(&root.completed("old"));
    wait_until("it is ended, though it does not listen", || {
        (!is_alive(pid)).then_some(())
    });
    root.drop_request("new", &told("ok"));
    assert_ne!(pid_of(&root.completed("new")), pid);
}

#[test]
fn after_a_kill_of_the_daemon_the_old_tree_is_gone_before_anything_runs_again() {
    for also_the_keeper in [false, true] {
        let root = resident("specialists.'@res'.max_concurrent = 2");
        let daemon = Daemon::start(&root);
        // It ignores the end of file and SIGTERM, and says if another is alive when it starts.
        let sh = "trap '' TERM HUP; for p in $(cat marks/$id.pids 2>/dev/null); do \
                  case $(sed 's/.*) //' /proc/$p/stat 2>/dev/null) in ''|[ZX]*) ;; *) mark \
                  overlap ;; esac; done; echo $$ >>marks/$id.pids; mark up; \
                  [ $attempt != 1 ] && ok || while :; do sleep 600; done";
        root.drop_request("x", &told(sh));
        root.drop_request("y", &told(sh));
        root.mark("x.up");
        root.mark("y.up");
        if also_the_keeper {
            kill(keeper(root.dir()), Signal::KILL);
        }
        daemon.kill();
        let _daemon = Daemon::start(&root);
        for id in ["x", "y"] {
            let record = root.completed(id);
            assert_eq!(outcomes(&record), ["interrupted", "completed"]);
            assert_eq!(
                record["handoffd"]["interruptions"], 1,
                "it counts: {record:#}"
            );
            assert!(!root.path(&format!("marks/{id}.overlap")).exists());
        }
        for pid in &processes(&root)[..2] {
            assert!(!is_alive(*pid));
        }
        root.assert_audit_is_sound();
    }
}

#[test]
fn a_process_lives_through_the_death_of_the_keeper() {
    let root = resident("");
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &told("mark up; await go; ok"));
    root.mark("x.up");
    // Killed before that, the keeper leaves a process that the next one can only end.
    wait_until("the keeper's journal to have its pid", || {
        let known = handoffd::keeper::journal::read(&root.path(".handoffd/run")).unwrap();
        known.iter().any(|entry| entry.pid.is_some()).then_some(())
    });
    kill(keeper(root.dir()), Signal::KILL);
    root.assert_works("other");
    root.allow("go");
    assert_eq!(outcomes(&root.completed("x")), ["completed"]);
    root.drop_request("y", &told("ok"));
    root.completed("y");
    assert_eq!(processes(&root).len(), 1);
    // The new keeper can end it, too.
    root.drop_request("z", &told("mark up; sleep 600"));
    root.mark("z.up");
    root.command("c.json", &json!({ "action": "cancel", "handoff_id": "z" }));
    assert_eq!(root.failed("z").1, "CANCELLED");
    assert!(!is_alive(processes(&root)[0]));
}

#[test]
fn a_stop_waits_for_what_runs_and_a_detach_interrupts_it() {
    let root = resident("");
    let daemon = Daemon::start(&root);
    root.drop_request("x", &told("mark up; await go; ok"));
    root.mark("x.up");
    daemon.signal(Signal::TERM);
    root.allow("go");
    root.completed("x");
    let mut daemon = daemon;
    assert_eq!(daemon.exit_code(), Some(0));
    assert!(!is_alive(processes(&root)[0]));

    let root = resident("daemon.on_stop = 'detach'");
    let daemon = Daemon::start(&root);
    root.drop_request("x", &told("mark up; [ $attempt = 2 ] && ok || sleep 600"));
    root.mark("x.up");
    assert_eq!(daemon.terminate(), Some(0));
    assert!(!is_alive(processes(&root)[0]));
    assert_eq!(root.states_of("x"), ["waiting"]);
    let _daemon = Daemon::start(&root);
    let record = root.completed("x");
    assert_eq!(outcomes(&record), ["interrupted", "completed"]);
    assert!(
        record["handoffd"].get("interruptions").is_none(),
        "a stop is not counted"
    );
}

#[test]
fn a_changed_command_is_used_once_the_old_process_has_finished() {
    let root = resident("");
    let daemon = Daemon::start(&root);
    root.drop_request(
        "x",
        &told("mark up; await go; answer '\"summary\":\"old\"'"),
    );
    root.mark("x.up");
    root.configure(&format!(
        "{}\nspecialists.'@res'.env = {{ AS = 'new' }}",
        command("")
    ));
    daemon.signal(Signal::HUP);
    wait_until("it is read", || {
        let logs = fs::read_to_string(root.path("daemon-log/00.log")).ok()?;
        logs.contains("configuration read again").then_some(())
    });
    assert!(is_alive(processes(&root)[0]));
    root.drop_request("y", &told("ok"));
    root.allow("go");
    assert_eq!(outcomes(&root.completed("x")), ["completed"]);
    let pid = pid_of(&root.completed("y"));
    assert_eq!(root.mark("new.processes"), format!("{pid}\n"));
    assert_eq!(
        root.mark("resident.let-go"),
        format!("{}\n", processes(&root)[0])
    );
    // What only says how long things may take changes no process.
    root.configure(&format!(
        "{}\nspecialists.'@res'.env = {{ AS = 'new' }}\nspecialists.'@res'.timeout = '1m'",
        command("")
    ));
    daemon.signal(Signal::HUP);
    root.drop_request("z", &told("ok"));
    assert_eq!(pid_of(&root.completed("z")), pid);
}

#[test]
fn draining_ends_the_processes_too() {
    let root = resident("");
    for n in 0..5 {
        root.drop_request(&format!("x{n}"), &told("ok"));
    }
    let output = root.cli(&["run", "--drain"]);
    assert!(output.status.success());
    for n in 0..5 {
        root.completed(&format!("x{n}"));
    }
    assert_eq!(processes(&root).len(), 1);
    assert!(!is_alive(processes(&root)[0]));
}
