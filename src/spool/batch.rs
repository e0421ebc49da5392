//! Which changes share a round of the committer's.
//!
//! A change that comes after a rest goes at once. Where one round follows another, it begins no
//! sooner than a few milliseconds after the last one did: what comes in between shares its
//! syncs and wakes nobody, and a handoff that begins and ends in between costs one round and
//! not two. Where the disk makes rounds long, half of the time is for gathering. Slots don't
//! wait for any of this: they are free when the attempt is gone.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::protocol::lifecycle::State;
use crate::spool::change::Change;
use crate::spool::commit::Finished;
use crate::store::audit::Event;

/// The most changes that share one round of syncs.
const BATCH: usize = 256;

/// How long the claims of attempts that run already may wait for other changes.
const CLAIMS_WAIT: Duration = Duration::from_millis(50);

/// The least time from the beginning of one round to that of the next.
const PACE: Duration = Duration::from_millis(4);

/// The most that a change waits because rounds are long.
const MOST_PACE: Duration = Duration::from_millis(20);

pub(super) type Done = Box<dyn FnOnce(Finished) + Send>;

/// A change on its way.
pub(super) struct Job {
    pub(super) change: Change,
    pub(super) events: Vec<Event>,
    pub(super) done: Option<Done>,
    pub(super) step: Step,
    /// Where the new content stands, and after the exchange the one that it took the place of.
    pub(super) temp: Option<PathBuf>,
}

impl Job {
    /// A claim of an attempt that runs already, which is synced only so that its loss counts.
    fn is_claim(&self) -> bool {
        let in_progress = State::InProgress;
        matches!(&self.change, Change::Settle { at, to, awaited: false, .. } if *at == in_progress && *to == in_progress)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    New,
    /// Its audit lines are written; they are not written again.
    Told,
    /// It stands in its last folder, which may not be synced yet.
    Moved,
    Skipped,
}

/// When the next round may begin.
#[derive(Debug, Default)]
pub(super) struct Pace {
    begun: Option<Instant>,
    next: Option<Instant>,
}

impl Pace {
    /// Waits for its turn, and takes what is there by then. Claims alone wait a moment longer
    /// for company: nobody waits for them, and most of them are over, and need no sync of their
    /// own, before it has passed.
    pub fn gather(&mut self, inbox: &Receiver<Job>, jobs: &mut Vec<Job>, troubled: bool) {
        if let Some(next) = self.next {
            // Asleep, and not in the inbox: whoever sends need not wake us.
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        let mut patience = CLAIMS_WAIT;
        while jobs.len() < BATCH {
            let job = if jobs.iter().all(Job::is_claim) && !troubled {
                let begin = Instant::now();
                let job = inbox.recv_timeout(patience);
                patience = patience.saturating_sub(begin.elapsed());
                job.ok()
            } else {
                inbox.try_recv().ok()
            };
            let Some(job) = job else { break };
            jobs.push(job);
        }
        self.begun = Some(Instant::now());
    }

    /// A round is over.
    pub fn done(&mut self) {
        self.next = self
            .begun
            .map(|begun| begun + (begun.elapsed() * 2).clamp(PACE, MOST_PACE));
    }
}

/// For each claim whose outcome is in the same batch, where that is. Such a claim is not synced
/// for itself: it is over when its outcome stands, and until then its old bytes are kept.
pub(super) fn superseded(jobs: &[Job]) -> Vec<Option<usize>> {
    let mut outcomes = HashMap::new();
    for (at, job) in jobs.iter().enumerate() {
        if let Change::Advance { id, from, .. } = &job.change
            && job.step < Step::Moved
        {
            outcomes.insert((id.as_str(), *from), at);
        }
    }
    let of = |(at, job): (usize, &Job)| match &job.change {
        Change::Settle {
            id, at: folder, to, ..
        } if folder == to && job.step < Step::Moved => outcomes
            .get(&(id.as_str(), *folder))
            .copied()
            .filter(|outcome| *outcome > at),
        _ => None,
    };
    jobs.iter().enumerate().map(of).collect()
}

pub(super) fn is_bare(job: &Job) -> bool {
    matches!(job.change, Change::Note | Change::Move { .. }) || job.step >= Step::Moved
}
