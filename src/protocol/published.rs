//! The published formats: JSON Schemas of what is dropped, returned and stored, put together
//! from the tables that the readers use.
//!
//! A schema sees one document. What needs another one, a file's name or the configuration is
//! not in it: that ids match, that a dependency exists, that a time-out is not too long. And it
//! can't tell `1.0` from `1`, nor the bytes of a text from its characters.

use serde_json::{Map, Value, json};

use super::control::COMMAND;
use super::fields::{ACTED_ON, PACKAGE, REPORT, REPORT_HANDOFF, REQUEST, STATUSES, TOP};
use super::record_fields::{BY_STATUS, RECORD};
use super::result_fields::{RESULT, RESULT_HANDOFF};
use super::schema::{described, has, object_schema};

/// The formats that are documents, with what each is.
pub const NAMES: [(&str, &str); 6] = [
    ("request", "A request, dropped into handoffs/pending/"),
    ("package", "A package, dropped into handoffs/pending/"),
    ("report", "A report, dropped into handoffs/pending/"),
    ("record", "A record, as the daemon keeps it"),
    ("result", "The result of a specialist"),
    ("control", "A command, dropped into handoffs/control/"),
];

/// The schema of one of [`NAMES`].
pub fn schema(name: &str) -> Option<Value> {
    let body = match name {
        "request" => request(),
        "package" => package(),
        "report" => report(),
        "record" => record(),
        "result" => result(),
        "control" => object_schema(&[COMMAND]),
        _ => return None,
    };
    let about = NAMES.iter().find(|(known, _)| *known == name)?.1;
    Some(headed(name, about, body))
}

/// A schema with its address and title in front.
pub fn headed(name: &str, about: &str, body: Value) -> Value {
    let mut schema = Map::new();
    schema.insert(
        "$schema".to_owned(),
        "https://json-schema.org/draft/2020-12/schema".into(),
    );
    schema.insert("$id".to_owned(), format!("handoffd:{name}").into());
    schema.insert("title".to_owned(), format!("handoffd {name}").into());
    schema.insert("description".to_owned(), about.into());
    if let Value::Object(body) = body {
        schema.extend(body);
    }
    Value::Object(schema)
}

fn request() -> Value {
    let mut schema = object_schema(&[REQUEST, ACTED_ON]);
    schema["required"] = json!(["target"]);
    let target = schema["properties"]["target"].take();
    schema["properties"]["target"] = not_null(target);
    schema["not"] = json!({"anyOf": [fits_package(), fits_report()]});
    let task = vec![within(&["context", "task_id"], &something())];
    let phase = [&["target", "phase"][..], &["phase"]];
    schema["allOf"] = filled_in(&[&[]], &task, &phase).into();
    schema
}

fn package() -> Value {
    let mut handoff = object_schema(&[PACKAGE]);
    handoff["required"] = json!(["from", "to"]);
    for side in ["from", "to"] {
        let schema = handoff["properties"][side].take();
        handoff["properties"][side] = not_null(schema);
    }
    let mut schema = in_two_places(handoff, &[TOP]);
    schema["required"] = json!(["handoff"]);
    schema["not"] = fits_request();
    let mut rules = vec![summarized(), deliverable()];
    rules.extend(placeholders(&[
        &["handoff", "to", "phase"],
        &["handoff", "phase"],
        &["phase"],
    ]));
    schema["allOf"] = rules.into();
    schema
}

fn report() -> Value {
    let mut schema = in_two_places(object_schema(&[REPORT_HANDOFF]), &[REPORT, TOP]);
    schema["properties"]["status"] = described(json!({"enum": STATUSES}), "How the work ended");
    // What a record says that its producer wrote counts for more.
    schema["properties"]["handoffd"] = submitted_status();
    let handoff = &mut schema["properties"]["handoff"];
    for side in ["from", "to"] {
        handoff["properties"][side] = json!({"type": "null"});
    }
    schema["required"] = json!(["status", "handoff"]);
    schema["not"] = fits_request();
    let mut rules = report_rules();
    rules.extend(placeholders(&[&["handoff", "next_phase"], &["phase"]]));
    schema["allOf"] = rules.into();
    schema
}

