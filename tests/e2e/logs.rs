//! What attempts print, told apart, before, while and after they run.

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, wait_until, with};
use crate::pty::Terminal;

/// Stdout and stderr of a command.
fn said(root: &Root, args: &[&str]) -> [String; 2] {
    let output = root.cli(args);
    [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap())
}

fn out(root: &Root, args: &[&str]) -> String {
    said(root, args)[0].clone()
}

/// A command that goes on, and what it says in the end.
fn start(root: &Root, args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .args(args)
        .arg("--root")
        .arg(root.dir())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

#[test]
fn both_streams_are_told_apart_whatever_became_of_them() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    for (id, prints, printed) in [
        ("text", "echo hello", "hello\n"),
        (
            "result",
            "echo '{\"summary\": \"s\"}'",
            "{\"summary\":\"s\"}\n",
        ),
        (
            "file",
            "echo beside; result '{\"summary\":\"s\"}'",
            "beside\n",
        ),
        ("nothing", "result '{\"summary\":\"s\"}'", ""),
        (
            "report",
            "printf 'so:\\n```json\\n{\"status\":\"complete\"}\\n```\\n'",
            "so:\n```json\n{\"status\":\"complete\"}\n```\n",
        ),
    ] {
        root.drop_request(
            id,
            &orders(&format!("echo on its way >&2; {prints}; exit 0")),
        );
        root.completed(id);
        assert_eq!(out(&root, &["logs", id, "--stdout"]), printed, "{id}");
        assert_eq!(
            out(&root, &["logs", id, "--stderr"]),
            "on its way\n",
            "{id}"
        );
        let lines = printed.lines().map(|line| format!("stdout | {line}\n"));
        let both = format!("stderr | on its way\n{}", lines.collect::<String>());
        assert_eq!(out(&root, &["logs", id]), both, "{id}");
    }
    let [told, talk] = said(&root, &["logs", "nothing", "--stdout"]);
    assert_eq!(told, "");
    assert_eq!(talk, "attempt 1 of nothing wrote nothing to stdout\n");
    let told = out(&root, &["logs", "text", "--json"]);
    let lines: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        lines,
        [
            json!({"attempt": 1, "stream": "stderr", "line": "on its way"}),
            json!({"attempt": 1, "stream": "stdout", "line": "hello"}),
        ]
    );
}

#[test]
fn each_attempt_keeps_its_own_and_the_archive_does_too() {
    let root = Root::with("defaults.retry.max_retries = 1");
    let _daemon = Daemon::start(&root);
    let says = "echo \"try $HANDOFF_ATTEMPT\"; echo oops >&2; exit $((2 - HANDOFF_ATTEMPT))";
    root.drop_request("x", &orders(says));
    root.completed("x");
    for packed in [false, true] {
        if packed {
            said(&root, &["archive", "--completed", "0s"]);
        }
        for attempt in ["1", "2"] {
            let told = out(&root, &["logs", "x", "--attempt", attempt]);
            let wanted = format!("stderr | oops\nstdout | try {attempt}\n");
            assert_eq!(told, wanted, "{packed}");
        }
    }
    let beyond = root.cli(&["logs", "x", "--attempt", "3"]);
    assert_eq!(beyond.status.code(), Some(1), "{beyond:?}");
}

#[test]
fn the_verify_command_has_a_log_of_its_own() {
    let root = Root::new();
    root.configure(
        "specialists.checked.command = ['echo', 'work']\n\
         specialists.checked.verify = ['sh', '-c', 'echo looked; echo carefully >&2']",
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &json!({"target": {"agent_id": "checked"}}));
    root.completed("x");
    assert_eq!(out(&root, &["logs", "x"]), "stdout | work\n");
    assert_eq!(
        out(&root, &["logs", "x", "--verify"]),
        "stderr | carefully\nstdout | looked\n"
    );
    assert_eq!(
        out(&root, &["logs", "x", "--verify", "--stdout"]),
        "looked\n"
    );
    root.drop_request("y", &orders("exit 0"));
    root.completed("y");
    let [told, talk] = said(&root, &["logs", "y", "--verify"]);
    assert_eq!(told, "");
    assert!(talk.contains("verify command of attempt 1 of y"), "{talk}");
}

