//! Launching: the job that claims a record and gives its next attempt to the keeper.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::clock::Now;
use crate::durable::Durability;
use crate::engine::attempt::{NO_SLOT, NotLaunched, Post, Running, Source};
use crate::engine::destination::prepare;
use crate::engine::divert::{Destination, apply, divert, original};
use crate::engine::event::Event;
use crate::engine::handover::{Order, hand_over};
use crate::engine::hire::give;
use crate::engine::intake::{Seen, Submission, look_at};
use crate::engine::moves::{fail_parked, write};
use crate::engine::receive::{changed_artifacts, receipt};
use crate::engine::story::transition;
use crate::engine::world::World;
use crate::keeper::wire::Key;
use crate::policy::human::Kind;
use crate::policy::intake::{Dependency, Needs, Plan, Terms, plan, refused_fields, unknown_agent};
use crate::policy::judge::Failure;
use crate::policy::next::last_error_digest;
use crate::policy::receive::Receipt;
use crate::protocol::agent::AgentName;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::name::Ext;
use crate::protocol::record::{Attempt, Meta, Record};
use crate::protocol::request::Request;
use crate::protocol::view::View;
use crate::runner::collect;
use crate::runner::launch::command_line;
use crate::runner::vitals::Vitals;
use crate::spool::change::Change;
use crate::spool::claim::{self, Submitted, TakeError, Taken};
use crate::spool::look::{Identity, Looked, fixed, look};

/// How long a launch waits for its claim to be on disk. A disk that takes longer refuses, and
/// the daemon says so; the slot is not to be held up by that for ever.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);

/// Claims the next attempt of `id` and starts it.
pub fn launch(world: &World, id: &str, agent: &AgentName, source: Source, post: Option<Post>) {
    let launched = match source {
        Source::Pending { ext, read } => from_pending(world, id, agent, ext, read, post),
        Source::Waiting => from_waiting(world, id, post),
    };
    match launched {
        Ok(running) => world.tell(Event::Launched(Box::new(running))),
        Err((from, why)) => world.tell(Event::NotLaunched {
            id: id.to_owned(),
            from,
            why,
        }),
    }
}

type Launched = Result<Running, (Source, NotLaunched)>;

fn from_pending(
    world: &World,
    id: &str,
    agent: &AgentName,
    ext: Ext,
    read: Option<Box<Submission>>,
    post: Option<Post>,
) -> Launched {
    let again = |why| (Source::Pending { ext, read: None }, why);
    let name = format!("{id}.{ext}");
    let submission = match read {
        Some(read) => read,
        None => match look_at(world, OsStr::new(&name)) {
            Seen::Submission(submission) => submission,
            _ => return Err(again(NotLaunched::LookAgain)),
        },
    };
    let config = world.config();
    let request = match &submission.request {
        // Anything but what was planned goes back to intake, which knows what to do with it.
        Ok(request)
            if request.agent == *agent
                && !submission.taken
                && submission.plan(request, &config, world.now()) == Plan::Run =>
        {
            request.clone()
        }
        _ => return Err(again(NotLaunched::LookAgain)),
    };
    // Only the destination is looked at here: it is resolved now, and kept.
    let mut probe = Record {
        doc: Map::new(),
        meta: Meta::default(),
    };
    let (_, holder) = View::of_document(&submission.doc).holder("expected_output");
    if let Err(told) = prepare(world, &mut probe, &request, holder) {
        divert(
            world,
            OsStr::new(&name),
            *submission,
            Destination::Fail(*told),
            None,
        );
        return Err(again(NotLaunched::Refused));
    }
    let Submission {
        identity,
        doc,
        sha256,
        syntax,
        receipt,
        ..
    } = *submission;
    let mut record = Record::admit(doc, id, Some(sha256));
    record.meta.destination = probe.meta.destination;
    if let Some(receipt) = receipt {
        acknowledge(world, &mut record, &request, *receipt);
    }
    let path = world.layout.pending().join(&name);
    let durability = config.daemon.durability;
    let submitted = Submitted::new(&path, identity, (&record, syntax), durability);
    let keep = original(world, id, ext, syntax);
    let start = Start {
        record,
        request: &request,
        from: State::Pending,
        submission: Some(&path),
        keep,
        post,
    };
    begin(world, start, |bytes| {
        claim::from_pending(
            &world.layout,
            world.committer.spares(),
            submitted,
            id,
            State::InProgress,
            bytes,
        )
    })
    .map_err(again)
}

