//! The real claude: what it says becomes a result, and what goes wrong says what to do.

use serde_json::json;

use crate::common::{Daemon, outcomes, text};
use crate::desk::{Desk, has, usage};
use crate::stub::{Answer, Stub, refuse, report, report_with, say};

#[test]
fn a_report_is_the_result_and_its_cost_is_in_the_record() {
    if !has("claude") {
        return;
    }
    let answer = report_with(&json!({
        "status": "complete", "summary": "The shop has a counter",
        "decisions": [{"decision": "one counter", "rationale": "small shop"}],
        "verification": {"tests_passed": true, "build_success": null, "lint_passed": null,
            "command_output": null},
    }));
    let (desk, _daemon) = Desk::with("claude", "", Stub::says(vec![answer]));
    let record = desk.complete("plan", "Plan a counter");
    assert_eq!(record["result"]["summary"], "The shop has a counter");
    assert_eq!(record["result"]["decisions"][0]["decision"], "one counter");
    assert_eq!(
        record["result"]["verification"],
        json!({"tests_passed": true})
    );
    let cost = &record["metadata"]["usage"];
    assert_eq!(cost["input_tokens"], 100);
    assert_eq!(cost["output_tokens"], 20);
    assert_eq!(cost["turns"], 2);
    assert!(cost["cost_usd"].as_f64().unwrap() > 0.0, "{cost}");
    assert!(text(&cost["model"]).starts_with("claude-"), "{cost}");
    assert_eq!(usage(&record, 1)["cost_usd"], cost["cost_usd"]);
    // The prompt has the task, and the log one readable line for each event.
    assert!(
        desk.stub.asked()[0]
            .conversation()
            .contains("Plan a counter")
    );
    let log = desk.log("plan");
    let session = text(&cost["session_id"]);
    assert!(
        log.contains(&format!("session {session} with claude-")),
        "{log}"
    );
    assert!(!log.contains("{\"type\""), "{log}");
    let shown = desk.says(&["show", "plan"]);
    let line = format!(
        "cd {} && claude --resume {session}",
        desk.worktree("plan").display()
    );
    assert!(shown.contains(&line), "{shown}");
}

#[test]
fn an_answer_without_a_report_is_kept_and_may_need_a_person() {
    if !has("claude") {
        return;
    }
    let words = "All is well.\nNothing had to be done.";
    let (desk, daemon) = Desk::with("claude", "", Stub::says(vec![say(words)]));
    let record = desk.complete("free", "Look around");
    assert_eq!(record["output"]["text"], words);
    assert_eq!(record["result"]["summary"], "All is well.");
    drop(daemon);
    let keys = "workspace = 'worktree'\nrepository = 'shop'\nrequire_report = true";
    desk.configure(&[desk.specialist("coder", "claude", keys, "")]);
    let _daemon = Daemon::start(&desk.root);
    desk.task("strict", "Look around");
    let record = desk.asks("strict");
    let question = text(&record["handoffd"]["last_result"]["result"]["question"]["text"]);
    assert_eq!(question, "claude ended without a report. Is the work done?");
    desk.answer("approve", "strict", &[]);
    assert_eq!(desk.root.completed("strict")["output"]["text"], words);
}

#[test]
fn a_file_that_it_wrote_is_committed_and_listed() {
    if !has("claude") {
        return;
    }
    let stub = Stub::start(|asked| match asked.number {
        0 => {
            let tree = tree_of(&asked.body.to_string());
            Answer::Tool(
                "Write",
                json!({"file_path": format!("{tree}/made.txt"), "content": "made\n"}),
            )
        }
        _ => report_with(&json!({
            "status": "complete", "summary": "Made a file", "files_modified": ["other.txt"],
        })),
    });
    let keys = "args = ['--permission-mode', 'acceptEdits']";
    let (desk, _daemon) = Desk::with("claude", keys, stub);
    let record = desk.complete("make", "Make a file");
    assert_eq!(record["output"]["branch"], "handoffd/make");
    assert_eq!(desk.on_branch("handoffd/make", "made.txt"), "made");
    let listed = &record["result"]["files_modified"];
    assert_eq!(listed, &json!(["other.txt", "made.txt"]));
    let warnings = record["warnings"].to_string();
    assert!(
        warnings.contains("claude changed files that it did not list: made.txt"),
        "{warnings}"
    );
    assert!(desk.log("make").contains("→ write"), "{}", desk.log("make"));
}

