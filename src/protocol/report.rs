//! The rules of a report: what a finished piece of work must say, dropped or returned.

use serde_json::{Map, Value};

use super::field::{FieldError, present};
use super::fields::{REPORT, REPORT_HANDOFF};
use super::shape::check_fields;

/// What a report breaks of its rules. `status` is one of complete, blocked and `needs_review`.
pub fn broken_rules(doc: &Map<String, Value>, status: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_fields(REPORT, doc, "", &mut errors);
    let none = Map::new();
    let handoff = match present(doc, "handoff") {
        None => &none,
        Some(Value::Object(handoff)) => handoff,
        Some(other) => {
            errors.push(super::field::expected("handoff", "an object", other));
            &none
        }
    };
    check_fields(REPORT_HANDOFF, handoff, "handoff", &mut errors);
    let mut missing = |field: &str, why: &str| errors.push(FieldError::new(field, why));
    if !says(doc, "phase") && !says(doc, "output_type") {
        missing("phase", "missing: a report needs phase or output_type");
    }
    let has_context = says(handoff, "context");
    if !says(doc, "summary") && !has_context {
        missing(
            "summary",
            "missing: a report needs summary or handoff.context",
        );
    }
    let goes_on = present(doc, "handoff").is_some() && !ends(handoff);
    if goes_on && !has_context && status != "blocked" {
        missing(
            "handoff.context",
            "missing: the next agent needs it, unless handoff.next_phase is complete",
        );
    }
    if status == "blocked" {
        if !says(doc, "blocked_reason") {
            missing(
                "blocked_reason",
                "missing: a blocked report needs the reason",
            );
        }
        if !says(doc, "attempted") {
            missing(
                "attempted",
                "missing: a blocked report needs what was tried",
            );
        }
        if !says(handoff, "blockers") && !has_context {
            missing(
                "handoff.blockers",
                "missing: a blocked report needs handoff.blockers or handoff.context",
            );
        }
        if present(handoff, "next_agent").is_some() {
            missing(
                "handoff.next_agent",
                "must be null when blocked: routes.blocked decides who helps",
            );
        }
    }
    errors
}

/// Whether a field holds something: an empty text or list does not.
pub fn says(map: &Map<String, Value>, key: &str) -> bool {
    match present(map, key) {
        None => false,
        Some(Value::String(text)) => !text.trim().is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(_) => true,
    }
}

/// Whether a report says that nothing comes next.
pub fn ends(handoff: &Map<String, Value>) -> bool {
    let next = present(handoff, "next_phase").and_then(Value::as_str);
    matches!(next, Some("complete" | "completed"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_rule_names_its_field() {
        for (document, expected) in [
            (
                json!({"status": "complete", "phase": "testing", "summary": "s",
                       "handoff": {"next_phase": "complete"}}),
                &[][..],
            ),
            (
                json!({"status": "complete", "output_type": "x", "handoff": {"context": "c"}}),
                &[],
            ),
            (
                json!({"status": "complete", "handoff": {}}),
                &["phase", "summary", "handoff.context"],
            ),
            (
                json!({"status": "complete", "phase": 3, "summary": "s", "handoff": {}}),
                &["handoff.context"],
            ),
            (
                json!({"status": "blocked", "phase": "p", "summary": "s", "handoff": {}}),
                &["blocked_reason", "attempted", "handoff.blockers"],
            ),
            (
                json!({"status": "blocked", "phase": "p", "blocked_reason": "unknown",
                       "attempted": ["a"], "handoff": {"context": "c", "next_agent": "x"}}),
                &["handoff.next_agent"],
            ),
            (
                json!({"status": "blocked", "phase": "p", "blocked_reason": "lazy",
                       "attempted": ["a"], "summary": "s",
                       "handoff": {"blockers": [{"description": "d"}]}}),
                &["blocked_reason"],
            ),
            (
                json!({"status": "needs_review", "phase": "p", "summary": " ", "handoff": {}}),
                &["summary", "handoff.context"],
            ),
        ] {
            let doc = document.as_object().unwrap();
            let status = doc["status"].as_str().unwrap();
            let fields: Vec<String> = broken_rules(doc, status)
                .into_iter()
                .map(|error| error.field)
                .collect();
            assert_eq!(fields, expected, "{document}");
        }
    }
}