fn from_waiting(world: &World, id: &str, post: Option<Post>) -> Launched {
    let again = |why| (Source::Waiting, why);
    let path = world.layout.record(State::Waiting, id);
    let (bytes, identity) = match look(&path, u64::MAX - 1) {
        Looked::Bytes {
            bytes, identity, ..
        } => (bytes, identity),
        Looked::Unreadable { error, .. } => {
            return Err(again(NotLaunched::Io(format!(
                "{}: {error}",
                path.display()
            ))));
        }
        _ => return Err(again(NotLaunched::LookAgain)),
    };
    let Ok(mut record) = Record::read(&bytes) else {
        return Err(again(NotLaunched::LookAgain));
    };
    let stem = HandoffId::parse_made(id).map_err(|_| again(NotLaunched::LookAgain))?;
    let told = match Request::from_record(&record, &stem) {
        Err(errors) => refused_fields(&errors),
        Ok(request) => match admissible(world, &mut record, &request) {
            Err(told) => *told,
            Ok(Some(elsewhere)) => {
                let request = Ok(request);
                let (_, event) = apply(world, &mut record, id, &request, elsewhere);
                write(world, id, &record, State::Waiting, event, || {});
                return Err(again(NotLaunched::Refused));
            }
            Ok(None) => {
                let start = Start {
                    record,
                    request: &request,
                    from: State::Waiting,
                    submission: None,
                    keep: None,
                    post,
                };
                return begin(world, start, |bytes| {
                    claim::from_waiting(
                        &world.layout,
                        world.committer.spares(),
                        identity,
                        id,
                        bytes,
                    )
                })
                .map_err(again);
            }
        },
    };
    fail_parked(world, id, record, &told, || {});
    Err(again(NotLaunched::Refused))
}

/// Whether a record that waited may run now, or where it goes instead. At its first attempt it
/// is received as a new one is.
fn admissible(
    world: &World,
    record: &mut Record,
    request: &Request,
) -> Result<Option<Destination>, Box<Failure>> {
    let met = Needs {
        dependencies: vec![Dependency::Completed; request.depends_on.len()],
        missing_artifacts: Vec::new(),
    };
    let elsewhere = match plan(request, &world.config(), &met, world.now()) {
        Plan::Refuse(told) => return Err(Box::new(told)),
        Plan::WaitForHuman(Kind::Task) => Some(Destination::Ask(Kind::Task)),
        Plan::WaitForHuman(kind) if !record.doc.contains_key("answer") => {
            Some(Destination::Ask(kind))
        }
        Plan::Complete => Some(Destination::Complete),
        Plan::Help if record.meta.links.returns.is_empty() => Some(Destination::Help),
        _ => None,
    };
    if elsewhere.is_none() && world.config().specialist(&request.agent).is_none() {
        return Err(Box::new(unknown_agent(request, &world.config())));
    }
    if !record.doc.contains_key("acknowledgment") {
        let receipt = receipt(&world.desk(), &View::of_record(record), request, true);
        if let Some(told) = receipt.refusal {
            record.set("acknowledgment", receipt.acknowledgment);
            return Err(Box::new(told));
        }
        acknowledge(world, record, request, receipt);
    }
    if elsewhere.is_some() {
        return Ok(elsewhere);
    }
    let (_, holder) = View::of_record(record).holder("expected_output");
    prepare(world, record, request, holder)?;
    Ok(None)
}

