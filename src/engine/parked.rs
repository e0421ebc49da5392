//! What waits, as the engine remembers it. The records in `waiting/` are the truth.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use serde_json::Value;

use crate::clock::{Now, Wall};
use crate::mutant;
use crate::policy::waits::Waits;
use crate::protocol::agent::AgentName;
use crate::protocol::dialect::Dialect;
use crate::protocol::record::Record;
use crate::protocol::request::Priority;
use crate::protocol::view::View;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Retry,
    Time,
    Dependency,
    Handoff,
    Human,
}

impl On {
    pub fn word(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Time => "time",
            Self::Dependency => "dependency",
            Self::Handoff => "handoff",
            Self::Human => "human",
        }
    }
}

/// What listings of `waiting/` tell of a record's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sight {
    /// No listing is under way, or it has not come to it.
    #[default]
    Unknown,
    /// The listing that is under way shows it.
    Seen,
    /// A whole listing did not show it, and it is looked for.
    Sought,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    pub on: On,
    pub agent: AgentName,
    pub priority: Priority,
    /// On the boot clock; absent where no clock ends the wait.
    pub due_ms: Option<u64>,
    pub dependencies: Vec<String>,
    /// Artifacts that must be there, by id or path.
    pub artifacts: Vec<String>,
    /// Not to be started before this instant of the wall clock.
    pub not_before: Option<Wall>,
    /// Its specialist asked for this wait, so all of its handoffs wait.
    pub holds_agent: bool,
    /// The wait is over; only a free slot is missing.
    pub ready: bool,
    /// When to remind people that the time to answer is nearly over.
    pub warn_ms: Option<u64>,
    /// Of those that it waits for, how many have ended; perhaps too many, never too few.
    pub ended: usize,
    /// How often somebody it waits for could not be found.
    pub misses: u32,
    pub sight: Sight,
}

impl Parked {
    /// Reads from a record what the engine needs to know of its wait.
    pub fn of(record: &Record, now: Now, boot: &str) -> Option<Self> {
        let waiting = record.doc.get("waiting")?;
        let on = match waiting.get("on")?.as_str()? {
            "retry" => On::Retry,
            "time" => On::Time,
            "dependency" => On::Dependency,
            "handoff" => On::Handoff,
            "human" => On::Human,
            _ => return None,
        };
        let view = View::of_record(record);
        let agent = match view.agent() {
            Some(agent) => agent,
            // A report that names nobody waits for a person or for another handoff.
            None if view.dialect == Dialect::Report => AgentName::human(),
            None => return None,
        };
        let priority = view
            .get("priority")
            .and_then(Value::as_str)
            .and_then(Priority::parse)
            .unwrap_or_default();
        let named = match on {
            On::Handoff => waiting.get("ids"),
            _ => view.get("depends_on"),
        };
        let dependencies = match named {
            Some(Value::Array(ids)) => ids
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            Some(Value::String(id)) => vec![id.clone()],
            _ => Vec::new(),
        };
        let due_ms = match &record.meta.timer {
            Some(timer) => Some(timer.due_boot_ms(now, boot)),
            // A wait that only a clock can end, without one: a record made by hand.
            None => matches!(on, On::Retry | On::Time).then_some(now.boot_ms),
        };
        let warn_before = view
            .text("gate", "warn_before")
            .and_then(|before| humantime::parse_duration(before).ok())
            .and_then(|before| u64::try_from(before.as_millis()).ok());
        Some(Self {
            on,
            agent,
            priority,
            due_ms,
            warn_ms: due_ms
                .filter(|_| on == On::Human)
                .zip(warn_before)
                .map(|(due, before)| due.saturating_sub(before)),
            dependencies,
            artifacts: view
                .get("requires_artifacts")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            not_before: view
                .get("not_before")
                .and_then(Value::as_str)
                .and_then(Wall::parse),
            holds_agent: record.meta.holds_agent,
            ready: false,
            ended: 0,
            misses: 0,
            sight: Sight::default(),
        })
    }
}

/// All that waits, who waits for whom, and whose time comes next.
#[derive(Debug, Default)]
pub struct Lot {
    parked: HashMap<String, Parked>,
    /// Who waits for which dependencies, and for which helpers.
    dependencies: Waits,
    helpers: Waits,
    due: BinaryHeap<Reverse<(u64, String)>>,
}

impl Lot {
    pub fn insert(&mut self, id: &str, parked: Parked) {
        self.remove(id);
        if let Some(due) = parked.due_ms {
            self.due.push(Reverse((due, id.to_owned())));
        }
        match parked.on {
            On::Dependency => self.dependencies.insert(id, &parked.dependencies),
            On::Handoff => self.helpers.insert(id, &parked.dependencies),
            On::Retry | On::Time | On::Human => {}
        }
        self.parked.insert(id.to_owned(), parked);
    }

    pub fn remove(&mut self, id: &str) -> Option<Parked> {
        let parked = self.parked.remove(id)?;
        self.dependencies.remove(id);
        self.helpers.remove(id);
        Some(parked)
    }

