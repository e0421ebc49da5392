//! The real codex: its messages, its sandbox, its failures and its sessions.

use serde_json::{Value, json};

use crate::common::{Daemon, outcomes, text, wait_until};
use crate::desk::{Desk, codex_args, has, usage};
use crate::stub::{Answer, Stub, refuse, report, report_with, say};

/// A root with one codex that may write in its worktree.
fn desk(keys: &str, stub: Stub) -> (Desk, Daemon) {
    let args = codex_args(&stub, ", '-s', 'workspace-write'");
    Desk::with("codex", &format!("{args}\n{keys}"), stub)
}

fn shell(command: &str) -> Answer {
    Answer::Tool("exec_command", json!({"cmd": command}))
}

/// A command that asks to be run outside the sandbox.
fn escalated(command: &str) -> Answer {
    let input = json!({
        "cmd": command, "sandbox_permissions": "require_escalated", "justification": "It has to be.",
    });
    Answer::Tool("exec_command", input)
}

#[test]
fn a_report_is_the_result_and_what_it_made_is_committed() {
    if !has("codex") {
        return;
    }
    let stub = Stub::start(|asked| match asked.number {
        0 => shell("echo made > made.txt"),
        _ => report("complete", "Made a file"),
    });
    let (desk, _daemon) = desk("", stub);
    let record = desk.complete("make", "Make a file");
    assert_eq!(record["result"]["summary"], "Made a file");
    assert_eq!(record["result"]["files_modified"], json!(["made.txt"]));
    assert_eq!(desk.on_branch("handoffd/make", "made.txt"), "made");
    let cost = &record["metadata"]["usage"];
    assert_eq!(
        (&cost["input_tokens"], &cost["output_tokens"]),
        (&json!(200), &json!(40))
    );
    let schema = desk.stub.asked()[0].body["text"]["format"]["type"].clone();
    assert_eq!(schema, "json_schema");
    let session = text(&cost["session_id"]);
    let line = format!(
        "cd {} && codex resume {session}",
        desk.worktree("make").display()
    );
    assert!(desk.says(&["show", "make"]).contains(&line), "{line}");
    let log = desk.log("make");
    assert!(
        log.contains("→ run: ") && log.contains("echo made > made.txt"),
        "{log}"
    );
}

#[test]
fn a_message_that_is_no_report_is_text() {
    if !has("codex") {
        return;
    }
    let (desk, daemon) = desk("", Stub::says(vec![say("All is well.")]));
    let record = desk.complete("free", "Look around");
    assert_eq!(record["output"]["text"], "All is well.");
    drop(daemon);
    // An object that is not by the schema is no report either.
    let stub = Stub::says(vec![say("{\"status\": 7, \"summary\": \"odd\"}")]);
    let args = codex_args(&stub, "");
    let (desk, _daemon) = Desk::with("codex", &format!("{args}\nrequire_report = true"), stub);
    desk.task("strict", "Look around");
    let record = desk.asks("strict");
    let result = &record["handoffd"]["last_result"]["result"];
    assert_eq!(result["output"]["summary"], "odd", "{result}");
}

#[test]
fn what_goes_wrong_says_what_to_do() {
    if !has("codex") {
        return;
    }
    for (answer, code, said) in [
        (
            refuse(401, "invalid_api_key", "bad key"),
            "AGENT_NOT_LOGGED_IN",
            "codex is not logged in",
        ),
        (
            refuse(
                404,
                "model_not_found",
                "The model `gpt-x` does not exist or you do not have access to it.",
            ),
            "AGENT_UNKNOWN_MODEL",
            "codex does not know the model",
        ),
        (
            Answer::CutOff,
            "AGENT_NO_NETWORK",
            "codex can't reach its model",
        ),
    ] {
        let (desk, _daemon) = desk("", Stub::says(vec![answer]));
        let (record, detail) = desk.fail("x", "Try");
        let message = text(&record["error"]["message"]);
        assert_eq!(detail, code, "{message}");
        assert!(message.contains(said), "{message}");
    }
    let stub = Stub::says(vec![say("never")]);
    let (desk, _daemon) = Desk::with("codex", "args = ['--no-such-option']", stub);
    assert_eq!(desk.fail("x", "Try").1, "AGENT_TOO_OLD");
}

