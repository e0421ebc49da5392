//! The four documents of `docs/coming-from.md`: each example is a fixture, and here are the verdicts
//! that depend on how an example comes. What is only dropped is in `dialects`; the states of tasks are in
//! `tests/tasks`.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, text, wait_until};
use crate::dialects::{fixture, furnished, names, read, stem};

/// Each document, and how the names of its fixtures begin.
const DOCUMENTS: [(&str, &str, &[&str]); 4] = [
    (
        "ADR-005: Agent Handoff State Format",
        "states",
        &["whole", "handoff", "considered"],
    ),
    (
        "Agent Handoffs",
        "report-",
        &[
            "architecture",
            "implementation",
            "testing",
            "blocked-plain",
            "template",
        ],
    ),
    (
        "Agent Handoff Protocol Specification",
        "request-",
        &["react", "completed", "failed", "producer"],
    ),
    (
        "Handoff Protocol",
        "package-",
        &[
            "template",
            "sequential",
            "delegation",
            "escalation",
            "return",
            "says-nothing",
            "explicit",
            "vague-criterion",
            "measurable",
            "vague-constraint",
            "artifact-missing",
            "gate",
        ],
    ),
];

#[test]
fn every_document_has_a_page_and_its_examples() {
    let page = include_str!("../../docs/coming-from.md");
    let all = ["dialects", "forbidden", "states"].map(names).concat();
    for (title, prefix, examples) in DOCUMENTS {
        assert!(page.contains(&format!("\n## {title}\n")), "{title}");
        let prefix = prefix.strip_suffix("states").unwrap_or(prefix);
        for example in examples {
            let wanted = format!("{prefix}{example}");
            assert!(
                all.iter().any(|name| stem(name) == wanted),
                "{title}: {wanted}"
            );
        }
    }
}

/// A report, the folder where its handoff ends, the error code, the rules that warn about it, and the error
/// code to the letter.
type Printed = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    Option<&'static str>,
);

/// What becomes of a report of "Agent Handoffs" that ends the output of an agent.
const PRINTED: [Printed; 18] = [
    ("report-architecture.json", "completed", "", &[], None),
    ("report-implementation.json", "completed", "", &[], None),
    ("report-testing.json", "completed", "", &[], None),
    (
        "report-blocked.json",
        "failed",
        "BLOCKED",
        &["report-phase", "report-summary"],
        BROKEN,
    ),
    (
        "report-blocked-plain.json",
        "failed",
        "BLOCKED",
        &["report-phase", "report-summary", "report-blockers"],
        BROKEN,
    ),
    (
        "report-review.json",
        "waiting",
        "",
        &["report-phase"],
        BROKEN,
    ),
    (
        "report-vague-architecture.json",
        "completed",
        "",
        &["telling-summary"],
        BROKEN,
    ),
    (
        "report-vague-code.json",
        "completed",
        "",
        &["telling-summary"],
        BROKEN,
    ),
    (
        "report-vague-tests.json",
        "completed",
        "",
        &["telling-summary"],
        BROKEN,
    ),
    (
        "report-without-phase.json",
        "completed",
        "",
        &["report-phase"],
        BROKEN,
    ),
    (
        "report-without-summary.json",
        "completed",
        "",
        &["report-summary"],
        BROKEN,
    ),
    (
        "report-without-context.json",
        "completed",
        "",
        &["report-context"],
        BROKEN,
    ),
    (
        "report-blocked-odd-reason.json",
        "failed",
        "BLOCKED",
        &["listed-blocked-reason", "report-summary", "report-blockers"],
        BROKEN,
    ),
    (
        "report-blocked-without-reason.json",
        "failed",
        "VALIDATION_FAILED",
        &[],
        BROKEN,
    ),
    (
        "report-blocked-with-next-agent.json",
        "failed",
        "VALIDATION_FAILED",
        &[],
        BROKEN,
    ),
    (
        "report-blocked-nothing-attempted.json",
        "failed",
        "VALIDATION_FAILED",
        &[],
        BROKEN,
    ),
    (
        "report-blocked-without-blockers.json",
        "failed",
        "VALIDATION_FAILED",
        &[],
        BROKEN,
    ),
    (
        "report-template.json",
        "failed",
        "VALIDATION_FAILED",
        &[],
        BROKEN,
    ),
];

