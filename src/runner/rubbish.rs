//! Deleting folders that attempts filled, on a thread of its own.
//!
//! A folder that an attempt could write to may hold anything: thousands of folders in each other,
//! hundreds of thousands of files, folders that may not be entered. So it is only renamed where it
//! is let go, within its parent and in one step, and deleted beside all other work: without
//! recursion, with three descriptors open at the most, in turns with pauses between them, and one
//! folder after the other, so that none waits for another to end.
//!
//! What lies in a subfolder is brought up to the top before the subfolder goes. So no path grows
//! long, and what is left to do stands on the disk: a start finds it by its name. Links are not
//! followed, and nothing that is mounted there is entered.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::durable;

/// The names of what is being deleted begin with this; no id does.
const GONE: &str = ".gone-";
/// How many files are deleted before others have their turn.
const TURN: usize = 2_000;
/// How many names are tried for a folder that is brought up.
const MOST_NAMES: u64 = 1_000_000;

/// The way to the thread that deletes.
#[derive(Debug)]
pub struct Rubbish {
    folders: Sender<PathBuf>,
    count: AtomicU64,
}

impl Rubbish {
    /// Starts the thread. `on_stuck` is called with a folder that can't be deleted, and why.
    pub fn start(on_stuck: impl Fn(&Path, &io::Error) + Send + 'static) -> io::Result<Self> {
        let (folders, inbox) = channel();
        std::thread::Builder::new()
            .name("rubbish".to_owned())
            .spawn(move || work(&inbox, on_stuck))?;
        Ok(Self {
            folders,
            count: AtomicU64::new(0),
        })
    }

    /// Lets a folder go: its name is free at once. Nothing happens where there is none.
    pub fn discard(&self, path: &Path) {
        // A folder that was let go has the number of the daemon's process, which may come again.
        loop {
            let number = self.count.fetch_add(1, Ordering::Relaxed);
            let name = format!("{GONE}{}-{number}", std::process::id());
            let gone = path.with_file_name(name);
            match durable::replace(path, &gone) {
                Ok(()) => return self.delete(gone),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(error) if is_taken(&error) => {}
                Err(error) => return tracing::warn!("can't delete {}: {error}", path.display()),
            }
        }
    }

    /// Has what a former daemon let go deleted, if it has such a name.
    pub fn take_over(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let is_gone = name.starts_with(GONE.as_bytes());
        if is_gone {
            self.delete(path.to_owned());
        }
        is_gone
    }

    fn delete(&self, path: PathBuf) {
        // The thread lives as long as this.
        let _ = self.folders.send(path);
    }
}

fn is_taken(error: &io::Error) -> bool {
    let taken = [
        io::ErrorKind::AlreadyExists,
        io::ErrorKind::DirectoryNotEmpty,
        io::ErrorKind::NotADirectory,
    ];
    taken.contains(&error.kind())
}

