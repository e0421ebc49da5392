//! Taking a file: it is moved first, looked at second, and given its new content third.
//!
//! The new content stands in a file of its own by then, and comes by an exchange, so that the
//! bytes that were taken stand under its name afterwards. A file that turns out not to be the one
//! that was meant is given back as it is.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{exchange, move_no_replace};
use crate::mutant;

/// What a file is known by between two looks. A rename does not change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub modified_ns: i128,
}

impl Identity {
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified_ns: i128::from(metadata.mtime()) * 1_000_000_000
                + i128::from(metadata.mtime_nsec()),
        }
    }

    /// The identity of what stands at `path` now, a link itself rather than its target.
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self::of(&std::fs::symlink_metadata(path)?))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// It was moved or deleted meanwhile.
    #[error("it no longer exists")]
    Gone,
    /// It is not the file that was read.
    #[error("it changed after it was read")]
    Changed,
    /// The id stands where this one would go.
    #[error("the id is taken")]
    Taken,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Moves `from`, if it is still the file that `identity` says, to `to`, with the content of
/// `content`, under whose name the bytes stand then that `from` had.
pub fn take(from: &Path, identity: Identity, to: &Path, content: &Path) -> Result<(), TakeError> {
    if mutant::is("two-step-claim") {
        std::fs::copy(from, to)?;
        exchange(content, to)?;
        std::fs::remove_file(from)?;
        return Ok(());
    }
    if let Err(error) = move_no_replace(from, to) {
        return Err(match error.kind() {
            io::ErrorKind::NotFound if std::fs::symlink_metadata(from).is_err() => TakeError::Gone,
            io::ErrorKind::AlreadyExists => TakeError::Taken,
            _ => TakeError::Io(error),
        });
    }
    let same = Identity::at(to).is_ok_and(|now| now == identity);
    let swapped = if same { exchange(content, to) } else { Ok(()) };
    if same && swapped.is_ok() {
        return Ok(());
    }
    // Not what was read, or no room to swap.
    let given_back = move_no_replace(to, from);
    swapped?;
    given_back?;
    Err(TakeError::Changed)
}
