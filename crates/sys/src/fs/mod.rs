//! The door to files.
//!
//! The product opens it to the disk ([`Disk`]). A simulator opens it to a file system in memory that can be
//! killed, cut off from power, filled up or broken at any call. So a caller sees nothing of the disk but what
//! this trait shows, and one call here is one call of the system.
//!
//! Nothing here waits for a sync that nobody asked for, and nothing follows a link in the last part of a path
//! unless its name says so.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the door: all that is banned elsewhere goes through here"
)]

mod disk;
mod handle;

use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::io;
use std::path::Path;

pub use disk::Disk;
pub use handle::{
    Handle, Lease, Lock, OpenFile, Synced, ignore_lease_signals, set_lease, start_writeback,
};

/// Which file is meant.
#[derive(Debug, Clone, Copy)]
pub enum At<'a> {
    Path(&'a Path),
    /// A name in a folder that is held open, wherever the folder's own path leads by now.
    In(&'a Handle, &'a OsStr),
}

impl<'a, P: AsRef<Path> + ?Sized> From<&'a P> for At<'a> {
    fn from(path: &'a P) -> Self {
        Self::Path(path.as_ref())
    }
}

/// What a file is opened for. None of these waits for the other end of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    Read,
    /// An existing file, to be written.
    Write,
    /// A new file, to be written. An existing one is an error.
    Create,
    /// Reading and writing; a missing file is made.
    Update,
    /// A folder. A link is an error, wherever it leads.
    Folder,
}

/// What a rename does with a file that has the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rename {
    Replace,
    /// `AlreadyExists` where the new name is taken.
    NoReplace,
    /// Each file gets the other's name. `NotFound` where either is missing.
    Exchange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    File,
    Folder,
    Link,
    Pipe,
    Socket,
    Device,
}

/// What the system says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub kind: Kind,
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub links: u64,
    pub uid: u32,
    pub gid: u32,
    /// Type and permissions, as the system writes them.
    pub mode: u32,
    pub modified_ns: i128,
    pub changed_ns: i128,
}

/// One name of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: OsString,
    /// Unknown where the file system keeps no kinds in its folders.
    pub kind: Option<Kind>,
}

/// The names of a folder, read by pages. What moves meanwhile may be missed or seen twice.
pub type Entries = Box<dyn Iterator<Item = io::Result<Entry>> + Send>;

/// A file system.
pub trait Fs: Debug + Send + Sync {
    fn open(&self, at: At<'_>, how: Open) -> io::Result<Handle>;
    /// What stands under this name, a link itself rather than its target.
    fn stat(&self, at: At<'_>) -> io::Result<Stat>;
    /// The same of what a link leads to.
    fn stat_followed(&self, path: &Path) -> io::Result<Stat>;
    fn rename(&self, from: At<'_>, to: At<'_>, how: Rename) -> io::Result<()>;
    /// Gives a file a second name, which must be free.
    fn link(&self, from: At<'_>, to: At<'_>) -> io::Result<()>;
    /// Removes a name that is not a folder's.
    fn remove(&self, at: At<'_>) -> io::Result<()>;
    fn make_folder(&self, at: At<'_>, mode: u32) -> io::Result<()>;
    /// Removes a folder, which must be empty.
    fn remove_folder(&self, at: At<'_>) -> io::Result<()>;
    fn list(&self, folder: &Path) -> io::Result<Entries>;
}
