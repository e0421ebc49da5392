//! Which file system a folder is on, and whether it tells of changes.
//!
//! inotify works on any of them, but tells only of changes made through this kernel. On a file
//! system that another host, a hypervisor or a user-space server can change as well it stays
//! silent, which is worse than an error. What is not known here counts as silent: polling is
//! slower and always right.

use std::io;
use std::path::Path;

/// What is known of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsKind {
    pub name: String,
    /// Other hosts can change it, and its locks and renames can't be relied on.
    pub network: bool,
    /// Changes are told of, whoever makes them.
    pub events: bool,
}

impl FsKind {
    fn new(name: &str, network: bool, events: bool) -> Self {
        Self {
            name: name.to_owned(),
            network,
            events,
        }
    }
}

/// The kind of file system that `path` is on.
#[cfg(target_os = "linux")]
pub fn filesystem(path: &Path) -> io::Result<FsKind> {
    use std::os::unix::fs::MetadataExt;

    // Magic numbers have 32 bits and are sign-extended by some kernels' calls.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "only the low 32 bits mean something"
    )]
    let magic = rustix::fs::statfs(path)?.f_type as u32;
    if magic != FUSE {
        return Ok(by_magic(magic));
    }
    // Three different things share this number; only the mount table tells them apart.
    let dev = std::fs::metadata(path)?.dev();
    let dev = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    Ok(fuse(type_of_mount(&mounts, &dev).unwrap_or("fuse")))
}

/// The kind of file system that `path` is on; not told apart on this system.
#[cfg(not(target_os = "linux"))]
pub fn filesystem(path: &Path) -> io::Result<FsKind> {
    std::fs::metadata(path)?;
    Ok(FsKind::new("unknown", false, true))
}

#[cfg(any(target_os = "linux", test))]
const FUSE: u32 = 0x6573_5546;

#[cfg(any(target_os = "linux", test))]
fn by_magic(magic: u32) -> FsKind {
    let (name, network, events) = match magic {
        0x0000_ef53 => ("ext2/3/4", false, true),
        0x5846_5342 => ("xfs", false, true),
        0x9123_683e => ("btrfs", false, true),
        0x0102_1994 => ("tmpfs", false, true),
        0x8584_58f6 => ("ramfs", false, true),
        0x794c_7630 => ("overlay", false, true),
        0x2fc1_2fc1 => ("zfs", false, true),
        0xf2f5_2010 => ("f2fs", false, true),
        0xca45_1a4e => ("bcachefs", false, true),
        0x3153_464a => ("jfs", false, true),
        0x5265_4973 => ("reiserfs", false, true),
        0x0000_3434 => ("nilfs2", false, true),
        0x0000_f15f => ("ecryptfs", false, true),
        0x0000_4d44 => ("vfat", false, true),
        0x2011_bab0 => ("exfat", false, true),
        0x7366_746e => ("ntfs3", false, true),
        0x0000_6969 => ("nfs", true, false),
        0xff53_4d42 => ("cifs", true, false),
        0xfe53_4d42 => ("smb2", true, false),
        0x0000_517b => ("smb", true, false),
        0x0102_1997 => ("9p", true, false),
        0x00c3_6400 => ("ceph", true, false),
        0x5346_414f | 0x6b41_4653 => ("afs", true, false),
        0x0bd0_0bd0 => ("lustre", true, false),
        0x4750_4653 => ("gpfs", true, false),
        0x0116_1970 => ("gfs2", true, false),
        0x7461_636f => ("ocfs2", true, false),
        0x7375_7245 => ("coda", true, false),
        0x1983_0326 => ("beegfs", true, false),
        0x786f_4256 => ("vboxsf", false, false),
        FUSE => return fuse("fuse"),
        other => return FsKind::new(&format!("unknown (0x{other:x})"), false, false),
    };
    FsKind::new(name, network, events)
}

/// A block device behind FUSE (ntfs-3g) is changed by this kernel only. Anything else may have
/// a network or a hypervisor behind it, which its type does not say.
#[cfg(any(target_os = "linux", test))]
fn fuse(fs_type: &str) -> FsKind {
    FsKind::new(fs_type, false, fs_type.starts_with("fuseblk"))
}

/// The type in the line of `/proc/self/mountinfo` for this device.
#[cfg(any(target_os = "linux", test))]
fn type_of_mount<'a>(mounts: &'a str, dev: &str) -> Option<&'a str> {
    mounts
        .lines()
        .filter(|line| line.split(' ').nth(2) == Some(dev))
        .find_map(|line| line.split_once(" - ")?.1.split(' ').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_their_numbers() {
        for (magic, name, network, events) in [
            (0xef53, "ext2/3/4", false, true),
            (0x9123_683e, "btrfs", false, true),
            (0x6969, "nfs", true, false),
            (0xfe53_4d42, "smb2", true, false),
            (0x0102_1997, "9p", true, false),
            (FUSE, "fuse", false, false),
            (0x1234, "unknown (0x1234)", false, false),
        ] {
            assert_eq!(by_magic(magic), FsKind::new(name, network, events));
        }
    }

    #[test]
    fn what_shares_the_number_of_fuse_is_told_by_the_mount_table() {
        let mounts = "\
            36 35 0:31 / /mnt/ssh rw,nosuid shared:1 - fuse.sshfs me@host:/ rw\n\
            37 35 8:17 / /mnt/usb rw - fuseblk /dev/sdb1 rw\n\
            38 35 0:44 / /mnt/host rw shared:2 master:1 - virtiofs share rw\n";
        for (dev, name, events) in [
            ("0:31", "fuse.sshfs", false),
            ("8:17", "fuseblk", true),
            ("0:44", "virtiofs", false),
        ] {
            let found = type_of_mount(mounts, dev).unwrap();
            assert_eq!(fuse(found), FsKind::new(name, false, events));
        }
        assert_eq!(type_of_mount(mounts, "0:99"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_answers() {
        assert!(filesystem(Path::new("/")).is_ok());
        assert!(filesystem(Path::new("/does/not/exist")).is_err());
        let proc = filesystem(Path::new("/proc")).unwrap();
        assert!(!proc.events, "{proc:?}");
    }
}
