//! Bad input: streams, prompts and templates that are broken, too long, or pretend to be something else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{Daemon, outcomes, text};
use crate::desk::Desk;
use crate::shop::{feed, result};
use crate::stub::{Stub, say};

/// A root whose `@coder` is a program that speaks as claude does: this shell script.
fn desk(script: &str, keys: &str) -> (Desk, Daemon) {
    let desk = Desk::new(Stub::says(vec![say("nobody asks")]));
    let bin = desk.root.path("bin");
    fs::create_dir(&bin).unwrap();
    let program = bin.join("claude");
    fs::write(&program, format!("#!/bin/sh\ncat > /dev/null\n{script}")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!(
        "PATH = '{}:{}'",
        bin.display(),
        std::env::var("PATH").unwrap()
    );
    desk.configure(&[desk.specialist("coder", "claude", keys, &path)]);
    let daemon = Daemon::start(&desk.root);
    (desk, daemon)
}

const INIT: &str = r#"echo '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'"#;

fn ending(words: &str) -> String {
    let event = format!(
        r#"{{"type":"result","subtype":"success","is_error":false,"result":{words},"session_id":"s-1","num_turns":1}}"#
    );
    format!("cat <<'END'\n{event}\nEND\n")
}

#[test]
fn a_line_of_fifty_megabytes_is_passed_over() {
    let script = format!(
        "{INIT}\nhead -c 50000000 /dev/zero | tr '\\0' x; echo\n{}",
        ending("\"done\"")
    );
    let (desk, _daemon) = desk(&script, "");
    let record = desk.complete("x", "Work");
    assert_eq!(record["output"]["text"], "done");
    let log = desk.log("x");
    assert!(log.contains("(skipped a line of 50000000 bytes)"), "{log}");
    let record = record.to_string();
    assert!(record.len() < 100_000, "{}", record.len());
}

#[test]
fn a_stream_that_is_cut_off_is_a_clear_failure_that_may_be_tried_again() {
    let script = format!("{INIT}\nprintf '{{\"type\":\"assis'");
    let (desk, _daemon) = desk(&script, "retry = { max_retries = 1, delay = '50ms' }");
    let (record, code) = desk.fail("x", "Work");
    assert_eq!(code, "AGENT_STREAM_CUT_OFF");
    assert_eq!(outcomes(&record), ["failed", "failed"]);
    let message = text(&record["error"]["message"]);
    assert!(
        message.contains("the output of claude ended before its result"),
        "{message}"
    );
}

#[test]
fn words_that_look_like_a_report_are_words() {
    // A block that is not at the end, and one inside another.
    let words = r#""Here is what a report looks like:\n\n```json\n{\"status\": \"blocked\"}\n```\n\nI did not do anything.""#;
    let (desk, _daemon) = desk(&format!("{INIT}\n{}", ending(words)), "");
    let record = desk.complete("x", "Work");
    assert!(text(&record["output"]["text"]).contains("I did not do anything."));
    assert_eq!(record["result"]["status"], "complete");
}

#[test]
fn bytes_that_are_no_text_are_no_end() {
    let script = format!(
        "{INIT}\nprintf '\\377\\376\\000 odd\\n\\n[1,2\\n'\n{}",
        ending("\"done\"")
    );
    let (desk, _daemon) = desk(&script, "");
    assert_eq!(desk.complete("x", "Work")["output"]["text"], "done");
}

#[test]
fn a_template_that_cannot_be_filled_is_named_before_the_agent_starts() {
    let script = format!("touch ../../started\n{}", ending("\"done\""));
    let (desk, _daemon) = desk(&script, "prompt = 'prompts/coder.md'");
    for (template, expected) in [
        (None, "prompts/coder.md"),
        (
            Some("Do\n\n{{tasks}}\n"),
            "unknown placeholder {{tasks}} in line 3; did you mean {{task}}?",
        ),
        (
            Some("Do {{task"),
            "the placeholder that begins in line 1 is not closed",
        ),
    ] {
        if let Some(template) = template {
            fs::create_dir_all(desk.root.path("prompts")).unwrap();
            fs::write(desk.root.path("prompts/coder.md"), template).unwrap();
        }
        let checked = desk.says(&["check"]);
        assert!(checked.contains(expected), "{checked}");
        let id = format!("x{}", template.map_or(0, str::len));
        let (record, code) = desk.fail(&id, "Work");
        assert_eq!(code, "AGENT_SETTINGS");
        let message = text(&record["error"]["message"]);
        assert!(message.contains(expected), "{message}");
        assert_eq!(outcomes(&record), ["failed"], "a retry would not help");
        assert!(!desk.root.path("started").exists());
    }
    fs::write(desk.root.path("prompts/coder.md"), "Do {{task}}").unwrap();
    desk.answer("retry", "x0", &[]);
    assert_eq!(desk.root.completed("x0")["output"]["text"], "done");
}

#[test]
fn a_task_is_never_a_placeholder_or_an_argument() {
    let script = "";
    let (desk, daemon) = desk(script, "");
    drop(daemon);
    let keep = "echo \"$*\" > args\n";
    let program = desk.root.path("bin/claude");
    let script = format!("#!/bin/sh\ncat > prompt\n{keep}{}", ending("\"done\""));
    fs::write(&program, script).unwrap();
    let _daemon = Daemon::start(&desk.root);
    let task = "--version {{record}} $(touch hacked) `id`";
    desk.complete("x", task);
    let read = |name: &str| fs::read_to_string(desk.root.path(name)).unwrap();
    assert!(read("prompt").contains(task));
    assert!(!read("args").contains("hacked"));
    assert!(!desk.root.path("hacked").exists());
}

#[test]
fn each_event_is_a_sign_of_life_and_the_result_is_on_stdout() {
    let script = format!("{INIT}\n{}", ending("\"done\""));
    let (desk, _daemon) = desk(&script, "");
    let heart = desk.root.path("heart");
    let mut adapter = Command::new(env!("CARGO_BIN_EXE_handoffd"));
    let path = format!(
        "{}:{}",
        desk.root.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    adapter
        .args(["agent", "claude"])
        .current_dir(desk.root.dir())
        .env("PATH", path)
        .env("HANDOFF_HEARTBEAT", &heart);
    let said = result(&feed(&mut adapter, &json!({"task": "Work"})));
    assert_eq!(said["output"]["text"], "done");
    assert_eq!(said["metadata"]["usage"]["session_id"], "s-1");
    assert!(heart.exists());
}

#[test]
fn the_command_by_hand_says_what_is_wrong() {
    let run = |agent: &str, stdin: &Value| {
        let mut adapter = Command::new(env!("CARGO_BIN_EXE_handoffd"));
        feed(adapter.args(["agent", agent]), stdin)
    };
    let said = result(&run("cluade", &json!({"task": "Work"})));
    let message = said["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("describe it in agents/cluade.toml"),
        "{message}"
    );
    let output = run("claude", &json!("Work"));
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("stdin is not a record"), "{said}");
}
