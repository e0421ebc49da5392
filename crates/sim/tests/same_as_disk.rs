//! The file system in memory does what a real one does: the same errors, the same tree, the same bytes, and the
//! same answer to which file is which.
//!
//! Random sequences of calls are made on both. The folder for the real one is on the file system of the
//! temporary files and, where there is one, on tmpfs; `SIM_FOLDERS` names others.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Debug;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use handoffd_sim::dice::Dice;
use handoffd_sim::memory::Memory;
use handoffd_sys::fs::{
    At, Disk, Fs, Handle, Kind, Lease, Lock, Open, Rename, Stat, ignore_lease_signals,
};

const NAMES: [&str; 9] = ["a", "b", "c", "d/a", "d/b", "d/e/a", "link/a", "d", "link"];

/// One side: a file system, the folder it is tried in, and what is open there.
struct Side<'a> {
    fs: &'a dyn Fs,
    top: PathBuf,
    open: Vec<Handle>,
    /// Inodes by the order in which they were first seen, so that both sides can be compared.
    seen: BTreeMap<u64, usize>,
}

/// An outcome in words that are the same for both.
fn said<T: Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            "somebody is in the way".to_owned()
        }
        Err(error) => match error.raw_os_error() {
            Some(code) => format!("error {code}"),
            None => format!("{:?}", error.kind()),
        },
    }
}

impl Side<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    fn shown(&self, stat: io::Result<Stat>) -> String {
        said(stat.map(|stat| {
            let inode = self.seen.get(&stat.inode).copied();
            match stat.kind {
                Kind::File => (stat.kind, stat.size, stat.links, inode),
                kind => (kind, 0, 0, inode),
            }
        }))
    }

    /// Learns which inodes there are, in the order of their paths.
    fn learn(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        let mut todo = vec![self.top.clone()];
        let mut live = BTreeSet::new();
        while let Some(folder) = todo.pop() {
            let mut names: Vec<_> = self.fs.list(&folder).unwrap().map(Result::unwrap).collect();
            names.sort_by(|a, b| a.name.cmp(&b.name));
            for entry in names {
                let path = folder.join(&entry.name);
                let stat = self.fs.stat(At::from(&path)).unwrap();
                assert_eq!(entry.kind, Some(stat.kind));
                live.insert(stat.inode);
                let known = self.seen.len();
                let number = *self.seen.entry(stat.inode).or_insert(known);
                let bytes = match stat.kind {
                    Kind::File => self
                        .fs
                        .open(At::from(&path), Open::Read)
                        .unwrap()
                        .read(1 << 20),
                    _ => Ok(Vec::new()),
                };
                let path = path.strip_prefix(&self.top).unwrap().to_owned();
                all.push(format!(
                    "{} {:?} {number} {:?}",
                    path.display(),
                    stat.kind,
                    bytes.unwrap()
                ));
                if stat.kind == Kind::Folder {
                    todo.push(self.top.join(path));
                }
            }
        }
        // A number that comes back is another file.
        self.seen.retain(|inode, _| live.contains(inode));
        let order: Vec<u64> = {
            let mut all: Vec<_> = self.seen.iter().map(|(inode, at)| (*at, *inode)).collect();
            all.sort_unstable();
            all.into_iter().map(|(_, inode)| inode).collect()
        };
        self.seen = order
            .into_iter()
            .enumerate()
            .map(|(at, inode)| (inode, at))
            .collect();
        all
    }

    /// Makes one call that the dice choose; what came of it.
    fn step(&mut self, dice: &mut Dice) -> String {
        let (name, other) = (*dice.pick(&NAMES), *dice.pick(&NAMES));
        let (path, second) = (self.path(name), self.path(other));
        let at = At::from(&path);
        let ways = [Rename::Replace, Rename::NoReplace, Rename::Exchange];
        let hows = [
            Open::Read,
            Open::Write,
            Open::Create,
            Open::Update,
            Open::Folder,
        ];
        let bytes = vec![b'a' + u8::try_from(dice.below(26)).unwrap(); dice.below(1500)];
        let offset = dice.below(700) as u64;
        let which = dice.below(self.open.len().max(1));
        let choice = dice.below(17);
        let how = *dice.pick(&hows);
        let way = *dice.pick(&ways);
        match choice {
            0..=3 => {
                let opened = self.fs.open(at, how);
                let says = said(opened.as_ref().map(|_| ()).map_err(|error| {
                    error
                        .raw_os_error()
                        .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
                }));
                self.open.extend(opened.ok());
                format!("open {name} {how:?}: {says}")
            }
            4 => format!("stat {name}: {}", self.shown(self.fs.stat(at))),
            5 => format!(
                "stat_followed {name}: {}",
                self.shown(self.fs.stat_followed(&path))
            ),
            6 | 7 => {
                let renamed = self.fs.rename(at, At::from(&second), way);
                format!("rename {name} {other} {way:?}: {}", said(renamed))
            }
            8 => format!(
                "link {name} {other}: {}",
                said(self.fs.link(at, At::from(&second)))
            ),
            9 => format!("remove {name}: {}", said(self.fs.remove(at))),
            10 => format!(
                "make_folder {name}: {}",
                said(self.fs.make_folder(at, 0o750))
            ),
            11 => format!("remove_folder {name}: {}", said(self.fs.remove_folder(at))),
            _ => match self.open.get(which) {
                None => String::new(),
                Some(handle) => match choice {
                    12 => format!("write: {}", said(handle.write_all_at(&bytes, offset))),
                    13 => format!("set_len: {}", said(handle.set_len(offset))),
                    14 => format!("read: {}", said(handle.read(1000))),
                    15 => {
                        let made = self.fs.open(At::In(handle, OsStr::new("a")), Open::Create);
                        let renamed = self.fs.rename(
                            At::In(handle, OsStr::new("a")),
                            At::In(handle, OsStr::new("b")),
                            way,
                        );
                        format!("in folder: {} {}", said(made.map(drop)), said(renamed))
                    }
                    _ => {
                        self.open.swap_remove(which);
                        "close".to_owned()
                    }
                },
            },
        }
    }
}

