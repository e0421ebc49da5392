//! Diverting: submissions that leave `pending/` for `waiting/` or `failed/` without running.

use std::ffi::OsStr;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::config::Config;
use crate::engine::admit::admit;
use crate::engine::attempt::shown;
use crate::engine::commands::Dismissal;
use crate::engine::delivery;
use crate::engine::effects::{Decided, has_effects};
use crate::engine::event::{Diverted, Event};
use crate::engine::intake::{Broken, Submission};
use crate::engine::packages;
use crate::engine::parked::Parked;
use crate::engine::story::{refusal_line, transition};
use crate::engine::tasks;
use crate::engine::world::World;
use crate::policy::complete::{complete, deliver, not_starting};
use crate::policy::follow::{Author, after_success, return_of};
use crate::policy::human::{Kind, ask_person};
use crate::policy::intake::{Plan, Terms, refused_fields};
use crate::policy::judge::{Delivered, Exit, Failure, Success, Verdict};
use crate::policy::next::{Facts, conclude, fail, link, refusal, wait};
use crate::policy::receive::not_understood;
use crate::policy::retry::RetryPolicy;
use crate::protocol::dialect::Dialect;
use crate::protocol::document::Syntax;
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::lifecycle::State;
use crate::protocol::name::Ext;
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::protocol::view::View;
use crate::spool::change::Change;
use crate::spool::claim::{self, Submitted, TakeError};
use crate::spool::commit::Finished;
use crate::spool::look::fixed;
use crate::spool::reject::{Rejection, free_id};

/// Where a submission that does not run goes.
#[derive(Debug)]
pub enum Destination {
    Fail(Failure),
    /// It is well-formed, but its id is taken: it fails under a numbered one.
    Duplicate,
    /// A report that ends its work: there is nothing to run.
    Complete,
    /// A report that is blocked.
    Help,
    /// A person has to answer first.
    Ask(Kind),
    Wait {
        on: &'static str,
        length_ms: Option<u64>,
        ids: Vec<String>,
        reason: String,
    },
}