fn work(inbox: &Receiver<PathBuf>, on_stuck: impl Fn(&Path, &io::Error)) {
    let mut heaps: VecDeque<Heap> = VecDeque::new();
    loop {
        if heaps.is_empty() {
            match inbox.recv() {
                Ok(path) => heaps.push_back(Heap::new(path)),
                Err(_) => return,
            }
        }
        heaps.extend(inbox.try_iter().map(Heap::new));
        let Some(mut heap) = heaps.pop_front() else {
            continue;
        };
        let begun = Instant::now();
        match heap.turn(TURN) {
            Ok(Turn::Done) => {}
            Ok(Turn::More) => {
                heaps.push_back(heap);
                // Others want the disk, too.
                std::thread::sleep(begun.elapsed() / 4);
            }
            Err(error) => on_stuck(&heap.top, &error),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Done,
    More,
}

/// A folder that is being deleted.
struct Heap {
    top: PathBuf,
    /// For the names of what is brought up.
    count: u64,
}

/// What one turn may still do, and what went wrong in it.
struct Budget {
    left: usize,
    error: Option<io::Error>,
}

impl Budget {
    fn spend(&mut self, done: Result<(), Errno>) {
        self.left = self.left.saturating_sub(1);
        if let Err(errno) = done
            && errno != Errno::NOENT
        {
            self.error.get_or_insert(errno.into());
        }
    }
}

impl Heap {
    fn new(top: PathBuf) -> Self {
        Self { top, count: 0 }
    }

    /// Deletes up to so many files and folders.
    fn turn(&mut self, most: usize) -> io::Result<Turn> {
        let found = fs::symlink_metadata(&self.top);
        match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Turn::Done),
            Err(error) => return Err(error),
            Ok(metadata) if !metadata.is_dir() => {
                fs::remove_file(&self.top)?;
                return Ok(Turn::Done);
            }
            Ok(_) => {}
        }
        let top = enter(rustix::fs::CWD, self.top.as_os_str(), None)?;
        let device = top.metadata()?.dev();
        let mut budget = Budget {
            left: most,
            error: None,
        };
        loop {
            let mut found = false;
            let before = budget.left;
            for entry in Dir::read_from(&top)? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." {
                    continue;
                }
                found = true;
                if is_folder(&top, name, entry.file_type()) {
                    self.empty(&top, name, device, &mut budget);
                } else {
                    budget.spend(rustix::fs::unlinkat(&top, name, AtFlags::empty()));
                }
                if budget.left == 0 {
                    break;
                }
            }
            if !found {
                fs::remove_dir(&self.top)?;
                return Ok(Turn::Done);
            }
            // What can't be deleted would be found again and again.
            if let Some(error) = budget.error {
                return Err(error);
            }
            if budget.left == 0 || budget.left == before {
                return Ok(Turn::More);
            }
        }
    }

    /// Deletes a folder in the top one, as far as the budget goes; its folders are brought up.
    fn empty(&mut self, top: &File, name: &OsStr, device: u64, budget: &mut Budget) {
        let emptied = self.try_empty(top, name, device, budget);
        if budget.left == 0 && emptied.is_ok() {
            return;
        }
        let gone = emptied.and_then(|()| rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR));
        budget.spend(gone);
    }

    fn try_empty(
        &mut self,
        top: &File,
        name: &OsStr,
        device: u64,
        budget: &mut Budget,
    ) -> Result<(), Errno> {
        let folder = enter(top, name, Some(device))?;
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if budget.left == 0 {
                return Ok(());
            }
            let done = if is_folder(&folder, name, entry.file_type()) {
                self.bring_up(&folder, name, top, device)
            } else {
                rustix::fs::unlinkat(&folder, name, AtFlags::empty())
            };
            budget.spend(done);
        }
        Ok(())
    }

    fn bring_up(
        &mut self,
        from: &File,
        name: &OsStr,
        top: &File,
        device: u64,
    ) -> Result<(), Errno> {
        // One that may not be written to can't be moved into another folder either.
        drop(enter(from, name, Some(device))?);
        for _ in 0..MOST_NAMES {
            self.count += 1;
            let new = format!(".{}", self.count);
            match durable::move_as(from, name, top, OsStr::new(&new)) {
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                done => return done,
            }
        }
        Err(Errno::EXIST)
    }
}

fn is_folder(folder: &File, name: &OsStr, told: FileType) -> bool {
    match told {
        FileType::Unknown => rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
        told => told == FileType::Directory,
    }
}

/// Opens a folder, by no link, and sees to it that what is in it can be deleted. On another device
/// than that, something is mounted there.
fn enter(at: impl std::os::fd::AsFd, name: &OsStr, device: Option<u64>) -> Result<File, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held: File = match device {
        None => rustix::fs::openat(at, name, flags | OFlags::PATH, Mode::empty())?.into(),
        Some(_) => hold_inside(at, name, flags | OFlags::PATH)?.into(),
    };
    let stat = rustix::fs::fstat(&held)?;
    if device.is_some_and(|device| device != stat.st_dev) {
        return Err(Errno::XDEV);
    }
    let all = Mode::RWXU;
    if !Mode::from_raw_mode(stat.st_mode).contains(all) {
        // By what is held, so that it is no other file than that.
        let path = format!("/proc/self/fd/{}", held.as_raw_fd());
        let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&held, ".", flags, Mode::empty())?.into())
}

