//! The state of a task: what its agents made, decided and could not settle.
//!
//! A [`TaskState`] is the document itself, checked, rather than a copy of its known fields: what
//! an agent wrote besides them, at the top or inside a list, stays where it stood, and a number
//! keeps its digits. Reading goes through views that borrow from the document; changing goes
//! through [`TaskState::set`] and [`TaskState::append`], so that a change is exactly what it says.
//!
//! Deliberately absent: what a change may be ([`crate::policy::task`]), and where it is kept
//! ([`crate::store::tasks`]).

mod change;
mod entry;
mod phase;
mod read;

#[cfg(test)]
mod tests;

use std::fmt::{self, Write as _};

use serde_json::{Map, Value};

use super::field::FieldError;
use super::id::{HandoffId, IdError};
use crate::clock::Wall;

pub use change::{Change, Counts, change};
pub use entry::{Artifact, Decision, Issue, Severity, digest};
pub use phase::Phase;
pub use read::check_entry;

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u64 = 1;

/// How many applied outcomes a state remembers. A crash is repaired within moments, so the last
/// few would do; the rest is for tasks that many handoffs work on at once.
pub const MAX_APPLIED: usize = 256;

/// Where the states stand, from the root.
pub const FOLDER: &str = "context/state";

/// A task's name: like a handoff's id, and never `current`, whose file is something else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(HandoffId);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TaskIdError {
    #[error(transparent)]
    Id(#[from] IdError),
    #[error("`current` can't be a task: current.json lists the handoffs")]
    Current,
}

impl TaskId {
    pub fn parse(text: &str) -> Result<Self, TaskIdError> {
        match HandoffId::parse(text)? {
            id if id.as_str() == "current" => Err(TaskIdError::Current),
            id => Ok(Self(id)),
        }
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Where its state stands, from the root.
    pub fn state_file(&self) -> String {
        format!("{FOLDER}/{self}.json")
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a document is not a state that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    #[error(
        "its format is {found}, but this version knows formats up to {FORMAT}: use a newer handoffd"
    )]
    NewerFormat { found: String },
    #[error("{}", listed(.0))]
    Invalid(Vec<FieldError>),
}

/// The first mistakes, and how many more there are.
fn listed(errors: &[FieldError]) -> String {
    const SHOWN: usize = 5;
    let mut text = errors
        .iter()
        .take(SHOWN)
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ");
    if errors.len() > SHOWN {
        let _ = write!(text, "; and {} more", errors.len() - SHOWN);
    }
    text
}

#[derive(Debug, Clone, PartialEq)]
pub struct TaskState {
    task: TaskId,
    version: u64,
    doc: Map<String, Value>,
}

impl TaskState {
    /// Checks a document. One without `format` is taken for the present one and gets it.
    pub fn from_document(mut doc: Map<String, Value>) -> Result<Self, StateError> {
        let (task, version) = read::check(&doc)?;
        if doc.get("format").is_none_or(Value::is_null) {
            doc.shift_insert(0, "format".to_owned(), FORMAT.into());
        }
        Ok(Self { task, version, doc })
    }

    /// A state that has not been saved yet: its version is 0, and the first change makes it 1.
    pub fn begin(task: TaskId, title: &str, now: Wall) -> Self {
        let mut doc = Map::new();
        let mut put = |key: &str, value: Value| doc.insert(key.to_owned(), value);
        put("format", FORMAT.into());
        put("task_id", task.as_str().into());
        put("task_title", title.into());
        put("phase", Value::Null);
        put("previous_phase", Value::Null);
        put("phase_started_at", now.to_string().into());
        put("artifacts", Value::Array(Vec::new()));
        put("context_summary", "".into());
        for list in [
            "decisions_made",
            "blocking_issues",
            "warnings",
            "quality_gates_passed",
            "quality_gates_failed",
        ] {
            put(list, Value::Array(Vec::new()));
        }
        put("quality_gate_results", Value::Object(Map::new()));
        put("source_agent", "".into());
        put("target_agent", "".into());
        put("handoff_timestamp", now.to_string().into());
        put("version", 0.into());
        Self {
            task,
            version: 0,
            doc,
        }
    }

    pub fn task(&self) -> &TaskId {
        &self.task
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn document(&self) -> &Map<String, Value> {
        &self.doc
    }

    pub fn into_document(self) -> Map<String, Value> {
        self.doc
    }

    /// The next version, which is the only one that may replace this.
    pub fn raise_version(&mut self) {
        self.version = self.version.saturating_add(1);
        self.doc
            .insert("version".to_owned(), Value::from(self.version));
    }

    /// Replaces one field, in its place. `task_id`, `version` and `format` are not for this.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        debug_assert!(!["task_id", "version", "format"].contains(&key));
        self.doc.insert(key.to_owned(), value.into());
    }

    /// Adds entries to the end of a list, which is made if it is not there.
    pub fn append(&mut self, key: &str, entries: impl IntoIterator<Item = Value>) {
        let slot = self.doc.entry(key.to_owned()).or_insert(Value::Null);
        match slot {
            Value::Array(list) => list.extend(entries),
            other => *other = Value::Array(entries.into_iter().collect()),
        }
    }

    fn text(&self, key: &str) -> &str {
        self.doc.get(key).and_then(Value::as_str).unwrap_or("")
    }

    fn list(&self, key: &str) -> &[Value] {
        self.doc
            .get(key)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    pub fn title(&self) -> &str {
        self.text("task_title")
    }

    pub fn phase(&self) -> Option<Phase> {
        self.doc.get("phase").and_then(Phase::of)
    }

    pub fn previous_phase(&self) -> Option<Phase> {
        self.doc.get("previous_phase").and_then(Phase::of)
    }

    pub fn source_agent(&self) -> &str {
        self.text("source_agent")
    }

    pub fn target_agent(&self) -> &str {
        self.text("target_agent")
    }

    pub fn context_summary(&self) -> &str {
        self.text("context_summary")
    }

    pub fn artifacts(&self) -> impl DoubleEndedIterator<Item = Artifact<'_>> + ExactSizeIterator {
        self.list("artifacts").iter().map(Artifact)
    }

    pub fn decisions(&self) -> impl DoubleEndedIterator<Item = Decision<'_>> + ExactSizeIterator {
        self.list("decisions_made").iter().map(Decision)
    }

    pub fn issues(&self) -> impl DoubleEndedIterator<Item = Issue<'_>> + ExactSizeIterator {
        self.list("blocking_issues").iter().map(Issue)
    }

    pub fn warnings(&self) -> impl ExactSizeIterator<Item = &str> {
        strings(self.list("warnings"))
    }

    pub fn gates_passed(&self) -> impl ExactSizeIterator<Item = &str> {
        strings(self.list("quality_gates_passed"))
    }

    pub fn gates_failed(&self) -> impl ExactSizeIterator<Item = &str> {
        strings(self.list("quality_gates_failed"))
    }

    /// Why a gate passed or failed, when it last did.
    pub fn gate_reason(&self, name: &str) -> Option<&str> {
        self.doc
            .get("quality_gate_results")?
            .get(name)?
            .get("reason")?
            .as_str()
    }

    /// The outcomes that were applied to this state, the last one last.
    pub fn applied(&self) -> impl ExactSizeIterator<Item = &str> {
        strings(self.list("applied"))
    }
}

fn strings(list: &[Value]) -> impl ExactSizeIterator<Item = &str> {
    list.iter().map(|item| item.as_str().unwrap_or(""))
}
