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
use serde_json::{Value, json};

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

/// Who holds a lock that somebody else waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// The process that wrote the note.
    ByUs(Holder),
    /// A process that wrote none: the note is of somebody who held it before.
    ByOther { pid: u32, program: Option<String> },
    /// A process of another container or host.
    Unseen,
}

impl Held {
    pub fn to_json(&self) -> Value {
        match self {
            Self::ByUs(holder) => json!(holder),
            Self::ByOther { pid, program } => json!({ "pid": pid, "program": program }),
            Self::Unseen => json!({ "pid": null, "program": null }),
        }
    }

    /// The system knows who holds a lock; what the file says may be older.
    fn find(path: &Path) -> Option<Self> {
        let note = Holder::read(path);
        match locker(path) {
            None => note
                .filter(|note| is_alive(note.pid) != Some(false))
                .map(Self::ByUs),
            Some(0) => Some(Self::Unseen),
            Some(pid) => Some(match note {
                Some(note) if note.pid == pid => Self::ByUs(note),
                _ => Self::ByOther {
                    pid,
                    program: program_of(pid),
                },
            }),
        }
    }
}

/// The process that holds the lock of this file, where the system tells; 0 where it is one that has
/// no number here.
fn locker(path: &Path) -> Option<u32> {
    let file = std::fs::symlink_metadata(path).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let inode = file.ino().to_string();
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let device = format!("{major:02x}:{minor:02x}");
    // Some file systems have another device number here than a file of theirs has.
    let mut elsewhere = None;
    for line in locks.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, place, ..] = fields.as_slice() else {
            continue;
        };
        let Some((on, found)) = place.rsplit_once(':') else {
            continue;
        };
        if found != inode {
            continue;
        }
        let pid = pid.parse().unwrap_or(0);
        if on == device {
            return Some(pid);
        }
        elsewhere.get_or_insert(pid);
    }
    elsewhere
}

/// None where the system does not tell.
fn is_alive(pid: u32) -> Option<bool> {
    let processes = Path::new("/proc/self");
    processes
        .exists()
        .then(|| Path::new("/proc").join(pid.to_string()).exists())
}

fn program_of(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

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
                holder: Held::find(path),
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
