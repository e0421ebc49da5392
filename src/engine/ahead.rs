//! Giving ahead: the next attempts are prepared before a slot is free, and wait with the keeper.
//!
//! What is prepared has an entry here until the keeper says that it has begun, or gives it back.
//! The entry is made before the keeper is told, so its word always finds it. Where the keeper is
//! lost, what it has done is read off the files ([`resolve`]): the inode that stands in
//! `in-progress/` tells, as it does after a crash.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Now;
use crate::durable;
use crate::engine::Engine;
use crate::engine::attempt::{NotLaunched, Running, Source, ms};
use crate::engine::begin::{Readied, Start, ready, tell};
use crate::engine::event::Event;
use crate::engine::handover::{Order, order};
use crate::engine::workers::Job;
use crate::engine::world::World;
use crate::keeper::turn::{Claim, Turn, stamps};
use crate::keeper::wire::Key;
use crate::policy::ahead::PATIENCE_MS;
use crate::protocol::lifecycle::State;
use crate::protocol::name::Ext;
use crate::runner::agents;
use crate::runner::launch::DEADLINE;
use crate::runner::vitals::Vitals;
use crate::spool::change::Change;
use crate::spool::claim::{self, Submitted};
use crate::spool::look::Identity;

/// How often the time of its start stands in a record: of the handoff, and of the attempt.
const STARTS_TOLD: usize = 2;

/// An attempt that the keeper has, and has not begun.
#[derive(Debug)]
pub struct Prepared {
    running: Running,
    /// The producer's file.
    submission: Identity,
    ext: Ext,
    /// The content that it is claimed with; afterwards, its former bytes.
    content: PathBuf,
    keep: Option<PathBuf>,
}

/// All that are prepared.
#[derive(Debug, Default)]
pub struct Ahead(Mutex<HashMap<Key, Prepared>>);

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Prepared>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, key: &Key) -> Option<Prepared> {
        self.lock().remove(key)
    }
}

/// Prepares an attempt and gives it to the keeper.
pub fn give(
    world: &World,
    start: Start<'_>,
    submitted: Submitted<'_>,
    ext: Ext,
) -> Result<(), NotLaunched> {
    let config = world.config();
    let request = start.request;
    let id = request.id.as_str();
    let (keeper, count) = world.counted_keeper();
    let not_ahead = || {
        world.reservations().release(id);
        NotLaunched::NotAhead(request.agent.clone())
    };
    let claimed_at_once = start.record.meta.destination.is_some() || submitted.needs_its_claim;
    if claimed_at_once || !keeper.takes_turns() {
        return Err(not_ahead());
    }
    let keep = start.keep.clone();
    let Readied {
        mut running,
        bytes,
        slot,
        last_error,
        specialist,
        now,
    } = ready(world, &config, start)?;
    let slot = slot.ok_or_else(not_ahead)?;
    let number = slot.number;
    let release = || {
        world.slots.release(number);
        world.reservations().release(id);
    };
    let modified_ns = i64::try_from(submitted.identity.modified_ns).ok();
    let (Some(stamps), Some(modified_ns)) = (
        stamps(&bytes, &now.wall.to_string(), STARTS_TOLD),
        modified_ns,
    ) else {
        world.slots.release(number);
        return Err(not_ahead());
    };
    let prepared = claim::prepare(
        &world.layout,
        world.committer.spares(),
        submitted,
        id,
        &bytes,
    )
    .and_then(|(content, file)| Ok((Identity::of(&file.metadata()?), content, file)));
    let (identity, content, file) = prepared.map_err(|error| {
        release();
        NotLaunched::Io(format!(".handoffd/tmp/: {error}"))
    })?;
    let turn = Turn {
        at_most: config.daemon.max_concurrent,
        patience_ms: PATIENCE_MS,
        timeout_ms: ms(running.terms.timeout),
        deadline_var: DEADLINE.into(),
        claim: claim_of(world, id, submitted, modified_ns, &content, stamps),
    };
    running.identity = Some(identity);
    running.keeper = count;
    let key = running.key.clone();
    let argv = agents::work(specialist, world.layout.root());
    let order = order(
        world,
        &running,
        request,
        specialist,
        Order {
            key: &key,
            argv,
            stdin: &content,
            slot,
            last_error,
            turn: Some((Box::new(turn), file.into())),
        },
        now,
    );
    let entry = Prepared {
        running,
        submission: submitted.identity,
        ext,
        content: content.clone(),
        keep,
    };
    world.ahead.lock().insert(key.clone(), entry);
    tracing::debug!(handoff_id = id, "given ahead");
    if let Err(error) = order.and_then(|launch| keeper.start_quietly(launch)) {
        tracing::debug!(handoff_id = id, "it can't be given ahead: {error}");
        // Where the keeper is lost, somebody else may have seen to it already.
        if world.ahead.take(&key).is_some() {
            claim::forget(&content);
            release();
            return Err(NotLaunched::LookAgain);
        }
    }
    Ok(())
}

