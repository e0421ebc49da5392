//! What goes wrong, and at which call.

use std::collections::BTreeMap;
use std::io;

use super::tree::errno;

/// The process was killed within a call. It unwinds with this, so that no code of it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crashed;

/// Where a call is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Before,
    After,
}

/// What is to go wrong with the calls of a process, counted from 1.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    pub crash: Option<(u64, Moment)>,
    /// Calls that fail, with the system's error. A sync that fails loses what it should have written.
    pub errors: BTreeMap<u64, i32>,
    /// Calls that write only a part, if they write.
    pub short_writes: Vec<u64>,
    /// Nothing can be made or grow.
    pub is_full: bool,
}

/// What a call may do, so that a full disk fails only what needs room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Room,
}

impl Faults {
    pub(super) fn error(&self, call: u64, need: Need) -> io::Result<()> {
        if let Some(code) = self.errors.get(&call) {
            return Err(errno(*code));
        }
        if self.is_full && need == Need::Room {
            return Err(errno(libc::ENOSPC));
        }
        Ok(())
    }

    pub(super) fn crashes(&self, call: u64, moment: Moment) -> bool {
        self.crash == Some((call, moment))
    }

    /// How many of so many bytes are written.
    pub(super) fn written(&self, call: u64, count: usize) -> usize {
        if count > 1 && self.short_writes.contains(&call) {
            count / 2
        } else {
            count
        }
    }
}
