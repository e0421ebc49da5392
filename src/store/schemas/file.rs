//! Reading a schema file that anyone may have put there.
//!
//! A name is opened below the folder and nowhere else, without waiting for the other end of a
//! pipe, and what is believed is what was opened. Links are followed as long as they stay below
//! the folder; where the system can't promise that, none is followed.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// A larger schema is refused.
pub(super) const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// How a file is opened to learn what it is.
#[cfg(target_os = "linux")]
const GLANCE: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const GLANCE: OFlags = OFlags::NONBLOCK;

/// What a file is known by between two checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// The stamp of what stands at `path` now, through links.
    pub fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path)
            .ok()
            .map(|metadata| Self::of(&metadata))
    }
}

/// Why a file could not be read.
#[derive(Debug)]
pub(super) enum Unread {
    Gone,
    /// The rest of a sentence that begins with the file's name.
    Refused(String),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR) => Self::Gone,
            Some(Errno::XDEV) => {
                Self::Refused("is, or goes through, a link that leads out of the folder".to_owned())
            }
            Some(Errno::LOOP) => Self::Refused(
                "is, or goes through, a link, which the daemon does not \
                follow"
                    .to_owned(),
            ),
            Some(Errno::ISDIR) => Self::Refused("is a folder, not a file".to_owned()),
            _ => Self::Refused(format!("can't be read: {error}")),
        }
    }
}

/// The bytes of the file `name` in `folder`, and what it is known by.
pub(super) fn read(folder: &Path, name: &str) -> Result<(Vec<u8>, Stamp), Unread> {
    // Opening a device can do things; so a first glance decides what is opened at all.
    let glance = open(folder, name, GLANCE)?;
    plain(&glance.metadata()?)?;
    let mut file = open(
        folder,
        name,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
    )?;
    let before = file.metadata()?;
    plain(&before)?;
    let stamp = Stamp::of(&before);
    if stamp.size > MOST_BYTES {
        return Err(Unread::Refused(format!(
            "is too large for a schema: {} bytes, at most {MOST_BYTES} allowed",
            stamp.size
        )));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size).unwrap_or(0) + 1);
    (&mut file).take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if Stamp::of(&file.metadata()?) != stamp || bytes.len() as u64 != stamp.size {
        return Err(Unread::Refused(
            "changed while the daemon read it".to_owned(),
        ));
    }
    Ok((bytes, stamp))
}

fn plain(metadata: &Metadata) -> Result<(), Unread> {
    let kind = metadata.file_type();
    let what = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_symlink() {
        "a link, which the daemon does not follow"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(Unread::Refused(format!("is {what}, not a file")))
}

fn open(folder: &Path, name: &str, flags: OFlags) -> io::Result<File> {
    let root = rustix::fs::open(
        folder,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        match rustix::fs::openat2(
            &root,
            name,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        ) {
            // Too old a kernel, or a sandbox that does not know the call.
            Err(Errno::NOSYS | Errno::PERM) => {}
            opened => return Ok(opened?.into()),
        }
    }
    step_by_step(root, name, flags)
}

/// Opens one part of the name after the other, and no link.
fn step_by_step(mut at: OwnedFd, name: &str, flags: OFlags) -> io::Result<File> {
    let shut = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut parts = name.split('/').peekable();
    while let Some(part) = parts.next() {
        let flags = match parts.peek() {
            Some(_) => OFlags::RDONLY | OFlags::DIRECTORY,
            None => flags,
        };
        at = rustix::fs::openat(&at, part, flags | shut, Mode::empty())?;
    }
    Ok(at.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_plain_files_below_the_folder_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("schemas");
        let at = |name: &str| folder.join(name);
        std::fs::create_dir_all(at("sub")).unwrap();
        std::fs::write(dir.path().join("secret"), "1").unwrap();
        std::fs::write(at("file"), "12345").unwrap();
        std::fs::write(at("sub/file"), "1").unwrap();
        symlink("sub/file", at("inside")).unwrap();
        symlink("../secret", at("outside")).unwrap();
        symlink("/etc/passwd", at("absolute")).unwrap();
        symlink("..", at("up")).unwrap();
        symlink("round", at("round")).unwrap();
        symlink("none", at("dangling")).unwrap();
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), kind, 0o600.into(), 0).unwrap();
        let large = File::create(at("large")).unwrap();
        large.set_len(50 * 1024 * 1024).unwrap();
        for (name, expected) in [
            ("file", "5"),
            ("inside", "1"),
            ("sub/file", "1"),
            ("none", "gone"),
            ("dangling", "gone"),
            ("file/x", "gone"),
            ("none/x", "gone"),
            (
                "outside",
                "is, or goes through, a link that leads out of the folder",
            ),
            (
                "absolute",
                "is, or goes through, a link that leads out of the folder",
            ),
            (
                "up/secret",
                "is, or goes through, a link that leads out of the folder",
            ),
            (
                "round",
                "is, or goes through, a link, which the daemon does not follow",
            ),
            ("sub", "is a folder, not a file"),
            ("pipe", "is a named pipe, not a file"),
            (
                "large",
                "is too large for a schema: 52428800 bytes, at most 4194304 allowed",
            ),
        ] {
            let found = match read(&folder, name) {
                Ok((bytes, stamp)) => {
                    assert_eq!(Stamp::at(&at(name)), Some(stamp));
                    bytes.len().to_string()
                }
                Err(Unread::Gone) => "gone".to_owned(),
                Err(Unread::Refused(why)) => why,
            };
            assert_eq!(found, expected, "{name}");
        }
        assert!(matches!(read(&at("none"), "x"), Err(Unread::Gone)));
    }

    #[test]
    fn without_help_from_the_system_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/file"), "1").unwrap();
        symlink("sub", dir.path().join("link")).unwrap();
        let open = |name| {
            let root: OwnedFd = File::open(dir.path()).unwrap().into();
            step_by_step(root, name, OFlags::RDONLY)
        };
        assert!(open("sub/file").is_ok());
        assert!(open("link/file").is_err());
        assert!(open("link").is_err());
    }
}