/// What the keeper is to do to its file.
fn claim_of(
    world: &World,
    id: &str,
    submitted: Submitted<'_>,
    modified_ns: i64,
    content: &Path,
    stamps: Vec<u64>,
) -> Claim {
    Claim {
        from: submitted.path.into(),
        to: world.layout.record(State::InProgress, id).into(),
        content: content.into(),
        stamps,
        device: submitted.identity.device,
        inode: submitted.identity.inode,
        size: submitted.identity.size,
        modified_ns,
    }
}

impl Prepared {
    /// The attempt, which began at this moment, and what makes its claim durable.
    fn begun(self, now: Now, modified_ns: Option<i64>) -> (Running, Change) {
        let mut running = self.running;
        running.record.set("started_at", now.wall.to_string());
        if let Some(attempt) = running.record.meta.attempts.last_mut() {
            attempt.started_at = now.wall;
        }
        running.started_boot_ms = now.boot_ms;
        running.vitals = Vitals::new(now.boot_ms);
        if let (Some(identity), Some(modified_ns)) = (&mut running.identity, modified_ns) {
            identity.modified_ns = i128::from(modified_ns);
        }
        let claim = Change::Settle {
            id: running.key.id.clone(),
            at: State::InProgress,
            to: State::InProgress,
            leftover: self.content,
            keep: self.keep,
            awaited: false,
        };
        (running, claim)
    }

    /// Undoes it: its file stands where it stood.
    fn undo(self, world: &World) {
        claim::forget(&self.content);
        world.slots.release(self.running.slot);
        world.reservations().release(&self.running.key.id);
        world.tell(Event::NotLaunched {
            id: self.running.key.id,
            from: Source::Pending {
                ext: self.ext,
                read: None,
            },
            why: NotLaunched::LookAgain,
        });
    }
}

/// Finds out what became of those that were given to a keeper that is lost, and tells the loop.
/// To be called when nothing more can become of them.
pub fn resolve(world: &World) {
    let all = std::mem::take(&mut *world.ahead.lock());
    for prepared in all.into_values() {
        let id = prepared.running.key.id.clone();
        let target = world.layout.record(State::InProgress, &id);
        let found = Identity::at(&target).map(|found| found.inode).ok();
        if found == Some(prepared.submission.inode) {
            // It was moved and not rewritten.
            if let Err(error) = durable::exchange(&prepared.content, &target) {
                tracing::error!(handoff_id = id, "its claim is incomplete: {error}");
            }
        } else if found.is_none() || found != prepared.running.identity.map(|it| it.inode) {
            prepared.undo(world);
            continue;
        }
        let now = world.now();
        let (mut running, claim) = prepared.begun(now, None);
        running.identity = Identity::at(&target).ok();
        drop(tell(world, &running, State::Pending, claim, now));
        world.tell(Event::Launched(Box::new(running)));
    }
}

impl Engine {
    /// One that was given ahead has its slot.
    pub(super) fn on_begun(&mut self, key: &Key, now: Now, modified_ns: i64) {
        let Some(prepared) = self.world.ahead.take(key) else {
            return;
        };
        let (running, claim) = prepared.begun(now, Some(modified_ns));
        drop(tell(&self.world, &running, State::Pending, claim, now));
        self.on_launched(running);
    }

    /// Nothing new is to start: what waits for its turn is asked for.
    pub(super) fn ask_back(&self) {
        if !self.world.ahead.lock().is_empty() {
            // A keeper that can't be told is gone, and starts none of them.
            self.actors.run(|world| drop(world.keeper().give_back()));
        }
    }

    /// One that was given ahead comes back.
    pub(super) fn on_returned(&mut self, key: &Key, why: &str) {
        let Some(prepared) = self.world.ahead.take(key) else {
            return;
        };
        tracing::debug!(handoff_id = key.id, "not started: {why}");
        self.ahead.returned(&prepared.running.agent);
        let undo: Job = Box::new(move |world| prepared.undo(world));
        self.launches.push(undo);
    }
}
