//! The three dialects: every example that the protocol grew from, right ones and forbidden
//! ones, dropped and held against its verdict.

use std::fs;
use std::path::Path;

use handoffd::protocol::document;
use handoffd::protocol::name::Ext;
use handoffd::protocol::yaml_write;
use serde_json::{Value, json};

use crate::common::{Daemon, Root, outcomes, text};

/// What becomes of an example: the folder, the error's code or what is waited for, and how
/// many attempts it takes.
type Right = (&'static str, &'static str, &'static str, usize);

const RIGHT: [Right; 20] = [
    ("package-delegation.yaml", "completed", "", 1),
    ("package-escalation.yaml", "waiting", "human", 0),
    ("package-explicit.yaml", "completed", "", 1),
    ("package-full.yaml", "completed", "", 1),
    ("package-gate.yaml", "waiting", "human", 0),
    ("package-measurable.yaml", "completed", "", 1),
    ("package-return.yaml", "completed", "", 1),
    ("package-sequential.yaml", "completed", "", 1),
    ("report-architecture.json", "completed", "", 1),
    ("report-blocked-plain.json", "failed", "BLOCKED", 0),
    ("report-blocked.json", "failed", "BLOCKED", 0),
    ("report-implementation.json", "completed", "", 1),
    ("report-markdown.md", "completed", "", 1),
    ("report-review.json", "waiting", "human", 0),
    ("report-testing.json", "completed", "", 0),
    ("request-completed.json", "completed", "", 1),
    ("request-failed.json", "completed", "", 1),
    ("request-producer.json", "completed", "", 1),
    ("request-react.json", "completed", "", 1),
    ("request-small.json", "completed", "", 1),
];

const REFUSED: &str = "SCHEMA_VALIDATION_FAILED";

/// A forbidden example, the code it fails with (none: it is only warned about), and the field
/// that is named.
const FORBIDDEN: [(&str, Option<&str>, &str); 22] = [
    ("package-says-nothing.yaml", None, "handoff.context.summary"),
    (
        "package-vague-criterion.yaml",
        None,
        "handoff.expectations.success_criteria[0]",
    ),
    (
        "package-vague-constraint.yaml",
        None,
        "handoff.expectations.constraints[1]",
    ),
    (
        "package-artifact-without-path.yaml",
        None,
        "handoff.context.artifacts[0].path",
    ),
    (
        "package-artifact-missing.yaml",
        Some("DEPENDENCY_MISSING"),
        "handoff.context.artifacts[0].path",
    ),
    (
        "package-no-summary.yaml",
        Some(REFUSED),
        "handoff.context.summary",
    ),
    (
        "package-no-deliverable.yaml",
        Some(REFUSED),
        "handoff.expectations.deliverable",
    ),
    ("report-vague-architecture.json", None, "summary"),
    ("report-vague-code.json", None, "summary"),
    ("report-vague-tests.json", None, "summary"),
    (
        "report-blocked-without-reason.json",
        Some(REFUSED),
        "blocked_reason",
    ),
    (
        "report-blocked-with-next-agent.json",
        Some(REFUSED),
        "handoff.next_agent",
    ),
    (
        "report-blocked-nothing-attempted.json",
        Some(REFUSED),
        "attempted",
    ),
    (
        "report-blocked-without-blockers.json",
        Some(REFUSED),
        "handoff.blockers",
    ),
    (
        "report-blocked-odd-reason.json",
        Some(REFUSED),
        "blocked_reason",
    ),
    ("report-without-phase.json", Some(REFUSED), "phase"),
    ("report-without-summary.json", Some(REFUSED), "summary"),
    (
        "report-without-context.json",
        Some(REFUSED),
        "handoff.context",
    ),
    (
        "package-template.yaml",
        Some(REFUSED),
        "handoff.workflow_state.current_step",
    ),
    ("report-template.json", Some(REFUSED), "target.agent_id"),
    ("two-dialects.json", Some(REFUSED), "handoff"),
    ("two-dialects-report.json", Some(REFUSED), "handoff"),
];

const REACT: &str = r#"cat >"$HANDOFF_ROOT/marks/$HANDOFF_ID.stdin"
echo '{"artifact": {"components": ["UserProfile"]}}'
"#;

pub fn fixture(folder: &str, name: &str) -> Vec<u8> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fs::read(fixtures.join(folder).join(name)).unwrap()
}

