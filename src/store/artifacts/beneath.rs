//! Opening what lies below the root, and nothing else, whatever others do to the folders
//! meanwhile.
//!
//! The kernel is asked to keep a path beneath the root's descriptor (`openat2`). Where it can't
//! (an old kernel, a sandbox that forbids the call) the path is walked part by part, each part
//! opened in the one before without following a link. Reading follows links that stay inside;
//! absolute ones that name the root are walked, since the kernel refuses them all. Writing
//! follows none.
//!
//! Only regular files and folders are ever opened, and never in a way that waits: a glance says
//! what stands there, and what was opened is looked at again.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::path::RelPath;
use super::write::WriteError;
use crate::durable::{self, Durability};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// How often a path that changes underfoot is begun again.
const MOST_TRIES: usize = 128;

/// What stands at a path.
pub(in crate::store) enum Found {
    Missing,
    File { file: File, size: u64 },
    Folder,
    Other(&'static str),
    Unreadable(io::Error),
}

/// The root, as far as opening below it goes.
pub(in crate::store) struct Beneath {
    root: PathBuf,
    /// Never asks the kernel, as where it does not know how.
    pub by_foot: bool,
}

fn reading() -> OFlags {
    OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC
}

fn folder() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

pub(super) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// A file that is neither a regular one nor a folder, in words.
pub(super) fn word_for(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symlink",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}

impl Beneath {
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            by_foot: false,
        }
    }

    fn open_root(&self) -> io::Result<File> {
        File::options()
            .read(true)
            .custom_flags(libc::O_DIRECTORY)
            .open(&self.root)
    }

    /// Opens `path` for reading, if it is a file that can be read.
    pub fn look(&self, path: &RelPath) -> Found {
        let root = match self.open_root() {
            Ok(root) => root,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Missing,
            Err(error) => return Found::Unreadable(error),
        };
        let mut tried = 0;
        loop {
            let errno = match self.try_look(&root, path) {
                Ok(found) => return found,
                Err(errno) => errno,
            };
            tried += 1;
            return match errno {
                Errno::AGAIN if tried < MOST_TRIES => continue,
                Errno::NOENT | Errno::NOTDIR => Found::Missing,
                Errno::XDEV => Found::Other("a symlink that leads out of the root"),
                Errno::LOOP => Found::Other("a symlink loop"),
                errno => Found::Unreadable(errno.into()),
            };
        }
    }

    fn try_look(&self, root: &File, path: &RelPath) -> Result<Found, Errno> {
        if !self.by_foot {
            match by_kernel::look(root, path.as_str()) {
                Err(Errno::NOSYS | Errno::PERM | Errno::XDEV) => {}
                told => return told,
            }
        }
        self.walk(root, path.as_str())
    }

