//! Results and the rules of quality: what is the result of a text, what is filled in, what is warned
//! of, and what counts to the letter.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, child, orders, outcomes, text, with};

const NO_RETRY: &str = "defaults.retry.max_retries = 0";
const STRICT: &str = "defaults.retry.max_retries = 0\nintake.strict = true";

/// A request whose specialist prints this text.
fn prints(root: &Root, id: &str, output: &str) -> Value {
    fs::write(root.path(&format!("marks/{id}.says")), output).unwrap();
    orders("cat $HANDOFF_ROOT/marks/$HANDOFF_ID.says")
}

fn drop_prints(root: &Root, id: &str, output: &str) {
    let request = prints(root, id, output);
    root.drop_request(id, &request);
}

fn drop_result(root: &Root, id: &str, result: &Value) {
    drop_prints(root, id, &result.to_string());
}

fn warnings(record: &Value) -> String {
    let all = record["warnings"].as_array().cloned().unwrap_or_default();
    all.iter().map(|it| text(it) + "\n").collect()
}

fn blocked() -> Value {
    json!({ "status": "blocked", "phase": "build", "summary": "There is no key for staging",
            "blocked_reason": "missing_requirements", "attempted": ["Looked in the vault"],
            "handoff": { "next_agent": null, "context": "Ask for a key",
                         "blockers": ["no key"] } })
}

#[test]
fn a_blocked_report_is_blocked_whatever_follows_it() {
    let root = Root::with(NO_RETRY);
    let _daemon = Daemon::start(&root);
    let block = format!("```json\n{:#}\n```\n", blocked());
    drop_prints(&root, "ends", &format!("# Work\n\n{block}\n\n"));
    drop_prints(
        &root,
        "goes-on",
        &format!("# Work\n\n{block}\nLet me know what to do.\n"),
    );
    let crlf = format!("Work\n\n{block}\nLet me know.\n").replace('\n', "\r\n");
    drop_prints(&root, "crlf", &crlf);
    for (id, warned) in [("ends", false), ("goes-on", true), ("crlf", true)] {
        let (record, code) = root.failed(id);
        assert_eq!(code, "BLOCKED", "{id}");
        assert_eq!(outcomes(&record), ["blocked"], "{id}");
        let told = warnings(&record).contains("text follows the json block");
        assert_eq!(told, warned, "{id}: {record:#}");
    }
}

#[test]
fn a_report_that_is_only_quoted_is_text() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let block = format!("```json\n{}\n```\n", blocked());
    let by = |mark: &str| -> String {
        let lines = block.lines().flat_map(|line| [mark, line, "\n"]);
        lines.collect()
    };
    for (id, output) in [
        ("fence", format!("So:\n\n````markdown\n{block}````\n")),
        ("indented", by("    ")),
        ("list", format!("- so:\n\n{}", by("  "))),
        ("quote", by("> ")),
        ("tildes", format!("~~~\n{block}~~~\n")),
        ("language", block.replace("json", "yaml")),
    ] {
        drop_prints(&root, id, &output);
        let record = root.completed(id);
        assert_eq!(record["output"]["text"], output, "{id}");
        assert_eq!(record["result"], json!({}), "{id}");
    }
    let odd = "```json\n{\"status\": \"pending\", \"summary\": \"s\"}\n```\nThat was it.\n";
    drop_prints(&root, "odd", odd);
    let record = root.completed("odd");
    assert_eq!(record["output"]["text"], odd);
    assert!(warnings(&record).contains("as text"), "{record:#}");
}

