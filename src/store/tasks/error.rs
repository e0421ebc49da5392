//! What can go wrong with a stored state, said with its path.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::lock::Held;
use crate::protocol::task::{FORMAT, TaskId};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{}", conflict(task, *stored, *brought))]
    Conflict {
        task: TaskId,
        /// None where no state is stored.
        stored: Option<u64>,
        brought: u64,
    },
    #[error(
        "the state of {task} was locked for {}: {}",
        humantime::format_duration(*waited),
        held_by(holder.as_ref())
    )]
    Locked {
        task: TaskId,
        waited: Duration,
        holder: Option<Held>,
    },
    #[error(
        "{} has format {found}, but this version knows formats up to {FORMAT}: left as it is; \
         use a newer handoffd",
        path.display()
    )]
    NewerFormat { path: PathBuf, found: String },
    #[error("{} is {what}, not a file", path.display())]
    NotAFile { path: PathBuf, what: &'static str },
    #[error("{} is {what}, not a folder: replace it with a folder", path.display())]
    NotAFolder { path: PathBuf, what: &'static str },
    #[error("{} is broken and left as it is: {why}", path.display())]
    Broken { path: PathBuf, why: String },
    #[error("{} would have {size} bytes; at most {most} are allowed", path.display())]
    TooLarge { path: PathBuf, size: u64, most: u64 },
    #[error("{}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl StoreError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}

fn conflict(task: &TaskId, stored: Option<u64>, brought: u64) -> String {
    match stored {
        Some(stored) => format!(
            "conflict: version {stored} of {task} is stored, so the next is {}, but you saved \
             version {brought}; load it again",
            stored.saturating_add(1)
        ),
        None => format!(
            "conflict: no state of {task} is stored, so the first version is 1, but you saved \
             version {brought}"
        ),
    }
}

fn held_by(holder: Option<&Held>) -> String {
    match holder {
        Some(Held::ByUs(holder)) => format!("{holder} holds the lock"),
        Some(Held::ByOther { pid, program }) => {
            let named = program.as_ref().map(|name| format!(" ({name:?})"));
            format!(
                "process {pid}{} holds the lock, and it is not handoffd; see what it does: ps -fp \
                 {pid}",
                named.unwrap_or_default()
            )
        }
        Some(Held::Unseen) => {
            "a process that can't be seen from here holds the lock, perhaps outside of this \
             container"
                .to_owned()
        }
        None => "the holder of the lock is unknown".to_owned(),
    }
}
