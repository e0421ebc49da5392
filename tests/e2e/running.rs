//! The daemon as a process: its lock, its signals, its configuration, its exit codes.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Daemon, Root, is_alive, keepers, orders, outcomes, text, wait_until, with};

#[test]
fn a_second_daemon_is_refused_and_told_who_is_there() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let second = root.cli(&["run"]);
    assert_eq!(second.status.code(), Some(3));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains(&daemon.pid().to_string()), "{said}");
    let second = root.cli(&["run", "--json"]);
    let said: Value = serde_json::from_slice(&second.stdout).unwrap();
    assert_eq!(
        (second.status.code(), &said["error"]["code"]),
        (Some(3), &json!("LOCKED"))
    );
    root.assert_works("good");
    daemon.kill();
    let _next = Daemon::start(&root);
}

#[test]
fn sigterm_lets_attempts_end_and_starts_no_more() {
    let root = Root::with("daemon.max_concurrent = 1");
    let mut daemon = Daemon::start(&root);
    root.drop_request("x", &orders("mark up; await go; exit 0"));
    root.mark("x.up");
    root.drop_request("next", &orders("mark ran"));
    daemon.signal(Signal::TERM);
    root.allow("go");
    assert_eq!(daemon.exit_code(), Some(0));
    assert_eq!(outcomes(&root.completed("x")), ["completed"]);
    assert_eq!(root.states_of("next"), ["pending"]);
    assert!(!root.path(".handoffd/daemon.json").exists());
    wait_until("the keeper leaves", || {
        keepers(root.dir()).is_empty().then_some(())
    });
    let _daemon = Daemon::start(&root);
    root.completed("next");
}

#[test]
fn an_attempt_that_outstays_the_grace_is_interrupted_and_runs_again() {
    let root = Root::with("daemon.shutdown_grace = '200ms'\ndefaults.retry.max_retries = 0");
    let daemon = Daemon::start(&root);
    root.drop_request(
        "x",
        &orders("away far; mark up; [ $HANDOFF_ATTEMPT = 2 ] || forever"),
    );
    root.mark("x.up");
    assert_eq!(daemon.terminate(), Some(0));
    assert!(!is_alive(root.pid_mark("x.far")));
    let parked = root.record("waiting", "x");
    assert_eq!(outcomes(&parked), ["interrupted"]);
    fs::remove_file(root.path("marks/x.far")).unwrap();
    let _daemon = Daemon::start(&root);
    let record = root.completed("x");
    assert_eq!(
        outcomes(&record),
        ["interrupted", "completed"],
        "with no retry to spend"
    );
}

#[test]
fn a_second_sigterm_does_not_wait() {
    let root = Root::new();
    let mut daemon = Daemon::start(&root);
    root.drop_request("x", &orders("stubborn; mark up; forever"));
    root.mark("x.up");
    daemon.signal(Signal::TERM);
    // Two signals of one kind that are pending are one; the log tells that the first was seen.
    wait_until("the first is seen", || {
        let log = fs::read_to_string(root.path("daemon-log/00.log")).unwrap();
        log.contains("stopping").then_some(())
    });
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.exit_code(), Some(0));
    assert_eq!(outcomes(&root.record("waiting", "x")), ["interrupted"]);
}

#[test]
fn detached_attempts_go_on_and_are_adopted() {
    let root = Root::with("daemon.on_stop = 'detach'");
    let daemon = Daemon::start(&root);
    root.drop_request("x", &orders("mark up; await go; echo done; exit 0"));
    let pid: i32 = root
        .mark("x.up")
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(daemon.terminate(), Some(0));
    assert!(is_alive(pid));
    assert_eq!(root.states_of("x"), ["in-progress"]);
    let _daemon = Daemon::start(&root);
    root.allow("go");
    let record = root.completed("x");
    assert_eq!(outcomes(&record), ["completed"]);
    assert_eq!(record["output"]["text"], "done\n");
}

