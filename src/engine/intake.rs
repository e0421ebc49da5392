//! Intake: reading what lies in `pending/`, where it lies.
//!
//! These are jobs: they read files and say what they found. Whether it is time to believe it
//! (a writer may still be busy) and what follows is the loop's decision; the jobs that carry
//! out a refusal or a wait are here too.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::engine::attempt::shown;
use crate::engine::commands::Dismissal;
use crate::engine::event::{Diverted, Event};
use crate::engine::parked::Parked;
use crate::engine::world::World;
use crate::policy::intake::{Dependency, Plan, Terms, refused_fields};
use crate::policy::judge::Failure;
use crate::policy::next::{fail, refusal, wait};
use crate::protocol::document::{self, Syntax};
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::lifecycle::State;
use crate::protocol::name::{Ext, Name, classify};
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::spool::claim::{self, TakeError};
use crate::spool::commit::{Change, Finished};
use crate::spool::layout::Layout;
use crate::spool::look::{Identity, Looked, Writer, look};
use crate::spool::reject::{Rejection, free_id};
use crate::store::audit;

/// A document that was read and is a request.
#[derive(Debug)]
pub struct Submission {
    pub id: String,
    pub ext: Ext,
    pub syntax: Syntax,
    pub identity: Identity,
    pub arrived_ms: i64,
    pub doc: Map<String, Value>,
    pub sha256: String,
    /// The request, or what is wrong with it.
    pub request: Result<Request, Vec<FieldError>>,
    pub dependencies: Vec<Dependency>,
    /// The id stands in another folder.
    pub taken: bool,
    pub writer: Writer,
}

/// Bytes that are no request.
#[derive(Debug)]
pub struct Broken {
    pub wanted: String,
    pub identity: Identity,
    pub told: Failure,
    pub writer: Writer,
    /// What could still become whole: a writer may be busy.
    pub may_mend: bool,
}

#[derive(Debug)]
pub enum Seen {
    Nothing,
    Folder,
    Changing,
    Broken(Box<Broken>),
    Submission(Box<Submission>),
}

/// Looks at one name in `pending/`.
pub fn look_at(world: &World, name: &OsStr) -> Seen {
    let (wanted, ext) = match classify(name.as_bytes()) {
        Name::Temporary => return Seen::Nothing,
        Name::Submission { id, ext } => (id, ext),
        Name::Bad { id, why } => return look_at_bad_name(world, name, id.as_str(), &why),
    };
    let broken = |identity, message: String, action: &str, writer, may_mend| {
        Seen::Broken(Box::new(Broken {
            wanted: wanted.to_string(),
            identity,
            told: refusal(
                ErrorCode::SchemaValidationFailed,
                message,
                vec![action.to_owned()],
            ),
            writer,
            may_mend,
        }))
    };
    let most = world.config().daemon.max_request_size;
    match look(&world.layout.pending().join(name), most) {
        Looked::Gone => Seen::Nothing,
        Looked::Folder => Seen::Folder,
        Looked::Changing => Seen::Changing,
        Looked::NotAFile { what, identity } => broken(
            identity,
            format!("not a file but {what}"),
            "Drop a plain file",
            Writer::Closed,
            false,
        ),
        Looked::TooLarge { identity } => broken(
            identity,
            format!(
                "{} bytes are more than daemon.max_request_size allows ({most})",
                identity.size
            ),
            "Put large inputs into a file below artifacts/ and name it in the request, or raise \
             daemon.max_request_size",
            Writer::Unknown,
            true,
        ),
        Looked::Unreadable { error, identity } => broken(
            identity,
            format!("it can't be read: {error}"),
            "Make it readable for the daemon's user",
            Writer::Unknown,
            true,
        ),
        Looked::Bytes {
            bytes,
            identity,
            arrived_ms,
            writer,
        } => match document::parse(&bytes, ext) {
            Err(error) => broken(
                identity,
                format!("not a request: {error}"),
                "Mend the document at the place that is named",
                writer,
                true,
            ),
            Ok(parsed) => {
                let request = Request::from_document(&parsed.map, &wanted);
                let dependencies = request
                    .as_ref()
                    .map(|request| dependency_states(&world.layout, request))
                    .unwrap_or_default();
                Seen::Submission(Box::new(Submission {
                    taken: world.layout.is_taken(wanted.as_str()),
                    id: wanted.to_string(),
                    ext,
                    syntax: parsed.syntax,
                    identity,
                    arrived_ms,
                    doc: parsed.map,
                    sha256: sha256(&bytes),
                    request,
                    dependencies,
                    writer,
                }))
            }
        },
    }
}

