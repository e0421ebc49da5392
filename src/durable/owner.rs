//! Who owns what a command makes.
//!
//! A daemon can't open what root left in its folders. So what a command makes below a root gets the
//! owner and group of the folder it is made in. Where that can't be done, the command is refused
//! before it writes. The daemon itself makes everything as the user that it runs as.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, fchown};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{at, create, open_folder};

static BY_A_COMMAND: AtomicBool = AtomicBool::new(false);

/// From now on, what this process makes belongs to the owner of its folder.
pub fn belongs_to_its_folder() {
    BY_A_COMMAND.store(true, Ordering::Relaxed);
}

/// Whether a file that is made for others may belong to who made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The folder's owner works with it.
    Folder,
    /// It is handed over, as a request or a command is: its maker may keep it.
    Maker,
}

/// An error if what is made in this folder could not be given to the folder's owner.
pub fn may_make_in(folder: &Path) -> io::Result<()> {
    if !BY_A_COMMAND.load(Ordering::Relaxed) {
        return Ok(());
    }
    let (found, me) = (fs::metadata(folder)?, rustix::process::geteuid());
    if me.is_root() || found.uid() == me.as_raw() {
        return Ok(());
    }
    let text = format!(
        "did not write to {}: its owner (uid {}) could not use a file of uid {}",
        folder.join("").display(),
        found.uid(),
        me.as_raw()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Gives what was just made, and nobody else has opened yet, to the owner of its folder.
pub fn give(made: &File, folder: &Metadata, owner: Owner) -> io::Result<()> {
    if !BY_A_COMMAND.load(Ordering::Relaxed) {
        return Ok(());
    }
    let found = made.metadata()?;
    let uid = (found.uid() != folder.uid()).then(|| folder.uid());
    let gid = (found.gid() != folder.gid()).then(|| folder.gid());
    if uid.is_none() && gid.is_none() {
        return Ok(());
    }
    match fchown(made, uid, gid) {
        // The owner's own group serves the owner, too.
        Err(_) if uid.is_none() || owner == Owner::Maker => Ok(()),
        given => given,
    }
}

/// The same by way of the path of the folder.
pub fn give_in(made: &File, folder: &Path, owner: Owner) -> io::Result<()> {
    if !BY_A_COMMAND.load(Ordering::Relaxed) {
        return Ok(());
    }
    give(made, &fs::metadata(folder)?, owner)
}

/// Makes an empty file for a command that opens one which may be missing.
pub fn make_missing(path: &Path) -> io::Result<()> {
    if !BY_A_COMMAND.load(Ordering::Relaxed) || fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    match create(path, b"") {
        // Somebody else made it at the same time.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

/// Makes a folder that is to become a root. It gets the owner of the folder that it is in, where that
/// can be done.
pub fn make_top(folder: &Path) -> io::Result<()> {
    make_folders_for(folder, Owner::Maker)
}

/// Makes a folder, with those above it that are missing, for its user and group only. The umask may
/// take more.
pub fn make_folders(folder: &Path) -> io::Result<()> {
    make_folders_for(folder, Owner::Folder)
}

fn make_folders_for(folder: &Path, owner: Owner) -> io::Result<()> {
    let parent = match folder.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    if fs::metadata(folder).is_ok_and(|found| found.is_dir()) {
        return Ok(());
    }
    if fs::metadata(parent).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        make_folders_for(parent, owner)?;
    }
    if owner == Owner::Folder {
        may_make_in(parent)?;
    }
    match DirBuilder::new().mode(0o750).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) => Err(at(folder, &error)),
        Ok(()) if BY_A_COMMAND.load(Ordering::Relaxed) => {
            // Held open: a name in somebody's folder may lead elsewhere by now.
            let given = open_folder(folder).and_then(|made| give_in(&made, parent, owner));
            given.map_err(|error| at(folder, &error))
        }
        Ok(()) => Ok(()),
    }
}
