//! Who runs next.
//!
//! One heap for each specialist, and only specialists that may start something now compete.
//! Aging is linear: an entry's key is its arrival less the weight of its priority, so it never
//! changes and nothing is ever re-sorted. A low one that waited two hours goes before a normal
//! one that just came; nobody starves. Holds and limits belong to the specialist, not to the
//! entry.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use crate::protocol::agent::AgentName;
use crate::protocol::request::Priority;

/// How far ahead of its arrival a priority puts an entry, in milliseconds.
pub fn head_start_ms(priority: Priority) -> i64 {
    const HOUR: i64 = 3_600_000;
    match priority {
        Priority::Critical => 24 * HOUR,
        Priority::High => 2 * HOUR,
        Priority::Normal => 0,
        Priority::Low => -2 * HOUR,
    }
}

/// The priorities, by what an entry remembers of its own.
const PRIORITIES: [Priority; 4] = [
    Priority::Critical,
    Priority::High,
    Priority::Normal,
    Priority::Low,
];

/// An entry that is ready to run. Small: a backlog holds a million of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ready {
    key: i64,
    /// A number that grows with every entry, and its priority in the last two bits.
    order: u64,
    pub id: Box<str>,
}

impl Ready {
    /// When it came, on the wall clock.
    fn arrival_ms(&self) -> i64 {
        let at = usize::try_from(self.order & 3).unwrap_or_default();
        let priority = PRIORITIES[at];
        self.key.saturating_add(head_start_ms(priority))
    }
}

/// A limit on starts: at most `starts` in any window of `per_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    pub starts: u32,
    pub per_ms: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentLimits {
    pub max_concurrent: Option<usize>,
    pub rate: Option<RateLimit>,
    /// What it shares with others: a hold of one is a hold of all.
    pub account: Option<String>,
}

#[derive(Debug, Default)]
struct Lane {
    heap: BinaryHeap<Reverse<Ready>>,
    limits: AgentLimits,
    running: usize,
    /// On the boot clock; 0 is no hold.
    held_until_ms: u64,
    /// How many stand in the way: nothing is started before they are gone.
    blocked: usize,
    /// Starts within the rate's window, oldest first, on the boot clock.
    starts: VecDeque<u64>,
}

impl Lane {
    /// When it may start something, as far as its own limits go; `None` is "when one ends".
    fn free_at(&self, now_ms: u64, accounts: &BTreeMap<String, u64>) -> Option<u64> {
        let most = self.limits.max_concurrent;
        if self.blocked > 0 || most.is_some_and(|most| self.running >= most) {
            return None;
        }
        let account = self.limits.account.as_ref();
        let shared = account.and_then(|account| accounts.get(account)).copied();
        let mut at = self.held_until_ms.max(shared.unwrap_or(0)).max(now_ms);
        if let Some(rate) = self.limits.rate {
            let most = rate.starts.max(1) as usize;
            if self.starts.len() >= most {
                let oldest = self.starts[self.starts.len() - most];
                at = at.max(oldest.saturating_add(rate.per_ms));
            }
        }
        Some(at)
    }
}

/// The queue of all that is ready, and the slots.
#[derive(Debug)]
pub struct Schedule {
    lanes: BTreeMap<AgentName, Lane>,
    /// Until when accounts are held, on the boot clock.
    accounts: BTreeMap<String, u64>,
    max_concurrent: usize,
    running: HashMap<Box<str>, AgentName>,
    next_order: u64,
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub enum Pick {
    /// Start this one; its slot is taken.
    Start {
        id: Box<str>,
        agent: AgentName,
        /// When it came, on the wall clock.
        arrival_ms: i64,
    },
    /// Nothing now; look again at this moment of the boot clock.
    At(u64),
    /// Nothing until something ends or arrives.
    Idle,
}

impl Schedule {
    pub fn new(max_concurrent: usize) -> Self {
        Self {
            lanes: BTreeMap::new(),
            accounts: BTreeMap::new(),
            max_concurrent,
            running: HashMap::new(),
            next_order: 0,
        }
    }

