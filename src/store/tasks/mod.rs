//! The states of tasks: one file each, replaced whole, by one writer at a time.
//!
//! A writer holds the task's lock, brings the version after the stored one, and puts a new file
//! in the old one's place; anything else is a [`StoreError::Conflict`] and changes nothing. A
//! reader needs no lock: what it opens is a whole document, the old one or the new one. The lock
//! is the kernel's and goes with its holder, so a writer that was killed blocks nobody; what it
//! may leave is a temporary file, which the next writer takes away.
//!
//! Each version also leaves a line in the task's history, written before the version takes its
//! place. A line without its version (a writer that died in between) is told by the line after
//! it, or by the state, and is not shown.
//!
//! Deliberately absent: merging. Who loses a race loads again and decides anew.

mod error;
mod file;
mod history;
mod lock;

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::clock::Clock;
use crate::durable::{self, Durability, owner};
use crate::protocol::json;
use crate::protocol::task::{Change, FOLDER, MAX_APPLIED, StateError, TaskId, TaskState, change};

pub use error::StoreError;
pub use file::read_plain;
use lock::Lock;
pub use lock::{Held, Holder};

/// How large a state may become.
pub const MAX_STATE_SIZE: u64 = 8 << 20;

/// How long a writer waits for another one.
pub const LOCK_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
    durability: Durability,
    wait: Duration,
    max_size: u64,
    clock: Clock,
}

impl Store {
    /// The states of the root in `root`. Nothing is read or made yet.
    pub fn new(root: &Path, durability: Durability) -> Self {
        Self {
            folder: root.join(FOLDER),
            durability,
            wait: LOCK_WAIT,
            max_size: MAX_STATE_SIZE,
            clock: Clock::System,
        }
    }

    /// For somebody who only looks, and so need not know how durable a write would be.
    pub fn for_reading(root: &Path) -> Self {
        Self::new(root, Durability::Full)
    }

    /// The same store, whose writers wait this long at most.
    #[must_use]
    pub fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The same store with another limit for a state.
    #[must_use]
    pub fn holding(mut self, max_size: u64) -> Self {
        self.max_size = max_size;
        self
    }

    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    pub fn path(&self, task: &TaskId) -> PathBuf {
        self.folder.join(format!("{task}.json"))
    }

    fn lock_path(&self, task: &TaskId) -> PathBuf {
        self.folder.join(format!("{task}.lock"))
    }

    fn history_path(&self, task: &TaskId) -> PathBuf {
        self.folder.join(format!("{task}.history.jsonl"))
    }

    /// Used under the lock only, so there is one for each task and a crash leaves one at most.
    fn temp_path(&self, task: &TaskId) -> PathBuf {
        self.folder.join(format!(".{task}.tmp"))
    }

    /// The state as it is now; none if the task has none yet.
    pub fn load(&self, task: &TaskId) -> Result<Option<TaskState>, StoreError> {
        self.has_folder()?;
        let path = self.path(task);
        let Some(bytes) = read_plain(&path, self.max_size)? else {
            return Ok(None);
        };
        parse(&path, task, &bytes).map(Some)
    }

    /// Replaces the stored state, if this one is the version after it.
    pub fn save(&self, state: &TaskState) -> Result<TaskState, StoreError> {
        let task = state.task();
        let path = self.path(task);
        // Who is late already need not wait to hear it.
        let seen = inode(&path);
        if seen.is_none() {
            // Not even a lock is left for a task that is not there.
            check_version(self.load(task)?.as_ref(), state)?;
        }
        let lock = self.lock(task, || {
            if inode(&path) == seen {
                return Ok(());
            }
            check_version(self.load(task)?.as_ref(), state)
        })?;
        self.replace(&lock, self.load(task)?.as_ref(), state)
    }

    /// Loads, lets `change` make the next version of what it finds, and saves it. `None` from
    /// `change` leaves everything as it is.
    ///
    /// If another writer is faster, it is done again, and this time the lock is held from the
    /// load to the save: whoever was late once is not late twice, however many there are. So
    /// `change` should be quick when it is asked a second time.
    pub fn update<E: From<StoreError>>(
        &self,
        task: &TaskId,
        mut change: impl FnMut(Option<TaskState>) -> Result<Option<TaskState>, E>,
    ) -> Result<Option<TaskState>, E> {
        let Some(next) = change(self.load(task)?)? else {
            return Ok(None);
        };
        match self.save(&next) {
            Err(StoreError::Conflict { .. }) => {}
            saved => return Ok(Some(saved?)),
        }
        let lock = self.lock(task, || Ok(()))?;
        let stored = self.load(task)?;
        let Some(next) = change(stored.clone())? else {
            return Ok(None);
        };
        Ok(Some(self.replace(&lock, stored.as_ref(), &next)?))
    }

    fn lock(
        &self,
        task: &TaskId,
        still: impl FnMut() -> Result<(), StoreError>,
    ) -> Result<Lock, StoreError> {
        self.make_folder()?;
        let now = self.clock.now().wall;
        lock::take(&self.lock_path(task), task, self.wait, now, still)
    }