fn look_at_bad_name(world: &World, name: &OsStr, id: &str, why: &str) -> Seen {
    let path = world.layout.pending().join(name);
    let Ok(metadata) = fs::symlink_metadata(&path) else {
        return Seen::Nothing;
    };
    if metadata.is_dir() {
        return Seen::Folder;
    }
    Seen::Broken(Box::new(Broken {
        wanted: id.to_owned(),
        identity: Identity::of(&metadata),
        told: refusal(
            ErrorCode::SchemaValidationFailed,
            format!("the file name can't be a request's: {why}"),
            vec!["Name it <id>.json, .yaml, .yml or .md".to_owned()],
        ),
        writer: Writer::Unknown,
        may_mend: metadata.is_file(),
    }))
}

/// The digest of a request's bytes, in hex.
pub fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(bytes)
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// How the handoffs that a request depends on stand, read from the folders.
pub fn dependency_states(layout: &Layout, request: &Request) -> Vec<Dependency> {
    request
        .depends_on
        .iter()
        .map(|id| dependency_state(layout, id.as_str()))
        .collect()
}

pub fn dependency_state(layout: &Layout, id: &str) -> Dependency {
    let states = layout.states_of(id);
    let live = [State::InProgress, State::Waiting];
    if live.iter().any(|state| states.contains(state)) {
        Dependency::Live
    } else if states.contains(&State::Completed) {
        Dependency::Completed
    } else if states.contains(&State::Failed) {
        Dependency::Failed
    } else if layout.submission(id).is_some() {
        Dependency::Live
    } else {
        Dependency::Missing
    }
}

/// Where a submission that does not run goes.
#[derive(Debug)]
pub enum Destination {
    Fail(Failure),
    /// It is well-formed, but its id is taken: it fails under a numbered one.
    Duplicate,
    Wait {
        on: &'static str,
        length_ms: Option<u64>,
        ids: Vec<String>,
        reason: String,
    },
}

/// Moves a submission out of `pending/` without running it.
pub fn divert(
    world: &World,
    name: &OsStr,
    submission: Submission,
    destination: Destination,
    command: Option<Dismissal>,
) {
    let name = name.to_owned();
    let own_id = (!matches!(destination, Destination::Duplicate)).then(|| submission.id.clone());
    match try_divert(world, &name, submission, destination, command) {
        Ok(()) => {}
        Err(error) => {
            let outcome = match error {
                TakeError::Io(error) => Diverted::Io(error.to_string()),
                TakeError::Gone | TakeError::Changed | TakeError::Taken => Diverted::Again,
            };
            world.tell(Event::Diverted {
                name,
                id: own_id,
                outcome,
            });
        }
    }
}

fn try_divert(
    world: &World,
    name: &OsStr,
    submission: Submission,
    destination: Destination,
    command: Option<Dismissal>,
) -> Result<(), TakeError> {
    let now = world.now();
    let Submission {
        id: wanted,
        ext,
        syntax,
        identity,
        doc,
        sha256,
        request,
        ..
    } = submission;
    let id = match destination {
        Destination::Duplicate => free_id(&world.layout, &wanted),
        _ => wanted.clone(),
    };
    let own_id = (id == wanted).then(|| id.clone());
    let passage = world.passage(&id);
    let mut record = Record::admit(doc, &id, Some(sha256));
    let (to, event) = apply(world, &mut record, &wanted, &request, destination);
    let path = world.layout.pending().join(name);
    let bytes = record.to_bytes();
    let taken = claim::from_pending(&world.layout, &path, identity, &id, State::Waiting, &bytes)?;
    let line = transition(&record, &id, event, State::Pending, to, now.wall);
    let parked = Parked::of(&record, now, world.boot);
    let events = world.events.clone();
    let name = name.to_owned();
    let change = Change::Settle {
        keep: original(world, &id, ext, syntax),
        id,
        at: State::Waiting,
        to,
        leftover: taken.leftover,
    };
    world.committer.submit(change, vec![line], move |_| {
        drop(passage);
        if let Some(command) = command {
            command.carried_out();
        }
        let outcome = match (to, parked) {
            (State::Waiting, Some(parked)) => Diverted::Parked(parked),
            _ => Diverted::Failed,
        };
        let _ = events.send(Event::Diverted {
            name,
            id: own_id,
            outcome,
        });
    });
    Ok(())
}

/// Writes into a new record where it goes and why.
pub fn apply(
    world: &World,
    record: &mut Record,
    wanted: &str,
    request: &Result<Request, Vec<FieldError>>,
    destination: Destination,
) -> (State, &'static str) {
    let now = world.now();
    let config = world.config();
    let max_retries = match request {
        Ok(request) => {
            Terms::of(request, config.specialist(&request.agent), &config)
                .retry
                .max_retries
        }
        Err(_) => config.defaults.retry.max_retries,
    };
    match destination {
        Destination::Wait {
            on,
            length_ms,
            ids,
            reason,
        } => {
            wait(record, on, length_ms, &reason, now, world.boot);
            if !ids.is_empty()
                && let Some(Value::Object(waiting)) = record.doc.get_mut("waiting")
            {
                waiting.insert("ids".to_owned(), ids.into());
            }
            (State::Waiting, "waiting")
        }
        Destination::Fail(told) => {
            fail(record, &told, max_retries, now.wall);
            if let Err(errors) = request {
                name_fields(record, errors);
            }
            let cancelled = told.code == ErrorCode::Cancelled;
            (
                State::Failed,
                if cancelled { "cancelled" } else { "refused" },
            )
        }
        Destination::Duplicate => {
            fail(record, &duplicate(wanted), max_retries, now.wall);
            (State::Failed, "refused")
        }
    }
}

