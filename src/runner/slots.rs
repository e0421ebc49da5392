//! Output files, used again and again.
//!
//! A new inode is the dearest thing on the way of a small handoff, so attempts write to the
//! files of a numbered slot; only what is worth keeping is moved away from there. The lock on
//! the stdout file travels to the attempt with the descriptor: while anything of a former
//! attempt still holds it, the slot is not given to another.
//!
//! A confined attempt may keep its files open for longer than it lives: it can unlock them, open
//! them once more, or hand them to another process of its user. So it gets new files, and nobody
//! gets them after it ([`Use::Confined`]). Which files a former daemon gave to whom is not known, so
//! a start deletes all that no attempt has ([`Slots::sweep`]).

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::Specialist;

/// Who writes to the files of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The daemon's own user, held to nothing: files are used again.
    Shared,
    /// Another user, or a sandbox: the files are new, and end with the attempt.
    Confined,
}

impl Use {
    pub fn of(specialist: &Specialist) -> Self {
        if specialist.has_home() {
            Self::Confined
        } else {
            Self::Shared
        }
    }
}

#[derive(Debug, Clone)]
pub struct Slots {
    folder: PathBuf,
    used: Arc<Mutex<Used>>,
}

#[derive(Debug, Default)]
struct Used {
    by_attempts: BTreeSet<u32>,
    /// Their files are somebody else's and can't be deleted: never given again.
    spoiled: BTreeSet<u32>,
}

/// A slot's files, open for an attempt.
#[derive(Debug)]
pub struct Slot {
    pub number: u32,
    pub stdout: File,
    pub stderr: File,
}

impl Slots {
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            used: Arc::default(),
        }
    }

    pub fn stdout_path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("slot-{number}.out"))
    }

    pub fn stderr_path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("slot-{number}.err"))
    }

    fn paths(&self, number: u32) -> [PathBuf; 2] {
        [self.stdout_path(number), self.stderr_path(number)]
    }

    /// Marks a slot as in use by an attempt that was adopted.
    pub fn occupy(&self, number: u32) {
        self.lock().by_attempts.insert(number);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lowest free slot, its files empty and its stdout locked.
    pub fn acquire(&self, by: Use) -> io::Result<Slot> {
        let mut number = 0;
        loop {
            number = {
                let mut used = self.lock();
                let is_free = |n: &u32| !used.by_attempts.contains(n) && !used.spoiled.contains(n);
                let free = (number..u32::MAX).find(is_free).unwrap_or(u32::MAX);
                used.by_attempts.insert(free);
                free
            };
            match self.open(number, by) {
                Ok(Some(slot)) => return Ok(slot),
                // Somebody still holds the lock: that number stays out of use for now.
                Ok(None) => {
                    self.release(number);
                    number += 1;
                }
                Err(error) => {
                    self.release(number);
                    return Err(error);
                }
            }
        }
    }

    fn open(&self, number: u32, by: Use) -> io::Result<Option<Slot>> {
        if by == Use::Confined {
            self.delete(number)?;
        }
        let stdout = open_own(&self.stdout_path(number))?;
        match stdout.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let stderr = open_own(&self.stderr_path(number))?;
        for file in [&stdout, &stderr] {
            if file.metadata()?.len() > 0 {
                file.set_len(0)?;
            }
        }
        Ok(Some(Slot {
            number,
            stdout,
            stderr,
        }))
    }

    /// Gives a slot back once nothing needs what its files hold.
    pub fn release(&self, number: u32) {
        self.lock().by_attempts.remove(&number);
    }

    /// Takes the files of a slot out of use that a confined attempt had.
    pub fn retire(&self, number: u32) {
        if let Err(error) = self.delete(number) {
            tracing::warn!("can't delete the output files of slot {number}: {error}");
            self.lock().spoiled.insert(number);
        }
    }

    fn delete(&self, number: u32) -> io::Result<()> {
        self.paths(number).iter().try_for_each(|path| delete(path))
    }

    /// Empties the files of a slot that is given back: what was printed is nobody else's to read,
    /// and takes no space.
    pub fn clear(&self, number: u32) {
        for path in self.paths(number) {
            if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.len() > 0)
                && let Ok(file) = File::options().write(true).open(&path)
            {
                let _ = file.set_len(0);
            }
        }
    }

    /// Deletes the files, by these names, of slots that no attempt has.
    pub fn sweep<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        for name in names {
            let Some(number) = number_of(name) else {
                continue;
            };
            // Held, so that nobody acquires it meanwhile.
            let mut used = self.lock();
            if !used.by_attempts.contains(&number)
                && let Err(error) = delete(&self.folder.join(name))
            {
                tracing::warn!("can't delete {name} of a previous daemon: {error}");
                used.spoiled.insert(number);
            }
        }
    }
}