/// Holds a folder that is not mounted there, as far as the system can tell.
#[cfg(target_os = "linux")]
fn hold_inside(
    at: impl std::os::fd::AsFd,
    name: &OsStr,
    flags: OFlags,
) -> Result<std::os::fd::OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(&at, name, flags, Mode::empty(), inside) {
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(at, name, flags, Mode::empty()),
        held => held,
    }
}

#[cfg(not(target_os = "linux"))]
fn hold_inside(
    at: impl std::os::fd::AsFd,
    name: &OsStr,
    flags: OFlags,
) -> Result<std::os::fd::OwnedFd, Errno> {
    rustix::fs::openat(at, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// How many turns of this length it takes until nothing is left.
    fn turns(top: &Path, most: usize) -> usize {
        let mut heap = Heap::new(top.to_owned());
        let mut turns = 1;
        while heap.turn(most).unwrap() == Turn::More {
            turns += 1;
            assert!(turns < 100_000, "it never ends");
        }
        assert!(fs::symlink_metadata(top).is_err());
        turns
    }

    #[test]
    fn a_deep_folder_is_deleted_in_turns_by_a_small_stack() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir(&top).unwrap();
        let mut here = durable::open_folder(&top).unwrap();
        for _ in 0..5_000 {
            rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
            rustix::fs::mkdirat(&here, "e", Mode::RWXU).unwrap();
            here = enter(&here, OsStr::new("d"), None).unwrap();
        }
        drop(here);
        let stack = std::thread::Builder::new().stack_size(64 * 1024);
        let turns = stack.spawn(move || turns(&top, 500)).unwrap().join();
        // Each folder is brought up and deleted.
        assert!((20..=60).contains(&turns.unwrap()));
    }

    #[test]
    fn many_files_take_many_turns_and_names_in_the_way_do_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("sub/.2/deeper")).unwrap();
        fs::create_dir_all(top.join("sub/.1")).unwrap();
        for n in 0..1_000 {
            fs::write(top.join(format!(".{n}")), "x").unwrap();
            fs::write(top.join("sub").join(n.to_string()), "x").unwrap();
        }
        assert!(turns(&top, 100) >= 20);
    }

    #[test]
    fn what_may_not_be_entered_goes_and_where_links_lead_stays() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("canary"), "kept").unwrap();
        fs::set_permissions(&outside, Permissions::from_mode(0o500)).unwrap();
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::write(top.join("a/b/f"), "x").unwrap();
        for link in ["link", "a/link", "a/b/link"] {
            symlink(&outside, top.join(link)).unwrap();
        }
        for shut in ["a/b/c", "a/b", "a", ""] {
            fs::set_permissions(top.join(shut), Permissions::from_mode(0o000)).unwrap();
        }
        turns(&top, 3);
        assert_eq!(fs::read_to_string(outside.join("canary")).unwrap(), "kept");
        let mode = fs::metadata(&outside).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o500);
    }

    #[test]
    fn a_name_is_free_as_soon_as_its_folder_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let rubbish = Rubbish::start(|path, error| panic!("{}: {error}", path.display())).unwrap();
        let home = dir.path().join("x.1");
        // As a former daemon with the same process number left it.
        let former = dir.path().join(format!("{GONE}{}-0", std::process::id()));
        fs::create_dir_all(former.join("full")).unwrap();
        for _ in 0..3 {
            fs::create_dir(&home).unwrap();
            fs::write(home.join("f"), "x").unwrap();
            rubbish.discard(&home);
            assert!(!home.exists());
        }
        rubbish.discard(&home);
        assert!(rubbish.take_over(&former) && !rubbish.take_over(&home));
        let begun = Instant::now();
        while fs::read_dir(dir.path()).unwrap().next().is_some() {
            assert!(begun.elapsed().as_secs() < 60, "something stays");
            std::thread::yield_now();
        }
    }
}
