//! What specialists produced: files below the root, and the registry that says whose they are.
//!
//! Paths come from requests and results, so nobody is trusted with them: a path is checked as
//! text ([`RelPath`]), and opened so that no link, however quickly it is put there, leads a read
//! or a write out of the root. The registry, `artifacts/registry.jsonl`, has one line for each
//! artifact that an outcome named. Lines are only added; the newest one of a path counts.
//!
//! One process writes, the daemon; the lock that makes it so is held elsewhere. Any number may
//! read meanwhile.
//!
//! Deliberately absent: deleting artifacts, and any opinion on which ones a handoff must have.

pub(in crate::store) mod beneath;
mod entry;
mod index;
mod known;
mod lines;
mod measure;
mod path;
mod registry;
pub(in crate::store) mod write;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;

use crate::durable::Durability;
use beneath::{Beneath, Found};
use registry::Registry;

pub use entry::{Entry, kind_of};
pub use lines::Skipped;
pub use measure::{Bounds, Unread};
pub use path::RelPath;
pub use write::WriteError;

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    Missing,
    File {
        size_bytes: u64,
    },
    Folder,
    /// Something else, or something that can't be read: said in words.
    Other(String),
}

/// What a file's content was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    pub sha256: String,
    pub size_bytes: u64,
}

/// The artifacts of one root.
pub struct Artifacts {
    beneath: Beneath,
    durability: Durability,
    turns: write::Turns,
    registry: Registry,
}

impl Artifacts {
    /// Touches nothing yet: the registry is read when it is first needed.
    pub fn new(root: &Path, durability: Durability) -> Self {
        Self {
            beneath: Beneath::new(root),
            durability,
            turns: write::Turns::default(),
            registry: Registry::default(),
        }
    }

    /// For somebody who only looks, and so need not know how durable a write would be.
    pub fn for_reading(root: &Path) -> Self {
        Self::new(root, Durability::Full)
    }

    /// What stands there. Links that stay inside the root are followed.
    pub fn presence(&self, path: &RelPath) -> Presence {
        match self.beneath.look(path) {
            Found::Missing => Presence::Missing,
            Found::File { size, .. } => Presence::File { size_bytes: size },
            Found::Folder => Presence::Folder,
            Found::Other(what) => Presence::Other(what.to_owned()),
            Found::Unreadable(error) => Presence::Other(format!("unreadable: {error}")),
        }
    }

    /// Reads a file through and says what is in it, or else why it can't, as the end of a
    /// sentence.
    pub fn measure(&self, path: &RelPath) -> Result<Measured, String> {
        self.measure_within(path, Bounds::NONE).map_err(|unread| {
            // Without bounds it is read to its end.
            match unread {
                Unread::Refused(why) => why,
                Unread::TooLarge { .. } | Unread::Stopped => "was not read".to_owned(),
            }
        })
    }

    /// The same, for a file that nobody answers for: no further than the bounds allow.
    pub fn measure_within(&self, path: &RelPath, bounds: Bounds<'_>) -> Result<Measured, Unread> {
        let (file, size) = self.open(path).map_err(Unread::Refused)?;
        measure::measure(&file, size, bounds)
    }

    /// Copies a file of at most `most` bytes into an empty one. False if there is none to copy.
    pub fn copy_to(&self, path: &RelPath, to: &File, most: u64) -> io::Result<bool> {
        match self.open(path) {
            Ok((file, size)) if size <= most => measure::copy(&file, to, size).map(|()| true),
            _ => Ok(false),
        }
    }

    /// The content of a file of at most `most` bytes, or else why not, as the end of a sentence.
    pub fn read(&self, path: &RelPath, most: u64) -> Result<Vec<u8>, String> {
        let too_large = || format!("is larger than {most} bytes");
        let (file, size) = self.open(path)?;
        if size > most {
            return Err(too_large());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        file.take(most.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| cannot_be_read(&error))?;
        if bytes.len() as u64 > most {
            return Err(too_large());
        }
        Ok(bytes)
    }

    fn open(&self, path: &RelPath) -> Result<(std::fs::File, u64), String> {
        match self.beneath.look(path) {
            Found::Missing => Err("does not exist".to_owned()),
            Found::File { file, size } => Ok((file, size)),
            Found::Folder => Err("is a folder".to_owned()),
            Found::Other(what) => Err(format!("is {what}")),
            Found::Unreadable(error) => Err(cannot_be_read(&error)),
        }
    }

    /// Makes the folders that `path` will stand in, never through a link, and only below
    /// `artifacts/`.
    pub fn make_folder_for(&self, path: &RelPath) -> io::Result<()> {
        let made = write::check(path).and_then(|()| {
            self.beneath
                .folder_of(path, Some(self.durability))
                .map(drop)
        });
        made.map_err(|error| match error {
            WriteError::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidInput, format!("{path} {other}")),
        })
    }

    /// Writes a whole file below `artifacts/`, making its folders. Without `replace`, what
    /// stands there is never overwritten; with it, a link that stands there is replaced and not
    /// followed.
    pub fn write(
        &self,
        path: &RelPath,
        bytes: &[u8],
        replace: bool,
    ) -> Result<Measured, WriteError> {
        let (beneath, turns) = (&self.beneath, &self.turns);
        write::write(beneath, turns, self.durability, path, bytes, replace)
    }

    /// Takes a file of this name out of a folder that is not ours and puts it in its place. False
    /// if there is none.
    pub fn adopt(&self, path: &RelPath, from: &File, replace: bool) -> Result<bool, WriteError> {
        let (beneath, turns) = (&self.beneath, &self.turns);
        write::adopt(beneath, turns, self.durability, path, from, replace)
    }

    /// The id that this path of this handoff has or gets: the file's stem, with a number behind
    /// it if another artifact has that. It is kept for them until they are registered.
    pub fn id_for(&self, path: &RelPath, handoff_id: &str) -> io::Result<String> {
        self.registry.id_for(&self.beneath, path, handoff_id)
    }

    /// Adds a line for each entry, all or none, and returns once they are on disk. One that says
    /// the same as the newest line of its path is not written again.
    pub fn register(&self, entries: &[Entry]) -> io::Result<()> {
        let (beneath, durability) = (&self.beneath, self.durability);
        self.registry.register(beneath, durability, entries)
    }

    /// The newest line with this id, or else with this path.
    pub fn find(&self, id_or_path: &str) -> io::Result<Option<Entry>> {
        self.registry.find(&self.beneath, id_or_path)
    }

    /// All lines, oldest first. Returns what was passed over.
    pub fn for_each(&self, each: impl FnMut(Entry)) -> io::Result<Skipped> {
        match registry::open(&self.beneath)? {
            Some(file) => lines::oldest_first(&file, each),
            None => Ok(Skipped::default()),
        }
    }

    /// Lines from the newest to the oldest, until `each` breaks off; reads no further than that.
    pub fn newest_first(&self, each: impl FnMut(Entry) -> ControlFlow<()>) -> io::Result<Skipped> {
        match registry::open(&self.beneath)? {
            Some(file) => lines::newest_first(&file, each),
            None => Ok(Skipped::default()),
        }
    }
}

fn cannot_be_read(error: &io::Error) -> String {
    format!("can't be read: {error}")
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}
