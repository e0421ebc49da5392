//! Outcomes: the job that judges an attempt whose tree is gone, and has the outcome written.

mod delivered;
mod reported;
mod unstarted;
mod verdict;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::attempt::{NO_SLOT, Running};
use crate::engine::delivery::brings_files;
use crate::engine::effects::settle;
use crate::engine::event::{Concluded, Event};
use crate::engine::last_result;
use crate::engine::moves::remember;
use crate::engine::parked::Parked;
use crate::engine::reading::Reading;
use crate::engine::story::transition;
use crate::engine::tasks;
use crate::engine::verify;
use crate::engine::world::World;
use crate::keeper::wire::{self, Key, Why};
use crate::policy::judge::{EndedFor, Exit, Success, Verdict};
use crate::policy::next::{Facts, conclude};
use crate::policy::starts;
use crate::protocol::error::without_words;
use crate::protocol::lifecycle::State;
use crate::protocol::question::Inquiry;
use crate::protocol::record::Record;
use crate::protocol::usage;
use crate::runner::collect::{self, Collected};
use crate::runner::launch::AttemptPaths;
use crate::runner::resident::wires::Answer;

use delivered::{Step, take_delivery};
use reported::{Seen, add_report};
use verdict::verdict;

pub use verdict::limits;

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
    /// A resident process answered.
    Answered(Box<Answer>),
    /// A resident process is gone, and did not answer.
    Died(Box<Death>),
}

/// The end of a resident process, in the middle of a handoff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    pub exit: Exit,
    pub why: Option<EndedFor>,
    /// The rule that it broke, and was ended for.
    pub fault: Option<String>,
    /// What it wrote to stderr since it was given the handoff.
    pub stderr: Vec<u8>,
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

    fn exit(&self) -> Exit {
        match self {
            Self::Exited { exit, .. } => *exit,
            Self::Died(death) => death.exit,
            _ => Exit::Unknown,
        }
    }
}

/// Judges an attempt whose tree is gone, and has the outcome written; or has its work verified
/// first.
pub fn finish(world: &World, running: Running, end: End) {
    finish_within(world, running, end, Bounds::Small);
}

/// Like [`finish`], on a thread that nobody else waits for: artifacts of any size are read, until
/// the attempt's time is over or somebody cancels it.
pub fn finish_large(world: &World, running: Running, end: End, reading: &Reading) {
    finish_within(world, running, end, Bounds::Large(reading));
}

/// Like [`finish`], on a thread that others wait for: an attempt that brought files is given back to
/// the loop.
pub fn finish_short(world: &World, running: Running, end: End) {
    finish_within(world, running, end, Bounds::NoFiles);
}

/// What may be done for an outcome.
#[derive(Clone, Copy)]
enum Bounds<'a> {
    /// Small files are read.
    Small,
    /// No files are read, which may be of any size.
    NoFiles,
    Large(&'a Reading),
}

