//! The audit log's words for what happens to a record.

use serde_json::Value;

use crate::protocol::error::without_words;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::task::TaskId;
use crate::protocol::view::View;
use crate::store::audit;

/// What a refusal is called in the log.
pub const REFUSED: &str = "refused";

/// One audit line for one move of a record.
pub fn transition(
    record: &Record,
    id: &str,
    event: &'static str,
    from: State,
    to: State,
    at: crate::clock::Wall,
) -> audit::Event {
    let mut line = audit::Event::new(at, event)
        .about(id)
        .with("from", from.status())
        .with("to", to.status())
        .with("revision", record.meta.revision);
    if let Some(attempt) = record.meta.attempts.last() {
        line = line.with("attempt", attempt.number);
    }
    if let Some(agent) = View::of_record(record).agent() {
        line = line.with("agent", agent.to_string());
    }
    if to == State::Failed
        && let Some(error) = record.doc.get("error")
    {
        line = line
            .with("code", error.get("code").cloned().unwrap_or_default())
            .with("message", unquoted(error.get("message")));
    }
    if to == State::Waiting
        && let Some(waiting) = record.doc.get("waiting")
    {
        let mut waiting = waiting.clone();
        if let Some(reason) = waiting.get_mut("reason") {
            *reason = unquoted(Some(reason));
        }
        line = line.with("waiting", waiting);
    }
    line
}

/// One audit line for a gate that holds nothing. Without a revision: the record does not change.
pub fn advisory_gate(record: &Record, id: &str, at: crate::clock::Wall) -> audit::Event {
    let line = audit::Event::new(at, "advisory_gate").about(id);
    match View::of_record(record).text("gate", "name") {
        Some(name) => line.with("gate", name),
        None => line,
    }
}

/// A message without what a program printed.
fn unquoted(message: Option<&Value>) -> Value {
    match message {
        Some(Value::String(message)) => without_words(message).into(),
        other => other.cloned().unwrap_or_default(),
    }
}

/// One audit line for a record that somebody else took out of `waiting/`. Without a revision: what
/// is gone can't be asked for it.
pub fn record_gone(id: &str, at: crate::clock::Wall) -> audit::Event {
    audit::Event::new(at, "record_gone")
        .about(id)
        .with("from", State::Waiting.status())
}

/// One audit line for an outcome that can't go into the state of its task. Without a revision: the
/// record moves on all the same.
pub fn state_unwritten(id: &str, task: &TaskId, why: &str, at: crate::clock::Wall) -> audit::Event {
    audit::Event::new(at, "state_unwritten")
        .about(id)
        .with("task_id", task.as_str())
        .with("message", why)
}

/// One audit line for work that nobody has just done and that a quality gate refuses: approved work,
/// or a dropped report. Without a revision: the line of the record's move follows.
pub fn gates_failed(
    id: &str,
    task: &TaskId,
    approved_by: Option<serde_json::Value>,
    why: &str,
    at: crate::clock::Wall,
) -> audit::Event {
    let mut line = audit::Event::new(at, "gates_failed")
        .about(id)
        .with("task_id", task.as_str());
    if let Some(by) = approved_by {
        line = line.with("approved_by", by);
    }
    line.with("message", why)
}

/// One audit line for bytes that are no request. Which id their notice gets is settled when they
/// are set apart.
pub fn refusal_line(notice: &Record, id: &str, at: crate::clock::Wall) -> audit::Event {
    let error = notice.doc.get("error");
    let of_error = |key: &str| error.and_then(|error| error.get(key)).cloned();
    let mut line = audit::Event::new(at, REFUSED)
        .about(id)
        .with("to", State::Failed.status());
    if let Some(name) = notice.doc.get("dropped_as") {
        line = line.with("file", name.clone());
    }
    line.with("code", of_error("code").unwrap_or_default())
        .with("message", of_error("message").unwrap_or_default())
}
