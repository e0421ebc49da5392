//! Disks that a test may fill, kill and cut the power of: block devices made of files, in a mount
//! namespace of the test's own, so that nothing stays mounted when the test is killed.

pub mod logged;

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
/// `struct loop_config`, and where in it the flags stand.
const LOOP_CONFIG_LEN: usize = 304;
const LOOP_FLAGS_AT: usize = 60;
/// The device is free again when its last user is gone.
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// Why disks of our own can't be had on this machine, if so.
pub fn unavailable() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting needs root".to_owned());
    }
    for tool in ["mkfs.ext4", "debugfs"] {
        if let Err(error) = Command::new(tool).arg("-V").output() {
            return Some(format!("{tool}: {error}"));
        }
    }
    for node in ["/dev/fuse", "/dev/loop-control"] {
        if let Err(error) = File::options().read(true).write(true).open(node) {
            return Some(format!("{node}: {error}"));
        }
    }
    // Asked on a thread of its own: a namespace is for life.
    let asked = std::thread::spawn(private_mounts).join();
    match asked {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("no mount namespace: {error}")),
        Err(_) => Some("no mount namespace".to_owned()),
    }
}

/// Gives this thread, and the threads and processes it starts from now on, mounts that nobody else
/// sees, and that end with the last of them.
pub fn private_mounts() -> io::Result<()> {
    // SAFETY: concerns this thread only, and no memory.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    raw_mount(
        None,
        Path::new("/"),
        None,
        libc::MS_REC | libc::MS_PRIVATE,
        "",
    )
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn raw_mount(
    source: Option<&Path>,
    target: &Path,
    kind: Option<&str>,
    flags: libc::c_ulong,
    options: &str,
) -> io::Result<()> {
    let source = source.map(c_path);
    let kind = kind.map(|kind| CString::new(kind).unwrap());
    let (target, options) = (c_path(target), CString::new(options).unwrap());
    let pointer = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
    // SAFETY: all pointers are null or to strings that live until the call returns.
    check(unsafe {
        libc::mount(
            pointer(&source),
            target.as_ptr(),
            pointer(&kind),
            flags,
            options.as_ptr().cast(),
        )
    })
}

/// A mounted file system; unmounted when it goes out of scope, though not before its users let go.
pub struct Mounted {
    at: PathBuf,
}

impl Mounted {
    pub fn device(device: &Path, at: &Path, kind: &str, options: &str) -> io::Result<Self> {
        fs::create_dir_all(at)?;
        raw_mount(Some(device), at, Some(kind), 0, options)?;
        Ok(Self { at: at.to_owned() })
    }

    /// One in memory.
    pub fn memory(at: &Path, options: &str) -> io::Result<Self> {
        Self::device(Path::new("none"), at, "tmpfs", options)
    }

    /// The same files over themselves, read-only: whoever comes by name can't write.
    pub fn read_only_over(at: &Path) -> io::Result<Self> {
        raw_mount(Some(at), at, None, libc::MS_BIND, "")?;
        let mounted = Self { at: at.to_owned() };
        let read_only = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY;
        raw_mount(None, at, None, read_only, "")?;
        Ok(mounted)
    }

    /// A file in the place of another.
    pub fn file_over(file: &Path, at: &Path) -> io::Result<Self> {
        raw_mount(Some(file), at, None, libc::MS_BIND, "")?;
        Ok(Self { at: at.to_owned() })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let at = c_path(&self.at);
        // SAFETY: a string that lives until the call returns.
        let _ = unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Puts a block device on a file. It lasts until neither the returned handle nor a mount uses it.
pub fn block_device(file: &Path) -> io::Result<(File, PathBuf)> {
    let control = File::options()
        .read(true)
        .write(true)
        .open("/dev/loop-control")?;
    let backing = File::options().read(true).write(true).open(file)?;
    let mut config = [0_u8; LOOP_CONFIG_LEN];
    config[..4].copy_from_slice(&backing.as_raw_fd().to_ne_bytes());
    config[4..8].copy_from_slice(&512_u32.to_ne_bytes());
    config[LOOP_FLAGS_AT..LOOP_FLAGS_AT + 4].copy_from_slice(&LO_FLAGS_AUTOCLEAR.to_ne_bytes());
    for _ in 0..200 {
        // SAFETY: takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
        check(number)?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = File::options().read(true).write(true).open(&path)?;
        // SAFETY: the kernel reads LOOP_CONFIG_LEN bytes.
        let set = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, config.as_ptr()) };
        match check(set) {
            Ok(()) => return Ok((device, path)),
            // Somebody else took it first.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("no free loop device"))
}

/// A kind of file system, and how to make a small one.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub bytes: u64,
    /// Mount options for a copy of a disk that is mounted too.
    pub options: &'static str,
    mkfs: &'static [&'static str],
}

pub const EXT4: Kind = Kind {
    name: "ext4",
    bytes: 32 << 20,
    options: "",
    mkfs: &[
        "mkfs.ext4",
        "-q",
        "-F",
        "-b4096",
        "-N4096",
        "-Jsize=4",
        "-Elazy_itable_init=0,lazy_journal_init=0,nodiscard",
    ],
};

pub const XFS: Kind = Kind {
    name: "xfs",
    bytes: 320 << 20,
    options: "nouuid",
    mkfs: &["mkfs.xfs", "-q", "-f", "-K"],
};

pub const BTRFS: Kind = Kind {
    name: "btrfs",
    bytes: 128 << 20,
    options: "",
    mkfs: &["mkfs.btrfs", "-q", "-f", "-K"],
};

impl Kind {
    /// Makes the file system, or says why it can't be made.
    pub fn make(&self, on: &Path) -> Result<(), String> {
        let made = Command::new(self.mkfs[0])
            .args(&self.mkfs[1..])
            .arg(on)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", self.mkfs[0]))?;
        if made.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&made.stderr);
        Err(format!("{}: {}", self.mkfs[0], said.trim()))
    }
}

/// A folder in memory where there is one.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}
