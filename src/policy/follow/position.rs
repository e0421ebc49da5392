//! Workflows: where in a configured one a handoff stands, and which step comes next.

use serde_json::{Value, json};

use super::Author;
use crate::config::{Config, Step};
use crate::protocol::dialect::Dialect;
use crate::protocol::view::View;

/// Where in a configured workflow a handoff stands.
pub(super) enum Position<'c> {
    Outside,
    Last,
    Before(&'c Step, Value),
}

/// A workflow that is not configured is carried, not acted on. Where others are, that may be a
/// mistake.
pub(super) fn mistaken(view: &View<'_>, config: &Config) -> Option<String> {
    let name = view.get("workflow_state")?.get("name")?.as_str()?;
    let known: Vec<&str> = config.workflows.keys().map(AsRef::as_ref).collect();
    (!known.is_empty() && !known.contains(&name)).then(|| {
        format!(
            "workflow_state names {name:?}, which is not configured (configured: {}): no step \
             follows",
            known.join(", ")
        )
    })
}

pub(super) fn position<'c>(view: &View<'_>, author: Author, config: &'c Config) -> Position<'c> {
    let Some(Value::Object(state)) = view.get("workflow_state") else {
        return Position::Outside;
    };
    let name = state.get("name").and_then(Value::as_str);
    let Some(steps) = name.and_then(|name| config.workflows.get(name)) else {
        return Position::Outside;
    };
    let own = view.agent();
    let current = state
        .get("current_step")
        .and_then(Value::as_u64)
        .and_then(|step| usize::try_from(step).ok())
        .or_else(|| {
            let at = steps
                .iter()
                .position(|step| Some(&step.agent) == own.as_ref());
            at.map(|at| at + 1)
        })
        .unwrap_or(1);
    // A report that was handed on names the step that it reports; the next agent's is the next.
    let handed_on = view.dialect == Dialect::Report && author != Author::Reporter;
    let is_next = steps.get(current).map(|step| &step.agent) == own.as_ref();
    let current = current + usize::from(handed_on && is_next);
    let Some(next) = steps.get(current) else {
        return Position::Last;
    };
    let phases =
        |steps: &[Step]| -> Vec<String> { steps.iter().map(|step| step.phase.clone()).collect() };
    let mut state = state.clone();
    state.insert("current_step".to_owned(), (current + 1).into());
    state.insert(
        "completed_steps".to_owned(),
        json!(phases(&steps[..current])),
    );
    state.insert(
        "remaining_steps".to_owned(),
        json!(phases(&steps[current + 1..])),
    );
    Position::Before(next, Value::Object(state))
}
