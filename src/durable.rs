//! Durable moves: the only module that may rename, link or fsync.
//!
//! Functions act on one name or one descriptor and leave one of two states behind if the
//! process dies halfway: the old one or the new one. Callers never ask "did that happen?";
//! they rescan and act on what is there. Whether a sync is wanted at all is the caller's
//! choice, made once, as [`Durability`].
//!
//! Nothing here knows what a handoff is. Meaning lives in [`crate::spool`].
#![expect(
    clippy::disallowed_methods,
    reason = "this is the room that may rename, link and fsync"
)]

pub mod owner;
mod take;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};

use handoffd_sys::fs::{Disk, Fs, Rename};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::mutant;

use owner::Owner;

pub use handoffd_sys::fs::start_writeback;
pub use take::{Identity, TakeError, take};

/// Whether syncs reach the disk or are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Full,
    Relaxed,
}

/// Moves `from` to `to` in one step and fails with `AlreadyExists` where `to` is taken.
pub fn move_no_replace(from: &Path, to: &Path) -> io::Result<()> {
    Disk.rename(from.into(), to.into(), Rename::NoReplace)
}

/// Like [`move_no_replace`], into a folder that is held open.
pub fn move_no_replace_into(from: &Path, dir: &File, name: &OsStr) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, dir, name, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            rustix::fs::linkat(CWD, from, dir, name, AtFlags::empty())?;
            std::fs::remove_file(from)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Holds a folder open, if it is one: a link that stands there is an error, wherever it leads.
pub fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Moves `from` over `to`, replacing it in one step.
pub fn replace(from: &Path, to: &Path) -> io::Result<()> {
    Disk.rename(from.into(), to.into(), Rename::Replace)
}

/// Like [`move_no_replace`], within a folder that is held open: wherever its name leads by now.
pub fn move_no_replace_in(dir: &File, from: &str, to: &str) -> io::Result<()> {
    match rustix::fs::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => move_by_link_in(dir, from, to),
        Err(errno) => Err(errno.into()),
    }
}

fn move_by_link_in(dir: &File, from: &str, to: &str) -> io::Result<()> {
    rustix::fs::linkat(dir, from, dir, to, AtFlags::empty())?;
    Ok(rustix::fs::unlinkat(dir, from, AtFlags::empty())?)
}

/// Like [`replace`], within a folder that is held open.
pub fn replace_in(dir: &File, from: &str, to: &str) -> io::Result<()> {
    Ok(rustix::fs::renameat(dir, from, dir, to)?)
}

/// Moves a file from one open folder to another, under its name.
pub fn move_between(from: &File, to: &File, name: &str, replace: bool) -> io::Result<()> {
    if replace {
        return Ok(rustix::fs::renameat(from, name, to, name)?);
    }
    match rustix::fs::renameat_with(from, name, to, name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            rustix::fs::linkat(from, name, to, name, AtFlags::empty())?;
            Ok(rustix::fs::unlinkat(from, name, AtFlags::empty())?)
        }
        done => Ok(done?),
    }
}

/// Moves a file or a folder from one open folder to another, under a new name that must be free.
pub fn move_as(from: &File, name: &OsStr, to: &File, new: &OsStr) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // An empty folder that stands there is lost; nothing else is.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            rustix::fs::renameat(from, name, to, new)
        }
        moved => moved,
    }
}

/// Exchanges two existing files. Afterwards each stands under the other's name.
pub fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    Disk.rename(a.into(), b.into(), Rename::Exchange)
}

/// Creates `path` with `bytes`, refusing to overwrite. Nothing is synced yet.
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<File> {
    create_for(path, bytes, Owner::Folder)
}

