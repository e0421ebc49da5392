//! The files in `examples/returns/`: one for each way to return a result.

use serde_json::json;

use crate::example::{Example, PYTHON, SH, assert_all_are_listed, done, run};

#[test]
fn one_for_each_way_to_return_a_result() {
    let examples: Vec<Example> = successes().into_iter().chain(others()).collect();
    assert_all_are_listed("returns/", &examples);
    run(&examples);
}

fn successes() -> [Example; 6] {
    [
        done(
            "returns/json-on-stdout.json",
            SH,
            json!({"/result/status": "complete", "/result/summary": "echoed json-on-stdout"}),
        ),
        done(
            "returns/result-file.json",
            PYTHON,
            json!({"/output": {"text": "HELLO"}, "/result/summary": "shouted 5 characters"}),
        ),
        done(
            "returns/markdown.json",
            PYTHON,
            json!({"/result/summary": "no objections", "/output/artifact_type": "report",
                   "/output/artifact_path": "artifacts/markdown.md"}),
        )
        .leaves(
            "artifacts/markdown.md",
            "# Review\n\nReviewed: the schema of page summaries\n\nNo objections.",
        ),
        done(
            "returns/text.json",
            SH,
            json!({"/result": {}, "/output": {
                "text": "The schemas of this root:\nlanguage.schema.json\npage.schema.json\n\
                         summary.schema.json\n",
            }}),
        ),
        done(
            "returns/nothing.json",
            SH,
            json!({"/result": {}, "/output": null}),
        ),
        done(
            "returns/artifact-file.json",
            SH,
            json!({"/output/artifact_path": "artifacts/builder/artifact-file.sh",
            "/output/artifact_type": "source",
            "/validation": {"status": "passed", "verify": {
                "exit_code": 0, "output": "the shell can read it",
            }}}),
        )
        .leaves(
            "artifacts/builder/artifact-file.sh",
            "#!/bin/sh\necho built by artifact-file\n",
        ),
    ]
}

/// Those that wait, fail, or take more than one attempt.
fn others() -> [Example; 7] {
    const AGAIN: &[&str] = &["failed", "completed"];
    [
        done(
            "returns/artifact-in-result.json",
            PYTHON,
            json!({"/output/artifact_id": "artifact-in-result",
            "/output/artifact_path": "artifacts/summaries/artifact-in-result.json",
            "/output/schema_compliance": "valid",
            "/validation": {"status": "passed"},
            "/handoffd/attempts/0/error/code": "VALIDATION_FAILED",
            "/handoffd/attempts/0/error/fields": [{
                "field": "artifact", "error": "missing required field 'language'",
                "schema_path": "#/required",
            }]}),
        )
        .ends("completed", AGAIN)
        .leaves(
            "artifacts/summaries/artifact-in-result.json",
            "{\n  \"title\": \"Hello\",\n  \"words\": 6,\n  \"language\": \"en\"\n}\n",
        ),
        done(
            "returns/needs-an-artifact.json",
            // Waits for an artifact that comes from a specialist in Python.
            PYTHON,
            json!({"/result/summary": "echoed needs-an-artifact"}),
        ),
        done(
            "returns/retry-after.json",
            SH,
            json!({"/output": {"text": "bonjour"}}),
        )
        .ends("completed", &["held", "completed"]),
        done(
            "returns/exit-code.json",
            SH,
            json!({"/output": {"attempt": 2}}),
        )
        .ends("completed", AGAIN),
        done(
            "returns/blocked.json",
            SH,
            json!({"/error/code": "BLOCKED", "/error/message":
                "the specialist is blocked (architecture_decision): sessions or tokens: both \
                 would do, and the request does not say"}),
        )
        .ends("failed", &["blocked"]),
        done(
            "returns/needs-review.json",
            SH,
            json!({
                "/waiting/on": "human", "/waiting/kind": "review",
                "/waiting/reason": "the text is ready; one name could not be checked",
                "/waiting/options/approve": "go on",
            }),
        )
        .ends("waiting", &["needs_review"]),
        done(
            "returns/failed.json",
            SH,
            json!({"/error/code": "PROCESSING_ERROR", "/error/detail_code": "SITE_CLOSED",
                   "/error/message": "the site takes no more pages", "/retry_count": 0}),
        )
        .ends("failed", &["failed"]),
    ]
}
