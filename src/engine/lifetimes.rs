//! Lifetimes: from the launch of an attempt to its outcome.

use std::ffi::{OsStr, OsString};

use crate::clock::{Now, Wall};
use crate::engine::attempt::{self, NotLaunched, Running, Source};
use crate::engine::effects::Decided;
use crate::engine::event::{Concluded, Sampled};
use crate::engine::launch::launch;
use crate::engine::outcome::{End, finish};
use crate::engine::sampling::{SampleRequest, restore_record, sample_all};
use crate::engine::{Alarm, Busy, Engine, VITALS_EVERY_MS, tasks};
use crate::keeper::wire::{Key, Report, Why};
use crate::protocol::agent::AgentName;
use crate::protocol::lifecycle::State;
use crate::runner::vitals::Finding;
use crate::spool::look::Identity;

/// How many attempts that ended while no daemon ran are judged at the same time.
const JUDGED_AT_ONCE: usize = 128;
/// How long a disk that refused something is left alone.
const AGAIN_AFTER_MS: u64 = 1000;

/// What waits to be tried again.
#[derive(Debug)]
pub enum Delayed {
    Delivery(Box<Running>, End),
    Effects(Box<Decided>),
}

impl Engine {
    /// Has an attempt claimed and started. Its slot is taken already.
    pub(super) fn launch(&mut self, id: &str, agent: AgentName) {
        let slots = self.schedule.max_concurrent();
        let ahead =
            self.ahead.most(slots) > 0 && self.ahead.may(&agent) && self.pending.contains(id);
        let source = if let Some(ext) = self.pending.remove(id) {
            let name = OsString::from(format!("{id}.{ext}"));
            self.unclosed.remove(&name);
            // What is said of a file ends when the file is heard to be gone.
            if self.problems.is_empty() && !self.watcher.is_polling() {
                self.leaving.note(name);
            }
            Source::Pending {
                ext,
                read: self.kept.take(id),
            }
        } else {
            self.lot.remove(id);
            Source::Waiting
        };
        let post = self.post_for(id, &agent);
        let id = id.to_owned();
        if ahead {
            self.busy.insert(id.clone(), Busy::Ahead);
        } else {
            self.busy.insert(id.clone(), Busy::Launching);
            self.at_once.insert(id.clone());
        }
        let launches = if ahead {
            &mut self.preparations
        } else {
            &mut self.launches
        };
        launches.push(Box::new(move |world| {
            launch(world, &id, &agent, source, post, ahead);
        }));
    }

    pub(super) fn on_launched(&mut self, running: Running) {
        let id = running.key.id.clone();
        self.busy.remove(&id);
        self.at_once.remove(&id);
        self.problem("claim", None);
        tracing::info!(
            handoff_id = id,
            attempt = running.key.attempt,
            agent = %running.agent,
            "started"
        );
        if let Some(end) = self.early_ends.remove(&running.key) {
            return self.conclude(running, end);
        }
        match running.post {
            Some(_) => self.on_given(running),
            None => self.take_over(running),
        }
        self.watch_vitals();
        self.reread_deferred();
    }

    pub(super) fn on_not_launched(&mut self, id: &str, from: &Source, why: &NotLaunched) {
        self.schedule.release(id);
        self.at_once.remove(id);
        if let Source::Pending { ext, .. } = from {
            self.leaving.stays(OsStr::new(&format!("{id}.{ext}")));
        }
        self.vacate(id);
        // A refused one stays busy until its new place is written, which may be told already.
        if !matches!(why, NotLaunched::Refused) {
            self.busy.remove(id);
        }
        match why {
            NotLaunched::Refused => {}
            NotLaunched::LookAgain => self.look_again(id, from),
            NotLaunched::NotAhead(agent) => {
                self.ahead.refused(agent.clone());
                self.look_again(id, from);
            }
            NotLaunched::Fixed(why) => {
                if let Source::Pending { ext, .. } = from {
                    self.leave_file(&format!("{id}.{ext}").into(), why);
                }
            }
            NotLaunched::Io(error) => {
                self.pause(error);
                self.look_again(id, from);
            }
        }
        self.reread_deferred();
    }

    fn look_again(&mut self, id: &str, from: &Source) {
        match from {
            Source::Pending { ext, .. } => self.queue_look(format!("{id}.{ext}").into()),
            Source::Waiting => self.recheck(id.to_owned(), true),
        }
    }

    pub(super) fn on_report(&mut self, report: Report) {
        match report {
            Report::Ended { key, exit, why } => self.on_end(key, End::of(exit, why)),
            Report::StartFailed { key, errno, what } => {
                self.on_end(key, End::NotStarted { errno, what });
            }
            Report::Begun {
                key,
                wall_ms,
                boot_ms,
                modified_ns,
            } => {
                let wall = Wall(wall_ms);
                self.on_begun(&key, Now { wall, boot_ms }, modified_ns);
            }
            Report::Returned { key, why } => self.on_returned(&key, &why),
            Report::Usage { key, cpu_ms } => {
                let running = if attempt::is_resident(&key) {
                    self.handoff_at(&key)
                } else {
                    self.running.get_mut(attempt::handoff_of(&key))
                };
                if let Some(running) = running {
                    running.cpu_ms = cpu_ms.or(running.cpu_ms);
                }
            }
            Report::Hello { .. } | Report::Inventory { .. } | Report::Started { .. } => {}
        }
    }

