//! Attempts that wait for their turn: given to the keeper ahead, so that the next one starts the
//! moment that another ends, with nobody to be woken in between.
//!
//! Until its turn comes nothing of such an attempt has happened. Its file stands where it stood,
//! and no journal knows of it. When it comes, the file is claimed with a content that lies ready,
//! in which only the time of the start is missing, and the process is started as any other. One
//! whose turn does not come soon is given back, and so is one whose file is not there any more.
//! They are a daemon's own: when it goes, or another one comes, they are let go of.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::books::Books;
use super::wire::{Key, Os, Report, Start};
use crate::clock::{Clock, Now};
use crate::durable::{self, Identity, TakeError};

/// When an attempt is started that is given ahead, and what is done first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// It is started when fewer than this are alive.
    pub at_most: usize,
    /// It is given back if that is not so within this time.
    pub patience_ms: u64,
    /// Its deadline, counted from its start.
    pub timeout_ms: u64,
    /// The variable that says when that is.
    pub deadline_var: Os,
    pub claim: Claim,
}

/// A file that is taken by moving it, if it is still the same, and exchanging its content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    pub from: Os,
    pub to: Os,
    /// The file that the new content is in; also open, as the fourth descriptor.
    pub content: Os,
    /// Where in it the time of the start goes, over one of the same length.
    pub stamps: Vec<u64>,
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub modified_ns: i64,
}

/// One that waits.
#[derive(Debug)]
pub struct Waiting {
    start: Start,
    turn: Turn,
    stdio: [OwnedFd; 3],
    content: File,
    until: u64,
}

impl Claim {
    /// Puts the time into the content and takes the file; says when the content was changed.
    fn make(&self, content: &File, now: Now) -> Result<i64, TakeError> {
        let text = now.wall.to_string();
        for &at in &self.stamps {
            content.write_all_at(text.as_bytes(), at)?;
        }
        let written = content.metadata()?;
        let identity = Identity {
            device: self.device,
            inode: self.inode,
            size: self.size,
            modified_ns: i128::from(self.modified_ns),
        };
        let path = |os: &Os| Path::new(&os.0).to_owned();
        durable::take(
            &path(&self.from),
            identity,
            &path(&self.to),
            &path(&self.content),
        )?;
        Ok(written.mtime() * 1_000_000_000 + written.mtime_nsec())
    }
}

impl Books {
    /// Keeps an attempt until its turn comes.
    pub fn keep_waiting(
        &mut self,
        start: Start,
        turn: Turn,
        [stdin, stdout, stderr, content]: [OwnedFd; 4],
        now: u64,
    ) {
        self.waiting.push_back(Waiting {
            start,
            until: now.saturating_add(turn.patience_ms),
            turn,
            stdio: [stdin, stdout, stderr],
            content: File::from(content),
        });
    }

    /// Starts those whose turn it is, in the order in which they came.
    pub fn take_turns(&mut self) {
        while let Some(next) = self.waiting.front() {
            if self.attempts.len() >= next.turn.at_most {
                return;
            }
            if let Some(next) = self.waiting.pop_front() {
                self.begin_turn(next);
            }
        }
    }

    fn begin_turn(&mut self, waiting: Waiting) {
        let Waiting {
            mut start,
            turn,
            stdio,
            content,
            ..
        } = waiting;
        let now = Clock::System.now();
        let modified_ns = match turn.claim.make(&content, now) {
            Ok(modified_ns) => modified_ns,
            Err(error) => return self.give_back(start.key, &error.to_string()),
        };
        start.deadline_boot_ms = now.boot_ms.saturating_add(turn.timeout_ms);
        let ends = i64::try_from(turn.timeout_ms).unwrap_or(i64::MAX);
        let deadline = now.wall.plus_ms(ends).to_string();
        let told = start.env.iter_mut();
        for (_, value) in told.filter(|(name, _)| *name == turn.deadline_var) {
            *value = Os::from(&deadline);
        }
        self.reports.push(Report::Begun {
            key: start.key.clone(),
            wall_ms: now.wall.0,
            boot_ms: now.boot_ms,
            modified_ns,
        });
        self.start(start, stdio);
    }

    /// Whether each that is alive could end, and another would follow it.
    pub fn has_enough_waiting(&self) -> bool {
        let front = self.waiting.front();
        front.is_some_and(|next| self.waiting.len() >= next.turn.at_most)
    }

    /// When the first of them has waited for too long.
    pub fn patience_ends(&self) -> Option<u64> {
        self.waiting.front().map(|it| it.until)
    }

    /// Gives back all of them.
    pub fn give_all_back(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.give_back(waiting.start.key, "it was asked for");
        }
    }

    /// Gives back those that have waited for too long.
    pub fn give_back_until(&mut self, now: u64) {
        while self.patience_ends().is_some_and(|until| until <= now)
            && let Some(overdue) = self.waiting.pop_front()
        {
            self.give_back(overdue.start.key, "its turn did not come");
        }
    }

    fn give_back(&mut self, key: Key, why: &str) {
        let why = why.to_owned();
        self.reports.push(Report::Returned { key, why });
    }
}

/// Where the time `text` stands in a content, if it is there as often as it should be and
/// nowhere else.
pub fn stamps(content: &[u8], text: &str, often: usize) -> Option<Vec<u64>> {
    let content = std::str::from_utf8(content).ok()?;
    let found = content.match_indices(text);
    let found: Option<Vec<u64>> = found.map(|(at, _)| u64::try_from(at).ok()).collect();
    found.filter(|found| found.len() == often)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_found_where_it_stands_and_only_if_it_is_nobody_elses() {
        let text = "2026-01-02T03:04:05.678Z";
        let content = format!("{{\"a\":\"{text}\",\"b\":[\"{text}\"]}}");
        assert_eq!(stamps(content.as_bytes(), text, 2), Some(vec![6, 38]));
        assert_eq!(stamps(content.as_bytes(), text, 1), None);
        assert_eq!(stamps(content.as_bytes(), text, 3), None);
        assert_eq!(stamps(b"", text, 0), Some(vec![]));
    }
}
