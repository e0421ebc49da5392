//! How many handoffs stand in each state, each counted once.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;

use crate::inspect::met::{Meeting, Met};
use crate::inspect::newest;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;

/// The counts, by the states' words.
pub fn take(layout: &Layout) -> io::Result<BTreeMap<&'static str, usize>> {
    let mut counts = BTreeMap::from(State::ALL.map(|state| (state.status(), 0)));
    let mut met = Met::new(layout);
    for state in State::ALL {
        newest::names(layout.state(state), state, |name| {
            match met.meet(state, name, state.status()) {
                Meeting::Foreign => return ControlFlow::Continue(()),
                Meeting::Moved(left) => *counts.entry(left).or_default() -= 1,
                Meeting::First => {}
            }
            *counts.entry(state.status()).or_default() += 1;
            ControlFlow::Continue(())
        })?;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_folder_is_counted_and_what_is_dropped_under_a_taken_id_too() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        for state in State::ALL {
            fs::write(layout.record(state, state.status()), "{}").unwrap();
        }
        fs::write(layout.pending().join("completed.yaml"), "{}").unwrap();
        let mut expected = BTreeMap::from(State::ALL.map(|state| (state.status(), 1)));
        expected.insert("pending", 2);
        assert_eq!(take(&layout).unwrap(), expected);
    }
}
