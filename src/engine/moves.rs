//! Changes to records that no attempt is running for: waits that end, failures, new budgets.
//!
//! The loop makes sure that one id has one job at a time; these jobs read the record, change
//! it by the rules of [`crate::policy`], and have it written.

use serde_json::Value;

use crate::engine::effects::settle;
use crate::engine::event::Event;
use crate::engine::intake::dependency_state;
use crate::engine::parked::Parked;
use crate::engine::receive::missing_artifacts;
use crate::engine::story::transition;
use crate::engine::world::World;
use crate::policy::intake::{Needs, Terms};
use crate::policy::judge::Failure;
use crate::policy::next;
use crate::policy::retry::RetryPolicy;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::spool::look::{Looked, look};

/// How many commands a record remembers having obeyed.
const REMEMBERED: usize = 16;

/// Reads a record; `None` if it is not there or not whole.
pub fn load(world: &World, state: State, id: &str) -> Option<Record> {
    match look(&world.layout.record(state, id), u64::MAX - 1) {
        Looked::Bytes { bytes, .. } => Record::read(&bytes).ok(),
        _ => None,
    }
}

/// Has a decided record written and moved, and tells the loop when that is done.
pub fn write(
    world: &World,
    id: &str,
    record: &Record,
    from: State,
    event: &'static str,
    after: impl FnOnce() + Send + 'static,
) {
    let now = world.now();
    let to = record.meta.to.unwrap_or(from);
    let line = transition(record, id, event, from, to, now.wall);
    let parked = Parked::of(record, now, world.boot).filter(|_| to == State::Waiting);
    let (events, owned) = (world.events.clone(), id.to_owned());
    settle(world, id, record, from, vec![line], move || {
        after();
        let id = owned;
        let _ = events.send(Event::Moved { id, to, parked });
    });
}

/// Remembers that a command was carried out, so that it is not carried out twice.
pub fn remember(record: &mut Record, command: String) {
    record.meta.applied.push(command);
    let excess = record.meta.applied.len().saturating_sub(REMEMBERED);
    record.meta.applied.drain(..excess);
}

/// Fails a record that waits.
pub fn fail_parked(
    world: &World,
    id: &str,
    mut record: Record,
    told: &Failure,
    after: impl FnOnce() + Send + 'static,
) {
    let max_retries = max_retries(world, &record, id);
    next::fail(&mut record, told, max_retries, world.now().wall);
    let event = match told.code {
        crate::protocol::error::ErrorCode::Cancelled => "cancelled",
        _ => "failed",
    };
    write(world, id, &record, State::Waiting, event, after);
}

/// The retries that a record's failure speaks of.
pub fn max_retries(world: &World, record: &Record, id: &str) -> u32 {
    retry_of(world, record, id).max_retries
}

/// How often a record is tried again, and when.
pub fn retry_of(world: &World, record: &Record, id: &str) -> RetryPolicy {
    let config = world.config();
    HandoffId::parse_made(id)
        .ok()
        .and_then(|stem| Request::from_record(record, &stem).ok())
        .map_or(RetryPolicy::of(&config.defaults.retry), |request| {
            let specialist = config.specialist(&request.agent);
            Terms::of(&request, specialist, &config).retry
        })
}

/// Fails a waiting record by its id.
pub fn fail_waiting(world: &World, id: &str, told: &Failure) {
    match load(world, State::Waiting, id) {
        Some(record) => fail_parked(world, id, record, told, || {}),
        None => world.tell(Event::Unmoved { id: id.to_owned() }),
    }
}

/// The dependencies are met, but it is not to start before a certain time.
pub fn wait_for_time(world: &World, id: &str) {
    let Some(mut record) = load(world, State::Waiting, id) else {
        return world.tell(Event::Unmoved { id: id.to_owned() });
    };
    let now = world.now();
    let not_before = crate::protocol::view::View::of_record(&record)
        .get("not_before")
        .and_then(Value::as_str)
        .and_then(crate::clock::Wall::parse)
        .unwrap_or(now.wall);
    let length = u64::try_from(not_before.0.saturating_sub(now.wall.0)).unwrap_or(0);
    let reason = format!("not before {not_before}");
    next::wait(&mut record, "time", Some(length), &reason, now, world.boot);
    write(world, id, &record, State::Waiting, "waiting", || {});
}

/// Reads how the handoffs stand that this one waits for.
pub fn check_dependencies(world: &World, id: &str, dependencies: &[String], required: &[String]) {
    let needs = Needs {
        dependencies: dependencies
            .iter()
            .map(|id| dependency_state(&world.layout, id))
            .collect(),
        missing_artifacts: missing_artifacts(&world.desk(), required),
    };
    world.tell(Event::DependencyStates {
        id: id.to_owned(),
        needs,
    });
}