/// The same for what its maker may keep, as the files that are dropped for a daemon.
pub fn create_for(path: &Path, bytes: &[u8], owner: Owner) -> io::Result<File> {
    let folder = path.parent().unwrap_or(Path::new("."));
    if owner == Owner::Folder {
        owner::may_make_in(folder)?;
    }
    let mut file = File::options().write(true).create_new(true).open(path)?;
    owner::give_in(&file, folder, owner)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// An error that says where it happened. It is passing if the first one was.
pub fn at(path: &Path, error: &io::Error) -> io::Error {
    worded(format!("{}: {error}", path.display()), error)
}

/// An error in other words, that is passing if its cause is.
pub fn worded(text: String, cause: &io::Error) -> io::Error {
    let is_passing = is_passing(cause);
    io::Error::new(cause.kind(), Placed { text, is_passing })
}

#[derive(Debug)]
struct Placed {
    text: String,
    is_passing: bool,
}

impl std::fmt::Display for Placed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Placed {}

/// Whether the machine may be able to do later what it can't do now: it is short of descriptors,
/// processes, memory or space, or somebody does not answer yet.
pub fn is_passing(error: &io::Error) -> bool {
    let placed = error.get_ref().and_then(|it| it.downcast_ref::<Placed>());
    let errno = Errno::from_io_error(error);
    placed.is_some_and(|placed| placed.is_passing)
        || matches!(
            errno,
            Some(
                Errno::MFILE
                    | Errno::NFILE
                    | Errno::AGAIN
                    | Errno::NOMEM
                    | Errno::INTR
                    | Errno::NOSPC
                    | Errno::DQUOT
                    | Errno::NOBUFS
            )
        )
        || matches!(
            error.kind(),
            io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::OutOfMemory
                | io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::Interrupted
        )
}

/// Like [`create`], but what stands there already is deleted first: a new inode, not reused
/// pages.
pub fn create_anew(path: &Path, bytes: &[u8]) -> io::Result<File> {
    match create(path, bytes) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            create(path, bytes)
        }
        Err(error) => {
            let _ = std::fs::remove_file(path);
            Err(error)
        }
        created => created,
    }
}

/// Returns once the file's content would survive a power cut.
///
/// After an error the pages may be marked clean all the same: write the content to a new file
/// instead of trying this again.
pub fn sync_file(file: &File, durability: Durability) -> io::Result<()> {
    match durability {
        Durability::Full if mutant::is("no-file-sync") => Ok(()),
        Durability::Full => file.sync_data(),
        Durability::Relaxed => Ok(()),
    }
}

/// Returns once the names in the folder would survive a power cut.
pub fn sync_dir(dir: &File, durability: Durability) -> io::Result<()> {
    match durability {
        Durability::Full if mutant::is("no-folder-sync") => Ok(()),
        Durability::Full => file_sync_all(dir),
        Durability::Relaxed => Ok(()),
    }
}

/// How many syncs are under way at once, besides the caller's own.
const OVERLAP: usize = 4;

/// A sync, to be made by whoever is free.
pub type Sync = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// Threads that sync for somebody else.
///
/// Syncs that overlap share the flushes of the disk, and on most file systems the commits of
/// the journal; one after the other each would wait for its own.
pub struct Syncers {
    inboxes: Vec<Sender<Order>>,
}

/// One sync, its place in the caller's list, and where to tell how it went.
struct Order {
    sync: Sync,
    at: usize,
    tell: Sender<(usize, io::Result<()>)>,
}

impl Syncers {
    pub fn start() -> io::Result<Self> {
        let mut inboxes = Vec::new();
        for n in 0..OVERLAP {
            let (inbox, orders) = channel::<Order>();
            std::thread::Builder::new()
                .name(format!("sync-{n}"))
                .spawn(move || {
                    for Order { sync, at, tell } in orders {
                        let _ = tell.send((at, sync()));
                    }
                })?;
            inboxes.push(inbox);
        }
        Ok(Self { inboxes })
    }

    /// Makes all of `syncs` while the caller makes its `own`; what each of them said, in order.
    pub fn run<T>(&self, syncs: Vec<Sync>, own: impl FnOnce() -> T) -> (T, Vec<io::Result<()>>) {
        // What a thread took with it when it died is not known to be on disk.
        let mut said: Vec<io::Result<()>> = syncs
            .iter()
            .map(|_| Err(io::Error::other("a sync came to no end")))
            .collect();
        let (tell, told) = channel();
        for (at, sync) in syncs.into_iter().enumerate() {
            let inbox = &self.inboxes[at % self.inboxes.len()];
            let tell = tell.clone();
            if let Err(unsent) = inbox.send(Order { sync, at, tell }) {
                said[at] = (unsent.0.sync)();
            }
        }
        drop(tell);
        let own = own();
        for (at, result) in told {
            said[at] = result;
        }
        (own, said)
    }
}

fn file_sync_all(file: &File) -> io::Result<()> {
    file.sync_all()
}

/// Replaces `path` with `bytes` by way of `temp`, which must be on the same file system.
pub fn write_whole(
    path: &Path,
    temp: &Path,
    bytes: &[u8],
    durability: Durability,
) -> io::Result<()> {
    let dir = File::open(path.parent().unwrap_or(Path::new(".")))?;
    let name = path.file_name().unwrap_or_default();
    write_for(&dir, name, temp, bytes, durability, Owner::Folder)
}

