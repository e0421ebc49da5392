//! Every example in the repository, with the format that it is of.

use std::fs;
use std::path::{Path, PathBuf};

use handoffd::protocol::dialect::{Dialect, dialect};
use handoffd::protocol::document;
use handoffd::protocol::markdown;
use handoffd::protocol::name::Ext;
use serde_json::{Map, Value, json};

pub struct Example {
    pub format: &'static str,
    /// Where it stands.
    pub from: String,
    pub document: Value,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn all() -> Vec<Example> {
    let mut examples = Vec::new();
    for folder in ["examples", "tests/fixtures/dialects"] {
        for file in files(&root().join(folder)) {
            if let Some(map) = read(&file) {
                examples.extend(submission(named(&file), map));
            }
        }
    }
    let kept = root().join("tests/fixtures/format-1/handoffs");
    for file in files(&kept) {
        let folder = file
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap();
        let format = match folder {
            "pending" => "request",
            "control" | "rejected" => "control",
            _ => "record",
        };
        let is_reason = named(&file).ends_with(".reason.json");
        if let Some(map) = read(&file).filter(|_| !is_reason) {
            examples.push(example(format, named(&file), map.into()));
        }
    }
    for file in ["handoffd.toml", "src/config/example.toml"] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        examples.push(example("config", file.to_owned(), toml(&text)));
    }
    let pages = files(&root().join("docs"));
    for page in pages.iter().chain([&root().join("README.md")]) {
        examples.extend(blocks(page));
    }
    for (at, result) in results().into_iter().enumerate() {
        examples.push(example("result", format!("result {at}"), result));
    }
    examples
}

fn example(format: &'static str, from: String, document: Value) -> Example {
    Example {
        format,
        from,
        document,
    }
}

fn named(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().display().to_string()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A document, if the file is one.
fn read(file: &Path) -> Option<Map<String, Value>> {
    let ext = Ext::parse(file.extension()?.to_str()?)?;
    let document = document::parse(&fs::read(file).unwrap(), ext);
    match ext {
        // A page need not end in a document.
        Ext::Markdown => Some(document.ok()?.map),
        _ => Some(
            document
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
                .map,
        ),
    }
}

/// What somebody may drop; other documents have other tests.
fn submission(from: String, map: Map<String, Value>) -> Option<Example> {
    let format = match dialect(&map) {
        Dialect::Request => "request",
        Dialect::Package => "package",
        Dialect::Report => "report",
        Dialect::Ambiguous | Dialect::Unknown => return None,
    };
    Some(example(format, from, map.into()))
}

/// Examples between the words of a page. Those with something left out are none.
fn blocks(page: &Path) -> Vec<Example> {
    let mut found = Vec::new();
    let text = fs::read_to_string(page).unwrap();
    let mut rest = text.as_str();
    while let Some((_, block)) = rest.split_once("\n```") {
        let Some((language, block)) = block.split_once('\n') else {
            break;
        };
        let Some((body, after)) = block.split_once("\n```") else {
            break;
        };
        rest = after;
        let from = format!("{} ({language})", named(page));
        let ext = match language {
            "json" => Ext::Json,
            "yaml" => Ext::Yaml,
            "toml" => {
                if !body.contains('…') {
                    found.push(example("config", from, toml(body)));
                }
                continue;
            }
            _ => continue,
        };
        if let Ok(document) = document::parse(body.as_bytes(), ext) {
            found.extend(submission(from, document.map));
        }
    }
    found
}

fn toml(text: &str) -> Value {
    let table: toml::Table = text.parse().unwrap();
    serde_json::to_value(table).unwrap()
}

/// What specialists give back, with every field that the contract names.
fn results() -> Vec<Value> {
    vec![
        json!({}),
        json!({"status": "failed", "error": {"code": "E_QUOTA", "message": "m", "retryable": true}}),
        json!({"retry_after_seconds": 1.5, "error": "try later"}),
        json!({"status": "delegate", "handoff": {"children": [
            {"agent": "@b", "context": "c", "input": {"data": 1}},
        ]}}),
        json!({
            "status": "blocked", "blocked_reason": "missing_requirements", "attempted": ["a"],
            "handoff": {"next_agent": null, "blockers": [{"description": "d"}]},
            "acknowledgment": {"action": "request_clarification", "questions": ["q"]},
        }),
        json!({
            "status": "complete", "summary": "s", "phase": 3, "output": [1], "artifact": {"a": 1},
            "artifacts": ["artifacts/a.md", {"path": "artifacts/b.md", "type": "source"},
                          {"artifact_path": "artifacts/c", "artifact_type": "x"}],
            "validation": {"status": "passed"}, "metadata": {}, "next_steps": [], "warnings": [],
            "errors": [], "quality_gates": {}, "files_modified": [], "verification": {},
            "decisions": ["d", {"decision": "d", "rationale": "r"}],
            "blocking_issues": [{"issue": "i", "severity": "high", "suggested_action": "s",
                                 "requires_human": false}],
            "handoff": {"next_phase": "testing", "next_agent": "@tester", "context": "c",
                        "blockers": []},
        }),
    ]
}

#[test]
fn the_examples_are_found() {
    let examples = all();
    let count = |format: &str| examples.iter().filter(|one| one.format == format).count();
    assert!(count("request") >= 7, "{}", count("request"));
    assert!(count("package") >= 6, "{}", count("package"));
    assert!(count("report") >= 4, "{}", count("report"));
    assert!(count("record") >= 9, "{}", count("record"));
    assert!(count("control") >= 2, "{}", count("control"));
    assert!(count("config") >= 4, "{}", count("config"));
    let page = "# Words\n\n```json\n{}\n```\n";
    assert!(markdown::last_json_block(page).is_some());
}
