//! Judging: from the end of an attempt to its outcome.

use crate::engine::attempt::Running;
use crate::engine::effects::Decided;
use crate::engine::event::Concluded;
use crate::engine::outcome::{End, finish, finish_short};
use crate::engine::workers::{Job, Workers};
use crate::engine::{Alarm, Busy, Engine, tasks};
use crate::protocol::lifecycle::State;

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
        let has_destination = running.record.meta.destination.is_some();
        if self.ahead.may(&running.agent) && !has_destination {
            let judge: Job = Box::new(move |world| finish_short(world, running, end));
            self.judgements.push(judge);
        } else {
            self.judge(running, end);
        }
    }

    /// The threads for what may have to wait for the commands of quality gates.
    pub(super) fn for_gates(&self) -> &Workers {
        if self.world.config().gates.is_empty() {
            &self.actors
        } else {
            &self.slow
        }
    }

    /// Has an attempt judged by one of the threads that act.
    pub(super) fn judge(&mut self, running: Running, end: End) {
        let judge: Job = Box::new(move |world| finish(world, running, end));
        self.finishes.push(judge);
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

    pub(super) fn on_verifying(&mut self, running: Running) {
        let key = running.live_key();
        self.busy.remove(&running.key.id);
        self.wake_commands(&running.key.id);
        self.judging.remove(&running.key.id);
        self.forget_delay(&running.key.id);
        self.forget_large(&running.key.id);
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
    }

    /// A disk that refuses is left alone for a moment; the attempt is judged again after.
    pub(super) fn on_undelivered(&mut self, running: Box<Running>, end: End, error: &str) {
        let id = running.key.id.clone();
        self.forget_large(&id);
        self.delay(&id, error, Delayed::Delivery(running, end));
    }

    pub(super) fn on_unapplied(&mut self, decided: Box<Decided>, error: &str) {
        let id = decided.id.clone();
        self.delay(&id, error, Delayed::Effects(decided));
    }

    fn delay(&mut self, id: &str, error: &str, what: Delayed) {
        let said = format!("can't finish {id} yet: {error}");
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
            unstarted,
            parked,
        } = concluded;
        let id = key.id;
        self.schedule.release(&id);
        self.busy.remove(&id);
        self.judging.remove(&id);
        self.unsaid += 1;
        self.restoring.remove(&id);
        self.forget_delay(&id);
        self.forget_large(&id);
        let short = trouble.clone().filter(|_| unstarted);
        self.problem("start", short);
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
        self.wake_commands(&id);
    }
}

fn unfinished_key(id: &str) -> String {
    format!("unfinished {id}")
}
