//! What an attempt is given, and how it ends: by itself, by a clock, by force, with all it began.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, is_alive, orders, outcomes, text, with};

const NO_RETRY: &str = "defaults.retry.max_retries = 0\n";

#[test]
fn stdin_is_the_record_and_the_variables_are_the_listed_ones() {
    let root = Root::with(
        "specialists.'@env'.command = ['env']\nspecialists.'@env'.pass_env = ['KEY', 'ABSENT']\n\
         specialists.'@env'.env = { NODE_ENV = 'production', LANG = 'C' }\n\
         specialists.'@in'.command = ['sh', '-c', \
         'cmp /dev/stdin $HANDOFF_FILE && cp $HANDOFF_FILE marks/record']",
    );
    let _daemon = Daemon::start_with(&root, |command| {
        command.env("KEY", "k").env("SECRET", "s").env("LANG", "xx");
    });
    root.drop_request(
        "vars",
        &json!({ "target": { "agent_id": "env" }, "timeout_seconds": 9 }),
    );
    let record = root.completed("vars");
    let output = text(&record["output"]["text"]);
    let vars: BTreeMap<&str, &str> = output
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    let allowed = [
        "PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "SHELL", "KEY", "NODE_ENV",
    ];
    for name in vars.keys() {
        assert!(
            allowed.contains(name) || name.starts_with("HANDOFF_"),
            "{name}"
        );
    }
    let dir = root.dir().to_str().unwrap();
    assert_eq!(vars["KEY"], "k");
    assert_eq!(vars["NODE_ENV"], "production");
    assert_eq!(vars["LANG"], "C");
    assert_eq!(vars["HANDOFF_ID"], "vars");
    assert_eq!(vars["HANDOFF_ROOT"], dir);
    assert_eq!(
        vars["HANDOFF_FILE"],
        format!("{dir}/handoffs/in-progress/vars.json")
    );
    assert_eq!(vars["HANDOFF_ATTEMPT"], "1");
    assert_eq!(vars["HANDOFF_MAX_ATTEMPTS"], "4");
    assert_eq!(vars["HANDOFF_CONTEXT_DIR"], format!("{dir}/context"));
    assert!(vars["HANDOFF_DEADLINE"] > text(&record["started_at"]).as_str());
    for path in ["HANDOFF_RESULT", "HANDOFF_HEARTBEAT"] {
        assert!(vars[path].starts_with(dir), "{path}");
    }
    assert!(!vars.contains_key("HANDOFF_LAST_ERROR"));

    root.drop_request(
        "in",
        &with(
            json!({ "target": { "agent_id": "in" } }),
            json!({ "a": 1.0 }),
        ),
    );
    root.completed("in");
    let given: Value =
        serde_json::from_slice(&fs::read(root.path("marks/record")).unwrap()).unwrap();
    assert_eq!(given["status"], "in_progress");
    assert_eq!(given["a"].to_string(), "1.0");
    assert_eq!(given["handoffd"]["attempts"][0]["number"], 1);
}

