//! A resident process that dies, breaks the rules, or takes too long: it costs one attempt, and its
//! whole tree ends.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{command, message, pid_of, processes, resident, told};
use crate::common::{Daemon, Root, is_alive, outcomes, text, wait_until, with};

#[test]
fn a_death_in_the_middle_costs_one_attempt_and_the_next_has_a_new_process() {
    let root = resident("");
    let _daemon = Daemon::start(&root);
    root.drop_request("before", &told("ok"));
    root.completed("before");
    let all = [
        ("exit", "exit 78", "exited with 78 before it answered"),
        ("quiet", "exit 0", "exited with 0 before it answered"),
        ("killed", "kill -KILL $$", "was killed by signal 9"),
    ];
    for (id, end, words) in all {
        let sh = format!("[ $attempt = 2 ] && ok || {{ echo last words >&2; child kid; {end}; }}");
        root.drop_request(id, &told(&sh));
        let record = root.completed(id);
        assert_eq!(outcomes(&record), ["failed", "completed"], "{id}");
        let error = &record["handoffd"]["attempts"][0]["error"];
        assert_eq!(error["code"], "PROCESSING_ERROR", "{id}");
        let said = text(&error["message"]);
        assert!(
            said.contains(words) && said.contains("last words"),
            "{said}"
        );
        assert!(!is_alive(root.pid_mark(&format!("{id}.kid"))), "{id}");
    }
    let attempts = &root.completed("killed")["handoffd"]["attempts"];
    assert_eq!(attempts[0]["signal"], 9);
    assert_eq!(text(&attempts[0]["log"]), ".handoffd/logs/killed.1.log");
    assert_eq!(processes(&root).len(), 4);
}

#[test]
fn an_answer_just_before_the_end_counts() {
    let root = resident("");
    let _daemon = Daemon::start(&root);
    for n in 0..5 {
        let id = format!("x{n}");
        root.drop_request(&id, &told("ok; exit 1"));
        assert_eq!(outcomes(&root.completed(&id)), ["completed"]);
        // The next one must not be given to the one that is on its way out.
        let pid = *processes(&root).last().unwrap();
        wait_until("it is gone", || (!is_alive(pid)).then_some(()));
        wait_until("that is known", || {
            let run = root.names(".handoffd/run");
            (!run.iter().any(|name| name.starts_with("resident-"))).then_some(())
        });
    }
    assert_eq!(processes(&root).len(), 5);
    assert!(!root.problems().contains("resident"), "{}", root.problems());
}

#[test]
fn a_process_that_dies_at_once_does_not_burn_the_queue() {
    let root = Root::with(&format!("{}\ndefaults.retry.max_retries = 0", command("-")));
    let daemon = Daemon::start(&root);
    for n in 0..20 {
        root.drop_request(&format!("x{n}"), &told("ok"));
    }
    wait_until("it is said", || {
        root.problems()
            .contains(
                "@res exited with 3, 2 times in a row without an answer; the next start waits 2s",
            )
            .then_some(())
    });
    let failed = root.names("handoffs/failed");
    let first = failed[0].trim_end_matches(".json");
    let said = message(&root.failed(first).0);
    assert!(said.contains("its last words: no model here"), "{said}");
    let failed = failed.len();
    assert!(failed < 5, "{failed} of 20 were burned");
    assert!(processes(&root).len() < 5);
    let status = root.cli(&["status"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains("exited with 3, "));
    // Others are not held up, and once it is mended, it goes on and nothing is said any more.
    root.assert_works("other");
    root.configure(&format!("{}\ndefaults.retry.max_retries = 0", command("")));
    daemon.signal(Signal::HUP);
    wait_until("all but the burned are done", || {
        (root.names("handoffs/pending").is_empty() && root.names("handoffs/in-progress").is_empty())
            .then_some(())
    });
    assert!(root.names("handoffs/completed").len() > 10);
    wait_until("nothing is said", || {
        (root.problems() == "[]").then_some(())
    });
}

/// Waits until it is said that processes have died, twice in a row.
fn two_deaths_are_said(root: &Root) {
    wait_until("it is said", || {
        let said = "@res exited with 3, 2 times in a row";
        root.problems().contains(said).then_some(())
    });
}

#[test]
fn deaths_are_said_no_more_once_a_new_process_is_heard() {
    let root = resident("defaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    for id in ["a", "b"] {
        root.drop_request(id, &told("exit 3"));
        root.failed(id);
    }
    two_deaths_are_said(&root);
    root.drop_request("x", &told("mark up; await beat; beat; await go; ok"));
    root.mark("x.up");
    assert!(
        root.problems().contains("in a row"),
        "it may die like the others"
    );
    root.allow("beat");
    wait_until("nothing is said", || {
        (root.problems() == "[]").then_some(())
    });
    assert_eq!(root.states_of("x"), ["in-progress"], "it has not answered");
    root.allow("go");
    root.completed("x");
}

#[test]
fn deaths_are_said_no_more_once_the_specialist_is_gone_or_another() {
    let dying = format!("{}\ndefaults.retry.max_retries = 0", command("-"));
    for mended in ["defaults.retry.max_retries = 0", &command("")] {
        let root = Root::with(&dying);
        let daemon = Daemon::start(&root);
        for id in ["a", "b"] {
            root.drop_request(id, &told("ok"));
            root.failed(id);
        }
        two_deaths_are_said(&root);
        // As it was: nothing is mended.
        daemon.signal(Signal::HUP);
        wait_until("it is read", || {
            root.log().contains("configuration read").then_some(())
        });
        assert!(root.problems().contains("in a row"));
        root.configure(mended);
        daemon.signal(Signal::HUP);
        wait_until("nothing is said", || {
            (root.problems() == "[]").then_some(())
        });
        assert_eq!(processes(&root).len(), 2, "and nothing had to be started");
    }
}

#[test]
fn a_command_that_is_not_there_is_told() {
    let root = Root::with(
        "specialists.'@res'.mode = 'resident'\nspecialists.'@res'.command = ['no/such/thing']\n\
         defaults.retry.max_retries = 0",
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &told("ok"));
    let (record, code) = root.failed("x");
    assert_eq!(code, "PROCESSING_ERROR");
    assert!(message(&record).contains("no/such/thing"), "{record:#}");
}

#[test]
fn whoever_breaks_the_rules_is_ended_and_nothing_is_taken_for_anothers() {
    let root = resident("daemon.max_output_size = '64KiB'\ndefaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    let all = [
        (
            "other",
            "id=before; ok",
            "answered \\\"before\\\" instead of other",
        ),
        (
            "garbage",
            "echo Loading model",
            "other than a line of JSON (\\\"Loading model\\\")",
        ),
        (
            "nameless",
            "echo '{\"status\":\"complete\"}'",
            "without a handoff_id",
        ),
        (
            "stale",
            "attempt=7; answer '\"attempt\":7'",
            "answered attempt 7 of stale",
        ),
        (
            "long",
            "head -c 70000 /dev/zero | tr '\\0' x; echo",
            "more than 65536 bytes",
        ),
        ("endless", "cat /dev/zero", "without a line end"),
        ("shut", "exec >&-; sleep 600", "closed its stdout"),
    ];
    root.drop_request("before", &told("ok"));
    let before = root.completed("before");
    for (id, sh, words) in all {
        root.drop_request(id, &told(&format!("child kid; {sh}; sleep 600")));
        let (record, code) = root.failed(id);
        assert_eq!(code, "PROCESSING_ERROR", "{id}");
        let said = Value::from(message(&record)).to_string();
        assert!(said.contains(words), "{id}: {said}");
        assert!(said.contains("the daemon ended it"), "{id}: {said}");
        assert!(!is_alive(root.pid_mark(&format!("{id}.kid"))), "{id}");
    }
    assert_eq!(root.completed("before"), before);
    assert_eq!(processes(&root).len(), all.len());
}

#[test]
fn an_answer_that_nobody_asked_for_ends_the_process_and_nothing_else() {
    let root = resident("");
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &told("ok; ok; sleep 600"));
    let record = root.completed("x");
    let pid = pid_of(&record);
    wait_until("it is ended", || (!is_alive(pid)).then_some(()));
    root.drop_request("y", &told("ok"));
    assert_ne!(pid_of(&root.completed("y")), pid);
    assert_eq!(root.completed("x"), record);
    assert_eq!(outcomes(&root.completed("y")), ["completed"]);
}

