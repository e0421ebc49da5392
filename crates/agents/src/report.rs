//! The report that an agent is asked for, as a JSON Schema.
//!
//! One schema serves all agents. It is strict (every property required, nothing beside them),
//! because some models accept no other, so what is optional may be null; nulls are dropped again.

use serde_json::{Map, Value, json};

/// Words that ask for the report, for agents that take no schema.
pub fn request(schema: &Value) -> String {
    let shown = serde_json::to_string_pretty(schema).unwrap_or_default();
    format!(
        "\n## The form of your report\n\nEnd your last message with one fenced `json` block, with nothing after it. \
         It is an object by this JSON Schema; use null for what does not apply:\n\n```json\n{shown}\n```\n"
    )
}

/// What an agent may say of its own work.
pub fn schema() -> Value {
    let texts = || json!({"type": ["array", "null"], "items": {"type": "string"}});
    let text = |description: &str| json!({"type": ["string", "null"], "description": description});
    let flag = || json!({"type": ["boolean", "null"]});
    strict(&json!({
        "status": {
            "type": "string",
            "enum": ["complete", "blocked", "needs_review", "failed"],
            "description": "complete: the task is done. blocked: you can't continue without \
             help. needs_review: done, but a human must review it. failed: it can't be done.",
        },
        "summary": {"type": "string", "description": "One or two sentences: what was done, with names and figures."},
        "decisions": {
            "type": ["array", "null"],
            "items": strict(&json!({
                "decision": {"type": "string"},
                "rationale": {"type": "string"},
            })),
        },
        "files_modified": texts(),
        "verification": nullable(strict(&json!({
            "tests_passed": flag(), "build_success": flag(), "lint_passed": flag(),
            "command_output": text("The last lines of what the checks printed."),
        }))),
        "open_questions": texts(),
        "question": text("Only with needs_review: the question for the human."),
        "blocked_reason": {
            "type": ["string", "null"],
            "enum": ["security_concern", "architecture_decision", "missing_requirements",
                     "test_failures", "out_of_scope", "unknown", null],
            "description": "Only with blocked.",
        },
        "attempted": texts(),
        "context": text("What the next agent needs to know, beyond the summary."),
    }))
}

fn strict(properties: &Value) -> Value {
    let required: Vec<String> = properties
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .cloned()
        .collect();
    json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": false,
    })
}

fn nullable(mut schema: Value) -> Value {
    schema["type"] = json!(["object", "null"]);
    schema
}

/// A report as a result: nulls dropped, context and blockers where a result has them.
pub fn result_of(report: &Map<String, Value>) -> Map<String, Value> {
    let mut result = without_nulls(report);
    if let Some(Value::String(question)) = result.get("question") {
        // A rejection sends the work back to the session that asked; `cancel` ends it.
        let question = json!({ "text": question, "on_reject": "rerun" });
        result.insert("question".to_owned(), question);
    }
    let blocked = result.get("status").and_then(Value::as_str) == Some("blocked");
    if blocked {
        result
            .entry("blocked_reason")
            .or_insert_with(|| "unknown".into());
        let summary = result.get("summary").cloned();
        result
            .entry("attempted")
            .or_insert_with(|| Value::Array(summary.into_iter().collect()));
    }
    let said = result.get("context").filter(|it| it.is_string()).cloned();
    let context = said.or_else(|| result.get("summary").filter(|_| blocked).cloned());
    if let Some(context) = context {
        result.shift_remove("context");
        let handoff = result.entry("handoff").or_insert_with(|| json!({}));
        if let Value::Object(handoff) = handoff {
            handoff.entry("context").or_insert(context);
        }
    }
    result
}

fn without_nulls(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| {
            let value = match value {
                Value::Object(inner) => Value::Object(without_nulls(inner)),
                other => other.clone(),
            };
            (key.clone(), value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_of_the_schema_is_strict() {
        fn check(value: &Value) {
            if let Some(properties) = value.get("properties").and_then(Value::as_object) {
                assert_eq!(value["additionalProperties"], false);
                assert_eq!(
                    value["required"].as_array().unwrap().len(),
                    properties.len()
                );
            }
            match value {
                Value::Object(map) => map.values().for_each(check),
                Value::Array(list) => list.iter().for_each(check),
                _ => {}
            }
        }
        check(&schema());
    }

    #[test]
    fn a_report_becomes_a_result_that_keeps_the_rules() {
        let report = json!({
            "status": "blocked", "summary": "No API description", "decisions": null,
            "verification": {"tests_passed": null}, "blocked_reason": null, "attempted": null,
            "context": null, "question": null,
        });
        let result = result_of(report.as_object().unwrap());
        assert_eq!(
            Value::Object(result),
            json!({
                "status": "blocked", "summary": "No API description", "verification": {},
                "blocked_reason": "unknown", "attempted": ["No API description"],
                "handoff": {"context": "No API description"},
            })
        );
        let report = json!({"status": "needs_review", "summary": "s", "question": "Ship it?", "context": "c"});
        let result = result_of(report.as_object().unwrap());
        assert_eq!(
            result["question"],
            json!({"text": "Ship it?", "on_reject": "rerun"})
        );
        assert_eq!(result["handoff"]["context"], "c");
        // An agent that knows the format of results may use it.
        let report = json!({
            "status": "needs_review", "summary": "s", "question": {"text": "Ship it?", "on_approve": "rerun"},
            "handoff": {"next_agent": "@tester", "context": "own"}, "context": "c",
        });
        let result = result_of(report.as_object().unwrap());
        assert_eq!(result["question"]["on_approve"], "rerun");
        assert_eq!(
            result["handoff"],
            json!({"next_agent": "@tester", "context": "own"})
        );
    }
}
