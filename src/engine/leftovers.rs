//! Files that attempts left at their destinations without completing.
//!
//! A destination that exists is never overwritten, except by the handoff whose own earlier
//! attempt left the file there. After a resubmission through `pending/` the record can't be
//! believed about that, and somebody may have put another file there meanwhile, so it is
//! remembered here: one small file for each such handoff, with the path and the inode.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::durable::{self, Durability};

#[derive(Debug)]
pub struct Leftovers {
    root: PathBuf,
    folder: PathBuf,
}

impl Leftovers {
    pub fn new(root: &Path, folder: PathBuf) -> Self {
        Self {
            root: root.to_owned(),
            folder,
        }
    }

    /// Remembers that an attempt of `id` left the file at `path`.
    pub fn remember(&self, id: &str, path: &str, durability: Durability) -> io::Result<()> {
        let Some(mark) = self.mark(path) else {
            return Ok(());
        };
        let temp = self.folder.join(format!(".{id}.tmp"));
        durable::write_whole(&self.folder.join(id), &temp, mark.as_bytes(), durability)
    }

    /// Whether the file at `path` is the very one that an attempt of `id` left.
    pub fn is_of(&self, id: &str, path: &str) -> bool {
        let known = fs::read_to_string(self.folder.join(id)).ok();
        known.is_some() && known == self.mark(path)
    }

    /// A handoff that completed left nothing behind.
    pub fn forget(&self, id: &str) {
        let _ = fs::remove_file(self.folder.join(id));
    }

    fn mark(&self, path: &str) -> Option<String> {
        let metadata = fs::symlink_metadata(self.root.join(path)).ok()?;
        metadata
            .is_file()
            .then(|| format!("{} {path}", metadata.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_file_is_known_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("left");
        fs::create_dir(&folder).unwrap();
        let leftovers = Leftovers::new(dir.path(), folder);
        fs::write(dir.path().join("a"), "1").unwrap();
        fs::write(dir.path().join("b"), "1").unwrap();
        leftovers.remember("x", "a", Durability::Relaxed).unwrap();
        leftovers
            .remember("y", "gone", Durability::Relaxed)
            .unwrap();
        assert!(leftovers.is_of("x", "a"));
        assert!(!leftovers.is_of("x", "b"));
        assert!(!leftovers.is_of("y", "gone"));
        assert!(!leftovers.is_of("z", "a"));
        fs::write(dir.path().join("c"), "2").unwrap();
        #[expect(clippy::disallowed_methods, reason = "a human swaps the file")]
        fs::rename(dir.path().join("c"), dir.path().join("a")).unwrap();
        assert!(!leftovers.is_of("x", "a"), "another file under its name");
        leftovers.remember("x", "a", Durability::Relaxed).unwrap();
        leftovers.forget("x");
        assert!(!leftovers.is_of("x", "a"));
    }
}
