//! Reading large artifacts: on threads of its own, for no longer than the attempt may take, and
//! only until somebody cancels the handoff.
//!
//! An outcome is judged by one of the threads that act as long as its artifacts are small. One with
//! large artifacts is given back to the loop, which keeps a [`Reading`] for it and has it judged by
//! a thread that only does this. A `cancel` that comes meanwhile is left in the reading.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::config::Config;
use crate::engine::attempt::{Running, ms};
use crate::engine::commands::{self, Dismissal, WholeCommand};
use crate::engine::obey::{cancel_words, wrong_revision};
use crate::engine::outcome::{End, finish_large};
use crate::engine::world::World;
use crate::engine::{Alarm, Engine};
use crate::policy::intake::Terms;
use crate::protocol::control::Action;
use crate::store::artifacts::Bounds;

/// What one outcome may read of its artifacts on a thread that others wait for.
pub const SMALL: u64 = 64 << 20;
/// An attempt that used up its time has at least this for its artifacts, or its whole limit.
const LEAST: Duration = Duration::from_secs(60);
/// A reading that takes longer is shown as a problem.
const LONG_MS: u64 = 2_000;

/// A `cancel` of an attempt that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancel {
    /// Who cancelled it and why.
    pub words: String,
    /// The key of the command.
    pub key: String,
}

/// The outcome of an attempt with large artifacts, on its way.
#[derive(Debug)]
pub struct Reading {
    /// When the time for it is over.
    until_boot_ms: u64,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    /// The attempt, until a thread has begun with it.
    attempt: Option<(Running, End)>,
    cancel: Option<Cancel>,
    closed: bool,
}

impl Reading {
    fn new(attempt: Option<(Running, End)>, until_boot_ms: u64) -> Self {
        let progress = Progress {
            attempt,
            ..Progress::default()
        };
        Self {
            until_boot_ms,
            progress: Mutex::new(progress),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges the attempt, unless another thread has begun with it.
    fn judge(&self, world: &World) {
        let attempt = self.lock().attempt.take();
        if let Some((running, end)) = attempt {
            finish_large(world, running, end, self);
        }
    }

    /// Whether to read on.
    pub fn goes_on(&self, now_boot_ms: u64) -> bool {
        now_boot_ms < self.until_boot_ms && !self.is_cancelled()
    }

    /// Leaves a cancel, unless it comes too late.
    pub fn cancel(&self, cancel: Cancel) -> bool {
        let mut progress = self.lock();
        if progress.closed {
            return false;
        }
        progress.cancel.get_or_insert(cancel);
        true
    }

    fn is_cancelled(&self) -> bool {
        self.lock().cancel.is_some()
    }

    /// The outcome is decided now: no cancel is taken any more. Returns the one that came.
    pub fn close(&self) -> Option<Cancel> {
        let mut progress = self.lock();
        progress.closed = true;
        progress.cancel.take()
    }
}

/// What the loop remembers of a reading.
#[derive(Debug)]
pub struct Large {
    reading: Arc<Reading>,
    revision: u64,
}

/// Until when an attempt's artifacts may be read.
fn deadline(terms: &Terms, started_boot_ms: u64, now_ms: u64) -> u64 {
    let own = started_boot_ms.saturating_add(ms(terms.timeout));
    own.max(now_ms.saturating_add(ms(terms.timeout.min(LEAST))))
}

/// The bounds for a file that is read for anything else but its outcome.
pub fn up_to_the_limit(config: &Config) -> Bounds<'static> {
    Bounds {
        most: config.daemon.max_artifact_size,
        ..Bounds::NONE
    }
}

impl Engine {
    /// Has an outcome judged whose artifacts are large.
    pub(super) fn on_large(&mut self, running: Running, end: End) {
        let id = running.key.id.clone();
        let revision = running.record.meta.revision;
        let now = self.now_ms();
        let until = deadline(&running.terms, running.started_boot_ms, now);
        let reading = Arc::new(Reading::new(Some((running, end)), until));
        let large = Large {
            reading: Arc::clone(&reading),
            revision,
        };
        self.large.insert(id.clone(), large);
        self.alarm(now + LONG_MS, Alarm::Large(id));
        self.large_outcomes.run(move |world| reading.judge(world));
    }