#[test]
fn commands_are_found_by_path_and_run_where_they_are_told() {
    let root = Root::with(
        "specialists.'@pwd'.command = ['pwd']\nspecialists.'@there'.command = ['pwd']\n\
         specialists.'@there'.working_dir = 'marks'\n\
         specialists.'@own'.command = ['bin/own.sh', 'a b', '$HOME', '; exit 1']\n\
         specialists.'*'.command = ['printf', 'anyone']",
    );
    fs::create_dir(root.path("bin")).unwrap();
    fs::write(root.path("bin/own.sh"), "#!/bin/sh\nprintf '%s|' \"$@\"\n").unwrap();
    fs::set_permissions(root.path("bin/own.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let _daemon = Daemon::start(&root);
    let dir = fs::canonicalize(root.dir()).unwrap();
    let dir = dir.to_str().unwrap();
    for (agent, expected) in [
        ("pwd", format!("{dir}\n")),
        ("@there", format!("{dir}/marks\n")),
        ("own", "a b|$HOME|; exit 1|".to_owned()),
        ("whoever", "anyone".to_owned()),
    ] {
        let id = format!("x{agent}");
        root.drop_request(&id, &json!({ "target": { "agent_id": agent } }));
        assert_eq!(root.completed(&id)["output"]["text"], expected, "{agent}");
    }
}

#[test]
fn a_command_that_can_t_be_started_is_named_with_the_reason() {
    let root = Root::with(&format!(
        "{NO_RETRY}specialists.'@none'.command = ['bin/none.sh']\n\
         specialists.'@plain'.command = ['bin/plain.sh']\n\
         specialists.'@path'.command = ['no-such-command-anywhere']\n\
         specialists.'@dir'.command = ['true']\nspecialists.'@dir'.working_dir = 'no/where'",
    ));
    fs::create_dir(root.path("bin")).unwrap();
    fs::write(root.path("bin/plain.sh"), "not executable").unwrap();
    let _daemon = Daemon::start(&root);
    for (agent, name, why) in [
        ("none", "bin/none.sh", "No such file"),
        ("plain", "bin/plain.sh", "ermission denied"),
        ("path", "no-such-command-anywhere", "No such file"),
        ("dir", "no/where", "No such file"),
    ] {
        root.drop_request(agent, &json!({ "target": { "agent_id": agent } }));
        let (record, code) = root.failed(agent);
        assert_eq!(code, "PROCESSING_ERROR", "{agent}");
        let message = text(&record["error"]["message"]);
        assert!(
            message.contains(name) && message.contains(why),
            "{agent}: {message}"
        );
        assert_eq!(outcomes(&record), ["failed"]);
    }
    root.assert_works("good");
}

#[test]
fn a_time_out_ends_the_whole_tree_also_what_fled_and_ignores_it() {
    tree_is_ended(Daemon::start);
}

#[test]
fn a_time_out_ends_the_whole_tree_without_cgroups_too() {
    tree_is_ended(Daemon::start_without_cgroups);
}

fn tree_is_ended(start: fn(&Root) -> Daemon) {
    let root = Root::with(NO_RETRY);
    let _daemon = start(&root);
    let sh = "child kid; away far; stubborn; echo last words >&2; mark up; forever";
    root.drop_request("x", &with(orders(sh), json!({ "timeout_seconds": 1.5 })));
    let pids = [root.pid_mark("x.kid"), root.pid_mark("x.far")];
    let main: i32 = root
        .mark("x.up")
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let (record, code) = root.failed("x");
    for pid in pids.into_iter().chain([main]) {
        assert!(!is_alive(pid), "{pid} of {pids:?}, {main}");
    }
    assert_eq!(code, "TIMEOUT");
    assert_eq!(outcomes(&record), ["timeout"]);
    let message = text(&record["error"]["message"]);
    assert!(
        message.contains("1s 500ms") && message.contains("last words"),
        "{message}"
    );
    let attempt = &record["handoffd"]["attempts"][0];
    assert_eq!(attempt["signal"], 9, "it ignored the first");
    assert_eq!(attempt["error"]["code"], "TIMEOUT");
}

#[test]
fn one_that_heeds_sigterm_has_its_grace() {
    let root = Root::with(&format!("{NO_RETRY}defaults.kill_grace = '50s'"));
    let _daemon = Daemon::start(&root);
    let sh = "trap 'mark told; exit 7' TERM; mark up; while :; do sleep 0.05; done";
    root.drop_request("x", &with(orders(sh), json!({ "timeout_seconds": 1 })));
    let (record, code) = root.failed("x");
    assert_eq!(code, "TIMEOUT", "whatever it exits with");
    assert_eq!(record["handoffd"]["attempts"][0]["exit_code"], 7);
    root.mark("x.told");
}

#[test]
fn what_a_finished_attempt_left_running_is_ended_before_the_outcome() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &orders("child kid; away far; echo fine"));
    let record = root.completed("x");
    assert_eq!(record["output"]["text"], "fine\n");
    for name in ["x.kid", "x.far"] {
        assert!(!is_alive(root.pid_mark(name)), "{name}");
    }
}

#[test]
fn one_that_left_its_result_but_does_not_go_is_done() {
    let root = Root::with("defaults.linger = '300ms'");
    let _daemon = Daemon::start(&root);
    root.drop_request(
        "x",
        &orders("result '{\"summary\": \"ready\"}'; stubborn; forever"),
    );
    let record = root.completed("x");
    assert_eq!(record["result"]["summary"], "ready");
    assert_eq!(outcomes(&record), ["completed"]);
    // A result that is not whole is no reason to end anyone.
    let sh = "printf '{' >$HANDOFF_RESULT; mark up; await go; result '{\"summary\": \"whole\"}'";
    root.drop_request("half", &orders(sh));
    root.mark("half.up");
    root.assert_works("meanwhile");
    root.drop_request("too", &orders("result '{}'; forever"));
    root.completed("too");
    assert_eq!(root.states_of("half"), ["in-progress"]);
    root.allow("go");
    assert_eq!(root.completed("half")["result"]["summary"], "whole");
}

#[test]
fn silence_is_a_stall_and_a_heartbeat_is_not() {
    let root = Root::with(&format!(
        "{NO_RETRY}specialists.'@fake'.stall_timeout = '1500ms'"
    ));
    let _daemon = Daemon::start(&root);
    root.drop_request("silent", &orders("exec sleep 600"));
    let beat =
        "while [ ! -e $HANDOFF_ROOT/marks/go ]; do touch $HANDOFF_HEARTBEAT; sleep 0.2; done";
    root.drop_request("beating", &orders(beat));
    let (record, code) = root.failed("silent");
    assert_eq!(code, "TIMEOUT");
    assert_eq!(outcomes(&record), ["stalled"]);
    assert!(text(&record["error"]["message"]).contains("HANDOFF_HEARTBEAT"));
    root.drop_request("silent-too", &orders("exec sleep 600"));
    root.failed("silent-too");
    assert_eq!(root.states_of("beating"), ["in-progress"]);
    root.allow("go");
    assert_eq!(outcomes(&root.completed("beating")), ["completed"]);
}

