//! Inodes used again: a file whose bytes nobody needs any more becomes the next temporary file.
//!
//! Making and deleting files is the dearest part of a small handoff, more so on an ext4 without
//! a journal, where what was deleted within the last minute is in the way of whatever is made.
//! A handoff needs two new files (claim and outcome) and lets go of two (the producer's, and
//! the claim when the outcome has taken its place), so in the long run it needs none.
//!
//! What is kept here was let go: a synced successor stands in its place. It is written over
//! only if nobody else can see that: no second name, nobody who has it open, and owner, mode
//! and attributes as a new file would have. Anything else is deleted. They stand in a folder of
//! their own, which is emptied at every start.
//!
//! Where a power cut is to be survived, a file is emptied first: a record that was not synced yet
//! may then be short afterwards, as a new file may, but it never holds the bytes of another. That
//! happens when it is let go, not when it is used again: ext4 takes a file that was emptied and
//! written between one open and its close for one that is being replaced, and writes it out at
//! once at the close, which costs more than all the rest. (An outcome is
//! synced first, but an inode of which a write has failed once, be it its producer's, loses the next
//! one, too, on ext4, unless it was emptied.) Where no power cut is to be survived, it is written
//! over as it is, and only cut to its new length.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::durable::{self, Durability};
use crate::spool::look::disk::Disk;
use crate::spool::look::{Lease, give_up_lease, try_lease};

/// As many as a few batches may need; the rest is deleted.
const MOST: usize = 128;
/// A larger one is not worth its blocks.
const LARGEST: u64 = 65_536;

/// Cheap to clone; clones share what is kept.
#[derive(Debug, Clone)]
pub struct Spares {
    folder: PathBuf,
    durability: Durability,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    paths: Vec<PathBuf>,
    /// Owner, group and mode of a file that was made here.
    like: Option<(u32, u32, u32)>,
    /// Whether the file system keeps the order of changes.
    in_order: Option<bool>,
    count: u64,
}

/// Whether a file that was emptied before it got another name is so after a power cut too. btrfs
/// may keep the name and forget the emptying: a record would then hold the bytes of another.
fn keeps_order(folder: &Path) -> bool {
    let disk = Disk::of(folder);
    matches!(disk, Disk::Ext | Disk::Xfs | Disk::Memory) || !cfg!(target_os = "linux")
}

impl Spares {
    /// Keeps spares in `folder`, which must be on the same file system as what is written.
    pub fn new(folder: &Path, durability: Durability) -> Self {
        Self {
            folder: folder.to_owned(),
            durability,
            kept: Arc::default(),
        }
    }

