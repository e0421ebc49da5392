//! Who may watch the engine from outside, and when it speaks to them.
//!
//! The engine is below whatever runs it, so it knows nobody by name: it tells an [`Observer`] that
//! it is ready, reads its configuration again, stops, is still alive. Who listens decides what
//! becomes of it; [`Unwatched`] lets all of it go. Calls come from the loop itself, so an observer
//! must be quick, and [`Observer::alive`] is silent exactly when the loop is stuck.

use std::fmt;
use std::time::Duration;

use crate::engine::{Alarm, Engine, attempt};

/// Told what becomes of the daemon. Every method may be left out.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Recovery is over, and requests are taken.
    fn ready(&self, _status: &str) {}
    /// The configuration is about to be read again.
    fn reloading(&self) {}
    /// It was read, or the old one stays; the status says which.
    fn reloaded(&self, _status: &str) {}
    /// No new attempts from now on.
    fn stopping(&self) {}
    /// What is going on, in a few words.
    fn status(&self, _text: &str) {}
    /// How often [`Observer::alive`] is wanted, if at all.
    fn watchdog(&self) -> Option<Duration> {
        None
    }
    /// The loop goes round.
    fn alive(&self) {}
}

/// Nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Observer for Unwatched {}

/// What a status line counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub running: usize,
    pub waiting: usize,
    pub queued: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            running,
            waiting,
            queued,
        } = self;
        write!(f, "{running} running, {waiting} waiting, {queued} queued")
    }
}

/// A status is told at most this often.
const STATUS_EVERY_MS: u64 = 1000;

/// What was told last, and when more may be.
#[derive(Debug, Default)]
pub(super) struct Told {
    counts: Option<Counts>,
    next_ms: u64,
    /// An alarm will ask again.
    due: bool,
}

impl Told {
    /// What to do about these counts now: tell them, or ask again at a time.
    fn judge(&mut self, now_ms: u64, counts: Counts) -> Tell {
        if self.due || self.counts == Some(counts) {
            return Tell::Nothing;
        }
        if now_ms < self.next_ms {
            self.due = true;
            return Tell::At(self.next_ms);
        }
        self.counts = Some(counts);
        self.next_ms = now_ms + STATUS_EVERY_MS;
        Tell::Now
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Tell {
    Nothing,
    Now,
    At(u64),
}

impl Engine {
    /// The numbers, each of which is known without counting.
    pub(super) fn counts(&self) -> Counts {
        Counts {
            running: self.running.len(),
            waiting: self.lot.len(),
            queued: self.pending.len(),
        }
    }

    /// Tells the counts if they changed.
    pub(super) fn tell_status(&mut self) {
        let counts = self.counts();
        match self.told.judge(self.now_ms(), counts) {
            Tell::Nothing => {}
            Tell::Now => self.observer.status(&counts.to_string()),
            Tell::At(at) => self.alarm(at, Alarm::Status),
        }
    }

    /// The time has come to tell the counts again.
    pub(super) fn status_due(&mut self) {
        self.told.due = false;
    }

    /// Says that the loop goes round, and will again.
    pub(super) fn show_alive(&mut self) {
        if let Some(every) = self.observer.watchdog() {
            self.observer.alive();
            let at = self.now_ms() + attempt::ms(every).max(1);
            self.alarm(at, Alarm::Watchdog);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_once_and_at_most_once_a_second() {
        let counts = |running| Counts {
            running,
            ..Counts::default()
        };
        let mut told = Told::default();
        assert_eq!(told.judge(0, counts(0)), Tell::Now);
        assert_eq!(told.judge(5, counts(0)), Tell::Nothing, "the same");
        assert_eq!(told.judge(10, counts(1)), Tell::At(1000), "too soon");
        assert_eq!(told.judge(20, counts(2)), Tell::Nothing, "one alarm is set");
        told.due = false;
        assert_eq!(told.judge(1000, counts(2)), Tell::Now);
        assert_eq!(told.judge(5000, counts(3)), Tell::Now, "long ago");
        assert_eq!(counts(3).to_string(), "3 running, 0 waiting, 0 queued");
    }
}