    /// Puts `next` in the place of `stored`, whose task's lock is held.
    fn replace(
        &self,
        _held: &Lock,
        stored: Option<&TaskState>,
        next: &TaskState,
    ) -> Result<TaskState, StoreError> {
        check_version(stored, next)?;
        let task = next.task();
        let path = self.path(task);
        let next = remembering(stored, next);
        let bytes = self.encode(&path, &next)?;
        let line = change(stored, &next, self.clock.now().wall);
        history::append(&self.history_path(task), &line, self.durability)?;
        durable::write_whole(&path, &self.temp_path(task), &bytes, self.durability)
            .map_err(|source| StoreError::io(&path, source))?;
        Ok(next)
    }

    /// What each version changed, the first one first.
    pub fn history(&self, task: &TaskId) -> Result<Vec<Change>, StoreError> {
        let newest = self.load(task)?.map_or(0, |state| state.version());
        history::read(&self.history_path(task), newest)
    }

    /// What the last handoff brought to a state; a version that only keeps what gates said is none.
    pub fn last_handoff(&self, state: &TaskState) -> Option<Change> {
        history::last_handoff(&self.history_path(state.task()), state.version())
    }

    /// Every task that has a state, by name.
    pub fn tasks(&self) -> Result<Vec<TaskId>, StoreError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                self.has_folder()?;
                return Err(StoreError::io(&self.folder, error));
            }
        };
        let mut tasks: Vec<TaskId> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| TaskId::parse(name.strip_suffix(".json")?).ok())
            .collect();
        tasks.sort();
        Ok(tasks)
    }

    /// Whether the folder is there. A link in its place may lead out of the root.
    fn has_folder(&self) -> Result<bool, StoreError> {
        let mut is_there = false;
        for folder in [self.folder.parent(), Some(&self.folder)]
            .into_iter()
            .flatten()
        {
            is_there = match fs::symlink_metadata(folder) {
                Ok(found) if found.is_dir() => true,
                Ok(found) => {
                    let path = folder.to_owned();
                    let what = if found.is_symlink() {
                        "a symbolic link"
                    } else {
                        "a file"
                    };
                    return Err(StoreError::NotAFolder { path, what });
                }
                Err(_) => false,
            };
        }
        Ok(is_there)
    }

    fn make_folder(&self) -> Result<(), StoreError> {
        let failed = |error| StoreError::io(&self.folder, error);
        if self.has_folder()? {
            return owner::may_make_in(&self.folder).map_err(failed);
        }
        let made = owner::make_folders(&self.folder).and_then(|()| {
            // The folder and the one it stands in may both be new.
            for parent in self.folder.ancestors().skip(1).take(2) {
                durable::sync_dir(&fs::File::open(parent)?, self.durability)?;
            }
            Ok(())
        });
        made.map_err(failed)
    }

    /// Whether a state is small enough to be saved.
    pub fn check_size(&self, state: &TaskState) -> Result<(), StoreError> {
        self.encode(&self.path(state.task()), state).map(drop)
    }

    fn encode(&self, path: &Path, state: &TaskState) -> Result<Vec<u8>, StoreError> {
        let mut bytes = serde_json::to_vec_pretty(state.document())
            .map_err(|error| StoreError::io(path, error.into()))?;
        bytes.push(b'\n');
        let size = bytes.len() as u64;
        if size > self.max_size {
            return Err(StoreError::TooLarge {
                path: path.to_owned(),
                size,
                most: self.max_size,
            });
        }
        Ok(bytes)
    }
}

fn parse(path: &Path, task: &TaskId, bytes: &[u8]) -> Result<TaskState, StoreError> {
    let broken = |why: String| StoreError::Broken {
        path: path.to_owned(),
        why,
    };
    let text = std::str::from_utf8(bytes).map_err(|_| broken("not UTF-8".to_owned()))?;
    let value = json::parse_own(text).map_err(|error| broken(error.to_string()))?;
    let Value::Object(doc) = value else {
        return Err(broken("a JSON object was expected".to_owned()));
    };
    let state = TaskState::from_document(doc).map_err(|error| match error {
        StateError::NewerFormat { found } => StoreError::NewerFormat {
            path: path.to_owned(),
            found,
        },
        StateError::Invalid(_) => broken(error.to_string()),
    })?;
    if state.task() != task {
        let found = state.task();
        return Err(broken(format!("it is the state of {found}, not of {task}")));
    }
    Ok(state)
}

/// Which file stands there now: another one after every save.
fn inode(path: &Path) -> Option<(u64, i64, i64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.ino(), found.ctime(), found.ctime_nsec()))
}

fn check_version(stored: Option<&TaskState>, brought: &TaskState) -> Result<(), StoreError> {
    let at = stored.map_or(0, TaskState::version);
    if brought.version() == at.saturating_add(1) {
        return Ok(());
    }
    Err(StoreError::Conflict {
        task: brought.task().clone(),
        stored: stored.map(TaskState::version),
        brought: brought.version(),
    })
}

/// The state with what the stored one remembers of applied outcomes: an agent that saves a
/// document of its own making must not make the daemon forget.
fn remembering(stored: Option<&TaskState>, brought: &TaskState) -> TaskState {
    let mut state = brought.clone();
    let known: Vec<&str> = brought.applied().collect();
    let mut all: Vec<&str> = stored
        .iter()
        .flat_map(|stored| stored.applied())
        .filter(|key| !known.contains(key))
        .collect();
    if all.is_empty() && known.len() <= MAX_APPLIED {
        return state;
    }
    all.extend(known);
    let skipped = all.len().saturating_sub(MAX_APPLIED);
    let kept: Vec<Value> = all.into_iter().skip(skipped).map(Value::from).collect();
    state.set("applied", kept);
    state
}