impl Destination {
    /// What the daemon's log says of a refusal.
    fn refusal(&self) -> Option<String> {
        match self {
            Self::Fail(told) => Some(format!("{}: {}", told.code, told.message)),
            Self::Duplicate => Some("the id is taken".to_owned()),
            _ => None,
        }
    }
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
                TakeError::Io(error) => match fixed(&world.layout.pending().join(&name)) {
                    Some(why) => Diverted::Fixed(why),
                    None => Diverted::Io(error.to_string()),
                },
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

/// A handoff that waits for others is received when it is about to run.
fn is_received_now(destination: &Destination) -> bool {
    !matches!(
        destination,
        Destination::Duplicate
            | Destination::Wait {
                on: "dependency" | "time",
                ..
            }
    )
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
        receipt,
        ..
    } = submission;
    let id = match destination {
        Destination::Duplicate => free_id(&world.layout, &wanted),
        _ => wanted.clone(),
    };
    let own_id = (id == wanted).then(|| id.clone());
    let passage = world.passage(&id);
    let mut record = admit(world, doc, &id, sha256);
    let path = world.layout.pending().join(name);
    let durability = world.config().daemon.durability;
    let submitted = Submitted::new(&path, identity, (&record, syntax), durability);
    if let Some(receipt) = receipt.filter(|_| is_received_now(&destination)) {
        record.set("acknowledgment", receipt.acknowledgment);
    }
    let refused = destination.refusal();
    world.expected.tell_made(&mut record, &id);
    let (to, event) = apply(world, &mut record, &wanted, &request, destination);
    if let Some(back) = return_of(&record, &id, &world.config(), now.wall) {
        back.put_into(&mut record);
    }
    tasks::forewarn(world, &mut record, &id);
    let bytes = record.to_bytes();
    let taken = claim::from_pending(
        &world.layout,
        world.committer.spares(),
        submitted,
        &id,
        State::Waiting,
        &bytes,
    )?;
    if let Some(why) = refused {
        tracing::warn!(handoff_id = wanted, "refused: {why}");
    }
    // What it sets in motion is made once it stands in waiting/, decided.
    let effects = has_effects(&record);
    world.expected.await_from(&record, &id);
    let line = transition(&record, &id, event, State::Pending, to, now.wall);
    world.board.note(&record, &id, to, now.wall);
    packages::note(world, &record, &id, to);
    let parked = Parked::of(&record, now, world.boot);
    let events = world.events.clone();
    let (name, own) = (name.to_owned(), id.clone());
    let change = Change::Settle {
        keep: original(world, &id, ext, syntax),
        id: id.clone(),
        at: State::Waiting,
        to: if effects { State::Waiting } else { to },
        leftover: taken.leftover,
        awaited: false,
    };
    let told = events.clone();
    let after = move || {
        drop(passage);
        if let Some(command) = command {
            command.carried_out();
        }
        let outcome = match (to, parked) {
            (State::Waiting, Some(parked)) => Diverted::Parked(parked),
            _ => Diverted::Ended { id: own, to },
        };
        let _ = events.send(Event::Diverted {
            name,
            id: own_id,
            outcome,
        });
    };
    if effects {
        let decided = Box::new(Decided {
            id,
            record,
            from: State::Waiting,
            to,
            after: Box::new(after),
            tries: 0,
            renamed: false,
        });
        world.committer.submit(change, vec![line], move |_| {
            let _ = told.send(Event::Decided(decided));
        });
    } else {
        world.committer.submit(change, vec![line], move |_| after());
    }
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
    let retry = match request {
        Ok(request) => Terms::of(request, config.specialist(&request.agent), &config).retry,
        Err(_) => RetryPolicy::of(&config.defaults.retry),
    };
    let max_retries = retry.max_retries;
    match destination {
        Destination::Wait {
            on,
            length_ms,
            ids,
            reason,
        } => {
            not_starting(record);
            // A moment has passed since the plan was made; the instant has stayed the same.
            let instant = request.as_ref().ok().and_then(|it| it.not_before);
            let left = instant.map(|at| u64::try_from(at.0.saturating_sub(now.wall.0)));
            let length_ms = match left {
                Some(left) if on == "time" => Some(left.unwrap_or(0)),
                _ => length_ms,
            };
            wait(record, on, length_ms, &reason, now, world.boot);
            if !ids.is_empty()
                && let Some(Value::Object(waiting)) = record.doc.get_mut("waiting")
            {
                waiting.insert("ids".to_owned(), ids.into());
            }
            (State::Waiting, "waiting")
        }
        Destination::Fail(told) => {
            let view = View::of_record(record);
            if let (Err(wrong), Dialect::Report) = (request, view.dialect) {
                let acknowledgment = not_understood(&view, wrong);
                record.set("acknowledgment", acknowledgment);
            }
            fail(record, &told, max_retries, now.wall);
            let cancelled = told.code == ErrorCode::Cancelled;
            (
                State::Failed,
                if cancelled { "cancelled" } else { "refused" },
            )
        }
        Destination::Complete => {
            not_starting(record);
            let delivered = reported(world, record, request);
            let before = record.clone();
            let report = record.submitted_document();
            let success = Success {
                result: Some(report.clone()),
                delivered,
                ..Success::default()
            };
            complete(record, success, now.wall);
            let (id, author) = (id_of(record), Author::Reporter);
            let followed = after_success(record, &id, &report, author, &config, now.wall);
            link(record, followed);
            let id = id_of(record);
            tasks::report_against_gates(world, before, record, &id)
        }
        Destination::Help => {
            not_starting(record);
            let report = record.submitted_document();
            let facts = Facts {
                now,
                boot: world.boot,
                retry,
                chance: 0.0,
                max_interruptions: config.daemon.max_interruptions,
                exit: Exit::Unknown,
                log: None,
                usage: None,
                ran_ms: 0,
                cancelled: "",
                id: &id_of(record),
                config: &config,
            };
            let decision = conclude(record, Verdict::Blocked(report, Vec::new()), &facts);
            (decision.to, decision.event)
        }
        Destination::Ask(kind) => {
            let reason = match kind {
                Kind::Task => "addressed to a human",
                Kind::Gate => "a human must approve it before it runs",
                Kind::Review => "the report asks for a review",
                Kind::Blocked => "blocked; a human can help",
            };
            not_starting(record);
            // Behind a gate somebody goes on with the report, and a blocked one delivers nothing.
            if matches!(kind, Kind::Review | Kind::Task) {
                let delivered = reported(world, record, request);
                deliver(record, &delivered);
            }
            ask_person(record, kind, reason, now, world.boot);
            (State::Waiting, "waiting_human")
        }
        Destination::Duplicate => {
            fail(record, &duplicate(wanted), max_retries, now.wall);
            (State::Failed, "refused")
        }
    }
}

