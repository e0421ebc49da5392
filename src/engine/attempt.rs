//! An attempt's two jobs: starting it, and making an outcome of its end.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use serde_json::json;

use crate::engine::event::{Concluded, Event};
use crate::engine::intake::{Seen, Submission, look_at, original, transition};
use crate::engine::parked::Parked;
use crate::engine::world::World;
use crate::keeper::client::Launch;
use crate::keeper::wire::{self, Key, Why};
use crate::policy::intake::{Plan, Terms, plan, refused_fields};
use crate::policy::judge::{Ended, EndedFor, Exit, Failure, Limits, Verdict, judge};
use crate::policy::next::{Facts, conclude, last_error_digest, refusal};
use crate::protocol::agent::AgentName;
use crate::protocol::error::ErrorCode;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::name::Ext;
use crate::protocol::record::{Attempt, Record};
use crate::protocol::request::Request;
use crate::runner::collect;
use crate::runner::launch::{Briefing, argv, environment, working_dir};
use crate::runner::vitals::{VitalLimits, Vitals};
use crate::spool::claim::{self, TakeError, Taken};
use crate::spool::commit::Change;
use crate::spool::look::{Identity, Looked, look, open_quietly};

/// Where the next attempt's record comes from.
#[derive(Debug)]
pub enum Source {
    Pending {
        ext: Ext,
        read: Option<Box<Submission>>,
    },
    Waiting,
}

#[derive(Debug)]
pub enum NotLaunched {
    /// It left, changed or is not what it was: look at it again.
    LookAgain,
    /// The record was refused instead (its specialist is gone, it was edited); it is on its way.
    Refused,
    Io(String),
}

/// An attempt that runs, as the loop remembers it.
#[derive(Debug)]
pub struct Running {
    pub key: Key,
    pub record: Record,
    /// The record's file, to notice if somebody touches it.
    pub identity: Option<Identity>,
    pub agent: AgentName,
    pub terms: Terms,
    pub slot: u32,
    pub started_boot_ms: u64,
    pub vitals: Vitals,
    pub cpu_ms: Option<u64>,
    /// The loop has asked for its end.
    pub ending: bool,
    /// Who cancelled it and why, in words.
    pub cancelled: Option<String>,
}

impl Running {
    pub fn limits(&self, max_output: u64) -> VitalLimits {
        VitalLimits {
            max_output,
            linger: self.terms.linger,
            stall: self.terms.stall_timeout,
        }
    }

    /// What is journalled with the attempt, so that another daemon can take it over.
    fn note(&self) -> serde_json::Value {
        json!({ "slot": self.slot, "started_boot_ms": self.started_boot_ms })
    }
}

pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Claims the next attempt of `id` and starts it.
pub fn launch(world: &World, id: &str, agent: &AgentName, source: Source) {
    let launched = match source {
        Source::Pending { ext, read } => from_pending(world, id, agent, ext, read),
        Source::Waiting => from_waiting(world, id),
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
                && plan(request, &config, &submission.dependencies, world.now()) == Plan::Run =>
        {
            request.clone()
        }
        _ => return Err(again(NotLaunched::LookAgain)),
    };
    let Submission {
        identity,
        doc,
        sha256,
        syntax,
        ..
    } = *submission;
    let record = Record::admit(doc, id, Some(sha256));
    let path = world.layout.pending().join(&name);
    let keep = original(world, id, ext, syntax);
    begin(world, record, &request, State::Pending, keep, |bytes| {
        claim::from_pending(&world.layout, &path, identity, id, State::InProgress, bytes)
    })
    .map_err(again)
}

fn from_waiting(world: &World, id: &str) -> Launched {
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
    let Ok(record) = Record::read(&bytes) else {
        return Err(again(NotLaunched::LookAgain));
    };
    let stem = HandoffId::parse_made(id).map_err(|_| again(NotLaunched::LookAgain))?;
    let told = match Request::from_document(&record.doc, &stem) {
        Err(errors) => refused_fields(&errors),
        Ok(request) => match plan(&request, &world.config(), &[], world.now()) {
            Plan::Refuse(told) => told,
            _ => {
                return begin(world, record, &request, State::Waiting, None, |bytes| {
                    claim::from_waiting(&world.layout, identity, id, bytes)
                })
                .map_err(again);
            }
        },
    };
    crate::engine::moves::fail_parked(world, id, record, &told, || {});
    Err(again(NotLaunched::Refused))
}