#[test]
fn a_flood_is_stopped() {
    let root = Root::with(&format!("{NO_RETRY}daemon.max_output_size = '64KiB'"));
    let _daemon = Daemon::start(&root);
    for (id, sh) in [("out", "exec yes flood"), ("err", "exec yes flood >&2")] {
        root.drop_request(id, &orders(sh));
        let (record, code) = root.failed(id);
        assert_eq!(code, "PROCESSING_ERROR", "{id}");
        let message = text(&record["error"]["message"]);
        assert!(message.contains("65536"), "{message}");
    }
    // One that is over before anybody looks is no better.
    let quick = "head -c 70000 /dev/zero | tr '\\\\0' x";
    root.drop_request("quick", &orders(quick));
    assert_eq!(root.failed("quick").1, "PROCESSING_ERROR");
    // As much as is allowed is kept whole.
    root.drop_request("full", &orders("head -c 60000 /dev/zero | tr '\\\\0' x"));
    assert_eq!(
        text(&root.completed("full")["output"]["text"]).len(),
        60_000
    );
    let chatty = "i=0; while [ $i -lt 3000 ]; do echo some noise $i >&2; i=$((i+1)); done; exit 3";
    root.drop_request("chatty", &orders(chatty));
    let (record, _) = root.failed("chatty");
    let message = text(&record["error"]["message"]);
    assert!(message.contains("noise 2999") && message.len() < 5000);
}

#[test]
fn a_flood_that_ignores_sigterm_has_no_grace() {
    // A grace that the test would not outlive.
    let root = Root::with(&format!(
        "{NO_RETRY}daemon.max_output_size = '64KiB'\ndefaults.kill_grace = '10m'"
    ));
    let _daemon = Daemon::start(&root);
    for (id, to) in [("out", ""), ("err", " >&2")] {
        let deaf =
            format!("trap '' TERM; while :; do head -c 65536 /dev/zero{to}; sleep 0.01; done");
        root.drop_request(id, &orders(&deaf));
        let (record, code) = root.failed(id);
        assert_eq!(code, "PROCESSING_ERROR", "{id}");
        assert_eq!(record["handoffd"]["attempts"][0]["signal"], 9, "{record:#}");
    }
}

#[test]
fn stderr_is_kept_in_a_log_and_its_tail_is_in_the_failure() {
    let root = Root::with(NO_RETRY);
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &orders("echo one >&2; echo out; echo two >&2; exit 3"));
    let (record, _) = root.failed("x");
    assert!(text(&record["error"]["message"]).contains("one\ntwo"));
    let attempt = &record["handoffd"]["attempts"][0];
    let log = fs::read_to_string(root.path(&text(&attempt["log"]))).unwrap();
    assert_eq!(log, "one\ntwo\n");
    assert_eq!(attempt["exit_code"], 3);
    assert_eq!(attempt["outcome"], "failed");
    assert_eq!(attempt["error"]["code"], "PROCESSING_ERROR");
    for time in ["started_at", "ended_at"] {
        assert!(text(&attempt[time]).ends_with('Z'));
    }
    root.drop_request("y", &orders("echo careful >&2"));
    let record = root.completed("y");
    let log = text(&record["handoffd"]["attempts"][0]["log"]);
    assert_eq!(fs::read_to_string(root.path(&log)).unwrap(), "careful\n");
}

#[test]
fn holds_in_a_row_beyond_ten_are_one_entry() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let sh = "[ $HANDOFF_ATTEMPT -gt 14 ] || result '{\"retry_after_seconds\": 0.001}'; mark up";
    root.drop_request("x", &orders(sh));
    let record = root.completed("x");
    let list = record["handoffd"]["attempts"].as_array().unwrap();
    let numbers: Vec<u64> = list
        .iter()
        .map(|it| it["number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 15]);
    let mut expected = vec!["held"; 11];
    expected.push("completed");
    assert_eq!(outcomes(&record), expected);
    assert_eq!(list[10]["count"], 4);
    assert!(list[9].get("count").is_none() && list[11].get("count").is_none());
    assert_eq!(root.mark("x.up").lines().count(), 15);
    let listed = String::from_utf8(root.cli(&["list", "--json"]).stdout).unwrap();
    let row: Value = serde_json::from_str(listed.trim()).unwrap();
    assert_eq!(row["attempts"], 15);
}
