//! Obeying: what a command does to a handoff that no attempt is running for.
//!
//! What the record remembers as carried out is not carried out again, and what has nothing to act
//! on where the handoff stands is refused with what to do instead.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::Value;

use crate::engine::again::retry;
use crate::engine::chains::{answer_record, cancel_below};
use crate::engine::commands::{Dismissal, WholeCommand, note, refuse};
use crate::engine::divert::{Destination, divert};
use crate::engine::event::Event;
use crate::engine::intake::{Seen, look_at};
use crate::engine::moves::{fail_parked, load, remember, write};
use crate::engine::world::World;
use crate::policy::next;
use crate::protocol::control::{Action, Command};
use crate::protocol::lifecycle::State;
use crate::protocol::shown::word;
use crate::spool::foreign::own_states;
use crate::spool::look::Identity;
use crate::spool::reject::drop_again;

/// Carries out a command on a handoff that no attempt is running for.
pub fn carry_out(world: &World, name: &OsStr, whole: WholeCommand) {
    let WholeCommand {
        identity,
        command,
        key,
        ..
    } = whole;
    let id = command.handoff_id.as_str().to_owned();
    let give_up = |reason: String| {
        refuse(world, name, identity, &reason);
        world.tell(Event::Unmoved { id: id.clone() });
    };
    let states = own_states(&world.layout, &id);
    let Some(state) = states.first().copied() else {
        return match world.layout.submission(&id) {
            Some(path) => on_pending(world, name, identity, &command, &path, &id),
            None => give_up(world.layout.archived(&id).map_or_else(
                || format!("no handoff has the id {id}"),
                |state| packed(command.action, state, &id),
            )),
        };
    };
    let Some(mut record) = load(world, state, &id) else {
        return give_up(format!("can't read the record of {id}"));
    };
    if record.meta.applied.contains(&key) {
        if command.action == Action::Cancel {
            cancel_below(world, &record, &id, command.by.as_deref());
        }
        let done = Dismissal::new(world, name, identity);
        if state == State::Failed && record.meta.to == Some(State::Waiting) {
            // Decided before a crash, and not yet moved: nobody else looks into failed/.
            return write(world, &id, &record, state, "retry_asked", || {
                done.carried_out();
            });
        }
        done.carried_out();
        return world.tell(Event::Unmoved { id });
    }
    if let Some(wanted) = command.revision
        && wanted != record.meta.revision
    {
        return give_up(wrong_revision(wanted, record.meta.revision));
    }
    let code = record
        .doc
        .get("error")
        .and_then(|error| error.get("code")?.as_str());
    match (command.action, state) {
        (Action::Cancel, State::Waiting) => {
            note(world, &command);
            let told = next::cancelled(&by(&command, "while it waited"));
            remember(&mut record, key);
            if record.meta.links.children.is_empty() {
                let done = Dismissal::new(world, name, identity);
                return fail_parked(world, &id, record, &told, || done.carried_out());
            }
            // What it has set in motion is cancelled when this is read again: an end of those
            // that it waits for must not wake it.
            fail_parked(world, &id, record, &told, || {});
        }
        // Carried out before a crash, and not yet deleted.
        (Action::Cancel, State::Failed) if code == Some("CANCELLED") => {
            Dismissal::new(world, name, identity).carried_out();
            world.tell(Event::Unmoved { id });
        }
        // What it set in motion may still be on its way.
        (Action::Cancel, State::Completed | State::Failed)
            if cancel_below(world, &record, &id, command.by.as_deref()) > 0 =>
        {
            note(world, &command);
            Dismissal::new(world, name, identity).carried_out();
            world.tell(Event::Unmoved { id });
        }
        (Action::Approve | Action::Reject | Action::Ask, State::Waiting) => {
            match answer_record(world, &mut record, &id, &command) {
                Err(why) => give_up(why),
                Ok(event) => {
                    note(world, &command);
                    remember(&mut record, key);
                    let done = Dismissal::new(world, name, identity);
                    write(world, &id, &record, state, event, || done.carried_out());
                }
            }
        }
        (Action::Retry, State::Failed) if record.meta.rejected.is_some() => {
            let dropped_as = record.doc.get("dropped_as").and_then(Value::as_str);
            give_up(format!(
                "{id} was never a valid request: fix handoffs/failed/{id}.rejected, then {}",
                drop_again(&id, dropped_as)
            ));
        }
        (Action::Retry, State::Failed | State::Waiting) => {
            retry(world, name, identity, &command, state, record, key);
        }
        (action, state) => {
            give_up(pointless(action, state, &id));
        }
    }
}

