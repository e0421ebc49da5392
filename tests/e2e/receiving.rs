//! Receiving: what a package refers to, a specialist's own schemas, and the acknowledgment.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, outcomes, text, wait_until, with};

pub const REFUSED: &str = "SCHEMA_VALIDATION_FAILED";

pub fn put_schema(root: &Root, name: &str, schema: &Value) {
    let path = root.path("schemas").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, schema.to_string()).unwrap();
}

/// A request whose input is to match a schema.
pub fn input(schema: &str, data: &Value) -> Value {
    json!({ "target": { "agent_id": "@fake" }, "input": { "schema": schema, "data": data } })
}

fn package(context: Value) -> Value {
    let summary = json!({ "summary": "Two tables and an index" });
    json!({ "handoff": {
        "from": { "agent": "architect" }, "to": { "agent": "fake" },
        "context": with(summary, context),
    } })
}

pub fn fields(record: &Value) -> Vec<String> {
    let errors = record["validation"]["errors"].as_array().unwrap();
    errors.iter().map(|error| text(&error["field"])).collect()
}

/// It fails with this code, at this field, and never ran.
pub fn assert_refused(root: &Root, id: &str, code: &str, field: &str) -> String {
    let (record, found) = root.failed(id);
    assert_eq!(found, code, "{id}: {record:#}");
    assert_eq!(fields(&record), [field], "{id}");
    assert_eq!(outcomes(&record).len(), 0);
    assert_eq!(record["acknowledgment"]["understood"], "partial", "{id}");
    text(&record["error"]["message"])
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
    root.drop_request("out", &input("any.json", &json!({ "sh": sh })));
    let (record, code) = root.failed("out");
    assert_eq!(code, "VALIDATION_FAILED");
    assert_eq!(record["output"]["schema_compliance"], "invalid");
    let own = json!({ "expected_output": { "schema": "any.json" } });
    root.drop_request("own", &with(input("any.json", &json!({ "sh": sh })), own));
    assert_eq!(
        root.completed("own")["output"]["schema_compliance"],
        "valid"
    );
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
    assert_eq!(
        acknowledged["understood"]["task"],
        "Two tables and an index"
    );
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
    let later = with(
        refers(json!(["docs/late.md"])),
        json!({ "depends_on": ["maker"] }),
    );
    root.drop_request("later", &later);
    root.record("waiting", "later");
    root.drop_request("maker", &orders("echo 1 >$HANDOFF_ROOT/docs/late.md"));
    assert_eq!(root.completed("later")["acknowledgment"]["starting"], true);
    let never = with(
        refers(json!(["docs/never.md"])),
        json!({ "depends_on": ["maker2"] }),
    );
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
    assert_eq!(record["acknowledgment"]["starting"], false);
    let advice = record["recovery_actions"].to_string();
    assert!(!advice.contains("result.attempted"), "{advice}");
}

#[test]
fn a_document_of_fifty_megabytes_is_set_aside_unread() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let large = format!(
        "{{\"target\": {{\"agent_id\": \"@fake\"}}, \"x\": \"{}\"}}",
        "y".repeat(50 << 20)
    );
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

#[test]
fn a_field_inside_a_package_is_named_where_it_stands() {
    let root = Root::new();
    fs::create_dir(root.path("artifacts")).unwrap();
    fs::write(root.path("artifacts/there"), "mine").unwrap();
    let _daemon = Daemon::start(&root);
    let missing = "DEPENDENCY_MISSING";
    let all = [
        (
            json!({ "input": { "schema": "none.json" } }),
            missing,
            "input.schema",
        ),
        (
            json!({ "expected_output": { "schema": "no.json" } }),
            missing,
            "expected_output.schema",
        ),
        (
            json!({ "requires_artifacts": ["../x"] }),
            REFUSED,
            "requires_artifacts[0]",
        ),
        (
            json!({ "expected_output": { "destination": "artifacts/there" } }),
            REFUSED,
            "expected_output.destination",
        ),
        (
            json!({ "expected_output": { "destination": "/x" } }),
            REFUSED,
            "expected_output.destination",
        ),
    ];
    for (n, (asked, code, field)) in all.into_iter().enumerate() {
        let mut inside = package(json!({}));
        inside["handoff"] = with(inside["handoff"].take(), asked.clone());
        let outside = with(package(json!({})), asked);
        for (id, package, field) in [
            (format!("in{n}"), inside, format!("handoff.{field}")),
            (format!("out{n}"), outside, field.to_owned()),
        ] {
            root.drop_request(&id, &package);
            let (record, found) = root.failed(&id);
            assert_eq!(
                (found.as_str(), fields(&record)),
                (code, vec![field]),
                "{id}"
            );
        }
    }
}