    fn on_end(&mut self, key: Key, end: End) {
        if attempt::is_resident(&key) {
            return self.on_resident_end(&key, end);
        }
        let id = attempt::handoff_of(&key);
        let is_current = self
            .running
            .get(id)
            .is_some_and(|running| running.live_key() == key);
        // A verify command is started while its attempt is being concluded.
        let starting = match self.busy.get(id) {
            Some(Busy::Launching | Busy::Ahead) => true,
            Some(Busy::Concluding) => id != key.id,
            _ => false,
        };
        if is_current {
            if let Some(running) = self.running.remove(id) {
                self.conclude(running, end);
            }
        } else if starting {
            self.early_ends.insert(key, end);
        } else {
            self.on_orphan_gone(&key);
        }
    }

    /// The tree is gone: the slot is free, whatever the disk still has to do, unless the work
    /// is going to be verified in it.
    pub(super) fn conclude(&mut self, running: Running, end: End) {
        let id = running.key.id.clone();
        let config = self.world.config();
        let verifies = config
            .specialist(&running.agent)
            .is_some_and(|specialist| specialist.verify.is_some());
        if running.verify.is_some() || !verifies {
            self.schedule.release(&id);
        }
        if let End::Exited { why: None, .. } = end {
            let ran_ms = self.now_ms().saturating_sub(running.started_boot_ms);
            self.ahead.ended(&running.agent, ran_ms, &config);
        }
        self.busy.insert(id, Busy::Concluding);
        if !config.gates.is_empty() && tasks::task_of(&running.record).is_some() {
            return self.slow.run(move |world| finish(world, running, end));
        }
        let jobs = if self.ahead.may(&running.agent) {
            &mut self.quick
        } else {
            &mut self.finishes
        };
        jobs.push(Box::new(move |world| finish(world, running, end)));
    }

    /// Has attempts judged that ended while no daemon ran: a few at a time, because what is new
    /// shares the disk with them.
    pub(super) fn feed_judgements(&mut self) {
        while self.judging.len() < JUDGED_AT_ONCE {
            let Some((running, end)) = self.to_judge.pop_front() else {
                return;
            };
            self.judging.insert(running.key.id.clone());
            self.conclude(*running, end);
        }
    }

    fn on_orphan_gone(&mut self, key: &Key) {
        if self.busy.get(&key.id) == Some(&Busy::Orphan) {
            self.busy.remove(&key.id);
            let key = key.clone();
            self.actors.run(move |world| {
                let keeper = world.keeper();
                let _ = keeper.forget(&key).and_then(|()| keeper.flush());
            });
            self.list(crate::engine::event::Folder::Pending, true);
        }
    }

    pub(super) fn on_verifying(&mut self, running: Running) {
        let key = running.live_key();
        self.busy.remove(&running.key.id);
        self.judging.remove(&running.key.id);
        self.forget_delay(&running.key.id);
        tracing::info!(
            handoff_id = running.key.id,
            attempt = key.attempt,
            "verifying"
        );
        if let Some(end) = self.early_ends.remove(&key) {
            return self.conclude(running, end);
        }
        self.take_over(running);
        self.watch_vitals();
        self.reread_deferred();
    }

    /// A disk that refuses is left alone for a moment; the attempt is judged again after.
    pub(super) fn on_undelivered(&mut self, running: Box<Running>, end: End, error: &str) {
        let id = running.key.id.clone();
        self.delay(&id, error, Delayed::Delivery(running, end));
    }

    pub(super) fn on_unapplied(&mut self, decided: Box<Decided>, error: &str) {
        let id = decided.id.clone();
        self.delay(&id, error, Delayed::Effects(decided));
    }

    fn delay(&mut self, id: &str, error: &str, what: Delayed) {
        let said = format!("{id} can't be finished yet: {error}");
        self.problem(&unfinished_key(id), Some(said));
        self.delayed.insert(id.to_owned(), what);
        let at = self.now_ms() + AGAIN_AFTER_MS;
        self.alarm(at, Alarm::Again(id.to_owned()));
    }

    /// It was finished after all.
    pub(super) fn forget_delay(&mut self, id: &str) {
        if !self.problems.is_empty() {
            self.problem(&unfinished_key(id), None);
        }
    }

    pub(super) fn try_again(&mut self, id: &str) {
        match self.delayed.remove(id) {
            Some(Delayed::Delivery(running, end)) => {
                self.actors.run(move |world| finish(world, *running, end));
            }
            Some(Delayed::Effects(decided)) => self.apply(decided),
            None => {}
        }
    }

    /// Has what follows from a decided outcome applied, and the record moved on after it.
    pub(super) fn apply(&self, decided: Box<Decided>) {
        self.actors
            .run(move |world| crate::engine::effects::apply(world, decided));
    }

