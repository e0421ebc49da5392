//! Exports: examples of every dialect as packages, nothing lost, and a fixed point.
//!
//! The examples lie in `tests/fixtures/dialects/`, one file each, named after their dialect.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use handoffd::clock::Wall;
use handoffd::protocol::attempt::Attempt;
use handoffd::protocol::dialect::{Dialect, dialect};
use handoffd::protocol::document;
use handoffd::protocol::export::as_package;
use handoffd::protocol::lifecycle::State;
use handoffd::protocol::name::Ext;
use handoffd::protocol::record::Record;
use handoffd::protocol::yaml_write;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dialects")
}

/// Every example: its id and its document.
fn examples() -> Vec<(String, Map<String, Value>)> {
    let mut examples: Vec<_> = fs::read_dir(fixtures())
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let ext = Ext::parse(path.extension().unwrap().to_str().unwrap()).unwrap();
            let document = document::parse(&fs::read(&path).unwrap(), ext).unwrap();
            let id = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (id, document.map)
        })
        .collect();
    examples.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(examples.len(), 20);
    examples
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other}"),
    }
}

fn leaves(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => map.values().for_each(|v| leaves(v, into)),
        Value::Array(list) if !list.is_empty() => list.iter().for_each(|v| leaves(v, into)),
        leaf => into.push(leaf.to_string()),
    }
}

/// Nothing lost, a package, and the same when it is exported again.
fn check(id: &str, doc: &Map<String, Value>, record: &Record) -> Map<String, Value> {
    let package = as_package(record);
    let text = yaml_write::write(&package.clone().into());
    assert_eq!(dialect(&package), Dialect::Package, "{text}");
    let (mut wanted, mut there) = (Vec::new(), Vec::new());
    leaves(&doc.clone().into(), &mut wanted);
    leaves(&package.clone().into(), &mut there);
    for leaf in wanted {
        let at = there.iter().position(|other| *other == leaf);
        there.swap_remove(at.unwrap_or_else(|| panic!("{id}: {leaf} is not in\n{text}")));
    }
    let again = document::parse(text.as_bytes(), Ext::Yaml).unwrap().map;
    assert_eq!(again, package, "{text}");
    assert_eq!(as_package(&Record::admit(again, id, None)), package, "{id}");
    package
}

/// The record once it has failed, with everything that the daemon writes then.
fn failed(mut record: Record) -> Record {
    record.set(
        "error",
        json!({"code": "PROCESSING_ERROR", "message": "it broke"}),
    );
    record.set("failed_at", "2026-01-13T10:10:00.000Z");
    record.set(
        "result",
        json!({"status": "failed", "output": {"half": 1}, "seen": 7}),
    );
    record.lift("output", json!({"half": 1}));
    record.lift("metadata", json!({"by": "specialist"}));
    record.decide(State::Failed);
    record
}

#[test]
fn every_example_survives_whether_it_ran_or_not() {
    for (id, doc) in examples() {
        let told = match id.split_once('-').unwrap().0 {
            "package" => Dialect::Package,
            "report" => Dialect::Report,
            _ => Dialect::Request,
        };
        assert_eq!(dialect(&doc), told, "{id}");
        let record = Record::admit(doc.clone(), &id, None);
        let package = check(&id, &doc, &record);
        assert_eq!(package["handoff"]["id"], *id);
        assert!(package["handoff"].get("outcome").is_none(), "{id}");
        assert!(package["handoff"]["context"]["summary"].is_string(), "{id}");

        let mut ended = check(&id, &doc, &failed(record));
        let outcome = ended["handoff"]["outcome"].take();
        assert_eq!(outcome["status"], "failed");
        assert_eq!(outcome["error"]["message"], "it broke");
        assert_eq!(outcome["output"], json!({"half": 1}));
        assert_eq!(outcome["result"], json!({"status": "failed", "seen": 7}));
        ended["handoff"]
            .as_object_mut()
            .unwrap()
            .shift_remove("outcome");
        assert_eq!(ended, package, "{id}");
    }
}