/// The number of the slot that a file of this name belongs to.
fn number_of(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("slot-")?;
    let digits = rest
        .strip_suffix(".out")
        .or_else(|| rest.strip_suffix(".err"))?;
    digits.parse().ok()
}

fn delete(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens a file to append to: the one that is there if it is our own and has no other name, else a
/// new one.
fn open_own(path: &Path) -> io::Result<File> {
    let open = |create_new: bool| {
        File::options()
            .append(true)
            .create_new(create_new)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
    };
    match open(false) {
        Ok(file) if is_own(&file.metadata()?) => return Ok(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // A link, a pipe, another user's file, or one that we may not write to.
        _ => delete(path)?,
    }
    open(true)
}

fn is_own(metadata: &Metadata) -> bool {
    metadata.is_file()
        && metadata.nlink() == 1
        && metadata.uid() == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    fn inode(file: &File) -> u64 {
        file.metadata().unwrap().ino()
    }

    #[test]
    fn a_slot_is_used_again_once_it_is_free_and_unlocked() {
        let dir = tempfile::tempdir().unwrap();
        let slots = Slots::new(dir.path());
        let mut first = slots.acquire(Use::Shared).unwrap();
        let second = slots.acquire(Use::Shared).unwrap();
        assert_eq!((first.number, second.number), (0, 1));
        first.stdout.write_all(b"left over").unwrap();
        slots.release(0);
        let third = slots.acquire(Use::Shared).unwrap();
        assert_eq!(
            third.number, 2,
            "slot 0 is given back, but its lock is still held"
        );
        slots.release(third.number);
        let former = inode(&first.stdout);
        drop(first);
        let fourth = slots.acquire(Use::Shared).unwrap();
        assert_eq!((fourth.number, inode(&fourth.stdout)), (0, former));
        assert_eq!(fourth.stdout.metadata().unwrap().len(), 0);
    }

    #[test]
    fn a_confined_attempt_has_its_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        let slots = Slots::new(dir.path());
        let shared = slots.acquire(Use::Shared).unwrap();
        let mut seen = vec![inode(&shared.stdout), inode(&shared.stderr)];
        // All of them stay open, as an attempt could see to it.
        slots.release(0);
        shared.stdout.unlock().unwrap();
        let confined = slots.acquire(Use::Confined).unwrap();
        confined.stdout.unlock().unwrap();
        assert_eq!(confined.number, 0);
        seen.extend([inode(&confined.stdout), inode(&confined.stderr)]);
        slots.retire(0);
        slots.release(0);
        let next = slots.acquire(Use::Shared).unwrap();
        seen.extend([inode(&next.stdout), inode(&next.stderr)]);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn what_is_no_file_of_ours_with_one_name_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("other"), "kept").unwrap();
        symlink(at("other"), at("slot-0.out")).unwrap();
        symlink(at("none"), at("slot-0.err")).unwrap();
        #[expect(clippy::disallowed_methods, reason = "somebody else makes a link")]
        fs::hard_link(at("other"), at("slot-1.out")).unwrap();
        let slots = Slots::new(dir.path());
        for number in 0..2 {
            let slot = slots.acquire(Use::Shared).unwrap();
            assert_eq!(slot.number, number);
            assert!(is_own(&slot.stdout.metadata().unwrap()));
            assert!(is_own(&slot.stderr.metadata().unwrap()));
        }
        assert_eq!(fs::read_to_string(at("other")).unwrap(), "kept");
        assert!(!at("none").exists());
    }

    #[test]
    fn a_sweep_spares_the_files_of_attempts() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let names = [
            "slot-0.out",
            "slot-0.err",
            "slot-1.out",
            "x.1.result",
            "slot-x.out",
        ];
        for name in names {
            fs::write(at(name), "").unwrap();
        }
        fs::create_dir(at("slot-2.out")).unwrap();
        let slots = Slots::new(dir.path());
        slots.occupy(0);
        slots.sweep(names.into_iter().chain(["slot-2.out"]));
        let left: Vec<bool> = names.iter().map(|name| at(name).exists()).collect();
        assert_eq!(left, [true, true, false, true, true]);
        let numbers = [1, 3].map(|_| slots.acquire(Use::Shared).unwrap().number);
        assert_eq!(numbers, [1, 3], "nothing can be written to a folder");
    }
}