const BROKEN: Option<&str> = Some("VALIDATION_FAILED");

fn folder(name: &str) -> &'static str {
    let forbidden = names("forbidden");
    if forbidden.iter().any(|it| it == name) {
        "forbidden"
    } else {
        "dialects"
    }
}

#[test]
fn reports_that_end_an_agents_output_are_its_result() {
    for strict in [false, true] {
        let root = furnished(&format!(
            "intake.strict = {strict}\ndefaults.retry.max_retries = 0\n\
             specialists.agent.command = ['sh', '-c', 'cat $HANDOFF_ROOT/marks/$HANDOFF_ID.says']"
        ));
        let _daemon = Daemon::start(&root);
        for (name, ..) in PRINTED {
            let block = String::from_utf8(fixture(folder(name), name)).unwrap();
            let output = format!("# What I did\n\nIt took an hour.\n\n```json\n{block}\n```\n");
            fs::write(root.path(&format!("marks/{}.says", stem(name))), output).unwrap();
            root.drop_request(stem(name), &json!({ "target": { "agent_id": "agent" } }));
        }
        for (name, state, code, rules, to_the_letter) in PRINTED {
            if let (true, Some(code)) = (strict, to_the_letter) {
                let (record, found) = root.failed(stem(name));
                assert_eq!(found, code, "{name}");
                let errors = record["validation"]["errors"].to_string();
                assert!(
                    rules.iter().all(|rule| errors.contains(rule)),
                    "{name}: {errors}"
                );
                continue;
            }
            let record = root.record(state, stem(name));
            assert_eq!(
                record["error"]["code"].as_str().unwrap_or_default(),
                code,
                "{name}"
            );
            let warnings = record["warnings"].as_array().cloned().unwrap_or_default();
            assert_eq!(warnings.len(), rules.len(), "{name}: {warnings:?}");
            for (warning, rule) in warnings.iter().zip(rules) {
                assert!(
                    text(warning).contains(&format!("(rule {rule})")),
                    "{name}: {warning}"
                );
            }
        }
    }
}

/// "Agent Handoff Protocol Specification": all that its response and its failure have is in the records
/// here, under the same names.
#[test]
fn outcomes_have_the_fields_of_the_response_and_the_failure() {
    let root = furnished("");
    let response = read("dialects", "request-completed.json");
    let mut result = json!({ "artifact": { "components": ["UserProfile"] } });
    for key in ["validation", "metadata", "next_steps", "warnings", "errors"] {
        result[key] = response[key].clone();
    }
    fs::write(root.path("result.json"), result.to_string()).unwrap();
    fs::write(root.path("react.sh"), "cat >/dev/null; cat result.json").unwrap();
    let wants = json!({ "type": "object", "required": ["component_requirements"] });
    let schema = root.path("schemas/react-specialist.input.schema.json");
    fs::write(schema, wants.to_string()).unwrap();
    let _daemon = Daemon::start(&root);
    let mut request = read("dialects", "request-react.json");
    root.drop_request("request-react", &request);
    let record = root.completed("request-react");
    for (key, value) in response.as_object().unwrap() {
        match key.as_str() {
            "handoff_id" | "timestamp_completed" => assert!(record[key].is_string(), "{key}"),
            "execution_time_seconds" => assert!(record[key].is_number()),
            "output" => {
                for key in value.as_object().unwrap().keys() {
                    assert!(record["output"][key].is_string(), "{key}: {record:#}");
                }
                assert_eq!(
                    record["output"]["schema_compliance"],
                    value["schema_compliance"]
                );
                assert_eq!(record["output"]["artifact_type"], value["artifact_type"]);
            }
            "source" | "target" => assert_eq!(record[key], request[key]),
            "validation" => {
                for (key, value) in value
                    .as_object()
                    .unwrap()
                    .iter()
                    .filter(|it| it.0 != "status")
                {
                    assert_eq!(record["validation"][key], *value, "{key}");
                }
                assert_eq!(record["validation"]["status"], "passed");
            }
            _ => assert_eq!(record[key], *value, "{key}"),
        }
    }
    let failure = read("dialects", "request-failed.json");
    request["handoff_id"] = "wrong".into();
    request["input"]["data"] = json!({});
    root.drop_request("wrong", &request);
    let (record, code) = root.failed("wrong");
    assert_eq!(code, "SCHEMA_VALIDATION_FAILED");
    for (key, value) in failure.as_object().unwrap() {
        let same_kind = |one: &Value, other: &Value| {
            std::mem::discriminant(one) == std::mem::discriminant(other)
        };
        assert!(same_kind(&record[key], value), "{key}: {record:#}");
    }
    for key in ["code", "message", "severity", "timestamp"] {
        assert!(record["error"][key].is_string(), "{key}");
    }
    assert_eq!(record["validation"]["status"], "failed");
    for key in ["field", "error", "schema_path"] {
        assert!(
            record["validation"]["errors"][0][key].is_string(),
            "{key}: {record:#}"
        );
    }
    assert_eq!(
        (
            &record["retry_available"],
            &record["retry_count"],
            &record["max_retries"]
        ),
        (&json!(true), &json!(0), &json!(3))
    );
}

