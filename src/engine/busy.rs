//! The ids that a job works on, and what it does to each: one id has at most one job at a time.
//!
//! Starts and outcomes are counted apart. The loop starts no more while many of them wait for the
//! disk; what merely moves, such as thousands of handoffs that wait for another, keeps nothing from
//! starting.

use std::collections::HashMap;

/// What a job in flight is doing to an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Busy {
    Launching,
    /// Prepared, or being prepared, to be started when its turn comes.
    Ahead,
    Diverting,
    /// Judging, or its outcome is being written.
    Concluding,
    /// A command, or a file that nobody expected.
    Moving,
    /// The end of a wait, by itself or by a command.
    Waking,
    /// An attempt whose record is gone is being ended.
    Orphan,
}

impl Busy {
    fn is_of_an_attempt(self) -> bool {
        matches!(self, Self::Launching | Self::Ahead | Self::Concluding)
    }
}

#[derive(Debug, Default)]
pub(super) struct BusyIds {
    ids: HashMap<String, Busy>,
    of_attempts: usize,
}

impl BusyIds {
    pub fn insert(&mut self, id: String, busy: Busy) {
        self.of_attempts += usize::from(busy.is_of_an_attempt());
        if let Some(before) = self.ids.insert(id, busy) {
            self.of_attempts -= usize::from(before.is_of_an_attempt());
        }
    }

    pub fn remove(&mut self, id: &str) -> Option<Busy> {
        let busy = self.ids.remove(id)?;
        self.of_attempts -= usize::from(busy.is_of_an_attempt());
        Some(busy)
    }

    pub fn get(&self, id: &str) -> Option<Busy> {
        self.ids.get(id).copied()
    }

    pub fn contains(&self, id: &str) -> bool {
        self.ids.contains_key(id)
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// How many are starting or being judged.
    pub fn of_attempts(&self) -> usize {
        self.of_attempts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_starts_and_outcomes_are_counted() {
        let mut busy = BusyIds::default();
        for (id, doing, counted) in [
            ("a", Busy::Diverting, 0),
            ("b", Busy::Waking, 0),
            ("c", Busy::Launching, 1),
            ("d", Busy::Ahead, 2),
            ("a", Busy::Concluding, 3),
            ("a", Busy::Concluding, 3),
            ("c", Busy::Moving, 2),
        ] {
            busy.insert(id.to_owned(), doing);
            assert_eq!(busy.of_attempts(), counted, "{id} {doing:?}");
        }
        assert_eq!(busy.remove("a"), Some(Busy::Concluding));
        assert_eq!(busy.remove("a"), None);
        assert_eq!((busy.of_attempts(), busy.get("d")), (1, Some(Busy::Ahead)));
        for id in ["b", "c", "d"] {
            busy.remove(id);
        }
        assert!(busy.is_empty() && busy.of_attempts() == 0);
    }
}
