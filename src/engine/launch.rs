//! Launching: the job that claims a record and gives its next attempt to the keeper.

use std::ffi::OsStr;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::engine::admit::admit;
use crate::engine::ahead;
use crate::engine::attempt::{NotLaunched, Post, Running, Source};
use crate::engine::begin::{Start, begin};
use crate::engine::delivery::reported::register;
use crate::engine::destination::prepare;
use crate::engine::divert::{Destination, apply, divert, original};
use crate::engine::event::Event;
use crate::engine::intake::{Seen, Submission, look_at};
use crate::engine::moves::{fail_parked, write};
use crate::engine::receive::{changed_artifacts, receipt};
use crate::engine::world::World;
use crate::policy::human::Kind;
use crate::policy::intake::{Dependency, Needs, Plan, plan, refused_fields, unknown_agent};
use crate::policy::judge::Failure;
use crate::policy::receive::Receipt;
use crate::protocol::agent::AgentName;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::name::Ext;
use crate::protocol::record::{Meta, Record};
use crate::protocol::request::Request;
use crate::protocol::view::View;
use crate::spool::claim::{self, Submitted};
use crate::spool::look::{Looked, look};

/// Claims the next attempt of `id` and starts it.
pub fn launch(
    world: &World,
    id: &str,
    agent: &AgentName,
    source: Source,
    post: Option<Post>,
    ahead: bool,
) {
    let launched = match source {
        Source::Pending { ext, read } => from_pending(world, id, agent, (ext, read), post, ahead),
        Source::Waiting => from_waiting(world, id, post).map(Some),
    };
    match launched {
        Ok(Some(running)) => world.tell(Event::Launched(Box::new(running))),
        // The keeper tells when it begins.
        Ok(None) => {}
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
    (ext, read): (Ext, Option<Box<Submission>>),
    post: Option<Post>,
    ahead: bool,
) -> Result<Option<Running>, (Source, NotLaunched)> {
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
                && !world.expected.is_stranger(id, submission.kin.as_ref())
                && submission.plan(request, &config, world.now()) == Plan::Run =>
        {
            request
        }
        _ => return Err(again(NotLaunched::LookAgain)),
    };
    // Only the destination is looked at here: it is resolved now, and kept.
    let mut probe = Record {
        doc: Map::new(),
        meta: Meta::default(),
    };
    let (_, holder) = View::of_document(&submission.doc).holder("expected_output");
    if let Err(told) = prepare(world, &mut probe, request, holder) {
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
        request,
        ..
    } = *submission;
    let request = Arc::new(request.map_err(|_| again(NotLaunched::LookAgain))?);
    let mut record = admit(world, doc, id, sha256);
    record.meta.destination = probe.meta.destination;
    if let Some(receipt) = receipt {
        acknowledge(world, &mut record, &request, *receipt);
    }
    bring_in(world, &mut record, &request).map_err(again)?;
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
    if ahead {
        let given = ahead::give(world, start, submitted, ext);
        return given.map(|()| None).map_err(again);
    }
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
    .map(Some)
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
                bring_in(world, &mut record, &request).map_err(again)?;
                let request = Arc::new(request);
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
        // Helped once, by an agent or by a person, it runs.
        Plan::Help
            if record.meta.links.returns.is_empty() && !record.doc.contains_key("answer") =>
        {
            Some(Destination::Help)
        }
        _ => None,
    };
    if elsewhere.is_none() && world.config().specialist(&request.agent).is_none() {
        return Err(Box::new(unknown_agent(request, &world.config())));
    }
    if !record.doc.contains_key("acknowledgment") {
        let view = View::of_record(record);
        let links = || record.meta.links.clone();
        let receipt = receipt(&world.desk(), &view, links, request, true);
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

/// Registers what a dropped report names as its artifacts, for the agent that goes on with it.
fn bring_in(world: &World, record: &mut Record, request: &Request) -> Result<(), NotLaunched> {
    register(world, record, request).map_err(|error| {
        world.reservations().release(request.id.as_str());
        NotLaunched::Io(error.to_string())
    })
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
