//! Who may be given to the keeper before a slot is free.
//!
//! Between the end of one attempt and the start of the next, the daemon has to hear of the one and
//! to claim the other. Where attempts take milliseconds that is most of the time. So the next ones
//! of a specialist whose attempts are that short are prepared ahead, and wait with the keeper.
//! Where they take longer it would save nothing, and a request that has been prepared can't be
//! changed, cancelled or overtaken for as long as it waits; so it never waits for long.

use std::collections::HashMap;

use crate::config::{Config, Specialist};
use crate::protocol::agent::AgentName;

/// An attempt that is over within this time is a short one.
const SHORT_MS: u64 = 20;
/// How long one that is prepared waits for its turn before it is given back.
pub const PATIENCE_MS: u64 = 50;
/// How much work is prepared for a slot, by what attempts took so far, and how many at the most.
const WORK_MS: u64 = 24;
const MOST_FOR_SLOT: u64 = 8;
const MOST: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Its last attempt was short; what they take, in microseconds, smoothed.
    Short(u64),
    /// Its requests are of a kind that can't be prepared, or it has asked for a pause.
    Never,
}

/// What is known of each specialist's attempts.
#[derive(Debug, Default)]
pub struct Ahead {
    paces: HashMap<AgentName, Pace>,
}

impl Ahead {
    /// Forgets what it knows, because the configuration has changed.
    pub fn begin_anew(&mut self) {
        self.paces.clear();
    }

    pub fn may(&self, agent: &AgentName) -> bool {
        matches!(self.paces.get(agent), Some(Pace::Short(_)))
    }

    /// An attempt ended by itself after this time.
    pub fn ended(&mut self, agent: &AgentName, ran_ms: u64, config: &Config) {
        match self.paces.get_mut(agent) {
            Some(Pace::Never) => {}
            _ if ran_ms > SHORT_MS => drop(self.paces.remove(agent)),
            Some(Pace::Short(takes)) => *takes = (*takes * 3 + ran_ms * 1000) / 4,
            None if suits(config, agent) => {
                self.paces.insert(agent.clone(), Pace::Short(ran_ms * 1000));
            }
            None => {}
        }
    }

    /// One that was prepared did not have its turn in time.
    pub fn returned(&mut self, agent: &AgentName) {
        if self.may(agent) {
            self.paces.remove(agent);
        }
    }

    /// One of its requests could not be prepared, so the next ones could hardly be either; or the
    /// next ones may have to wait, and only an outcome tells.
    pub fn refused(&mut self, agent: AgentName) {
        self.paces.insert(agent, Pace::Never);
    }

    /// How many may be prepared beyond the slots there are: a few for each, so that the last of them
    /// still has its turn in time.
    pub fn most(&self, slots: usize) -> usize {
        let takes = self.paces.values().filter_map(|pace| match pace {
            Pace::Short(takes) => Some((*takes).max(1000)),
            Pace::Never => None,
        });
        let for_slot = takes.max().map_or(0, |takes| WORK_MS * 1000 / takes);
        let for_slot = usize::try_from(for_slot.min(MOST_FOR_SLOT)).unwrap_or_default();
        (slots * for_slot).min(MOST)
    }
}

/// Whether the keeper's count of what is alive is that of the slots, and nothing has to be looked
/// up at the very moment of the start.
fn suits(config: &Config, agent: &AgentName) -> bool {
    // A verify command keeps its attempt's slot, and a resident process has none while it idles.
    // What an attempt wrote is told by the time of its claim, so that must be its start.
    let counts = |it: &Specialist| it.verify.is_none() && !it.is_resident();
    config.specialists.values().all(counts)
        && config
            .specialist(agent)
            .is_some_and(|it| it.rate.is_none() && !it.has_home() && it.report.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, std::path::Path::new("handoffd.toml")).unwrap()
    }

    #[test]
    fn only_those_whose_last_attempt_was_short_may() {
        let config = config("[specialists.\"@a\"]\ncommand = [\"a\"]\n");
        let a = AgentName::parse("@a").unwrap();
        let mut ahead = Ahead::default();
        assert!(!ahead.may(&a));
        for (ran_ms, may) in [
            (1, true),
            (SHORT_MS, true),
            (SHORT_MS + 1, false),
            (2, true),
        ] {
            ahead.ended(&a, ran_ms, &config);
            assert_eq!(ahead.may(&a), may, "after {ran_ms} ms");
        }
        ahead.returned(&a);
        assert!(!ahead.may(&a), "one had waited too long");
        ahead.ended(&a, 1, &config);
        assert!(ahead.may(&a));
        ahead.refused(a.clone());
        ahead.ended(&a, 1, &config);
        assert!(!ahead.may(&a), "its requests can't be prepared");
    }

    #[test]
    fn where_slots_are_not_what_is_alive_nobody_may() {
        let a = "[specialists.\"@a\"]\ncommand = [\"a\"]\n";
        let b = "[specialists.\"@b\"]\ncommand = [\"b\"]\n";
        for (text, may) in [
            (format!("{a}{b}"), true),
            (format!("{a}max_concurrent = 1\n{b}"), true),
            (format!("{a}rate = \"5/s\"\n{b}"), false),
            (format!("{a}{b}rate = \"5/s\"\n"), true),
            (format!("{a}{b}verify = [\"c\"]\n"), false),
            (format!("{a}{b}mode = \"resident\"\n"), false),
            (b.to_owned(), false),
        ] {
            let agent = AgentName::parse("@a").unwrap();
            assert_eq!(suits(&config(&text), &agent), may, "{text}");
        }
    }

    #[test]
    fn as_many_as_have_their_turn_in_time_but_not_too_many() {
        let config =
            config("[specialists.'@a']\ncommand = ['a']\n[specialists.'@b']\ncommand = ['b']\n");
        let [a, b] = ["@a", "@b"].map(|name| AgentName::parse(name).unwrap());
        for (slots, took_ms, most) in [
            (1, 0, 8),
            (2, 1, 16),
            (4, 1, MOST),
            (100, 1, MOST),
            (2, 5, 8),
            (2, SHORT_MS, 2),
        ] {
            let mut ahead = Ahead::default();
            assert_eq!(ahead.most(slots), 0, "nothing is known");
            ahead.ended(&a, took_ms, &config);
            assert_eq!(ahead.most(slots), most, "{slots}, {took_ms} ms");
            ahead.ended(&b, SHORT_MS, &config);
            assert_eq!(ahead.most(slots), slots.min(MOST), "the slower ones count");
        }
        let mut ahead = Ahead::default();
        for (ran_ms, most) in [(1, 8), (17, 4), (1, 6), (1, 7), (1, 8)] {
            ahead.ended(&a, ran_ms, &config);
            assert_eq!(ahead.most(1), most, "after {ran_ms} ms");
        }
    }
}
