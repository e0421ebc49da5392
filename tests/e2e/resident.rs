//! Resident specialists: one process for many handoffs, and what happens when it misbehaves.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{
    Daemon, FAKE, Root, is_alive, keeper, kill, orders, outcomes, text, wait_until, with,
};

const RESIDENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/resident.sh");

/// A root with a resident specialist, and these lines besides.
fn resident(config: &str) -> Root {
    Root::with(&format!("{}\n{config}", command("")))
}

fn command(argument: &str) -> String {
    format!(
        "specialists.'@res'.mode = 'resident'\n\
         specialists.'@res'.command = ['sh', '{RESIDENT}', '{argument}']"
    )
}

fn told(sh: &str) -> Value {
    with(orders(sh), json!({ "target": { "agent_id": "@res" } }))
}

/// The processes that were started, in order.
fn processes(root: &Root) -> Vec<i32> {
    let path = root.path("marks/resident.processes");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|pid| pid.parse().unwrap()).collect()
}

fn pid_of(record: &Value) -> i32 {
    let pid = record["output"]["pid"].as_i64();
    i32::try_from(pid.unwrap_or_else(|| panic!("{record:#}"))).unwrap()
}

fn message(record: &Value) -> String {
    text(&record["error"]["message"])
}

#[test]
fn one_process_does_many_handoffs_and_ends_with_the_daemon() {
    let root = resident("");
    let daemon = Daemon::start(&root);
    let ids: Vec<String> = (0..40).map(|n| format!("x{n}")).collect();
    for id in &ids {
        root.drop_request(id, &told("ok"));
    }
    let pids: BTreeSet<i32> = ids.iter().map(|id| pid_of(&root.completed(id))).collect();
    assert_eq!(pids.len(), 1, "max_concurrent is 1 where nothing is said");
    assert_eq!(processes(&root).len(), 1);
    let record = root.completed("x0");
    assert_eq!(outcomes(&record), ["completed"]);
    let attempt = &record["handoffd"]["attempts"][0];
    assert_eq!(
        (&attempt["exit_code"], &attempt["log"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(record["result"].get("handoff_id"), None);
    let left = root.names(".handoffd/run");
    assert!(
        !left.iter().any(|name| name.starts_with("slot-")),
        "{left:?}"
    );
    assert_eq!(daemon.terminate(), Some(0));
    assert!(!is_alive(processes(&root)[0]));
    root.assert_audit_is_sound();
}

#[test]
fn as_many_processes_as_may_run_at_once_and_only_on_demand() {
    let root = resident("specialists.'@res'.max_concurrent = 3");
    let _daemon = Daemon::start(&root);
    root.drop_request("first", &told("ok"));
    root.completed("first");
    assert_eq!(processes(&root).len(), 1);
    for n in 0..6 {
        root.drop_request(&format!("x{n}"), &told("mark up; await go; ok"));
    }
    wait_until("three at once", || {
        (processes(&root).len() == 3).then_some(())
    });
    root.allow("go");
    let pids: BTreeSet<i32> = (0..6)
        .map(|n| pid_of(&root.completed(&format!("x{n}"))))
        .collect();
    assert_eq!(pids.len(), 3);
    assert_eq!(processes(&root).len(), 3);
}

#[test]
fn a_line_says_what_the_environment_says_to_others() {
    let root = resident(
        "specialists.'@res'.env = { COLOUR = 'red' }\nspecialists.'@res'.pass_env = ['PASSED']\n\
         specialists.'@res'.working_dir = 'marks'",
    );
    let _daemon = Daemon::start_with(&root, |command| {
        command.env("PASSED", "yes").env("SECRET", "no");
    });
    let sh = "printf '%s\\n' \"$line\" >$id.line.$attempt; echo $COLOUR $PASSED $SECRET >$id.env; \
              [ $attempt = 2 ] && ok || answer '\"status\":\"failed\",\"error\":\"first\"'";
    let request = json!({
        "expected_output": { "destination": "artifacts/{handoff_id}.md" },
        "context": { "task_id": "t" },
        "note": "two\nlines",
    });
    root.drop_request("x", &with(told(sh), request));
    // It says that it is complete and leaves no artifact, so it is refused; the lines are there.
    let line: Value = serde_json::from_str(&root.mark("x.line.2")).unwrap();
    assert_eq!(line["handoff_id"], "x");
    assert_eq!(
        (&line["attempt"], &line["max_attempts"]),
        (&json!(2), &json!(4))
    );
    assert_eq!(line["record"]["note"], "two\nlines");
    assert_eq!(line["record"]["status"], "in_progress");
    assert_eq!(text(&line["last_error"]), "PROCESSING_ERROR: first");
    assert!(text(&line["artifact"]).ends_with("/artifacts/x.md"));
    assert!(text(&line["state_file"]).ends_with("/context/state/t.json"));
    assert!(text(&line["file"]).ends_with("/handoffs/in-progress/x.json"));
    assert!(text(&line["deadline"]).ends_with('Z'));
    assert_eq!(root.mark("x.env"), "red yes\n");
}

#[test]
fn every_result_is_judged_as_that_of_a_spawned_one() {
    let root = resident("defaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    let all = [
        ("plain", "\"summary\":\"s\"", "completed", ""),
        ("bad", "\"status\":\"failed\"", "failed", "PROCESSING_ERROR"),
        ("odd", "\"status\":\"dunno\"", "failed", "VALIDATION_FAILED"),
        (
            "claims",
            "\"validation\":{\"status\":\"failed\"}",
            "failed",
            "VALIDATION_FAILED",
        ),
        (
            "stuck",
            "\"status\":\"blocked\",\"blocked_reason\":\"unknown\",\"attempted\":[\"a\"],\
             \"phase\":\"p\",\"summary\":\"s\",\"handoff\":{\"context\":\"c\"}",
            "failed",
            "BLOCKED",
        ),
    ];
    for (id, members, _, _) in all {
        root.drop_request(id, &told(&format!("answer '{members}'")));
    }
    for (id, _, state, code) in all {
        let record = root.record(state, id);
        if state == "failed" {
            assert_eq!(record["error"]["code"], code, "{id}: {record:#}");
        }
    }
    assert_eq!(
        message(&root.failed("bad").0),
        "the specialist reported failure"
    );
    root.drop_request("later", &told("answer '\"retry_after_seconds\":3600'"));
    let record = root.record_that("waiting", "later", |it| it["waiting"]["on"] == "time");
    assert_eq!(outcomes(&record), ["held"]);
    assert_eq!(processes(&root).len(), 1, "none of this costs the process");
}

#[test]
fn an_artifact_is_delivered_and_verified_and_the_process_is_free_meanwhile() {
    let root = resident(&format!(
        "specialists.'@res'.max_concurrent = 2\n\
         specialists.'@res'.verify = ['sh', '{FAKE}', 'check']"
    ));
    let _daemon = Daemon::start(&root);
    let goes = json!({ "expected_output": { "destination": "artifacts/x.json" } });
    let sh = "answer '\"artifact\":{\"a\":1}'";
    let check = json!({ "check": "mark checking; await go" });
    root.drop_request("x", &with(with(told(sh), goes), check));
    root.mark("x.checking");
    root.drop_request("y", &with(told("ok"), json!({ "check": "exit 0" })));
    root.completed("y");
    root.allow("go");
    let record = root.completed("x");
    assert_eq!(record["validation"]["status"], "passed");
    assert_eq!(record["output"]["artifact_path"], "artifacts/x.json");
    assert_eq!(
        fs::read(root.path("artifacts/x.json")).unwrap(),
        b"{\n  \"a\": 1\n}\n"
    );
    assert_eq!(
        processes(&root).len(),
        1,
        "verifying is not the process's work"
    );
    wait_until("what was put down is gone", || {
        (!root.path(".handoffd/run/x.1.result").exists()).then_some(())
    });
}

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
fn what_it_writes_to_stderr_is_the_log_of_the_handoff_that_it_was_written_in() {
    let root = resident("daemon.max_output_size = '64KiB'\ndefaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    for id in ["a", "b", "c"] {
        let sh = match id {
            "b" => "ok".to_owned(),
            _ => format!("echo this is {id} >&2; ok"),
        };
        root.drop_request(id, &told(&sh));
        root.completed(id);
    }
    let log = |id: &str| fs::read_to_string(root.path(&format!(".handoffd/logs/{id}.1.log")));
    assert_eq!(log("a").unwrap(), "this is a\n");
    assert_eq!(log("c").unwrap(), "this is c\n");
    assert!(log("b").is_err());
    assert_eq!(
        root.completed("b")["handoffd"]["attempts"][0]["log"],
        Value::Null
    );
    let shown = root.cli(&["logs", "a"]);
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "this is a\n");
    let sh = "head -c 200000 /dev/zero | tr '\\0' x >&2; echo the end >&2; ok";
    root.drop_request("much", &told(sh));
    root.completed("much");
    let kept = log("much").unwrap();
    assert!(
        kept.len() <= 64 * 1024 && kept.ends_with("the end\n"),
        "{}",
        kept.len()
    );
    root.drop_request("after", &told("echo short >&2; ok"));
    root.completed("after");
    assert_eq!(log("after").unwrap(), "short\n");
    assert_eq!(processes(&root).len(), 1);
}

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
            "answered \\\"before\\\" when it was asked for other",
        ),
        (
            "garbage",
            "echo Loading model",
            "not a line of JSON (\\\"Loading model\\\")",
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
        ("endless", "cat /dev/zero", "without a line's end"),
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
        assert!(said.contains("so it was ended"), "{id}: {said}");
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
fn a_large_record_reaches_one_that_reads_late() {
    let root = Root::with(
        "specialists.'@res'.mode = 'resident'\n\
         specialists.'@res'.command = ['sh', '-c', 'until [ -e marks/go ]; do sleep 0.05; done; \
         while read -r line; do printf %s \"$line\" | wc -c >marks/size; echo \"{\\\"handoff_id\\\":\\\"x\\\"}\"; done']",
    );
    let _daemon = Daemon::start(&root);
    let large = "x".repeat(300_000);
    root.drop_request("x", &with(told("ok"), json!({ "large": large })));
    wait_until("it runs", || {
        (root.states_of("x") == ["in-progress"]).then_some(())
    });
    // Nobody else is held up by the pipe that is full.
    root.assert_works("other");
    root.allow("go");
    root.completed("x");
    let size: usize = root.mark("size").trim().parse().unwrap();
    assert!(size > 300_000, "{size}");
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

#[test]
fn what_runs_is_explained() {
    let root = resident("");
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &told("mark up; await go; ok"));
    root.mark("x.up");
    let explained = root.cli(&["explain", "x"]);
    let said = String::from_utf8_lossy(&explained.stdout);
    assert!(said.contains("resident process"), "{said}");
    root.allow("go");
    root.completed("x");
}