/// Claims, opens, and hands over to the keeper. Nothing waits for the disk here: the claim is
/// made durable with the next batch.
fn begin(
    world: &World,
    mut record: Record,
    request: &Request,
    from: State,
    keep: Option<std::path::PathBuf>,
    take: impl FnOnce(&[u8]) -> Result<Taken, TakeError>,
) -> Result<Running, NotLaunched> {
    let config = world.config();
    let id = request.id.as_str();
    let Some(specialist) = config.specialist(&request.agent) else {
        return Err(NotLaunched::LookAgain);
    };
    let terms = Terms::of(request, Some(specialist), &config);
    let now = world.now();
    let last_error = last_error_digest(&record);
    let number = record.meta.next_attempt();
    record.decide(State::InProgress);
    record.set("started_at", now.wall.to_string());
    record.meta.boot = Some(world.boot.to_owned());
    record.meta.attempts.push(Attempt {
        number,
        started_at: now.wall,
        ended_at: None,
        outcome: None,
        exit_code: None,
        signal: None,
        error: None,
        log: None,
        milliseconds: None,
    });
    let slot = world
        .slots
        .acquire()
        .map_err(|error| NotLaunched::Io(error.to_string()))?;
    let paths = world.paths(id, number);
    collect::clean(&paths);
    let taken = take(&record.to_bytes()).map_err(|error| {
        world.slots.release(slot.number);
        match error {
            TakeError::Io(error) => NotLaunched::Io(error.to_string()),
            TakeError::Gone | TakeError::Changed | TakeError::Taken => NotLaunched::LookAgain,
        }
    })?;
    let path = world.layout.record(State::InProgress, id);
    let briefing = Briefing {
        id,
        attempt: number,
        max_attempts: terms.retry.max_retries.saturating_add(1),
        deadline: now
            .wall
            .plus_ms(i64::try_from(ms(terms.timeout)).unwrap_or(i64::MAX))
            .to_string(),
        record: path.clone(),
        root: world.layout.root(),
        context: world.layout.context(),
        state_file: request.task_id.as_ref().map(|task| {
            world
                .layout
                .context()
                .join("state")
                .join(format!("{task}.json"))
        }),
        last_error,
        paths: &paths,
    };
    let line = transition(&record, id, "started", from, State::InProgress, now.wall);
    let running = Running {
        key: Key::new(id, number),
        record,
        identity: Identity::at(&path).ok(),
        agent: request.agent.clone(),
        slot: slot.number,
        started_boot_ms: now.boot_ms,
        vitals: Vitals::new(now.boot_ms),
        cpu_ms: None,
        ending: false,
        cancelled: None,
        terms,
    };
    let sent = open_quietly(&path).and_then(|stdin| {
        world.keeper().start(Launch {
            key: running.key.clone(),
            argv: argv(specialist, world.layout.root()),
            env: environment(&briefing, specialist, |name| std::env::var_os(name)),
            cwd: working_dir(specialist, world.layout.root()),
            deadline_boot_ms: now.boot_ms.saturating_add(ms(running.terms.timeout)),
            grace_ms: ms(running.terms.kill_grace),
            note: running.note(),
            stdio: [
                stdin.into(),
                OwnedFd::from(slot.stdout),
                OwnedFd::from(slot.stderr),
            ],
        })
    });
    if let Err(error) = sent {
        // A keeper that is gone is noticed by its reader, which finds that this never began.
        tracing::warn!(
            handoff_id = id,
            "the keeper did not take the attempt: {error}"
        );
        if error.kind() != io::ErrorKind::BrokenPipe {
            world.tell(Event::Keeper(wire::Report::StartFailed {
                key: running.key.clone(),
                errno: error.raw_os_error().unwrap_or(0),
                what: error.to_string(),
            }));
        }
    }
    let change = Change::Settle {
        id: id.to_owned(),
        at: State::InProgress,
        to: State::InProgress,
        leftover: taken.leftover,
        keep,
    };
    world.committer.submit(change, vec![line], |_| {});
    Ok(running)
}

/// How an attempt ended, as the keeper tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Exited {
        exit: Exit,
        why: Option<EndedFor>,
    },
    /// The command could not be started.
    NotStarted {
        errno: i32,
        what: String,
    },
    /// It never ran: the keeper knows nothing of it.
    NotBegun,
    Lost {
        reason: String,
    },
}

impl End {
    pub fn of(exit: wire::Exit, why: Option<Why>) -> Self {
        let exit = match exit {
            wire::Exit::Code(code) => Exit::Code(code),
            wire::Exit::Signal(signal) => Exit::Signal(signal),
            wire::Exit::Unknown => Exit::Unknown,
        };
        let why = why.map(|why| match why {
            Why::Timeout => EndedFor::Timeout,
            Why::Cancelled => EndedFor::Cancel,
            Why::Stalled => EndedFor::Stall,
            Why::Linger => EndedFor::Linger,
            Why::Flood => EndedFor::Flood,
            Why::Stop => EndedFor::Stop,
        });
        Self::Exited { exit, why }
    }
}