    pub(super) fn on_concluded(&mut self, concluded: Concluded) {
        let Concluded {
            key,
            to,
            trouble,
            parked,
        } = concluded;
        let id = key.id;
        self.schedule.release(&id);
        self.busy.remove(&id);
        self.judging.remove(&id);
        self.unsaid += 1;
        self.restoring.remove(&id);
        self.forget_delay(&id);
        match trouble {
            None => tracing::info!(handoff_id = id, attempt = key.attempt, "{to}"),
            Some(why) => tracing::warn!(handoff_id = id, attempt = key.attempt, "{to}: {why}"),
        }
        self.make_known(&id, to, parked.as_ref());
        for dismissal in self.dismissals.remove(&id).unwrap_or_default() {
            self.actors.run(move |_| dismissal.carried_out());
        }
        match parked {
            Some(parked) if to == State::Waiting => self.park(&id, parked),
            _ => self.on_ended(&id),
        }
        self.reread_deferred();
    }

    /// Sees to it that running attempts are looked at from time to time.
    pub(super) fn watch_vitals(&mut self) {
        if !self.due.vitals && !self.running.is_empty() {
            self.due.vitals = true;
            let at = self.now_ms() + VITALS_EVERY_MS;
            self.alarm(at, Alarm::Vitals);
        }
    }

    pub(super) fn sample(&mut self) {
        self.due.vitals = false;
        self.end_overdue();
        let list: Vec<SampleRequest> = self
            .running
            .values()
            .filter(|running| running.ending.is_none())
            .map(|running| SampleRequest {
                key: running.key.clone(),
                live: running.live_key(),
                slot: running.live_slot(),
                cpu_ms: running.cpu_ms,
                identity: running.identity,
                check_result: running.vitals.is_lingering(),
                post: running.post.clone(),
            })
            .collect();
        let stalls: Vec<Key> = self
            .running
            .values()
            .filter(|running| running.terms.stall_timeout.is_some() && running.ending.is_none())
            .map(Running::live_key)
            .collect();
        if !list.is_empty() {
            self.actors.run(move |world| {
                let keeper = world.keeper();
                for key in &stalls {
                    // Without an answer the last known figure stands.
                    let _ = keeper.usage(key);
                }
                let _ = keeper.flush();
                sample_all(world, list);
            });
        }
        self.watch_vitals();
    }

    /// The keeper knows when a spawned attempt has to end; of what a resident process does it
    /// knows nothing.
    fn end_overdue(&mut self) {
        let now = self.now_ms();
        let overdue: Vec<String> = self
            .running
            .values()
            .filter(|running| running.ending.is_none() && running.is_overdue(now))
            .map(|running| running.key.id.clone())
            .collect();
        for id in overdue {
            self.end(&id, Why::Timeout, None);
        }
    }

    pub(super) fn on_sampled(&mut self, samples: Vec<Sampled>) {
        let now = self.now_ms();
        let max_output = self.world.config().daemon.max_output_size;
        for sampled in samples {
            let Some(running) = self.running.get_mut(&sampled.id) else {
                continue;
            };
            if running.key.attempt != sampled.attempt || running.ending.is_some() {
                continue;
            }
            let limits = running.limits(max_output);
            let why = match running.vitals.look(sampled.sample, limits, now) {
                Finding::Fine => None,
                Finding::Flood => Some(Why::Flood),
                Finding::Stalled => Some(Why::Stalled),
                Finding::Lingering => sampled.whole_result.then_some(Why::Linger),
            };
            if let Some(why) = why {
                self.end(&sampled.id, why, None);
            } else if sampled.record_touched && !self.restoring.contains(&sampled.id) {
                self.put_back(&sampled.id);
            }
        }
    }

    /// A running attempt's record was edited or moved: it is put back, and that is said.
    fn put_back(&mut self, id: &str) {
        let Some(running) = self.running.get(id) else {
            return;
        };
        tracing::warn!(
            handoff_id = id,
            "its record was edited or moved while it runs; put back"
        );
        self.restoring.insert(id.to_owned());
        let (id, known) = (id.to_owned(), running.identity);
        let record = running.record.clone();
        self.actors
            .run(move |world| restore_record(world, id, &record, known));
    }

    pub(super) fn on_restored(&mut self, id: &str, identity: Option<Identity>) {
        self.restoring.remove(id);
        if let Some(running) = self.running.get_mut(id) {
            running.identity = identity;
        }
    }

    /// Asks the keeper to end an attempt's whole tree.
    pub(super) fn end(&mut self, id: &str, why: Why, grace_ms: Option<u64>) {
        let Some(running) = self.running.get_mut(id) else {
            return;
        };
        let grace_ms = grace_ms.unwrap_or_else(|| attempt::ms(running.terms.kill_grace));
        running.ending = Some((why, grace_ms));
        let key = running.live_key();
        if let Some(post) = &running.post {
            self.crew.mark_ending(post.number, why, grace_ms);
        }
        tracing::info!(handoff_id = id, attempt = key.attempt, "ending it: {why:?}");
        self.actors
            .run(move |world| drop(world.keeper().end(&key, why, grace_ms)));
    }
}

fn unfinished_key(id: &str) -> String {
    format!("unfinished {id}")
}
