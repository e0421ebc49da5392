//! Writing a whole file below `artifacts/`.
//!
//! The content is written beside its place, synced, and put there in one step, all within one
//! folder that is held open: if somebody exchanges that folder for a link meanwhile, the file
//! stands in the folder and not where the link leads.
//!
//! The temporary name follows from the file's name, so what a crash left is removed by the next
//! writer of the same file. Writers of one file take turns for that reason.

use std::fs::File;
use std::hash::BuildHasher;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::beneath::{Beneath, file_type};
use super::path::{FOLDER, RelPath};
use super::{Measured, hex};
use crate::durable::{self, Durability};

/// Names that are tried if something that can't be removed stands at the first.
const TEMP_NAMES: usize = 8;

#[derive(Debug, Error)]
pub enum WriteError {
    #[error("something else is already there")]
    Exists,
    /// Why nothing may be written there, as the end of a sentence.
    #[error("{0}")]
    Refused(String),
    /// Where this comes from the last sync, the file is in place already.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Who writes what at the moment, roughly: two files may share a turn, one never has two.
#[derive(Default)]
pub(super) struct Turns {
    hasher: std::hash::RandomState,
    turns: [Mutex<()>; 16],
}

impl Turns {
    fn take(&self, path: &RelPath) -> MutexGuard<'_, ()> {
        let at = self.hasher.hash_one(path) % self.turns.len() as u64;
        let turn = &self.turns[usize::try_from(at).unwrap_or(0)];
        turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses what is not an artifact's place.
pub(super) fn check(path: &RelPath) -> Result<(), WriteError> {
    if !path.is_below_artifacts() {
        return Err(WriteError::Refused(format!("is not below {FOLDER}/")));
    }
    match path.daemons_own() {
        Some(what) => Err(WriteError::Refused(what.to_owned())),
        None => Ok(()),
    }
}

pub(super) fn write(
    beneath: &Beneath,
    turns: &Turns,
    durability: Durability,
    path: &RelPath,
    bytes: &[u8],
    replace: bool,
) -> Result<Measured, WriteError> {
    check(path)?;
    let _turn = turns.take(path);
    place(beneath, durability, path, bytes, replace)
}

/// Moves a file of the same name out of `from`, whoever has put it there, and makes it ours: its
/// former owner must not change what was measured.
pub(super) fn adopt(
    beneath: &Beneath,
    turns: &Turns,
    durability: Durability,
    path: &RelPath,
    from: &File,
    replace: bool,
) -> Result<bool, WriteError> {
    check(path)?;
    let _turn = turns.take(path);
    let (_, name) = path.split();
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file: File = match rustix::fs::openat(from, name, flags, Mode::empty()) {
        Ok(file) => file.into(),
        Err(Errno::NOENT) => return Ok(false),
        Err(Errno::LOOP) => return Err(WriteError::Refused("is a symbolic link".to_owned())),
        Err(errno) => return Err(WriteError::Refused(format!("can't be read: {errno}"))),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() != 1 {
        let why = "is not a plain file with a single name".to_owned();
        return Err(WriteError::Refused(why));
    }
    let own = (rustix::process::geteuid(), rustix::process::getegid());
    if metadata.uid() != own.0.as_raw() {
        rustix::fs::fchown(&file, Some(own.0), Some(own.1)).map_err(io::Error::from)?;
    }
    let mode = Mode::from_raw_mode(metadata.mode() & 0o755 | 0o600);
    rustix::fs::fchmod(&file, mode).map_err(io::Error::from)?;
    durable::sync_file(&file, durability)?;
    let folder = beneath.folder_of(path, Some(durability))?;
    durable::move_between(from, &folder, name, replace).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => WriteError::Exists,
        io::ErrorKind::IsADirectory => WriteError::Refused("is a folder".to_owned()),
        _ => WriteError::Io(error),
    })?;
    durable::sync_dir(&folder, durability)?;
    Ok(true)
}

/// Writes whatever path it is told, below what it is told. One at a time for each path.
pub(in crate::store) fn place(
    beneath: &Beneath,
    durability: Durability,
    path: &RelPath,
    bytes: &[u8],
    replace: bool,
) -> Result<Measured, WriteError> {
    place_open(beneath, durability, path, bytes, replace).map(|(measured, _)| measured)
}

/// The same, with the file that was written.
pub(in crate::store) fn place_open(
    beneath: &Beneath,
    durability: Durability,
    path: &RelPath,
    bytes: &[u8],
    replace: bool,
) -> Result<(Measured, File), WriteError> {
    let folder = beneath.folder_of(path, Some(durability))?;
    let (_, name) = path.split();
    // The last step would find this out as well, but only after all the writing.
    if let Ok(stat) = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        if !replace {
            return Err(WriteError::Exists);
        }
        if file_type(&stat) == FileType::Directory {
            return Err(WriteError::Refused("is a folder".to_owned()));
        }
    }
    let (temp, mut file) = create_temp(&folder, name)?;
    let placed = (|| {
        file.write_all(bytes)?;
        durable::sync_file(&file, durability)?;
        if replace {
            durable::replace_in(&folder, &temp, name)
        } else {
            durable::move_no_replace_in(&folder, &temp, name)
        }
    })();
    if let Err(error) = placed {
        let _ = rustix::fs::unlinkat(&folder, &temp, AtFlags::empty());
        return Err(match error.kind() {
            io::ErrorKind::AlreadyExists => WriteError::Exists,
            io::ErrorKind::IsADirectory => WriteError::Refused("is a folder".to_owned()),
            _ => WriteError::Io(error),
        });
    }
    durable::sync_dir(&folder, durability)?;
    let measured = Measured {
        sha256: hex(&Sha256::digest(bytes)),
        size_bytes: bytes.len() as u64,
    };
    Ok((measured, file))
}

fn create_temp(folder: &File, name: &str) -> io::Result<(String, File)> {
    let digest = hex(&Sha256::digest(name.as_bytes()));
    let mut refused = io::Error::from(io::ErrorKind::AlreadyExists);
    for n in 0..TEMP_NAMES {
        let temp = format!(".{}-{n}.tmp", &digest[..16]);
        for _ in 0..2 {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(folder, &temp, flags, Mode::from_raw_mode(0o666)) {
                Ok(file) => return Ok((temp, file.into())),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            if let Err(errno) = rustix::fs::unlinkat(folder, &temp, AtFlags::empty()) {
                refused = errno.into();
                break;
            }
        }
    }
    Err(refused)
}