#[test]
fn a_package_is_exported_as_it_is() {
    for (id, mut doc) in examples() {
        if dialect(&doc) == Dialect::Package {
            let package = as_package(&Record::admit(doc.clone(), &id, None));
            doc["handoff"]["id"] = id.clone().into();
            assert_eq!(package, doc, "{id}");
        }
    }
}

#[test]
fn odd_documents_lose_nothing_either() {
    for doc in [
        json!({"note": 1}),
        json!({"target": "@a", "source": "me", "context": "what there is to know"}),
        json!({"target": {"agent_id": "@a"}, "context": " ", "source": {"step": null}}),
        json!({"target": {"agent_id": 7, "agent": "b"}, "source": 5, "context": [1]}),
        json!({"target": {"agent": "@a", "reason": "r"}, "source": {"agent_id": "s", "agent": "t"}}),
        json!({"target": {"agent_id": "@a"}, "handoff": {"from": 1, "to": 2, "submitted": 3}}),
        json!({"target": {"agent_id": "@a"}, "handoff": {"next_agent": "b"}, "status": "complete"}),
        json!({"target": {"agent_id": "@a"}, "context": {"summary": [1], "task_id": "t"}}),
        json!({"target": {"agent_id": "@a"}, "expectations": {"deliverable": "d"},
               "expected_output": {"artifact_type": "doc"}, "outcome": "mine", "handoff": "odd"}),
        json!({"handoff": {"from": "a"}, "status": "blocked", "agent": "me"}),
        json!({"handoff": {"from": {}, "to": {}, "outcome": {"status": "completed"}}, "error": 1}),
        json!({"handoff": {"id": "x", "context": {"summary": "s", "decisions": [1]}, "priority": "low",
                           "summary": "inner", "submitted": "mine"},
               "status": "needs_review", "summary": "top", "decisions": [2], "priority": "high",
               "context": {"task_id": "t", "summary": "third"}, "artifacts": ["a", {"path": "b"}]}),
        json!({"handoff": {"context": 5}, "status": "complete", "context": {"notes": "n"}}),
        json!({"handoff_id": "another", "target": {"agent_id": "@a"}}),
        json!({"handoffd": {"format": 99}, "status": 1, "output": 2, "validation": 3}),
    ] {
        let doc = map(doc);
        let record = Record::admit(doc.clone(), "x", None);
        check("x", &doc, &record);
        check("x", &doc, &failed(record));
    }
}

/// Documents made of the words that mean something somewhere, in places where they may not.
fn document() -> impl Strategy<Value = Map<String, Value>> {
    let words = vec![
        "handoff",
        "handoff_id",
        "id",
        "from",
        "to",
        "agent",
        "agent_id",
        "source",
        "target",
        "context",
        "summary",
        "notes",
        "status",
        "next_agent",
        "input",
        "data",
        "outcome",
        "error",
        "submitted",
        "artifacts",
        "decisions",
        "expectations",
        "priority",
        "timestamp",
        "phase",
        "expected_output",
        "output",
        "artifact_type",
        "blocked_reason",
        "own",
    ];
    let leaf = prop_oneof![
        any::<u64>().prop_map(Value::from),
        "[a-z]{12}".prop_map(Value::from),
        prop::sample::select(vec!["complete", "blocked", "needs_review"]).prop_map(Value::from),
    ];
    let object = move |value: BoxedStrategy<Value>, most| {
        prop::collection::vec((prop::sample::select(words.clone()), value), 1..most).prop_map(
            |fields| {
                fields
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect()
            },
        )
    };
    let inner = object.clone();
    let value = leaf.prop_recursive(2, 24, 6, move |value| {
        prop_oneof![
            4 => inner(value.clone(), 6).prop_map(Value::Object),
            1 => prop::collection::vec(value, 1..3).prop_map(Value::Array),
        ]
    });
    (object(value.boxed(), 12), 0..5_usize).prop_map(|(doc, kind)| bent(doc, kind))
}

