//! How many handoffs stand in each state, each counted once.
//!
//! Folders are listed one after the other, in the order in which a handoff passes them, so one that
//! moves on meanwhile is met again. It counts where it was met last. Only what has not ended is
//! remembered for that: what has ended stays where it is, and there may be a million of it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::ops::ControlFlow;

use crate::inspect::newest;
use crate::inspect::summary::id_of;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;

/// The counts, by the states' words.
pub fn take(layout: &Layout) -> io::Result<BTreeMap<&'static str, usize>> {
    let mut census = Census::new(layout);
    for state in State::ALL {
        newest::names(&layout.state(state), state, |name| {
            census.meet(state, name);
            ControlFlow::Continue(())
        })?;
    }
    Ok(census.counts)
}

struct Census<'l> {
    layout: &'l Layout,
    counts: BTreeMap<&'static str, usize>,
    /// Where those were met that may move on.
    live: HashMap<String, (State, OsString)>,
}

impl<'l> Census<'l> {
    fn new(layout: &'l Layout) -> Self {
        Self {
            layout,
            counts: State::ALL.map(|state| (state.status(), 0)).into(),
            live: HashMap::new(),
        }
    }

    fn meet(&mut self, state: State, name: &OsStr) {
        let before = if matches!(state, State::Completed | State::Failed) {
            let id = name.to_str().and_then(|name| name.strip_suffix(".json"));
            id.and_then(|id| self.live.remove(id))
        } else {
            id_of(state, name).and_then(|id| self.live.insert(id, (state, name.to_owned())))
        };
        *self.counts.entry(state.status()).or_default() += 1;
        let moved = before.filter(|(state, name)| {
            // What was dropped under a taken id is another, and stands there still.
            *state != State::Pending
                || fs::symlink_metadata(self.layout.pending().join(name)).is_err()
        });
        if let Some((left, _)) = moved {
            *self.counts.entry(left.status()).or_default() -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_moves_while_folders_are_listed_counts_where_it_was_met_last() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        fs::write(layout.record(State::Failed, "x"), "{}").unwrap();
        fs::write(layout.pending().join("twice.json"), "{}").unwrap();
        fs::write(layout.record(State::Completed, "twice"), "{}").unwrap();
        let mut census = Census::new(&layout);
        for (state, name) in [
            (State::Pending, "x.yaml"),
            (State::Pending, "twice.json"),
            (State::InProgress, "x.json"),
            (State::Waiting, "x.json"),
            (State::Completed, "twice.json"),
            (State::Failed, "x.json"),
        ] {
            census.meet(state, OsStr::new(name));
        }
        let expected = [
            ("completed", 1),
            ("failed", 1),
            ("in_progress", 0),
            ("pending", 1),
            ("waiting", 0),
        ];
        assert_eq!(census.counts, BTreeMap::from(expected));
        assert_eq!(take(&layout).unwrap(), BTreeMap::from(expected));
    }
}
