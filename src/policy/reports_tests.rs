//! Tables of results that are reports: what is filled in, what is warned of, what fails.

use super::*;
use crate::policy::judge::tests::{ended, word};
use crate::policy::judge::{Ended, Exit, Verdict, judge};
use crate::protocol::result::Output;

/// The result of a success, and its warnings.
fn success(ended: &Ended) -> (Map<String, Value>, Vec<String>) {
    match judge(ended) {
        Verdict::Completed(success) | Verdict::NeedsReview(success) => {
            (success.result.unwrap(), success.warnings)
        }
        Verdict::Blocked(result, warnings) => (result, warnings),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_report_lacks_is_filled_in_with_a_warning() {
    let text = "# Tiles\n\nBuilt 3 tiles\nwith 12 tests.\n\nMore.\n\n";
    for (json, phase, summary, context, rules) in [
        (
            r#"{"status":"needs_review"}"#,
            Some("build"),
            Some("Built 3 tiles with 12 tests."),
            None,
            &["report-phase", "report-summary", "report-context"][..],
        ),
        (
            r#"{"handoff":{"next_agent":"x"}}"#,
            Some("build"),
            Some("Built 3 tiles with 12 tests."),
            Some("Built 3 tiles with 12 tests."),
            &[
                "report-status",
                "report-phase",
                "report-summary",
                "report-context",
            ],
        ),
        (
            r#"{"status":"ok","phase":7,"summary":"Two tables","handoff":{"next_phase":"complete"}}"#,
            None,
            Some("Two tables"),
            None,
            &["report-status"],
        ),
        (
            r#"{"status":"blocked","blocked_reason":"odd","attempted":"a","output_type":"o",
                "handoff":{"context":"No key for staging"}}"#,
            Some("build"),
            Some("Built 3 tiles with 12 tests."),
            Some("No key for staging"),
            &[
                "listed-blocked-reason",
                "report-phase",
                "report-summary",
                "report-blockers",
            ],
        ),
    ] {
        let mut whole = ended(Exit::Code(0), &format!("{text}```json\n{json}\n```\n"));
        if !json.contains("status") {
            whole = ended(Exit::Code(0), json);
            whole.stdout = Output::Result {
                result: serde_json::from_str(json).unwrap(),
                text: Some(text.to_owned()),
                remark: None,
            };
        }
        whole.phase = Some("build".to_owned());
        let (result, warnings) = success(&whole);
        assert_eq!(result.get("phase").and_then(Value::as_str), phase, "{json}");
        assert_eq!(
            result.get("summary").and_then(Value::as_str),
            summary,
            "{json}"
        );
        let found = result
            .get("handoff")
            .and_then(|it| it.get("context")?.as_str());
        assert_eq!(found, context, "{json}");
        let all = warnings.join("\n");
        assert_eq!(warnings.len(), rules.len(), "{all}");
        for rule in rules {
            assert!(all.contains(&format!("(rule {rule})")), "{rule}: {all}");
        }
        whole.strict = true;
        let Verdict::Failed(told) = judge(&whole) else {
            panic!("{json}")
        };
        assert_eq!(told.code, ErrorCode::ValidationFailed);
        assert_eq!(told.fields.len(), rules.len(), "{}", told.message);
    }
}

#[test]
fn work_that_contradicts_itself_is_warned_of() {
    for (json, field) in [
        (
            r#"{"status":"complete","verification":{"tests_passed":false}}"#,
            "verification.tests_passed",
        ),
        (
            r#"{"status":"done","quality_gates":{"failed":["unit"]}}"#,
            "quality_gates.failed",
        ),
        (
            r#"{"status":"complete","files_modified":["/etc/x"]}"#,
            "files_modified[0]",
        ),
        (
            r#"{"status":"complete","phase":"p","summary":"It's done","handoff":{"context":"c"}}"#,
            "summary",
        ),
    ] {
        let mut whole = ended(Exit::Code(0), json);
        let (_, warnings) = success(&whole);
        let all = warnings.join("\n");
        assert!(all.contains(&format!("{field}: ")), "{all}");
        whole.strict = true;
        assert_eq!(word(&judge(&whole)), "VALIDATION_FAILED+", "{json}");
    }
    for json in [
        r#"{"status":"needs_review","phase":"p","summary":"Two tables",
            "handoff":{"context":"c"},"verification":{"tests_passed":false}}"#,
        r#"{"status":"complete","summary":"Two tables","verification":{"n":0,"b":true}}"#,
        r#"{"anything":1,"summary":"s"}"#,
    ] {
        let mut whole = ended(Exit::Code(0), json);
        whole.strict = true;
        assert_eq!(success(&whole).1, Vec::<String>::new(), "{json}");
    }
}

#[test]
fn a_report_that_something_follows_is_still_what_it_says() {
    let blocked = r#"{"status":"blocked","phase":"p","summary":"No key for staging",
        "blocked_reason":"unknown","attempted":["a"],"handoff":{"blockers":["b"],"context":"c"}}"#;
    for (stdout, expected, warned) in [
        (
            format!("```json\n{blocked}\n```\nTell me more.\n"),
            "blocked",
            true,
        ),
        (format!("```json\n{blocked}\n```\n"), "blocked", false),
        (
            format!("````\n```json\n{blocked}\n```\n````\n"),
            "completed",
            false,
        ),
        (
            "```json\n{\"status\":\"?\"}\n```\nx".to_owned(),
            "completed",
            true,
        ),
        (
            "```json\n{\"status\":\"?\"}\n```\n".to_owned(),
            "VALIDATION_FAILED+",
            false,
        ),
    ] {
        let verdict = judge(&ended(Exit::Code(0), &stdout));
        assert_eq!(word(&verdict), expected, "{stdout}");
        let warnings = match verdict {
            Verdict::Blocked(_, warnings) => warnings,
            Verdict::Completed(success) => success.warnings,
            _ => Vec::new(),
        };
        assert_eq!(!warnings.is_empty(), warned, "{stdout}");
    }
}
