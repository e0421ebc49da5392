//! What memory knows of the registry's file, and how the file grows.
//!
//! Adding is all or nothing: if a write or its sync fails, the file is cut back to where it was,
//! so that the next try writes its lines anew. Where it can't even be cut, the lines are there
//! but not believed to be on disk, and are said again.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use super::entry::{Entry, Keys};
use super::index::{By, Index};
use super::lines::{Lines, Skipped, entry_at};
use super::path::FOLDER;
use super::registry::REGISTRY;
use crate::durable::{self, Durability};

/// What is known of the file.
pub(super) struct Known {
    file: File,
    pub print: Print,
    index: Index,
    /// Where the last whole line ends.
    pub end: u64,
    /// The last whole line, to tell growth from a change.
    last: Option<(u64, Entry)>,
    /// Up to here it was synced by us.
    pub synced: u64,
    /// Lines whose sync failed and which could not be taken back.
    pub doubted: Range<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Print {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Print {
    pub fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }

    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl Known {
    pub fn new(file: File, print: Print) -> Self {
        Self {
            file,
            print,
            index: Index::default(),
            end: 0,
            last: None,
            synced: 0,
            doubted: 0..0,
        }
    }

    pub fn has_only_grown(&self, now: &Print) -> io::Result<bool> {
        if !now.is_same_file(&self.print) || now.size <= self.print.size {
            return Ok(false);
        }
        match &self.last {
            Some((at, entry)) => Ok(entry_at(&self.file, *at)?.as_ref() == Some(entry)),
            None => Ok(self.end == 0),
        }
    }

    /// Takes the lines after `end` into the index.
    pub fn read_on(&mut self) -> io::Result<()> {
        let mut skipped = Skipped::default();
        let mut last = None;
        let mut lines = Lines::from(&self.file, self.end);
        while let Some((offset, line)) = lines.next()? {
            match Keys::parse(line) {
                Ok(keys) => {
                    self.index.add(offset, &keys);
                    last = Some(offset);
                }
                Err(why) if !line.is_empty() => skipped.count(why),
                Err(_) => {}
            }
        }
        self.end = lines.offset;
        if let Some(at) = last
            && let Some(entry) = entry_at(&self.file, at)?
        {
            self.last = Some((at, entry));
        }
        if skipped != Skipped::default() {
            tracing::warn!(
                torn = skipped.torn,
                broken = skipped.broken,
                "skipped lines of {FOLDER}/{REGISTRY}; for details: handoffd artifacts verify"
            );
        }
        Ok(())
    }

    pub fn find(&self, by: By<'_>) -> io::Result<Option<(u64, Entry)>> {
        for offset in self.index.candidates(by) {
            let Some(entry) = entry_at(&self.file, offset)? else {
                continue;
            };
            let is_it = match by {
                By::Id(id) => entry.artifact_id == id,
                By::Path(path) => entry.path == path,
                By::PathOf { path, handoff_id } => {
                    entry.path == path && entry.handoff_id == handoff_id
                }
            };
            if is_it {
                return Ok(Some((offset, entry)));
            }
        }
        Ok(None)
    }

    /// Ends a line that a crash left without its end. What is whole then counts.
    pub fn close_torn(&mut self, writer: &File) -> io::Result<()> {
        if self.print.size > self.end {
            writer.write_all_at(b"\n", self.print.size)?;
            self.read_on()?;
            self.print = Print::of(writer)?;
        }
        Ok(())
    }

    pub fn append(&mut self, writer: &File, text: &[u8], durability: Durability) -> io::Result<()> {
        let from = self.end;
        let added = writer
            .write_all_at(text, from)
            .and_then(|()| durable::sync_file(writer, durability));
        if let Err(error) = added {
            // Taken back, so that the next try writes it to new pages: a sync that failed is
            // not believed the second time.
            let end = match writer.set_len(from) {
                Ok(()) => from,
                Err(_) => from + text.len() as u64,
            };
            let doubted = std::mem::replace(&mut self.doubted, self.synced..end);
            if !doubted.is_empty() {
                self.doubted.start = doubted.start.min(self.synced);
                self.doubted.end = doubted.end.max(end);
            }
            self.read_on()?;
            self.print = Print::of(writer)?;
            return Err(error);
        }
        self.doubted.end = self.doubted.end.min(from);
        self.read_on()?;
        self.synced = self.end;
        self.print = Print::of(writer)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::entry;
    use super::*;

    #[test]
    fn a_failed_append_is_not_believed_and_the_next_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.jsonl");
        let line = |id: &str| {
            entry(id, &format!("artifacts/{id}"), "11", "h")
                .encode()
                .unwrap()
        };
        std::fs::write(&path, line("a")).unwrap();
        let file = File::open(&path).unwrap();
        let print = Print::of(&file).unwrap();
        let mut known = Known::new(file, print);
        known.read_on().unwrap();
        // Neither written to nor cut.
        let deaf = File::open(&path).unwrap();
        let at = known.end;
        known
            .append(&deaf, &line("b"), Durability::Full)
            .unwrap_err();
        assert!(known.doubted.contains(&0), "`a` was never synced by us");
        assert_eq!(known.end, at);
        assert!(known.find(By::Id("b")).unwrap().is_none());
        let writer = File::options().write(true).open(&path).unwrap();
        known.append(&writer, &line("b"), Durability::Full).unwrap();
        let (found_at, _) = known.find(By::Id("b")).unwrap().unwrap();
        assert_eq!(found_at, at);
        assert!(!known.doubted.contains(&found_at));
        assert!(known.doubted.contains(&0));
        assert_eq!(known.synced, known.end);
    }
}
