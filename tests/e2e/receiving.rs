//! Receiving: schemas, what a package refers to, and the acknowledgment.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, outcomes, text, wait_until, with};

const REFUSED: &str = "SCHEMA_VALIDATION_FAILED";

fn put_schema(root: &Root, name: &str, schema: &Value) {
    let path = root.path("schemas").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, schema.to_string()).unwrap();
}

/// A request whose input is to match a schema.
fn input(schema: &str, data: Value) -> Value {
    json!({ "target": { "agent_id": "@fake" }, "input": { "schema": schema, "data": data } })
}

fn package(context: Value) -> Value {
    let summary = json!({ "summary": "Two tables and an index" });
    json!({ "handoff": {
        "from": { "agent": "architect" }, "to": { "agent": "fake" },
        "context": with(summary, context),
    } })
}

fn fields(record: &Value) -> Vec<String> {
    let errors = record["validation"]["errors"].as_array().unwrap();
    errors.iter().map(|error| text(&error["field"])).collect()
}

/// It fails with this code, at this field, and never ran.
fn assert_refused(root: &Root, id: &str, code: &str, field: &str) -> String {
    let (record, found) = root.failed(id);
    assert_eq!(found, code, "{id}: {record:#}");
    assert_eq!(fields(&record), [field], "{id}");
    assert_eq!(outcomes(&record).len(), 0);
    assert_eq!(record["acknowledgment"]["understood"], "partial", "{id}");
    text(&record["error"]["message"])
}

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
    root.drop_request("x", &input("in.json", data.clone()));
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
    put_schema(&root, "7.json", &json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "items": pair.clone(),
        "additionalItems": false,
    }));
    put_schema(&root, "2019.json", &json!({
        "$schema": "https://json-schema.org/draft/2019-09/schema", "items": pair.clone(),
        "unevaluatedItems": false,
    }));
    put_schema(&root, "2020.json", &json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": pair,
        "items": false,
    }));
    put_schema(&root, "ref.json", &json!({
        "type": "array", "items": { "$ref": "parts/name.json#/$defs/name" },
    }));
    put_schema(&root, "parts/name.json", &json!({
        "$defs": { "name": { "$ref": "#/$defs/text" }, "text": { "type": "string" } },
    }));
    let _daemon = Daemon::start(&root);
    for name in ["7", "2019", "2020", "ref"] {
        root.drop_request(&format!("good-{name}"), &input(&format!("{name}.json"), json!(["a", "b"])));
        root.drop_request(&format!("bad-{name}"), &input(&format!("{name}.json"), json!(["a", 1])));
    }
    for name in ["7", "2019", "2020", "ref"] {
        root.completed(&format!("good-{name}"));
        assert_refused(&root, &format!("bad-{name}"), REFUSED, "[1]");
    }
    // A schema that changes is noticed.
    put_schema(&root, "parts/name.json", &json!({ "$defs": { "name": {} } }));
    root.drop_request("after", &input("ref.json", json!(["a", 1])));
    root.completed("after");
}

#[test]
fn schemas_that_can_t_be_used_are_told_and_nothing_runs() {
    let root = Root::new();
    put_schema(&root, "broken.json", &json!({ "type": 7 }));
    put_schema(&root, "net.json", &json!({ "$ref": "https://example.org/x.json" }));
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
        ("https://example.org/x.json", missing),
    ];
    for (n, (schema, _)) in all.iter().enumerate() {
        root.drop_request(&format!("in{n}"), &input(schema, json!({})));
        let expected = json!({ "expected_output": { "schema": schema } });
        root.drop_request(&format!("out{n}"), &with(orders("mark ran"), expected));
    }
    for (n, (schema, code)) in all.iter().enumerate() {
        let message = assert_refused(&root, &format!("in{n}"), code, "input.schema");
        let name = schema.rsplit('/').next().unwrap();
        assert!(message.contains(name) || message.contains(schema), "{message}");
        assert!(!message.contains("root:"), "{message}");
        assert_refused(&root, &format!("out{n}"), code, "expected_output.schema");
    }
    assert!(root.names("marks").is_empty());
    root.assert_works("good");
}