#[test]
fn a_handoff_that_takes_too_long_ends_the_whole_tree() {
    let root = resident("defaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    let limit = json!({ "timeout_seconds": 0.5 });
    // What it prints when it is ended is not held against it.
    let sh = "trap 'echo bye' TERM; child kid; mark up; echo hanging >&2; \
              while :; do sleep 0.1; done";
    root.drop_request("x", &with(told(sh), limit));
    let (record, code) = root.failed("x");
    assert_eq!(code, "TIMEOUT");
    assert_eq!(outcomes(&record), ["timeout"]);
    assert!(message(&record).contains("hanging"), "{record:#}");
    assert!(!is_alive(root.pid_mark("x.kid")));
    assert!(!is_alive(processes(&root)[0]));
    root.drop_request("y", &told("ok"));
    root.completed("y");
    assert_eq!(processes(&root).len(), 2);
}

#[test]
fn one_that_is_silent_stalls_and_one_with_a_heartbeat_does_not() {
    let root = resident(
        "specialists.'@res'.stall_timeout = '1s'\nspecialists.'@res'.max_concurrent = 2\n\
         defaults.retry.max_retries = 0",
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("silent", &told("sleep 600"));
    root.drop_request(
        "alive",
        &told("until [ -e marks/go ]; do beat; sleep 0.2; done; ok"),
    );
    let (record, code) = root.failed("silent");
    assert_eq!(code, "TIMEOUT");
    assert_eq!(outcomes(&record), ["stalled"]);
    assert_eq!(root.states_of("alive"), ["in-progress"]);
    root.allow("go");
    assert_eq!(outcomes(&root.completed("alive")), ["completed"]);
}

#[test]
fn a_cancel_ends_the_tree_and_the_next_handoff_has_another_process() {
    for start in [Daemon::start, Daemon::start_without_cgroups] {
        let root = resident("");
        let daemon = start(&root);
        root.drop_request("x", &told("child kid; mark up; sleep 600"));
        root.mark("x.up");
        root.command(
            "c.json",
            &json!({ "action": "cancel", "handoff_id": "x", "by": "me" }),
        );
        let (record, code) = root.failed("x");
        assert_eq!(code, "CANCELLED");
        assert_eq!(outcomes(&record), ["cancelled"]);
        assert!(!is_alive(root.pid_mark("x.kid")));
        assert!(!is_alive(processes(&root)[0]));
        root.drop_request("y", &told("ok"));
        root.completed("y");
        wait_until("the command is gone", || {
            (!root.path("handoffs/control/c.json").exists()).then_some(())
        });
        assert_eq!(daemon.terminate(), Some(0));
        assert!(!is_alive(processes(&root)[1]));
    }
}
