//! A file or folder that is open.
//!
//! Nearly all are files of the system, so that is what a handle holds without detour; only a simulator's are
//! behind a trait.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, fchown};

use super::{Kind, Stat};

/// What a lease asks for: that nobody writes, or that nobody else has the file open at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    Read,
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    Shared,
    Exclusive,
}

/// What a sync makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synced {
    /// The bytes and the length of a file.
    Bytes,
    /// The names in a folder.
    Names,
}

/// A simulator's open file. Each method is one call, as those of [`Handle`] are.
pub trait OpenFile: std::fmt::Debug + Send + Sync {
    fn stat(&self) -> io::Result<Stat>;
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    fn sync(&self, what: Synced) -> io::Result<()>;
    fn start_writeback(&self);
    fn lease(&self, lease: Option<Lease>) -> io::Result<()>;
    fn try_lock(&self, lock: Lock) -> io::Result<()>;
    fn give_to(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()>;
    fn has_attributes(&self) -> io::Result<bool>;
    /// For the simulator that made it, to know its own files again.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// An open file or folder. It closes when it is dropped.
#[derive(Debug)]
pub struct Handle(Inner);

#[derive(Debug)]
enum Inner {
    System(File),
    Simulated(Box<dyn OpenFile>),
}

impl From<File> for Handle {
    fn from(file: File) -> Self {
        Self(Inner::System(file))
    }
}

impl From<Box<dyn OpenFile>> for Handle {
    fn from(file: Box<dyn OpenFile>) -> Self {
        Self(Inner::Simulated(file))
    }
}

impl Handle {
    /// The descriptor, for what only the system does: to start a process with it, to watch it.
    pub fn system(&self) -> Option<&File> {
        match &self.0 {
            Inner::System(file) => Some(file),
            Inner::Simulated(_) => None,
        }
    }

    /// The simulator's own file.
    pub fn simulated(&self) -> Option<&dyn OpenFile> {
        match &self.0 {
            Inner::System(_) => None,
            Inner::Simulated(file) => Some(file.as_ref()),
        }
    }

    pub fn stat(&self) -> io::Result<Stat> {
        match &self.0 {
            Inner::System(file) => Ok(Stat::of(&rustix::fs::fstat(file)?)),
            Inner::Simulated(file) => file.stat(),
        }
    }

    /// Reads from `offset`; fewer bytes than asked for only at the end, and after an interruption.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.0 {
            Inner::System(file) => file.read_at(bytes, offset),
            Inner::Simulated(file) => file.read_at(bytes, offset),
        }
    }