#[test]
fn one_that_has_not_begun_is_followed_from_its_beginning() {
    let root = Root::with("specialists.'@fake'.max_concurrent = 1");
    let _daemon = Daemon::start(&root);
    root.drop_request("first", &orders("mark up; await first; exit 0"));
    root.mark("first.up");
    let says = "echo one; echo two >&2; mark up; await second; echo three; exit 0";
    root.drop_request("second", &orders(says));
    let follower = start(&root, &["logs", "-f", "second"]);
    root.allow("first");
    root.mark("second.up");
    root.allow("second");
    root.completed("second");
    let (code, told) = ended(follower);
    assert_eq!(code, Some(0));
    let lines = |stream: &str| -> Vec<String> {
        let of = told.lines().filter_map(|line| line.strip_prefix(stream));
        of.map(str::to_owned).collect()
    };
    assert_eq!(lines("stderr | "), ["two"], "{told}");
    assert_eq!(lines("stdout | "), ["one", "three"], "{told}");
}

#[test]
fn an_attempt_that_is_yet_to_come_can_be_followed() {
    let root = Root::with("defaults.retry.max_retries = 1\ndefaults.retry.delay = '1h'");
    let _daemon = Daemon::start(&root);
    root.drop_request(
        "x",
        &orders("echo \"try $HANDOFF_ATTEMPT\" >&2; exit $((2 - HANDOFF_ATTEMPT))"),
    );
    root.record("waiting", "x");
    let follower = start(&root, &["logs", "-f", "x", "--attempt", "2", "--stderr"]);
    said(&root, &["retry", "x"]);
    assert_eq!(ended(follower), (Some(0), "try 2\n".to_owned()));
}

#[test]
fn following_ends_with_a_handoff_that_never_began() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let later = json!({"not_before": "2099-01-01T00:00:00Z"});
    root.drop_request("x", &with(orders("exit 0"), later));
    root.record("waiting", "x");
    let follower = start(&root, &["logs", "-f", "x"]);
    said(&root, &["cancel", "x"]);
    root.failed("x");
    assert_eq!(ended(follower), (Some(0), String::new()));
}

#[test]
fn a_person_who_submits_and_waits_gets_a_line_and_a_program_the_record() {
    let root = Root::new();
    root.configure(
        "specialists.good.command = ['echo', '{\"summary\": \"three files written\"}']\n\
         specialists.bad.command = ['false']\nspecialists.bad.retry = { max_retries = 0 }",
    );
    let _daemon = Daemon::start(&root);
    let on_terminal = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handoffd"));
        command.args(["submit", "--wait"]).args(args);
        command.arg("--root").arg(root.dir());
        Terminal::run(&mut command, (80, 24)).end()
    };
    let (code, told) = on_terminal(&["--to", "good"]);
    assert_eq!((code, told.lines().count()), (Some(0), 1), "{told}");
    assert!(told.starts_with("completed  h-"), "{told}");
    assert!(told.contains("three files written"), "{told}");
    let (code, told) = on_terminal(&["--to", "bad"]);
    assert_eq!(code, Some(1));
    let line = told.lines().next().unwrap();
    assert!(line.starts_with("failed  h-"), "{told}");
    assert!(line.contains("PROCESSING_ERROR: "), "{told}");
    assert!(line.chars().count() <= 80, "{told}");
    let (_, told) = on_terminal(&["--to", "good", "--json"]);
    let record: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(record["status"], "completed");
    let told = out(&root, &["submit", "--wait", "--to", "good"]);
    let record: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(record["result"]["summary"], "three files written");
}