/// The document with what tells a dialect, since chance alone seldom writes that.
fn bent(mut doc: Map<String, Value>, kind: usize) -> Map<String, Value> {
    let mut within = |key: &str, field: &str| {
        if !doc.get(key).is_some_and(Value::is_object) {
            doc.insert(key.to_owned(), json!({"own": "kept"}));
        }
        let object = doc[key].as_object_mut().unwrap();
        if !object.contains_key(field) {
            object.insert(field.to_owned(), "coder".into());
        }
    };
    match kind {
        0 => within("target", "agent_id"),
        1 => {
            within("handoff", "from");
            within("handoff", "to");
        }
        2 => {
            within("handoff", "next_agent");
            let handoff = doc["handoff"].as_object_mut().unwrap();
            handoff.retain(|key, _| key != "from" && key != "to");
            doc.insert("status".to_owned(), "complete".into());
        }
        _ => {}
    }
    doc
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_document_loses_anything(doc in document()) {
        let record = Record::admit(doc.clone(), "x", None);
        check("x", &doc, &record);
        check("x", &doc, &failed(record));
    }
}

struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Self {
        let root = Self(tempfile::tempdir().unwrap());
        for folder in ["pending", "in-progress", "waiting", "completed", "failed"] {
            fs::create_dir_all(root.0.path().join("handoffs").join(folder)).unwrap();
        }
        root
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.path().join("handoffs").join(name), bytes).unwrap();
    }

    /// Drops an example as it is.
    fn drop(&self, name: &str) {
        self.put(
            &format!("pending/{name}"),
            &fs::read(fixtures().join(name)).unwrap(),
        );
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_handoffd"))
            .args(args)
            .env("HANDOFFD_ROOT", self.0.path())
            .env_remove("COMPLETE")
            .output()
            .unwrap()
    }

    fn export(&self, args: &[&str]) -> String {
        let output = self.run(&[&["export"], args].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn a_completed_request_reads_well() {
    let root = Root::new();
    let bytes = fs::read(fixtures().join("request-react.json")).unwrap();
    let doc = document::parse(&bytes, Ext::Json).unwrap().map;
    let mut record = Record::admit(doc, "request-react", None);
    let result = json!({
        "status": "complete", "summary": "One component, with tests",
        "output": {"files": ["UserProfile.tsx"]}, "next_steps": ["Add its route"],
    });
    let begun = Wall::parse("2026-01-13T10:00:01Z").unwrap();
    record.meta.attempts.push(Attempt::begun(1, begun));
    record.set("started_at", begun.to_string());
    record.set("completed_at", "2026-01-13T10:05:32.000Z");
    record.set("execution_time_seconds", json!(331.0));
    record.lift("output", result["output"].clone());
    record.lift("next_steps", result["next_steps"].clone());
    record.set("result", result);
    record.decide(State::Completed);
    root.put("completed/request-react.json", &record.to_bytes());
    insta::assert_snapshot!(root.export(&["request-react"]));
}

#[test]
fn a_dropped_report_reads_well() {
    let root = Root::new();
    root.drop("report-blocked.json");
    insta::assert_snapshot!(root.export(&["report-blocked", "--format", "yaml"]));
}

#[test]
fn a_dropped_package_reads_well_in_both_formats() {
    let root = Root::new();
    root.drop("package-full.yaml");
    let yaml = root.export(&["package-full"]);
    let json = root.export(&["package-full", "--format", "json"]);
    assert_eq!(json, root.export(&["package-full", "--json"]));
    assert_eq!(
        yaml,
        root.export(&["package-full", "--json", "--format", "yaml"])
    );
    assert_eq!(
        document::parse(yaml.as_bytes(), Ext::Yaml).unwrap().map,
        document::parse(json.as_bytes(), Ext::Json).unwrap().map
    );
    insta::assert_snapshot!(yaml);
}

#[test]
fn what_can_not_be_exported_is_said() {
    let root = Root::new();
    root.put("pending/half.json", b"{\"target\": ");
    root.put("failed/newer.json", b"{\"handoffd\": {\"format\": 99}}");
    for (id, code) in [
        ("nobody", "UNKNOWN_ID"),
        ("half", "NOT_A_DOCUMENT"),
        ("newer", "NOT_A_RECORD"),
    ] {
        let output = root.run(&["export", id, "--json"]);
        assert_eq!(output.status.code(), Some(1), "{id}");
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["error"]["code"], code);
    }
    let output = root.run(&["export", "nobody", "--format", "xml"]);
    assert_eq!(output.status.code(), Some(2));
}
