//! What waits in `pending/` and was read, known by as little as will do.
//!
//! A backlog may hold a million. Their ids are in the schedule already, so here an id is a hash,
//! keyed anew with every start, with its extension in the two lowest bits. Two ids of one hash are
//! not to be expected within the life of a machine; if they came, the second would be read when
//! its folder is listed again after the first has gone.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use crate::protocol::name::Ext;

#[derive(Debug, Default)]
pub struct Queued {
    key: RandomState,
    ids: HashSet<u64, BuildHasherDefault<AsItIs>>,
}

impl Queued {
    pub fn insert(&mut self, id: &str, ext: Ext) {
        self.remove(id);
        self.ids.insert(self.entry(id, ext));
    }

    pub fn get(&self, id: &str) -> Option<Ext> {
        let hash = self.key.hash_one(id);
        let known = |ext: &Ext| self.ids.contains(&with(hash, *ext));
        Ext::ALL.into_iter().find(known)
    }

    pub fn contains(&self, id: &str) -> bool {
        self.get(id).is_some()
    }

    pub fn remove(&mut self, id: &str) -> Option<Ext> {
        let ext = self.get(id)?;
        self.ids.remove(&self.entry(id, ext));
        Some(ext)
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    fn entry(&self, id: &str, ext: Ext) -> u64 {
        with(self.key.hash_one(id), ext)
    }
}

fn with(hash: u64, ext: Ext) -> u64 {
    (hash & !3) | ext as u64
}

/// The entries are hashes already, but for their lowest bits, which a table looks at first.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0.rotate_right(2)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, entry: u64) {
        self.0 = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_known_with_their_extensions_until_they_leave() {
        let mut queued = Queued::default();
        for n in 0..10_000_usize {
            queued.insert(&format!("id-{n}"), Ext::ALL[n % 4]);
        }
        assert_eq!(queued.len(), 10_000);
        for n in 0..10_000_usize {
            assert_eq!(queued.get(&format!("id-{n}")), Some(Ext::ALL[n % 4]));
        }
        assert!(!queued.contains("id-10000"));
        queued.insert("id-7", Ext::Json);
        assert_eq!(queued.len(), 10_000);
        assert_eq!(queued.get("id-7"), Some(Ext::Json));
        for n in 0..10_000 {
            assert!(queued.remove(&format!("id-{n}")).is_some());
        }
        assert!(queued.is_empty() && queued.remove("id-1").is_none());
    }
}