    /// A reading takes its time, or has used it up.
    pub(super) fn large_takes_long(&mut self, id: &str) {
        let Some(large) = self.large.get(id) else {
            return;
        };
        let reading = Arc::clone(&large.reading);
        if self.now_ms() < reading.until_boot_ms {
            self.alarm(reading.until_boot_ms, Alarm::Large(id.to_owned()));
        } else {
            // One that still waits for a thread is judged all the same.
            self.actors.run(move |world| reading.judge(world));
        }
        let said = format!(
            "still reading the artifacts of {id}, which has ended; to stop that: handoffd cancel \
             {id}"
        );
        self.problem(&large_key(id), Some(said));
    }

    /// An outcome with large artifacts is decided, or has to be tried again.
    pub(super) fn forget_large(&mut self, id: &str) {
        if self.large.remove(id).is_some() {
            self.problem(&large_key(id), None);
        }
    }

    /// Cancels a handoff whose artifacts are being read. False if that is not so, or comes too late.
    pub(super) fn cancel_large(&mut self, name: &std::ffi::OsString, whole: &WholeCommand) -> bool {
        let id = whole.command.handoff_id.as_str();
        let Some(large) = self.large.get(id) else {
            return false;
        };
        if whole.command.action != Action::Cancel {
            return false;
        }
        let (reading, revision) = (Arc::clone(&large.reading), large.revision);
        if let Some(wanted) = whole.command.revision.filter(|it| *it != revision) {
            let reason = wrong_revision(wanted, revision);
            self.refuse(name.clone(), whole.identity, reason);
            return true;
        }
        let was_cancelled = reading.is_cancelled();
        let cancel = Cancel {
            words: cancel_words(&whole.command),
            key: whole.key.clone(),
        };
        if !reading.cancel(cancel) {
            return false;
        }
        let done = Dismissal::new(&self.world, name, whole.identity);
        self.dismiss_later(id.to_owned(), done);
        self.orders.hold(name.clone(), id);
        if !was_cancelled {
            let command = whole.command.clone();
            self.actors.run(move |world| {
                commands::note(world, &command);
                reading.judge(world);
            });
        }
        true
    }
}

fn large_key(id: &str) -> String {
    format!("large {id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cancel(words: &str) -> Cancel {
        Cancel {
            words: words.to_owned(),
            key: "key".to_owned(),
        }
    }

    #[test]
    fn a_cancel_counts_until_the_outcome_is_decided() {
        let reading = Reading::new(None, 100);
        assert!(reading.goes_on(99) && !reading.goes_on(100));
        assert!(reading.cancel(cancel("first")));
        assert!(reading.cancel(cancel("second")));
        assert!(!reading.goes_on(0));
        assert_eq!(reading.close(), Some(cancel("first")));
        assert!(!reading.cancel(cancel("late")));
        assert_eq!(reading.close(), None);
    }

    #[test]
    fn reading_counts_in_the_time_of_the_attempt_and_always_has_some() {
        let config = Config::default();
        for (timeout, now, until) in [
            // What is left of the limit, and a minute at least.
            (600, 10_000, 600_000),
            (600, 590_000, 650_000),
            (600, 9_000_000, 9_060_000),
            // A limit below a minute counts once more.
            (2, 1_900, 3_900),
        ] {
            let terms = Terms {
                timeout: Duration::from_secs(timeout),
                ..terms(&config)
            };
            assert_eq!(deadline(&terms, 0, now), until, "{timeout} s at {now}");
        }
    }

    fn terms(config: &Config) -> Terms {
        use crate::protocol::id::HandoffId;
        use crate::protocol::request::Request;
        let doc = serde_json::json!({ "target": { "agent_id": "a" } });
        let id = HandoffId::parse_made("x").unwrap();
        let request = Request::from_document(doc.as_object().unwrap(), &id).unwrap();
        Terms::of(&request, None, config)
    }
}
