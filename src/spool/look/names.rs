//! Names that are surely not in a folder.
//!
//! Much of what is looked for is hardly ever there: another record of the same id, a result file, a
//! heartbeat. Such a look is the dearest of all, because the file system has to search the folder
//! before it can say no. But a folder's times change with every name that comes or goes. So while
//! they are what they were when it was listed, the list is true, and one look at the folder answers
//! for every name.
//!
//! A change within the clock's grain of another does not show in the times. So a folder is listed
//! only when its times have stood for longer than that. One that changes all the time, or holds
//! many names, is not listed, and one on a file system that is not known to keep such times is not
//! either: then nothing is sure, and whoever asks has to look for himself.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::spool::look::disk::Disk;

/// A folder with more names than this is left alone, and for how long.
const MOST: usize = 1000;
const CROWDED: Duration = Duration::from_secs(10);
/// How long times must have stood before a list is believed; longer where only whole seconds are
/// kept, which give themselves away.
const GRAIN: Duration = Duration::from_millis(25);
const COARSE_GRAIN: Duration = Duration::from_millis(2100);

#[derive(Debug)]
pub struct Names {
    folder: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// What the folder was when it was last asked, and since when it has been that.
    stands: Option<(Stamp, Instant)>,
    /// What is in it then.
    listed: Option<HashSet<OsString>>,
    /// When there were too many names.
    crowded: Option<Instant>,
    /// The file system that it is on, and whether its times tell.
    on: Option<(u64, bool)>,
}

/// Which folder it is, and its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn at(folder: &Path) -> io::Result<Self> {
        Ok(Self::of(&std::fs::metadata(folder)?))
    }

    fn grain(&self) -> Duration {
        match (self.modified.1, self.changed.1) {
            (0, 0) => COARSE_GRAIN,
            _ => GRAIN,
        }
    }
}

impl Names {
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            known: Mutex::default(),
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the folder surely has none of these names. `false` says nothing.
    pub fn lack(&self, names: &[&str]) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(stamp) = Stamp::at(&self.folder) else {
            return false;
        };
        known
            .list(&self.folder, stamp)
            .is_some_and(|listed| !names.iter().any(|name| listed.contains(OsStr::new(name))))
    }
}

impl Known {
    /// The names in the folder, which stands as `stamp` says; none if that is not sure.
    fn list(&mut self, folder: &Path, stamp: Stamp) -> Option<&HashSet<OsString>> {
        let since = match self.stands {
            Some((known, since)) if known == stamp => since,
            _ => {
                self.stands = Some((stamp, Instant::now()));
                self.listed = None;
                return None;
            }
        };
        if self.listed.is_none() {
            let crowded = self.crowded.is_some_and(|at| at.elapsed() < CROWDED);
            if crowded || since.elapsed() < stamp.grain() || !self.is_told_of(folder, stamp) {
                return None;
            }
            self.crowded = None;
            let listed = read(folder).ok()?;
            if listed.len() > MOST {
                self.crowded = Some(Instant::now());
            } else if Stamp::at(folder).is_ok_and(|now| now == stamp) {
                self.listed = Some(listed);
            }
        }
        self.listed.as_ref()
    }

    /// Whether what happens in the folder shows in its times.
    fn is_told_of(&mut self, folder: &Path, stamp: Stamp) -> bool {
        match self.on {
            Some((device, tell)) if device == stamp.device => tell,
            _ => {
                let tell = times_tell(folder);
                self.on = Some((stamp.device, tell));
                tell
            }
        }
    }
}

/// The names in a folder, or the first of them if there are too many.
fn read(folder: &Path) -> io::Result<HashSet<OsString>> {
    std::fs::read_dir(folder)?
        .take(MOST + 1)
        .map(|entry| Ok(entry?.file_name()))
        .collect()
}

/// Whether every name that comes or goes shows in its folder's times, whoever makes or removes it.
fn times_tell(folder: &Path) -> bool {
    Disk::of(folder) != Disk::Other
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks until it is sure; whether it ever was.
    fn is_sure(names: &Names, wanted: &[&str]) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(5) {
            if names.lack(wanted) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    #[test]
    fn what_comes_is_never_said_to_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let names = Names::new(dir.path().to_owned());
        if !times_tell(dir.path()) {
            eprintln!("nothing was tried: this file system's times are not known to tell");
            return;
        }
        for round in 0..20 {
            assert!(is_sure(&names, &["x", "y"]), "round {round}");
            std::fs::write(dir.path().join("y"), "").unwrap();
            assert!(
                !names.lack(&["x", "y"]),
                "round {round}: right after it came"
            );
            assert!(is_sure(&names, &["x"]), "round {round}");
            assert!(!names.lack(&["y"]), "round {round}: when it was listed");
            std::fs::remove_file(dir.path().join("y")).unwrap();
        }
    }

    #[test]
    fn a_folder_that_was_made_again_is_another() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("dir");
        std::fs::create_dir(&dir).unwrap();
        let names = Names::new(dir.clone());
        if !times_tell(&dir) {
            return;
        }
        assert!(is_sure(&names, &["x"]));
        std::fs::remove_dir(&dir).unwrap();
        assert!(!names.lack(&["x"]), "nothing is known of what is not there");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("x"), "").unwrap();
        assert!(!names.lack(&["x"]));
    }

    #[test]
    fn of_a_crowd_nothing_is_sure() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..=MOST {
            std::fs::write(dir.path().join(n.to_string()), "").unwrap();
        }
        let mut known = Known::default();
        let long_ago = Instant::now().checked_sub(COARSE_GRAIN).unwrap();
        let stamp = Stamp::at(dir.path()).unwrap();
        known.stands = Some((stamp, long_ago));
        assert!(known.list(dir.path(), stamp).is_none());
        assert!(known.crowded.is_some());
        std::fs::remove_file(dir.path().join("0")).unwrap();
        let stamp = Stamp::at(dir.path()).unwrap();
        known.stands = Some((stamp, long_ago));
        assert!(
            known.list(dir.path(), stamp).is_none(),
            "not looked at again so soon"
        );
    }
}