#[test]
fn a_schema_that_is_not_there_may_be_only_a_warning() {
    for strict in [false, true] {
        let root = Root::with(&format!("intake.missing_schema = 'warn'\nintake.strict = {strict}"));
        let _daemon = Daemon::start(&root);
        let expected = json!({ "schema": "out.json", "destination": "artifacts/x.json" });
        let request = with(
            input("in.json", json!({ "sh": "echo '{\"artifact\": 1}'" })),
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
    for (name, pattern) in [("plain", "^(a+)+$"), ("back", "^(a+)+\\1$"), ("ahead", "^(?=(a+)+$)b")] {
        put_schema(&root, &format!("{name}.json"), &json!({ "pattern": pattern }));
    }
    let _daemon = Daemon::start(&root);
    let data = json!(format!("{}!", "a".repeat(5000)));
    for name in ["plain", "back", "ahead"] {
        root.drop_request(name, &input(&format!("{name}.json"), data.clone()));
    }
    root.assert_works("good");
    for name in ["plain", "back", "ahead"] {
        assert_eq!(root.failed(name).1, REFUSED, "{name}");
    }
}

#[test]
fn a_specialist_s_own_schemas_hold_where_the_request_names_none() {
    let root = Root::with(
        "specialists.'@fake'.input_schema = 'in.json'\n\
         specialists.'@fake'.output_schema = 'out.json'\ndefaults.retry.max_retries = 0",
    );
    put_schema(&root, "in.json", &json!({ "required": ["sh", "title"] }));
    put_schema(&root, "out.json", &json!({ "required": ["a"] }));
    put_schema(&root, "any.json", &json!({}));
    let _daemon = Daemon::start(&root);
    let sh = "echo '{\"artifact\": {\"b\": 1}}'";
    root.drop_request("in", &orders(sh));
    let message = assert_refused(&root, "in", REFUSED, "input.data");
    assert!(message.contains("title"), "{message}");
    root.drop_request("none", &json!({ "target": { "agent_id": "@fake" } }));
    root.drop_request("out", &input("any.json", json!({ "sh": sh })));
    let (record, code) = root.failed("out");
    assert_eq!(code, "VALIDATION_FAILED");
    assert_eq!(record["output"]["schema_compliance"], "invalid");
    let own = json!({ "expected_output": { "schema": "any.json" } });
    root.drop_request("own", &with(input("any.json", json!({ "sh": sh })), own));
    assert_eq!(root.completed("own")["output"]["schema_compliance"], "valid");
    // A package without input is not what the schema is about.
    root.drop_request("package", &package(json!({})));
    root.completed("package");
}

#[test]
fn what_a_package_refers_to_must_be_there_and_inside() {
    let root = Root::new();
    fs::create_dir_all(root.path("docs/stories")).unwrap();
    fs::write(root.path("docs/design.md"), "d").unwrap();
    symlink("/etc", root.path("docs/out")).unwrap();
    let _daemon = Daemon::start(&root);
    let refers = |paths: Value| package(json!({ "artifacts": paths }));
    let good = json!(["docs/design.md", { "path": "docs/stories/" }, { "path": "docs" }]);
    root.drop_request("good", &refers(good));
    let record = root.completed("good");
    let acknowledged = &record["acknowledgment"];
    assert_eq!(acknowledged["from"], "architect");
    assert_eq!(acknowledged["understood"]["task"], "Two tables and an index");
    assert_eq!(acknowledged["questions"], json!([]));
    assert_eq!(acknowledged["starting"], true);
    for (n, (path, code)) in [
        ("docs/none.md", "DEPENDENCY_MISSING"),
        ("../x", REFUSED),
        ("docs/../../x", REFUSED),
        ("/etc/passwd", REFUSED),
        ("docs/out/passwd", REFUSED),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("bad{n}");
        root.drop_request(&id, &refers(json!(["docs/design.md", { "path": path }])));
        let message = assert_refused(&root, &id, code, "handoff.context.artifacts[1].path");
        assert!(message.contains(path), "{message}");
    }
    // What it waits for may make what it refers to.
    let later = with(refers(json!(["docs/late.md"])), json!({ "depends_on": ["maker"] }));
    root.drop_request("later", &later);
    root.record("waiting", "later");
    root.drop_request("maker", &orders("echo 1 >$HANDOFF_ROOT/docs/late.md"));
    assert_eq!(root.completed("later")["acknowledgment"]["starting"], true);
    let never = with(refers(json!(["docs/never.md"])), json!({ "depends_on": ["maker2"] }));
    root.drop_request("never", &never);
    root.record("waiting", "never");
    root.drop_request("maker2", &orders("exit 0"));
    assert_refused(
        &root,
        "never",
        "DEPENDENCY_MISSING",
        "handoff.context.artifacts[0]",
    );
}

#[test]
fn the_specialist_s_acknowledgment_is_merged_and_its_questions_block() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let sh = "echo '{\"acknowledgment\": {\"questions\": [\"why?\"], \"seen\": 1}}'";
    let source = json!({ "source": { "agent_id": "@boss" } });
    root.drop_request("merged", &with(orders(sh), source));
    let acknowledged = &root.completed("merged")["acknowledgment"];
    assert_eq!(acknowledged["from"], "@boss");
    assert_eq!(acknowledged["received"], true);
    assert_eq!(acknowledged["questions"], json!(["why?"]));
    assert_eq!(acknowledged["seen"], 1);
    let sh = "echo '{\"status\": \"complete\", \"acknowledgment\": {\"understood\": \"partial\", \
              \"blockers\": [\"no file a.md\"], \"action\": \"request_clarification\"}}'";
    root.drop_request("asks", &orders(sh));
    let (record, code) = root.failed("asks");
    assert_eq!(code, "BLOCKED");
    assert_eq!(outcomes(&record), ["blocked"]);
    let message = text(&record["error"]["message"]);
    assert!(message.contains("missing_requirements") && message.contains("no file a.md"));
    assert_eq!(record["acknowledgment"]["understood"], "partial");
    assert_eq!(record["acknowledgment"]["received"], true);
}

#[test]
fn a_document_of_fifty_megabytes_is_set_aside_unread() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let large = format!("{{\"target\": {{\"agent_id\": \"@fake\"}}, \"x\": \"{}\"}}", "y".repeat(50 << 20));
    root.drop_bytes("large.json", large.as_bytes());
    root.drop_bytes("large2.yaml", large.as_bytes());
    for id in ["large", "large2"] {
        let (record, code) = root.failed(id);
        assert_eq!(code, REFUSED);
        assert!(text(&record["error"]["message"]).contains("max_request_size"));
        let kept = root.path(&format!("handoffs/failed/{id}.rejected"));
        let size = wait_until("the bytes", || fs::metadata(&kept).ok()).len();
        assert_eq!(size, large.len() as u64);
    }
    root.assert_works("good");
}