#[test]
fn bookkeeping_does_not_fail_work() {
    let root = Root::with("defaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    let phase = json!({ "target": { "agent_id": "@fake", "phase": "build" } });
    for word in ["done", "success", "ok"] {
        drop_result(
            &root,
            word,
            &json!({ "status": word, "summary": "Two tables, an index" }),
        );
        let record = root.completed(word);
        assert_eq!(record["result"]["status"], word);
        let told = warnings(&record);
        assert!(
            told.contains("is read as complete (rule report-status)"),
            "{told}"
        );
    }
    let said = "Built 3 tiles with 12 tests.\n\n```json\n{\"status\": \"needs_review\"}\n```\n";
    let request = with(prints(&root, "review", said), phase.clone());
    root.drop_request("review", &request);
    let record = root.record("waiting", "review");
    assert_eq!(record["waiting"]["on"], "human");
    assert_eq!(record["result"]["phase"], "build");
    assert_eq!(record["result"]["summary"], "Built 3 tiles with 12 tests.");
    let told = warnings(&record);
    assert!(
        told.contains("report-phase") && told.contains("report-summary"),
        "{told}"
    );
    let said = json!({ "handoff": { "next_agent": "human" }, "summary": "Two tables, an index" });
    let request = with(prints(&root, "on", &said.to_string()), phase);
    root.drop_request("on", &request);
    let record = root.completed("on");
    let child = text(&record["handoffd"]["children"][0]);
    let data = &root.record("waiting", &child)["input"]["data"];
    assert_eq!(data["phase"], "build");
    assert_eq!(data["context"], "Two tables, an index");
    let said = json!({ "status": "ok", "artifact": { "a": 1 } });
    drop_result(&root, "artifact", &said);
    let record = root.completed("artifact");
    assert_eq!(record["result"]["artifact"], json!({ "a": 1 }));
    assert!(warnings(&record).contains("expected_output.destination"));
}

#[test]
fn work_that_contradicts_itself_is_warned_of_and_explained() {
    let cases = [
        (
            "flag",
            json!({ "status": "complete", "verification": { "tests_passed": false } }),
            "verification.tests_passed",
        ),
        (
            "gate",
            json!({ "status": "complete", "quality_gates": { "failed": ["unit"] } }),
            "quality_gates.failed",
        ),
    ];
    let root = Root::with(NO_RETRY);
    let daemon = Daemon::start(&root);
    for (id, result, field) in &cases {
        drop_result(&root, id, result);
        let told = warnings(&root.completed(id));
        assert!(told.contains(field), "{told}");
        let explained = root.cli(&["explain", id]);
        let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
        assert!(explained.contains(field), "{explained}");
    }
    drop(daemon);
    let root = Root::with(STRICT);
    let _daemon = Daemon::start(&root);
    for (id, result, field) in &cases {
        drop_result(&root, id, result);
        let (record, code) = root.failed(id);
        assert_eq!(code, "VALIDATION_FAILED");
        assert_eq!(record["validation"]["errors"][0]["field"], *field);
    }
}

fn package(context: Value, more: Value) -> Value {
    let summary = json!({ "summary": "Two tables and an index" });
    let handoff = json!({ "from": { "agent": "a" }, "to": { "agent": "fake" },
                          "context": with(summary, context) });
    json!({ "handoff": with(handoff, more) })
}

fn report(more: Value) -> Value {
    with(
        json!({ "status": "complete", "phase": "build", "summary": "Three tiles with 12 tests",
                "handoff": { "context": "Test each tile", "next_phase": "testing" } }),
        more,
    )
}

/// Documents that break one rule each, with the rule and the field.
fn breaches() -> Vec<(Value, &'static str, &'static str)> {
    let mut no_phase = report(json!({ "output_type": "x" }));
    no_phase.as_object_mut().unwrap().remove("phase");
    let mut no_summary = report(json!({}));
    no_summary.as_object_mut().unwrap().remove("summary");
    vec![
        (no_phase, "report-phase", "phase"),
        (no_summary, "report-summary", "summary"),
        (
            report(json!({ "handoff": { "context": "c", "blockers": ["b"] } })),
            "report-blockers",
            "handoff.blockers",
        ),
        (
            report(json!({ "files_modified": ["src/a.rs", "/src/b.rs"] })),
            "relative-files",
            "files_modified[1]",
        ),
        (
            report(json!({ "summary": "Added tests" })),
            "telling-summary",
            "summary",
        ),
        (
            report(json!({ "verification": { "tests_passed": false } })),
            "consistent",
            "verification.tests_passed",
        ),
        (
            package(json!({ "summary": "It's done" }), json!({})),
            "telling-summary",
            "handoff.context.summary",
        ),
        (
            package(
                json!({}),
                json!({ "expectations": { "deliverable": "d", "constraints": ["quickly"] } }),
            ),
            "measurable",
            "handoff.expectations.constraints[0]",
        ),
        (
            package(
                json!({ "artifacts": [{ "path": "there.md", "type": "drawing" }] }),
                json!({}),
            ),
            "artifact-type",
            "handoff.context.artifacts[0].type",
        ),
        (
            package(
                json!({ "artifacts": [{ "path": "there.md", "content_hash": "abc123" }] }),
                json!({}),
            ),
            "content-hash",
            "handoff.context.artifacts[0].content_hash",
        ),
        (
            package(
                json!({ "open_questions": [{ "question": "q", "priority": "urgent" }] }),
                json!({}),
            ),
            "question-priority",
            "handoff.context.open_questions[0].priority",
        ),
        (
            package(json!({}), json!({ "type": "sideways" })),
            "handoff-type",
            "handoff.type",
        ),
        (
            with(package(json!({}), json!({})), json!({ "type": "sideways" })),
            "handoff-type",
            "type",
        ),
        (
            report(json!({ "blocking_issues": [{ "issue": "i", "severity": "urgent" }] })),
            "issue-severity",
            "blocking_issues[0].severity",
        ),
        (
            report(json!({ "artifacts": [{ "path": "there.md", "sha256": "abc123" }] })),
            "content-hash",
            "artifacts[0].sha256",
        ),
        (
            report(json!({ "open_questions": [{ "question": "q", "priority": "urgent" }] })),
            "question-priority",
            "open_questions[0].priority",
        ),
        (
            report(json!({ "handoff": { "context": "c", "expectations": {
                "success_criteria": ["Write good code"] } } })),
            "measurable",
            "handoff.expectations.success_criteria[0]",
        ),
    ]
}

#[test]
fn the_rules_of_quality_are_warnings_and_to_the_letter_errors() {
    for strict in [false, true] {
        let root = Root::with(if strict { STRICT } else { NO_RETRY });
        fs::write(root.path("there.md"), "there").unwrap();
        let _daemon = Daemon::start(&root);
        for (n, (document, rule, field)) in breaches().into_iter().enumerate() {
            let id = format!("d{n}");
            root.drop_request(&id, &document);
            if strict {
                let (record, code) = root.failed(&id);
                assert_eq!(code, "SCHEMA_VALIDATION_FAILED", "{rule}");
                let error = &record["validation"]["errors"][0];
                assert_eq!(error["field"], field, "{rule}: {record:#}");
                assert!(text(&error["error"]).contains(rule), "{error}");
            } else {
                let record = root.completed(&id);
                let told = record["acknowledgment"]["warnings"].to_string();
                assert!(
                    told.contains(field) && told.contains(rule),
                    "{rule}: {record:#}"
                );
            }
        }
        for (n, (document, rule, field)) in breaches().into_iter().enumerate() {
            // A package is nothing that a specialist returns.
            if document["status"].is_null() {
                continue;
            }
            let id = format!("r{n}");
            drop_result(&root, &id, &document);
            if strict {
                let (record, code) = root.failed(&id);
                assert_eq!(code, "VALIDATION_FAILED", "{rule}");
                let errors = record["validation"]["errors"].to_string();
                assert!(errors.contains(field) && errors.contains(rule), "{errors}");
            } else {
                let told = warnings(&root.completed(&id));
                assert!(
                    told.contains(field) && told.contains(rule),
                    "{rule}: {told}"
                );
            }
        }
        root.drop_request("good", &report(json!({})));
        assert_eq!(
            root.completed("good")["acknowledgment"]["warnings"],
            Value::Null
        );
    }
}

#[test]
fn many_breaches_are_counted_and_not_all_told() {
    let root = Root::with(NO_RETRY);
    let _daemon = Daemon::start(&root);
    let flags: serde_json::Map<String, Value> =
        (0..5000).map(|n| (format!("f{n}"), false.into())).collect();
    let none: Vec<String> = (0..5000).map(|n| format!("none/{n}.md")).collect();
    root.drop_request("dropped", &report(json!({ "artifacts": none })));
    drop_result(&root, "printed", &report(json!({ "verification": flags })));
    for id in ["dropped", "printed"] {
        let record = root.completed(id);
        let warnings = record["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), 51, "{id}");
        assert_eq!(warnings[50], "warnings: 4950 more", "{id}");
    }
}

#[test]
fn to_the_letter_a_blocked_report_lists_what_blocks_it() {
    let root = Root::with(STRICT);
    let _daemon = Daemon::start(&root);
    drop_result(&root, "good", &blocked());
    assert_eq!(root.failed("good").1, "BLOCKED");
    let mut told = blocked();
    told["handoff"].as_object_mut().unwrap().remove("blockers");
    drop_result(&root, "bad", &told);
    let (record, code) = root.failed("bad");
    assert_eq!(code, "VALIDATION_FAILED");
    let errors = &record["validation"]["errors"];
    assert_eq!(errors[0]["field"], "handoff.blockers", "{errors}");
}

#[test]
fn open_questions_are_the_questions_of_the_receiver() {
    let root = Root::with("specialists.next.command = ['true']");
    let _daemon = Daemon::start(&root);
    let questions = json!(["Which languages?", { "question": "By when?", "priority": "high" }]);
    let asked = package(json!({ "open_questions": questions }), json!({}));
    root.drop_request("x", &asked);
    assert_eq!(
        root.completed("x")["acknowledgment"]["questions"],
        questions
    );
    // The next agent of a chain gets those that are left.
    let left = report(json!({ "open_questions": questions, "handoff": {
        "context": "Ask them", "next_agent": "@next" } }));
    drop_result(&root, "y", &left);
    let next = root.completed(&child(&root.completed("y")));
    let asked = &next["acknowledgment"]["questions"];
    assert_eq!(asked[0]["question"], questions[0]);
    assert_eq!(asked[1]["question"], questions[1]["question"]);
    // Very many are not repeated in full.
    let many: Vec<String> = (0..5000).map(|n| format!("質問 {n}?")).collect();
    root.drop_request("z", &package(json!({ "open_questions": many }), json!({})));
    let record = root.completed("z");
    let asked = record["acknowledgment"]["questions"].as_array().unwrap();
    assert!(asked.len() < many.len() && asked[0] == many[0].as_str());
    let rest = format!(
        "{} more in handoff.context.open_questions",
        many.len() + 1 - asked.len()
    );
    assert_eq!(asked.last().unwrap(), &json!(rest));
    assert_eq!(record["handoff"]["context"]["open_questions"], json!(many));
}