fn result() -> Value {
    let mut schema = object_schema(&[RESULT]);
    let mut handoff = object_schema(&RESULT_HANDOFF);
    handoff["type"] = json!(["object", "null"]);
    schema["properties"]["handoff"] = described(handoff, "What follows");
    schema
}

/// The producer's document, where it was not refused, and what the daemon added.
fn record() -> Value {
    let mut schema = object_schema(&[RECORD]);
    let mut rules: Vec<Value> = BY_STATUS
        .iter()
        .map(|(status, keys)| {
            json!({
                "if": {"properties": {"status": {"const": status}}},
                "then": {"required": keys},
            })
        })
        .collect();
    let mut dialects = [request(), package(), report()];
    // The daemon's status stands where the producer's was; the rules were kept when it came.
    dialects[2]["required"] = json!(["handoff"]);
    if let Some(report) = dialects[2].as_object_mut() {
        report.shift_remove("allOf");
    }
    if let Some(properties) = dialects[2]["properties"].as_object_mut() {
        properties.shift_remove("status");
    }
    let [request, package, report] = dialects;
    rules.push(json!({
        "if": {"properties": {"status": {"const": "failed"}}},
        "else": {"anyOf": [
            {"$ref": "#/$defs/request"},
            {"$ref": "#/$defs/package"},
            {"$ref": "#/$defs/report"},
        ]},
    }));
    schema["allOf"] = rules.into();
    let mut defs = json!({"request": request, "package": package, "report": report});
    // A schema has one place for what is shared.
    if let Some(defs) = defs.as_object_mut() {
        let mut acted_on = Value::Null;
        for dialect in defs.values_mut() {
            if let Some(own) = dialect
                .as_object_mut()
                .and_then(|it| it.shift_remove("$defs"))
            {
                acted_on = own["acted_on"].clone();
            }
        }
        defs.insert("acted_on".to_owned(), acted_on);
    }
    schema["$defs"] = defs;
    schema
}

/// A document with a `handoff`; what is acted on may stand in it or beside it.
fn in_two_places(mut handoff: Value, top: &[&[super::shape::Field]]) -> Value {
    let acted_on = json!({"$ref": "#/$defs/acted_on"});
    handoff["$ref"] = acted_on["$ref"].clone();
    let mut schema = object_schema(top);
    schema["$ref"] = acted_on["$ref"].clone();
    schema["properties"]["handoff"] = described(handoff, "The work so far, and the receiver");
    let mut shared = object_schema(&[ACTED_ON]);
    if let Some(shared) = shared.as_object_mut() {
        shared.shift_remove("type");
    }
    schema["$defs"] = json!({"acted_on": shared});
    schema
}

/// What must hold beside the shapes of a report's fields.
fn report_rules() -> Vec<Value> {
    let top = |name: &str| within(&[name], &something());
    let inside = |name: &str| within(&["handoff", name], &something());
    let ends = within(
        &["handoff", "next_phase"],
        &json!({"enum": ["complete", "completed"]}),
    );
    vec![
        described(
            json!({"anyOf": [top("phase"), top("output_type")]}),
            "A report needs phase or output_type",
        ),
        described(
            json!({"anyOf": [top("summary"), inside("context")]}),
            "A report needs summary or handoff.context",
        ),
        json!({
            "if": within(&["status"], &json!({"const": "blocked"})),
            "then": {"allOf": [
                described(top("blocked_reason"), "A blocked report needs the reason"),
                described(top("attempted"), "A blocked report needs what was tried"),
                described(
                    json!({"anyOf": [inside("blockers"), inside("context")]}),
                    "A blocked report needs handoff.blockers or handoff.context",
                ),
                described(
                    json!({"properties": {
                        "handoff": {"properties": {"next_agent": {"type": "null"}}},
                    }}),
                    "A blocked report has no next agent: routes.blocked decides who helps",
                ),
            ]},
            "else": described(
                json!({"anyOf": [inside("context"), ends]}),
                "The next agent needs handoff.context, unless handoff.next_phase is complete",
            ),
        }),
    ]
}