#[test]
fn sighup_takes_a_good_configuration_and_refuses_a_broken_one() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let more = "specialists.'@new'.command = ['printf', 'new']";
    root.configure(more);
    daemon.signal(Signal::HUP);
    let mut n = 0;
    let record = wait_until("the new specialist", || {
        n += 1;
        let id = format!("new-{n}");
        root.drop_request(&id, &json!({ "target": { "agent_id": "new" } }));
        wait_until("its end", || {
            (root.state("completed", &id).exists() || root.state("failed", &id).exists())
                .then_some(())
        });
        root.record_in("completed", &id)
    });
    assert_eq!(record["output"]["text"], "new");
    root.configure("daemon.max_concurent = 3");
    daemon.signal(Signal::HUP);
    wait_until("the complaint", || {
        root.problems().contains("max_concurent").then_some(())
    });
    root.drop_request("still", &json!({ "target": { "agent_id": "new" } }));
    root.completed("still");
    root.configure(more);
    daemon.signal(Signal::HUP);
    wait_until("it is mended", || (root.problems() == "[]").then_some(()));
    // A file that is being put in place is not there for a moment.
    fs::remove_file(root.path("handoffd.toml")).unwrap();
    daemon.signal(Signal::HUP);
    wait_until("it is missed", || {
        root.problems().contains("handoffd.toml").then_some(())
    });
    root.drop_request("without", &json!({ "target": { "agent_id": "new" } }));
    root.completed("without");
}

#[test]
fn a_handoff_whose_specialist_is_gone_after_a_reload_is_told_so() {
    let root = Root::with("specialists.'@gone'.command = ['false']");
    let daemon = Daemon::start(&root);
    let request = json!({ "target": { "agent_id": "gone" },
        "retry_policy": { "retry_delay_seconds": 3600 } });
    root.drop_request("x", &request);
    root.record("waiting", "x");
    root.configure("daemon.max_concurrent = 2\ndaemon.durability = 'relaxed'");
    daemon.signal(Signal::HUP);
    let log = wait_until("the reload", || {
        let log = fs::read_to_string(root.path("daemon-log/00.log")).unwrap();
        log.contains("configuration read again").then_some(log)
    });
    assert!(log.contains("use the new daemon.durability"), "{log}");
    root.command("c.json", &json!({ "action": "retry", "handoff_id": "x" }));
    let (record, code) = root.failed("x");
    assert_eq!(code, "UNKNOWN_AGENT");
    assert_eq!(outcomes(&record), ["failed"], "no attempt for it");
    root.assert_works("good");
}

#[test]
fn drain_works_off_what_is_there_and_leaves() {
    let root = Root::new();
    root.drop_request("good", &orders("exit 0"));
    root.drop_request("bad", &orders("exit 64"));
    root.drop_request("again", &orders("[ $HANDOFF_ATTEMPT = 3 ]"));
    root.drop_request(
        "after",
        &with(orders("exit 0"), json!({ "depends_on": ["again"] })),
    );
    root.drop_request("person", &json!({ "target": { "agent_id": "human" } }));
    root.drop_request(
        "never",
        &with(orders("exit 0"), json!({ "depends_on": ["ghost"] })),
    );
    root.drop_bytes("broken.json", b"{");
    root.drop_bytes("doc.yaml", b"target: {agent_id: fake}\n");
    let mut daemon = Daemon::spawn(&root, |command| {
        command.arg("--drain");
    });
    assert_eq!(daemon.exit_code(), Some(0));
    for id in ["good", "again", "after", "doc"] {
        assert_eq!(root.states_of(id), ["completed"], "{id}");
    }
    for id in ["bad", "broken"] {
        assert_eq!(root.states_of(id), ["failed"], "{id}");
    }
    for id in ["person", "never"] {
        assert_eq!(root.states_of(id), ["waiting"], "{id}");
    }
    let empty = Root::new();
    let mut daemon = Daemon::spawn(&empty, |command| {
        command.arg("--drain");
    });
    assert_eq!(daemon.exit_code(), Some(0));
}

#[test]
fn a_drain_does_not_wait_for_a_broken_command_that_was_taken_away() {
    let root = Root::with("daemon.settle = '3s'");
    fs::write(root.path("handoffs/control/half.json"), "").unwrap();
    root.drop_request("x", &orders("mark up; await go"));
    let mut daemon = Daemon::spawn(&root, |command| {
        command.arg("--drain");
    });
    root.mark("x.up");
    fs::remove_file(root.path("handoffs/control/half.json")).unwrap();
    root.allow("go");
    assert_eq!(daemon.exit_code(), Some(0));
    assert_eq!(root.states_of("x"), ["completed"]);
}

