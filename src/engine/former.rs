//! What a start finds of the processes before it, and what a death of a resident one means for
//! the next.
//!
//! A resident process is never taken over: the wires to it are gone with the daemon that held
//! them. It is ended, and nothing of its specialist is started before nothing of it is alive.

use std::sync::Arc;

use crate::engine::attempt::{Running, is_resident, ms};
use crate::engine::crew::{Member, Streak};
use crate::engine::outcome::End;
use crate::engine::world::World;
use crate::engine::{Busy, Engine};
use crate::keeper::wire::{self as keeper, Held, Key, State as KeeperState, Why};
use crate::policy::judge::{Exit, exit_words};
use crate::policy::resident::after_death;
use crate::protocol::agent::AgentName;
use crate::protocol::id::HandoffId;
use crate::protocol::record::Record;
use crate::protocol::request::Request;

/// How long what a former daemon left has between SIGTERM and SIGKILL.
const GRACE_MS: u64 = 2_000;
/// Deaths in a row that are no accident any more.
const WORTH_SAYING: u32 = 2;

/// Whether the attempt of this record is one that a resident process does. The keeper does not
/// know such an attempt, so that it does not know it means nothing.
pub fn is_resident_record(world: &World, record: &Record, id: &str) -> bool {
    let request = HandoffId::parse_made(id)
        .ok()
        .and_then(|stem| Request::from_record(record, &stem).ok());
    request.is_some_and(|request| {
        let config = world.config();
        let specialist = config.specialist(&request.agent);
        specialist.is_some_and(crate::config::Specialist::is_resident)
    })
}

/// How an attempt ended of which the keeper knows nothing. An answer that was put down to be
/// verified is whole, unless the machine went down as well.
pub fn lost(world: &World, running: &Running) -> End {
    let Key { id, attempt } = &running.key;
    let same_boot = running.record.meta.boot.as_deref() == Some(world.boot);
    if !same_boot || !is_resident_record(world, &running.record, id) {
        return End::of(keeper::Exit::Unknown, None);
    }
    if world.paths(id, *attempt).result().exists() {
        return answered();
    }
    End::Lost {
        reason: "the daemon ended while a resident process worked on it".to_owned(),
    }
}

/// What is known of work whose answer stands in its result file.
fn answered() -> End {
    End::Exited {
        exit: Exit::Lives,
        why: None,
    }
}

/// How the work ended that a verify command looks at: as the keeper says, unless a resident
/// process had answered, which stands in its result file.
pub fn work_under(checker: &Held, told: End) -> End {
    match checker.note.get("answered") {
        Some(_) => answered(),
        None => told,
    }
}

impl Engine {
    /// Attempts without a record in `in-progress/`: over and written, or taken away by hand. And
    /// resident processes, which are nobody's by now.
    pub(super) fn settle_unclaimed(&mut self, held: Vec<Held>) {
        let keeper = self.world.keeper();
        for held in held {
            if is_resident(&held.key) {
                self.crew.last = self.crew.last.max(held.key.attempt);
            }
            match held.state {
                KeeperState::Ended(_) | KeeperState::Failed(_) => drop(keeper.forget(&held.key)),
                KeeperState::Running | KeeperState::Ending => {
                    let _ = keeper.end(&held.key, Why::Stop, GRACE_MS);
                    if is_resident(&held.key) {
                        self.await_former(held);
                        continue;
                    }
                    tracing::warn!(
                        handoff_id = held.key.id,
                        "an attempt runs without a record: ending it"
                    );
                    self.busy.insert(held.key.id, Busy::Orphan);
                }
            }
        }
        let _ = keeper.flush();
    }

    fn await_former(&mut self, held: Held) {
        let agent = held.note.get("agent").and_then(|agent| agent.as_str());
        let Some(agent) = agent.and_then(|agent| AgentName::parse(agent).ok()) else {
            return;
        };
        let pid = held.pid.map_or_else(String::new, |pid| format!(" ({pid})"));
        let text = format!(
            "a resident process of {agent}{pid} outlived its daemon and is being ended; {agent} \
             starts nothing until it is gone"
        );
        self.problem(&former_key(&agent), Some(text));
        let config = self.world.config();
        self.schedule
            .block(&agent, || Self::limits_of(&config, &agent));
        self.crew.former.insert(held.key, agent);
    }