pub fn names(folder: &str) -> Vec<String> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut names: Vec<String> = fs::read_dir(fixtures.join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub fn stem(name: &str) -> &str {
    name.rsplit_once('.').unwrap().0
}

pub fn read(folder: &str, name: &str) -> Value {
    let ext = Ext::parse(name.rsplit_once('.').unwrap().1).unwrap();
    let parsed = document::parse(&fixture(folder, name), ext).unwrap();
    Value::Object(parsed.map)
}

/// The same document as the tests read records.
fn plain(document: &Value) -> Value {
    serde_json::from_str(&document.to_string()).unwrap()
}

/// The same document in another syntax.
fn written(document: &Value, ext: &str) -> String {
    match ext {
        "json" => document.to_string(),
        "yaml" => yaml_write::write(document),
        _ => format!("# What was done\n\nWords.\n\n```json\n{document:#}\n```\n"),
    }
}

/// A root in which everything is there that the right examples refer to.
pub fn furnished(config: &str) -> Root {
    let root = Root::with(&format!(
        "specialists.'*'.command = ['true']\n\
         specialists.'react-specialist'.command = ['sh', 'react.sh']\n{config}"
    ));
    fs::write(root.path("react.sh"), REACT).unwrap();
    for path in [
        ".project/02-requirements/user-stories/US-001.md",
        ".project/02-requirements/epics/EP-001.md",
        ".project/05-quality/security/review-2024-01.md",
        ".output/features/board_20250113_090000/architecture.md",
        ".output/features/board/architecture.md",
        ".output/features/board/tiles.png",
        "docs/design.md",
        "artifacts/artifact-tech-stack-001.json",
    ] {
        let path = root.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "there\n").unwrap();
    }
    let registered = json!({
        "artifact_id": "artifact-tech-stack-001", "path": "artifacts/artifact-tech-stack-001.json",
        "sha256": "0".repeat(64), "size_bytes": 6, "handoff_id": "earlier",
        "created_at": "2026-01-13T09:00:00.000Z",
    });
    fs::write(
        root.path("artifacts/registry.jsonl"),
        format!("{registered}\n"),
    )
    .unwrap();
    fs::create_dir(root.path("schemas")).unwrap();
    for (name, schema) in [
        (
            "react-specialist.input.schema.json",
            json!({"type": "object"}),
        ),
        (
            "react-specialist.output.schema.json",
            json!({"type": "object", "required": ["components"]}),
        ),
    ] {
        fs::write(root.path("schemas").join(name), schema.to_string()).unwrap();
    }
    root
}

fn leaves(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => map.values().for_each(|it| leaves(it, into)),
        Value::Array(list) if !list.is_empty() => list.iter().for_each(|it| leaves(it, into)),
        leaf => into.push(leaf.to_string()),
    }
}

/// Every field of the producer's is in the record as it was written, or in
/// `handoffd.submitted`.
pub fn assert_kept(document: &Value, record: &Value) {
    let document = &plain(document);
    for (key, value) in document.as_object().unwrap() {
        let displaced = &record["handoffd"]["submitted"][key];
        assert!(
            record[key] == *value || displaced == value,
            "{key} is lost: {record:#}"
        );
    }
    let (mut wanted, mut there) = (Vec::new(), Vec::new());
    leaves(document, &mut wanted);
    leaves(record, &mut there);
    for leaf in wanted {
        assert!(there.contains(&leaf), "{leaf} is lost: {record:#}");
    }
}

