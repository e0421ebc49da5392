//! Files and folders below a root that its owner can't write.
//!
//! A command that another user ran may have left them there, or a copy that kept the owners. A daemon
//! that runs as the root's owner is stopped by them. What others leave on purpose is not looked at:
//! submissions, refused bytes, and what attempts of other users write.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::protocol::shown;
use crate::spool::layout::Layout;

/// One of them, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwritable {
    pub path: PathBuf,
    /// Whose it is.
    pub uid: u32,
    pub do_this: String,
}

/// The first thing on the way to a path that belongs to somebody else and that the owner of the root
/// may not use.
pub fn in_the_way(layout: &Layout, path: &Path) -> Option<Unwritable> {
    let root = layout.root();
    let owner = fs::metadata(root).ok()?;
    let mut way: Vec<&Path> = path.ancestors().take_while(|it| *it != root).collect();
    way.retain(|it| it.starts_with(root));
    way.into_iter().rev().find_map(|path| {
        let found = fs::symlink_metadata(path).ok()?;
        (found.uid() != owner.uid() && !can_use(&found, &owner))
            .then(|| Unwritable::of(path.to_owned(), &found, &owner))
    })
}

/// All of them, the folders first.
pub fn unwritable(layout: &Layout) -> Vec<Unwritable> {
    let Ok(owner) = fs::metadata(layout.root()) else {
        return Vec::new();
    };
    if owner.uid() == 0 {
        return Vec::new();
    }
    let state = layout.context().join("state");
    let beside = [
        layout.audit(),
        layout.audit().join("sessions"),
        layout.refused_control(),
        layout.context(),
        state.clone(),
        layout.archive(),
        layout.artifacts(),
    ];
    let folders = layout.moved_between().chain(beside);
    let mut paths: Vec<PathBuf> = [layout.handoffs(), layout.own()].map(Path::to_owned).into();
    paths.extend(folders);
    let written = [
        layout.audit(),
        layout.context(),
        state,
        layout.archive(),
        layout.own().to_owned(),
        layout.tmp().to_owned(),
        layout.run().to_path_buf(),
        layout.logs().to_path_buf(),
        layout.originals(),
        layout.spares(),
        layout.leftovers(),
    ];
    paths.extend(written.iter().flat_map(|folder| files_in(folder)));
    paths.push(layout.artifacts().join("registry.jsonl"));
    let found = |path: PathBuf| {
        let metadata = fs::symlink_metadata(&path).ok()?;
        let is_meant = metadata.is_file() || metadata.is_dir();
        (is_meant && metadata.uid() != owner.uid() && !can_write(&metadata, &owner))
            .then(|| Unwritable::of(path, &metadata, &owner))
    };
    paths.into_iter().filter_map(found).collect()
}

impl Unwritable {
    fn of(path: PathBuf, found: &Metadata, owner: &Metadata) -> Self {
        let (uid, gid) = (owner.uid(), owner.gid());
        Self {
            uid: found.uid(),
            do_this: format!("chown {uid}:{gid} {}", shown::path(&path)),
            path,
        }
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    files.map(|entry| entry.path()).collect()
}

fn can_write(found: &Metadata, owner: &Metadata) -> bool {
    has(found, owner, if found.is_dir() { 0o3 } else { 0o2 })
}

/// Whether the owner may read it, or go into it.
fn can_use(found: &Metadata, owner: &Metadata) -> bool {
    has(found, owner, if found.is_dir() { 0o5 } else { 0o4 })
}

/// What a user who does not own it may do, as its group or as anybody.
fn has(found: &Metadata, owner: &Metadata, needed: u32) -> bool {
    let mode = found.permissions().mode();
    let bits = if found.gid() == owner.gid() {
        mode >> 3
    } else {
        mode
    };
    bits & needed == needed
}
