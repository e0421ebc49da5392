//! Packing what ended long ago into the archive.
//!
//! What is packed is on disk, read back and found by its id before the first original goes, and
//! each goes only if it is still the file that was packed. So at every instant a record stands in
//! its folder, or in the archive, or in both.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::clock::Wall;
use crate::durable::{self, Durability};
use crate::protocol::record::Record;
use crate::retention::sweep::Old;
use crate::spool::layout::Layout;
use crate::spool::look::Identity;
use crate::store::archive::Archive;
use crate::store::archive::packed::Packed;

/// The most that is packed into one file, in bytes and in handoffs.
const MOST_BYTES: usize = 64 * 1024 * 1024;
const MOST_HANDOFFS: usize = 20_000;

/// What came of it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Packed, and gone from their folders; or would be, if they were only counted.
    pub packed: usize,
    /// Left where they are: bytes that were never a request, or something that can't be read.
    pub left: usize,
}

/// Gathers what is to be packed, and packs it when it is enough for a file.
pub struct Packer<'a> {
    layout: &'a Layout,
    archive: Archive,
    day: String,
    gathered: Vec<(Packed, Old, Vec<PathBuf>)>,
    bytes: usize,
    pub tally: Tally,
}

impl<'a> Packer<'a> {
    pub fn new(layout: &'a Layout, now: Wall) -> Self {
        let day = now.to_string();
        Self {
            layout,
            archive: Archive::new(&layout.archive()),
            day: day.split('T').next().unwrap_or_default().to_owned(),
            gathered: Vec::new(),
            bytes: 0,
            tally: Tally::default(),
        }
    }

    /// Takes one that is old enough.
    pub fn take(&mut self, old: Old) -> io::Result<()> {
        let Some((packed, logs)) = read(self.layout, &old) else {
            self.tally.left += 1;
            return Ok(());
        };
        let files = packed.files.iter().map(|(_, bytes)| bytes.len());
        self.bytes += packed.record.len() + files.sum::<usize>();
        self.gathered.push((packed, old, logs));
        if self.bytes >= MOST_BYTES || self.gathered.len() >= MOST_HANDOFFS {
            self.flush()?;
        }
        Ok(())
    }

    /// Counts one as [`take`](Self::take) would, and packs nothing.
    pub fn count(&mut self, old: &Old) {
        match read(self.layout, old) {
            Some(_) => self.tally.packed += 1,
            None => self.tally.left += 1,
        }
    }

    /// Packs what is gathered, and lets the originals go.
    pub fn flush(&mut self) -> io::Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        self.bytes = 0;
        let mut fresh = Vec::new();
        for (packed, ..) in &gathered {
            // A crash may have come between packing and letting go.
            if self.archive.find(&packed.id)?.as_ref() != Some(packed) {
                fresh.push(packed.clone());
            }
        }
        if !fresh.is_empty() {
            self.archive.pack(&self.day, &fresh)?;
        }
        for (_, old, logs) in gathered {
            if old.remove(self.layout)? == 0 {
                self.tally.left += 1;
                continue;
            }
            self.tally.packed += 1;
            for log in logs {
                match fs::remove_file(&log) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Reads all that is kept of one, and which logs of attempts are part of it.
fn read(layout: &Layout, old: &Old) -> Option<(Packed, Vec<PathBuf>)> {
    let (state, id, identity) = old.record.as_ref()?;
    let path = layout.record(*state, id);
    let bytes = fs::read(&path).ok()?;
    // What has changed since it was found is not old.
    if Identity::at(&path).ok()? != *identity {
        return None;
    }
    let record = Record::read(&bytes).ok()?;
    // Decided and on its way, or only a notice beside bytes that are no text.
    let is_moving = record.meta.to.is_some_and(|to| to != *state);
    if is_moving || record.meta.rejected.is_some() {
        return None;
    }
    let logs: Vec<_> = record
        .meta
        .attempts
        .iter()
        .flat_map(|attempt| ["log", "out"].map(|ext| format!("{id}.{}.{ext}", attempt.number)))
        .map(|name| layout.logs().join(name))
        .filter(|path| path.is_file())
        .collect();
    let mut files = Vec::new();
    for file in old.files.iter().chain(&logs) {
        let name = file.file_name()?.to_str()?.to_owned();
        files.push((name, fs::read(file).ok()?));
    }
    #[expect(clippy::cast_possible_truncation, reason = "milliseconds fit")]
    let modified = Wall((identity.modified_ns / 1_000_000) as i64);
    let packed = Packed {
        id: id.clone(),
        state: *state,
        modified,
        record: bytes,
        files,
    };
    Some((packed, logs))
}

/// Puts a packed handoff back into its folder, with all that belongs to it. It is for the caller to
/// have the archive let it go. `false` if the id stands in a folder already.
pub fn restore(layout: &Layout, packed: &Packed) -> io::Result<bool> {
    if !layout.states_of(&packed.id).is_empty() {
        return Ok(false);
    }
    for folder in [layout.logs(), layout.tmp(), &layout.originals()] {
        durable::owner::may_make_in(folder)?;
    }
    for (name, bytes) in &packed.files {
        let is_log = [".log", ".out"].iter().any(|end| name.ends_with(end));
        let folder = if is_log {
            layout.logs().to_path_buf()
        } else if Path::new(name).extension().is_some_and(|it| it == "json") {
            layout.results()
        } else {
            layout.originals()
        };
        let compacted = layout.compacted_of(&packed.id);
        let path = if compacted.file_name().is_some_and(|it| it == name.as_str()) {
            compacted
        } else {
            folder.join(name)
        };
        durable::create_anew(&path, bytes)?;
    }
    let temp = layout.tmp().join(format!("restore-{}.json", packed.id));
    let file = durable::create(&temp, &packed.record)?;
    durable::sync_file(&file, Durability::Full)?;
    let path = layout.record(packed.state, &packed.id);
    match durable::move_no_replace(&temp, &path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&temp).map(|()| false)
        }
        moved => moved.map(|()| true),
    }
}
