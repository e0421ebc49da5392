//! Taking up attempts of a former daemon: from their records, the keeper's memory of them, and the
//! commands that they are being ended for.

use std::sync::Arc;

use crate::engine::attempt::{NO_SLOT, Running, Verifying};
use crate::engine::commands::{cancels, note};
use crate::engine::event::Event;
use crate::engine::former::work_under;
use crate::engine::moves::remember;
use crate::engine::obey::cancel_words;
use crate::engine::outcome::End;
use crate::engine::past::Past;
use crate::engine::recovery::Found;
use crate::engine::story::transition;
use crate::engine::world::World;
use crate::keeper::wire::{self, Held, Key};
use crate::policy::intake::Terms;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::runner::vitals::Vitals;
use crate::spool::change::Change;
use crate::spool::look::Identity;

/// Takes up an attempt again from its record and the keeper's memory of it.
pub fn running(
    world: &World,
    id: &str,
    record: Record,
    held: Option<&Held>,
    identity: Option<Identity>,
) -> Option<Running> {
    let attempt = record.running_attempt()?.clone();
    let config = world.config();
    let stem = HandoffId::parse_made(id).ok()?;
    let request = Request::from_record(&record, &stem).ok()?;
    let note = |key: &str| held.and_then(|held| held.note.get(key)?.as_u64());
    let slot = note("slot").and_then(|slot| u32::try_from(slot).ok());
    let now = world.now();
    let ran = u64::try_from(now.wall.0.saturating_sub(attempt.started_at.0)).unwrap_or(0);
    // Without a slot there is nothing to read: one that no attempt has is as good as empty.
    let slot = slot.unwrap_or(NO_SLOT);
    world.slots.occupy(slot);
    if let Some(path) = &record.meta.destination {
        world.reserve(path, id);
    }
    Some(Running {
        key: Key::new(id, attempt.number),
        identity,
        agent: request.agent.clone(),
        terms: Terms::of(&request, config.specialist(&request.agent), &config),
        slot,
        started_boot_ms: note("started_boot_ms").unwrap_or_else(|| now.boot_ms.saturating_sub(ran)),
        vitals: Vitals::new(now.boot_ms),
        cpu_ms: None,
        ending: None,
        cancelled: None,
        keeper: world.counted_keeper().1,
        verify: None,
        post: None,
        record,
        request: Arc::new(request),
    })
}

/// Has an attempt judged by the loop's own workers: a start should not wait for that.
pub fn judge_later(world: &World, running: Running, end: End) {
    let running = Box::new(running);
    world.tell(Event::Judge { running, end });
}

/// Goes on with an attempt whose work was being verified.
pub fn take_up_verify(world: &World, mut running: Running, work: End, checker: Held) -> Found {
    let slot = checker.note.get("slot").and_then(serde_json::Value::as_u64);
    let slot = slot
        .and_then(|slot| u32::try_from(slot).ok())
        .unwrap_or(NO_SLOT);
    world.slots.occupy(slot);
    let work = work_under(&checker, work);
    running.verify = Some(Verifying { work, slot });
    match checker.state {
        wire::State::Running | wire::State::Ending => return Found::Running(Box::new(running)),
        wire::State::Ended(exit) => judge_later(world, running, End::of(exit, checker.why)),
        wire::State::Failed(failure) => {
            let (errno, what) = (failure.errno, failure.what);
            judge_later(world, running, End::NotStarted { errno, what });
        }
    }
    Found::UnderWay
}

/// A claim's line is written with the next batch, which a crash may have forestalled.
pub fn tell_start(world: &World, id: &str, running: &Running, past: &Past) {
    let record = &running.record;
    let known = past.told.contains(&(id.to_owned(), record.meta.revision));
    let Some(attempt) = record.running_attempt() else {
        return;
    };
    let read_far_enough = past
        .told_since
        .is_none_or(|since| since <= attempt.started_at);
    if known || !read_far_enough {
        return;
    }
    let (from, to) = (State::Pending, State::InProgress);
    let line = transition(record, id, "started", from, to, world.now().wall);
    world
        .committer
        .submit(Change::Note, vec![line.with("recovered", true)], |_| {});
}

/// The keeper knows that an attempt is ended because somebody cancelled it, but not who. The command
/// still stands in `control/`: its words go into the record, which remembers it as carried out.
pub fn remember_cancels(world: &World, running: &mut Running, past: &mut Past) {
    let revision = running.record.meta.revision;
    let known = past.cancels.get_or_insert_with(|| cancels(world));
    let ours = known.iter().filter(|it| {
        it.command.handoff_id.as_str() == running.key.id
            && it.command.revision.is_none_or(|wanted| wanted == revision)
    });
    let lines = past.recent.get(&running.key.id).into_iter().flatten();
    let is_told = lines.rev().any(|line| {
        let begun = running.record.running_attempt().map(|it| it.started_at);
        line.event == "command" && begun.is_none_or(|begun| line.at >= begun)
    });
    for whole in ours {
        // The line is written beside the signal, which a crash may have forestalled.
        if !is_told {
            note(world, &whole.command);
        }
        running.cancelled = Some(cancel_words(&whole.command));
        if !running.record.meta.applied.contains(&whole.key) {
            remember(&mut running.record, whole.key.clone());
        }
    }
}