fn finish_within(world: &World, running: Running, end: End, bounds: Bounds<'_>) {
    let config = world.config();
    let (work, verified) = match &running.verify {
        None => (end.clone(), None),
        Some(verify) => (verify.work.clone(), Some(verify.slot)),
    };
    let Key { id, attempt } = &running.key;
    let paths = world.paths(id, *attempt);
    let max_output = config.daemon.max_output_size;
    let (collected, report) = left_by(world, &running, &work, &paths);
    let (has_log, printed, beside) = (collected.has_log, collected.printed, collected.beside);
    let left = last_result::left(&collected);
    let now = world.now();
    let facts = Facts {
        now,
        boot: world.boot,
        retry: running.terms.retry,
        chance: chance(),
        max_interruptions: config.daemon.max_interruptions,
        exit: work.exit(),
        log: has_log.then(|| world.layout.relative(&paths.log())),
        usage: left.as_ref().and_then(usage::of_result),
        ran_ms: now.boot_ms.saturating_sub(running.started_boot_ms),
        cancelled: running.cancelled.as_deref().unwrap_or("while it ran"),
        id,
        config: &config,
    };
    let mut verdict = verdict(world, &work, collected, &running, &config);
    let review = matches!(verdict, Verdict::NeedsReview(_));
    let mut cancel = None;
    // Work that goes on after the answer is neither delivered nor verified yet.
    let goes_on = matches!(&verdict, Verdict::NeedsReview(success) if goes_on(success));
    if !goes_on && let Verdict::Completed(success) | Verdict::NeedsReview(success) = verdict {
        if matches!(bounds, Bounds::NoFiles) && brings_files(&success) {
            let running = Box::new(running);
            return world.tell(Event::BroughtFiles { running, end });
        }
        let said = verified.map(|slot| verify::judge(world, &running, slot, &end));
        let step = take_delivery(world, &running, success, said, bounds);
        if let Bounds::Large(reading) = bounds {
            cancel = reading.close();
        }
        match step {
            _ if cancel.is_some() => verdict = Verdict::Cancelled,
            Step::Judged(judged) => {
                verdict = match *judged {
                    Verdict::Completed(success) if review => Verdict::NeedsReview(success),
                    judged => judged,
                }
            }
            Step::Verify(command, success) => {
                if let Some(slot) = verified {
                    verify::clean_up(world, &running, slot);
                }
                if let Err(error) = report.put_down(&paths) {
                    return undelivered(world, running, end, &error);
                }
                return have_verified(world, &running, &command, work, &success, &facts);
            }
            Step::Large => {
                let running = Box::new(running);
                return world.tell(Event::Large { running, end });
            }
            Step::Trouble(error) => return undelivered(world, running, end, &error),
        }
    }
    let words = cancel.as_ref().map(|cancel| cancel.words.as_str());
    let facts = Facts {
        cancelled: words.unwrap_or(facts.cancelled),
        ..facts
    };
    if matches!(verdict, Verdict::Held { .. }) {
        // Before anything else: those that wait for their turn would use up what is short. A keeper
        // that can't be told is gone, and starts none of them.
        let _ = world.keeper().give_back();
    }
    let (verdict, gates) = pass_gates(world, &running, verdict, &facts);
    let kept = match last_result::keep(world, &running.record, id, &verdict, left) {
        Ok(kept) => kept,
        Err(error) => return undelivered(world, running, end, &error),
    };
    let large = last_result::is_large(&running.record, kept.as_ref());
    let keep_stdout = beside || !matches!(verdict, Verdict::Completed(_) | Verdict::Held { .. });
    if printed {
        put_logs_away(world, &running, &paths, keep_stdout, max_output);
    }
    if let Some(slot) = verified {
        verify::clean_up(world, &running, slot);
    }
    let mut record = running.record;
    if let Some(cancel) = &cancel {
        remember(&mut record, cancel.key.clone());
    }
    world.expected.tell_made(&mut record, id);
    let decision = conclude(&mut record, verdict, &facts);
    last_result::note(&mut record, decision.to, kept);
    tasks::keep_gates(&mut record, gates);
    remember_leftover(world, &record, decision.to);
    let left = (running.slot, printed, large);
    write_outcome(world, running.key, &record, decision.event, left);
}

/// What an attempt left, with its report file where it has one.
fn left_by(
    world: &World,
    running: &Running,
    work: &End,
    paths: &AttemptPaths,
) -> (Collected, Seen) {
    let max_output = world.config().daemon.max_output_size;
    let mut collected = match work {
        End::Answered(answer) => collect::of_resident(Some(&answer.result), &answer.stderr, paths),
        End::Died(death) => collect::of_resident(None, &death.stderr, paths),
        _ => collect::collect(&world.slots, running.slot, paths, max_output),
    };
    let seen = match work {
        End::Exited { .. } => add_report(world, running, paths, &mut collected),
        _ => Seen::default(),
    };
    (collected, seen)
}

/// Whether the question of a result says that approving it runs it again.
fn goes_on(success: &Success) -> bool {
    let asked = success.result.as_ref().and_then(Inquiry::of_result);
    asked.is_some_and(|asked| asked.approve_reruns)
}

/// The disk refuses: the outcome is tried again later.
fn undelivered(world: &World, running: Running, end: End, error: &io::Error) {
    world.tell(Event::Undelivered {
        running: Box::new(running),
        end,
        error: error.to_string(),
    });
}

fn put_logs_away(
    world: &World,
    running: &Running,
    paths: &AttemptPaths,
    keep_stdout: bool,
    most: u64,
) {
    let kept = collect::keep_logs(&world.slots, running.slot, paths, keep_stdout, most);
    if let Err(error) = kept {
        tracing::warn!(
            handoff_id = running.key.id,
            "can't keep the attempt's log: {error}"
        );
    }
}

