//! The bytes of one file: what memory has of them, and what the disk may have.
//!
//! Bytes that were written and not synced may be on disk or not, block by block. A sync that fails marks the
//! blocks as clean and leaves them unwritten, as the kernel does.

use std::collections::BTreeSet;

use crate::dice::Dice;

/// What a disk writes whole or not at all.
const BLOCK: usize = 512;

#[derive(Debug, Clone, Default)]
pub(super) struct Bytes {
    memory: Vec<u8>,
    disk: Vec<u8>,
    dirty: BTreeSet<usize>,
    is_length_dirty: bool,
    /// Where the file was made shorter since the last sync, with the number of that change.
    cuts: Vec<(u64, usize)>,
}

impl Bytes {
    /// Bytes that memory and disk agree on.
    pub fn settled(bytes: Vec<u8>) -> Self {
        Self {
            disk: bytes.clone(),
            memory: bytes,
            ..Self::default()
        }
    }

    pub fn len(&self) -> usize {
        self.memory.len()
    }

    pub fn all(&self) -> &[u8] {
        &self.memory
    }

    pub fn read_at(&self, into: &mut [u8], offset: usize) -> usize {
        let from = self.memory.get(offset..).unwrap_or_default();
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        count
    }

    pub fn write_at(&mut self, bytes: &[u8], offset: usize) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        if end > self.memory.len() {
            // What lies between the old end and the new bytes is a hole, which reads as zeros.
            self.memory.resize(end, 0);
            self.is_length_dirty = true;
        }
        self.memory[offset..end].copy_from_slice(bytes);
        self.dirty.extend(offset / BLOCK..=(end - 1) / BLOCK);
    }

    /// Changes the length. `change` is the number of this change among all changes of names and lengths.
    pub fn set_len(&mut self, len: usize, change: u64) {
        if len < self.memory.len() {
            self.cuts.push((change, len));
            self.dirty.retain(|block| block * BLOCK < len);
        }
        self.memory.resize(len, 0);
        self.is_length_dirty = true;
    }

    /// All that is dirty is on disk from now on.
    pub fn sync(&mut self) {
        if self.is_length_dirty {
            let cut = self.cuts.iter().map(|cut| cut.1).min();
            self.disk.truncate(cut.unwrap_or(usize::MAX));
            self.disk.resize(self.memory.len(), 0);
        }
        for block in std::mem::take(&mut self.dirty) {
            let start = block * BLOCK;
            let end = (start + BLOCK).min(self.memory.len()).min(self.disk.len());
            if start < end {
                self.disk[start..end].copy_from_slice(&self.memory[start..end]);
            }
        }
        self.is_length_dirty = false;
        self.cuts.clear();
    }

    /// What was dirty counts as clean, and is not on disk.
    pub fn fail_to_sync(&mut self) {
        self.dirty.clear();
        self.is_length_dirty = false;
        self.cuts.clear();
    }

    /// What a power cut leaves. `survived` says of a change whether it is on disk.
    pub fn after_power_cut(&self, dice: &mut Dice, survived: impl Fn(u64) -> bool) -> Vec<u8> {
        let cuts = self.cuts.iter().filter(|cut| survived(cut.0));
        let kept = cuts.map(|cut| cut.1).min().unwrap_or(usize::MAX);
        let old = &self.disk[..self.disk.len().min(kept)];
        let len = match (self.is_length_dirty, dice.below(3)) {
            (false, _) | (true, 0) => old.len(),
            (true, 1) => self.memory.len(),
            (true, _) => {
                let (low, high) = (
                    old.len().min(self.memory.len()),
                    old.len().max(self.memory.len()),
                );
                low + dice.below(high - low + 1)
            }
        };
        let mut left = vec![0; len];
        for (block, chunk) in left.chunks_mut(BLOCK).enumerate() {
            let source: &[u8] = match (self.dirty.contains(&block), dice.below(3)) {
                (true, 0) => &self.memory,
                (true, 1) => &[],
                _ => old,
            };
            let from = source.get(block * BLOCK..).unwrap_or_default();
            let count = from.len().min(chunk.len());
            chunk[..count].copy_from_slice(&from[..count]);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(bytes: &Bytes, survived: bool) -> BTreeSet<Vec<u8>> {
        (0..500)
            .map(|seed| bytes.after_power_cut(&mut Dice::new(seed), |_| survived))
            .collect()
    }

    #[test]
    fn what_was_synced_survives_and_the_rest_may_not() {
        let mut bytes = Bytes::default();
        bytes.write_at(b"first", 0);
        assert!(images(&bytes, true).contains(b"".as_slice()));
        assert!(images(&bytes, true).contains(b"first".as_slice()));
        bytes.sync();
        assert_eq!(images(&bytes, true), BTreeSet::from([b"first".to_vec()]));
        bytes.write_at(b"other", 0);
        let after = images(&bytes, true);
        assert_eq!(after.len(), 3, "old, new or zeros: {after:?}");
    }

    #[test]
    fn a_failed_sync_loses_what_it_should_have_written_and_the_next_one_succeeds() {
        let mut bytes = Bytes::settled(b"old".to_vec());
        bytes.write_at(b"new", 0);
        bytes.fail_to_sync();
        bytes.sync();
        assert_eq!(bytes.all(), b"new");
        assert_eq!(images(&bytes, true), BTreeSet::from([b"old".to_vec()]));
    }

    #[test]
    fn earlier_bytes_come_back_only_where_the_emptying_was_lost() {
        let mut bytes = Bytes::settled(b"earlier".to_vec());
        bytes.set_len(0, 1);
        bytes.write_at(b"now", 0);
        let has_earlier = |survived| {
            images(&bytes, survived)
                .iter()
                .any(|it| it.starts_with(b"ear"))
        };
        assert!(has_earlier(false));
        assert!(!has_earlier(true));
    }

    #[test]
    fn each_block_is_lost_by_itself() {
        let mut bytes = Bytes::settled(vec![b'o'; 2 * BLOCK]);
        bytes.write_at(&[b'n'; 2 * BLOCK], 0);
        let halves: BTreeSet<_> = images(&bytes, true)
            .iter()
            .map(|it| (it[0], it[BLOCK]))
            .collect();
        assert_eq!(halves.len(), 9);
    }
}
