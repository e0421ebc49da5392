//! Reading a plain file that anyone may have put there, without following, waiting or filling
//! the memory.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use super::error::StoreError;

/// The bytes of a file of at most `most` bytes; none if there is no such file.
///
/// Files here are replaced, never rewritten, so what was opened is whole.
pub fn read_plain(path: &Path, most: u64) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(mut file) = open_plain(path, OpenOptions::new().read(true))? else {
        return Ok(None);
    };
    let failed = |source| StoreError::io(path, source);
    let size = file.metadata().map_err(failed)?.len();
    let mut bytes = Vec::new();
    if size <= most {
        bytes.reserve(usize::try_from(size).unwrap_or(0) + 1);
        let reader = (&mut file).take(most.saturating_add(1));
        { reader }.read_to_end(&mut bytes).map_err(failed)?;
    }
    let size = size.max(bytes.len() as u64);
    if size > most {
        let path = path.to_owned();
        return Err(StoreError::TooLarge { path, size, most });
    }
    Ok(Some(bytes))
}

/// Opens a plain file, and nothing that only looks like one: a link is not followed, a pipe not
/// waited for. None if there is nothing.
pub(super) fn open_plain(
    path: &Path,
    options: &mut OpenOptions,
) -> Result<Option<File>, StoreError> {
    let not_a_file = |what| StoreError::NotAFile {
        path: path.to_owned(),
        what,
    };
    // Opening a device can do things; so a first glance decides what is opened at all.
    if let Ok(glance) = std::fs::symlink_metadata(path)
        && let Some(what) = other_than_file(&glance)
    {
        return Err(not_a_file(what));
    }
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = match options.custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return Err(not_a_file("a symbolic link"));
        }
        Err(error) => return Err(StoreError::io(path, error)),
    };
    let opened = file
        .metadata()
        .map_err(|error| StoreError::io(path, error))?;
    match other_than_file(&opened) {
        Some(what) => Err(not_a_file(what)),
        None => Ok(Some(file)),
    }
}

fn other_than_file(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a folder")
    } else if kind.is_symlink() {
        Some("a symbolic link")
    } else if kind.is_fifo() {
        Some("a named pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}
