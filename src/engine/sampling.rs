//! Sampling: the job that looks at running attempts, and the one that puts a touched record
//! back.

use std::fs;

use crate::durable;
use crate::engine::attempt::Post;
use crate::engine::event::{Event, Sampled};
use crate::engine::finals;
use crate::engine::story::transition;
use crate::engine::world::World;
use crate::keeper::wire::Key;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::runner::collect;
use crate::runner::vitals::Sample;
use crate::spool::change::Change;
use crate::spool::look::Identity;

/// Looks at every running attempt; one job for all of them.
pub fn sample_all(world: &World, list: Vec<SampleRequest>) {
    let config = world.config();
    let max_output = config.daemon.max_output_size;
    let sampled = list
        .into_iter()
        .map(|request| {
            let paths = world.paths(&request.live.id, request.live.attempt);
            let record = world.layout.record(State::InProgress, &request.key.id);
            let sample = if let Some(post) = &request.post {
                Sample {
                    stderr_bytes: post.wire.as_ref().map_or(0, |wire| wire.stderr_bytes()),
                    heartbeat: Some((post.beats, 0)),
                    cpu_ms: request.cpu_ms,
                    ..Sample::default()
                }
            } else {
                collect::cap_log(&world.slots.stderr_path(request.slot), max_output);
                collect::sample(&world.slots, request.slot, &paths, request.cpu_ms)
            };
            Sampled {
                sample,
                whole_result: request.check_result && collect::has_whole_result(&paths, max_output),
                record_touched: request.identity.is_some()
                    && Identity::at(&record).ok() != request.identity,
                in_final: finals::FOLDERS
                    .into_iter()
                    .filter(|state| {
                        let path = world.layout.record(*state, &request.key.id);
                        fs::symlink_metadata(path).is_ok()
                    })
                    .collect(),
                attempt: request.key.attempt,
                id: request.key.id,
            }
        })
        .collect();
    world.tell(Event::Sampled(sampled));
}

#[derive(Debug)]
pub struct SampleRequest {
    pub key: Key,
    /// What runs of it now, and in which slot.
    pub live: Key,
    pub slot: u32,
    pub cpu_ms: Option<u64>,
    pub identity: Option<Identity>,
    pub check_result: bool,
    /// The resident process that works on it.
    pub post: Option<Post>,
}

/// Puts a running attempt's record back where somebody edited or moved it. One that was only
/// moved is moved back, so that its id does not stand in two folders.
pub fn restore_record(world: &World, id: String, record: &Record, known: Option<Identity>) {
    let at = State::InProgress;
    let path = world.layout.record(at, &id);
    let moved_to = State::ALL
        .into_iter()
        .filter(|state| *state != at)
        .map(|state| world.layout.record(state, &id))
        .find(|there| Identity::at(there).is_ok_and(|there| Some(there) == known));
    if let Some(there) = moved_to
        && let Err(error) = durable::move_no_replace(&there, &path)
    {
        tracing::warn!(handoff_id = id, "can't move its record back: {error}");
    }
    let line = transition(record, &id, "record_restored", at, at, world.now().wall);
    let change = Change::Advance {
        id: id.clone(),
        from: at,
        to: at,
        bytes: record.to_bytes(),
    };
    let events = world.events.clone();
    world.committer.submit(change, vec![line], move |_| {
        let identity = Identity::at(&path).ok();
        let _ = events.send(Event::RecordRestored { id, identity });
    });
}
