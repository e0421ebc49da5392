//! One function for each thing that is parsed: it takes bytes, and panics only if a promise is
//! broken.
//!
//! The harness beside this and `fuzz/` share them. Bytes that are refused are fine; what was
//! taken must also be readable as what follows from it, and where it is written again nothing
//! may be lost.

use std::fs;
use std::path::{Path, PathBuf};

use handoffd::config::{Config, Context};
use handoffd::keeper::frame::{self, Inbox};
use handoffd::keeper::journal;
use handoffd::keeper::wire::{Order, Report};
use handoffd::policy::task::{Limits, MAX_SUMMARY_CHARS, summary};
use handoffd::protocol::control::Command;
use handoffd::protocol::document::{self, Document};
use handoffd::protocol::export;
use handoffd::protocol::id::HandoffId;
use handoffd::protocol::json;
use handoffd::protocol::name::Ext;
use handoffd::protocol::record::Record;
use handoffd::protocol::report;
use handoffd::protocol::request::Request;
use handoffd::protocol::result::{self, Output};
use handoffd::protocol::task::TaskState;
use handoffd::protocol::{markdown, yaml, yaml_write};
use handoffd::store::artifacts::Artifacts;
use handoffd::store::audit::{self, Line};
use serde_json::{Map, Value};

pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Of a million inputs, how many are for this one.
    pub share: usize,
}

const fn target(name: &'static str, share: usize, run: fn(&[u8])) -> Target {
    Target { name, run, share }
}

/// Those that read files get fewer: a file costs as much as ten parsers.
pub const ALL: [Target; 13] = [
    target("request_json", 150_000, request_json),
    target("request_yaml", 150_000, request_yaml),
    target("package", 100_000, package),
    target("report", 80_000, report),
    target("markdown_result", 100_000, markdown_result),
    target("control", 80_000, control),
    target("config", 100_000, config),
    target("task_state", 80_000, task_state),
    target("registry_line", 15_000, registry_line),
    target("audit_line", 50_000, audit_line),
    target("record", 50_000, record),
    target("journal", 15_000, journal),
    target("frame", 30_000, frame),
];

fn id() -> HandoffId {
    HandoffId::parse("fuzzed").expect("an id")
}

fn as_request(bytes: &[u8], ext: Ext) {
    let Ok(Document { map, .. }) = document::parse(bytes, ext) else {
        return;
    };
    // All that a producer wrote is in the record, number by number, also after it was on disk.
    let admitted = Record::admit(map.clone(), "fuzzed", None);
    let kept = reread(&admitted);
    if !map.contains_key("handoffd") {
        let mut given = kept.submitted_document();
        if !map.contains_key("handoff_id") {
            given.shift_remove("handoff_id");
        }
        for (key, value) in &map {
            assert_same(given.get(key), value, key);
        }
    }
    let of_document = Request::from_document(&map, &id());
    let of_record = Request::from_record(&kept, &id());
    if let Ok(request) = of_document {
        let again = of_record.expect("an admitted request is still one");
        assert_eq!(request.agent, again.agent, "another agent once admitted");
        assert_eq!(request.not_before, again.not_before);
        assert_eq!(request.timeout_ms, again.timeout_ms);
    }
}

/// Numbers are compared as they are written.
fn assert_same(found: Option<&Value>, expected: &Value, key: &str) {
    let found = found.unwrap_or_else(|| panic!("{key:?} is lost"));
    assert_eq!(found.to_string(), expected.to_string(), "of {key:?}");
}

/// The record as it comes back from disk.
fn reread(record: &Record) -> Record {
    let bytes = record.to_bytes();
    let again = Record::read(&bytes)
        .unwrap_or_else(|error| panic!("{error:?} in {}", String::from_utf8_lossy(&bytes)));
    assert_eq!(
        String::from_utf8_lossy(&again.to_bytes()),
        String::from_utf8_lossy(&bytes),
        "a record changes as it is read and written"
    );
    again
}

pub fn request_json(bytes: &[u8]) {
    as_request(bytes, Ext::Json);
}

pub fn request_yaml(bytes: &[u8]) {
    as_request(bytes, Ext::Yaml);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(value) = yaml::parse(text) {
        let written = yaml_write::write(&value);
        let again = yaml::parse(&written).unwrap_or_else(|error| panic!("{error} in {written:?}"));
        assert_eq!(again.to_string(), value.to_string(), "{written:?}");
    }
}

pub fn package(bytes: &[u8]) {
    as_request(bytes, Ext::Yml);
    let Ok(Document { map, .. }) = document::parse(bytes, Ext::Yml) else {
        return;
    };
    let record = Record::admit(map, "fuzzed", Some("0".repeat(64)));
    let package = Value::Object(export::as_package(&record));
    let text = yaml_write::write(&package);
    yaml::parse(&text).unwrap_or_else(|error| panic!("{error} in {text:?}"));
}

pub fn report(bytes: &[u8]) {
    as_request(bytes, Ext::Markdown);
    if let Ok(Document { map, .. }) = document::parse(bytes, Ext::Markdown) {
        for status in ["complete", "blocked", "needs_review"] {
            report::broken_rules(&map, status);
        }
    }
}

