//! Where in the registry a line about something stands.
//!
//! Three numbers for each line, hashes of what it may be asked for by, each with the line's
//! offset: about eighty bytes, whatever the line says. A hash only names candidates; whoever
//! looks one up reads the line and compares, newest first, so two things with one hash cost a
//! read and nothing else.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

use super::entry::Keys;

/// What a line can be found by.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) enum By<'a> {
    Id(&'a str),
    Path(&'a str),
    PathOf { path: &'a str, handoff_id: &'a str },
}

#[derive(Default)]
pub(super) struct Index {
    hasher: RandomState,
    places: BTreeSet<(u64, u64)>,
}

impl Index {
    pub fn add(&mut self, offset: u64, line: &Keys<'_>) {
        let (path, handoff_id) = (&*line.path, &*line.handoff_id);
        for by in [
            By::Id(&line.artifact_id),
            By::Path(path),
            By::PathOf { path, handoff_id },
        ] {
            self.places.insert((self.hash(by), offset));
        }
    }

    /// Offsets of lines that may be it, the newest first.
    pub fn candidates(&self, by: By<'_>) -> impl Iterator<Item = u64> + '_ {
        let hash = self.hash(by);
        self.places
            .range((hash, 0)..=(hash, u64::MAX))
            .rev()
            .map(|(_, offset)| *offset)
    }

    #[cfg(not(test))]
    fn hash(&self, by: By<'_>) -> u64 {
        self.hasher.hash_one(by)
    }

    /// So few numbers that tests meet collisions all the time.
    #[cfg(test)]
    fn hash(&self, by: By<'_>) -> u64 {
        self.hasher.hash_one(by) % 512
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_one_hash_is_offered_newest_first() {
        let line = |id: &str| {
            format!(
                r#"{{"artifact_id":"{id}","path":"artifacts/{id}","handoff_id":"h","sha256":"","size_bytes":0,"created_at":"2026-01-13T10:00:00Z"}}"#
            )
        };
        let mut index = Index::default();
        for offset in 0..2000 {
            let line = line(&format!("a{}", offset % 1000));
            index.add(offset, &Keys::parse(line.as_bytes()).unwrap());
        }
        for n in 0..1000 {
            let offered: Vec<u64> = index.candidates(By::Id(&format!("a{n}"))).collect();
            assert!(offered.contains(&n) && offered.contains(&(n + 1000)));
            assert!(offered.is_sorted_by(|newer, older| newer > older));
        }
    }
}