    fn walk(&self, root: &File, path: &str) -> Result<Found, Errno> {
        let mut way: Vec<File> = Vec::new();
        let mut to_go = Vec::new();
        push_parts(&mut to_go, path.as_bytes());
        let mut links = 0;
        while let Some(part) = to_go.pop() {
            if part == ".." {
                way.pop().ok_or(Errno::XDEV)?;
                continue;
            }
            let here = way.last().unwrap_or(root);
            let stat = rustix::fs::statat(here, &part, AtFlags::SYMLINK_NOFOLLOW)?;
            match file_type(&stat) {
                FileType::Symlink => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP);
                    }
                    let target = rustix::fs::readlinkat(here, &part, Vec::new())
                        .map_err(changed_meanwhile)?;
                    let target = target.as_bytes();
                    if target.starts_with(b"/") {
                        let inside = self.inside(target).ok_or(Errno::XDEV)?;
                        way.clear();
                        push_parts(&mut to_go, inside.as_bytes());
                    } else {
                        push_parts(&mut to_go, target);
                    }
                }
                FileType::Directory => {
                    let next = rustix::fs::openat(here, &part, folder(), Mode::empty())
                        .map_err(changed_meanwhile)?;
                    way.push(next.into());
                }
                _ if !to_go.is_empty() => return Err(Errno::NOTDIR),
                FileType::RegularFile => {
                    let flags = reading() | OFlags::NOFOLLOW;
                    let file = rustix::fs::openat(here, &part, flags, Mode::empty())
                        .map_err(changed_meanwhile)?;
                    return opened(file.into());
                }
                other => return Ok(Found::Other(word_for(other))),
            }
        }
        Ok(Found::Folder)
    }

    /// What an absolute link names, relative to the root, if it names something in it.
    fn inside(&self, target: &[u8]) -> Option<OsString> {
        let target = Path::new(OsStr::from_bytes(target));
        let below = |root: &Path| Some(target.strip_prefix(root).ok()?.as_os_str().to_owned());
        below(&self.root).or_else(|| below(&self.root.canonicalize().ok()?))
    }

    /// Opens the folder that `path` stands in, by no link; makes what is missing of it if told
    /// how durably.
    pub fn folder_of(&self, path: &RelPath, make: Option<Durability>) -> Result<File, WriteError> {
        let root = self.open_root()?;
        let (parent, _) = path.split();
        if parent.is_empty() {
            return Ok(root);
        }
        if !self.by_foot
            && let Ok(folder) = by_kernel::open_folder(&root, parent)
        {
            return Ok(folder);
        }
        let mut here = root;
        for part in parent.split('/') {
            let mut next = rustix::fs::openat(&here, part, folder(), Mode::empty());
            if let (Err(Errno::NOENT), Some(durability)) = (&next, make) {
                match rustix::fs::mkdirat(&here, part, Mode::from_raw_mode(0o750)) {
                    Ok(()) => durable::sync_dir(&here, durability)?,
                    Err(Errno::EXIST) => {}
                    Err(errno) => return Err(WriteError::Io(errno.into())),
                }
                next = rustix::fs::openat(&here, part, folder(), Mode::empty());
            }
            here = match next {
                Ok(next) => next.into(),
                Err(errno @ (Errno::NOTDIR | Errno::LOOP)) => {
                    let stat = rustix::fs::statat(&here, part, AtFlags::SYMLINK_NOFOLLOW);
                    let kind = stat.map_err(|_| io::Error::from(errno))?;
                    let what = word_for(file_type(&kind));
                    return Err(WriteError::Refused(format!(
                        "leads through `{part}`, which is {what}"
                    )));
                }
                Err(errno) => return Err(WriteError::Io(errno.into())),
            };
        }
        Ok(here)
    }
}

/// Puts the parts of a path on top of what is still to be walked.
fn push_parts(to_go: &mut Vec<OsString>, path: &[u8]) {
    let parts = path.split(|byte| *byte == b'/').rev();
    to_go.extend(
        parts
            .filter(|part| !part.is_empty() && *part != b".")
            .map(|part| OsString::from_vec(part.to_vec())),
    );
}

/// What stood there a moment ago is something else by now: begin again.
fn changed_meanwhile(errno: Errno) -> Errno {
    match errno {
        Errno::NOTDIR | Errno::LOOP | Errno::INVAL | Errno::NXIO => Errno::AGAIN,
        errno => errno,
    }
}

/// What was opened, by its own word.
fn opened(file: File) -> Result<Found, Errno> {
    let stat = rustix::fs::fstat(&file)?;
    Ok(match file_type(&stat) {
        FileType::RegularFile => Found::File {
            file,
            size: u64::try_from(stat.st_size).unwrap_or(0),
        },
        FileType::Directory => Found::Folder,
        other => Found::Other(word_for(other)),
    })
}

#[cfg(target_os = "linux")]
mod by_kernel {
    use super::{Errno, File, FileType, Found, Mode, OFlags, file_type, folder, reading, word_for};
    use rustix::fs::ResolveFlags;

    pub fn look(root: &File, path: &str) -> Result<Found, Errno> {
        let open = |flags| {
            let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            rustix::fs::openat2(root, path, flags, Mode::empty(), inside)
        };
        let glance = open(OFlags::PATH | OFlags::CLOEXEC)?;
        match file_type(&rustix::fs::fstat(&glance)?) {
            FileType::RegularFile => super::opened(open(reading())?.into()),
            FileType::Directory => Ok(Found::Folder),
            other => Ok(Found::Other(word_for(other))),
        }
    }

    pub fn open_folder(root: &File, path: &str) -> Result<File, Errno> {
        let by_no_link =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let folder = rustix::fs::openat2(root, path, folder(), Mode::empty(), by_no_link)?;
        Ok(folder.into())
    }
}

#[cfg(not(target_os = "linux"))]
mod by_kernel {
    use super::{Errno, File, Found};

    pub fn look(_root: &File, _path: &str) -> Result<Found, Errno> {
        Err(Errno::NOSYS)
    }

    pub fn open_folder(_root: &File, _path: &str) -> Result<File, Errno> {
        Err(Errno::NOSYS)
    }
}