pub fn markdown_result(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        markdown::last_json_block(text);
    }
    if let Output::Result { result, .. } = Output::read(bytes) {
        result::claim(&result);
        result::wrong_fields(&result);
        let mut record = Record::admit(Map::new(), "fuzzed", None);
        record.set("result", result.clone());
        for (key, value) in &result {
            record.lift(key, value.clone());
        }
        let whole = Value::Object(result);
        assert_same(reread(&record).doc.get("result"), &whole, "result");
    }
}

pub fn control(bytes: &[u8]) {
    if let Ok(Document { map, .. }) = document::parse(bytes, Ext::Json) {
        let _ = Command::from_document(&map);
    }
}

pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = Config::parse(&text, Path::new("handoffd.toml")) {
        assert!(!error.to_string().is_empty(), "an error without words");
    }
}

pub fn task_state(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(Value::Object(map)) = json::parse(text) else {
        return;
    };
    if let Ok(state) = TaskState::from_document(map.clone()) {
        // Counting tokens costs as much as a thousand parsers; every 64th is summed up.
        if bytes.len().is_multiple_of(64) {
            let said = summary(&state, Limits::of(&Context::default()));
            assert!(said.chars().count() <= MAX_SUMMARY_CHARS, "{said:?}");
        }
        for (key, value) in &map {
            if key != "format" {
                assert_same(state.document().get(key), value, key);
            }
        }
    }
}

/// A folder in memory for what only reads files; each thread has its own.
fn folder(below: &str) -> PathBuf {
    let base = ["/dev/shm", "/tmp"]
        .into_iter()
        .find(|dir| Path::new(dir).is_dir());
    let name = format!(
        "handoffd-fuzz-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let dir = PathBuf::from(base.unwrap_or(".")).join(name);
    let below = dir.join(below);
    if !below.is_dir() {
        fs::create_dir_all(below).expect("a folder");
    }
    dir
}

/// Removes what the targets of this thread have written.
pub fn clean() {
    let _ = fs::remove_dir_all(folder("run"));
}

pub fn registry_line(bytes: &[u8]) {
    let root = folder("artifacts");
    fs::write(root.join("artifacts/registry.jsonl"), bytes).expect("written");
    let artifacts = Artifacts::for_reading(&root);
    let mut entries = Vec::new();
    artifacts
        .for_each(|entry| entries.push(entry))
        .expect("read");
    let mut backwards = Vec::new();
    artifacts
        .newest_first(|entry| {
            backwards.push(entry);
            std::ops::ControlFlow::Continue(())
        })
        .expect("read backwards");
    backwards.reverse();
    assert_eq!(entries, backwards, "both ends do not see the same lines");
    for entry in entries {
        let found = artifacts.find(&entry.path).expect("looked up");
        assert!(found.is_some(), "{:?} is listed but not found", entry.path);
    }
}

pub fn audit_line(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        Line::parse(line);
    }
    // A whole log costs files; every 16th is one.
    if bytes.len().is_multiple_of(16) {
        let root = folder("audit");
        fs::write(root.join("audit/events-2026-11-16.jsonl"), bytes).expect("written");
        let _ = audit::verify(&root.join("audit"));
    }
}

pub fn record(bytes: &[u8]) {
    let Ok(record) = Record::read(bytes) else {
        return;
    };
    let again = reread(&record);
    assert_eq!(again.meta, record.meta);
    for (key, value) in &record.doc {
        assert_same(again.doc.get(key), value, key);
    }
    let _ = Request::from_record(&record, &id());
    record.meta.next_attempt();
    record.execution_ms();
    export::as_package(&record);
    // Moved back into pending/ by hand.
    let document = Record::document(bytes).expect("it was one");
    reread(&Record::admit(document, "fuzzed", None));
}

pub fn journal(bytes: &[u8]) {
    let dir = folder("run").join("run");
    fs::write(dir.join("attempts.0.jsonl"), bytes).expect("written");
    if let Ok(entries) = journal::read(&dir) {
        let keys: std::collections::BTreeSet<_> = entries.iter().map(|e| &e.key).collect();
        assert_eq!(keys.len(), entries.len(), "an attempt is listed twice");
    }
}

/// The first byte says in which pieces they come.
pub fn frame(bytes: &[u8]) {
    let Some((piece, bytes)) = bytes.split_first() else {
        return;
    };
    let mut orders = Inbox::default();
    let mut reports = Inbox::default();
    for part in bytes.chunks(usize::from(*piece) + 1) {
        orders.push(part, []);
        reports.push(part, []);
        while let Ok(Some(order)) = orders.pop::<Order>() {
            let sent = frame::encode(&order).expect("encoded");
            let mut other = Inbox::default();
            other.push(&sent, []);
            assert_eq!(other.pop::<Order>().expect("decoded"), Some(order));
        }
        while let Ok(Some(_)) = reports.pop::<Report>() {}
    }
}
