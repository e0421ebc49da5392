//! Beginning an attempt: it is listed in its record and gets a slot, the record is claimed, and the
//! keeper or a resident process has it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::clock::Now;
use crate::config::{Config, Specialist};
use crate::durable::Durability;
use crate::engine::attempt::{NO_SLOT, NotLaunched, Post, Running};
use crate::engine::handover::{Order, hand_over};
use crate::engine::hire::give;
use crate::engine::rights;
use crate::engine::story::{advisory_gate, transition};
use crate::engine::tasks;
use crate::engine::window;
use crate::engine::world::World;
use crate::keeper::wire::Key;
use crate::policy::intake::Terms;
use crate::policy::next::last_error_digest;
use crate::protocol::attempt::Attempt;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::runner::slots::{Slot, Use};
use crate::runner::vitals::Vitals;
use crate::runner::{agents, collect};
use crate::spool::change::Change;
use crate::spool::claim::{TakeError, Taken};
use crate::spool::look::{Identity, fixed};

/// How long a launch waits for its claim to be on disk. A disk that takes longer refuses, and
/// the daemon says so; the slot is not to be held up by that for ever.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);

/// A record that is to be claimed for its next attempt.
pub struct Start<'a> {
    pub record: Record,
    pub request: &'a Arc<Request>,
    pub from: State,
    /// The producer's file, if it is still that.
    pub submission: Option<&'a Path>,
    /// Where a producer's own bytes are kept.
    pub keep: Option<PathBuf>,
    /// The resident process that is to do it.
    pub post: Option<Post>,
}

/// An attempt that is ready to be claimed.
pub struct Readied<'a> {
    pub running: Running,
    /// The record, as it is claimed and as the agent gets it.
    pub bytes: Vec<u8>,
    /// None for a resident's.
    pub slot: Option<Slot>,
    pub last_error: Option<String>,
    pub specialist: &'a Specialist,
    /// The time of its start that its record tells.
    pub now: Now,
}

/// Lists the next attempt in its record, and finds a slot for it, unless it is a resident's.
pub fn ready<'a>(
    world: &World,
    config: &'a Config,
    start: Start<'_>,
) -> Result<Readied<'a>, NotLaunched> {
    let Start {
        mut record,
        request,
        post,
        ..
    } = start;
    let id = request.id.as_str();
    let Some(specialist) = config.specialist(&request.agent) else {
        return Err(NotLaunched::LookAgain);
    };
    // It was picked for another kind of specialist: the configuration has just changed.
    if specialist.is_resident() != post.is_some() {
        world.reservations().release(id);
        return Err(NotLaunched::LookAgain);
    }
    if let Some(wrong) = rights::attempt(world.layout.root(), config, specialist) {
        world.reservations().release(id);
        let agent = request.agent.clone();
        return Err(NotLaunched::Unsafe(agent, Box::new(wrong)));
    }
    let now = world.now();
    let last_error = last_error_digest(&record);
    let attempt = open_attempt(&mut record, now, world.boot);
    tasks::give_command(world, &mut record, &request.agent);
    let bytes = window::fitted(world, &mut record, id).map_err(|error| {
        world.reservations().release(id);
        NotLaunched::Io(error.to_string())
    })?;
    let slot = match post {
        Some(_) => None,
        None => Some(world.slots.acquire(Use::of(specialist)).map_err(|error| {
            world.reservations().release(id);
            NotLaunched::Io(format!(".handoffd/run/: {error}"))
        })?),
    };
    if slot.is_some() {
        collect::clean(&world.paths(id, attempt), &world.rubbish);
    }
    let running = Running {
        key: Key::new(id, attempt),
        record,
        identity: None,
        request: Arc::clone(request),
        agent: request.agent.clone(),
        terms: Terms::of(request, Some(specialist), config),
        slot: slot.as_ref().map_or(NO_SLOT, |slot| slot.number),
        started_boot_ms: now.boot_ms,
        vitals: Vitals::new(now.boot_ms),
        cpu_ms: None,
        ending: None,
        cancelled: None,
        keeper: 0,
        verify: None,
        post: None,
    };
    Ok(Readied {
        running,
        bytes,
        slot,
        last_error,
        specialist,
        now,
    })
}

