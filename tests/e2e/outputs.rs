//! Outputs: artifacts against their schemas, and what comes without a place to go.

use std::fs;

use serde_json::{Value, json};

use crate::artifacts::{fields, lines_of, registry, wants};
use crate::common::{Daemon, Root, orders, outcomes, text, wait_until, with};

const ONCE: &str = "defaults.retry.max_retries = 0";

fn with_schema(root: &Root) {
    fs::create_dir_all(root.path("schemas")).unwrap();
    let schema = json!({
        "type": "object", "required": ["name"],
        "properties": { "name": { "type": "string" }, "size": { "minimum": 1 } },
    });
    fs::write(root.path("schemas/out.json"), schema.to_string()).unwrap();
}

#[test]
fn an_artifact_that_breaks_its_schema_is_told_of_in_the_next_attempt() {
    let root = Root::new();
    with_schema(&root);
    let _daemon = Daemon::start(&root);
    let tell = "printf '%s\\n' \"$HANDOFF_LAST_ERROR\" >$HANDOFF_ROOT/marks/$HANDOFF_ID.told";
    let given = format!(
        "[ $HANDOFF_ATTEMPT = 2 ] && {tell} && echo '{{\"artifact\": {{\"name\": \"n\"}}}}' && \
         exit; echo '{{\"artifact\": {{\"name\": 7, \"size\": 0}}}}'"
    );
    let own = format!(
        "[ $HANDOFF_ATTEMPT = 2 ] && {tell} && echo '{{\"name\": \"n\"}}' >$HANDOFF_ARTIFACT && \
         exit; echo '{{\"name\": 7, \"size\": 0}}' >$HANDOFF_ARTIFACT"
    );
    for (id, sh) in [("given", given), ("own", own)] {
        let expected =
            json!({ "schema": "out.json", "destination": "artifacts/{handoff_id}.json" });
        root.drop_request(
            id,
            &with(orders(&sh), json!({ "expected_output": expected })),
        );
        let record = root.completed(id);
        assert_eq!(outcomes(&record), ["failed", "completed"]);
        assert_eq!(record["output"]["schema_compliance"], "valid");
        assert_eq!(record["validation"]["status"], "passed");
        let error = &record["handoffd"]["attempts"][0]["error"];
        assert_eq!(error["code"], "VALIDATION_FAILED");
        let told = root.mark(&format!("{id}.told"));
        for (at, field) in ["name", "size"].into_iter().enumerate() {
            assert_eq!(error["fields"][at]["field"], field, "{error:#}");
            assert!(error["fields"][at]["schema_path"].is_string());
            assert!(told.contains(field), "{told}");
        }
        assert_eq!(lines_of(&root, id).len(), 1);
    }
}

#[test]
fn an_artifact_that_never_matches_fails_and_is_not_registered() {
    let root = Root::with(ONCE);
    with_schema(&root);
    let _daemon = Daemon::start(&root);
    let all = [
        (
            "given",
            "echo '{\"artifact\": {\"size\": 0}}'",
            &["", "size"][..],
        ),
        ("text", "echo '{\"artifact\": \"words\"}'", &["artifact"]),
        ("words", "echo words >$HANDOFF_ARTIFACT", &["artifact"]),
        (
            "two",
            "echo '{\"name\": \"n\"}, 1' >$HANDOFF_ARTIFACT",
            &["artifact"],
        ),
        (
            "more",
            "echo '{\"name\": \"n\"}, \"x\": 2' >$HANDOFF_ARTIFACT",
            &["artifact"],
        ),
        ("nothing", "exit 0", &["artifact"]),
    ];
    for (id, sh, _) in all {
        let expected =
            json!({ "schema": "out.json", "destination": "artifacts/{handoff_id}.json" });
        root.drop_request(
            id,
            &with(orders(sh), json!({ "expected_output": expected })),
        );
    }
    for (id, _, wrong) in all {
        let (record, code) = root.failed(id);
        assert_eq!(code, "VALIDATION_FAILED", "{id}");
        assert_eq!(fields(&record).len(), wrong.len(), "{id}: {record:#}");
        assert_eq!(record["validation"]["status"], "failed");
        if id != "nothing" {
            assert_eq!(record["output"]["schema_compliance"], "invalid", "{id}");
        }
    }
    let given = root.failed("given").0;
    assert_eq!(given["result"]["artifact"]["size"], 0);
    assert!(!root.path("artifacts/given.json").exists(), "never written");
    assert!(registry(&root).is_empty());
}

#[test]
fn an_artifact_without_a_destination_stays_in_the_result() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &orders("echo '{\"artifact\": {\"a\": 1}}'"));
    let record = root.completed("x");
    assert_eq!(record["result"]["artifact"], json!({ "a": 1 }));
    let warnings = record["warnings"].to_string();
    assert!(
        warnings.contains("expected_output.destination"),
        "{warnings}"
    );
    assert!(registry(&root).is_empty());
}

#[test]
fn the_text_of_a_report_is_kept_as_an_artifact() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let sh = "printf '# Tiles\\n\\nThree.\\n\\n```json\\n{\"status\": \"ok\", \"summary\": \"three tiles\"}\\n```\\n'";
    root.drop_request("x", &orders(sh));
    let record = root.completed("x");
    assert_eq!(record["result"]["summary"], "three tiles");
    let path = text(&record["output"]["artifact_path"]);
    assert_eq!(path, "artifacts/x.md");
    let kept = fs::read_to_string(root.path(&path)).unwrap();
    assert!(kept.starts_with("# Tiles\n\nThree."), "{kept}");
    assert_eq!(record["output"]["text"], Value::Null);
    assert_eq!(
        record["validation"]["status"], "unchecked",
        "a text proves nothing"
    );
    assert_eq!(lines_of(&root, "x").len(), 1);
    root.drop_request("y", &wants(sh, "artifacts/reports/y.md"));
    let record = root.completed("y");
    assert_eq!(record["output"]["artifact_path"], "artifacts/reports/y.md");
    assert!(root.path("artifacts/reports/y.md").exists());
    // Somebody else's file is left alone.
    fs::write(root.path("artifacts/z.md"), "mine").unwrap();
    root.drop_request("z", &orders(sh));
    assert_eq!(
        root.completed("z")["output"]["artifact_path"],
        "artifacts/z.1.md"
    );
    assert_eq!(fs::read(root.path("artifacts/z.md")).unwrap(), b"mine");
    wait_until("all are registered", || {
        (registry(&root).len() == 3).then_some(())
    });
}
