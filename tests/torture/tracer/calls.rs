//! Which system calls are points of interest, and which file they are about.
//!
//! Only calls about something below the root count: an error in the dynamic linker, or a wake-up
//! that is lost between two threads, is no fault of a disk.

use std::path::Path;

use super::sys;

/// What a call does, as far as faults differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Opens what is there, to read it.
    Open,
    /// Opens in order to write; may make the file.
    OpenToWrite,
    MakeFolder,
    Write,
    Sync,
    /// Renames, exchanges or links.
    Move,
    Remove,
    /// Lengthens, shortens or dates.
    Reshape,
    Lock,
    Read,
    List,
    /// A word to the keeper: after it, an attempt may run.
    Send,
}

/// One call that is about to be made.
#[derive(Debug, Clone)]
pub struct Call {
    pub name: &'static str,
    pub kind: Kind,
    /// What it is about, seen from the root.
    pub about: String,
    /// Where a move leads, if that is below the root.
    pub to: Option<String>,
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.about)
    }
}

/// Nobody's descriptor: the daemon does not work in a folder below the root.
const HERE: u64 = u64::MAX;

enum About {
    /// A name, seen from this descriptor.
    Name(u64, u64),
    Descriptor(u64),
    Anything,
}

/// What this call is, if it is about something below `root`.
pub fn recognise(tid: i32, number: u64, args: &[u64; 6], root: &Path) -> Option<Call> {
    let (name, kind, about) = describe(tid, number, args)?;
    let about = resolve(tid, &about, root)?;
    let to = target(number, args).and_then(|to| resolve(tid, &to, root));
    Some(Call {
        name,
        kind,
        about,
        to,
    })
}

fn resolve(tid: i32, about: &About, root: &Path) -> Option<String> {
    match *about {
        About::Anything => Some(String::new()),
        About::Descriptor(fd) => below(&sys::descriptor(tid, fd)?, root),
        About::Name(dir, name) => {
            let name = sys::text(tid, name)?;
            let path = if name.is_absolute() {
                name
            } else {
                sys::descriptor(tid, dir)?.join(name)
            };
            below(&path, root)
        }
    }
}

/// The second name of a call that has two.
fn target(number: u64, args: &[u64; 6]) -> Option<About> {
    let [_, b, c, d, ..] = *args;
    match number.cast_signed() {
        libc::SYS_rename | libc::SYS_link => Some(About::Name(HERE, b)),
        libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat => Some(About::Name(c, d)),
        _ => None,
    }
}

fn below(path: &Path, root: &Path) -> Option<String> {
    let inner = path.strip_prefix(root).ok()?;
    Some(inner.display().to_string())
}

fn describe(tid: i32, number: u64, args: &[u64; 6]) -> Option<(&'static str, Kind, About)> {
    use About::{Anything, Descriptor, Name};
    let [a, b, c, ..] = *args;
    let opened = |flags: u64| {
        let writes = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
        if flags & u64::from(writes.cast_unsigned()) == 0 {
            Kind::Open
        } else {
            Kind::OpenToWrite
        }
    };
    Some(match number.cast_signed() {
        libc::SYS_openat => ("openat", opened(c), Name(a, b)),
        libc::SYS_open => ("open", opened(b), Name(HERE, a)),
        libc::SYS_openat2 => ("openat2", opened(sys::word(tid, c)?), Name(a, b)),
        libc::SYS_creat => ("creat", Kind::OpenToWrite, Name(HERE, a)),
        libc::SYS_mkdirat => ("mkdirat", Kind::MakeFolder, Name(a, b)),
        libc::SYS_mkdir => ("mkdir", Kind::MakeFolder, Name(HERE, a)),
        libc::SYS_symlinkat => ("symlinkat", Kind::OpenToWrite, Name(b, c)),
        libc::SYS_write => ("write", Kind::Write, Descriptor(a)),
        libc::SYS_pwrite64 => ("pwrite64", Kind::Write, Descriptor(a)),
        libc::SYS_writev => ("writev", Kind::Write, Descriptor(a)),
        libc::SYS_copy_file_range => ("copy_file_range", Kind::Write, Descriptor(c)),
        libc::SYS_fsync => ("fsync", Kind::Sync, Descriptor(a)),
        libc::SYS_fdatasync => ("fdatasync", Kind::Sync, Descriptor(a)),
        libc::SYS_sync_file_range => ("sync_file_range", Kind::Sync, Descriptor(a)),
        libc::SYS_rename => ("rename", Kind::Move, Name(HERE, a)),
        libc::SYS_renameat => ("renameat", Kind::Move, Name(a, b)),
        libc::SYS_renameat2 => ("renameat2", Kind::Move, Name(a, b)),
        libc::SYS_link => ("link", Kind::Move, Name(HERE, a)),
        libc::SYS_linkat => ("linkat", Kind::Move, Name(a, b)),
        libc::SYS_unlink => ("unlink", Kind::Remove, Name(HERE, a)),
        libc::SYS_unlinkat => ("unlinkat", Kind::Remove, Name(a, b)),
        libc::SYS_rmdir => ("rmdir", Kind::Remove, Name(HERE, a)),
        libc::SYS_ftruncate => ("ftruncate", Kind::Reshape, Descriptor(a)),
        libc::SYS_fallocate => ("fallocate", Kind::Reshape, Descriptor(a)),
        libc::SYS_fchmod => ("fchmod", Kind::Reshape, Descriptor(a)),
        libc::SYS_utimensat if b == 0 => ("utimensat", Kind::Reshape, Descriptor(a)),
        libc::SYS_utimensat => ("utimensat", Kind::Reshape, Name(a, b)),
        libc::SYS_flock => ("flock", Kind::Lock, Descriptor(a)),
        libc::SYS_read => ("read", Kind::Read, Descriptor(a)),
        libc::SYS_pread64 => ("pread64", Kind::Read, Descriptor(a)),
        libc::SYS_getdents64 => ("getdents64", Kind::List, Descriptor(a)),
        libc::SYS_sendmsg => ("sendmsg", Kind::Send, Anything),
        libc::SYS_sendto => ("sendto", Kind::Send, Anything),
        _ => return None,
    })
}
