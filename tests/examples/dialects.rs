//! The files right in `examples/`: one for each dialect.

use serde_json::json;

use crate::example::{PYTHON, SH, assert_all_are_listed, done, run};

#[test]
fn one_for_each_dialect() {
    let examples = [
        done(
            "request.json",
            SH,
            json!({"/result/summary": "echoed request-json",
                   "/output/received/input": {"data": {"text": "hello"}},
                   "/validation": {"status": "unchecked"}}),
        ),
        done(
            "request.yaml",
            PYTHON,
            json!({"/output": {"text": "HELLO FROM YAML"}}),
        ),
        done(
            "package.yaml",
            PYTHON,
            json!({"/acknowledgment": {
                       "received": true,
                       "from": "@architect",
                       "understood": {
                           "task": "A review of the schema, as Markdown",
                           "constraints": ["no change of schemas/page.schema.json"],
                       },
                       "questions": ["Do pages without a body count as pages?"],
                       "starting": true,
                   },
                   "/output/artifact_path": "artifacts/reviews/package-yaml.md",
                   "/output/artifact_type": "documentation"}),
        )
        .leaves(
            "artifacts/reviews/package-yaml.md",
            "# Review\n\nReviewed: The schema of page summaries has 3 fields, title, words and \
             language, and allows no others.\n\nNo objections.",
        ),
        done(
            "package.json",
            SH,
            json!({"/validation/status": "passed",
                   "/output/artifact_path": "artifacts/scripts/package-json.sh"}),
        )
        .leaves(
            "artifacts/scripts/package-json.sh",
            "#!/bin/sh\necho built by package-json\n",
        ),
        done(
            "report.json",
            PYTHON,
            json!({"/handoffd/submitted/status": "complete", "/output/objections": 0,
                   "/acknowledgment/from": "@architect"}),
        )
        .leaves(
            "artifacts/report-json.md",
            "# Review\n\nReviewed: The schema has 3 fields and is in \
             schemas/summary.schema.json.\n\nNo objections.",
        ),
        done(
            "report.md",
            SH,
            json!({"/summary": "reviewed 3 schemas, no objections", "/started_at": null}),
        )
        .ends("completed", &[])
        .leaves(
            ".handoffd/originals/report-md.md",
            include_str!("../../examples/report.md"),
        ),
    ];
    assert_all_are_listed("", &examples);
    run(&examples);
}
