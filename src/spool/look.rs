//! Looking at a file that anyone may have put there.
//!
//! A name is opened without following links and without waiting for the other end of a pipe,
//! and what is believed is what was opened, not what was listed. Nothing here changes a file.

pub mod disk;
pub mod names;

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::mutant;

pub use crate::durable::{Identity, at};
use handoffd_sys::fs::set_lease;
pub use handoffd_sys::fs::{Lease, ignore_lease_signals};

#[derive(Debug)]
pub enum Looked {
    Gone,
    Folder,
    /// A link, a pipe, a socket, a device: said in words.
    NotAFile {
        what: &'static str,
        identity: Identity,
    },
    TooLarge {
        identity: Identity,
    },
    Unreadable {
        error: io::Error,
        identity: Identity,
    },
    /// It changed while it was read, or another process has a lease on it: to be looked at again.
    Changing,
    Bytes {
        bytes: Vec<u8>,
        identity: Identity,
        arrived_ms: i64,
        writer: Writer,
    },
}

/// Whether somebody still has the file open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    Open,
    Closed,
    /// The system would not say: not our file, or a file system without leases.
    Unknown,
}

fn kind_of(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    if kind.is_file() {
        None
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

/// Reads a file of at most `most` bytes.
pub fn look(path: &Path, most: u64) -> Looked {
    match try_look(path, most) {
        Ok(looked) => looked,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Looked::Gone,
        // Another process has a lease on it, and has been asked to give it back.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Looked::Changing,
        Err(error) => match Identity::at(path) {
            Ok(identity) => Looked::Unreadable { error, identity },
            Err(_) => Looked::Gone,
        },
    }
}

fn try_look(path: &Path, most: u64) -> io::Result<Looked> {
    // Opening a device can do things; so a first glance decides what is opened at all.
    let glance = if mutant::is("link-followed") {
        std::fs::metadata(path)?
    } else {
        std::fs::symlink_metadata(path)?
    };
    if glance.is_dir() {
        return Ok(Looked::Folder);
    }
    if let Some(what) = kind_of(&glance) {
        return Ok(Looked::NotAFile {
            what,
            identity: Identity::of(&glance),
        });
    }
    let mut file = open_quietly(path)?;
    let before = file.metadata()?;
    let identity = Identity::of(&before);
    if before.is_dir() {
        return Ok(Looked::Folder);
    }
    if let Some(what) = kind_of(&before) {
        return Ok(Looked::NotAFile { what, identity });
    }
    if identity.size > most {
        return Ok(Looked::TooLarge { identity });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(identity.size).unwrap_or(0) + 1);
    (&mut file).take(most + 1).read_to_end(&mut bytes)?;
    let after = file.metadata()?;
    if Identity::of(&after) != identity || bytes.len() as u64 != identity.size {
        return Ok(Looked::Changing);
    }
    let arrived_ms = after.ctime() * 1000 + after.ctime_nsec() / 1_000_000;
    Ok(Looked::Bytes {
        bytes,
        identity,
        arrived_ms,
        writer: writer_of(&file),
    })
}

/// Opens for reading without following a link and without waiting for anyone.
pub fn open_quietly(path: &Path) -> io::Result<File> {
    let links = if mutant::is("link-followed") {
        0
    } else {
        libc::O_NOFOLLOW
    };
    File::options()
        .read(true)
        .custom_flags(links | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
}

/// Why a file that the folder would let go can't be moved out of it all the same: it is marked
/// so, or it is another user's in a sticky folder. Nothing but that file is in trouble then.
pub fn fixed(path: &Path) -> Option<&'static str> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    let folder = std::fs::metadata(path.parent()?).ok()?;
    let us = rustix::process::geteuid();
    let sticky = folder.mode() & libc::S_ISVTX != 0;
    if sticky && !us.is_root() && ![metadata.uid(), folder.uid()].contains(&us.as_raw()) {
        return Some(
            "it belongs to another user and its folder is sticky; run chmod -t on the folder",
        );
    }
    is_marked(path).then_some("it is immutable or append-only; run chattr -i -a on it")
}

#[cfg(target_os = "linux")]
fn is_marked(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let marks = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE)
        .is_ok_and(|found| found.stx_attributes.intersects(marks))
}

#[cfg(not(target_os = "linux"))]
fn is_marked(_path: &Path) -> bool {
    false
}

/// A read lease is granted only while nobody has the file open for writing.
fn writer_of(file: &File) -> Writer {
    match try_lease(file, Lease::Read) {
        Ok(()) => Writer::Closed,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Writer::Open,
        Err(_) => Writer::Unknown,
    }
}

/// Takes a lease, to learn whether it can be had: `WouldBlock` says that somebody is in the way,
/// anything else that the system would not tell. It is given back when `file` is closed, which is
/// to be soon. (A writer that opens the file in between waits for a few microseconds; the signal
/// that announces it is ignored by the daemon.)
pub fn try_lease(file: &File, lease: Lease) -> io::Result<()> {
    set_lease(file, Some(lease))
}

/// Gives a lease back before its file is closed.
pub fn give_up_lease(file: &File) -> io::Result<()> {
    set_lease(file, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_plain_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "12345").unwrap();
        symlink("/etc/passwd", at("link")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert!(matches!(look(&at("none"), 10), Looked::Gone));
        assert!(matches!(look(&at("folder"), 10), Looked::Folder));
        assert!(matches!(look(&at("file"), 4), Looked::TooLarge { .. }));
        assert!(matches!(look(&at("file"), 5), Looked::Bytes { .. }));
        for (name, word) in [("link", "link"), ("pipe", "pipe"), ("socket", "socket")] {
            let Looked::NotAFile { what, .. } = look(&at(name), 10) else {
                panic!("{name}")
            };
            assert!(what.contains(word));
        }
    }

    #[test]
    fn an_open_writer_is_seen() {
        ignore_lease_signals();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"{").unwrap();
        let writer = |path: &Path| match look(path, 10) {
            Looked::Bytes { writer, .. } => writer,
            other => panic!("{other:?}"),
        };
        assert_ne!(writer(&path), Writer::Closed);
        drop(file);
        assert_ne!(writer(&path), Writer::Open);
    }

    #[test]
    fn a_rename_keeps_the_identity_and_a_change_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, "1").unwrap();
        let first = Identity::at(&a).unwrap();
        crate::durable::replace(&a, &b).unwrap();
        assert_eq!(Identity::at(&b).unwrap(), first);
        std::fs::write(&b, "12").unwrap();
        assert_ne!(Identity::at(&b).unwrap(), first);
    }
}