    /// Deletes whatever is in the folder: what an earlier daemon kept, or this one at its end.
    pub fn clear(&self) -> io::Result<()> {
        self.lock().paths.clear();
        for entry in fs::read_dir(&self.folder)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    /// Whether the file system keeps the order of changes, so that of two the later one is never
    /// all that is left after a power cut.
    pub fn are_kept_in_order(&self) -> bool {
        let mut kept = self.lock();
        *kept
            .in_order
            .get_or_insert_with(|| keeps_order(&self.folder))
    }

    fn new_path(&self) -> PathBuf {
        let mut kept = self.lock();
        kept.count += 1;
        self.folder.join(kept.count.to_string())
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a temporary file that nothing refers to any more, to be used again or deleted. One
    /// from elsewhere loses its name at once: a claim's would still mean something to a restart.
    pub fn let_go(&self, path: &Path) -> io::Result<()> {
        let room = {
            let kept = self.lock();
            kept.paths.len() < MOST && kept.like.is_some()
        };
        if !room || !self.are_kept_in_order() {
            return fs::remove_file(path);
        }
        let spare = if path.parent() == Some(&self.folder) {
            path.to_owned()
        } else {
            let spare = self.new_path();
            if durable::replace(path, &spare).is_err() {
                return fs::remove_file(path);
            }
            spare
        };
        if self.durability == Durability::Full && !matches!(self.empty(&spare), Ok(true)) {
            return fs::remove_file(&spare);
        }
        self.lock().paths.push(spare);
        Ok(())
    }

    fn empty(&self, spare: &Path) -> io::Result<bool> {
        match self.open_fit(spare)? {
            Some((file, _)) => file.set_len(0).map(|()| true),
            None => Ok(false),
        }
    }

    /// Writes a temporary file under a name that means nothing.
    pub fn write(&self, bytes: &[u8]) -> io::Result<(PathBuf, File)> {
        if let Some((spare, file)) = self.reuse(bytes) {
            return Ok((spare, file));
        }
        let path = self.new_path();
        let file = self.create(&path, bytes)?;
        Ok((path, file))
    }

    /// Writes a temporary file of this name; what an earlier try left there is deleted.
    pub fn write_as(&self, path: &Path, bytes: &[u8]) -> io::Result<File> {
        if let Some((spare, file)) = self.reuse(bytes) {
            if durable::replace(&spare, path).is_ok() {
                return Ok(file);
            }
            let _ = fs::remove_file(&spare);
        }
        self.create(path, bytes)
    }

    fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<File> {
        let file = durable::create_anew(path, bytes)?;
        let mut kept = self.lock();
        if kept.like.is_none() {
            kept.like = file.metadata().ok().map(|metadata| looks(&metadata));
        }
        Ok(file)
    }

    /// A spare that is written to, if there is one.
    fn reuse(&self, bytes: &[u8]) -> Option<(PathBuf, File)> {
        loop {
            let spare = self.lock().paths.pop()?;
            let written = match self.durability {
                Durability::Full => write_to_empty(&spare, bytes),
                Durability::Relaxed => self.write_over(&spare, bytes),
            };
            if let Ok(Some(file)) = written {
                return Some((spare, file));
            }
            // Not fit, or gone.
            let _ = fs::remove_file(&spare);
        }
    }

    /// Writes over what a spare still holds; `None` if it may not be written over.
    fn write_over(&self, spare: &Path, bytes: &[u8]) -> io::Result<Option<File>> {
        let Some((file, size)) = self.open_fit(spare)? else {
            return Ok(None);
        };
        // Whoever opens it under the name that it gets next must not wait for us.
        give_up_lease(&file)?;
        file.write_all_at(bytes, 0)?;
        if size > bytes.len() as u64 {
            file.set_len(bytes.len() as u64)?;
        }
        Ok(Some(file))
    }

    /// Opens a spare for writing, if it may be written over, and tells its size.
    fn open_fit(&self, spare: &Path) -> io::Result<Option<(File, u64)>> {
        let file = open(spare)?;
        let metadata = file.metadata()?;
        let fit = metadata.is_file()
            && metadata.nlink() == 1
            && metadata.len() <= LARGEST
            && self.lock().like == Some(looks(&metadata))
            && has_no_attributes(&file)
            // Granted only while nobody else has it open, be it for reading; and without a second
            // name nobody can open it any more but through here.
            && try_lease(&file, Lease::Write).is_ok();
        Ok(fit.then_some((file, metadata.len())))
    }
}

fn open(spare: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(spare)
}

/// Writes to a spare that is still empty and has one name; `None` for any other. It was found fit
/// when it came; here only what may have changed since is looked at.
fn write_to_empty(spare: &Path, bytes: &[u8]) -> io::Result<Option<File>> {
    let file = open(spare)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > 0 || metadata.nlink() != 1 {
        return Ok(None);
    }
    file.write_all_at(bytes, 0)?;
    Ok(Some(file))
}

fn looks(metadata: &Metadata) -> (u32, u32, u32) {
    (metadata.uid(), metadata.gid(), metadata.mode())
}

fn has_no_attributes(file: &File) -> bool {
    let mut none = [0_u8; 0];
    matches!(rustix::fs::flistxattr(file, &mut none), Ok(0))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a producer may link its file")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const BOTH: [Durability; 2] = [Durability::Full, Durability::Relaxed];

    /// Lets a file go and writes another; tells whether the second is the first's inode.
    fn is_used_again(durability: Durability, between: impl FnOnce(&Path) -> Option<File>) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let spares = Spares::new(dir.path(), durability);
        drop(spares.write_as(&at("a"), b"a longer content").unwrap());
        let inode = fs::metadata(at("a")).unwrap().ino();
        let _held = between(&at("a"));
        spares.let_go(&at("a")).unwrap();
        drop(spares.write_as(&at("b"), b"new").unwrap());
        assert_eq!(fs::read(at("b")).unwrap(), b"new");
        assert!(!at("a").exists());
        fs::metadata(at("b")).unwrap().ino() == inode
    }

    #[test]
    fn a_file_that_is_ours_alone_is_used_again() {
        for durability in BOTH {
            assert!(is_used_again(durability, |_| None), "{durability:?}");
        }
    }

    #[test]
    fn a_file_that_somebody_may_see_is_not() {
        for durability in BOTH {
            let reader = is_used_again(durability, |path| File::open(path).ok());
            assert!(!reader, "{durability:?}");
            let writer = is_used_again(durability, |path| {
                File::options().append(true).open(path).ok()
            });
            assert!(!writer, "{durability:?}");
        }
    }

    #[test]
    fn what_is_used_again_has_its_new_content_and_can_be_opened_at_once() {
        for durability in BOTH {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            let spares = Spares::new(dir.path(), durability);
            for content in ["the first", "a longer second", "short", "", "a fifth one"] {
                let held = spares.write_as(&at("x"), content.as_bytes()).unwrap();
                let other = crate::spool::look::open_quietly(&at("x")).unwrap();
                assert_eq!(io::read_to_string(other).unwrap(), content);
                drop(held);
                spares.let_go(&at("x")).unwrap();
            }
        }
    }

    #[test]
    fn a_file_of_another_mode_is_not() {
        for durability in BOTH {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            let spares = Spares::new(dir.path(), durability);
            drop(spares.write_as(&at("a"), b"private").unwrap());
            fs::set_permissions(at("a"), fs::Permissions::from_mode(0o600)).unwrap();
            spares.let_go(&at("a")).unwrap();
            drop(spares.write_as(&at("b"), b"new").unwrap());
            assert_ne!(fs::metadata(at("b")).unwrap().mode() & 0o777, 0o600);
            assert!(!at("a").exists());
        }
    }

    #[test]
    fn a_second_name_keeps_its_bytes() {
        for durability in BOTH {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            let spares = Spares::new(dir.path(), durability);
            drop(spares.write_as(&at("a"), b"kept").unwrap());
            fs::hard_link(at("a"), at("link")).unwrap();
            spares.let_go(&at("a")).unwrap();
            drop(spares.write_as(&at("b"), b"new").unwrap());
            assert_eq!(fs::read(at("link")).unwrap(), b"kept");
            assert_eq!(fs::read(at("b")).unwrap(), b"new");
        }
    }
}
