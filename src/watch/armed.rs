//! The watches, and whether each still stands on the folder at its path.
//!
//! A watch belongs to an inode. If the folder is deleted or renamed and made again, the watch
//! is gone or tells of the wrong one, and nobody says so. So each watched path is remembered
//! with what stood there, and compared.
//!
//! The number of an inode is not enough for that: ext4 gives a new folder the number of the one
//! that was deleted a moment ago. The time of birth, where there is one, tells them apart.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use notify::{ErrorKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::translate::Watched;
use super::{FolderKey, Hint};

/// Which folder stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    dev: u64,
    ino: u64,
    born: Option<SystemTime>,
}

fn identity(path: &Path) -> io::Result<Identity> {
    let found = std::fs::metadata(path)?;
    if !found.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok(Identity {
        dev: found.dev(),
        ino: found.ino(),
        born: found.created().ok(),
    })
}

pub(super) struct Armed {
    notify: RecommendedWatcher,
    watched: Watched,
    stands: HashMap<PathBuf, Identity>,
}

impl Armed {
    /// Watches everything, or nothing.
    pub fn new(notify: RecommendedWatcher, watched: Watched) -> io::Result<Self> {
        let mut armed = Self {
            notify,
            watched,
            stands: HashMap::new(),
        };
        let paths: Vec<_> = armed.watched.paths().map(Path::to_owned).collect();
        for path in paths {
            armed.arm(&path)?;
        }
        Ok(armed)
    }

    /// Sets up watches again where another folder stands now, and returns those folders.
    pub fn check(&mut self) -> Vec<FolderKey> {
        let paths: Vec<_> = self.watched.paths().map(Path::to_owned).collect();
        let mut rearmed = Vec::new();
        for path in paths {
            if identity(&path).ok().as_ref() == self.stands.get(&path) {
                continue;
            }
            if self.arm(&path).is_ok() {
                rearmed.extend(self.watched.key_of(&path));
            }
        }
        rearmed
    }

    /// After news of `path` itself: sets up its watch and those below it, whatever stands
    /// there, because notify forgets a watch by its path when it reads that it was removed,
    /// even if a new folder is being watched by then.
    pub fn touched(&mut self, path: &Path) -> Vec<Hint> {
        let paths = self.watched.paths().filter(|p| p.starts_with(path));
        let paths: Vec<_> = paths.map(Path::to_owned).collect();
        let mut hints = Vec::new();
        for path in paths {
            let before = self.stands.get(&path).cloned();
            let armed = self.arm(&path).is_ok();
            let Some(folder) = self.watched.key_of(&path) else {
                continue;
            };
            if before.is_some() && before.as_ref() != self.stands.get(&path) {
                hints.push(Hint::Replaced(folder));
            }
            if armed {
                let folder = Some(folder);
                hints.push(Hint::Rescan { folder });
            }
        }
        hints
    }

    /// Watched paths where no watch stands at the moment.
    pub fn missing(&self) -> impl Iterator<Item = &Path> {
        let stands = |path: &&Path| !self.stands.contains_key(*path);
        self.watched.paths().filter(stands)
    }

    fn arm(&mut self, path: &Path) -> io::Result<()> {
        let known = self.stands.remove(path);
        // Looking before and after shows which folder the watch stands on. If it is replaced
        // later than that, its parent's watch tells.
        for _ in 0..3 {
            let before = identity(path).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })?;
            // A leftover of another folder would let late news of that one end the new watch.
            // On the same folder, adding again changes nothing, where removing would lose events.
            if known.as_ref() != Some(&before) {
                let _ = self.notify.unwatch(path);
            }
            self.notify
                .watch(path, RecursiveMode::NonRecursive)
                .map_err(|error| explain(&error))?;
            if identity(path).is_ok_and(|after| after == before) {
                self.stands.insert(path.to_owned(), before);
                return Ok(());
            }
        }
        let text = format!("somebody keeps replacing {}", path.display());
        Err(io::Error::other(text))
    }
}

/// notify's error, with what a person can do about it.
pub(super) fn explain(error: &notify::Error) -> io::Error {
    let place = error.paths.first().map(|path| path.display().to_string());
    let place = place.unwrap_or_else(|| "inotify".to_owned());
    match &error.kind {
        ErrorKind::MaxFilesWatch => io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "{place}: no inotify watches left; raise the sysctl fs.inotify.max_user_watches"
            ),
        ),
        ErrorKind::Io(cause) if cause.raw_os_error() == Some(libc::EMFILE) => io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "{place}: no inotify instances left; raise the sysctl \
                 fs.inotify.max_user_instances (or the limit of open files)"
            ),
        ),
        ErrorKind::Io(cause) => io::Error::new(cause.kind(), format!("{place}: {cause}")),
        ErrorKind::PathNotFound => {
            io::Error::new(io::ErrorKind::NotFound, format!("{place}: not found"))
        }
        _ => io::Error::other(format!("{place}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_name_the_sysctl_to_raise() {
        let watches = notify::Error::new(ErrorKind::MaxFilesWatch).add_path("/r/pending".into());
        let instances = notify::Error::io(io::Error::from_raw_os_error(libc::EMFILE));
        for (error, sysctl) in [
            (watches, "fs.inotify.max_user_watches"),
            (instances, "fs.inotify.max_user_instances"),
        ] {
            let error = explain(&error);
            assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
            assert!(error.to_string().contains(sysctl), "{error}");
        }
    }
}
