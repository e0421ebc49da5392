//! Ids by how they begin: whoever types one stops where it is clear.
//!
//! Only the names in the state folders are read. What is packed is found by its whole id.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;

use crate::inspect::newest::names;
use crate::inspect::summary::id_of;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;

/// The ids in the state folders that begin like this, in order, and no more than `most` of them.
pub fn ids(layout: &Layout, begin: &str, most: usize) -> io::Result<Vec<String>> {
    let mut found = BTreeSet::new();
    if begin.is_empty() {
        return Ok(Vec::new());
    }
    for state in State::ALL {
        names(layout.state(state), state, |name| {
            if found.len() >= most {
                return ControlFlow::Break(());
            }
            found.extend(id_of(state, name).filter(|id| id.starts_with(begin)));
            ControlFlow::Continue(())
        })?;
    }
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn ids_are_found_in_every_folder_by_how_they_begin() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        for (state, name) in [
            (State::Pending, "build-1.yaml"),
            (State::Pending, ".build-9.tmp"),
            (State::Waiting, "build-2.json"),
            (State::Failed, "build-2.rejected"),
            (State::Completed, "other.json"),
        ] {
            fs::write(layout.state(state).join(name), "{}").unwrap();
        }
        for (begin, most, expected) in [
            ("build", 9, &["build-1", "build-2"][..]),
            ("build-2", 9, &["build-2"]),
            ("build", 1, &["build-1"]),
            ("o", 9, &["other"]),
            ("uild", 9, &[]),
            ("", 9, &[]),
        ] {
            assert_eq!(ids(&layout, begin, most).unwrap(), expected, "{begin}");
        }
    }
}
