//! Input schemas: good ones, broken ones, and those that are not there.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, text, with};
use crate::receiving::{REFUSED, assert_refused, fields, input, put_schema};

#[test]
fn all_errors_of_an_input_are_told_each_at_its_field() {
    let root = Root::new();
    put_schema(
        &root,
        "in.json",
        &json!({
            "type": "object", "required": ["title"],
            "properties": { "component_requirements": { "type": "array", "items": {
                "properties": { "props": { "additionalProperties": { "required": ["type"] } } },
            } } },
        }),
    );
    let _daemon = Daemon::start(&root);
    let props = json!({ "userId": { "required": true }, "a.b": {}, "ok": { "type": "string" } });
    let data = json!({ "component_requirements": [{ "props": props }] });
    root.drop_request("x", &input("in.json", &data));
    let (record, code) = root.failed("x");
    assert_eq!(code, REFUSED);
    let mut found = fields(&record);
    found.sort();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.contains(&"component_requirements[0].props.userId".to_owned()));
    assert_eq!(record["validation"]["status"], "failed");
    for error in record["validation"]["errors"].as_array().unwrap() {
        assert!(!text(&error["error"]).is_empty());
        assert!(!text(&error["schema_path"]).is_empty(), "{error}");
    }
    let field = "component_requirements[0].props.userId";
    assert!(text(&record["error"]["message"]).contains(field));
    assert!(record["recovery_actions"].to_string().contains(field));
    let acknowledged = &record["acknowledgment"];
    assert_eq!(acknowledged["received"], true);
    assert_eq!(acknowledged["understood"], "partial");
    assert_eq!(acknowledged["action"], "request_clarification");
    assert_eq!(acknowledged["blockers"].as_array().unwrap().len(), 3);
    assert_eq!(record["retry_available"], true);
    // Mended, and moved back by hand.
    let mut mended = record;
    mended["input"]["data"] = json!({ "title": "t", "component_requirements": [] });
    fs::remove_file(root.state("failed", "x")).unwrap();
    root.drop_request("x", &mended);
    let record = root.completed("x");
    assert_eq!(record["acknowledgment"]["starting"], true);
    assert_eq!(record["acknowledgment"]["blockers"], Value::Null);
}

#[test]
fn three_drafts_and_local_references_are_understood() {
    let root = Root::new();
    let pair = json!([{ "type": "string" }, { "type": "string" }]);
    put_schema(
        &root,
        "7.json",
        &json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "items": pair.clone(),
            "additionalItems": false,
        }),
    );
    put_schema(
        &root,
        "2019.json",
        &json!({
            "$schema": "https://json-schema.org/draft/2019-09/schema", "items": pair.clone(),
            "unevaluatedItems": false,
        }),
    );
    put_schema(
        &root,
        "2020.json",
        &json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": pair,
            "items": false,
        }),
    );
    put_schema(
        &root,
        "ref.json",
        &json!({
            "type": "array", "items": { "$ref": "parts/name.json#/$defs/name" },
        }),
    );
    put_schema(
        &root,
        "parts/name.json",
        &json!({
            "$defs": { "name": { "$ref": "#/$defs/text" }, "text": { "type": "string" } },
        }),
    );
    let _daemon = Daemon::start(&root);
    for name in ["7", "2019", "2020", "ref"] {
        root.drop_request(
            &format!("good-{name}"),
            &input(&format!("{name}.json"), &json!(["a", "b"])),
        );
        root.drop_request(
            &format!("bad-{name}"),
            &input(&format!("{name}.json"), &json!(["a", 1])),
        );
    }
    for name in ["7", "2019", "2020", "ref"] {
        root.completed(&format!("good-{name}"));
        assert_refused(&root, &format!("bad-{name}"), REFUSED, "[1]");
    }
    // A schema that changes is noticed.
    put_schema(
        &root,
        "parts/name.json",
        &json!({ "$defs": { "name": {} } }),
    );
    root.drop_request("after", &input("ref.json", &json!(["a", 1])));
    root.completed("after");
}

