//! The crew: the resident processes, as the loop remembers them.
//!
//! A member is hired by the first handoff that finds nobody idle, does one handoff at a time, and
//! is let go between two of them: its stdin ends, and when it lingers, so does it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::config::Specialist;
use crate::engine::attempt::{Post, ms, resident_key};
use crate::engine::heard::HUNG_MS;
use crate::engine::outcome::End;
use crate::engine::{Alarm, Engine};
use crate::keeper::wire::{Key, Why};
use crate::policy::resident::{Assign, Candidate, Service, assign, is_spent};
use crate::protocol::agent::AgentName;
use crate::runner::resident::wires::{Answer, Wire};

#[derive(Debug, Default)]
pub struct Crew {
    pub members: BTreeMap<u32, Member>,
    /// The last number that was given to one.
    pub last: u32,
    /// Deaths in a row before any answer.
    pub streaks: HashMap<AgentName, Streak>,
    /// Processes of a daemon before this one, that are being ended.
    pub former: HashMap<Key, AgentName>,
}

/// Processes of one specialist that died one after the other, without an answer.
#[derive(Debug)]
pub struct Streak {
    pub deaths: u32,
    /// What the last of them was started as.
    pub specialist: Arc<Specialist>,
    pub last_ms: u64,
    /// Until when nothing is started because of them.
    pub until_ms: u64,
}

#[derive(Debug)]
pub struct Member {
    pub agent: AgentName,
    pub specialist: Arc<Specialist>,
    pub since_ms: u64,
    pub given: u32,
    pub answered: u32,
    pub wire: Option<Arc<Wire>>,
    pub keeper: u64,
    /// The handoff that it has.
    pub current: Option<String>,
    /// An answer that can't be taken yet: its launch was not told, or its end was ordered.
    pub answer: Option<Answer>,
    /// The rule that it broke.
    pub fault: Option<String>,
    /// What it did that it can't be spoken with any more, and since when.
    pub hung: Option<(&'static str, u64)>,
    /// Since when it sees the end of file.
    pub let_go: Option<u64>,
    /// Its end was ordered.
    pub ending: Option<(Why, u64)>,
    pub outdated: bool,
    pub ended: Option<End>,
    pub closed: Option<Vec<u8>>,
}

impl Member {
    fn is_idle(&self) -> bool {
        self.current.is_none() && !self.is_leaving()
    }

    pub fn is_let_go(&self) -> bool {
        self.let_go.is_some()
    }

    pub fn is_leaving(&self) -> bool {
        self.let_go.is_some() || self.ending.is_some() || self.ended.is_some()
    }

    fn is_spent(&self, now_ms: u64) -> bool {
        let service = Service {
            max_handoffs: self.specialist.max_handoffs,
            max_age: self.specialist.max_age,
        };
        let age = now_ms.saturating_sub(self.since_ms);
        is_spent(
            service,
            self.given,
            age,
            self.outdated || self.hung.is_some(),
        )
    }
}

/// Whether a process that was started as the one is what the other would start.
fn is_same(one: &Specialist, other: &Specialist) -> bool {
    let part = |it: &Specialist| {
        let (command, folder) = (it.command.clone(), it.working_dir.clone());
        (
            it.mode,
            command,
            folder,
            it.env.clone(),
            it.pass_env.clone(),
        )
    };
    part(one) == part(other)
}

impl Crew {
    /// The end of a process was ordered, because of the handoff that it has.
    pub fn mark_ending(&mut self, number: u32, why: Why, grace_ms: u64) {
        if let Some(member) = self.members.get_mut(&number) {
            member.ending = Some((why, grace_ms));
        }
    }
}

impl Engine {
    /// The process that is to do this handoff, if its specialist is a resident one.
    pub(super) fn post_for(&mut self, id: &str, agent: &AgentName) -> Option<Post> {
        let config = self.world.config();
        let specialist = config.specialist(agent).filter(|it| it.is_resident())?;
        let now = self.now_ms();
        let candidates = self
            .crew
            .members
            .iter()
            .filter(|(_, member)| member.agent == *agent)
            .map(|(number, member)| Candidate {
                number: *number,
                idle: member.is_idle(),
                spent: member.is_spent(now),
            });
        let (number, hire) = match assign(candidates) {
            Assign::To(number) => (number, None),
            Assign::StartAnother => {
                let specialist = Arc::new(specialist.clone());
                (self.enlist(agent, &specialist), Some(specialist))
            }
        };
        let member = self.crew.members.get_mut(&number)?;
        member.current = Some(id.to_owned());
        member.given = member.given.saturating_add(1);
        Some(Post {
            number,
            wire: member.wire.clone(),
            hire,
            keeper: member.keeper,
            beats: 0,
        })
    }

    fn enlist(&mut self, agent: &AgentName, specialist: &Arc<Specialist>) -> u32 {
        self.crew.last += 1;
        let (number, now) = (self.crew.last, self.now_ms());
        self.crew.members.insert(
            number,
            Member {
                agent: agent.clone(),
                specialist: Arc::clone(specialist),
                since_ms: now,
                given: 0,
                answered: 0,
                wire: None,
                keeper: 0,
                current: None,
                answer: None,
                fault: None,
                hung: None,
                let_go: None,
                ending: None,
                outdated: false,
                ended: None,
                closed: None,
            },
        );
        if let Some(age) = specialist.max_age {
            self.alarm(now.saturating_add(ms(age)), Alarm::Crew(number));
        }
        number
    }

