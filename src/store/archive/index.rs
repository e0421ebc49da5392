//! Where each packed handoff stands: a sorted table of fixed-width entries.
//!
//! An entry is the first half of the SHA-256 of an id, its state, and the file and place of the
//! member that holds it. A look-up is a binary search with a read for each step: twenty for a
//! million, whatever is packed. The head says the format, how many entries there are, and up to
//! which packed file they go.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::durable;
use crate::protocol::lifecycle::State;

const MAGIC: &[u8; 24] = b"handoffd archive index 1";
const MAGIC_STEM: usize = 23;
const HEAD: usize = 64;
const ENTRY: usize = 32;

type Hash = [u8; 16];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    hash: Hash,
    pub file: u32,
    pub offset: u64,
    pub state: State,
}

fn hash(id: &str) -> Hash {
    let digest = Sha256::digest(id.as_bytes());
    let mut hash = Hash::default();
    hash.copy_from_slice(&digest[..16]);
    hash
}

impl Entry {
    pub fn new(id: &str, state: State, file: u32, offset: u64) -> Self {
        Self {
            hash: hash(id),
            file,
            offset,
            state,
        }
    }

    fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.hash);
        into.extend_from_slice(&self.file.to_le_bytes());
        into.extend_from_slice(&[u8::from(self.state == State::Failed), 0, 0, 0]);
        into.extend_from_slice(&self.offset.to_le_bytes());
    }

    fn read(bytes: &[u8; ENTRY]) -> Self {
        let part = |from: usize| -> [u8; 4] {
            [
                bytes[from],
                bytes[from + 1],
                bytes[from + 2],
                bytes[from + 3],
            ]
        };
        let mut hash = Hash::default();
        hash.copy_from_slice(&bytes[..16]);
        let (low, high) = (u32::from_le_bytes(part(24)), u32::from_le_bytes(part(28)));
        Self {
            hash,
            file: u32::from_le_bytes(part(16)),
            state: if bytes[20] == 1 {
                State::Failed
            } else {
                State::Completed
            },
            offset: u64::from(low) | (u64::from(high) << 32),
        }
    }
}

pub struct Index {
    file: File,
    count: u64,
    last_file: u32,
}

impl Index {
    /// `None` where there is none. `InvalidData` says that it is damaged, `Unsupported` that a
    /// newer handoffd wrote it.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| durable::at(path, &error))?,
        };
        let damaged = || {
            let text = format!(
                "{} is damaged; delete it, and run handoffd archive",
                path.display()
            );
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0).map_err(|_| damaged())?;
        if head[..24] != MAGIC[..] {
            let newer = head[..MAGIC_STEM] == MAGIC[..MAGIC_STEM];
            let text = format!("{} is of a newer format", path.display());
            let refused = io::Error::new(io::ErrorKind::Unsupported, text);
            return Err(if newer { refused } else { damaged() });
        }
        let mut count = [0; 8];
        count.copy_from_slice(&head[24..32]);
        let count = u64::from_le_bytes(count);
        let last_file = u32::from_le_bytes([head[32], head[33], head[34], head[35]]);
        let whole = (HEAD as u64).checked_add(count.saturating_mul(ENTRY as u64));
        if whole != Some(file.metadata()?.len()) {
            return Err(damaged());
        }
        Ok(Some(Self {
            file,
            count,
            last_file,
        }))
    }

    pub fn last_file(&self) -> u32 {
        self.last_file
    }

    fn entry(&self, at: u64) -> io::Result<Entry> {
        let mut bytes = [0; ENTRY];
        let place = HEAD as u64 + at * ENTRY as u64;
        self.file.read_exact_at(&mut bytes, place)?;
        Ok(Entry::read(&bytes))
    }

    pub fn find(&self, id: &str) -> io::Result<Option<Entry>> {
        let wanted = hash(id);
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = from + (to - from) / 2;
            let entry = self.entry(middle)?;
            match entry.hash.cmp(&wanted) {
                std::cmp::Ordering::Equal => return Ok(Some(entry)),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        Ok(None)
    }

    fn all(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for at in 0..self.count {
            entries.push(self.entry(at)?);
        }
        Ok(entries)
    }
}

/// The bytes of an index of all these, up to and with the packed file `last`. Of entries for one
/// id, the one in the newest file stays.
pub fn merged(known: Option<&Index>, fresh: Vec<Entry>, last: u32) -> io::Result<Vec<u8>> {
    let mut entries = known.map_or_else(|| Ok(Vec::new()), Index::all)?;
    entries.extend(fresh);
    entries.sort_by(|a, b| (a.hash, b.file, b.offset).cmp(&(b.hash, a.file, a.offset)));
    entries.dedup_by_key(|entry| entry.hash);
    let mut bytes = Vec::with_capacity(HEAD + entries.len() * ENTRY);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(entries.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&last.to_le_bytes());
    bytes.resize(HEAD, 0);
    for entry in &entries {
        entry.write(&mut bytes);
    }
    Ok(bytes)
}
