//! The committer: one thread that makes decided changes durable, in batches.
//!
//! Changes that are ready together share their syncs, so that durability does not cost a disk
//! flush for each handoff ([`batch`](super::batch)). Each batch goes: new contents
//! written, audit lines written, both synced; contents put in place (they are now decided);
//! records moved; folders synced; only then is anybody told.
//!
//! A change that can't be made stays here and is tried again, from new files, until it can: an
//! outcome is never reported as written before it is, and a failed sync is never believed on
//! its second try.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::durable::{self, Durability};
use crate::spool::batch::{Claims, Job, Pace, Step, is_bare, superseded};
use crate::spool::change::Change;
use crate::spool::layout::Layout;
use crate::spool::place::Placer;
use crate::spool::reserve::Reserve;
use crate::spool::spare::Spares;
use crate::spool::told::Told;
use crate::store::audit::{AuditLog, Event};

/// How long to leave a disk alone that refused something.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// What became of a change, once it is on disk.
#[derive(Debug, PartialEq, Eq)]
pub enum Finished {
    Done,
    /// The file was rejected, and its notice has this id.
    Rejected(String),
    /// The file to reject was gone or had changed: nothing was done.
    Skipped,
}

/// Shown how many changes a round has, and the audit lines that it wrote.
pub type OnRound = Box<dyn Fn(usize, &[&Event]) + Send>;

/// The way in. Cheap to clone.
#[derive(Clone)]
pub struct Committer {
    jobs: Sender<Job>,
    spares: Spares,
    told: Told,
}

impl Committer {
    /// Starts the thread. `on_trouble` is called when a change can't be made, with the reason,
    /// and with `None` when all could be made again.
    pub fn start(
        layout: Layout,
        audit: AuditLog,
        durability: Durability,
        on_trouble: impl Fn(Option<String>) + Send + 'static,
        on_round: Option<OnRound>,
    ) -> io::Result<(Self, std::thread::JoinHandle<()>)> {
        let (jobs, inbox) = channel();
        let spares = Spares::new(&layout.spares(), durability);
        let told = Told::default();
        let mut worker = Worker {
            reserve: Reserve::hold(layout.reserve()),
            placer: Placer::new(layout, durability, spares.clone()),
            audit,
            durability,
            on_trouble: Box::new(on_trouble),
            on_round,
            troubled: false,
            told: told.clone(),
            syncers: durable::Syncers::start()?,
            pace: Pace::default(),
            claims: Claims::default(),
        };
        let thread = std::thread::Builder::new()
            .name("commit".to_owned())
            .spawn(move || {
                // Without this thread nothing would ever end again. What runs is kept for the
                // next daemon, which decides anew whatever this one had not written.
                if catch_unwind(AssertUnwindSafe(|| worker.run(&inbox))).is_err() {
                    tracing::error!("can't write to disk any more: exiting, to be restarted");
                    std::process::exit(1);
                }
            })?;
        Ok((Self { jobs, spares, told }, thread))
    }

    /// Lines that are not to be written again.
    pub fn told(&self) -> &Told {
        &self.told
    }

    /// Temporary files to use again.
    pub fn spares(&self) -> &Spares {
        &self.spares
    }

    pub fn submit(
        &self,
        change: Change,
        events: Vec<Event>,
        done: impl FnOnce(Finished) + Send + 'static,
    ) {
        // The thread only ends after every sender is gone.
        let _ = self.jobs.send(Job {
            change,
            events,
            done: Some(Box::new(done)),
            step: Step::New,
            temp: None,
        });
    }
}

struct Worker {
    placer: Placer,
    reserve: Reserve,
    audit: AuditLog,
    durability: Durability,
    on_trouble: Box<dyn Fn(Option<String>) + Send>,
    on_round: Option<OnRound>,
    troubled: bool,
    told: Told,
    syncers: durable::Syncers,
    pace: Pace,
    claims: Claims,
}

impl Worker {
    fn run(&mut self, inbox: &Receiver<Job>) {
        let mut open = true;
        let mut jobs: Vec<Job> = Vec::new();
        while open || !jobs.is_empty() {
            let waits = !jobs.is_empty() || self.reserve.is_used();
            let retry = waits.then_some(RETRY_AFTER);
            let first = match [retry, self.claims.due_in()].into_iter().flatten().min() {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(patience) => inbox.recv_timeout(patience),
            };
            match first {
                Ok(job) => jobs.push(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected)
                    if jobs.is_empty() && self.claims.is_empty() =>
                {
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    // Nobody is left to wait for a broken disk; the next start redoes it.
                    if !open {
                        return;
                    }
                    open = false;
                }
            }
            self.pace.gather(inbox, &mut jobs);
            let all = self.troubled || !open;
            self.claims.sort(&mut jobs, Instant::now(), all);
            if jobs.is_empty() {
                if self.reserve.is_used() {
                    self.tell_trouble(None);
                }
                continue;
            }
            let changes = jobs.len();
            let trouble = self.round(&mut jobs).err();
            self.pace.done(changes);
            self.tell_trouble(trouble);
        }
    }

    fn tell_trouble(&mut self, trouble: Option<io::Error>) {
        if let Some(error) = trouble {
            self.troubled = true;
            self.reserve.give(&error);
            (self.on_trouble)(Some(error.to_string()));
        } else if self.troubled && !self.reserve.is_missing() {
            self.troubled = false;
            (self.on_trouble)(None);
        }
    }