    /// All bytes from the beginning, but at most `most`.
    pub fn read(&self, most: u64) -> io::Result<Vec<u8>> {
        let size = self.stat()?.size.min(most);
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0).saturating_add(1)];
        let mut filled = 0;
        loop {
            if filled == bytes.len() {
                bytes.resize(bytes.len() * 2, 0);
            }
            match self.read_at(&mut bytes[filled..], filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if filled as u64 >= most {
                filled = usize::try_from(most).unwrap_or(filled).min(filled);
                break;
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Writes all of `bytes`. After an error some of them may be written.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write_at(&bytes[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match &self.0 {
            Inner::System(file) => file.write_at(bytes, offset),
            Inner::Simulated(file) => file.write_at(bytes, offset),
        }
    }

    pub fn set_len(&self, len: u64) -> io::Result<()> {
        match &self.0 {
            Inner::System(file) => file.set_len(len),
            Inner::Simulated(file) => file.set_len(len),
        }
    }

    /// Returns once a file's bytes and length would survive a power cut.
    ///
    /// After an error the pages may be marked clean all the same: write the content to a new file instead of
    /// trying this again.
    pub fn sync_bytes(&self) -> io::Result<()> {
        match &self.0 {
            Inner::System(file) => file.sync_data(),
            Inner::Simulated(file) => file.sync(Synced::Bytes),
        }
    }

    /// Returns once the names in a folder would survive a power cut. ([`sync_bytes`](Self::sync_bytes) would
    /// not do: ext4 takes a new name for something that only a full sync has to write.)
    pub fn sync_names(&self) -> io::Result<()> {
        match &self.0 {
            Inner::System(folder) => folder.sync_all(),
            Inner::Simulated(folder) => folder.sync(Synced::Names),
        }
    }

    /// Starts writing a file's pages out without waiting, so that a batch of syncs shares one commit of the
    /// file system's journal. It promises nothing.
    pub fn start_writeback(&self) {
        match &self.0 {
            Inner::System(file) => start_writeback(file),
            Inner::Simulated(file) => file.start_writeback(),
        }
    }

    /// Takes a lease, or gives it back with `None`. `WouldBlock` says that somebody is in the way, any other
    /// error that the system would not tell. It goes with the handle, too.
    pub fn lease(&self, lease: Option<Lease>) -> io::Result<()> {
        match &self.0 {
            Inner::System(file) => set_lease(file, lease),
            Inner::Simulated(file) => file.lease(lease),
        }
    }

    /// Locks a file or folder for as long as it is open; `WouldBlock` if somebody else has it.
    pub fn try_lock(&self, lock: Lock) -> io::Result<()> {
        let tried = match (&self.0, lock) {
            (Inner::System(file), Lock::Shared) => file.try_lock_shared(),
            (Inner::System(file), Lock::Exclusive) => file.try_lock(),
            (Inner::Simulated(file), lock) => return file.try_lock(lock),
        };
        tried.map_err(io::Error::from)
    }

    /// Changes owner, group or both.
    pub fn give_to(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        match &self.0 {
            Inner::System(file) => fchown(file, uid, gid),
            Inner::Simulated(file) => file.give_to(uid, gid),
        }
    }

    /// Whether it has extended attributes, such as an access list.
    pub fn has_attributes(&self) -> io::Result<bool> {
        match &self.0 {
            Inner::System(file) => {
                let mut none = [0_u8; 0];
                match rustix::fs::flistxattr(file, &mut none) {
                    Ok(0) => Ok(false),
                    Ok(_) | Err(rustix::io::Errno::RANGE) => Ok(true),
                    Err(errno) => Err(errno.into()),
                }
            }
            Inner::Simulated(file) => file.has_attributes(),
        }
    }
}

impl Stat {
    pub(super) fn of(found: &rustix::fs::Stat) -> Self {
        let kind = match rustix::fs::FileType::from_raw_mode(found.st_mode) {
            rustix::fs::FileType::RegularFile => Kind::File,
            rustix::fs::FileType::Directory => Kind::Folder,
            rustix::fs::FileType::Symlink => Kind::Link,
            rustix::fs::FileType::Fifo => Kind::Pipe,
            rustix::fs::FileType::Socket => Kind::Socket,
            _ => Kind::Device,
        };
        let ns = |seconds: i64, ns: i128| i128::from(seconds) * 1_000_000_000 + ns;
        Self {
            kind,
            device: found.st_dev,
            inode: found.st_ino,
            size: u64::try_from(found.st_size).unwrap_or(0),
            #[cfg_attr(
                target_os = "linux",
                expect(clippy::useless_conversion, reason = "a smaller number elsewhere")
            )]
            links: u64::from(found.st_nlink),
            uid: found.st_uid,
            gid: found.st_gid,
            mode: found.st_mode,
            modified_ns: ns(found.st_mtime, i128::from(found.st_mtime_nsec)),
            changed_ns: ns(found.st_ctime, i128::from(found.st_ctime_nsec)),
        }
    }
}

/// Must be called once before leases are used: the default action of the signal that announces a writer ends
/// the process.
pub fn ignore_lease_signals() {
    // SAFETY: SIG_IGN is a valid disposition; no handler runs.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
}

/// [`Handle::start_writeback`] for a file that no handle holds.
#[cfg(target_os = "linux")]
pub fn start_writeback(file: &File) {
    // SAFETY: a plain system call on a descriptor that `file` keeps open.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

#[cfg(not(target_os = "linux"))]
pub fn start_writeback(_file: &File) {}

/// [`Handle::lease`] for a file that no handle holds.
#[cfg(target_os = "linux")]
pub fn set_lease(file: &File, lease: Option<Lease>) -> io::Result<()> {
    const F_SETLEASE: libc::c_int = 1024;
    let kind = match lease {
        Some(Lease::Read) => libc::F_RDLCK,
        Some(Lease::Write) => libc::F_WRLCK,
        None => libc::F_UNLCK,
    };
    // SAFETY: fcntl with integer arguments on a descriptor that `file` keeps open.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), F_SETLEASE, kind) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
pub fn set_lease(_file: &File, _lease: Option<Lease>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
