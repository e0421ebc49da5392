//! The door of one process: each method is one call, which can be cut off or fail.

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use handoffd_sys::fs::{
    At, Entries, Entry, Fs, Handle, Kind, Lease, Lock, Open, OpenFile, Rename, Stat, Synced,
};

use super::bytes::Bytes;
use super::faults::{Crashed, Moment, Need};
use super::journal::{Name, NodeId};
use super::tree::{Content, TOP, Tree, errno, names_after};
use super::{Machine, Memory};

/// Names that a listing reads with one call.
const PAGE: usize = 4;

#[derive(Debug, Clone)]
pub struct Door {
    memory: Memory,
    process: u64,
    is_doomed: bool,
}

/// What a call gets: the tree, and its own number.
type Call<'a, T> = &'a mut dyn FnMut(&mut Tree, &Faulty<'_>) -> io::Result<T>;

/// The faults, as far as a call has to know them.
struct Faulty<'a> {
    machine: &'a super::Faults,
    call: u64,
    is_doomed: bool,
}

impl Faulty<'_> {
    fn written(&self, count: usize) -> usize {
        if self.is_doomed {
            self.machine.written(self.call, count)
        } else {
            count
        }
    }
}

impl Door {
    pub(super) fn new(memory: Memory, process: u64, is_doomed: bool) -> Self {
        Self {
            memory,
            process,
            is_doomed,
        }
    }

    /// Makes a symbolic link. The product never does; strangers do.
    pub fn make_link(&self, target: &Path, at: &Path) -> io::Result<()> {
        self.call(Need::Room, &mut |tree, _| {
            let name = tree.resolve(at)?;
            let target = Content::Link(target.to_owned());
            tree.make(name, target, 0o777).map(drop)
        })
    }

    /// Makes a pipe. The product never does; strangers do.
    pub fn make_pipe(&self, at: &Path) -> io::Result<()> {
        self.call(Need::Room, &mut |tree, _| {
            let name = tree.resolve(at)?;
            tree.make(name, Content::Pipe, 0o640).map(drop)
        })
    }

    fn call<T>(&self, need: Need, act: Call<'_, T>) -> io::Result<T> {
        let mut machine = self.memory.lock();
        if self.process <= machine.dead {
            return Err(errno(libc::EIO));
        }
        let Machine {
            tree,
            faults,
            calls,
            ..
        } = &mut *machine;
        if !self.is_doomed {
            let faulty = Faulty {
                machine: faults,
                call: 0,
                is_doomed: false,
            };
            return act(tree, &faulty);
        }
        *calls += 1;
        let call = *calls;
        let faulty = Faulty {
            machine: faults,
            call,
            is_doomed: true,
        };
        let crashes_after = faults.crashes(call, Moment::After);
        if !faults.crashes(call, Moment::Before) {
            let done = faults.error(call, need).and_then(|()| act(tree, &faulty));
            if !crashes_after {
                return done;
            }
        }
        machine.kill();
        drop(machine);
        resume_unwind(Box::new(Crashed));
    }

    fn name(&self, tree: &Tree, at: At<'_>) -> io::Result<Name> {
        match at {
            At::Path(path) => tree.resolve(path),
            At::In(folder, name) => {
                let folder = folder
                    .simulated()
                    .and_then(|file| file.as_any().downcast_ref::<Opened>())
                    .filter(|file| file.door.process == self.process)
                    .ok_or_else(|| errno(libc::EBADF))?;
                tree.folder(folder.node)?;
                if tree.stat(folder.node)?.links == 0 {
                    return Err(errno(libc::ENOENT));
                }
                Ok((folder.node, name.to_owned()))
            }
        }
    }

    fn opened(&self, node: NodeId, handle: u64, how: Open) -> Handle {
        let opened: Box<dyn OpenFile> = Box::new(Opened {
            door: self.clone(),
            node,
            handle,
            how,
        });
        Handle::from(opened)
    }

    fn next_handle(&self) -> u64 {
        let mut machine = self.memory.lock();
        machine.next_handle += 1;
        machine.next_handle
    }
}