/// Starts the command that looks at the work.
fn have_verified(
    world: &World,
    running: &Running,
    command: &[String],
    work: End,
    success: &Success,
    facts: &Facts<'_>,
) {
    let mut running = running.clone();
    let request = Arc::clone(&running.request);
    running.verify = None;
    let end = work.clone();
    let started = verify::start(world, &mut running, &request, command, work, success, facts);
    let running = Box::new(running);
    world.tell(match started {
        Ok(()) => Event::Verifying(running),
        Err(error) => Event::Undelivered {
            running,
            end,
            error: error.to_string(),
        },
    });
}

/// Asks the quality gates of the task that the work belongs to, if it belongs to one.
fn pass_gates(
    world: &World,
    running: &Running,
    verdict: Verdict,
    facts: &Facts<'_>,
) -> (Verdict, Vec<serde_json::Value>) {
    let Verdict::Completed(success) = &verdict else {
        return (verdict, Vec::new());
    };
    if tasks::task_of(&running.record).is_none() {
        return (verdict, Vec::new());
    }
    let mut preview = running.record.clone();
    conclude(&mut preview, Verdict::Completed(success.clone()), facts);
    match tasks::ask_gates(world, &preview, facts.id) {
        Ok(said) => (verdict, said),
        Err(told) => (Verdict::Failed(*told), Vec::new()),
    }
}

/// What an attempt leaves at its destination is its handoff's own when it comes again.
fn remember_leftover(world: &World, record: &Record, to: State) {
    let (Some(path), Some(id)) = (
        record.meta.destination.as_deref(),
        record
            .doc
            .get("handoff_id")
            .and_then(serde_json::Value::as_str),
    ) else {
        return;
    };
    match to {
        State::Failed | State::Waiting => {
            let durability = world.config().daemon.durability;
            if let Err(error) = world.leftovers.remember(id, path, durability) {
                tracing::warn!(handoff_id = id, "can't note {path} as its own: {error}");
            }
        }
        State::Completed => world.leftovers.forget(id),
        _ => {}
    }
}

/// Writes a decided record out of `in-progress/` and cleans up after its attempt.
fn write_outcome(
    world: &World,
    key: Key,
    record: &Record,
    event: &'static str,
    (slot, printed, large): (u32, bool, bool),
) {
    let now = world.now();
    let to = record.meta.to.unwrap_or(State::InProgress);
    let line = transition(record, &key.id, event, State::InProgress, to, now.wall);
    let parked = Parked::of(record, now, world.boot);
    let trouble = trouble_of(record);
    let unstarted = record
        .meta
        .attempts
        .last()
        .is_some_and(starts::is_postponed);
    let (events, slots) = (world.events.clone(), world.slots.clone());
    let (paths, keeper) = (world.paths(&key.id, key.attempt), world.keeper());
    let reserved = world.reservations();
    let rubbish = Arc::clone(&world.rubbish);
    let id = key.id.clone();
    let results = large.then(|| last_result::Unused::of(world, record, &id));
    settle(
        world,
        &id,
        record,
        State::InProgress,
        vec![line],
        move || {
            if paths.home.is_some() {
                slots.retire(slot);
            } else if printed {
                slots.clear(slot);
            }
            collect::clean(&paths, &rubbish);
            if let Some(results) = results {
                results.remove();
            }
            slots.release(slot);
            reserved.release(&key.id);
            // A keeper that can't be told is one that is gone; the next start forgets it. What a
            // resident process did it never knew.
            if slot != NO_SLOT {
                let _ = keeper.forget(&key);
            }
            let _ = events.send(Event::Concluded(Concluded {
                key,
                to,
                trouble,
                unstarted,
                parked,
            }));
        },
    );
}

/// What was wrong with the last attempt, in a line for the daemon's own log.
fn trouble_of(record: &Record) -> Option<String> {
    const MOST_CHARS: usize = 200;
    let error = record.meta.attempts.last()?.error.as_ref()?;
    let first = without_words(&error.message)
        .lines()
        .next()
        .unwrap_or_default();
    let first: String = first.chars().take(MOST_CHARS).collect();
    Some(format!("{}: {first}", error.code))
}

fn human(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// A number from 0 to 1 that differs from daemon to daemon: all that jitter needs.
fn chance() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let [a, b, c, d, ..] = RandomState::new().hash_one(()).to_le_bytes();
    f64::from(u32::from_le_bytes([a, b, c, d])) / f64::from(u32::MAX)
}