#[test]
fn an_escalation_shows_a_person_what_it_is_about() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let package = json!({"handoff": {
        "from": {"agent": "estimation", "step": 2},
        "to": {"agent": "human", "reason": "Business decision required"},
        "context": {
            "summary": "Two approaches with trade-offs",
            "decisions": [{"id": "pending", "decision": "A (fast) or B (robust)"}],
            "open_questions": [{"question": "Time-to-market or maintainability?"}],
        },
        "expectations": {"deliverable": "Validated choice with justification"},
    }});
    root.drop_request("x", &package);
    root.record("waiting", "x");
    let told = out(&root, &["show", "x"]);
    let inbox = out(&root, &["list", "--waiting", "human"]);
    for part in [
        "Business decision required",
        "A (fast) or B (robust)",
        "Time-to-market or maintainability?",
        "Validated choice with justification",
        "Two approaches with trade-offs",
    ] {
        assert!(told.contains(part), "{part}: {told}");
        assert!(inbox.contains(part), "{part}: {inbox}");
    }
    assert_eq!(inbox.lines().count(), 2, "a heading and one line: {inbox}");
    let row = wait_until("the row", || {
        let told = out(&root, &["list", "--waiting", "human", "--json"]);
        serde_json::from_str::<Value>(&told).ok()
    });
    let asked = &row["waiting"]["question"];
    assert_eq!(asked["to_reason"], "Business decision required");
    assert_eq!(
        asked["open_questions"],
        json!(["Time-to-market or maintainability?"])
    );
}

#[test]
fn a_review_shows_its_question_options_artifacts_and_input() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let asks = "mkdir -p artifacts; echo hi >artifacts/plan.md; result '{\"status\": \"needs_review\", \
        \"summary\": \"a plan\", \"artifacts\": [{\"path\": \"artifacts/plan.md\"}], \
        \"question\": {\"text\": \"Ship it?\", \"options\": [\"today\", \"later\"]}, \
        \"open_questions\": [\"which region?\"]}'; exit 0";
    root.drop_request("x", &orders(asks));
    root.record("waiting", "x");
    let told = out(&root, &["show", "x"]);
    let inbox = out(&root, &["list", "--waiting", "human"]);
    for part in [
        "Ship it?",
        "today",
        "later",
        "which region?",
        "artifacts/plan.md",
        "needs_review",
    ] {
        assert!(told.contains(part), "{part}: {told}");
        assert!(inbox.contains(part), "{part}: {inbox}");
    }
    assert!(told.contains("INPUT"), "{told}");
    let explained = out(&root, &["explain", "x"]);
    assert!(explained.contains("now: Ship it?\n"), "{explained}");
}

#[test]
fn an_audit_log_that_is_whole_is_called_intact() {
    let root = Root::new();
    let mut daemon = Daemon::start(&root);
    root.assert_works("x");
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.exit_code(), Some(0));
    let told = out(&root, &["audit", "--verify"]);
    assert!(told.starts_with("audit log intact: "), "{told}");
    assert!(told.ends_with(" lines, 1 file\n"), "{told}");
    let names = root.names("audit").into_iter();
    for name in names.filter(|name| name.starts_with("events-")) {
        let log = root.path("audit").join(name);
        let text = std::fs::read_to_string(&log).unwrap();
        std::fs::write(&log, text.replacen("started", "stopped", 1)).unwrap();
    }
    let told = root.cli(&["audit", "--verify"]);
    assert_eq!(told.status.code(), Some(1));
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("audit log DAMAGED: "), "{told}");
}

#[test]
fn an_agent_is_spelled_in_one_way() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let written = |agent: &str| with(orders("exit 0"), json!({"target": {"agent_id": agent}}));
    root.drop_request("with", &written("@fake"));
    root.drop_request("without", &written("fake"));
    root.completed("with");
    root.completed("without");
    for row in out(&root, &["list", "--json"]).lines() {
        let row: Value = serde_json::from_str(row).unwrap();
        assert_eq!(row["agent"], "@fake");
    }
    for id in ["with", "without"] {
        for command in ["show", "explain", "chain", "audit"] {
            let told = out(&root, &[command, id]).replace("@fake", "");
            // The input itself stays as it was written.
            let told = told.split("INPUT").next().unwrap();
            assert!(!told.contains("fake"), "{command} {id}: {told}");
        }
    }
}
