//! Results that are reports: the rules that they must keep to, and what a blocked one says.

use serde_json::{Map, Value};

use crate::policy::judge::{Failure, MEND, failure};
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::record::AttemptOutcome;
use crate::protocol::report::broken_rules;
use crate::protocol::result::Claim;

/// A receiver that asks back is blocked, whatever else its result says.
pub(super) fn asks_for_clarification(result: &Map<String, Value>) -> bool {
    let action = result
        .get("acknowledgment")
        .and_then(|it| it.get("action")?.as_str());
    action == Some("request_clarification")
}

/// Why a result is blocked.
pub fn blocked_reason(result: &Map<String, Value>) -> &str {
    let named = result.get("blocked_reason").and_then(Value::as_str);
    match named {
        Some(named) => named,
        None if asks_for_clarification(result) => "missing_requirements",
        None => "unknown",
    }
}

/// What a result breaks of the rules of a report, if it is one. An agent can mend that.
pub(super) fn broken_report(
    claimed: Option<Claim>,
    result: &Map<String, Value>,
) -> Option<Failure> {
    let has_handoff = result.get("handoff").is_some_and(|it| !it.is_null());
    let status = match claimed {
        Some(Claim::Blocked) if asks_for_clarification(result) => return None,
        Some(Claim::Blocked) => "blocked",
        Some(Claim::NeedsReview) => "needs_review",
        _ if has_handoff => "complete",
        _ => return None,
    };
    let mut fields = broken_rules(result, status);
    if claimed.is_none() {
        let why = "missing: a result with a handoff says how it ended, such as complete";
        fields.insert(0, FieldError::new("status", why));
    }
    if fields.is_empty() {
        return None;
    }
    let list: Vec<String> = fields.iter().map(ToString::to_string).collect();
    let mut told = failure(
        ErrorCode::ValidationFailed,
        format!(
            "the result breaks the rules of a report: {}",
            list.join("; ")
        ),
        vec![MEND.to_owned()],
    );
    told.fields = fields;
    told.result = Some(result.clone());
    Some(told)
}

/// What a blocked specialist is told where nobody can help it.
pub fn blocked(result: Map<String, Value>) -> Failure {
    let reason = blocked_reason(&result);
    let acknowledged = result.get("acknowledgment");
    let blockers = acknowledged
        .and_then(|it| it.get("blockers").or_else(|| it.get("questions")))
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect::<Vec<_>>())
        .filter(|list| !list.is_empty())
        .map(|list| list.join("; "));
    let said = result
        .get("summary")
        .or_else(|| {
            result
                .get("handoff")
                .and_then(|handoff| handoff.get("context"))
        })
        .and_then(Value::as_str)
        .or(blockers.as_deref());
    let message = match said {
        Some(said) => format!("the specialist is blocked ({reason}): {said}"),
        None => format!("the specialist is blocked ({reason})"),
    };
    let mut actions = vec![format!(
        "Resolve what blocks it ({reason}), add it to the request and retry"
    )];
    if result.get("attempted").is_some_and(|it| !it.is_null()) {
        actions.push("What it tried stands in result.attempted".to_owned());
    }
    Failure {
        outcome: AttemptOutcome::Blocked,
        result: Some(result),
        ..failure(ErrorCode::Blocked, message, actions)
    }
}