#[test]
fn a_quota_is_a_hold_until_the_time_that_it_names() {
    if !has("codex") {
        return;
    }
    let held = |answer: Answer| {
        let (desk, _daemon) = desk("", Stub::says(vec![answer]));
        desk.task("x", "Work");
        wait_until("the hold", || {
            (desk.root.told("x", "held") == 1).then_some(())
        });
        let record = desk
            .root
            .record_that("waiting", "x", |it| it["waiting"]["until"].is_string());
        record["handoffd"]["last_result"]["result"]["retry_after_seconds"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(held(refuse(429, "rate_limit_error", "slow down")), 60);
    let limit = json!({"error": {
        "type": "usage_limit_reached", "message": "The usage limit has been reached",
        "plan_type": "plus", "resets_in_seconds": 7200,
        "resets_at": crate::sessions::now() + 7200,
    }});
    // It names the minute.
    let wait = held(Answer::Refuse(429, Vec::new(), limit));
    assert!((7200 - 300..=7200 + 90).contains(&wait), "{wait}");
}

#[test]
fn a_question_goes_on_in_the_session_and_each_attempt_has_its_cost() {
    if !has("codex") {
        return;
    }
    let asks = report_with(&json!({
        "status": "needs_review", "summary": "Half done", "question": "Red or blue?", "context": "paint",
    }));
    let stub = Stub::says(vec![asks.clone(), asks, report("complete", "Painted")]);
    let (desk, _daemon) = desk("", stub);
    desk.task("paint", "Paint it");
    for number in 1..=2 {
        let asked = |record: &Value| {
            record["waiting"]["on"] == "human"
                && record["handoffd"]["attempts"].as_array().unwrap().len() == number
        };
        desk.root.record_that("waiting", "paint", asked);
        desk.answer("ask", "paint", &["--comment", "Why not green?"]);
    }
    let record = desk.root.completed("paint");
    let last = desk.stub.asked().pop().unwrap().conversation();
    assert!(
        last.contains("Paint it") && last.contains("Why not green?"),
        "{last}"
    );
    for number in 1..=3 {
        let cost = usage(&record, number);
        assert_eq!(cost["input_tokens"], 100, "attempt {number}: {cost}");
        assert_eq!(cost["session_id"], usage(&record, 1)["session_id"]);
    }
}

#[test]
fn a_command_outside_the_sandbox_is_asked_for_and_its_approval_allows_just_that() {
    if !has("codex") {
        return;
    }
    let stub = Stub::start(|asked| match asked.number {
        0 | 2 => escalated("echo made > ../outside.txt"),
        1 => report("complete", "I was not allowed to"),
        3 => escalated("echo more > ../more.txt"),
        4 => report("complete", "One, not the other"),
        _ => report("complete", "Done without it"),
    });
    let (desk, _daemon) = desk("", stub);
    desk.task("x", "Write outside");
    let record = desk.asks("x");
    let question = &record["handoffd"]["last_result"]["result"]["question"]["text"];
    let asks = "codex asks for permission to run outside the sandbox: echo made > ../outside.txt";
    assert_eq!(question, asks);
    let outside = desk.root.path("worktrees/outside.txt");
    assert!(!outside.exists());
    desk.answer("approve", "x", &[]);
    let more = |record: &Value| {
        let asks = record["handoffd"]["last_result"]["result"]["question"]["text"].as_str();
        asks.is_some_and(|asks| asks.ends_with("more.txt"))
    };
    let record = desk.root.record_that("waiting", "x", more);
    assert!(outside.exists());
    assert_eq!(
        usage(&record, 1)["session_id"],
        usage(&record, 2)["session_id"]
    );
    desk.answer("reject", "x", &["--comment", "one file is enough"]);
    let record = desk.root.completed("x");
    assert_eq!(record["result"]["summary"], "Done without it");
    let told = desk.stub.asked().pop().unwrap().last();
    assert!(told.contains("one file is enough"), "{told}");
    assert!(!desk.root.path("worktrees/more.txt").exists());
}

#[test]
fn one_that_hangs_is_ended_and_goes_on_in_the_same_session() {
    if !has("codex") {
        return;
    }
    let stub = Stub::start(|asked| {
        let again = asked
            .conversation()
            .contains("Why the last attempt did not count");
        match asked.number {
            0 => shell("pwd"),
            _ if again => report("complete", "Done"),
            _ => Answer::Hang,
        }
    });
    let (desk, _daemon) = desk(
        "timeout = '5s'\nretry = { max_retries = 1, delay = '50ms' }",
        stub,
    );
    let record = desk.complete("x", "Work");
    assert_eq!(outcomes(&record), ["timeout", "completed"]);
    let last = desk.stub.asked().pop().unwrap().conversation();
    assert!(
        last.contains("pwd"),
        "the first attempt's work is in the session: {last}"
    );
}
