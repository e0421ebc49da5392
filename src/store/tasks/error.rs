//! What can go wrong with a stored state, said with its path.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::lock::Holder;
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
        holder: Option<Holder>,
    },
    #[error(
        "{} has format {found}, but this version knows formats up to {FORMAT}: left as it is; \
         use a newer handoffd",
        path.display()
    )]
    NewerFormat { path: PathBuf, found: String },
    #[error("{} is {what}, not a file", path.display())]
    NotAFile { path: PathBuf, what: &'static str },
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

fn held_by(holder: Option<&Holder>) -> String {
    match holder {
        Some(holder) => format!("{holder} holds the lock"),
        None => "the holder of the lock is unknown".to_owned(),
    }
}