/// Claims the record, then hands over to the keeper, or to a resident process. Nothing waits for
/// the disk here, except who has a destination: the claim is made durable with the next batch.
pub fn begin(
    world: &World,
    mut start: Start<'_>,
    take: impl FnOnce(&[u8]) -> Result<Taken, TakeError>,
) -> Result<Running, NotLaunched> {
    let config = world.config();
    let (request, from, submission) = (start.request, start.from, start.submission);
    let (post, keep) = (start.post.clone(), start.keep.take());
    let id = request.id.as_str();
    let Readied {
        mut running,
        bytes,
        slot,
        last_error,
        specialist,
        now,
    } = ready(world, &config, start)?;
    let taken = take(&bytes).map_err(|error| {
        world.slots.release(running.slot);
        world.reservations().release(id);
        match error {
            TakeError::Io(error) => match submission.and_then(fixed) {
                Some(why) => NotLaunched::Fixed(why),
                None => NotLaunched::Io(format!("{from}/ to in-progress/: {error}")),
            },
            TakeError::Gone | TakeError::Changed | TakeError::Taken => NotLaunched::LookAgain,
        }
    })?;
    running.identity = Identity::at(&world.layout.record(State::InProgress, id)).ok();
    let key = running.key.clone();
    let awaited =
        running.record.meta.destination.is_some() && config.daemon.durability == Durability::Full;
    let mut claim = Some(Change::Settle {
        id: id.to_owned(),
        at: State::InProgress,
        to: State::InProgress,
        leftover: taken.leftover,
        keep,
        awaited,
    });
    if awaited && let Some(claim) = claim.take() {
        // What stands there from now on is this handoff's own, and only the record says so: after
        // a power cut without it, the file would be in its own maker's way.
        let _ = tell(world, &running, from, claim, now).recv_timeout(SETTLES_WITHIN);
    }
    match (slot, post) {
        (Some(slot), _) => {
            let order = Order {
                key: &key,
                argv: agents::work(specialist, world.layout.root()),
                stdin: &world.layout.record(State::InProgress, id),
                slot,
                last_error,
                turn: None,
            };
            running.keeper = hand_over(world, &running, request, specialist, order, now);
        }
        (None, Some(post)) => {
            let post = give(world, &running, request, post, last_error, now);
            running.post = Some(post);
        }
        (None, None) => {}
    }
    // The attempt need not wait for what is only to be told of it.
    if let Some(claim) = claim {
        drop(tell(world, &running, from, claim, now));
    }
    Ok(running)
}

/// Has a claim made durable and told; what comes back ends when it is.
pub fn tell(
    world: &World,
    running: &Running,
    from: State,
    claim: Change,
    now: Now,
) -> Receiver<()> {
    let (record, id) = (&running.record, running.key.id.as_str());
    let line = transition(record, id, "started", from, State::InProgress, now.wall);
    let advice = running
        .advises()
        .then(|| advisory_gate(record, id, now.wall));
    world.board.note(record, id, State::InProgress, now.wall);
    let (settled, is_settled) = channel();
    world.committer.submit(
        claim,
        advice.into_iter().chain([line]).collect(),
        move |_| {
            drop::<Sender<()>>(settled);
        },
    );
    is_settled
}

/// Decides the record for its next attempt, and lists that attempt.
fn open_attempt(record: &mut Record, now: Now, boot: &str) -> u32 {
    let number = record.meta.next_attempt();
    record.decide(State::InProgress);
    record.set("started_at", now.wall.to_string());
    record.meta.boot = Some(boot.to_owned());
    record.meta.attempts.push(Attempt::begun(number, now.wall));
    number
}
