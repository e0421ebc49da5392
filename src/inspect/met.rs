//! Who was met before, in a folder that was listed earlier.
//!
//! Folders are listed one after the other, in the order in which a handoff passes them, so one that
//! moves on meanwhile is met again. It stands where it was met last. A file among the outcomes of a
//! handoff that has not ended is not the handoff's own. Only what has not ended is remembered for
//! that: what has ended stays where it is, and there may be a million of it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;

use crate::inspect::summary::id_of;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;

/// What a name in a folder is.
#[derive(Debug, PartialEq, Eq)]
pub enum Meeting<T> {
    First,
    /// It was met before and has left that place; what its finder made of it there.
    Moved(T),
    /// It was met before and is still there: this file is not the handoff's own.
    Foreign,
}

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

    pub fn meet(&mut self, state: State, name: &OsStr, made: T) -> Meeting<T> {
        let Some(id) = id_of(state, name) else {
            return Meeting::First;
        };
        let before = if state.is_final() {
            self.live.remove(&id)
        } else {
            let met = (state, name.to_owned(), made);
            self.live.insert(id.clone(), met)
        };
        let Some((left, name, made)) = before else {
            return Meeting::First;
        };
        let is_there = fs::symlink_metadata(self.layout.state(left).join(&name)).is_ok();
        match (is_there, left) {
            // What was dropped under a taken id is another.
            (true, State::Pending) => Meeting::First,
            (true, _) if state.is_final() => {
                self.live.insert(id, (left, name, made));
                Meeting::Foreign
            }
            _ => Meeting::Moved(made),
        }
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
        fs::write(layout.record(State::InProgress, "runs"), "{}").unwrap();
        let told: Vec<Meeting<usize>> = [
            (State::Pending, "x.yaml"),
            (State::Pending, "twice.json"),
            (State::InProgress, "x.json"),
            (State::InProgress, "runs.json"),
            (State::Waiting, "x.json"),
            (State::Completed, "runs.json"),
            (State::Completed, "twice.json"),
            (State::Failed, "x.json"),
            (State::Failed, "other.json"),
            (State::Failed, "runs.json"),
        ]
        .into_iter()
        .enumerate()
        .map(|(at, (state, name))| met.meet(state, OsStr::new(name), at))
        .collect();
        let first = || Meeting::First;
        let expected = [
            first(),
            first(),
            Meeting::Moved(0),
            first(),
            Meeting::Moved(2),
            Meeting::Foreign,
            first(),
            Meeting::Moved(4),
            first(),
            Meeting::Foreign,
        ];
        assert_eq!(told, expected);
    }
}
