//! The root's key: a secret that only the daemon's user can read, made once.
//!
//! The ids of children and their marks are signed with it. What was signed stays as it is, because
//! ids stand in the records that name them; so a key that is lost is replaced, and costs nothing
//! but the marks of children that somebody moves back to `pending/` by hand.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::durable::{self, Durability};
use crate::protocol::digest::Key;
use crate::spool::layout::Layout;

/// Reads the key of the root, and makes one that is missing or that others may have read.
pub fn hold(layout: &Layout) -> io::Result<Key> {
    match read(layout) {
        Ok(key) => return Ok(key),
        Err(why) if fs::symlink_metadata(layout.key()).is_ok() => tracing::warn!(
            "{} {why}: replaced it with a new one. Ids of handoffs stay the same",
            layout.relative(&layout.key())
        ),
        Err(_) => {}
    }
    let mut bytes = [0; Key::BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    write(layout, &bytes)?;
    Ok(Key::new(bytes))
}

/// The key, or what is wrong with its file.
fn read(layout: &Layout) -> Result<Key, String> {
    let path = layout.key();
    let found = fs::symlink_metadata(&path).map_err(|error| error.to_string())?;
    let own = rustix::process::geteuid().as_raw();
    if !found.is_file() {
        return Err("is not a file".to_owned());
    }
    if found.uid() != own {
        return Err("belongs to another user".to_owned());
    }
    if found.mode() & 0o077 != 0 {
        return Err("is readable or writable by others".to_owned());
    }
    let bytes = fs::read(&path).map_err(|error| error.to_string())?;
    let bytes = bytes.try_into().map_err(|_| "has the wrong length")?;
    Ok(Key::new(bytes))
}

/// Whole, synced, and readable for one user before it has its name.
fn write(layout: &Layout, bytes: &[u8]) -> io::Result<()> {
    let temp = layout.tmp().join("key");
    let file = durable::create_anew(&temp, &[])?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    io::Write::write_all(&mut &file, bytes)?;
    durable::sync_file(&file, Durability::Full)?;
    let path = layout.key();
    if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
        fs::remove_dir_all(&path)?;
    }
    durable::replace(&temp, &path)?;
    durable::sync_dir(&Layout::open_dir(layout.own())?, Durability::Full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_kept_from_others() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        let key = hold(&layout).unwrap();
        let mode = || fs::metadata(layout.key()).unwrap().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        assert_eq!(hold(&layout).unwrap(), key);
        assert_eq!(fs::read_dir(layout.tmp()).unwrap().count(), 0);
        assert_ne!(key, Key::default());
    }

    #[test]
    fn a_key_that_others_know_or_that_is_torn_is_replaced() {
        type Spoil = fn(&Layout);
        let spoils: [Spoil; 5] = [
            |layout| fs::remove_file(layout.key()).unwrap(),
            |layout| fs::set_permissions(layout.key(), PermissionsExt::from_mode(0o640)).unwrap(),
            |layout| fs::write(layout.key(), "short").unwrap(),
            |layout| {
                fs::copy(layout.key(), layout.own().join("copy")).unwrap();
                fs::remove_file(layout.key()).unwrap();
                std::os::unix::fs::symlink("copy", layout.key()).unwrap();
            },
            |layout| {
                fs::remove_file(layout.key()).unwrap();
                fs::create_dir(layout.key()).unwrap();
            },
        ];
        for spoil in spoils {
            let dir = tempfile::tempdir().unwrap();
            let layout = Layout::new(dir.path());
            layout.ensure().unwrap();
            let key = hold(&layout).unwrap();
            spoil(&layout);
            let other = hold(&layout).unwrap();
            assert_ne!(key, other);
            assert_eq!(hold(&layout).unwrap(), other);
            assert!(fs::symlink_metadata(layout.key()).unwrap().is_file());
        }
    }
}