    pub fn get(&self, id: &str) -> Option<&Parked> {
        self.parked.get(id)
    }

    pub fn get_mut(&mut self, id: &str) -> Option<&mut Parked> {
        self.parked.get_mut(id)
    }

    /// How many wait for what.
    pub fn by_reason(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for parked in self.parked.values() {
            *counts.entry(parked.on.word()).or_default() += 1;
        }
        counts
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &Parked)> {
        self.parked.iter()
    }

    pub fn len(&self) -> usize {
        self.parked.len()
    }

    pub fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    pub fn dependents_of(&self, id: &str) -> Vec<String> {
        let dependents = self.dependencies.waiting_for(id);
        dependents
            .chain(self.helpers.waiting_for(id))
            .cloned()
            .collect()
    }

    /// Takes what a listing of `waiting/` has shown, and hands out those that a whole one has not.
    pub fn take_unseen(&mut self, whole: bool, busy: impl Fn(&str) -> bool) -> Vec<String> {
        let mut unseen = Vec::new();
        for (id, parked) in &mut self.parked {
            if parked.sight == Sight::Seen {
                parked.sight = Sight::Unknown;
            } else if whole && !busy(id) {
                parked.sight = Sight::Sought;
                unseen.push(id.clone());
            }
        }
        unseen
    }

    /// All that wait for other handoffs.
    pub fn waiting_for_others(&self) -> Vec<String> {
        let waits =
            |parked: &Parked| matches!(parked.on, On::Dependency | On::Handoff) && !parked.ready;
        if mutant::is("dependency-by-event-only") {
            return Vec::new();
        }
        self.parked
            .iter()
            .filter(|(_, p)| waits(p))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// The next moment at which a wait ends.
    pub fn next_due(&mut self) -> Option<u64> {
        while let Some(Reverse((due, id))) = self.due.peek() {
            if self.is_due_at(id, *due) {
                return Some(*due);
            }
            self.due.pop();
        }
        None
    }

    /// Takes one whose time has come.
    pub fn pop_due(&mut self, now_ms: u64) -> Option<String> {
        if self.next_due()? > now_ms {
            return None;
        }
        let Reverse((_, id)) = self.due.pop()?;
        if let Some(parked) = self.parked.get_mut(&id) {
            parked.due_ms = None;
        }
        Some(id)
    }

    fn is_due_at(&self, id: &str, due: u64) -> bool {
        self.parked
            .get(id)
            .is_some_and(|parked| parked.due_ms == Some(due) && !parked.ready)
    }

    /// If `id`, waiting for `dependencies`, closes a circle: the circle, `id` first and last.
    pub fn circle(&self, id: &str, dependencies: &[String]) -> Option<Vec<String>> {
        self.dependencies.circle(id, dependencies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parked(on: On, due_ms: Option<u64>, dependencies: &[&str]) -> Parked {
        Parked {
            on,
            agent: AgentName::parse("a").unwrap(),
            priority: Priority::Normal,
            due_ms,
            dependencies: dependencies.iter().map(ToString::to_string).collect(),
            artifacts: Vec::new(),
            not_before: None,
            holds_agent: false,
            ready: false,
            warn_ms: None,
            ended: 0,
            misses: 0,
            sight: Sight::default(),
        }
    }

    #[test]
    fn waits_end_in_their_order_and_only_once() {
        let mut lot = Lot::default();
        lot.insert("b", parked(On::Retry, Some(20), &[]));
        lot.insert("a", parked(On::Retry, Some(10), &[]));
        lot.insert("c", parked(On::Human, None, &[]));
        assert_eq!(lot.next_due(), Some(10));
        assert_eq!(lot.pop_due(5), None);
        assert_eq!(lot.pop_due(30).as_deref(), Some("a"));
        lot.insert("b", parked(On::Retry, Some(40), &[]));
        assert_eq!(lot.pop_due(30), None, "it was parked anew");
        assert_eq!(lot.next_due(), Some(40));
        lot.remove("b");
        assert_eq!(lot.next_due(), None);
    }

    #[test]
    fn dependents_are_known_while_they_wait() {
        let mut lot = Lot::default();
        lot.insert("x", parked(On::Dependency, None, &["p", "q"]));
        assert_eq!(lot.dependents_of("p"), ["x"]);
        lot.remove("x");
        assert!(lot.dependents_of("p").is_empty());
    }

    #[test]
    fn who_is_not_seen_by_a_whole_listing_is_sought() {
        let mut lot = Lot::default();
        let nobody = |_: &str| false;
        for id in ["there", "busy", "gone"] {
            lot.insert(id, parked(On::Human, None, &[]));
        }
        lot.get_mut("there").unwrap().sight = Sight::Seen;
        assert!(lot.take_unseen(false, nobody).is_empty(), "cut short");
        lot.get_mut("there").unwrap().sight = Sight::Seen;
        assert_eq!(lot.take_unseen(true, |id| id == "busy"), ["gone"]);
        assert_eq!(lot.get("gone").unwrap().sight, Sight::Sought);
        assert_eq!(lot.get("there").unwrap().sight, Sight::Unknown);
    }
}