/// The working folder that an agent told its model.
pub fn tree_of(body: &str) -> String {
    let (_, after) = body
        .split_once("Primary working directory: ")
        .expect("no working directory");
    after.split(['\\', '"']).next().unwrap().trim().to_owned()
}

#[test]
fn what_goes_wrong_says_what_to_do() {
    if !has("claude") {
        return;
    }
    for (answer, code, said, advice) in [
        (
            refuse(401, "authentication_error", "invalid x-api-key"),
            "AGENT_NOT_LOGGED_IN",
            "claude is not logged in",
            "Log in as the user that the daemon runs as",
        ),
        (
            refuse(404, "not_found_error", "model: nonsense"),
            "AGENT_UNKNOWN_MODEL",
            "claude does not know the model",
            "Correct the model in the specialist's `args`",
        ),
        (
            refuse(400, "invalid_request_error", "a surprise"),
            "AGENT_ERROR",
            "a surprise",
            "Read the attempt's log",
        ),
    ] {
        let (desk, _daemon) = Desk::with("claude", "", Stub::says(vec![answer]));
        let (record, detail) = desk.fail("x", "Try");
        let message = text(&record["error"]["message"]);
        assert_eq!(detail, code, "{message}");
        assert!(
            message.contains(said) && message.contains(advice),
            "{message}"
        );
    }
}

#[test]
fn what_is_missing_on_the_machine_says_what_to_do() {
    if !has("claude") {
        return;
    }
    let stub = || Stub::says(vec![report("complete", "never")]);
    for (keys, env, code, said) in [
        (
            "",
            "ANTHROPIC_BASE_URL = 'http://127.0.0.1:9'",
            "AGENT_NO_NETWORK",
            "can't reach its model",
        ),
        (
            "",
            "PATH = '/usr/bin:/bin'",
            "AGENT_NOT_FOUND",
            "can't start claude",
        ),
        (
            "args = ['--no-such-option']",
            "",
            "AGENT_TOO_OLD",
            "does not support a required option",
        ),
        (
            "",
            "ANTHROPIC_API_KEY = ''",
            "AGENT_NOT_LOGGED_IN",
            "not logged in",
        ),
    ] {
        let (desk, _daemon) = Desk::with_env("claude", keys, env, stub());
        let (record, detail) = desk.fail("x", "Try");
        let message = text(&record["error"]["message"]);
        assert_eq!(detail, code, "{message}");
        assert!(message.contains(said), "{message}");
        assert_eq!(outcomes(&record), ["failed"]);
        assert!(desk.stub.asked().is_empty());
    }
}

#[test]
fn a_report_that_breaks_its_schema_is_not_believed() {
    if !has("claude") {
        return;
    }
    let stub = Stub::start(|asked| match asked.number {
        0 => Answer::Tool(
            "StructuredOutput",
            json!({"status": "splendid", "summary": 7}),
        ),
        _ => say("I can't report."),
    });
    let (desk, _daemon) = Desk::with("claude", "require_report = true", stub);
    desk.task("x", "Try");
    let record = desk.asks("x");
    let result = &record["handoffd"]["last_result"]["result"];
    assert_eq!(result["status"], "needs_review", "{result}");
    assert_eq!(result["output"]["text"], "I can't report.");
}

#[test]
fn an_attempt_that_costs_too_much_is_ended_by_the_agent_itself() {
    if !has("claude") {
        return;
    }
    // It never ends by itself.
    let stub = Stub::says(vec![Answer::Tool("Bash", json!({"command": "pwd"}))]);
    let keys = "max_usd = 0.01\nretry = { max_retries = 2, delay = '50ms' }";
    let (desk, _daemon) = Desk::with("claude", keys, stub);
    let (record, code) = desk.fail("x", "Try for ever");
    assert_eq!(code, "AGENT_LIMIT_REACHED");
    assert_eq!(outcomes(&record), ["failed"], "a retry would cost as much");
    let cost = usage(&record, 1)["cost_usd"].as_f64().unwrap();
    assert!((0.01..0.02).contains(&cost), "{cost}");
}
