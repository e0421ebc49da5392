//! Waits: parking records, waking them, and dealing with files nobody expected.

use std::ffi::OsStr;

use crate::engine::event::Event;
use crate::engine::parked::{On, Parked};
use crate::engine::past::Past;
use crate::engine::recovery::{Found, recover_one};
use crate::engine::world::World;
use crate::engine::{Alarm, Busy, Engine, chains, moves};
use crate::mutant;
use crate::policy::intake::{Dependency, Needs, dependency_failed, dependency_missing};
use crate::policy::judge::Failure;
use crate::protocol::error::without_words;
use crate::protocol::lifecycle::State;
use crate::spool::scan::record_id;

const ARTIFACTS_EVERY_MS: u64 = 1000;

/// How often a helper must be missing before it counts as lost, and how long in between.
pub(super) const MISSES: u32 = 5;
const MISSED_AGAIN_MS: u64 = 1000;

/// More handoffs than this that wait for one are looked at when there is time for them.
const FEW_DEPENDENTS: usize = 32;

impl Engine {
    /// Remembers a record that waits, and what ends its wait.
    pub(super) fn park(&mut self, id: &str, parked: Parked) {
        let now = self.now_ms();
        if parked.holds_agent
            && let Some(until) = parked.due_ms
        {
            let config = self.world.config();
            let agent = parked.agent.clone();
            self.schedule
                .hold_account(&agent, until, || Self::limits_of(&config, &agent));
            // One that asks for a pause is asked one at a time whether it goes on.
            self.ahead.refused(agent);
        }
        let due_now = parked.due_ms.is_some_and(|due| due <= now);
        let on = parked.on;
        // One that nobody was there to give is given late rather than never.
        if let Some(warn) = parked.warn_ms.filter(|_| !due_now) {
            self.alarm(warn.max(now), Alarm::Deadline(id.to_owned()));
        }
        self.lot.insert(id, parked);
        match on {
            On::Retry | On::Time if due_now => self.make_ready(id),
            On::Dependency if mutant::is("dependency-by-event-only") => {}
            On::Dependency => {
                self.watch_for_artifacts(id);
                self.check_dependencies(id);
            }
            On::Handoff => self.check_dependencies(id),
            On::Human if due_now => self.on_due(id),
            _ => {}
        }
    }

    /// Nobody tells of a file that appears, so whoever waits for one looks from time to time.
    fn watch_for_artifacts(&mut self, id: &str) {
        let waits = self.lot.get(id).is_some_and(|it| !it.artifacts.is_empty());
        if waits && !self.due.artifacts {
            self.due.artifacts = true;
            let at = self.now_ms() + ARTIFACTS_EVERY_MS;
            self.alarm(at, Alarm::Artifacts);
        }
    }

    pub(super) fn look_for_artifacts(&mut self) {
        self.due.artifacts = false;
        let waiting: Vec<String> = self
            .lot
            .iter()
            .filter(|(_, it)| it.on == On::Dependency && !it.ready && !it.artifacts.is_empty())
            .map(|(id, _)| id.clone())
            .collect();
        for id in waiting {
            self.watch_for_artifacts(&id);
            if !self.busy.contains(&id) {
                self.check_dependencies(&id);
            }
        }
    }

    pub(super) fn make_ready(&mut self, id: &str) {
        let config = self.world.config();
        let arrival = self.world.now().wall.0;
        let Some(parked) = self.lot.get_mut(id) else {
            return;
        };
        parked.ready = true;
        let (agent, priority) = (parked.agent.clone(), parked.priority);
        self.schedule.push(id, &agent, priority, arrival, || {
            Self::limits_of(&config, &agent)
        });
    }

    pub(super) fn on_due(&mut self, id: &str) {
        match self.lot.get(id).map(|parked| parked.on) {
            Some(On::Retry | On::Time) => self.make_ready(id),
            Some(On::Dependency | On::Handoff) => self.check_dependencies(id),
            Some(On::Human) if !self.busy.contains(id) => {
                self.lot.remove(id);
                let id = id.to_owned();
                self.busy.insert(id.clone(), Busy::Waking);
                self.for_gates()
                    .run(move |world| chains::expire(world, &id));
            }
            _ => {}
        }
    }

    /// Looks how those stand that a handoff waits for, when there is time for it.
    pub(super) fn check_dependencies(&mut self, id: &str) {
        if let Some(job) = self.dependency_check(id) {
            self.actors.run_behind(job);
        }
    }

