//! The disk itself.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{At, Entries, Entry, Fs, Handle, Kind, Open, Rename, Stat};

/// The files of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

/// The folder that a name is looked up in, and the name.
fn place(at: At<'_>) -> io::Result<(BorrowedFd<'_>, &OsStr)> {
    match at {
        At::Path(path) => Ok((CWD, path.as_os_str())),
        At::In(folder, name) => match folder.system() {
            Some(folder) => Ok((folder.as_fd(), name)),
            None => Err(io::ErrorKind::InvalidInput.into()),
        },
    }
}

/// Some file systems know the call but not its flags.
fn is_unknown_flag(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::NOTSUP)
}

impl Fs for Disk {
    fn open(&self, at: At<'_>, how: Open) -> io::Result<Handle> {
        let (folder, name) = place(at)?;
        let quietly = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let flags = match how {
            Open::Read => OFlags::RDONLY | quietly,
            Open::Write => OFlags::WRONLY | quietly,
            Open::Create => OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | quietly,
            Open::Update => OFlags::RDWR | OFlags::CREATE | quietly,
            Open::Folder => OFlags::RDONLY | OFlags::DIRECTORY | quietly,
        };
        let file = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o666))?;
        Ok(std::fs::File::from(file).into())
    }

    fn stat(&self, at: At<'_>) -> io::Result<Stat> {
        let (folder, name) = place(at)?;
        let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Stat::of(&found))
    }

    fn stat_followed(&self, path: &Path) -> io::Result<Stat> {
        Ok(Stat::of(&rustix::fs::stat(path)?))
    }

    fn rename(&self, from: At<'_>, to: At<'_>, how: Rename) -> io::Result<()> {
        let (from_folder, from_name) = place(from)?;
        let (to_folder, to_name) = place(to)?;
        let flags = match how {
            Rename::Replace => RenameFlags::empty(),
            Rename::NoReplace => RenameFlags::NOREPLACE,
            Rename::Exchange => RenameFlags::EXCHANGE,
        };
        match rustix::fs::renameat_with(from_folder, from_name, to_folder, to_name, flags) {
            // A folder has only one name. What is wrong with it is wrong for good.
            Err(errno) if !is_unknown_flag(errno) || self.is_folder(from) || self.is_folder(to) => {
                Err(errno.into())
            }
            Err(_) if how == Rename::NoReplace => {
                // Linking first can't overwrite either, but shows the file under both names for a moment.
                rustix::fs::linkat(from_folder, from_name, to_folder, to_name, AtFlags::empty())?;
                Ok(rustix::fs::unlinkat(
                    from_folder,
                    from_name,
                    AtFlags::empty(),
                )?)
            }
            Err(_) if how == Rename::Exchange => exchange_by_link(from, to),
            renamed => Ok(renamed?),
        }
    }

    fn link(&self, from: At<'_>, to: At<'_>) -> io::Result<()> {
        let (from_folder, from_name) = place(from)?;
        let (to_folder, to_name) = place(to)?;
        Ok(rustix::fs::linkat(
            from_folder,
            from_name,
            to_folder,
            to_name,
            AtFlags::empty(),
        )?)
    }

    fn remove(&self, at: At<'_>) -> io::Result<()> {
        let (folder, name) = place(at)?;
        Ok(rustix::fs::unlinkat(folder, name, AtFlags::empty())?)
    }

    fn make_folder(&self, at: At<'_>, mode: u32) -> io::Result<()> {
        let (folder, name) = place(at)?;
        Ok(rustix::fs::mkdirat(
            folder,
            name,
            Mode::from_raw_mode(mode),
        )?)
    }

    fn remove_folder(&self, at: At<'_>) -> io::Result<()> {
        let (folder, name) = place(at)?;
        Ok(rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?)
    }

    fn list(&self, folder: &Path) -> io::Result<Entries> {
        let entries = std::fs::read_dir(folder)?.map(|entry| {
            let entry = entry?;
            let kind = entry.file_type().ok().map(|kind| {
                if kind.is_file() {
                    Kind::File
                } else if kind.is_dir() {
                    Kind::Folder
                } else if kind.is_symlink() {
                    Kind::Link
                } else {
                    Kind::Device
                }
            });
            Ok(Entry {
                name: entry.file_name(),
                kind,
            })
        });
        Ok(Box::new(entries))
    }
}

impl Disk {
    fn is_folder(self, at: At<'_>) -> bool {
        self.stat(at).is_ok_and(|found| found.kind == Kind::Folder)
    }
}

/// Exchanges two files where the system can't: `to` is kept under a spare name, `from` replaces it, and the
/// spare takes the name of `from`. `to` is whole at every moment.
pub(super) fn exchange_by_link(from: At<'_>, to: At<'_>) -> io::Result<()> {
    let (from_folder, from_name) = place(from)?;
    let (to_folder, to_name) = place(to)?;
    let mut spare = OsString::from(from_name);
    spare.push(OsStr::from_bytes(b".spare"));
    rustix::fs::linkat(to_folder, to_name, from_folder, &spare, AtFlags::empty())?;
    rustix::fs::renameat(from_folder, from_name, to_folder, to_name)?;
    Ok(rustix::fs::renameat(
        from_folder,
        &spare,
        from_folder,
        from_name,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_exchange_agree() {
        let by_flag = |a: At<'_>, b: At<'_>| Disk.rename(a, b, Rename::Exchange);
        for way in [by_flag, exchange_by_link] {
            let dir = tempfile::tempdir().unwrap();
            let (a, b) = (dir.path().join("a"), dir.path().join("b"));
            std::fs::write(&a, "a").unwrap();
            std::fs::write(&b, "b").unwrap();
            way(At::from(&a), At::from(&b)).unwrap();
            assert_eq!(std::fs::read(&a).unwrap(), b"b");
            assert_eq!(std::fs::read(&b).unwrap(), b"a");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_exchanged_leaves_no_spare_name() {
        let dir = tempfile::tempdir().unwrap();
        let (above, below) = (dir.path().join("above"), dir.path().join("above/below"));
        std::fs::create_dir(&above).unwrap();
        std::fs::write(&below, "").unwrap();
        Disk.rename(At::from(&above), At::from(&below), Rename::Exchange)
            .unwrap_err();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(&above).unwrap().count(), 1);
    }
}