    /// Whether this was a process of a former daemon; its specialist is free again.
    pub(super) fn on_former_gone(&mut self, key: &Key) -> bool {
        let Some(agent) = self.crew.former.remove(key) else {
            return false;
        };
        self.schedule.unblock(&agent);
        if !self.crew.former.values().any(|other| *other == agent) {
            self.problem(&former_key(&agent), None);
        }
        let key = key.clone();
        self.actors.run(move |world| {
            let keeper = world.keeper();
            let _ = keeper.forget(&key).and_then(|()| keeper.flush());
        });
        true
    }

    /// A new keeper is there: what it knows of all resident processes counts.
    pub(super) fn reconcile_crew(&mut self, count: u64, entries: &[Held]) {
        let numbers: Vec<u32> = self.crew.members.keys().copied().collect();
        for number in numbers {
            self.reconcile(number, count, entries);
        }
        let former: Vec<Key> = self.crew.former.keys().cloned().collect();
        for key in former {
            let held = entries.iter().find(|held| held.key == key);
            let state = held.map(|held| &held.state);
            if matches!(state, Some(KeeperState::Running | KeeperState::Ending)) {
                self.actors
                    .run(move |world| drop(world.keeper().end(&key, Why::Stop, GRACE_MS)));
            } else {
                self.on_former_gone(&key);
            }
        }
    }

    /// A specialist has answered: whatever its processes died of before is over.
    pub(super) fn on_works(&mut self, agent: &AgentName) {
        if self.crew.streaks.remove(agent).is_some() {
            self.problem(&problem_key(agent), None);
        }
    }

    /// A process gives signs of life that was started after the others had died: it is not known
    /// to work yet, so another death counts on, but what is said of those is old.
    pub(super) fn on_begun_well(&mut self, number: u32) {
        let Some(member) = self.crew.members.get(&number) else {
            return;
        };
        let streak = self.crew.streaks.get(&member.agent);
        if streak.is_some_and(|streak| streak.last_ms <= member.since_ms) {
            let key = problem_key(&member.agent);
            self.problem(&key, None);
        }
    }

    /// What its processes died of says nothing of those that would be started now.
    pub(super) fn forget_deaths(&mut self, agent: &AgentName) {
        if let Some(streak) = self.crew.streaks.remove(agent) {
            self.schedule.lift_hold_until(agent, streak.until_ms);
            self.problem(&problem_key(agent), None);
        }
    }

    /// Lets nothing of a specialist start for a while whose processes die before any answer.
    pub(super) fn on_death(&mut self, member: &Member) {
        let how = match (&member.fault, &member.ended) {
            (Some(fault), _) => fault.clone(),
            (None, Some(End::Exited { exit, why: None })) => exit_words(*exit),
            (None, Some(End::NotStarted { what, .. })) => format!("could not start: {what}"),
            _ => return,
        };
        // One that is to be replaced says nothing of those that follow.
        if member.outdated || member.fault.is_none() && member.is_let_go() {
            return;
        }
        let agent = &member.agent;
        let others_work = self
            .crew
            .members
            .values()
            .any(|other| other.agent == *agent && other.answered > 0 && !other.is_leaving());
        let streak = self.crew.streaks.get(agent).map_or(0, |it| it.deaths);
        let backoff = after_death(streak, member.answered > 0, others_work);
        if backoff.streak == 0 {
            return self.on_works(agent);
        }
        let config = self.world.config();
        let now = self.now_ms();
        let until = now.saturating_add(ms(backoff.wait));
        let streak = Streak {
            deaths: backoff.streak,
            specialist: Arc::clone(&member.specialist),
            last_ms: now,
            until_ms: until,
        };
        self.crew.streaks.insert(agent.clone(), streak);
        self.schedule
            .hold(agent, until, || Self::limits_of(&config, agent));
        if backoff.streak >= WORTH_SAYING {
            let text = format!(
                "the resident process of {agent} {how}, {} times in a row without an answer; the \
                 next start waits {}. Read the log of a failed attempt",
                backoff.streak,
                humantime::format_duration(backoff.wait)
            );
            self.problem(&problem_key(agent), Some(text));
        }
    }
}

fn former_key(agent: &AgentName) -> String {
    format!("former {agent}")
}

fn problem_key(agent: &AgentName) -> String {
    format!("resident {agent}")
}
