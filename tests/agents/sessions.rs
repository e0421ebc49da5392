//! One session for one handoff: it goes on after a quota, a question, a refused permission, a broken
//! connection and a time-out, and each attempt has its own cost.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::claude::tree_of;
use crate::common::{Daemon, outcomes, text, wait_until};
use crate::desk::{Desk, has, request, usage};
use crate::stub::{Answer, Stub, refuse, report, report_with};

pub fn session(record: &Value, number: usize) -> String {
    text(&usage(record, number)["session_id"])
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// A refusal because a quota is used up until some seconds from now.
pub fn used_up(seconds: u64) -> Answer {
    let headers = [
        ("anthropic-ratelimit-unified-status", "rejected".to_owned()),
        (
            "anthropic-ratelimit-unified-representative-claim",
            "five_hour".to_owned(),
        ),
        (
            "anthropic-ratelimit-unified-reset",
            (now() + seconds).to_string(),
        ),
    ];
    let headers = headers
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec();
    let body =
        json!({"type": "error", "error": {"type": "rate_limit_error", "message": "limit reached"}});
    Answer::Refuse(429, headers, body)
}

/// Of a subscription, whose limits come with the time at which they end.
pub const SUBSCRIBED: &str = "ANTHROPIC_API_KEY = '', CLAUDE_CODE_OAUTH_TOKEN = 'sk-ant-oat01-x'";

#[test]
fn a_quota_is_a_hold_until_its_end_for_all_that_share_the_account() {
    if !has("claude") {
        return;
    }
    let stub = Stub::start(|asked| match asked.number {
        0 => used_up(8),
        _ => report("complete", "Done after the wait"),
    });
    let desk = Desk::new(stub);
    let keys = "account = 'team'";
    desk.configure(&[
        desk.specialist("coder", "claude", keys, SUBSCRIBED),
        desk.specialist("tester", "claude", keys, SUBSCRIBED),
    ]);
    let _daemon = Daemon::start(&desk.root);
    desk.task("first", "Work");
    wait_until("the hold", || {
        (desk.root.told("first", "held") == 1).then_some(())
    });
    let mut other = request("Test");
    other["target"]["agent_id"] = json!("@tester");
    // The log has the hold a moment before the queue has it.
    let held = (0..100).find(|number| {
        let id = format!("second-{number}");
        desk.root.drop_request(&id, &other);
        wait_until("a hold or an end", || {
            let said = desk.says(&["explain", &id]);
            if said.contains("@coder, which shares the account team, asked to pause until") {
                return Some(true);
            }
            desk.root.record_in("completed", &id).map(|_| false)
        })
    });
    let record = desk.root.completed("first");
    assert_eq!(outcomes(&record), ["held", "completed"]);
    assert_eq!(session(&record, 1), session(&record, 2), "one session");
    let second = desk.root.completed(&format!("second-{}", held.unwrap()));
    assert_eq!(outcomes(&second), ["completed"]);
}

#[test]
fn a_quota_without_an_end_is_a_hold_of_a_minute() {
    if !has("claude") {
        return;
    }
    let stub = Stub::says(vec![refuse(429, "rate_limit_error", "slow down")]);
    let (desk, _daemon) = Desk::with("claude", "", stub);
    desk.task("x", "Work");
    wait_until("the hold", || {
        (desk.root.told("x", "held") == 1).then_some(())
    });
    let held = desk.root.record_that("waiting", "x", |record| {
        record["waiting"]["until"].is_string()
    });
    let result = &held["handoffd"]["last_result"]["result"];
    assert_eq!(result["retry_after_seconds"], 60, "{result}");
    assert!(
        text(&result["summary"]).starts_with("the quota of claude is used up: "),
        "{result}"
    );
    assert_eq!(outcomes(&held), ["held"]);
    desk.answer("cancel", "x", &[]);
}

#[test]
fn a_question_and_a_rejection_go_on_in_the_session_and_each_attempt_has_its_cost() {
    if !has("claude") {
        return;
    }
    let asks = report_with(&json!({
        "status": "needs_review", "summary": "Half done", "question": "Red or blue?", "context": "paint",
    }));
    let stub = Stub::says(vec![asks.clone(), asks, report("complete", "Painted")]);
    let (desk, _daemon) = Desk::with("claude", "", stub);
    desk.task("paint", "Paint it");
    let waiting = desk.asks("paint");
    assert!(desk.says(&["show", "paint"]).contains("Red or blue?"));
    assert_eq!(usage(&waiting, 1)["input_tokens"], 100);
    for (number, question) in [(1, "What would blue cost?"), (2, "Then blue, please")] {
        desk.answer("ask", "paint", &["--comment", question]);
        wait_until("the next attempt", || {
            let asked = desk.stub.asked();
            asked
                .get(number)
                .filter(|asked| asked.conversation().contains(question))
                .map(drop)
        });
        if number == 1 {
            let again = |record: &Value| {
                record["waiting"]["on"] == "human"
                    && record["handoffd"]["attempts"].as_array().unwrap().len() == 2
            };
            desk.root.record_that("waiting", "paint", again);
        }
    }
    let record = desk.root.completed("paint");
    assert_eq!(
        outcomes(&record),
        ["needs_review", "needs_review", "completed"]
    );
    // The same conversation: the last request has all that was said before.
    let last = desk.stub.asked().pop().unwrap().conversation();
    assert!(
        last.contains("Paint it") && last.contains("What would blue cost?"),
        "{last}"
    );
    for number in 1..=3 {
        let cost = usage(&record, number);
        assert_eq!(cost["input_tokens"], 100, "attempt {number}: {cost}");
        assert_eq!(cost["output_tokens"], 20, "attempt {number}: {cost}");
        assert_eq!(
            cost["cost_usd"],
            usage(&record, 1)["cost_usd"],
            "attempt {number}"
        );
        assert_eq!(session(&record, number), session(&record, 1));
    }
}

#[test]
fn a_denied_permission_is_asked_for_and_its_approval_allows_just_that() {
    if !has("claude") {
        return;
    }
    let write = |body: &str, name: &str| {
        let tree = tree_of(body);
        Answer::Tool(
            "Write",
            json!({"file_path": format!("{tree}/{name}"), "content": "made\n"}),
        )
    };
    let stub = Stub::start(move |asked| {
        let body = asked.body.to_string();
        match asked.number {
            0 | 2 => write(&body, "made.txt"),
            1 => report("complete", "I was not allowed to write"),
            3 => write(&body, "more.txt"),
            4 => report("complete", "One file, not the other"),
            _ => report("complete", "Done without it"),
        }
    });
    let (desk, _daemon) = Desk::with("claude", "", stub);
    desk.task("x", "Make a file");
    let record = desk.asks("x");
    let question = &record["handoffd"]["last_result"]["result"]["question"];
    let path = desk.worktree("x").join("made.txt");
    let asks = format!("claude asks for permission to write {}", path.display());
    assert_eq!(question["text"], asks.as_str());
    assert_eq!(
        (&question["on_approve"], &question["on_reject"]),
        (&json!("rerun"), &json!("rerun"))
    );
    assert!(
        desk.says(&["list", "--waiting", "human"])
            .contains("@coder")
    );
    assert!(!path.exists());
    desk.answer("approve", "x", &[]);
    // That file may be written now, and no other.
    let more = |record: &Value| {
        record["handoffd"]["last_result"]["result"]["question"]["text"]
            .as_str()
            .is_some_and(|asks| asks.ends_with("more.txt"))
    };
    let record = desk.root.record_that("waiting", "x", more);
    assert_eq!(fs::read_to_string(&path).unwrap(), "made\n");
    assert_eq!(session(&record, 1), session(&record, 2));
    desk.answer("reject", "x", &["--comment", "one file is enough"]);
    let record = desk.root.completed("x");
    assert_eq!(record["result"]["summary"], "Done without it");
    let told = desk.stub.asked().pop().unwrap().last();
    assert!(
        told.contains("one file is enough") && told.contains("reject"),
        "{told}"
    );
    assert!(!desk.worktree("x").join("more.txt").exists());
}

#[test]
fn an_approved_command_is_that_command_and_no_pattern() {
    if !has("claude") {
        return;
    }
    let run = |command: &str| {
        Answer::Tool(
            "Bash",
            json!({"command": command, "description": "make files"}),
        )
    };
    let stub = Stub::start(move |asked| match asked.number {
        0 | 2 => run("touch 'a*' made?"),
        1 => report("complete", "I was not allowed to"),
        3 => run("touch 'a*' made-too"),
        _ => report("complete", "One, not the other"),
    });
    let (desk, _daemon) = Desk::with("claude", "", stub);
    desk.task("x", "Make files");
    let record = desk.asks("x");
    let question = &record["handoffd"]["last_result"]["result"]["question"]["text"];
    assert_eq!(
        question,
        "claude asks for permission to run: touch 'a*' made?"
    );
    desk.answer("approve", "x", &[]);
    let other = |record: &Value| {
        let asks = record["handoffd"]["last_result"]["result"]["question"]["text"].as_str();
        asks.is_some_and(|asks| asks.ends_with("made-too"))
    };
    desk.root.record_that("waiting", "x", other);
    assert!(desk.worktree("x").join("made?").exists());
    assert!(!desk.worktree("x").join("made-too").exists());
    desk.answer("cancel", "x", &[]);
}

#[test]
fn a_stream_that_breaks_off_goes_on_in_the_same_session() {
    if !has("claude") {
        return;
    }
    let stub = Stub::start(|asked| {
        let body = asked.body.to_string();
        match asked.number {
            0 => Answer::Tool("Bash", json!({"command": "pwd"})),
            _ if body.contains("Why the last attempt did not count") => report("complete", "Done"),
            _ => Answer::CutOff,
        }
    });
    let keys =
        "retry = { max_retries = 1, delay = '50ms' }\nargs = ['--permission-mode', 'acceptEdits']";
    let (desk, _daemon) = Desk::with("claude", keys, stub);
    let record = desk.complete("x", "Work");
    assert_eq!(outcomes(&record), ["failed", "completed"]);
    assert_eq!(session(&record, 1), session(&record, 2));
    let last = desk.stub.asked().pop().unwrap().conversation();
    assert!(
        last.contains("\"pwd\""),
        "the first attempt's work is in the session: {last}"
    );
}

#[test]
fn one_that_hangs_is_ended_and_goes_on_in_the_same_session() {
    if !has("claude") {
        return;
    }
    let stub = Stub::start(|asked| {
        let again = asked
            .conversation()
            .contains("Why the last attempt did not count");
        match asked.number {
            0 => Answer::Tool("Bash", json!({"command": "pwd"})),
            _ if again => report("complete", "Done"),
            _ => Answer::Hang,
        }
    });
    let keys = "timeout = '8s'\nretry = { max_retries = 1, delay = '50ms' }";
    let (desk, _daemon) = Desk::with("claude", keys, stub);
    let record = desk.complete("x", "Work");
    assert_eq!(outcomes(&record), ["timeout", "completed"]);
    let last = desk.stub.asked().pop().unwrap().conversation();
    assert!(
        last.contains("\"pwd\""),
        "the first attempt's work is in the session: {last}"
    );
}

#[test]
fn a_session_that_is_gone_begins_anew_with_the_whole_prompt_and_a_warning() {
    if !has("claude") {
        return;
    }
    let asks = report_with(&json!({"status": "needs_review", "summary": "s", "question": "Well?"}));
    let stub = Stub::says(vec![asks, report("complete", "Done")]);
    let (desk, _daemon) = Desk::with("claude", "", stub);
    desk.task("x", "A very special task");
    desk.asks("x");
    fs::remove_dir_all(desk.root.path("home/.claude")).unwrap();
    desk.answer("ask", "x", &["--comment", "Once more?"]);
    let record = desk.root.completed("x");
    let warnings = record["warnings"].to_string();
    assert!(
        warnings.contains("started a new one with the whole prompt"),
        "{warnings}"
    );
    let last = desk.stub.asked().pop().unwrap().conversation();
    assert!(
        last.contains("A very special task") && last.contains("Once more?"),
        "{last}"
    );
    assert_eq!(usage(&record, 2)["input_tokens"], 100);
}
