//! The audit log's words for what happens to a record.

use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::view::View;
use crate::store::audit;

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
            .with("message", error.get("message").cloned().unwrap_or_default());
    }
    if to == State::Waiting
        && let Some(waiting) = record.doc.get("waiting")
    {
        line = line.with("waiting", waiting.clone());
    }
    line
}