/// Writes into the record what its receiver says, with what has changed behind its back.
fn acknowledge(world: &World, record: &mut Record, request: &Request, receipt: Receipt) {
    let mut acknowledgment = receipt.acknowledgment;
    let changed = changed_artifacts(&world.desk(), &View::of_record(record), request);
    if !changed.is_empty()
        && let Some(said) = acknowledgment.as_object_mut()
    {
        let warnings = said.entry("warnings").or_insert_with(|| json!([]));
        if let Some(warnings) = warnings.as_array_mut() {
            warnings.extend(changed.into_iter().map(Value::String));
        }
    }
    record.set("acknowledgment", acknowledgment);
}

/// A record that is to be claimed for its next attempt.
struct Start<'a> {
    record: Record,
    request: &'a Request,
    from: State,
    /// The producer's file, if it is still that.
    submission: Option<&'a Path>,
    /// Where a producer's own bytes are kept.
    keep: Option<PathBuf>,
    /// The resident process that is to do it.
    post: Option<Post>,
}

/// Claims the record, then hands over to the keeper, or to a resident process. Nothing waits for
/// the disk here, except who has a destination: the claim is made durable with the next batch.
fn begin(
    world: &World,
    start: Start<'_>,
    take: impl FnOnce(&[u8]) -> Result<Taken, TakeError>,
) -> Result<Running, NotLaunched> {
    let Start {
        mut record,
        request,
        from,
        submission,
        keep,
        post,
    } = start;
    let config = world.config();
    let id = request.id.as_str();
    let Some(specialist) = config.specialist(&request.agent) else {
        return Err(NotLaunched::LookAgain);
    };
    // It was picked for another kind of specialist: the configuration has just changed.
    if specialist.is_resident() != post.is_some() {
        world.reservations().release(id);
        return Err(NotLaunched::LookAgain);
    }
    let now = world.now();
    let last_error = last_error_digest(&record);
    let attempt = open_attempt(&mut record, now, world.boot);
    let slot = match post {
        Some(_) => None,
        None => Some(world.slots.acquire().map_err(|error| {
            world.reservations().release(id);
            NotLaunched::Io(format!(".handoffd/run/: {error}"))
        })?),
    };
    if slot.is_some() {
        collect::clean(&world.paths(id, attempt));
    }
    let number = slot.as_ref().map_or(NO_SLOT, |slot| slot.number);
    let taken = take(&record.to_bytes()).map_err(|error| {
        world.slots.release(number);
        world.reservations().release(id);
        match error {
            TakeError::Io(error) => match submission.and_then(fixed) {
                Some(why) => NotLaunched::Fixed(why),
                None => NotLaunched::Io(format!("{from}/ to in-progress/: {error}")),
            },
            TakeError::Gone | TakeError::Changed | TakeError::Taken => NotLaunched::LookAgain,
        }
    })?;
    let mut running = Running {
        key: Key::new(id, attempt),
        record,
        identity: Identity::at(&world.layout.record(State::InProgress, id)).ok(),
        agent: request.agent.clone(),
        terms: Terms::of(request, Some(specialist), &config),
        slot: number,
        started_boot_ms: now.boot_ms,
        vitals: Vitals::new(now.boot_ms),
        cpu_ms: None,
        ending: None,
        cancelled: None,
        keeper: 0,
        verify: None,
        post: None,
    };
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
                argv: command_line(&specialist.command, world.layout.root()),
                stdin: &world.layout.record(State::InProgress, id),
                slot,
                last_error,
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
fn tell(world: &World, running: &Running, from: State, claim: Change, now: Now) -> Receiver<()> {
    let (record, id) = (&running.record, running.key.id.as_str());
    let line = transition(record, id, "started", from, State::InProgress, now.wall);
    world.board.note(record, id, State::InProgress, now.wall);
    let (settled, is_settled) = channel();
    world
        .committer
        .submit(claim, vec![line], move |_| drop::<Sender<()>>(settled));
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
