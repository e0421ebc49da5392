//! The lock of a task: one writer at a time, between processes, with a wait that ends.
//!
//! The kernel's `flock` has no time limit, so it is asked again and again. The holder writes who
//! it is into the file, for whoever waits in vain. The file stays: deleting a lock file that
//! somebody is about to lock would give out two locks.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::error::StoreError;
use super::file::{open_plain, read_plain};
use crate::clock::Wall;
use crate::durable::owner::make_missing;
use crate::protocol::task::TaskId;

const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// Enough for a pid and the name of any program.
const MAX_NOTE: u64 = 4096;

/// Who holds a lock, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    pub program: String,
    pub since: Wall,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name is quoted: it comes out of a file.
        write!(
            f,
            "process {} ({:?}), since {},",
            self.pid, self.program, self.since
        )
    }
}

impl Holder {
    fn myself(now: Wall) -> Self {
        let program = std::env::args_os()
            .next()
            .and_then(|path| Some(Path::new(&path).file_name()?.to_string_lossy().into_owned()));
        Self {
            pid: std::process::id(),
            program: program.unwrap_or_else(|| "unknown".to_owned()),
            since: now,
        }
    }

    fn read(path: &Path) -> Option<Self> {
        let bytes = read_plain(path, MAX_NOTE).ok()??;
        serde_json::from_slice(&bytes).ok()
    }
}

/// A lock that is held until this is dropped, or its process ends.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "the lock lives with its file")] File);

/// Takes the lock, or says after `wait` who holds it. While it waits it asks `still` now and
/// then whether there is any point in waiting.
pub(super) fn take(
    path: &Path,
    task: &TaskId,
    wait: Duration,
    now: Wall,
    mut still: impl FnMut() -> Result<(), StoreError>,
) -> Result<Lock, StoreError> {
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(lock) = try_take(path, now)? {
            return Ok(lock);
        }
        still()?;
        if begun.elapsed() >= wait {
            return Err(StoreError::Locked {
                task: task.clone(),
                waited: wait,
                holder: Holder::read(path),
            });
        }
        std::thread::sleep(uneven(pause));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Some part of a pause, by no rule that two processes share: two hundred that ask in step would
/// spend their time on asking.
fn uneven(pause: Duration) -> Duration {
    let share = u32::try_from(RandomState::new().hash_one(0) % 1024).unwrap_or(0);
    pause * share / 1024
}

fn try_take(path: &Path, now: Wall) -> Result<Option<Lock>, StoreError> {
    let failed = |source| StoreError::io(path, source);
    make_missing(path).map_err(failed)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let Some(file) = open_plain(path, &mut options)? else {
        return Err(failed(std::io::ErrorKind::NotFound.into()));
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
        Err(errno) => return Err(failed(errno.into())),
    }
    // Somebody may have deleted the file meanwhile: a lock on it would exclude nobody.
    let ours = file.metadata().map_err(failed)?;
    let there = std::fs::symlink_metadata(path);
    if !there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
        return Ok(None);
    }
    // Only a help for others; the lock holds without it.
    if let Ok(mut note) = serde_json::to_vec(&Holder::myself(now)) {
        note.push(b'\n');
        let _ = file.write_all_at(&note, 0);
        let _ = file.set_len(note.len() as u64);
    }
    Ok(Some(Lock(file)))
}