    fn dependency_check(&mut self, id: &str) -> Option<impl FnOnce(&World) + Send + 'static> {
        let parked = self.lot.get_mut(id)?;
        // Those that end while this is being found out are added to what it finds.
        parked.ended = 0;
        let (id, dependencies) = (id.to_owned(), parked.dependencies.clone());
        let artifacts = parked.artifacts.clone();
        self.checks += 1;
        Some(move |world: &World| moves::check_dependencies(world, &id, &dependencies, &artifacts))
    }

    pub(super) fn on_dependency_states(&mut self, id: &str, needs: &Needs) {
        let states = &needs.dependencies;
        self.checks -= 1;
        if self.busy.contains(id) {
            return;
        }
        if self
            .lot
            .get(id)
            .is_some_and(|parked| parked.on == On::Handoff)
        {
            return self.on_helpers(id, states);
        }
        let Some(parked) = self.lot.get(id) else {
            return;
        };
        if parked.on != On::Dependency || parked.ready || parked.dependencies.len() != states.len()
        {
            return;
        }
        let of = |wanted: Dependency| {
            let both = parked.dependencies.iter().zip(states);
            both.filter(|(_, state)| **state == wanted)
                .map(|(id, _)| id.clone())
                .collect::<Vec<_>>()
        };
        if let Some(failed) = of(Dependency::Failed).first() {
            let told = dependency_failed(failed);
            return self.fail_waiting(id, told);
        }
        let missing = of(Dependency::Missing);
        // Its time was taken when it ran out; what exists is waited for without limit.
        let nothing_yet = !missing.is_empty() || !needs.missing_artifacts.is_empty();
        if nothing_yet && parked.due_ms.is_none() {
            let waited = self.world.config().defaults.dependency_wait;
            let told = dependency_missing(&missing, &needs.missing_artifacts, waited);
            return self.fail_waiting(id, told);
        }
        let completed = states.iter().all(|state| *state == Dependency::Completed);
        if completed && needs.missing_artifacts.is_empty() {
            let later = parked
                .not_before
                .is_some_and(|at| at > self.world.now().wall);
            if later {
                self.begin_move(id, moves::wait_for_time);
            } else {
                self.make_ready(id);
            }
        }
    }

    /// Whether all have ended that a handoff has asked for help. One that can't be found may be
    /// on its way from one folder to the next, so that counts only if it stays so.
    fn on_helpers(&mut self, id: &str, states: &[Dependency]) {
        let now = self.now_ms();
        let Some(parked) = self.lot.get_mut(id) else {
            return;
        };
        if parked.dependencies.len() != states.len() {
            return;
        }
        let missing = states.contains(&Dependency::Missing);
        parked.misses = if missing { parked.misses + 1 } else { 0 };
        let lost = parked.misses >= MISSES;
        let ended = |state: &Dependency| match state {
            Dependency::Completed | Dependency::Failed => true,
            Dependency::Missing => lost,
            Dependency::Live => false,
        };
        let count = states.iter().filter(|state| ended(state)).count();
        parked.ended += count;
        if count == states.len() {
            self.begin_move(id, chains::take_returns);
        } else if missing && !lost {
            self.alarm(now + MISSED_AGAIN_MS, Alarm::Helpers(id.to_owned()));
        }
    }

    /// Fails a record that waits, unless something else is being done with it.
    pub(super) fn fail_waiting(&mut self, id: &str, told: Failure) {
        if !self.busy.contains(id) {
            let said = without_words(&told.message);
            tracing::warn!(handoff_id = id, "failed: {}: {said}", told.code);
            self.lot.remove(id);
            let id = id.to_owned();
            self.busy.insert(id.clone(), Busy::Waking);
            // Thousands may fail with the one that they wait for.
            self.actors
                .run_behind(move |world| moves::fail_waiting(world, &id, &told));
        }
    }

    /// Hands a waiting record to a job; it is out of the queue until the job is done.
    fn begin_move(&mut self, id: &str, job: impl FnOnce(&World, &str) + Send + 'static) {
        self.lot.remove(id);
        let id = id.to_owned();
        self.busy.insert(id.clone(), Busy::Waking);
        self.actors.run(move |world| job(world, &id));
    }

    pub(super) fn on_moved(&mut self, id: &str, to: State, parked: Option<Parked>) {
        self.busy.remove(id);
        self.forget_delay(id);
        tracing::info!(handoff_id = id, "{to}");
        self.make_known(id, to, parked.as_ref());
        match parked {
            Some(parked) if to == State::Waiting => self.park(id, parked),
            _ => self.on_ended(id),
        }
        self.wake_commands(id);
    }

    /// Those that it waits for have other ids than when it was parked.
    pub(super) fn on_reparked(&mut self, id: &str, parked: Parked) {
        if self.lot.get(id).is_some() {
            self.park(id, parked);
        }
    }

    pub(super) fn on_unmoved(&mut self, id: String) {
        let waited = self.busy.remove(&id) == Some(Busy::Waking);
        self.wake_commands(&id);
        self.recheck(id, waited);
    }

    /// Somebody may wait for this one.
    pub(super) fn on_ended(&mut self, id: &str) {
        let dependents = self.lot.dependents_of(id);
        let are_many = dependents.len() > FEW_DEPENDENTS;
        for waiting in dependents {
            let Some(parked) = self.lot.get_mut(&waiting) else {
                continue;
            };
            // Of a thousand helpers only the last one's end is worth a look at all of them.
            parked.ended += 1;
            if parked.on == On::Handoff && parked.ended < parked.dependencies.len() {
                continue;
            }
            match self.dependency_check(&waiting) {
                Some(job) if are_many => self.actors.run_behind(job),
                Some(job) => self.actors.run(job),
                None => {}
            }
        }
    }

    /// A file in `in-progress/` or `waiting/` that is not one of ours is treated as
    /// interrupted.
    pub(super) fn check_stray(&mut self, folder: State, name: &OsStr) {
        let Some(id) = record_id(name) else {
            return;
        };
        let known = self.busy.contains(id)
            || self.running.contains_key(id)
            || (folder == State::Waiting && self.lot.get(id).is_some());
        if known {
            return;
        }
        let id = id.to_owned();
        self.busy.insert(id.clone(), Busy::Moving);
        self.actors.run_behind(move |world| {
            let found = if world.is_passing(&id) {
                Found::Nothing
            } else {
                recover_one(world, folder, &id, &mut Past::default())
            };
            world.tell(Event::StrayDone {
                folder,
                id,
                found: Box::new(found),
            });
        });
    }

    pub(super) fn on_stray(&mut self, folder: State, id: &str, found: Found) {
        // What is under way stays busy until its own event, which may have come already.
        if !matches!(found, Found::UnderWay) {
            self.busy.remove(id);
            self.wake_commands(id);
        }
        match found {
            Found::Left(why) => return self.leave(folder, id, why),
            Found::Parked(parked) => self.park(id, parked),
            Found::Running(_) | Found::UnderWay | Found::Nothing => {}
        }
        self.leave_no_more(folder, id);
    }
}