    /// New limits, after a reload. What runs already keeps its slot.
    pub fn set_limits(
        &mut self,
        max_concurrent: usize,
        limits_of: impl Fn(&AgentName) -> AgentLimits,
    ) {
        self.max_concurrent = max_concurrent;
        for (agent, lane) in &mut self.lanes {
            lane.limits = limits_of(agent);
        }
    }

    fn lane(&mut self, agent: &AgentName, limits: impl Fn() -> AgentLimits) -> &mut Lane {
        self.lanes.entry(agent.clone()).or_insert_with(|| Lane {
            limits: limits(),
            ..Lane::default()
        })
    }

    /// Adds one that is ready. `arrival_ms` is wall time, the same clock for all.
    pub fn push(
        &mut self,
        id: &str,
        agent: &AgentName,
        priority: Priority,
        arrival_ms: i64,
        limits: impl Fn() -> AgentLimits,
    ) {
        self.next_order += 1;
        let priorities = PRIORITIES.iter();
        let priority_bits = (0_u64..).zip(priorities).find(|(_, it)| **it == priority);
        let order = (self.next_order << 2) | priority_bits.map_or(2, |(bits, _)| bits);
        let key = arrival_ms.saturating_sub(head_start_ms(priority));
        self.lane(agent, limits).heap.push(Reverse(Ready {
            key,
            order,
            id: id.into(),
        }));
    }

    /// The specialist asked to be left alone until then.
    pub fn hold(
        &mut self,
        agent: &AgentName,
        until_boot_ms: u64,
        limits: impl Fn() -> AgentLimits,
    ) {
        let lane = self.lane(agent, limits);
        lane.held_until_ms = lane.held_until_ms.max(until_boot_ms);
    }

    /// The specialist's quota is used up until then, and so is that of all that share its account.
    pub fn hold_account(
        &mut self,
        agent: &AgentName,
        until_boot_ms: u64,
        limits: impl Fn() -> AgentLimits,
    ) {
        self.hold(agent, until_boot_ms, &limits);
        if let Some(account) = limits().account {
            let until = self.accounts.entry(account).or_default();
            *until = (*until).max(until_boot_ms);
        }
    }

    /// Lifts the hold of a specialist, and of its account.
    pub fn lift_hold(&mut self, agent: &AgentName) {
        if let Some(lane) = self.lanes.get_mut(agent) {
            lane.held_until_ms = 0;
            if let Some(account) = &lane.limits.account {
                self.accounts.remove(account);
            }
        }
    }

    /// Lifts the hold that ends at this very moment; a longer one has another reason.
    pub fn lift_hold_until(&mut self, agent: &AgentName, until_boot_ms: u64) {
        let lane = self.lanes.get_mut(agent);
        if let Some(lane) = lane.filter(|lane| lane.held_until_ms == until_boot_ms) {
            lane.held_until_ms = 0;
        }
    }

    /// Nothing of this specialist is started until it is unblocked as often as it was blocked.
    pub fn block(&mut self, agent: &AgentName, limits: impl Fn() -> AgentLimits) {
        self.lane(agent, limits).blocked += 1;
    }

    pub fn unblock(&mut self, agent: &AgentName) {
        if let Some(lane) = self.lanes.get_mut(agent) {
            lane.blocked = lane.blocked.saturating_sub(1);
        }
    }

