//! Room for outcomes on a full disk.
//!
//! An attempt that fills the disk would never end: its outcome takes a few kilobytes, and nobody frees
//! them but its user. So a file of a megabyte is held back. When a write meets a full disk, the file is
//! deleted and the write is tried again. Until the file can be made anew the disk counts as full, and no
//! attempt starts that would use the room up.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

const SIZE: u64 = 1024 * 1024;

/// The file that holds the room.
#[derive(Debug)]
pub struct Reserve {
    path: PathBuf,
    /// It was deleted and is not back yet.
    is_used: bool,
}

impl Reserve {
    /// Holds the room. A disk that has too little, or can't hold any back, does without.
    pub fn hold(path: PathBuf) -> Self {
        let reserve = Self {
            path,
            is_used: false,
        };
        if let Err(error) = reserve.make() {
            tracing::debug!("{}: {error}", reserve.path.display());
        }
        reserve
    }

    /// Whether a write that failed with this error may succeed now.
    pub fn give(&mut self, error: &io::Error) -> bool {
        let is_full = matches!(
            error.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded
        );
        if is_full && !self.is_used && fs::remove_file(&self.path).is_ok() {
            self.is_used = true;
        }
        self.is_used
    }

    /// Whether the room was given and is not back. Tries to have it back, where there is as much again:
    /// the last bytes of a disk are no room for new attempts.
    pub fn is_missing(&mut self) -> bool {
        if self.is_used && self.has_room() && self.make().is_ok() {
            self.is_used = false;
        }
        self.is_used
    }

    fn has_room(&self) -> bool {
        let folder = self.path.parent().map(rustix::fs::statvfs);
        folder.is_some_and(|disk| {
            disk.is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= 2 * SIZE)
        })
    }

    /// Whether the room was given, without trying anything.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    fn make(&self) -> io::Result<()> {
        let is_whole = |found: fs::Metadata| found.is_file() && found.blocks() * 512 >= SIZE;
        if fs::symlink_metadata(&self.path).is_ok_and(is_whole) {
            return Ok(());
        }
        let _ = fs::remove_file(&self.path);
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path)?;
        let made = allocate(&file);
        if made.is_err() {
            let _ = fs::remove_file(&self.path);
        }
        made
    }
}

#[cfg(target_os = "linux")]
fn allocate(file: &File) -> io::Result<()> {
    let none = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(file, none, 0, SIZE).map_err(io::Error::from)
}

#[cfg(not(target_os = "linux"))]
fn allocate(_: &File) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_given_once_and_comes_back_with_space() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserve");
        let mut reserve = Reserve::hold(path.clone());
        assert!(path.metadata().unwrap().len() == SIZE);
        let full = io::Error::from(ErrorKind::StorageFull);
        assert!(!reserve.give(&io::Error::from(ErrorKind::PermissionDenied)));
        assert!(path.exists() && !reserve.is_missing());
        assert!(reserve.give(&full));
        assert!(!path.exists() && reserve.is_used());
        assert!(!reserve.is_missing() && path.exists());
        // A start finds it as it is, and one that was cut off is made whole.
        File::create(&path).unwrap();
        drop(Reserve::hold(path.clone()));
        assert_eq!(path.metadata().unwrap().len(), SIZE);
    }
}