#[test]
fn a_broken_configuration_is_named_by_file_line_and_key() {
    let root = Root::new();
    for (text, line, key) in [
        ("[daemon]\nmax_concurrent = 0\n", 2, "max_concurrent"),
        ("\n[daemon]\nsettel = \"1s\"\n", 3, "settel"),
        ("[specialists.\"@a\"]\ntimeout = \"1s\"\n", 1, "command"),
        ("[defaults]\ntimeout = \"never\"\n", 2, "timeout"),
        ("[daemon\n", 1, ""),
    ] {
        fs::write(root.path("handoffd.toml"), text).unwrap();
        let output = root.cli(&["run"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}: {said}");
        assert!(
            said.contains("handoffd.toml") && said.contains(key),
            "{said}"
        );
        let output = root.cli(&["run", "--json"]);
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["error"]["code"], "CONFIG");
        assert_eq!(said["error"]["line"], line, "{text}");
        assert_eq!(root.cli(&["check"]).status.code(), Some(2));
    }
    assert_eq!(
        root.cli(&["run", "--config", "none.toml"]).status.code(),
        Some(2)
    );
    fs::remove_file(root.path("handoffd.toml")).unwrap();
    let daemon = Daemon::start(&root);
    root.drop_request("x", &orders("exit 0"));
    assert_eq!(
        root.failed("x").1,
        "UNKNOWN_AGENT",
        "no file at all is fine"
    );
    daemon.terminate();
}

#[test]
fn one_that_is_just_being_refused_is_waited_for() {
    let root = Root::new();
    let rejecting = root.path(".handoffd/rejecting");
    let ended = ["completed", "failed"].map(|state| root.path("handoffs").join(state));
    for folder in ended.iter().chain([&rejecting]) {
        std::fs::create_dir_all(folder).unwrap();
    }
    let waited = || root.cli(&["wait", "x", "--timeout", "1ms"]).status.code();
    assert_eq!(waited(), Some(1), "nobody knows it");
    std::fs::write(rejecting.join("x.rejected"), "{").unwrap();
    assert_eq!(waited(), Some(124));
}

#[test]
fn submit_and_wait_tell_by_their_exit_codes() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let submit = |sh: &str, more: &[&str]| {
        let input = json!({ "sh": sh }).to_string();
        let args = [&["submit", "--to", "fake", "--input", &input], more].concat();
        let output = root.cli(&args);
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, printed) = submit("exit 0", &[]);
    assert_eq!(code, Some(0));
    let id = printed.trim();
    let waited = root.cli(&["wait", id]);
    assert_eq!(waited.status.code(), Some(0));
    let record: Value = serde_json::from_slice(&waited.stdout).unwrap();
    assert_eq!(
        (&record["status"], &record["handoff_id"]),
        (&json!("completed"), &json!(id))
    );
    let (code, printed) = submit("exit 64", &["--wait"]);
    let record: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &record["status"]), (Some(1), &json!("failed")));
    let bad = text(&record["handoff_id"]);
    let both = root.cli(&["wait", id, &bad]);
    assert_eq!(both.status.code(), Some(1));
    let lines: Vec<Value> = String::from_utf8(both.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["handoff_id"], id);
    assert_eq!(
        submit("await go", &["--wait", "--timeout", "300ms"]).0,
        Some(124)
    );
    let output = root.cli(&["wait", "nobody", "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &said["error"]["code"]),
        (Some(1), &json!("UNKNOWN_ID"))
    );
    let output = root.cli(&["submit", "--to", "nobody", "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &said["error"]["code"]),
        (Some(1), &json!("UNKNOWN_AGENT"))
    );
    let broken = root.path("broken.json");
    fs::write(&broken, "{\n oops").unwrap();
    let output = root.cli(&["submit", broken.to_str().unwrap(), "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &said["error"]["line"]),
        (Some(1), &json!(2))
    );
    assert_eq!(root.cli(&["submit"]).status.code(), Some(2));
    assert_eq!(root.cli(&["frobnicate"]).status.code(), Some(2));
    assert!(
        root.names("handoffs/pending").is_empty(),
        "nothing of that was dropped"
    );
    root.allow("go");
}

#[test]
fn a_fresh_root_works_at_once() {
    let root = Root::new();
    let fresh = root.path("fresh");
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_handoffd"));
        command
            .args(args)
            .env("HANDOFFD_ROOT", &fresh)
            .stdin(Stdio::null());
        command.output().unwrap()
    };
    let made = run(&["init", fresh.to_str().unwrap()]);
    assert!(made.status.success(), "{made:?}");
    assert!(run(&["check"]).status.success());
    let sent = run(&["submit", "--to", "echo", "--input", "{\"text\": \"hello\"}"]);
    assert!(sent.status.success(), "{sent:?}");
    assert!(run(&["run", "--drain"]).status.success());
    let id = String::from_utf8(sent.stdout).unwrap();
    let waited = run(&["wait", id.trim()]);
    assert_eq!(waited.status.code(), Some(0), "{waited:?}");
    wait_until("its keeper leaves", || {
        keepers(&fresh).is_empty().then_some(())
    });
}