    /// Takes the next entry that may start, if there is one. `still_wanted` tells entries that
    /// were cancelled or vanished from those that are still waiting; the former are dropped.
    /// One that may be taken before a slot is free is taken while no more than `ahead` are.
    pub fn pick(
        &mut self,
        now_ms: u64,
        ahead: usize,
        may_go_ahead: impl Fn(&AgentName, &str) -> bool,
        mut still_wanted: impl FnMut(&str) -> bool,
    ) -> Pick {
        if self.running.len() >= self.max_concurrent + ahead {
            return Pick::Idle;
        }
        let mut best: Option<(&AgentName, (i64, u64))> = None;
        let mut later: Option<u64> = None;
        for (agent, lane) in &mut self.lanes {
            while let Some(Reverse(first)) = lane.heap.peek() {
                if still_wanted(&first.id) {
                    break;
                }
                lane.heap.pop();
            }
            let Some(Reverse(first)) = lane.heap.peek() else {
                continue;
            };
            match lane.free_at(now_ms, &self.accounts) {
                Some(at) if at <= now_ms => {
                    let rank = (first.key, first.order);
                    if best.as_ref().is_none_or(|(_, leader)| rank < *leader) {
                        best = Some((agent, rank));
                    }
                }
                Some(at) => later = Some(later.map_or(at, |known: u64| known.min(at))),
                None => {}
            }
        }
        let Some((agent, _)) = best else {
            return later.map_or(Pick::Idle, Pick::At);
        };
        let agent = agent.clone();
        let Some(lane) = self.lanes.get_mut(&agent) else {
            return Pick::Idle;
        };
        let may = |entry: &Ready| {
            self.running.len() < self.max_concurrent || may_go_ahead(&agent, &entry.id)
        };
        if !lane.heap.peek().is_some_and(|Reverse(entry)| may(entry)) {
            return Pick::Idle;
        }
        let Some(Reverse(entry)) = lane.heap.pop() else {
            return Pick::Idle;
        };
        self.start(&entry.id, &agent, now_ms);
        Pick::Start {
            arrival_ms: entry.arrival_ms(),
            id: entry.id,
            agent,
        }
    }

    fn start(&mut self, id: &str, agent: &AgentName, now_ms: u64) {
        self.occupy(id, agent, AgentLimits::default);
        self.note_start(agent, now_ms, AgentLimits::default);
    }

    /// Counts a slot as taken: a picked entry, or an attempt that was adopted.
    pub fn occupy(&mut self, id: &str, agent: &AgentName, limits: impl Fn() -> AgentLimits) {
        if self.running.insert(id.into(), agent.clone()).is_none() {
            self.lane(agent, limits).running += 1;
        }
    }

    /// Remembers a start for the rate: one just made, or one that a former daemon made.
    pub fn note_start(
        &mut self,
        agent: &AgentName,
        at_boot_ms: u64,
        limits: impl Fn() -> AgentLimits,
    ) {
        let lane = self.lane(agent, limits);
        let Some(rate) = lane.limits.rate else { return };
        lane.starts.push_back(at_boot_ms);
        while lane.starts.len() > rate.starts.max(1) as usize {
            lane.starts.pop_front();
        }
    }

    /// The tree is gone: the slot is free.
    pub fn release(&mut self, id: &str) {
        if let Some(agent) = self.running.remove(id)
            && let Some(lane) = self.lanes.get_mut(&agent)
        {
            lane.running = lane.running.saturating_sub(1);
        }
    }

    /// When the entry came that has waited longest, on the wall clock. Goes through the queue, but
    /// asks `still_wanted` only of those that are older than all before.
    pub fn oldest_ms(&self, still_wanted: impl Fn(&str) -> bool) -> Option<i64> {
        let mut oldest = i64::MAX;
        let lanes = self.lanes.values();
        for Reverse(entry) in lanes.flat_map(|lane| lane.heap.iter()) {
            let arrival = entry.arrival_ms();
            if arrival < oldest && still_wanted(&entry.id) {
                oldest = arrival;
            }
        }
        (oldest != i64::MAX).then_some(oldest)
    }

    /// Each agent with how many wait for a slot and how many have one.
    pub fn by_agent(&self) -> impl Iterator<Item = (&AgentName, usize, usize)> {
        let lanes = self.lanes.iter();
        lanes.map(|(agent, lane)| (agent, lane.heap.len(), lane.running))
    }

    pub fn max_concurrent(&self) -> usize {
        self.max_concurrent
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    pub fn queued(&self) -> usize {
        self.lanes.values().map(|lane| lane.heap.len()).sum()
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
