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
/// How many are prepared at the most.
const MOST: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Its last attempt was short.
    Short,
    /// Its requests are of a kind that can't be prepared.
    Never,
}

/// What is known of each specialist's attempts.
#[derive(Debug)]
pub struct Ahead {
    processors: usize,
    paces: HashMap<AgentName, Pace>,
}

impl Ahead {
    pub fn new(processors: usize) -> Self {
        Self {
            processors,
            paces: HashMap::new(),
        }
    }

    /// Forgets what it knows, because the configuration has changed.
    pub fn begin_anew(&mut self) {
        self.paces.clear();
    }

    pub fn may(&self, agent: &AgentName) -> bool {
        self.paces.get(agent) == Some(&Pace::Short)
    }

    /// An attempt ended by itself after this time.
    pub fn ended(&mut self, agent: &AgentName, ran_ms: u64, config: &Config) {
        if self.paces.get(agent) == Some(&Pace::Never) {
            return;
        }
        if ran_ms <= SHORT_MS && suits(config, agent) {
            if !self.paces.contains_key(agent) {
                self.paces.insert(agent.clone(), Pace::Short);
            }
        } else {
            self.paces.remove(agent);
        }
    }

    /// One that was prepared did not have its turn in time.
    pub fn returned(&mut self, agent: &AgentName) {
        if self.may(agent) {
            self.paces.remove(agent);
        }
    }

    /// One of its requests could not be prepared, so the next ones could hardly be either.
    pub fn refused(&mut self, agent: AgentName) {
        self.paces.insert(agent, Pace::Never);
    }

    /// How many may be prepared beyond the slots there are: three for each. Where there are many more
    /// slots than processors, there is always another one to go on with.
    pub fn most(&self, slots: usize) -> usize {
        if slots > 2 * self.processors {
            return 0;
        }
        (3 * slots).min(MOST)
    }
}

/// Whether the keeper's count of what is alive is that of the slots, and nothing has to be looked
/// up at the very moment of the start.
fn suits(config: &Config, agent: &AgentName) -> bool {
    // A verify command keeps its attempt's slot, and a resident process has none while it idles.
    let counts = |it: &Specialist| it.verify.is_none() && !it.is_resident();
    config.specialists.values().all(counts)
        && config
            .specialist(agent)
            .is_some_and(|it| it.rate.is_none() && !it.has_home())
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
        let mut ahead = Ahead::new(1);
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
    fn three_for_each_slot_but_not_too_many() {
        for (slots, processors, most) in [
            (1, 1, 3),
            (2, 1, 6),
            (3, 1, 0),
            (4, 2, 12),
            (5, 2, 0),
            (20, 64, MOST),
        ] {
            assert_eq!(
                Ahead::new(processors).most(slots),
                most,
                "{slots} on {processors}"
            );
        }
    }
}
