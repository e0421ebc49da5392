//! Listing folders, and not listing them when nothing changed.
//!
//! A folder that once held a million files stays large for ever on some file systems, so it is
//! read only if its modification time differs from that of the last listing, or is so close to
//! it that a change could hide in the clock's grain.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Two changes within this time may carry the same stamp.
const GRAIN_MS: i64 = 20;

#[derive(Debug, Default)]
pub struct Scanner {
    listed: HashMap<PathBuf, Stamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    modified_ns: i128,
    /// Whether the listing came so soon after the change that another may have followed.
    fresh: bool,
}

/// File systems that only know whole seconds give themselves away.
fn grain_ms(nanoseconds: i64) -> i64 {
    if nanoseconds == 0 { 2000 } else { GRAIN_MS }
}

impl Scanner {
    /// Whether the folder may hold something that the last listing did not show. Remembers
    /// this moment as listed.
    pub fn needs_listing(&mut self, folder: &Path, now_ms: i64) -> io::Result<bool> {
        let metadata = std::fs::metadata(folder)?;
        let modified_ms = metadata.mtime() * 1000 + metadata.mtime_nsec() / 1_000_000;
        let stamp = Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified_ns: i128::from(metadata.mtime()) * 1_000_000_000
                + i128::from(metadata.mtime_nsec()),
            fresh: (now_ms - modified_ms).abs() <= grain_ms(metadata.mtime_nsec()),
        };
        let known = self.listed.insert(folder.to_owned(), stamp);
        Ok(known.is_none_or(|known| {
            known.fresh
                || Stamp {
                    fresh: false,
                    ..known
                } != Stamp {
                    fresh: false,
                    ..stamp
                }
        }))
    }

    pub fn forget(&mut self, folder: &Path) {
        self.listed.remove(folder);
    }
}

/// Hands every name in a folder to `each`, without holding them all.
pub fn names(folder: &Path, mut each: impl FnMut(OsString)) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        each(entry?.file_name());
    }
    Ok(())
}

/// How many records a state folder has.
pub fn count_records(folder: &Path) -> io::Result<u64> {
    let mut count = 0;
    names(folder, |name| {
        let name = name.as_bytes();
        count += u64::from(name.ends_with(b".json") && !name.starts_with(b"."));
    })?;
    Ok(count)
}

/// The id of a record, by its file's name.
pub fn record_id(name: &OsStr) -> Option<&str> {
    let id = name.to_str()?.strip_suffix(".json")?;
    (!id.starts_with('.')).then_some(id)
}

/// The ids of the records in a state folder.
pub fn record_ids(folder: &Path) -> io::Result<Vec<String>> {
    let mut ids = Vec::new();
    names(folder, |name| {
        ids.extend(record_id(&name).map(str::to_owned));
    })?;
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_folder_is_listed_once() {
        let dir = tempfile::tempdir().unwrap();
        let modified = std::fs::metadata(dir.path()).unwrap().mtime() * 1000;
        let later = modified + 10_000;
        let mut scanner = Scanner::default();
        assert!(scanner.needs_listing(dir.path(), later).unwrap());
        assert!(!scanner.needs_listing(dir.path(), later).unwrap());
        std::fs::write(dir.path().join("x.json"), "").unwrap();
        assert!(scanner.needs_listing(dir.path(), later).unwrap());
        scanner.forget(dir.path());
        assert!(scanner.needs_listing(dir.path(), later).unwrap());
        assert_eq!(record_ids(dir.path()).unwrap(), ["x"]);
    }

    #[test]
    fn a_listing_within_the_clocks_grain_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let metadata = std::fs::metadata(dir.path()).unwrap();
        let now = metadata.mtime() * 1000 + metadata.mtime_nsec() / 1_000_000;
        let mut scanner = Scanner::default();
        assert!(scanner.needs_listing(dir.path(), now).unwrap());
        assert!(scanner.needs_listing(dir.path(), now + 10_000).unwrap());
        assert!(!scanner.needs_listing(dir.path(), now + 10_000).unwrap());
    }
}