/// A package tells what was done.
fn summarized() -> Value {
    let inside = ["handoff", "context", "summary"];
    described(
        json!({"anyOf": [
            within(&inside, &says_text()),
            {
                "not": within(&inside, &something_at_all()),
                "allOf": [within(&["context", "summary"], &says_text())],
            },
        ]}),
        "The receiver needs to know what was done",
    )
}

/// A package that expects anything says what.
fn deliverable() -> Value {
    json!({
        "if": within(&["handoff", "expectations"], &json!({"type": "object"})),
        "then": described(
            within(&["handoff", "expectations", "deliverable"], &says_text()),
            "The receiver needs to know what to deliver",
        ),
    })
}

/// The placeholders of a package or a report.
fn placeholders(phase: &[&[&str]]) -> Vec<Value> {
    let task = vec![
        within(&["handoff", "context", "task_id"], &something()),
        within(&["context", "task_id"], &something()),
    ];
    filled_in(&[&["handoff"], &[]], &task, phase)
}

/// Where a destination uses a placeholder, what it stands for must be known.
fn filled_in(holders: &[&[&str]], task: &[Value], phase: &[&[&str]]) -> Vec<Value> {
    let named = json!({"type": ["string", "number"], "minLength": 1});
    let phase: Vec<Value> = phase.iter().map(|path| within(path, &named)).collect();
    let mut rules = Vec::new();
    for holder in holders {
        let at = |field| [*holder, &["expected_output", field]].concat();
        let used = |name: &str| {
            let pattern = format!("\\{{{name}\\}}");
            within(
                &at("destination"),
                &json!({"type": "string", "pattern": pattern}),
            )
        };
        let kind = within(
            &at("artifact_type"),
            &json!({"type": "string", "minLength": 1}),
        );
        rules.push(json!({"if": used("task_id"), "then": {"anyOf": task}}));
        rules.push(json!({"if": used("phase"), "then": {"anyOf": phase}}));
        rules.push(json!({"if": used("artifact_type"), "then": kind}));
    }
    rules
}

fn fits_request() -> Value {
    within(&["target", "agent_id"], &something_at_all())
}

fn fits_package() -> Value {
    let sides = json!({"type": "object", "allOf": [has("from"), has("to")]});
    within(&["handoff"], &sides)
}

fn fits_report() -> Value {
    let finished = json!({"enum": STATUSES});
    json!({"allOf": [
        within(&["handoff"], &json!({"type": "object", "properties": {
            "from": {"type": "null"}, "to": {"type": "null"},
        }})),
        {"anyOf": [
            within(&["status"], &finished),
            within(&["handoffd", "submitted", "status"], &finished),
        ]},
    ]})
}

fn submitted_status() -> Value {
    json!({"properties": {"submitted": {"properties": {"status": {"enum": STATUSES}}}}})
}

/// At a path of objects stands something that matches.
fn within(path: &[&str], leaf: &Value) -> Value {
    path.iter().rev().fold(
        leaf.clone(),
        |schema, name| json!({"type": "object", "required": [name], "properties": {*name: schema}}),
    )
}

/// As [`super::report`] sees it: an empty text, list or object says nothing.
fn something() -> Value {
    json!({"not": {"type": "null"}, "pattern": "\\S", "minItems": 1, "minProperties": 1})
}

fn something_at_all() -> Value {
    json!({"not": {"type": "null"}})
}

fn says_text() -> Value {
    json!({"type": "string", "pattern": "\\S"})
}

/// A field that is needed after all.
fn not_null(mut schema: Value) -> Value {
    schema["type"] = "object".into();
    schema
}