impl Fs for Door {
    fn open(&self, at: At<'_>, how: Open) -> io::Result<Handle> {
        let handle = self.next_handle();
        let need = match how {
            Open::Create | Open::Update => Need::Room,
            _ => Need::Nothing,
        };
        let node = self.call(need, &mut |tree, _| {
            if let (At::Path(path), Open::Folder | Open::Read) = (at, how)
                && path == Path::new("/")
            {
                tree.node_mut(TOP)?.opens.open(handle, self.process, how)?;
                return Ok(TOP);
            }
            let name = self.name(tree, at)?;
            let node = match (tree.find(&name), how) {
                (Ok(_), Open::Create) => return Err(errno(libc::EEXIST)),
                (Ok(node), _) => node,
                (Err(error), Open::Create | Open::Update)
                    if error.kind() == io::ErrorKind::NotFound =>
                {
                    tree.make(name, Content::File(Bytes::default()), 0o640)?
                }
                (Err(error), _) => return Err(error),
            };
            let found = tree.node_mut(node)?;
            match (&found.content, how) {
                (Content::Folder(_), Open::Read | Open::Folder) => {}
                (_, Open::Folder) => return Err(errno(libc::ENOTDIR)),
                (Content::Folder(_), _) => return Err(errno(libc::EISDIR)),
                (Content::Link(_), _) => return Err(errno(libc::ELOOP)),
                (Content::Pipe, Open::Write) => return Err(errno(libc::ENXIO)),
                _ => {}
            }
            found.opens.open(handle, self.process, how)?;
            Ok(node)
        })?;
        Ok(self.opened(node, handle, how))
    }

    fn stat(&self, at: At<'_>) -> io::Result<Stat> {
        self.call(Need::Nothing, &mut |tree, _| {
            let node = match at {
                At::Path(path) if path == Path::new("/") => TOP,
                at => tree.find(&self.name(tree, at)?)?,
            };
            tree.stat(node)
        })
    }

    fn stat_followed(&self, path: &Path) -> io::Result<Stat> {
        self.call(Need::Nothing, &mut |tree, _| tree.stat(tree.follow(path)?))
    }

    fn rename(&self, from: At<'_>, to: At<'_>, how: Rename) -> io::Result<()> {
        self.call(Need::Nothing, &mut |tree, _| {
            let (from, to) = (self.name(tree, from)?, self.name(tree, to)?);
            tree.rename(from, to, how)
        })
    }

    fn link(&self, from: At<'_>, to: At<'_>) -> io::Result<()> {
        self.call(Need::Room, &mut |tree, _| {
            let file = tree.find(&self.name(tree, from)?)?;
            tree.link(file, self.name(tree, to)?)
        })
    }

    fn remove(&self, at: At<'_>) -> io::Result<()> {
        self.call(Need::Nothing, &mut |tree, _| {
            let name = self.name(tree, at)?;
            tree.remove(name, false)
        })
    }

    fn make_folder(&self, at: At<'_>, mode: u32) -> io::Result<()> {
        self.call(Need::Room, &mut |tree, _| {
            let name = self.name(tree, at)?;
            let empty = Content::Folder(BTreeMap::new());
            tree.make(name, empty, mode).map(drop)
        })
    }

    fn remove_folder(&self, at: At<'_>) -> io::Result<()> {
        self.call(Need::Nothing, &mut |tree, _| {
            let name = self.name(tree, at)?;
            tree.remove(name, true)
        })
    }

    fn list(&self, folder: &Path) -> io::Result<Entries> {
        let node = self.call(Need::Nothing, &mut |tree, _| {
            let node = tree.follow(folder)?;
            tree.folder(node).map(|_| node)
        })?;
        Ok(Box::new(Listing {
            door: self.clone(),
            node,
            page: Vec::new(),
            last: None,
            is_over: false,
        }))
    }
}

/// A folder that is being listed, some names at a time.
struct Listing {
    door: Door,
    node: NodeId,
    /// What was read and not yet given out, the next one last.
    page: Vec<Entry>,
    last: Option<OsString>,
    is_over: bool,
}

impl Listing {
    fn read(&mut self) -> io::Result<()> {
        let (node, last) = (self.node, self.last.clone());
        self.page = self.door.call(Need::Nothing, &mut |tree, _| {
            let Ok(names) = tree.folder(node) else {
                // It was removed: there is nothing left in it.
                return Ok(Vec::new());
            };
            let page = names_after(names, last.as_deref()).take(PAGE);
            page.map(|(name, id)| {
                let kind: Kind = tree.stat(*id)?.kind;
                Ok(Entry {
                    name: name.clone(),
                    kind: Some(kind),
                })
            })
            .collect()
        })?;
        self.is_over = self.page.len() < PAGE;
        self.page.reverse();
        Ok(())
    }
}

impl Iterator for Listing {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.is_empty()
            && !self.is_over
            && let Err(error) = self.read()
        {
            self.is_over = true;
            return Some(Err(error));
        }
        let entry = self.page.pop()?;
        self.last = Some(entry.name.clone());
        Some(Ok(entry))
    }
}

