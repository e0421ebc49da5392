//! Which changes share a round of the committer's.
//!
//! A change that comes after a rest goes at once. Where one round follows another, it begins no
//! sooner than a few milliseconds after the last one did: what comes in between shares its
//! syncs and wakes nobody, and a handoff that begins and ends in between costs one round and
//! not two. Where the disk makes rounds long, half of the time is for gathering. Slots don't
//! wait for any of this: they are free when the attempt is gone.
//!
//! The claim of an attempt that runs already is kept back for a moment ([`Claims`]): nobody waits
//! for it, and most of them are over, and need no sync of their own, before that has passed.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::protocol::lifecycle::State;
use crate::spool::change::Change;
use crate::spool::commit::Finished;
use crate::store::audit::Event;

/// The most changes that share one round of syncs.
const BATCH: usize = 256;

/// How long the claims of attempts that run already may wait for their outcomes.
const CLAIMS_WAIT: Duration = Duration::from_millis(50);

/// The least time from the beginning of one round to that of the next: after one that had no more
/// than a handoff's own changes, its claim and its outcome, and after one that had more. Where many
/// are worked off, a round's syncs are dear, and none of them is waited for.
const PACE: Duration = Duration::from_millis(4);
const BUSY_PACE: Duration = Duration::from_millis(10);
const FEW: usize = 2;

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
    /// Waits for its turn, and takes what is there by then.
    pub fn gather(&mut self, inbox: &Receiver<Job>, jobs: &mut Vec<Job>) {
        if let Some(next) = self.next {
            // Asleep, and not in the inbox: whoever sends need not wake us.
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        while jobs.len() < BATCH
            && let Ok(job) = inbox.try_recv()
        {
            jobs.push(job);
        }
        self.begun = Some(Instant::now());
    }

    /// A round of so many changes is over.
    pub fn done(&mut self, changes: usize) {
        let least = if changes > FEW { BUSY_PACE } else { PACE };
        self.next = self
            .begun
            .map(|begun| begun + (begun.elapsed() * 2).clamp(least, MOST_PACE));
    }
}

/// Claims that are kept back, with when they came.
#[derive(Default)]
pub(super) struct Claims {
    held: Vec<(Instant, Job)>,
}

impl Claims {
    /// How long until the first of them has waited enough; `None` if there are none.
    pub fn due_in(&self) -> Option<Duration> {
        let (since, _) = self.held.first()?;
        Some(CLAIMS_WAIT.saturating_sub(since.elapsed()))
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Keeps back the claims in `jobs` that may wait, and adds those that have waited enough or
    /// that another job is about: before that one. With `all`, none is kept back.
    pub fn sort(&mut self, jobs: &mut Vec<Job>, now: Instant, all: bool) {
        // Whoever only wants to know that all is written means these too.
        let all = all || jobs.iter().any(|job| matches!(job.change, Change::Note));
        let others = jobs.iter().filter(|job| !job.is_claim());
        let touched: HashSet<String> = others
            .filter_map(|job| job.change.id().map(str::to_owned))
            .collect();
        let may_wait = |job: &Job, since: Instant| {
            !all && now.saturating_duration_since(since) < CLAIMS_WAIT
                && job.change.id().is_none_or(|id| !touched.contains(id))
        };
        let mut ready = Vec::with_capacity(jobs.len());
        for (since, job) in std::mem::take(&mut self.held) {
            if may_wait(&job, since) {
                self.held.push((since, job));
            } else {
                ready.push(job);
            }
        }
        for job in jobs.drain(..) {
            // One that was tried before is not kept back again.
            if job.is_claim() && job.step == Step::New && may_wait(&job, now) {
                self.held.push((now, job));
            } else {
                ready.push(job);
            }
        }
        *jobs = ready;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn job(change: Change) -> Job {
        Job {
            change,
            events: Vec::new(),
            done: None,
            step: Step::New,
            temp: None,
        }
    }

    fn claim(id: &str) -> Job {
        job(Change::Settle {
            id: id.to_owned(),
            at: State::InProgress,
            to: State::InProgress,
            leftover: PathBuf::new(),
            keep: None,
            awaited: false,
        })
    }

    fn outcome(id: &str) -> Job {
        job(Change::Advance {
            id: id.to_owned(),
            from: State::InProgress,
            to: State::Completed,
            bytes: Vec::new(),
        })
    }

    #[test]
    fn rounds_with_changes_of_several_handoffs_lie_further_apart() {
        let wait = |changes| {
            let begun = Instant::now();
            let mut pace = Pace {
                begun: Some(begun),
                next: None,
            };
            pace.done(changes);
            pace.next.unwrap() - begun
        };
        for (changes, least) in [
            (1, PACE),
            (FEW, PACE),
            (FEW + 1, BUSY_PACE),
            (100, BUSY_PACE),
        ] {
            assert!((least..=MOST_PACE).contains(&wait(changes)), "{changes}");
        }
    }

    fn shown(jobs: &[Job]) -> Vec<String> {
        let one = |job: &Job| {
            format!(
                "{}{}",
                u8::from(job.is_claim()),
                job.change.id().unwrap_or("-")
            )
        };
        jobs.iter().map(one).collect()
    }

    #[test]
    fn a_claim_goes_with_its_outcome_or_when_it_has_waited_enough() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        // What comes when, and what goes in that round: 1 stands for a claim, 0 for the rest.
        let rounds: Vec<(u64, Vec<Job>, Vec<&str>)> = vec![
            (0, vec![claim("a"), claim("b")], vec![]),
            (3, vec![claim("c"), outcome("a")], vec!["1a", "0a"]),
            (9, vec![outcome("x")], vec!["0x"]),
            (51, vec![], vec!["1b"]),
            (
                52,
                vec![claim("d"), job(Change::Note)],
                vec!["1c", "1d", "0-"],
            ),
            (60, vec![], vec![]),
        ];
        let mut claims = Claims::default();
        for (ms, mut jobs, goes) in rounds {
            claims.sort(&mut jobs, at(ms), false);
            assert_eq!(shown(&jobs), goes, "after {ms} ms");
        }
        assert!(claims.is_empty());
    }

    #[test]
    fn what_was_tried_before_or_is_awaited_is_not_kept_back() {
        let mut claims = Claims::default();
        let mut tried = claim("a");
        tried.step = Step::Told;
        let mut awaited = claim("b");
        if let Change::Settle { awaited, .. } = &mut awaited.change {
            *awaited = true;
        }
        let mut jobs = vec![tried, awaited];
        claims.sort(&mut jobs, Instant::now(), false);
        assert_eq!(jobs.len(), 2);
        let mut jobs = vec![claim("c")];
        claims.sort(&mut jobs, Instant::now(), true);
        assert_eq!(jobs.len(), 1, "where the disk is in trouble none is");
    }
}