/// "Handoff Protocol": a receipt, in its two forms.
#[test]
fn a_package_is_acknowledged_whole_or_in_part() {
    let root = furnished("intake.strict = true");
    let _daemon = Daemon::start(&root);
    let name = "package-delegation.yaml";
    root.drop_bytes(name, &fixture("dialects", name));
    let package = read("dialects", name);
    let constraints = &package["handoff"]["expectations"]["constraints"];
    assert_eq!(
        root.completed(stem(name))["acknowledgment"],
        json!({
            "received": true,
            "from": "architecture",
            "understood": { "task": package["handoff"]["expectations"]["deliverable"],
                            "constraints": constraints },
            "questions": [],
            "starting": true,
        })
    );
    let mut package = read("forbidden", "package-artifact-missing.yaml");
    package["handoff"]["expectations"] =
        json!({ "deliverable": "The design", "constraints": ["quickly"] });
    root.drop_request("partial", &package);
    let acknowledged = root.failed("partial").0["acknowledgment"].take();
    let keys: Vec<&String> = acknowledged.as_object().unwrap().keys().collect();
    let partial = ["received", "from", "understood", "blockers", "action"];
    assert_eq!(keys, partial, "{acknowledged:#}");
    assert_eq!(acknowledged["understood"], "partial");
    assert_eq!(acknowledged["action"], "request_clarification");
    let blockers = acknowledged["blockers"].to_string();
    assert!(blockers.contains("does not exist") && blockers.contains("can't be measured"));
}

/// "Handoff Protocol": the handoffs in the state, in the document's words.
#[test]
fn current_json_lists_a_handoff_as_the_document_does() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let package = json!({
        "handoff": { "from": { "agent": "specification" }, "to": { "agent": "fake" },
                     "context": { "summary": "12 stories" } },
        "input": { "data": { "sh": "exit 0" } },
    });
    root.drop_request("HO-001", &package);
    root.completed("HO-001");
    let listed = wait_until("the handoff is listed", || {
        let bytes = fs::read(root.path("context/state/current.json")).ok()?;
        let current: Value = serde_json::from_slice(&bytes).ok()?;
        let listed = current["handoffs"]
            .as_array()?
            .iter()
            .find(|it| it["id"] == "HO-001")?;
        (listed["status"] == "completed").then(|| listed.clone())
    });
    assert!(listed["timestamp"].is_string());
    assert_eq!(
        (&listed["from"], &listed["to"]),
        (&json!("specification"), &json!("fake"))
    );
}
