//! The options of `submit` that stand for fields of a request, and where each field goes in a document.

use std::path::Path;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Map, Value, json};

use crate::cli::{Failed, complete};
use crate::clock::{Clock, Wall};
use crate::protocol::dialect::{Dialect, dialect};
use crate::protocol::json;
use crate::protocol::request::Priority;

/// Each of them replaces what the document says.
#[derive(Debug, Default, Args)]
pub struct Fields {
    /// How urgent it is
    #[arg(long, value_name = "PRIORITY", value_parser = priorities())]
    priority: Option<String>,
    /// Handoffs that must complete first
    #[arg(long, value_name = "ID", value_delimiter = ',', add = complete::ids())]
    pub depends_on: Vec<String>,
    /// The earliest start: an instant like 2026-11-16T03:00:00Z, or a time from now like 2h
    #[arg(long, value_name = "TIME", value_parser = instant)]
    not_before: Option<Wall>,
    /// The workflow, by its name in handoffd.toml
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// The task whose state the handoff updates
    #[arg(long, value_name = "TASK", add = complete::tasks())]
    task: Option<String>,
}

fn priorities() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(Priority::ALL.map(Priority::as_str))
}

fn instant(text: &str) -> Result<Wall, String> {
    if let Some(instant) = Wall::parse(text) {
        return Ok(instant);
    }
    let length = humantime::parse_duration(text)
        .map_err(|_| "write it like 2026-11-16T03:00:00Z, or like 2h".to_owned())?;
    let ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    Ok(Clock::System.now().wall.plus_ms(ms))
}

impl Fields {
    pub fn is_empty(&self) -> bool {
        self.priority.is_none()
            && self.depends_on.is_empty()
            && self.not_before.is_none()
            && self.workflow.is_none()
            && self.task.is_none()
    }

    /// Writes them into a document of any dialect.
    pub fn write(&self, document: &mut Map<String, Value>) {
        let kind = dialect(document);
        if let Some(priority) = &self.priority {
            *place(document, kind, "priority") = priority.as_str().into();
        }
        if !self.depends_on.is_empty() {
            *place(document, kind, "depends_on") = json!(self.depends_on);
        }
        if let Some(instant) = self.not_before {
            *place(document, kind, "not_before") = instant.to_string().into();
        }
        if let Some(name) = &self.workflow {
            set(place(document, kind, "workflow_state"), "name", name);
        }
        if let Some(task) = &self.task {
            let inside = document
                .get("handoff")
                .and_then(|handoff| handoff.get("context"));
            // The context of a report may be a text.
            let is_inside = kind != Dialect::Request && inside.is_some_and(Value::is_object);
            let context = if is_inside {
                &mut document["handoff"]["context"]
            } else {
                document.entry("context").or_insert(Value::Null)
            };
            set(context, "task_id", task);
        }
    }
}

/// Where the field is read: in `handoff` where that has it, else at the top.
fn place<'d>(document: &'d mut Map<String, Value>, kind: Dialect, field: &str) -> &'d mut Value {
    let is_inside = kind != Dialect::Request
        && document
            .get("handoff")
            .and_then(|handoff| handoff.get(field))
            .is_some_and(|value| !value.is_null());
    if is_inside {
        &mut document["handoff"][field]
    } else {
        document.entry(field).or_insert(Value::Null)
    }
}

/// Sets a field of an object, which is made where there is none.
fn set(object: &mut Value, field: &str, text: &str) {
    if !object.is_object() {
        *object = json!({});
    }
    object[field] = text.into();
}

/// A request for this agent. `input` is JSON, or `@` and the path of a file with JSON.
pub fn request(agent: &str, input: Option<&str>) -> Result<Map<String, Value>, Failed> {
    let mut map = Map::new();
    map.insert("target".to_owned(), json!({ "agent_id": agent }));
    if let Some(input) = input {
        map.insert("input".to_owned(), json!({ "data": data(input)? }));
    }
    Ok(map)
}

fn data(input: &str) -> Result<Value, Failed> {
    let usage = |text: String| Failed::usage("USAGE", anyhow::anyhow!(text));
    let Some(file) = input.strip_prefix('@') else {
        return json::parse(input).map_err(|error| {
            usage(format!(
                "--input: {error}; for a text write '\"text\"', for a file @FILE"
            ))
        });
    };
    let read = if file == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(Path::new(file))
    };
    let text = read.map_err(|error| usage(format!("--input @{file}: {error}")))?;
    json::parse(&text).map_err(|error| usage(format!("--input @{file}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(document: &Value) -> Value {
        let fields = Fields {
            priority: Some("high".to_owned()),
            depends_on: vec!["a".to_owned(), "b".to_owned()],
            not_before: Some(Wall(0)),
            workflow: Some("feature".to_owned()),
            task: Some("t1".to_owned()),
        };
        let mut map = document.as_object().unwrap().clone();
        fields.write(&mut map);
        Value::Object(map)
    }

    #[test]
    fn each_field_goes_where_the_dialect_reads_it() {
        let at = "1970-01-01T00:00:00.000Z";
        let target = json!({"agent_id": "x"});
        assert_eq!(
            written(&json!({"target": target, "priority": "low", "context": {"own": 1}})),
            json!({
                "target": target, "priority": "high", "context": {"own": 1, "task_id": "t1"},
                "depends_on": ["a", "b"], "not_before": at,
                "workflow_state": {"name": "feature"},
            })
        );
        let handoff = |more: &Value| {
            let mut handoff = json!({"from": {"agent": "a"}, "to": {"agent": "b"}});
            let more = more.as_object().unwrap().clone();
            handoff.as_object_mut().unwrap().extend(more);
            handoff
        };
        let package = json!({"handoff": handoff(&json!({
            "context": {"summary": "s"}, "priority": "low",
            "workflow_state": {"name": "old", "current_step": 2},
        }))});
        let found = written(&package);
        assert_eq!(found["handoff"]["priority"], "high");
        assert_eq!(found["handoff"]["context"]["task_id"], "t1");
        assert_eq!(
            found["handoff"]["workflow_state"],
            json!({"name": "feature", "current_step": 2})
        );
        assert_eq!(found["depends_on"], json!(["a", "b"]));
        let report = json!({"status": "complete", "handoff": {"context": "a text"}});
        let found = written(&report);
        assert_eq!(found["handoff"]["context"], "a text");
        assert_eq!(found["context"], json!({"task_id": "t1"}));
    }

    #[test]
    fn a_start_is_an_instant_or_a_time_from_now() {
        assert_eq!(instant("1970-01-01T00:00:01Z"), Ok(Wall(1000)));
        assert!(instant("2h").unwrap() > Clock::System.now().wall);
        assert!(instant("tomorrow").is_err());
    }
}