/// Where a plan leads that is not to run now.
pub fn destination(plan: Plan, request: &Request, config: &Config) -> Option<Destination> {
    let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).ok();
    Some(match plan {
        Plan::Run => return None,
        Plan::Refuse(told) => Destination::Fail(told),
        Plan::WaitForTime { length_ms } => Destination::Wait {
            on: "time",
            length_ms: Some(length_ms),
            ids: Vec::new(),
            reason: request
                .not_before
                .map(|at| format!("not before {at}"))
                .unwrap_or_default(),
        },
        Plan::WaitForDependencies { ids } => Destination::Wait {
            on: "dependency",
            length_ms: ms(config.defaults.dependency_wait),
            reason: format!("waits for {} to complete", ids.join(", ")),
            ids,
        },
        Plan::WaitForHuman => Destination::Wait {
            on: "human",
            length_ms: None,
            ids: Vec::new(),
            reason: "it is addressed to a person".to_owned(),
        },
    })
}

fn name_fields(record: &mut Record, errors: &[FieldError]) {
    if !errors.is_empty()
        && let Some(Value::Object(validation)) = record.doc.get_mut("validation")
    {
        let listed = serde_json::to_value(errors).unwrap_or_default();
        validation.insert("errors".to_owned(), listed);
    }
}

/// YAML and Markdown are kept as they were written; JSON stands in the record itself.
pub fn original(world: &World, id: &str, ext: Ext, syntax: Syntax) -> Option<PathBuf> {
    (syntax != Syntax::Json).then(|| world.layout.originals().join(format!("{id}.{ext}")))
}

fn duplicate(id: &str) -> Failure {
    refusal(
        ErrorCode::DuplicateId,
        format!("the id {id} is taken"),
        vec![format!(
            "If this is new work, give it an id of its own (in handoff_id and as the file's name) \
             and drop it again; if it was dropped twice, delete it. The first one is found by: ls \
             handoffs/*/{id}.json"
        )],
    )
}

/// Sends bytes that are no request to `failed/`.
pub fn reject(world: &World, name: &OsStr, broken: Broken) {
    let now = world.now();
    let mut notice = Record::admit(Map::new(), &broken.wanted, None);
    notice.set("dropped_as", name.to_string_lossy().into_owned());
    fail(&mut notice, &broken.told, 0, now.wall);
    let rejection = Rejection {
        source: world.layout.pending().join(name),
        identity: broken.identity,
        wanted: broken.wanted.clone(),
        notice,
        id: String::new(),
    };
    let line = audit::Event::new(now.wall, "refused")
        .about(broken.wanted)
        .with("to", State::Failed.status())
        .with("file", name.to_string_lossy().into_owned())
        .with("code", broken.told.code.as_str())
        .with("message", broken.told.message);
    let events = world.events.clone();
    let name = name.to_owned();
    world.committer.submit(
        Change::Reject(Box::new(rejection)),
        vec![line],
        move |finished| {
            if finished == Finished::Skipped {
                tracing::debug!(
                    file = shown(&name),
                    "it changed before it could be set aside"
                );
            }
            let _ = events.send(Event::Rejected { name });
        },
    );
}

/// What a request with wrong fields is told.
pub fn refused(errors: &[FieldError]) -> Destination {
    Destination::Fail(refused_fields(errors))
}

/// One audit line for one move of a record.
pub fn transition(
    record: &Record,
    id: &str,
    event: &'static str,
    from: State,
    to: State,
    at: crate::clock::Wall,
) -> audit::Event {
    let mut line = audit::Event::new(at, event)
        .about(id)
        .with("from", from.status())
        .with("to", to.status())
        .with("revision", record.meta.revision);
    if let Some(attempt) = record.meta.attempts.last() {
        line = line.with("attempt", attempt.number);
    }
    if let Some(agent) = record
        .doc
        .get("target")
        .and_then(|target| target.get("agent_id"))
    {
        line = line.with("agent", agent.clone());
    }
    if to == State::Failed
        && let Some(error) = record.doc.get("error")
    {
        line = line
            .with("code", error.get("code").cloned().unwrap_or_default())
            .with("message", error.get("message").cloned().unwrap_or_default());
    }
    if to == State::Waiting
        && let Some(waiting) = record.doc.get("waiting")
    {
        line = line.with("waiting", waiting.clone());
    }
    line
}
