//! Which file system a folder is on, as far as anything here depends on it.

use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    Ext,
    Xfs,
    Btrfs,
    Memory,
    /// Nothing is known of it, or it can't be asked.
    Other,
}

impl Disk {
    #[cfg(target_os = "linux")]
    pub fn of(folder: &Path) -> Self {
        let kind = rustix::fs::statfs(folder).map(|found| found.f_type);
        match kind.ok().and_then(|kind| u64::try_from(kind).ok()) {
            Some(0xEF53) => Self::Ext,
            Some(0x5846_5342) => Self::Xfs,
            Some(0x9123_683E) => Self::Btrfs,
            Some(0x0102_1994) => Self::Memory,
            _ => Self::Other,
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub fn of(_: &Path) -> Self {
        Self::Other
    }
}
