//! A log whose end is not as the daemon left it: somebody else rewrote, cut or replaced it.
//!
//! The daemon knows number and hash of its last line and goes on from them, whatever it finds, so
//! that the line after the damage shows it to every check. An [`ALTERED`] event is that line. Taking
//! the found end for its own would make the forgery part of the chain.

use std::fmt;

use super::line::{ALTERED, Event};
use crate::clock::Wall;

/// The line that the daemon left at the end of the log, and the one that it met there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Altered {
    /// The newest file of the log, if there is any.
    pub file: Option<String>,
    pub expected: Head,
    /// The last whole line; number 0 where there is none.
    pub found: Head,
}

/// A line of the log, by number and hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub seq: u64,
    pub hash: String,
}

impl Altered {
    pub(super) fn event(&self, at: Wall) -> Event {
        let mut event = Event::new(at, ALTERED);
        if let Some(file) = &self.file {
            event = event.with("file", file.as_str());
        }
        event
            .with("expected", self.expected.seq)
            .with("expected_hash", self.expected.hash.as_str())
            .with("found", self.found.seq)
            .with("found_hash", self.found.hash.as_str())
    }
}

impl fmt::Display for Altered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (expected, found) = (self.expected.seq, self.found.seq);
        let file = self.file.as_deref().unwrap_or_default();
        write!(f, "audit/{file} was changed by somebody else: ")?;
        match found {
            0 => write!(f, "line {expected} is gone, and all before it")?,
            _ if found == expected => {
                write!(f, "the end of line {expected} is not what was written")?;
            }
            _ => write!(f, "line {expected} was the last, and line {found} is now")?,
        }
        write!(
            f,
            "; see handoffd audit --verify, and compare the log with anchors or a backup"
        )
    }
}
