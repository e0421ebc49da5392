//! Requests: what a document asks the daemon to do.
//!
//! Only the fields that the daemon acts on are read; all others stay in the document and reach
//! the record as they were written. Values are checked here as far as one document alone can
//! be: limits from the configuration, cycles and missing dependencies are the caller's.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::agent::AgentName;
use super::dialect::{Dialect, dialect, fits};
use super::field::{FieldError, Reader, present, quoted};
use super::id::HandoffId;
use crate::clock::Wall;

/// How many handoffs one may depend on.
pub const MAX_DEPENDENCIES: usize = 1000;
/// The most retries that may be asked for, and the largest back-off multiplier.
const MAX_RETRIES: f64 = 1000.0;
const MAX_MULTIPLIER: f64 = 1000.0;

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

#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub id: HandoffId,
    pub agent: AgentName,
    /// The target as the producer spelled it.
    pub agent_written: String,
    /// At least 1; not yet held against the configured maximum.
    pub timeout_ms: Option<u64>,
    pub priority: Priority,
    pub retry: RetryAsked,
    pub not_before: Option<Wall>,
    /// Without duplicates, in the order written.
    pub depends_on: Vec<HandoffId>,
    pub requires_artifacts: Vec<String>,
    pub task_id: Option<String>,
}

/// The retry values that the request itself names.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RetryAsked {
    pub max_retries: Option<u32>,
    pub delay_ms: Option<u64>,
    pub multiplier: Option<f64>,
}

impl Request {
    /// Reads a request whose file is named after `stem`. All errors are given, not the first.
    pub fn from_document(
        map: &Map<String, Value>,
        stem: &HandoffId,
    ) -> Result<Self, Vec<FieldError>> {
        let mut reader = Reader::default();
        check_id(&mut reader, map, stem);
        check_shapes(&mut reader, map);
        let agent = agent(&mut reader, map);
        let timeout_ms = reader
            .number(map, "timeout_seconds", "a number greater than 0", |n| {
                n > 0.0
            })
            .map(|seconds| milliseconds(seconds).max(1));
        let priority = priority(&mut reader, map);
        let retry = retry(&mut reader, map);
        let not_before = not_before(&mut reader, map);
        let depends_on = depends_on(&mut reader, map);
        let requires_artifacts = requires_artifacts(&mut reader, map);
        let task_id = task_id(&mut reader, map);
        reader.finish(agent.map(|(agent, agent_written)| Self {
            id: stem.clone(),
            agent,
            agent_written,
            timeout_ms,
            priority,
            retry,
            not_before,
            depends_on,
            requires_artifacts,
            task_id,
        }))
    }
}

fn check_id(reader: &mut Reader, map: &Map<String, Value>, stem: &HandoffId) {
    if let Some(id) = reader.string(map, "handoff_id")
        && id != stem.as_str()
    {
        let error = format!(
            "the document says {}, its file is named {stem}: they must be the same",
            quoted(id)
        );
        reader.wrong("handoff_id", error);
    }
}

/// Fields that are carried, and must at least have the shape that their readers rely on.
fn check_shapes(reader: &mut Reader, map: &Map<String, Value>) {
    reader.object(map, "source");
    if let Some(input) = reader.object(map, "input") {
        reader.string(input, "input.schema");
    }
    if let Some(output) = reader.object(map, "expected_output") {
        for path in ["schema", "artifact_type", "destination"] {
            reader.string(output, &format!("expected_output.{path}"));
        }
    }
}

