//! Resident specialists: one process for many handoffs. Here the work that they do; beside it what
//! happens when one misbehaves, and how long one lives.

mod faults;
mod lifetime;

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, FAKE, Root, is_alive, orders, outcomes, text, wait_until, with};

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
    let checked = root.cli(&["check", "--deep"]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
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
    let shown = root.cli(&["logs", "a", "--stderr"]);
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
