//! Gates for work that no attempt has just done: what a person approved, and dropped reports.

use serde_json::Value;

use super::{ask_gates, keep_gates, task_of};
use crate::engine::moves::retry_of;
use crate::engine::story::gates_failed;
use crate::engine::world::World;
use crate::policy::gated::send_back;
use crate::policy::judge::{Exit, Failure};
use crate::policy::next::{Facts, fail};
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::spool::change::Change;

/// Asks the gates of work that an answer has just completed; `before` is the record without the
/// answer. Where a gate refuses, `record` is sent back, and the event of that is returned.
pub fn hold_against_gates(
    world: &World,
    mut before: Record,
    record: &mut Record,
    id: &str,
) -> Option<&'static str> {
    if record.meta.to != Some(State::Completed) {
        return None;
    }
    let told = ask(world, record, id)?;
    let config = world.config();
    let facts = Facts {
        now: world.now(),
        boot: world.boot,
        retry: retry_of(world, &before, id),
        chance: 0.0,
        max_interruptions: config.daemon.max_interruptions,
        exit: Exit::Unknown,
        log: None,
        usage: None,
        ran_ms: 0,
        cancelled: "",
        id,
        config: &config,
    };
    let answer = record.doc.get("answer").cloned();
    let decision = send_back(&mut before, answer, told, &facts);
    *record = before;
    Some(decision.event)
}

/// Asks the gates of a dropped report that has just been completed, and fails it where one
/// refuses; `before` is the record as it was dropped.
pub fn report_against_gates(
    world: &World,
    before: Record,
    record: &mut Record,
    id: &str,
) -> (State, &'static str) {
    let Some(told) = ask(world, record, id) else {
        return (State::Completed, "completed");
    };
    *record = before;
    let max_retries = retry_of(world, record, id).max_retries;
    fail(record, &told, max_retries, world.now().wall);
    (State::Failed, "failed")
}

/// What a gate said against a record that is decided for `completed/`. What the others said stands in
/// the record afterwards.
fn ask(world: &World, record: &mut Record, id: &str) -> Option<Failure> {
    let task = task_of(record)?;
    match ask_gates(world, record, id) {
        Ok(said) => {
            keep_gates(record, said);
            None
        }
        Err(told) => {
            let by = record
                .doc
                .get("answer")
                .and_then(|it| it.get("by")?.as_str());
            let by = by.map(|by| Value::from(by.to_owned()));
            let line = gates_failed(id, &task, by, &told.message, world.now().wall);
            world.committer.submit(Change::Note, vec![line], |_| {});
            Some(*told)
        }
    }
}