#[test]
fn schemas_that_can_t_be_used_are_told_and_nothing_runs() {
    let root = Root::new();
    put_schema(&root, "broken.json", &json!({ "type": 7 }));
    put_schema(
        &root,
        "net.json",
        &json!({ "$ref": "https://example.org/x.json" }),
    );
    put_schema(&root, "gone.json", &json!({ "$ref": "nothing.json" }));
    put_schema(&root, "up.json", &json!({ "$ref": "../handoffd.toml" }));
    fs::write(root.path("schemas/torn.json"), "{\"type\":").unwrap();
    fs::create_dir(root.path("schemas/folder.json")).unwrap();
    symlink("/etc/passwd", root.path("schemas/link.json")).unwrap();
    let _daemon = Daemon::start(&root);
    let missing = "DEPENDENCY_MISSING";
    let all = [
        ("broken.json", REFUSED),
        ("net.json", REFUSED),
        ("gone.json", missing),
        ("up.json", REFUSED),
        ("torn.json", REFUSED),
        ("folder.json", REFUSED),
        ("link.json", REFUSED),
        ("absent.json", missing),
        ("../handoffd.toml", REFUSED),
        ("/etc/passwd", REFUSED),
        ("https://example.org/x.json", REFUSED),
    ];
    for (n, (schema, _)) in all.iter().enumerate() {
        root.drop_request(&format!("in{n}"), &input(schema, &json!({})));
        let expected = json!({ "expected_output": { "schema": schema } });
        root.drop_request(&format!("out{n}"), &with(orders("mark ran"), expected));
    }
    for (n, (schema, code)) in all.iter().enumerate() {
        let message = assert_refused(&root, &format!("in{n}"), code, "input.schema");
        let name = schema.rsplit('/').next().unwrap();
        assert!(
            message.contains(name) || message.contains(schema),
            "{message}"
        );
        assert!(!message.contains("root:"), "{message}");
        assert_refused(&root, &format!("out{n}"), code, "expected_output.schema");
    }
    assert!(root.names("marks").is_empty());
    root.assert_works("good");
}

#[test]
fn a_schema_that_is_not_there_may_be_only_a_warning() {
    for strict in [false, true] {
        let root = Root::with(&format!(
            "intake.missing_schema = 'warn'\nintake.strict = {strict}"
        ));
        let _daemon = Daemon::start(&root);
        let expected = json!({ "schema": "out.json", "destination": "artifacts/x.json" });
        let request = with(
            input("in.json", &json!({ "sh": "echo '{\"artifact\": 1}'" })),
            json!({ "expected_output": expected }),
        );
        root.drop_request("x", &request);
        let record = root.completed("x");
        let warnings = record["acknowledgment"]["warnings"].to_string();
        for field in ["input.schema", "expected_output.schema"] {
            assert!(warnings.contains(field), "{warnings}");
        }
        assert_eq!(record["output"]["schema_compliance"], "unchecked");
    }
}

#[test]
fn an_expression_that_backtracks_for_ever_does_not_hold_anybody_up() {
    let root = Root::new();
    for (name, pattern) in [
        ("plain", "^(a+)+$"),
        ("back", "^(a+)+\\1$"),
        ("ahead", "^(?=(a+)+$)b"),
    ] {
        put_schema(
            &root,
            &format!("{name}.json"),
            &json!({ "pattern": pattern }),
        );
    }
    let _daemon = Daemon::start(&root);
    let data = json!(format!("{}!", "a".repeat(5000)));
    for name in ["plain", "back", "ahead"] {
        root.drop_request(name, &input(&format!("{name}.json"), &data));
    }
    root.assert_works("good");
    for name in ["plain", "back", "ahead"] {
        assert_eq!(root.failed(name).1, REFUSED, "{name}");
    }
}
