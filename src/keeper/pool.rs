//! Cgroups used again: one whose attempt is gone is given to the next.
//!
//! Making and removing a cgroup costs more than the clone into it. One is used again only while
//! it is as a new one would be: nothing alive in it, nothing made below it, not frozen, no
//! controller handed down, and its attempt written down as gone, so that a journal never shows
//! two live attempts in one place. They have numbers for names, since they are nobody's.
//!
//! One that was ever killed as a whole is never used again: recent kernels count these kills,
//! and what is then cloned into it from outside is taken for a fork that the kill has missed,
//! and killed, too. So only attempts that exited by themselves, and left nothing behind, pass
//! theirs on.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::clock;

/// The rest is removed.
const MOST: usize = 64;
/// How long the unused are kept, in milliseconds.
const KEEP_MS: u64 = 1000;

/// A cgroup that is open for clones and looks.
#[derive(Debug)]
pub struct Group {
    pub dir: PathBuf,
    folder: File,
    events: File,
    control: File,
    kind: File,
}

impl Group {
    fn make(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir(&dir)?;
        let open = |name: &str| File::open(dir.join(name));
        let opened = (|| {
            Ok((
                File::open(&dir)?,
                open("cgroup.events")?,
                open("cgroup.subtree_control")?,
                open("cgroup.type")?,
            ))
        })();
        match opened {
            Ok((folder, events, control, kind)) => Ok(Self {
                dir,
                folder,
                events,
                control,
                kind,
            }),
            Err(error) => {
                let _ = fs::remove_dir(&dir);
                Err(error)
            }
        }
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Whether any live process is in it or below it. A cgroup that is gone has none.
    pub fn is_populated(&self) -> bool {
        match read(&self.events) {
            Ok(events) => has_line(&events, b"populated 1"),
            Err(error) => error.raw_os_error() != Some(libc::ENODEV),
        }
    }

    fn is_as_new(&self) -> io::Result<bool> {
        let events = read(&self.events)?;
        Ok(has_line(&events, b"populated 0")
            && !has_line(&events, b"frozen 1")
            && read(&self.control)?.trim_ascii().is_empty()
            && read(&self.kind)?.trim_ascii() == b"domain"
            // Its own two names, and one for each folder below.
            && self.folder.metadata()?.nlink() == 2)
    }
}

/// A few lines, in one call.
fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut text = [0; 256];
    let length = file.read_at(&mut text, 0)?;
    Ok(text[..length].to_vec())
}

fn has_line(text: &[u8], wanted: &[u8]) -> bool {
    text.split(|&byte| byte == b'\n').any(|line| line == wanted)
}

#[derive(Debug)]
pub struct Pool {
    free: Vec<Group>,
    /// Makes the names of this keeper's cgroups its own.
    born: u64,
    made: u64,
    used_at: u64,
}

impl Pool {
    pub fn new() -> Self {
        Self {
            free: Vec::new(),
            born: clock::boot_ms(),
            made: 0,
            used_at: 0,
        }
    }

    /// A cgroup with nothing in it. What turns out to be unfit is put on `leftover`.
    pub fn take(&mut self, base: &Path, leftover: &mut Vec<PathBuf>) -> io::Result<Group> {
        while let Some(group) = self.free.pop() {
            if matches!(group.is_as_new(), Ok(true)) {
                return Ok(group);
            }
            leftover.push(group.dir);
        }
        loop {
            self.made += 1;
            match Group::make(base.join(format!("{}-{}", self.born, self.made))) {
                // An earlier keeper's; in the same millisecond, but that is no reason to trust it.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                // A service manager that stops the daemon removes what is empty, also ours.
                Err(error) if error.kind() == ErrorKind::NotFound && !base.exists() => {
                    fs::create_dir(base)?;
                }
                made => return made,
            }
        }
    }

    /// Takes one back whose attempt is gone; gives back the folder if it is to be removed.
    pub fn give(&mut self, group: Group) -> Option<PathBuf> {
        if self.free.len() >= MOST {
            return Some(group.dir);
        }
        self.used_at = clock::boot_ms();
        self.free.push(group);
        None
    }

    /// When the unused are due for removal, in whole seconds: it changes seldom.
    pub fn due(&self) -> Option<u64> {
        let at = (self.used_at + KEEP_MS).next_multiple_of(1000);
        (!self.free.is_empty()).then_some(at)
    }

    /// What has not been used for a while, to be removed.
    pub fn expire(&mut self, now: u64) -> Vec<PathBuf> {
        if self.due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.free.drain(..).map(|group| group.dir).collect()
    }
}
