use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::trouble::{Kind, Trouble};

fn facts() -> Facts<'static> {
    Facts {
        agent: "claude",
        program: "claude",
        session: Some("ID"),
        folder: Path::new("/srv/my shop"),
        takeover: Some("claude --resume ID".to_owned()),
        usage: Usage {
            input_tokens: 10,
            output_tokens: 2,
            cost_usd: Some(0.25),
        },
        changed: Vec::new(),
        phase: "coding",
        permits: true,
        refused: &[],
        holds_before: 1,
        now: SystemTime::UNIX_EPOCH + Duration::from_secs(1000),
        require_report: false,
        find_report: |text| {
            let block = text.strip_prefix("REPORT ")?;
            serde_json::from_str(block).ok()
        },
        warnings: Vec::new(),
    }
}

fn report(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

fn done(text: &str, reported: Value) -> Ending {
    Ending {
        text: Some(text.to_owned()).filter(|text| !text.is_empty()),
        report: report(reported),
        ..Ending::of(Ended::Through)
    }
}

#[test]
fn a_report_is_the_result_with_what_it_cost_and_how_to_take_over() {
    let ending = done(
        "x",
        json!({"status": "complete", "summary": "Built it", "decisions": null}),
    );
    let result = Value::Object(result(&ending, &facts()));
    assert_eq!(result["status"], "complete");
    assert_eq!(result["summary"], "Built it");
    assert_eq!(result["metadata"]["usage"]["cost_usd"], json!(0.25));
    assert_eq!(
        result["metadata"]["takeover"],
        "cd '/srv/my shop' && claude --resume ID"
    );
    assert!(result.get("decisions").is_none());
}

#[test]
fn text_without_a_report_is_kept_and_reviewed_where_a_report_is_required() {
    let ending = done("# Built it\n\nAll of it.", Value::Null);
    let plain = Value::Object(result(&ending, &facts()));
    assert_eq!(plain["status"], "complete");
    assert_eq!(plain["summary"], "Built it");
    assert_eq!(plain["output"]["text"], "# Built it\n\nAll of it.");
    let strict = Facts {
        require_report: true,
        ..facts()
    };
    let asked = Value::Object(result(&ending, &strict));
    assert_eq!(asked["status"], "needs_review");
    assert_eq!(
        asked["question"]["text"],
        "claude ended without a report. Is the work done?"
    );
    let silent = Value::Object(result(&done("", Value::Null), &facts()));
    assert_eq!(silent["status"], "failed");
    let in_text = done("REPORT {\"status\":\"blocked\"}", Value::Null);
    assert_eq!(result(&in_text, &facts())["status"], "blocked");
    // An object that is no report is the answer itself.
    let answer = Value::Object(result(&done("", json!({"sum": 3})), &facts()));
    assert_eq!(
        (&answer["status"], &answer["output"]["sum"]),
        (&json!("complete"), &json!(3))
    );
}

#[test]
fn a_denied_permission_is_a_question_until_a_person_refused_it() {
    let denied = Denied {
        what: "run: git push".to_owned(),
        rule: "Bash(git push)".to_owned(),
    };
    let ending = Ending {
        denied: BTreeSet::from([denied]),
        ..done("", json!({"status": "complete", "summary": "pushed"}))
    };
    let asked = Value::Object(result(&ending, &facts()));
    assert_eq!(asked["status"], "needs_review");
    assert_eq!(asked["question"]["on_reject"], "rerun");
    assert_eq!(asked["permissions"][0]["rule"], "Bash(git push)");
    assert_eq!(asked["handoff"]["context"], "pushed");
    let refused = ["Bash(git push)".to_owned()];
    let decided = Facts {
        refused: &refused,
        ..facts()
    };
    let went_on = Value::Object(result(&ending, &decided));
    assert_eq!(went_on["status"], "complete");
    assert_eq!(
        went_on["warnings"][0],
        "claude: a human refused permission: run: git push"
    );
}

#[test]
fn a_quota_is_a_hold_and_costs_no_attempt() {
    let until = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1600));
    let said = "usage limit".to_owned();
    let ending = Ending::of(Ended::Quota { until, said });
    let held = Value::Object(result(&ending, &facts()));
    assert_eq!(held["retry_after_seconds"], 605);
    assert!(held.get("status").is_none(), "{held}");
    let said = String::new();
    let ending = Ending::of(Ended::Quota { until: None, said });
    assert_eq!(result(&ending, &facts())["retry_after_seconds"], 120);
}

#[test]
fn changed_files_are_listed_and_missing_ones_are_named() {
    let facts = Facts {
        changed: vec!["a.rs".to_owned(), "src/b.rs".to_owned(), "c.rs".to_owned()],
        ..facts()
    };
    let reported = json!({"status": "complete", "summary": "s",
                          "files_modified": ["./a.rs", "/srv/my shop/src/b.rs"]});
    let listed = Value::Object(result(&done("", reported), &facts));
    assert_eq!(
        listed["files_modified"],
        json!(["./a.rs", "/srv/my shop/src/b.rs", "c.rs"])
    );
    assert_eq!(
        listed["warnings"][0],
        "claude changed files that it did not list: c.rs"
    );
    let silent = Value::Object(result(&done("text", Value::Null), &facts));
    assert_eq!(silent["files_modified"].as_array().unwrap().len(), 3);
    assert_eq!(
        silent["warnings"][0],
        "claude changed files that it did not list: a.rs, src/b.rs, c.rs"
    );
}

#[test]
fn trouble_says_what_to_do_and_what_was_spent() {
    let ending = Ending::of(Ended::Trouble(Trouble::new(Kind::CutOff, "")));
    let failed = Value::Object(result(&ending, &facts()));
    assert_eq!(failed["error"]["code"], "AGENT_STREAM_CUT_OFF");
    assert_eq!(failed["error"]["retryable"], true);
    assert_eq!(failed["metadata"]["usage"]["input_tokens"], 10);
}