fn agent(reader: &mut Reader, map: &Map<String, Value>) -> Option<(AgentName, String)> {
    const FIELD: &str = "target.agent_id";
    match dialect(map) {
        Dialect::Request => {}
        Dialect::Ambiguous => {
            let both: Vec<String> = fits(map)
                .into_iter()
                .map(|one| format!("a {one} ({})", one.told_by()))
                .collect();
            let error = format!("the document fits two dialects, {}", both.join(" and "));
            reader.wrong("handoff", error);
        }
        other @ (Dialect::Package | Dialect::Report) => {
            let error = format!(
                "missing: this is a {other} ({}), and this version takes the request dialect only",
                other.told_by()
            );
            reader.wrong(FIELD, error);
            return None;
        }
        Dialect::Unknown => {
            if reader.object(map, "target").is_some() || present(map, "target").is_none() {
                reader.wrong(
                    FIELD,
                    "missing: it says which specialist the handoff is for",
                );
            }
            return None;
        }
    }
    let target = map.get("target")?.as_object()?;
    let written = reader.string(target, FIELD)?;
    match AgentName::parse(written) {
        Ok(name) => Some((name, written.to_owned())),
        Err(error) => {
            reader.wrong(FIELD, error);
            None
        }
    }
}

fn priority(reader: &mut Reader, map: &Map<String, Value>) -> Priority {
    let Some(value) = present(map, "priority") else {
        return Priority::default();
    };
    let known = value.as_str().and_then(Priority::parse);
    if known.is_none() {
        reader.expected("priority", "critical, high, normal or low", value);
    }
    known.unwrap_or_default()
}

fn retry(reader: &mut Reader, map: &Map<String, Value>) -> RetryAsked {
    let Some(policy) = reader.object(map, "retry_policy") else {
        return RetryAsked::default();
    };
    let max_retries = reader.number(
        policy,
        "retry_policy.max_retries",
        "a whole number from 0 to 1000",
        |n| n.fract() == 0.0 && (0.0..=MAX_RETRIES).contains(&n),
    );
    let delay = reader.number(
        policy,
        "retry_policy.retry_delay_seconds",
        "a number that is not negative",
        |n| n >= 0.0,
    );
    let multiplier = reader.number(
        policy,
        "retry_policy.backoff_multiplier",
        "a number from 1 to 1000",
        |n| (1.0..=MAX_MULTIPLIER).contains(&n),
    );
    RetryAsked {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and in range"
        )]
        max_retries: max_retries.map(|n| n as u32),
        delay_ms: delay.map(milliseconds),
        multiplier,
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

fn not_before(reader: &mut Reader, map: &Map<String, Value>) -> Option<Wall> {
    let value = present(map, "not_before")?;
    let at = value.as_str().and_then(Wall::parse);
    if at.is_none() {
        let what = "an RFC 3339 instant such as 2026-01-13T10:00:00Z";
        reader.expected("not_before", what, value);
    }
    at
}

fn depends_on(reader: &mut Reader, map: &Map<String, Value>) -> Vec<HandoffId> {
    const FIELD: &str = "depends_on";
    let written = match present(map, FIELD) {
        Some(Value::String(one)) => vec![(FIELD.to_owned(), &**one)],
        Some(Value::Array(many)) if many.len() > MAX_DEPENDENCIES => {
            let error = format!(
                "expected at most {MAX_DEPENDENCIES} ids, found {}",
                many.len()
            );
            reader.wrong(FIELD, error);
            return Vec::new();
        }
        _ => reader.strings(map, FIELD),
    };
    let mut seen = std::collections::HashSet::new();
    let mut ids = Vec::new();
    for (path, text) in written {
        match HandoffId::parse_made(text) {
            Err(error) => reader.wrong(path, error),
            Ok(id) if seen.insert(id.clone()) => ids.push(id),
            Ok(_) => {}
        }
    }
    ids
}

fn requires_artifacts(reader: &mut Reader, map: &Map<String, Value>) -> Vec<String> {
    let written = reader.strings(map, "requires_artifacts");
    written
        .into_iter()
        .map(|(_, text)| text.to_owned())
        .collect()
}

fn task_id(reader: &mut Reader, map: &Map<String, Value>) -> Option<String> {
    const FIELD: &str = "context.task_id";
    let context = reader.object(map, "context")?;
    let text = reader.string(context, FIELD)?;
    match HandoffId::parse(text) {
        Ok(_) if text == "current" => reader.wrong(FIELD, "`current` is reserved"),
        Ok(_) => return Some(text.to_owned()),
        Err(error) => reader.wrong(FIELD, error),
    }
    None
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
