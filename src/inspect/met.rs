//! Who was met before, in a folder that was listed earlier.
//!
//! Folders are listed one after the other, in the order in which a handoff passes them, so one that
//! moves on meanwhile is met again. It stands where it was met last. Only what has not ended is
//! remembered for that: what has ended stays where it is, and there may be a million of it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;

use crate::inspect::summary::id_of;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;

/// With each, what its finder made of it.
pub struct Met<'l, T> {
    layout: &'l Layout,
    live: HashMap<String, (State, OsString, T)>,
}

impl<'l, T> Met<'l, T> {
    pub fn new(layout: &'l Layout) -> Self {
        Self {
            layout,
            live: HashMap::new(),
        }
    }

    /// Meets one; returns what was made of it before, where it stands there no more.
    pub fn again(&mut self, state: State, name: &OsStr, made: T) -> Option<T> {
        let before = if matches!(state, State::Completed | State::Failed) {
            let id = name.to_str()?.strip_suffix(".json")?;
            self.live.remove(id)
        } else {
            let met = (state, name.to_owned(), made);
            self.live.insert(id_of(state, name)?, met)
        };
        let (left, name, made) = before?;
        // What was dropped under a taken id is another, and stands there still.
        let has_moved = left != State::Pending
            || fs::symlink_metadata(self.layout.pending().join(name)).is_err();
        has_moved.then_some(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_moves_while_folders_are_listed_was_met_before() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        fs::write(layout.pending().join("twice.json"), "{}").unwrap();
        let mut met = Met::new(&layout);
        let told: Vec<Option<usize>> = [
            (State::Pending, "x.yaml"),
            (State::Pending, "twice.json"),
            (State::InProgress, "x.json"),
            (State::Waiting, "x.json"),
            (State::Completed, "twice.json"),
            (State::Failed, "x.json"),
            (State::Failed, "other.json"),
        ]
        .into_iter()
        .enumerate()
        .map(|(at, (state, name))| met.again(state, OsStr::new(name), at))
        .collect();
        assert_eq!(told, [None, None, Some(0), Some(2), None, Some(3), None]);
    }
}
