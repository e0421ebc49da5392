//! One process at a time in the worktree of a line of handoffs.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::git::WorkspaceError;
use super::names::encode;

/// What to do while another process works in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// An attempt waits: nothing was tried yet, and the other one ends.
    Wait,
    /// A command that looks after trees leaves it alone.
    Refuse,
}

/// The right to work in the tree of a line.
#[derive(Debug)]
pub struct LineLock {
    path: PathBuf,
    _file: File,
}

impl LineLock {
    /// Removes the file, of a tree that is gone.
    pub fn remove(self) {
        // Where it can't be removed, an empty file is left.
        drop(fs::remove_file(&self.path));
    }
}

/// Takes the lock of a line: only one process works on a tree at a time.
pub fn lock(folder: &Path, line: &str, busy: Busy) -> Result<LineLock, WorkspaceError> {
    let failed = |error: std::io::Error| {
        WorkspaceError::passing(format!("can't use {}: {error}", folder.display()))
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(folder)
        .map_err(failed)?;
    let path = folder.join(format!(".{}.lock", encode(line)));
    loop {
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            // A tree is removed with its lock, and a lock without a name keeps nobody out.
            Ok(()) if is_at(&file, &path) => return Ok(LineLock { path, _file: file }),
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) if busy == Busy::Wait => {
                eprintln!("(waiting for the worktree of {line}: another process works in it)");
                file.lock().map_err(failed)?;
                if is_at(&file, &path) {
                    return Ok(LineLock { path, _file: file });
                }
            }
            Err(fs::TryLockError::WouldBlock) => {
                return Err(WorkspaceError::passing(format!(
                    "another process works in the worktree of {line}: it holds {}",
                    path.display()
                )));
            }
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}

/// Whether an open file is the one that has this name now.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}