fn compare(folder: &Path, seed: u64) {
    let real = tempfile::tempdir_in(folder).unwrap();
    let memory = Memory::new();
    let door = memory.door();
    let mut told = Vec::new();
    std::fs::create_dir_all(real.path().join("d/e")).unwrap();
    symlink("d", real.path().join("link")).unwrap();
    for made in ["/top", "/top/d", "/top/d/e"] {
        door.make_folder(At::from(made), 0o750).unwrap();
    }
    door.make_link(Path::new("d"), Path::new("/top/link"))
        .unwrap();
    let side = |fs, top: &Path| Side {
        fs,
        top: top.to_owned(),
        open: Vec::new(),
        seen: BTreeMap::new(),
    };
    let mut sides = [
        side(&Disk as &dyn Fs, real.path()),
        side(&door, Path::new("/top")),
    ];
    for _ in 0..60 {
        let mut dice = Dice::new(seed.wrapping_mul(1_000_003) + told.len() as u64);
        let [on_disk, in_memory] = sides.each_mut().map(|side| side.step(&mut dice.clone()));
        dice.draw();
        told.push(on_disk.clone());
        assert_eq!(on_disk, in_memory, "seed {seed}: {}", told.join("\n"));
        let [on_disk, in_memory] = sides.each_mut().map(Side::learn);
        assert_eq!(on_disk, in_memory, "seed {seed}: {}", told.join("\n"));
    }
}

#[test]
fn random_calls_do_the_same_in_memory_and_on_a_disk() {
    let named = std::env::var("SIM_FOLDERS").unwrap_or_default();
    let mut folders: Vec<PathBuf> = named
        .split(':')
        .filter(|it| !it.is_empty())
        .map(PathBuf::from)
        .collect();
    folders.push(std::env::temp_dir());
    folders.extend(Some(PathBuf::from("/dev/shm")).filter(|shm| shm.is_dir()));
    for folder in folders {
        for seed in 0..150 {
            compare(&folder, seed);
        }
    }
}

/// Locks and leases are between open files, so they are tried by hand.
#[test]
fn locks_and_leases_are_held_as_on_a_disk() {
    ignore_lease_signals();
    let real = tempfile::tempdir().unwrap();
    let memory = Memory::new();
    let door = memory.door();
    door.make_folder(At::from("/top"), 0o750).unwrap();
    let sides: [(&dyn Fs, &Path); 2] = [(&Disk, real.path()), (&door, Path::new("/top"))];
    let told = sides.map(|(fs, top)| {
        let path = top.join("x");
        let open = |how| fs.open(At::from(&path), how).unwrap();
        let writer = open(Open::Create);
        let (first, second) = (open(Open::Read), open(Open::Read));
        let mut told = vec![
            said(first.lease(Some(Lease::Read))),
            said(first.try_lock(Lock::Shared)),
            said(second.try_lock(Lock::Shared)),
            said(writer.try_lock(Lock::Exclusive)),
        ];
        drop(first);
        told.push(said(second.try_lock(Lock::Exclusive)));
        drop(writer);
        told.push(said(second.lease(Some(Lease::Read))));
        told.push(said(fs.open(At::from(&path), Open::Write).map(drop)));
        told.push(said(second.lease(None)));
        let writer = open(Open::Write);
        told.push(said(writer.lease(Some(Lease::Write))));
        drop(second);
        told.push(said(writer.lease(Some(Lease::Write))));
        told
    });
    assert_eq!(told[0], told[1]);
}
