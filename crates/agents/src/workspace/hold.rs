//! One writer at a time for what git keeps of the worktrees of a repository.
//!
//! Git takes no lock around `.git/worktrees`: while one process adds a tree, every other one that lists
//! them finds half-written files and gives up. Our own processes take turns by a lock in the
//! repository's common folder. The system frees it when its holder dies. Other users of git do not know the
//! lock; calls that fail because of them are tried again ([`super::git`]).

use std::fs::{self, File, TryLockError};
use std::path::Path;

use super::git::{Repository, WorkspaceError};

/// The lock, in the repository's common folder.
const LOCK: &str = "handoffd-worktrees.lock";

/// The right to change the worktrees and branches of a repository, for as long as this value lives.
#[derive(Debug)]
pub struct Hold {
    _file: File,
}

impl Repository {
    /// Waits until no other process of ours works on the repository's list of worktrees.
    pub fn hold(&self) -> Result<Hold, WorkspaceError> {
        let path = self.common.join(LOCK);
        let failed = |error: std::io::Error| {
            WorkspaceError::passing(format!("{} can't be locked: {error}", path.display()))
        };
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("(waiting for {}: another handoff uses it)", path.display());
                file.lock().map_err(failed)?;
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        Ok(Hold { _file: file })
    }

    /// Removes what a kill left of entries that git never finished, for trees below `folder`. One such
    /// entry with an empty file makes git refuse every call that lists worktrees.
    ///
    /// Only our own processes make trees there, and they hold the lock while they do.
    pub fn drop_unfinished(&self, _: &Hold, folder: &Path) -> Result<(), WorkspaceError> {
        let Ok(entries) = fs::read_dir(self.common.join("worktrees")) else {
            return Ok(());
        };
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        for entry in entries.flatten() {
            let entry = entry.path();
            let read = |name: &str| fs::read_to_string(entry.join(name)).unwrap_or_default();
            let ours = Path::new(read("gitdir").trim()).starts_with(&folder);
            let whole = ["commondir", "HEAD"]
                .iter()
                .all(|name| !read(name).trim().is_empty());
            if ours && !whole {
                fs::remove_dir_all(&entry).map_err(|error| {
                    WorkspaceError::passing(format!(
                        "{} can't be removed: {error}",
                        entry.display()
                    ))
                })?;
            }
        }
        Ok(())
    }
}
