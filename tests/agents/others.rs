//! Agents that a page of settings describes: the real gemini and opencode, and one of the user's own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::common::{Daemon, outcomes, text, wait_until};
use crate::desk::{Desk, has, usage};
use crate::stub::{Answer, Stub, refuse, report, report_with, say};

const WORKSPACE: &str = "workspace = 'worktree'\nrepository = 'shop'";

fn gemini(stub: Stub) -> (Desk, Daemon) {
    let desk = Desk::new(stub);
    let settings = json!({"security": {"auth": {"selectedType": "gemini-api-key"}}});
    desk.at_home(".gemini/settings.json", &settings.to_string());
    let keys = format!("{WORKSPACE}\nargs = ['-m', 'gemini-2.5-pro', '--approval-mode', 'yolo']");
    desk.configure(&[desk.specialist("coder", "gemini", &keys, "")]);
    let daemon = Daemon::start(&desk.root);
    (desk, daemon)
}

fn opencode_settings(address: &str) -> Value {
    json!({
        "provider": {"stub": {
            "npm": "@ai-sdk/openai-compatible", "name": "stub",
            "options": {"baseURL": address, "apiKey": "key"}, "models": {"m": {"name": "m"}},
        }},
        "model": "stub/m", "autoupdate": false,
    })
}

fn opencode(stub: Stub) -> (Desk, Daemon) {
    let desk = Desk::new(stub);
    let address = format!("http://127.0.0.1:{}/v1", desk.stub.port());
    let settings = opencode_settings(&address);
    desk.at_home(".config/opencode/opencode.json", &settings.to_string());
    let keys = format!("{WORKSPACE}\nargs = ['-m', 'stub/m']");
    desk.configure(&[desk.specialist("coder", "opencode", &keys, "")]);
    let daemon = Daemon::start(&desk.root);
    (desk, daemon)
}

/// It makes a file, asks a question, and goes on in the same session.
fn works_and_resumes(agent: &str, start: fn(Stub) -> (Desk, Daemon), write: Answer) {
    if !has(agent) {
        return;
    }
    let stub = Stub::start(move |asked| match asked.number {
        0 => write.clone(),
        1 => report_with(&json!({
            "status": "needs_review", "summary": "Half done", "question": "Go on?",
        })),
        _ => report("complete", "All done"),
    });
    let (desk, _daemon) = start(stub);
    desk.task("x", "A special task");
    let waiting = desk.asks("x");
    let question = &waiting["handoffd"]["last_result"]["result"]["question"]["text"];
    assert_eq!(question, "Go on?");
    desk.answer("ask", "x", &["--comment", "Yes, go on"]);
    let record = desk.root.completed("x");
    assert_eq!(outcomes(&record), ["needs_review", "completed"]);
    assert_eq!(record["result"]["summary"], "All done");
    assert_eq!(desk.on_branch("handoffd/x", "made.txt"), "made");
    let last = desk.stub.asked().pop().unwrap().conversation();
    assert!(
        last.contains("A special task") && last.contains("Yes, go on"),
        "{last}"
    );
    assert_eq!(
        (
            &usage(&record, 1)["input_tokens"],
            &usage(&record, 2)["input_tokens"]
        ),
        (&json!(200), &json!(100))
    );
    let session = text(&usage(&record, 2)["session_id"]);
    assert_eq!(session, text(&usage(&record, 1)["session_id"]));
    assert!(desk.says(&["show", "x"]).contains(&session));
}

#[test]
fn gemini_works_and_resumes() {
    let write = json!({"command": "echo made > made.txt", "description": "make a file"});
    works_and_resumes("gemini", gemini, Answer::Tool("run_shell_command", write));
}

#[test]
fn opencode_works_and_resumes() {
    let write = json!({"command": "echo made > made.txt", "description": "make a file"});
    works_and_resumes("opencode", opencode, Answer::Tool("bash", write));
}

#[test]
fn gemini_says_what_is_wrong() {
    if !has("gemini") {
        return;
    }
    let body = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT",
        "message": "API key not valid. Please pass a valid API key."}});
    let (desk, _daemon) = gemini(Stub::says(vec![Answer::Refuse(400, Vec::new(), body)]));
    assert_eq!(desk.fail("x", "Try").1, "AGENT_NOT_LOGGED_IN");
    let body = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED",
        "message": "You exceeded your current quota. Please retry in 3600s."}});
    let (desk, _daemon) = gemini(Stub::says(vec![Answer::Refuse(429, Vec::new(), body)]));
    desk.task("x", "Try");
    wait_until("the hold", || {
        (desk.root.told("x", "held") == 1).then_some(())
    });
    let record = desk
        .root
        .record_that("waiting", "x", |it| it["waiting"]["until"].is_string());
    let wait = record["handoffd"]["last_result"]["result"]["retry_after_seconds"].as_u64();
    assert!(
        wait.is_some_and(|wait| (3_500..=3_605).contains(&wait)),
        "{wait:?}"
    );
}

