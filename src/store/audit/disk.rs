//! The file that the log is written to, and the calls on it that can fail.
//!
//! They stand behind a trait, so that a test can be a disk that is full, refuses to sync, or
//! keeps half a line. What was written and not synced yet is kept, because after a failed sync
//! the same bytes are written again.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use super::files::DayFile;
use super::line::hash;
use crate::durable::{self, Durability};

/// The three calls that can fail for want of a disk; a test puts its own in.
pub(super) trait Disk: Send {
    fn write_at(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn truncate(&mut self, file: &File, len: u64) -> io::Result<()>;
    fn sync(&mut self, file: &File, durability: Durability) -> io::Result<()>;
}

pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn write_at(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn truncate(&mut self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn sync(&mut self, file: &File, durability: Durability) -> io::Result<()> {
        durable::sync_file(file, durability)
    }
}

/// The file that is being written. Not opened for appending: Linux would then ignore the
/// offset, and with it the chance to write the same bytes again after a failed sync.
pub(super) struct Current {
    pub day: String,
    pub path: PathBuf,
    pub file: Arc<File>,
    pub len: u64,
}

impl Current {
    /// Whether the file still stands under its name and ends with this line.
    pub fn ends_with(&self, line_len: u64, line_hash: &str) -> io::Result<bool> {
        let here = self.file.metadata()?;
        let is_named = match fs::symlink_metadata(&self.path) {
            Ok(named) => (named.dev(), named.ino()) == (here.dev(), here.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !is_named || here.len() != self.len {
            return Ok(false);
        }
        let Some(begin) = self.len.checked_sub(line_len + 1) else {
            return Ok(self.len == 0);
        };
        let mut line = vec![0; usize::try_from(line_len).map_err(io::Error::other)? + 1];
        self.file.read_exact_at(&mut line, begin)?;
        Ok(line.pop() == Some(b'\n') && hash(&line) == line_hash)
    }

    pub fn open(day: DayFile) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&day.path)?;
        let len = file.metadata()?.len();
        Ok(Self {
            day: day.day,
            path: day.path,
            file: Arc::new(file),
            len,
        })
    }
}

/// Bytes that may not be on disk yet, and where they stand.
pub(super) struct Chunk {
    pub file: Arc<File>,
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// What was written since the last good sync.
#[derive(Default)]
pub(super) struct Unsynced {
    chunks: Vec<Chunk>,
    failed: bool,
}

impl Unsynced {
    pub fn keep(&mut self, chunk: Chunk) {
        self.chunks.push(chunk);
    }

    /// Syncs each file once. After a failure all is written again first: the kernel may have
    /// dropped what it could not write, and call it clean.
    pub fn sync(&mut self, disk: &mut dyn Disk, durability: Durability) -> io::Result<()> {
        if self.failed {
            for chunk in &self.chunks {
                disk.write_at(&chunk.file, &chunk.bytes, chunk.offset)?;
            }
        }
        let mut done: Option<&Arc<File>> = None;
        for chunk in &self.chunks {
            if done.is_some_and(|file| Arc::ptr_eq(file, &chunk.file)) {
                continue;
            }
            if let Err(error) = disk.sync(&chunk.file, durability) {
                self.failed = true;
                return Err(error);
            }
            done = Some(&chunk.file);
        }
        Ok(())
    }
}
