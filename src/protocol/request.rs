//! Requests: what a document of any dialect asks the daemon to do.
//!
//! Only the fields that the daemon acts on are read; all others stay in the document and reach
//! the record as they were written. Values are checked here as far as one document alone can
//! be: limits from the configuration, cycles and missing dependencies are the caller's.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::agent::AgentName;
use super::destination::{self, Values};
use super::dialect::{Dialect, fits};
use super::field::{FieldError, present, quoted};
use super::fields::{ACTED_ON, PACKAGE, REQUEST, TOP};
use super::id::HandoffId;
use super::record::Record;
use super::report::broken_rules;
use super::shape::{Shape, check, check_fields, join};
use super::view::View;
use crate::clock::Wall;

/// Orders from the most to the least urgent.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Critical,
    High,
    #[default]
    Normal,
    Low,
}

impl Priority {
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Normal, Self::Low];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.as_str() == text)
    }
}

/// What a dropped report says of the work that it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// With a next agent, who gets this very handoff.
    HandedOn,
    /// Nobody is named to go on.
    Complete,
    Blocked,
    NeedsReview,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub id: HandoffId,
    pub dialect: Dialect,
    /// For a report that names nobody: who reported, else `human`.
    pub agent: AgentName,
    /// At least 1; not yet held against the configured maximum.
    pub timeout_ms: Option<u64>,
    pub priority: Priority,
    pub retry: RetryAsked,
    pub not_before: Option<Wall>,
    /// Without duplicates, in the order written.
    pub depends_on: Vec<HandoffId>,
    pub requires_artifacts: Vec<String>,
    pub task_id: Option<String>,
    pub phase: Option<String>,
    pub input_schema: Option<String>,
    pub output: Expected,
    /// Only reports are finished when they come.
    pub finished: Option<Finished>,
    /// What its gate does, where it has one.
    pub gate: Option<GateKind>,
    /// The workflow that it names, and the field that does.
    pub workflow: Option<(String, String)>,
}

/// What a gate does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateKind {
    /// A person must let the handoff pass before its first attempt.
    Blocking,
    /// People are told of it, and nothing waits.
    Advisory,
}

impl GateKind {
    /// In the order in which a message lists them.
    pub const WORDS: [&str; 2] = ["blocking", "advisory"];
}

/// What must come out, as far as the request says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expected {
    pub schema: Option<String>,
    pub artifact_type: Option<String>,
    pub destination: Option<String>,
}

/// The retry values that the request itself names.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RetryAsked {
    pub max_retries: Option<u32>,
    pub delay_ms: Option<u64>,
    pub multiplier: Option<f64>,
}

impl Request {
    /// Reads a submission whose file is named after `stem`. All errors are given, not the
    /// first.
    pub fn from_document(
        map: &Map<String, Value>,
        stem: &HandoffId,
    ) -> Result<Self, Vec<FieldError>> {
        Self::read(View::of_document(map), stem)
    }

    /// Reads what an admitted record asks for.
    pub fn from_record(record: &Record, id: &HandoffId) -> Result<Self, Vec<FieldError>> {
        Self::read(View::of_record(record), id)
    }

    fn read(view: View<'_>, stem: &HandoffId) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        check_id(&view, stem, &mut errors);
        check_shapes(&view, &mut errors);
        let agent = agent(&view, &mut errors);
        let Some(agent) = agent.filter(|_| errors.is_empty()) else {
            return Err(errors);
        };
        let text = |key, field| view.text(key, field).map(str::to_owned);
        let request = Self {
            id: stem.clone(),
            dialect: view.dialect,
            agent,
            timeout_ms: view
                .get("timeout_seconds")
                .and_then(Value::as_f64)
                .map(|seconds| milliseconds(seconds).max(1)),
            priority: view
                .get("priority")
                .and_then(Value::as_str)
                .and_then(Priority::parse)
                .unwrap_or_default(),
            retry: retry(&view),
            not_before: view
                .get("not_before")
                .and_then(Value::as_str)
                .and_then(Wall::parse),
            depends_on: depends_on(&view),
            requires_artifacts: texts(view.get("requires_artifacts")),
            task_id: view
                .context("task_id")
                .and_then(Value::as_str)
                .map(str::to_owned),
            phase: view.phase(),
            input_schema: text("input", "schema"),
            output: Expected {
                schema: text("expected_output", "schema"),
                artifact_type: text("expected_output", "artifact_type"),
                destination: text("expected_output", "destination"),
            },
            finished: finished(&view),
            gate: gate(&view),
            workflow: view.text("workflow_state", "name").map(|name| {
                let (_, path) = view.holder("workflow_state");
                (join(path, "workflow_state.name"), name.to_owned())
            }),
        };
        match request.destination(Wall(0)) {
            Some(Err(why)) => {
                let (_, path) = view.holder("expected_output");
                let field = join(path, "expected_output.destination");
                Err(vec![FieldError::new(field, why)])
            }
            _ => Ok(request),
        }
    }

    /// Whether somebody is to work on it; else it ends, or a person decides.
    pub fn runs(&self) -> bool {
        runs(&self.agent, self.finished)
    }

    /// Where the artifact goes if this is claimed now, or what is wrong with that.
    pub fn destination(&self, now: Wall) -> Option<Result<String, String>> {
        let template = self.output.destination.as_deref()?;
        Some(destination::resolve(template, &self.values(now)))
    }

