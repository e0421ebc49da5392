//! Outcomes: the job that judges an attempt whose tree is gone, and has the outcome written.

use std::io;
use std::time::Duration;

use crate::engine::attempt::Running;
use crate::engine::event::{Concluded, Event};
use crate::engine::parked::Parked;
use crate::engine::story::transition;
use crate::engine::world::World;
use crate::keeper::wire::{self, Key, Why};
use crate::policy::judge::{Ended, EndedFor, Exit, Failure, Limits, Verdict, judge};
use crate::policy::next::{Facts, conclude, refusal};
use crate::protocol::agent::AgentName;
use crate::protocol::error::ErrorCode;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::result::Output;
use crate::runner::collect;
use crate::spool::change::Change;

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
            reason: "it had not begun when the daemon or its keeper ended".to_owned(),
        },
        End::Lost { reason } => Verdict::Interrupted {
            counted: true,
            reason,
        },
        End::Exited {
            exit: Exit::Code(0),
            why: None,
        } if collected.stdout_lost && collected.result_file == Output::Nothing => {
            Verdict::Interrupted {
                counted: true,
                reason: "the file it printed to was deleted while it ran".to_owned(),
            }
        }
        End::Exited { exit, why } => judge(&Ended {
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
    if let Err(error) = collect::keep_logs(&world.slots, slot, &paths, keep_stdout, max_output) {
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