/// Judges an attempt whose tree is gone, and has the outcome written.
pub fn finish(world: &World, running: Running, end: End) {
    let config = world.config();
    let Running {
        key,
        mut record,
        agent,
        terms,
        slot,
        started_boot_ms,
        cancelled,
        ..
    } = running;
    let paths = world.paths(&key.id, key.attempt);
    let max_output = config.daemon.max_output_size;
    let collected = collect::collect(&world.slots, slot, &paths, max_output);
    let exit = match &end {
        End::Exited { exit, .. } => *exit,
        _ => Exit::Unknown,
    };
    let verdict = match end {
        End::NotStarted { errno, what } => Verdict::Failed(not_started(errno, &what, &agent)),
        End::NotBegun => Verdict::Interrupted {
            counted: false,
            reason: "the daemon ended before the attempt began".to_owned(),
        },
        End::Lost { reason } => Verdict::Interrupted {
            counted: true,
            reason,
        },
        End::Exited { exit, why } => judge(Ended {
            exit,
            why,
            result_file: collected.result_file,
            stdout: collected.stdout,
            stderr_tail: collected.stderr_tail,
            limits: Limits {
                timeout: human(terms.timeout),
                stall_timeout: terms.stall_timeout.map(human).unwrap_or_default(),
                max_output: format!("{max_output} bytes"),
            },
        }),
    };
    let keep_stdout = !matches!(verdict, Verdict::Completed { .. } | Verdict::Held { .. });
    if let Err(error) = collect::keep_logs(&world.slots, slot, &paths, keep_stdout) {
        tracing::warn!(
            handoff_id = key.id,
            "the attempt's log could not be kept: {error}"
        );
    }
    let now = world.now();
    let facts = Facts {
        now,
        boot: world.boot,
        retry: terms.retry,
        chance: chance(),
        max_interruptions: config.daemon.max_interruptions,
        exit,
        log: collected.has_log.then(|| world.layout.relative(&paths.log)),
        ran_ms: now.boot_ms.saturating_sub(started_boot_ms),
        cancelled: cancelled.as_deref().unwrap_or("while it ran"),
    };
    let decision = conclude(&mut record, verdict, &facts);
    write_outcome(world, key, &record, decision.to, decision.event, slot);
}

/// Writes a decided record out of `in-progress/` and cleans up after its attempt.
fn write_outcome(
    world: &World,
    key: Key,
    record: &Record,
    to: State,
    event: &'static str,
    slot: u32,
) {
    let now = world.now();
    let line = transition(record, &key.id, event, State::InProgress, to, now.wall);
    let parked = Parked::of(record, now, world.boot);
    let change = Change::Advance {
        id: key.id.clone(),
        from: State::InProgress,
        to,
        bytes: record.to_bytes(),
    };
    let (events, slots) = (world.events.clone(), world.slots.clone());
    let (paths, keeper) = (world.paths(&key.id, key.attempt), world.keeper());
    world.committer.submit(change, vec![line], move |_| {
        collect::clean(&paths);
        slots.clear(slot);
        slots.release(slot);
        // A keeper that can't be told is one that is gone; the next start forgets it.
        let _ = keeper.forget(&key);
        let _ = events.send(Event::Concluded(Concluded { key, to, parked }));
    });
}

fn not_started(errno: i32, what: &str, agent: &AgentName) -> Failure {
    let system = if errno == 0 {
        String::new()
    } else {
        format!(": {}", io::Error::from_raw_os_error(errno))
    };
    let mut told = refusal(
        ErrorCode::ProcessingError,
        format!("the command of {agent} could not be started ({what}){system}"),
        vec![format!(
            "Correct command or working_dir of [specialists.\"{agent}\"] in handoffd.toml, or \
             install what is missing; then retry"
        )],
    );
    told.retryable = true;
    told
}

fn human(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// A number from 0 to 1 that differs from daemon to daemon: all that jitter needs.
fn chance() -> f64 {
    f64::from(u32::from_le_bytes(first_four(
        uuid::Uuid::now_v7().as_bytes(),
    ))) / f64::from(u32::MAX)
}

fn first_four(bytes: &[u8; 16]) -> [u8; 4] {
    [bytes[12], bytes[13], bytes[14], bytes[15]]
}

/// Looks at every running attempt; one job for all of them.
pub fn sample_all(world: &World, list: Vec<SampleRequest>) {
    let config = world.config();
    let max_output = config.daemon.max_output_size;
    let sampled = list
        .into_iter()
        .map(|request| {
            let paths = world.paths(&request.key.id, request.key.attempt);
            collect::cap_log(&world.slots.stderr_path(request.slot), max_output);
            let record = world.layout.record(State::InProgress, &request.key.id);
            crate::engine::event::Sampled {
                sample: collect::sample(&world.slots, request.slot, &paths, request.cpu_ms),
                whole_result: request.check_result && collect::has_whole_result(&paths, max_output),
                record_touched: request.identity.is_some()
                    && Identity::at(&record).ok() != request.identity,
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
    pub slot: u32,
    pub cpu_ms: Option<u64>,
    pub identity: Option<Identity>,
    pub check_result: bool,
}

/// Puts a running attempt's record back where somebody edited or moved it.
pub fn restore_record(world: &World, id: String, record: &Record) {
    let at = State::InProgress;
    let line = transition(record, &id, "record_restored", at, at, world.now().wall);
    let change = Change::Advance {
        id: id.clone(),
        from: at,
        to: at,
        bytes: record.to_bytes(),
    };
    let (events, path) = (world.events.clone(), world.layout.record(at, &id));
    world.committer.submit(change, vec![line], move |_| {
        let identity = Identity::at(&path).ok();
        let _ = events.send(Event::RecordRestored { id, identity });
    });
}
