//! Files and folders as memory has them, and what each call does to them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use handoffd_sys::fs::{Kind, Rename, Stat};

use super::bytes::Bytes;
use super::journal::{Journal, Name, NodeId, Order, Survivors};
use super::opens::Opens;
use crate::dice::Dice;

/// Links that lead to links are followed this often.
const MOST_LINKS: usize = 8;
/// Times of files are this coarse.
const GRAIN_NS: i128 = 4_000_000;
const DEVICE: u64 = 1;
pub(super) const TOP: NodeId = 0;

#[derive(Debug)]
pub(super) enum Content {
    File(Bytes),
    Folder(BTreeMap<OsString, NodeId>),
    Link(PathBuf),
    Pipe,
}

#[derive(Debug)]
pub(super) struct Node {
    pub content: Content,
    /// The inode number.
    number: u64,
    links: u64,
    pub uid: u32,
    pub gid: u32,
    permissions: u32,
    modified_ns: i128,
    changed_ns: i128,
    pub opens: Opens,
}

#[derive(Debug)]
pub(super) struct Tree {
    nodes: BTreeMap<NodeId, Node>,
    next_node: NodeId,
    /// Inode numbers of files that are gone, the last one last.
    free_numbers: Vec<u64>,
    next_number: u64,
    journal: Journal,
    pub now_ns: i128,
}

