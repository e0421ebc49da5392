//! Small changes of a document, one at a time: a key removed, another type, a number out of
//! range, a wrong word, an empty text, a key where none was.

use serde_json::{Value, json};

pub struct Mutation<'a> {
    pub what: String,
    pub document: &'a Value,
}

/// Values to put in the place of others.
fn values() -> Vec<Value> {
    let big: Value = serde_json::from_str("1e400").unwrap();
    let long: Value = serde_json::from_str("12345678901234567890123").unwrap();
    vec![
        Value::Null,
        json!(true),
        json!(7),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(100_000_000),
        big,
        long,
        json!(""),
        json!(" "),
        json!("no such word"),
        json!("a\u{0}b"),
        json!("../x"),
        json!("human"),
        json!("complete"),
        json!("blocked"),
        json!("artifacts/../x"),
        json!("artifacts/{nothing}.json"),
        json!("artifacts/{phase}-{task_id}-{artifact_type}.json"),
        json!("2026-02-30T00:00:00Z"),
        json!("1h"),
        json!("101years"),
        json!([]),
        json!([1]),
        json!([""]),
        json!([null]),
        json!({}),
        json!({"a": 1}),
        json!({"agent": ""}),
        json!({"agent_id": "@a"}),
        json!({"from": {}, "to": {"agent": "@a"}}),
        json!({"context": "c", "next_phase": "x"}),
    ]
}

const DEEPEST: usize = 5;

/// Keys that mean something somewhere, to be put at the top and into `handoff`.
const KEYS: [&str; 34] = [
    "handoff_id",
    "id",
    "status",
    "target",
    "handoff",
    "from",
    "to",
    "context",
    "expectations",
    "timeout_seconds",
    "priority",
    "retry_policy",
    "not_before",
    "depends_on",
    "requires_artifacts",
    "input",
    "expected_output",
    "workflow_state",
    "gate",
    "validation_request",
    "phase",
    "output_type",
    "summary",
    "blocked_reason",
    "attempted",
    "artifacts",
    "files_modified",
    "verification",
    "next_agent",
    "next_phase",
    "blockers",
    "error",
    "decisions",
    "source",
];

/// Shows every mutation of a document.
pub fn mutations(document: &Value, show: &mut dyn FnMut(Mutation<'_>)) {
    let mut places = vec![String::new()];
    collect(document, "", &mut places);
    // Deeper down is only what is carried.
    places.retain(|place| place.matches('/').count() <= DEEPEST);
    let values = values();
    for place in &places {
        for value in &values {
            let mut changed = document.clone();
            *changed.pointer_mut(place).unwrap() = value.clone();
            let what = format!("{place} = {value}");
            show(Mutation {
                what,
                document: &changed,
            });
        }
        remove(document, place, show);
    }
    for holder in ["", "/handoff"] {
        insert(document, holder, &values, show);
    }
}

fn remove(document: &Value, place: &str, show: &mut dyn FnMut(Mutation<'_>)) {
    let Some((parent, last)) = place.rsplit_once('/') else {
        return;
    };
    let mut changed = document.clone();
    match changed.pointer_mut(parent).unwrap() {
        Value::Object(map) => {
            map.shift_remove(&last.replace("~1", "/").replace("~0", "~"));
        }
        Value::Array(items) => {
            items.remove(last.parse().unwrap());
        }
        _ => unreachable!(),
    }
    show(Mutation {
        what: format!("without {place}"),
        document: &changed,
    });
}

fn insert(document: &Value, holder: &str, values: &[Value], show: &mut dyn FnMut(Mutation<'_>)) {
    for key in KEYS {
        match document.pointer(holder) {
            Some(Value::Object(map)) if !map.contains_key(key) => {}
            _ => continue,
        }
        for value in values {
            let mut changed = document.clone();
            changed.pointer_mut(holder).unwrap()[key] = value.clone();
            let what = format!("with {holder}/{key} = {value}");
            show(Mutation {
                what,
                document: &changed,
            });
        }
    }
}

fn collect(value: &Value, path: &str, places: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(at, value)| (at.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    for (key, child) in children {
        let place = format!("{path}/{key}");
        collect(child, &place, places);
        places.push(place);
    }
}
