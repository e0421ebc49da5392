//! What a handoff gives to the next agent: its work, and the context that goes along.

use serde_json::{Map, Value};

use crate::protocol::record::Record;
use crate::protocol::view::View;

/// What the next agent is told, out of a result.
pub fn handed_on(record: &Record, result: &Map<String, Value>) -> Map<String, Value> {
    let mut data = Map::new();
    let handoff = result.get("handoff").and_then(Value::as_object);
    let mut put = |key: &str, value: Option<&Value>| {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            data.insert(key.to_owned(), value.clone());
        }
    };
    put(
        "context",
        handoff.and_then(|handoff| handoff.get("context")),
    );
    for key in [
        "summary",
        "phase",
        "files_modified",
        "verification",
        "decisions",
    ] {
        put(key, result.get(key));
    }
    let delivered = record
        .doc
        .get("output")
        .and_then(|output| output.get("artifacts"));
    put("artifacts", delivered.or_else(|| result.get("artifacts")));
    for key in ["open_questions", "expectations"] {
        let inside = handoff.and_then(|handoff| handoff.get(key));
        put(key, inside.or_else(|| result.get(key)));
    }
    data
}

/// The context that goes with a handoff wherever it goes.
pub fn carried(view: &View<'_>) -> Map<String, Value> {
    let inside = view
        .handoff()
        .and_then(|handoff| handoff.get("context")?.as_object());
    let top = view.doc.get("context").and_then(Value::as_object);
    let mut context = top.cloned().unwrap_or_default();
    for key in ["task_id", "project_id"] {
        if let Some(value) = inside.and_then(|inside| inside.get(key)) {
            context.insert(key.to_owned(), value.clone());
        }
    }
    context
}