    /// What placeholders stand for.
    pub fn values(&self, now: Wall) -> Values<'_> {
        Values {
            handoff_id: self.id.as_str(),
            task_id: self.task_id.as_deref(),
            agent: self.agent.bare(),
            phase: self.phase.as_deref(),
            artifact_type: self.output.artifact_type.as_deref(),
            timestamp: now.0,
        }
    }
}

fn check_id(view: &View<'_>, stem: &HandoffId, errors: &mut Vec<FieldError>) {
    let inside = view
        .handoff()
        .and_then(|handoff| present(handoff, "id"))
        .map(|id| ("handoff.id", id));
    let top = present(view.doc, "handoff_id").map(|id| ("handoff_id", id));
    for (field, id) in [inside, top].into_iter().flatten() {
        match id.as_str() {
            Some(id) if id != stem.as_str() && HandoffId::parse_made(id).is_ok() => {
                let error = format!(
                    "the document has the id {}, but its file is named {stem}: they must be the \
                     same",
                    quoted(id)
                );
                errors.push(FieldError::new(field, error));
            }
            // What is no id at all is told with the other shapes.
            _ => {}
        }
    }
}

/// Fields that are acted on must be right; those that are carried must at least have the shape
/// that their readers rely on.
fn check_shapes(view: &View<'_>, errors: &mut Vec<FieldError>) {
    for field in ACTED_ON {
        let (holder, path) = view.holder(field.name);
        if let Some(value) = present(holder, field.name) {
            check(&field.shape, value, &join(path, field.name), errors);
        }
    }
    match view.dialect {
        Dialect::Package => {
            if let Some(handoff) = view.handoff() {
                check_fields(PACKAGE, handoff, "handoff", errors);
            }
        }
        Dialect::Report => {
            errors.extend(broken_rules(view.doc, view.status.unwrap_or_default()));
        }
        Dialect::Request => return check_fields(REQUEST, view.doc, "", errors),
        // What is wrong with the target, if it is meant to be one, is told by itself.
        Dialect::Ambiguous | Dialect::Unknown => {
            for field in REQUEST.iter().filter(|field| field.name != "target") {
                check_fields(std::slice::from_ref(field), view.doc, "", errors);
            }
            return;
        }
    }
    check_fields(TOP, view.doc, "", errors);
}

fn agent(view: &View<'_>, errors: &mut Vec<FieldError>) -> Option<AgentName> {
    let (named, path) = view.target();
    match view.dialect {
        Dialect::Request | Dialect::Package | Dialect::Report => {}
        Dialect::Ambiguous => {
            let both: Vec<String> = fits(view.doc, view.status)
                .into_iter()
                .map(|one| format!("a {one} ({})", one.told_by()))
                .collect();
            let error = format!("the document matches two dialects, {}", both.join(" and "));
            errors.push(FieldError::new("handoff", error));
            return None;
        }
        Dialect::Unknown => {
            match present(view.doc, "target") {
                Some(target) if !target.is_object() => {
                    check(&Shape::Map, target, "target", errors);
                }
                _ => errors.push(FieldError::new(path, UNKNOWN)),
            }
            return None;
        }
    }
    // That it is there, and right, was checked with the other shapes.
    match view.agent() {
        None if view.dialect == Dialect::Report && named.is_none() => Some(AgentName::human()),
        agent => agent,
    }
}

/// What is told of a document that follows none of the dialects.
const UNKNOWN: &str = "missing: the agent that the handoff is for (or write a package: `handoff` \
with `from` and `to`; or a report: `status` complete, blocked or needs_review, and `handoff`)";

fn runs(agent: &AgentName, finished: Option<Finished>) -> bool {
    !agent.is_human() && matches!(finished, None | Some(Finished::HandedOn))
}

fn finished(view: &View<'_>) -> Option<Finished> {
    if view.dialect != Dialect::Report {
        return None;
    }
    Some(match view.status? {
        "blocked" => Finished::Blocked,
        "needs_review" => Finished::NeedsReview,
        _ if requires_human(view.doc) => Finished::NeedsReview,
        _ if view.target().0.is_some() => Finished::HandedOn,
        _ => Finished::Complete,
    })
}

/// Whether a blocking issue is left that only a person can resolve.
fn requires_human(doc: &Map<String, Value>) -> bool {
    let issues = doc.get("blocking_issues").and_then(Value::as_array);
    issues
        .into_iter()
        .flatten()
        .any(|issue| issue.get("requires_human") == Some(&Value::Bool(true)))
}

fn gate(view: &View<'_>) -> Option<GateKind> {
    view.get("gate")?;
    Some(match view.text("gate", "type") {
        Some("advisory") => GateKind::Advisory,
        _ => GateKind::Blocking,
    })
}

fn retry(view: &View<'_>) -> RetryAsked {
    let number = |field| view.inner("retry_policy", field).and_then(Value::as_f64);
    RetryAsked {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and in range"
        )]
        max_retries: number("max_retries").map(|n| n as u32),
        delay_ms: number("retry_delay_seconds").map(milliseconds),
        multiplier: number("backoff_multiplier"),
    }
}

/// Seconds as written, in milliseconds; what is too much for that is the largest there is.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative, and the cast saturates"
)]
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}

fn depends_on(view: &View<'_>) -> Vec<HandoffId> {
    let mut seen = std::collections::HashSet::new();
    let written = match view.get("depends_on") {
        Some(Value::String(one)) => vec![one.clone()],
        other => texts(other),
    };
    written
        .iter()
        .filter_map(|text| HandoffId::parse_made(text).ok())
        .filter(|id| seen.insert(id.clone()))
        .collect()
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array);
    items
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