#[test]
fn opencode_says_what_is_wrong() {
    if !has("opencode") {
        return;
    }
    let (desk, _daemon) = opencode(Stub::says(vec![refuse(401, "invalid_api_key", "bad key")]));
    let (record, code) = desk.fail("x", "Try");
    assert_eq!(
        code, "AGENT_NOT_LOGGED_IN",
        "{}",
        record["error"]["message"]
    );
    let (desk, _daemon) = opencode(Stub::says(vec![say("Just words")]));
    assert_eq!(desk.complete("x", "Try")["output"]["text"], "Just words");
}

#[test]
fn opencode_that_was_refused_a_permission_asks_a_person() {
    if !has("opencode") {
        return;
    }
    let write = json!({"command": "touch made.txt", "description": "make a file"});
    let stub = Stub::says(vec![Answer::Tool("bash", write), say("Done")]);
    let address = format!("http://127.0.0.1:{}/v1", stub.port());
    let desk = Desk::new(stub);
    let mut settings = opencode_settings(&address);
    settings["permission"] = json!({"bash": "ask"});
    desk.at_home(".config/opencode/opencode.json", &settings.to_string());
    let keys = format!("{WORKSPACE}\nargs = ['-m', 'stub/m']");
    desk.configure(&[desk.specialist("coder", "opencode", &keys, "")]);
    let _daemon = Daemon::start(&desk.root);
    desk.task("x", "Make a file");
    let record = desk.asks("x");
    let question = &record["handoffd"]["last_result"]["result"]["question"];
    assert_eq!(
        question["text"],
        "opencode asks for permission to do this: touch made.txt"
    );
    assert!(!desk.worktree("x").join("made.txt").exists());
    desk.answer("cancel", "x", &[]);
}

/// A page of settings that a user might write.
const OWN: &str = r#"
command = ["./own-agent", "--json"]
new = ["--name", "{session}"]
resume = ["--continue", "{session}"]
takeover = "{program} --continue {session}"
no_session = ["no such conversation"]

[stream]
model = [{ when = { kind = "hello" }, at = "model" }]
session = [{ when = { kind = "hello" }, at = "name" }]
text = [{ when = { kind = "answer" }, at = "words", last = true }]
error = [{ when = { kind = "oops" }, at = "why" }]
input_tokens = [{ when = { kind = "answer" }, at = "cost.in" }]
output_tokens = [{ when = { kind = "answer" }, at = "cost.out" }]
cost_usd = [{ when = { kind = "answer" }, at = "cost.usd" }]

[exit]
7 = "quota"
"#;

/// A little agent: it asks first, and is done when it is told to go on.
const PROGRAM: &str = r#"#!/bin/sh
cat > "prompt$HANDOFF_ATTEMPT"
echo "$*" > "args$HANDOFF_ATTEMPT"
echo '{"kind": "hello", "model": "own-1", "name": "'"$3"'"}'
[ "$HANDOFF_ATTEMPT" = 1 ] && { echo '{"kind": "oops", "why": "later"}'; exit 7; }
cat <<'END'
{"kind": "answer", "words": "first words"}
{"kind": "answer", "words": "```json\n{\"status\": \"complete\", \"summary\": \"own work\"}\n```", "cost": {"in": 5, "out": 2, "usd": 0.25}}
END
"#;

#[test]
fn an_agent_of_the_users_own_is_twenty_lines() {
    let desk = Desk::new(Stub::says(vec![say("nobody asks")]));
    assert!(OWN.trim().lines().count() <= 20);
    fs::create_dir(desk.root.path("agents")).unwrap();
    fs::write(desk.root.path("agents/own.toml"), OWN).unwrap();
    let program = desk.root.path("own-agent");
    fs::write(&program, PROGRAM).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    desk.configure(&[desk.specialist("coder", "own", "", "")]);
    let _daemon = Daemon::start(&desk.root);
    desk.task("x", "A special task");
    wait_until("the hold", || {
        (desk.root.told("x", "held") == 1).then_some(())
    });
    desk.root.record_that("waiting", "x", |it: &Value| {
        it["waiting"]["until"].is_string()
    });
    desk.answer("retry", "x", &[]);
    let record = desk.root.completed("x");
    assert_eq!(record["result"]["summary"], "own work");
    let cost = &record["metadata"]["usage"];
    assert_eq!(
        (&cost["cost_usd"], &cost["model"]),
        (&json!(0.25), &json!("own-1"))
    );
    let session = text(&cost["session_id"]);
    let read = |name: &str| fs::read_to_string(desk.root.path(name)).unwrap();
    assert!(read("prompt1").contains("A special task"));
    assert!(read("prompt1").contains("one fenced `json` block"));
    assert_eq!(read("args2").trim(), format!("--json --continue {session}"));
}