/// An error as the system says it.
pub(super) fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl Tree {
    pub fn new() -> Self {
        let mut tree = Self {
            nodes: BTreeMap::new(),
            next_node: TOP,
            free_numbers: Vec::new(),
            next_number: 1,
            journal: Journal::default(),
            now_ns: 1_700_000_000_000_000_000,
        };
        tree.add(Content::Folder(BTreeMap::new()), 0o750);
        tree
    }

    fn add(&mut self, content: Content, permissions: u32) -> NodeId {
        let id = self.next_node;
        self.next_node += 1;
        let number = self.free_numbers.pop().unwrap_or_else(|| {
            self.next_number += 1;
            self.next_number
        });
        let now = self.now();
        let node = Node {
            content,
            number,
            links: 1,
            uid: 0,
            gid: 0,
            permissions,
            modified_ns: now,
            changed_ns: now,
            opens: Opens::default(),
        };
        self.nodes.insert(id, node);
        id
    }

    fn now(&self) -> i128 {
        self.now_ns - self.now_ns % GRAIN_NS
    }

    pub fn node(&self, id: NodeId) -> io::Result<&Node> {
        self.nodes.get(&id).ok_or_else(|| errno(libc::EIO))
    }

    pub fn node_mut(&mut self, id: NodeId) -> io::Result<&mut Node> {
        self.nodes.get_mut(&id).ok_or_else(|| errno(libc::EIO))
    }

    pub fn folder(&self, id: NodeId) -> io::Result<&BTreeMap<OsString, NodeId>> {
        match &self.node(id)?.content {
            Content::Folder(names) => Ok(names),
            _ => Err(errno(libc::ENOTDIR)),
        }
    }

    /// The file that a name stands for.
    pub fn find(&self, name: &Name) -> io::Result<NodeId> {
        let names = self.folder(name.0)?;
        names
            .get(&name.1)
            .copied()
            .ok_or_else(|| errno(libc::ENOENT))
    }

    /// The folder and the last part of a path.
    pub fn resolve(&self, path: &Path) -> io::Result<Name> {
        self.resolve_through(path, MOST_LINKS)
    }

    fn resolve_through(&self, path: &Path, links: usize) -> io::Result<Name> {
        let mut parts = path.components().peekable();
        let mut folder = TOP;
        let mut walked = PathBuf::from("/");
        while let Some(part) = parts.next() {
            let part = match part {
                Component::Normal(part) => part,
                Component::RootDir | Component::CurDir => continue,
                Component::ParentDir | Component::Prefix(_) => return Err(errno(libc::EINVAL)),
            };
            if parts.peek().is_none() {
                self.folder(folder)?;
                return Ok((folder, part.to_owned()));
            }
            let next = self.find(&(folder, part.to_owned()))?;
            folder = match &self.node(next)?.content {
                Content::Link(target) if links > 0 => {
                    self.followed(&walked.join(target), links - 1)?
                }
                Content::Link(_) => return Err(errno(libc::ELOOP)),
                _ => next,
            };
            walked.push(part);
        }
        Err(errno(libc::EISDIR))
    }

    /// What a path leads to, through links.
    pub fn follow(&self, path: &Path) -> io::Result<NodeId> {
        self.followed(path, MOST_LINKS)
    }

    fn followed(&self, path: &Path, links: usize) -> io::Result<NodeId> {
        if path == Path::new("/") {
            return Ok(TOP);
        }
        let id = self.find(&self.resolve_through(path, links)?)?;
        match &self.node(id)?.content {
            Content::Link(_) if links == 0 => Err(errno(libc::ELOOP)),
            Content::Link(target) => {
                let beside = path.parent().unwrap_or(path).join(target);
                self.followed(&beside, links - 1)
            }
            _ => Ok(id),
        }
    }

    pub fn stat(&self, id: NodeId) -> io::Result<Stat> {
        let node = self.node(id)?;
        let (kind, format, size) = match &node.content {
            Content::File(bytes) => (Kind::File, libc::S_IFREG, bytes.len() as u64),
            Content::Folder(_) => (Kind::Folder, libc::S_IFDIR, 4096),
            Content::Link(to) => (Kind::Link, libc::S_IFLNK, to.as_os_str().len() as u64),
            Content::Pipe => (Kind::Pipe, libc::S_IFIFO, 0),
        };
        Ok(Stat {
            kind,
            device: DEVICE,
            inode: node.number,
            size,
            links: node.links,
            uid: node.uid,
            gid: node.gid,
            mode: format | node.permissions,
            modified_ns: node.modified_ns,
            changed_ns: node.changed_ns,
        })
    }

    /// Makes a file under a name that is free.
    pub fn make(&mut self, name: Name, content: Content, permissions: u32) -> io::Result<NodeId> {
        if self.folder(name.0)?.contains_key(&name.1) {
            return Err(errno(libc::EEXIST));
        }
        let id = self.add(content, permissions);
        self.set_names(vec![(name, Some(id))])?;
        Ok(id)
    }

    pub fn link(&mut self, id: NodeId, to: Name) -> io::Result<()> {
        if self.folder(to.0)?.contains_key(&to.1) {
            return Err(errno(libc::EEXIST));
        }
        if matches!(self.node(id)?.content, Content::Folder(_)) {
            return Err(errno(libc::EPERM));
        }
        self.node_mut(id)?.links += 1;
        self.set_names(vec![(to, Some(id))])
    }

    pub fn remove(&mut self, name: Name, folder: bool) -> io::Result<()> {
        let id = self.find(&name)?;
        match (&self.node(id)?.content, folder) {
            (Content::Folder(_), false) => return Err(errno(libc::EISDIR)),
            (Content::Folder(names), true) if !names.is_empty() => {
                return Err(errno(libc::ENOTEMPTY));
            }
            (Content::Folder(_), true) | (_, false) => {}
            (_, true) => return Err(errno(libc::ENOTDIR)),
        }
        self.set_names(vec![(name, None)])?;
        self.lose_name(id)
    }

    pub fn rename(&mut self, from: Name, to: Name, how: Rename) -> io::Result<()> {
        let moved = self.find(&from)?;
        let there = self.folder(to.0)?.get(&to.1).copied();
        match (how, there) {
            (Rename::NoReplace, Some(_)) => return Err(errno(libc::EEXIST)),
            (Rename::Exchange, None) => return Err(errno(libc::ENOENT)),
            _ => {}
        }
        if self.is_below(to.0, moved) {
            return Err(errno(libc::EINVAL));
        }
        let Some(there) = there else {
            return self.set_names(vec![(from, None), (to, Some(moved))]);
        };
        if self.is_below(from.0, there) {
            let code = match how {
                Rename::Exchange => libc::EINVAL,
                _ => libc::ENOTEMPTY,
            };
            return Err(errno(code));
        }
        if how == Rename::Exchange {
            return self.set_names(vec![(from, Some(there)), (to, Some(moved))]);
        }
        if there == moved {
            // Two names of one file: the system leaves both.
            return Ok(());
        }
        match (&self.node(moved)?.content, &self.node(there)?.content) {
            (Content::Folder(_), Content::Folder(names)) if !names.is_empty() => {
                return Err(errno(libc::ENOTEMPTY));
            }
            (Content::Folder(_), Content::Folder(_)) => {}
            (Content::Folder(_), _) => return Err(errno(libc::ENOTDIR)),
            (_, Content::Folder(_)) => return Err(errno(libc::EISDIR)),
            _ => {}
        }
        self.set_names(vec![(from, None), (to, Some(moved))])?;
        self.lose_name(there)
    }

    /// Whether `id` is `above`, or lies somewhere in it.
    fn is_below(&self, id: NodeId, above: NodeId) -> bool {
        let Ok(names) = self.folder(above) else {
            return false;
        };
        id == above || names.values().any(|inner| self.is_below(id, *inner))
    }

    fn set_names(&mut self, names: Vec<(Name, Option<NodeId>)>) -> io::Result<()> {
        let now = self.now();
        for ((folder, name), id) in &names {
            let folder = self.node_mut(*folder)?;
            (folder.modified_ns, folder.changed_ns) = (now, now);
            let Content::Folder(inner) = &mut folder.content else {
                return Err(errno(libc::ENOTDIR));
            };
            match id {
                Some(id) => inner.insert(name.clone(), *id),
                None => inner.remove(name),
            };
            if let Some(id) = id {
                self.node_mut(*id)?.changed_ns = now;
            }
        }
        self.journal.note(names);
        Ok(())
    }

    fn lose_name(&mut self, id: NodeId) -> io::Result<()> {
        let now = self.now();
        let node = self.node_mut(id)?;
        node.links -= 1;
        node.changed_ns = now;
        self.let_go(id);
        Ok(())
    }

    /// Forgets a file that has no name and that nobody has open. Its inode number comes back at once.
    pub fn let_go(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get(&id)
            && node.links == 0
            && node.opens.is_empty()
        {
            self.free_numbers.push(node.number);
            self.nodes.remove(&id);
        }
    }

    pub fn bytes(&self, id: NodeId) -> io::Result<&Bytes> {
        match &self.node(id)?.content {
            Content::File(bytes) => Ok(bytes),
            Content::Folder(_) => Err(errno(libc::EISDIR)),
            _ => Err(errno(libc::EINVAL)),
        }
    }

    /// The bytes of a file that is about to be written.
    pub fn write(&mut self, id: NodeId) -> io::Result<&mut Bytes> {
        let now = self.now();
        let node = self.node_mut(id)?;
        (node.modified_ns, node.changed_ns) = (now, now);
        match &mut node.content {
            Content::File(bytes) => Ok(bytes),
            _ => Err(errno(libc::EINVAL)),
        }
    }

    pub fn set_len(&mut self, id: NodeId, len: usize) -> io::Result<()> {
        let change = self.journal.note_length();
        self.write(id)?.set_len(len, change);
        Ok(())
    }

    pub fn sync_names(&mut self, folder: NodeId) {
        self.journal.sync(folder);
    }

    pub fn sync_bytes(&mut self, id: NodeId, works: bool) {
        if let Some(Node {
            content: Content::File(bytes),
            ..
        }) = self.nodes.get_mut(&id)
        {
            if works {
                bytes.sync();
            } else {
                bytes.fail_to_sync();
            }
        }
    }

    pub fn nodes_mut(&mut self) -> impl Iterator<Item = (&NodeId, &mut Node)> {
        self.nodes.iter_mut()
    }

    /// What is left after a power cut is all there is: memory is what the disk has.
    pub fn cut_power(&mut self, dice: &mut Dice, order: Order) {
        let (names, survivors) = self.journal.cut_power(dice, order);
        let former = std::mem::take(&mut self.nodes);
        let mut links: BTreeMap<NodeId, u64> = BTreeMap::from([(TOP, 1)]);
        let mut folders: BTreeMap<NodeId, BTreeMap<OsString, NodeId>> = BTreeMap::new();
        for ((folder, name), id) in names {
            *links.entry(id).or_default() += 1;
            folders.entry(folder).or_default().insert(name, id);
        }
        let mut taken = std::collections::BTreeSet::new();
        for (id, mut node) in former {
            let Some(links) = links.get(&id) else {
                continue;
            };
            node.links = *links;
            node.opens = Opens::default();
            node.content = left_of(node.content, folders.remove(&id), dice, &survivors);
            if !taken.insert(node.number) {
                // It was given to another file while this one was thought to be gone.
                self.next_number += 1;
                node.number = self.next_number;
            }
            self.nodes.insert(id, node);
        }
        self.free_numbers = (2..=self.next_number)
            .filter(|it| !taken.contains(it))
            .collect();
        self.free_numbers.reverse();
    }
}

fn left_of(
    content: Content,
    names: Option<BTreeMap<OsString, NodeId>>,
    dice: &mut Dice,
    survivors: &Survivors,
) -> Content {
    match content {
        Content::File(bytes) => {
            let left = bytes.after_power_cut(dice, |change| survivors.has(change));
            Content::File(Bytes::settled(left))
        }
        Content::Folder(_) => Content::Folder(names.unwrap_or_default()),
        other => other,
    }
}

/// The names of a folder after `after`, in the order in which they are listed.
pub(super) fn names_after<'a>(
    names: &'a BTreeMap<OsString, NodeId>,
    after: Option<&OsStr>,
) -> impl Iterator<Item = (&'a OsString, &'a NodeId)> {
    let from = match after {
        Some(after) => std::ops::Bound::Excluded(after.to_owned()),
        None => std::ops::Bound::Unbounded,
    };
    names.range::<OsString, _>((from, std::ops::Bound::Unbounded))
}