/// What a dropped report delivers that nobody goes on with.
fn reported(
    world: &World,
    record: &mut Record,
    request: &Result<Request, Vec<FieldError>>,
) -> Delivered {
    match request {
        Ok(request) => delivery::reported::delivered(world, record, request),
        Err(_) => Delivered::default(),
    }
}

fn id_of(record: &Record) -> String {
    let id = record.doc.get("handoff_id").and_then(Value::as_str);
    id.unwrap_or_default().to_owned()
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
        Plan::Complete => Destination::Complete,
        Plan::WaitForDependencies { ids, artifacts } => Destination::Wait {
            on: "dependency",
            length_ms: ms(config.defaults.dependency_wait),
            reason: dependency_reason(&ids, &artifacts),
            ids,
        },
        Plan::WaitForHuman(kind) => Destination::Ask(kind),
        Plan::Help => Destination::Help,
    })
}

/// What a handoff waits for, in words.
fn dependency_reason(ids: &[String], artifacts: &[String]) -> String {
    let mut parts = Vec::new();
    if !ids.is_empty() {
        parts.push(format!("waits for {} to complete", ids.join(", ")));
    }
    if !artifacts.is_empty() {
        parts.push(format!("waits for the artifact {}", artifacts.join(", ")));
    }
    parts.join("; ")
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
            "If this is new work, give it an id of its own (in handoff_id and as the file's \
             name) and drop it again; if it was dropped twice, delete it. To see the first: \
             handoffd show {id}"
        )],
    )
}

/// Sends bytes that are no request to `failed/`.
pub fn reject(world: &World, name: &OsStr, broken: Broken) {
    // Asked first, because to the committer it would look as if nothing could be written.
    if let Some(why) = fixed(&world.layout.pending().join(name)) {
        let name = name.to_owned();
        return world.tell(Event::Immovable { name, why });
    }
    let now = world.now();
    let mut notice = Record::admit(Map::new(), &broken.wanted, None);
    notice.set("dropped_as", name.to_string_lossy().into_owned());
    fail(&mut notice, &broken.told, 0, now.wall);
    let line = refusal_line(&notice, &broken.wanted, now.wall);
    let rejection = Rejection {
        source: world.layout.pending().join(name),
        identity: broken.identity,
        wanted: broken.wanted,
        notice,
        id: String::new(),
    };
    let events = world.events.clone();
    let name = name.to_owned();
    world.committer.submit(
        Change::Reject(Box::new(rejection)),
        vec![line],
        move |finished| {
            if finished == Finished::Skipped {
                tracing::debug!(
                    file = shown(&name),
                    "it changed before the daemon could set it aside"
                );
            }
            let id = match finished {
                Finished::Rejected(id) => Some(id),
                Finished::Done | Finished::Skipped => None,
            };
            let _ = events.send(Event::Rejected { name, id });
        },
    );
}

/// What a request with wrong fields is told.
pub fn refused(errors: &[FieldError]) -> Destination {
    Destination::Fail(refused_fields(errors))
}
