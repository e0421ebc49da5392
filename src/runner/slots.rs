//! Output files, used again and again.
//!
//! A new inode is the dearest thing on the way of a small handoff, so attempts write to the
//! files of a numbered slot; only what is worth keeping is moved away from there. The lock on
//! the stdout file travels to the attempt with the descriptor: while anything of a former
//! attempt still holds it, the slot is not given to another.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Clone)]
pub struct Slots {
    folder: PathBuf,
    used: Arc<Mutex<BTreeSet<u32>>>,
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

    /// Marks a slot as in use by an attempt that was adopted.
    pub fn occupy(&self, number: u32) {
        self.lock().insert(number);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<u32>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lowest free slot, its files empty and its stdout locked.
    pub fn acquire(&self) -> io::Result<Slot> {
        let mut number = 0;
        loop {
            number = {
                let mut used = self.lock();
                let free = (number..u32::MAX)
                    .find(|n| !used.contains(n))
                    .unwrap_or(u32::MAX);
                used.insert(free);
                free
            };
            match self.open(number) {
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

    fn open(&self, number: u32) -> io::Result<Option<Slot>> {
        let open = |path: PathBuf| File::options().append(true).create(true).open(path);
        let stdout = open(self.stdout_path(number))?;
        match stdout.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let stderr = open(self.stderr_path(number))?;
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
        self.lock().remove(&number);
    }

    /// Takes the files of a slot out of use, which another user may have under another name.
    pub fn retire(&self, number: u32) {
        for path in [self.stdout_path(number), self.stderr_path(number)] {
            let _ = fs::remove_file(path);
        }
    }

    /// Empties large files of a slot that is given back, so that they don't fill the disk.
    pub fn clear(&self, number: u32) {
        for path in [self.stdout_path(number), self.stderr_path(number)] {
            if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > 65_536)
                && let Ok(file) = File::options().write(true).open(&path)
            {
                let _ = file.set_len(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_slot_is_used_again_once_it_is_free_and_unlocked() {
        let dir = tempfile::tempdir().unwrap();
        let slots = Slots::new(dir.path());
        let mut first = slots.acquire().unwrap();
        let second = slots.acquire().unwrap();
        assert_eq!((first.number, second.number), (0, 1));
        first.stdout.write_all(b"left over").unwrap();
        slots.release(0);
        let third = slots.acquire().unwrap();
        assert_eq!(
            third.number, 2,
            "slot 0 is given back, but its lock is still held"
        );
        slots.release(third.number);
        drop(first);
        let fourth = slots.acquire().unwrap();
        assert_eq!(fourth.number, 0);
        assert_eq!(fourth.stdout.metadata().unwrap().len(), 0);
    }
}