    /// A handoff was not claimed after all: its process is free, or was never started.
    pub(super) fn vacate(&mut self, id: &str) {
        let found = self.crew.members.iter_mut();
        let found = found.map(|(number, member)| (*number, member));
        let Some((number, member)) = found
            .into_iter()
            .find(|(_, member)| member.current.as_deref() == Some(id))
        else {
            return;
        };
        member.current = None;
        member.given = member.given.saturating_sub(1);
        if member.wire.is_none() {
            self.crew.members.remove(&number);
        } else {
            self.rest(number);
            self.perhaps_gone(number);
        }
    }

    /// Between two handoffs: it goes on, or it is let go.
    pub(super) fn rest(&mut self, number: u32) {
        let now = self.now_ms();
        let Some(member) = self.crew.members.get_mut(&number) else {
            return;
        };
        if !member.is_idle() {
            return;
        }
        if self.stopping.is_some() {
            return self.dismiss(number, Why::Stop);
        }
        if !member.is_spent(now) {
            return;
        }
        member.let_go = Some(now);
        if let Some(wire) = &member.wire {
            wire.hang_up();
        }
        let (agent, config) = (member.agent.clone(), self.world.config());
        let linger = self.linger_ms(number);
        tracing::info!(agent = %agent, "a resident process has served its time");
        // Its successor waits for it: no more run at once than may.
        let key = resident_key(number).to_string();
        self.schedule
            .occupy(&key, &agent, || Self::limits_of(&config, &agent));
        self.alarm(now.saturating_add(linger), Alarm::Crew(number));
    }

    fn linger_ms(&self, number: u32) -> u64 {
        let own = self.crew.members.get(&number);
        let own = own.and_then(|member| member.specialist.linger);
        ms(own.unwrap_or(self.world.config().defaults.linger))
    }

    /// Has the whole tree of a process ended.
    pub(super) fn dismiss(&mut self, number: u32, why: Why) {
        let default = self.world.config().defaults.kill_grace;
        let Some(member) = self.crew.members.get_mut(&number) else {
            return;
        };
        if member.ending.is_some() || member.ended.is_some() {
            return;
        }
        let grace_ms = ms(member.specialist.kill_grace.unwrap_or(default));
        member.ending = Some((why, grace_ms));
        if let Some(running) = member
            .current
            .as_ref()
            .and_then(|id| self.running.get_mut(id))
        {
            running.ending = member.ending;
        }
        self.order_end(number, why, grace_ms);
    }

    pub(super) fn order_end(&self, number: u32, why: Why, grace_ms: u64) {
        let key = resident_key(number);
        self.actors
            .run(move |world| drop(world.keeper().end(&key, why, grace_ms)));
    }

    /// Ends everybody who has nothing to do: the daemon is about to leave.
    pub(super) fn dismiss_idle(&mut self) {
        let idle: Vec<u32> = self
            .crew
            .members
            .iter()
            .filter(|(_, member)| member.current.is_none())
            .map(|(number, _)| *number)
            .collect();
        for number in idle {
            self.dismiss(number, Why::Stop);
        }
    }

    /// An alarm: for its age, for the end of its linger, or because it hung.
    pub(super) fn tend(&mut self, number: u32) {
        let (now, linger) = (self.now_ms(), self.linger_ms(number));
        let Some(member) = self.crew.members.get_mut(&number) else {
            return;
        };
        let over = |since: u64, limit: u64| now.saturating_sub(since) >= limit;
        match (member.hung, member.let_go) {
            (_, Some(since)) if over(since, linger) => self.dismiss(number, Why::Stop),
            (Some((what, since)), None) if over(since, HUNG_MS) && member.ended.is_none() => {
                self.on_fault(number, what.to_owned());
            }
            _ => self.rest(number),
        }
    }

    /// A process whose command has changed finishes its handoff and is let go. What others died
    /// of that were started in another way is over.
    pub(super) fn refit(&mut self) {
        let config = self.world.config();
        let is_other = |agent: &AgentName, started: &Specialist| {
            let now = config.specialist(agent);
            !now.is_some_and(|now| is_same(started, now))
        };
        let streaks = self.crew.streaks.iter();
        let over: Vec<AgentName> = streaks
            .filter(|(agent, streak)| is_other(agent, &streak.specialist))
            .map(|(agent, _)| agent.clone())
            .collect();
        for agent in over {
            self.forget_deaths(&agent);
        }
        for member in self.crew.members.values_mut() {
            match config.specialist(&member.agent) {
                Some(specialist) if is_same(&member.specialist, specialist) => {
                    member.specialist = Arc::new(specialist.clone());
                }
                _ => member.outdated = true,
            }
        }
        let numbers: Vec<u32> = self.crew.members.keys().copied().collect();
        for number in numbers {
            self.rest(number);
        }
    }
}