fn all_right(ext: Option<&str>) {
    let root = furnished("");
    let _daemon = Daemon::start(&root);
    for (name, ..) in RIGHT {
        match ext {
            None => root.drop_bytes(name, &fixture("dialects", name)),
            Some(ext) => root.drop_bytes(
                &format!("{}.{ext}", stem(name)),
                written(&read("dialects", name), ext).as_bytes(),
            ),
        }
    }
    for (name, state, what, attempts) in RIGHT {
        let record = root.record(state, stem(name));
        match state {
            "waiting" => assert_eq!(record["waiting"]["on"], what, "{name}"),
            "failed" => assert_eq!(record["error"]["code"], what, "{name}"),
            _ => assert!(record["completed_at"].is_string(), "{name}"),
        }
        assert_eq!(outcomes(&record).len(), attempts, "{name}");
        let acknowledged = &record["acknowledgment"];
        assert_eq!(acknowledged["received"], true, "{name}: {record:#}");
        assert_eq!(acknowledged["starting"], attempts > 0, "{name}");
        // To the letter, a report has a phase and a summary, also when it is blocked.
        let warned = match name {
            "report-blocked-plain.json" => 3,
            "report-blocked.json" | "report-markdown.md" => 2,
            "report-review.json" => 1,
            _ => 0,
        };
        if warned > 0 {
            let list = acknowledged["warnings"].as_array().map_or(0, Vec::len);
            assert_eq!(list, warned, "{name}: {acknowledged:#}");
        } else if name != "request-small.json" {
            assert_eq!(acknowledged["warnings"], Value::Null, "{name}");
        }
        assert_kept(&read("dialects", name), &record);
    }
    let react = root.completed("request-react");
    assert_eq!(react["output"]["schema_compliance"], "valid");
    let path = text(&react["output"]["artifact_path"]);
    assert!(path.starts_with("artifacts/phase-13-react/artifact-react-comp-"));
    assert!(root.path(&path).exists());
    let small = fs::read_to_string(root.state("completed", "request-small")).unwrap();
    for number in ["1.0", "1e400", "12345678901234567890123"] {
        assert!(small.contains(number), "as it was written: {number}");
    }
    // The tech stack is not what the registry says, and who depends on it is told.
    let warned = root.completed("request-small")["acknowledgment"]["warnings"].to_string();
    assert!(warned.contains("artifact-tech-stack-001"), "{warned}");
    root.assert_audit_is_sound();
}

#[test]
fn the_tables_name_every_example() {
    let right: Vec<String> = RIGHT.iter().map(|it| it.0.to_owned()).collect();
    assert_eq!(names("dialects"), right);
    let mut forbidden: Vec<String> = FORBIDDEN.iter().map(|it| it.0.to_owned()).collect();
    forbidden.sort();
    assert_eq!(names("forbidden"), forbidden);
}

#[test]
fn what_is_right_is_accepted_and_runs() {
    all_right(None);
}

#[test]
fn what_is_right_is_right_in_every_syntax() {
    for ext in ["json", "yaml", "md"] {
        all_right(Some(ext));
    }
}

fn assert_refused(root: &Root, name: &str, code: &str, field: &str) {
    let (record, found) = root.failed(stem(name));
    assert_eq!(found, code, "{name}: {record:#}");
    let errors = record["validation"]["errors"].as_array().unwrap();
    let fields: Vec<&str> = errors
        .iter()
        .filter_map(|it| it["field"].as_str())
        .collect();
    assert_eq!(fields, [field], "{name}");
    assert_eq!(record["validation"]["status"], "failed", "{name}");
    assert!(text(&record["error"]["message"]).contains(field), "{name}");
    assert!(record["recovery_actions"].to_string().contains(field));
    assert_eq!(record["handoffd"]["attempts"], json!([]), "{name}");
    assert_kept(&read("forbidden", name), &record);
}

#[test]
fn what_is_forbidden_is_refused_or_warned_about() {
    for strict in [false, true] {
        let root = furnished(&format!("intake.strict = {strict}"));
        let _daemon = Daemon::start(&root);
        for (name, ..) in FORBIDDEN {
            root.drop_bytes(name, &fixture("forbidden", name));
        }
        for (name, code, field) in FORBIDDEN {
            let code = code.or(strict.then_some(REFUSED));
            if let Some(code) = code {
                assert_refused(&root, name, code, field);
                continue;
            }
            let record = root.completed(stem(name));
            let warnings = record["acknowledgment"]["warnings"].as_array().unwrap();
            assert_eq!(warnings.len(), 1, "{name}: {warnings:?}");
            assert!(
                text(&warnings[0]).starts_with(&format!("{field}: ")),
                "{name}"
            );
            assert_eq!(record["warnings"], json!(warnings), "{name}");
            assert_kept(&read("forbidden", name), &record);
        }
    }
}