/// A file or folder that a process has open.
#[derive(Debug)]
struct Opened {
    door: Door,
    node: NodeId,
    handle: u64,
    how: Open,
}

impl Opened {
    fn may_write(&self) -> io::Result<()> {
        match self.how {
            Open::Write | Open::Create | Open::Update => Ok(()),
            Open::Read | Open::Folder => Err(errno(libc::EBADF)),
        }
    }
}

impl OpenFile for Opened {
    fn stat(&self) -> io::Result<Stat> {
        self.door
            .call(Need::Nothing, &mut |tree, _| tree.stat(self.node))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        if matches!(self.how, Open::Write | Open::Create) {
            return Err(errno(libc::EBADF));
        }
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        self.door.call(Need::Nothing, &mut |tree, _| {
            Ok(tree.bytes(self.node)?.read_at(bytes, offset))
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.may_write()?;
        let offset = usize::try_from(offset).map_err(|_| errno(libc::EFBIG))?;
        let grows = self.stat_quietly()? < offset + bytes.len();
        let need = if grows { Need::Room } else { Need::Nothing };
        self.door.call(need, &mut |tree, faulty| {
            let count = faulty.written(bytes.len());
            tree.write(self.node)?.write_at(&bytes[..count], offset);
            Ok(count)
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.may_write().map_err(|_| errno(libc::EINVAL))?;
        let len = usize::try_from(len).map_err(|_| errno(libc::EFBIG))?;
        self.door
            .call(Need::Nothing, &mut |tree, _| tree.set_len(self.node, len))
    }

    fn sync(&self, what: Synced) -> io::Result<()> {
        let mut works = false;
        let synced = self.door.call(Need::Nothing, &mut |tree, _| {
            works = true;
            match what {
                Synced::Bytes => tree.sync_bytes(self.node, true),
                Synced::Names => tree.sync_names(self.node),
            }
            Ok(())
        });
        if !works && what == Synced::Bytes {
            let mut machine = self.door.memory.lock();
            if self.door.process > machine.dead {
                machine.tree.sync_bytes(self.node, false);
            }
        }
        synced
    }

    fn start_writeback(&self) {
        // Whether it did anything is what a power cut decides in any case.
    }

    fn lease(&self, lease: Option<Lease>) -> io::Result<()> {
        self.door.call(Need::Nothing, &mut |tree, _| {
            let node = tree.node_mut(self.node)?;
            match node.content {
                Content::File(_) => node.opens.lease(self.handle, lease),
                _ => Err(errno(libc::EINVAL)),
            }
        })
    }

    fn try_lock(&self, lock: Lock) -> io::Result<()> {
        self.door.call(Need::Nothing, &mut |tree, _| {
            tree.node_mut(self.node)?.opens.lock(self.handle, lock)
        })
    }

    fn give_to(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        self.door.call(Need::Nothing, &mut |tree, _| {
            let node = tree.node_mut(self.node)?;
            node.uid = uid.unwrap_or(node.uid);
            node.gid = gid.unwrap_or(node.gid);
            Ok(())
        })
    }

    fn has_attributes(&self) -> io::Result<bool> {
        self.door.call(Need::Nothing, &mut |_, _| Ok(false))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Opened {
    /// The length, without a call of its own.
    fn stat_quietly(&self) -> io::Result<usize> {
        Ok(self.door.memory.lock().tree.bytes(self.node)?.len())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut machine = self.door.memory.lock();
        if let Ok(node) = machine.tree.node_mut(self.node) {
            node.opens.close(self.handle);
        }
        machine.tree.let_go(self.node);
    }
}

/// A whole tree, for a checker: every path with its kind, its bytes if it is a file, and its inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub path: PathBuf,
    pub kind: Kind,
    pub inode: u64,
    pub bytes: Vec<u8>,
}

impl Memory {
    /// All that stands below a folder, by path.
    pub fn shown(&self, top: &Path) -> io::Result<Vec<Shown>> {
        let machine = self.lock();
        let mut shown = Vec::new();
        let mut todo = vec![(top.to_owned(), machine.tree.follow(top)?)];
        while let Some((path, id)) = todo.pop() {
            let stat = machine.tree.stat(id)?;
            if let Ok(names) = machine.tree.folder(id) {
                todo.extend(names.iter().map(|(name, id)| (path.join(name), *id)));
            }
            let bytes = machine.tree.bytes(id).map(|bytes| bytes.all().to_vec());
            shown.push(Shown {
                path,
                kind: stat.kind,
                inode: stat.inode,
                bytes: bytes.unwrap_or_default(),
            });
        }
        shown.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(shown)
    }
}