/// Drops a file for a daemon, by way of `temp`. Its maker may keep it.
pub fn drop_whole(path: &Path, temp: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = File::open(path.parent().unwrap_or(Path::new(".")))?;
    let name = path.file_name().unwrap_or_default();
    write_for(&dir, name, temp, bytes, Durability::Full, Owner::Maker)
}

/// Like [`write_whole`], in a folder that is held open.
pub fn write_whole_in(
    dir: &File,
    name: &OsStr,
    temp: &Path,
    bytes: &[u8],
    durability: Durability,
) -> io::Result<()> {
    write_for(dir, name, temp, bytes, durability, Owner::Folder)
}

fn write_for(
    dir: &File,
    name: &OsStr,
    temp: &Path,
    bytes: &[u8],
    durability: Durability,
    owner: Owner,
) -> io::Result<()> {
    let written = (|| {
        match std::fs::remove_file(temp) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = create_for(temp, bytes, owner)?;
        owner::give(&file, &dir.metadata()?, owner)?;
        sync_file(&file, durability)?;
        Ok(rustix::fs::renameat(CWD, temp, dir, name)?)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(temp);
    }
    written?;
    sync_dir(dir, durability)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_never_overwrites() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        create(&a, b"a").unwrap();
        create(&b, b"b").unwrap();
        let refused = move_no_replace(&a, &b).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&b).unwrap(), b"b");
        assert_eq!(std::fs::read(&a).unwrap(), b"a");
    }

    #[test]
    fn moves_within_an_open_folder_follow_the_folder_and_not_its_name() {
        for way in [move_no_replace_in, move_by_link_in] {
            let top = tempfile::tempdir().unwrap();
            let (here, there) = (top.path().join("here"), top.path().join("there"));
            std::fs::create_dir(&here).unwrap();
            create(&here.join("a"), b"a").unwrap();
            create(&here.join("b"), b"b").unwrap();
            let dir = File::open(&here).unwrap();
            replace(&here, &there).unwrap();
            let refused = way(&dir, "a", "b").unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            way(&dir, "a", "c").unwrap();
            replace_in(&dir, "c", "b").unwrap();
            assert_eq!(std::fs::read(there.join("b")).unwrap(), b"a");
            assert_eq!(std::fs::read_dir(&there).unwrap().count(), 1);
        }
    }

    #[test]
    fn what_goes_into_an_open_folder_goes_there_wherever_its_name_leads() {
        let top = tempfile::tempdir().unwrap();
        let [here, there, elsewhere] = ["here", "there", "elsewhere"].map(|name| {
            let path = top.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        });
        let dir = open_folder(&here).unwrap();
        std::fs::remove_dir(&there).unwrap();
        replace(&here, &there).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &here).unwrap();
        assert!(open_folder(&here).is_err(), "a link is no folder");
        let (a, temp) = (top.path().join("a"), top.path().join("temp"));
        create(&a, b"a").unwrap();
        move_no_replace_into(&a, &dir, OsStr::new("a")).unwrap();
        create(&a, b"another").unwrap();
        let refused = move_no_replace_into(&a, &dir, OsStr::new("a")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        write_whole_in(&dir, OsStr::new("b"), &temp, b"b", Durability::Full).unwrap();
        assert_eq!(std::fs::read(there.join("a")).unwrap(), b"a");
        assert_eq!(std::fs::read(there.join("b")).unwrap(), b"b");
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[test]
    fn overlapped_syncs_each_say_how_they_went() {
        let syncers = Syncers::start().unwrap();
        for count in [0, 1, 2, 100] {
            let syncs = (0..count)
                .map(|n| -> Sync {
                    Box::new(move || match n % 3 {
                        0 => Err(io::Error::from_raw_os_error(libc::EIO)),
                        _ => Ok(()),
                    })
                })
                .collect();
            let (own, said) = syncers.run(syncs, || "own");
            assert_eq!((own, said.len()), ("own", count));
            for (n, result) in said.iter().enumerate() {
                assert_eq!(result.is_err(), n % 3 == 0, "{n} of {count}");
            }
        }
    }

    #[test]
    fn write_whole_replaces_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, temp) = (dir.path().join("x"), dir.path().join("x.tmp"));
        create(&temp, b"left from a crash").unwrap();
        write_whole(&path, &temp, b"one", Durability::Full).unwrap();
        write_whole(&path, &temp, b"two", Durability::Relaxed).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert!(!temp.exists());
    }
}