/// What a command is told whose handoff is packed in the archive.
fn packed(action: Action, state: State, id: &str) -> String {
    let restore = format!("handoffd archive --restore {id}");
    match (action, state) {
        // Anything else would be refused there, too.
        (Action::Retry, State::Failed) => {
            format!("{id} is packed in the archive; put it back with: {restore}")
        }
        (Action::Retry, _) => format!(
            "can't retry {id}: already completed, and packed in the archive; to run it again: \
             {restore} && mv handoffs/completed/{id}.json handoffs/pending/"
        ),
        _ => format!(
            "{}; it is packed in the archive",
            pointless(action, state, id)
        ),
    }
}

/// What a command is told that has nothing to act on where its handoff stands.
pub fn pointless(action: Action, state: State, id: &str) -> String {
    let instead = match (action, state) {
        (Action::Retry, State::Completed) => {
            format!("; to run it again: handoffd retry --again {id}")
        }
        (Action::Retry, State::InProgress) => "; cancel it first, or wait until it ends".to_owned(),
        (Action::Cancel, State::Completed | State::Failed) => "; nothing of it runs".to_owned(),
        (Action::Approve | Action::Reject | Action::Ask, _) => {
            format!("; there is nothing to {}", action.as_str())
        }
        _ => String::new(),
    };
    let stands = match state {
        State::Completed | State::Failed => format!("already {state}"),
        open => format!("it is {}", open.to_string().replace('_', " ")),
    };
    format!("can't {} {id}: {stands}{instead}", action.as_str())
}

/// What a command is told that answers another revision than the record has now.
pub fn wrong_revision(wanted: u64, found: u64) -> String {
    format!("the command is for revision {wanted}, but the record has revision {found}")
}

fn by(command: &Command, when: &str) -> String {
    let mut text = when.to_owned();
    if let Some(by) = &command.by {
        text = format!("{text}, by {by}");
    }
    if let Some(comment) = &command.comment {
        text = format!("{text}: {comment}");
    }
    text
}

/// What a cancelled attempt's record says, in the same words.
pub fn cancel_words(command: &Command) -> String {
    by(command, "while it ran")
}

fn on_pending(
    world: &World,
    name: &OsStr,
    identity: Identity,
    command: &Command,
    path: &Path,
    id: &str,
) {
    let submitted = path.file_name().unwrap_or_default();
    match (command.action, look_at(world, submitted)) {
        (Action::Cancel, Seen::Submission(submission)) => {
            note(world, command);
            let told = next::cancelled(&by(command, "before it started"));
            let done = Dismissal::new(world, name, identity);
            divert(
                world,
                submitted,
                *submission,
                Destination::Fail(told),
                Some(done),
            );
        }
        (Action::Cancel, _) => {
            // Broken or still being written: intake will say so in failed/.
            refuse(
                world,
                name,
                identity,
                &format!(
                    "{id} in pending/ is not a complete request; to take it back: rm {}",
                    word(&world.layout.relative(path))
                ),
            );
            world.tell(Event::Unmoved { id: id.to_owned() });
        }
        _ => {
            refuse(
                world,
                name,
                identity,
                &format!("{id} is already in pending/"),
            );
            world.tell(Event::Unmoved { id: id.to_owned() });
        }
    }
}
