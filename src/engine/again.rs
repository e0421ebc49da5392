//! Retries that somebody asks for, and what speaks against one.

use std::ffi::OsStr;

use crate::engine::commands::{Dismissal, note, refuse};
use crate::engine::divert::{Destination, apply, destination};
use crate::engine::event::Event;
use crate::engine::moves::{remember, write};
use crate::engine::receive::needs;
use crate::engine::world::World;
use crate::policy::intake::{Plan, plan};
use crate::policy::next;
use crate::protocol::control::Command;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::spool::look::Identity;

/// Makes a failed handoff due again, with a new budget, or a waiting retry due now.
pub fn retry(
    world: &World,
    name: &OsStr,
    identity: Identity,
    command: &Command,
    state: State,
    mut record: Record,
    key: String,
) {
    let id = command.handoff_id.as_str();
    let due = if state == State::Waiting {
        is_a_retry(&record).map(|()| None)
    } else {
        record.new_budget();
        still_lacks(world, &record, id)
    };
    let elsewhere = match due {
        Ok(elsewhere) => elsewhere,
        Err(why) => {
            refuse(world, name, identity, &format!("can't retry {id}: {why}"));
            return world.tell(Event::Unmoved { id: id.to_owned() });
        }
    };
    note(world, command);
    if let Some((request, destination)) = elsewhere {
        apply(world, &mut record, id, &Ok(request), destination);
    } else {
        let who = command
            .by
            .as_deref()
            .map(|by| format!(" by {by}"))
            .unwrap_or_default();
        let reason = format!("retry asked for{who}; it runs when a place is free");
        let now = world.now();
        next::wait(&mut record, "retry", Some(0), &reason, now, world.boot);
    }
    remember(&mut record, key);
    let done = Dismissal::new(world, name, identity);
    write(world, id, &record, state, "retry_asked", || {
        done.carried_out();
    });
}

/// What waits for anything else is not brought nearer by a retry.
fn is_a_retry(record: &Record) -> Result<(), String> {
    let on = record
        .doc
        .get("waiting")
        .and_then(|waiting| waiting.get("on")?.as_str());
    match on {
        Some("retry" | "time") => Ok(()),
        on => Err(format!("it waits for a {}", on.unwrap_or("something else"))),
    }
}

/// One that never began may have failed for want of what it depends on. That is looked at again:
/// where it goes instead of running, or why it would only fail once more. What had begun before
/// had all of it, and its dependencies may have been put away since.
fn still_lacks(
    world: &World,
    record: &Record,
    id: &str,
) -> Result<Option<(Request, Destination)>, String> {
    if !record.meta.attempts.is_empty() {
        return Ok(None);
    }
    let request = HandoffId::parse_made(id)
        .ok()
        .and_then(|stem| Request::from_record(record, &stem).ok());
    let Some(request) = request else {
        return Ok(None);
    };
    let config = world.config();
    let needs = needs(&world.desk(), &request);
    match plan(&request, &config, &needs, world.now()) {
        Plan::Refuse(told) if !request.depends_on.is_empty() => Err(told.message),
        waits @ Plan::WaitForDependencies { .. } => {
            Ok(destination(waits, &request, &config).map(|elsewhere| (request, elsewhere)))
        }
        _ => Ok(None),
    }
}
