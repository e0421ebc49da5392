//! Retries that somebody asks for, and what speaks against one.

use std::ffi::OsStr;

use crate::engine::commands::{Dismissal, note, refuse};
use crate::engine::divert::{Destination, apply, destination};
use crate::engine::event::Event;
use crate::engine::moves::{remember, write};
use crate::engine::receive::needs;
use crate::engine::world::World;
use crate::policy::intake::{Plan, plan, refused_fields, unknown_agent};
use crate::policy::next;
use crate::protocol::control::Command;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::request::{Finished, Request};
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
        let reason = format!("retry requested{who}; it runs when a slot is free");
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

/// A record that can't run gets no retry: it would be parked with nobody to wake it, or fail once
/// more with its first error buried. What a handoff needs besides is looked at again only where it
/// never began: where it goes instead of running, or why it would only fail once more. What had
/// begun before had all of it, and its dependencies may have been put away since.
fn still_lacks(
    world: &World,
    record: &Record,
    id: &str,
) -> Result<Option<(Request, Destination)>, String> {
    let stem = HandoffId::parse_made(id).map_err(|error| error.to_string())?;
    let fix = |file: &str| format!("fix {file} and move it to handoffs/pending/");
    let own_file = format!("handoffs/failed/{id}.json");
    let request = Request::from_record(record, &stem).map_err(|errors| {
        let told = refused_fields(&errors).message;
        format!("{told}; {}", fix(&own_file))
    })?;
    let config = world.config();
    let runs = matches!(request.finished, None | Some(Finished::HandedOn));
    if runs && !request.agent.is_human() && config.specialist(&request.agent).is_none() {
        let told = unknown_agent(&request, &config).message;
        return Err(format!(
            "{told}; add it to handoffd.toml and send the daemon SIGHUP, or {}",
            fix(&own_file)
        ));
    }
    if !record.meta.attempts.is_empty() {
        return Ok(None);
    }
    let needs = needs(&world.desk(), &request);
    match plan(&request, &config, &needs, world.now()) {
        Plan::Refuse(told) => Err(told.message),
        waits @ Plan::WaitForDependencies { .. } => {
            Ok(destination(waits, &request, &config).map(|elsewhere| (request, elsewhere)))
        }
        _ => Ok(None),
    }
}