    /// Makes what it can of `jobs`; what could not be made stays in it.
    fn round(&mut self, jobs: &mut Vec<Job>) -> io::Result<()> {
        let rides = superseded(jobs);
        let mut first_error = None;
        let mut note = |error: io::Error| first_error = first_error.take().or(Some(error));
        let mut files: Vec<Option<File>> = Vec::with_capacity(jobs.len());
        for (job, rides) in jobs.iter_mut().zip(&rides) {
            if rides.is_some() {
                files.push(None);
                continue;
            }
            files.push(self.placer.prepare(job).unwrap_or_else(|error| {
                note(error);
                None
            }));
        }
        let mut ready: Vec<bool> = jobs
            .iter()
            .zip(&files)
            .zip(&rides)
            .map(|((job, file), rides)| file.is_some() || rides.is_some() || is_bare(job))
            .collect();
        if let Err(error) = self.write_audit(jobs, &ready) {
            note(self.placer.mend_folders(error));
            ready.fill(false);
        } else if let Err(error) = self.sync(files, &mut ready) {
            note(error);
        }
        for ((job, _), _) in jobs
            .iter_mut()
            .zip(&ready)
            .zip(&rides)
            .filter(|((job, ready), rides)| **ready && rides.is_none() && job.step < Step::Moved)
        {
            match self.placer.place(job) {
                Ok(step) => job.step = step,
                Err(error) => note(self.placer.mend_folders(error)),
            }
        }
        for (at, rides) in rides.iter().enumerate() {
            if rides.is_some_and(|successor| jobs[successor].step == Step::Moved) {
                jobs[at].step = Step::Moved;
            }
        }
        match self.sync_folders(jobs) {
            Ok(()) => self.finish(jobs),
            Err(error) => note(error),
        }
        first_error.map_or(Ok(()), Err)
    }

    fn write_audit(&mut self, jobs: &mut [Job], ready: &[bool]) -> io::Result<()> {
        let mut events = Vec::new();
        for (job, ready) in jobs.iter().zip(ready) {
            if *ready && job.step == Step::New {
                let untold = job.events.iter().filter(|event| !self.told.knows(event));
                events.extend(untold);
            }
        }
        // An empty batch still syncs: the last one may have failed to.
        self.audit.append(&events)?;
        if let Some(on_round) = &self.on_round {
            on_round(jobs.len(), &events);
        }
        for (job, ready) in jobs.iter_mut().zip(ready) {
            if *ready && job.step == Step::New {
                job.step = Step::Told;
            }
        }
        Ok(())
    }

    /// Syncs the audit lines and the new contents, all at the same time, and takes from `ready`
    /// those that could not be synced.
    fn sync(&mut self, files: Vec<Option<File>>, ready: &mut [bool]) -> io::Result<()> {
        if self.durability == Durability::Relaxed {
            return self.audit.sync().inspect_err(|_| ready.fill(false));
        }
        let mut syncs: Vec<durable::Sync> = Vec::new();
        let mut places = Vec::new();
        for (at, file) in files.into_iter().enumerate() {
            if let (Some(file), true) = (file, ready[at]) {
                places.push(at);
                syncs.push(Box::new(move || {
                    durable::sync_file(&file, Durability::Full)
                }));
            }
        }
        let audit = &mut self.audit;
        let (told, said) = self.syncers.run(syncs, || audit.sync());
        if told.is_err() {
            ready.fill(false);
            return told;
        }
        let mut first = Ok(());
        for (at, result) in places.into_iter().zip(said) {
            ready[at] = result.is_ok();
            first = first.and(result);
        }
        first
    }

    /// Syncs every folder once that a change of this round was made in.
    fn sync_folders(&self, jobs: &[Job]) -> io::Result<()> {
        if self.durability == Durability::Relaxed {
            return Ok(());
        }
        let moved = jobs.iter().filter(|job| job.step == Step::Moved);
        let folders: BTreeSet<PathBuf> = moved
            .flat_map(|job| job.change.folders(&self.placer.layout))
            .collect();
        let durability = self.durability;
        let sync = |folder: &PathBuf| -> durable::Sync {
            let folder = folder.clone();
            Box::new(move || durable::sync_dir(&Layout::open_dir(&folder)?, durability))
        };
        let mut syncs: Vec<durable::Sync> = folders.iter().map(sync).collect();
        let Some(own) = syncs.pop() else {
            return Ok(());
        };
        let (own, said) = self.syncers.run(syncs, own);
        said.into_iter().collect::<io::Result<()>>().and(own)
    }

    fn finish(&self, jobs: &mut Vec<Job>) {
        for mut job in std::mem::take(jobs) {
            let finished = match job.step {
                Step::Moved => match &job.change {
                    Change::Reject(rejection) => Finished::Rejected(rejection.id.clone()),
                    _ => Finished::Done,
                },
                Step::Skipped => Finished::Skipped,
                Step::New | Step::Told => {
                    jobs.push(job);
                    continue;
                }
            };
            if let Change::Settle { leftover, keep, .. } = &job.change {
                self.placer.let_go(leftover, keep.as_deref());
            }
            if let Some(replaced) = &job.temp {
                self.placer.let_go(replaced, None);
            }
            if let Some(done) = job.done.take() {
                done(finished);
            }
        }
    }
}

#[cfg(test)]
#[path = "commit_tests.rs"]
mod tests;
