//! Lines that a power cut took from before lines that it kept.
//!
//! A disk may lose any write that was not flushed, so of the lines since the last sync an earlier
//! block can be lost and a later one kept. A start looks there, tells of each such place with a
//! `torn_line` event that names the missing numbers, and goes on. A check takes that event for
//! what explains the place, and nothing else.
//!
//! Only what a lost block can do is excused:
//!
//! - The line after the hole says itself that those before it were not on disk (`unsynced`). It
//!   is part of the chain, so nobody can say so later of lines that were. What was synced is
//!   never excused.
//! - Lost blocks leave their length behind, as zeros or garbage. A jump of the numbers between
//!   two lines that touch is somebody's hand. Only at the end of a file may its last lines be
//!   gone without a trace: its length is lost with them.
//! - Nothing but the lines that were unsynced at the same time stands between the hole and its
//!   event, since that is the first thing that the next start writes.
//!
//! The line before a hole was vouched for by one that is gone; the event vouches for it instead,
//! and for the bytes in the hole (`seal`).

use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use super::files::{self, Backwards, DayFile, name_of};
use super::line::{Event, Line, TORN_LINE, hash, no_line};
use crate::clock::Wall;

/// The most that a start reads, whatever the last line claims. A round of the committer's writes
/// a hundredth of it.
const LOOK_BACK: u64 = 16 << 20;

/// A place where lines are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// The one that has the line after it.
    pub file: String,
    /// What lies there instead.
    pub bytes: u64,
    pub lines: u64,
    /// The numbers of those that are gone.
    pub missing: RangeInclusive<u64>,
    seal: String,
}

impl Hole {
    pub(super) fn event(&self, at: Wall) -> Event {
        Event::new(at, TORN_LINE)
            .with("file", self.file.as_str())
            .with("bytes", self.bytes)
            .with("lines", self.lines)
            .with("first", *self.missing.start())
            .with("last", *self.missing.end())
            .with("seal", self.seal.as_str())
    }
}

/// What tells one hole from any other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub missing: RangeInclusive<u64>,
    pub seal: String,
}

impl Mark {
    /// The hole that this line tells of, if it does.
    pub fn of(line: &Line) -> Option<Self> {
        let number = |key: &str| line.detail.get(key)?.as_u64();
        if line.event != TORN_LINE {
            return None;
        }
        Some(Self {
            missing: number("first")?..=number("last")?,
            seal: line.detail.get("seal")?.as_str()?.to_owned(),
        })
    }
}

/// The numbers that a power cut may have taken between the line `before` and the line `after`.
/// `has_trace` if something lies between them, or a file ends there.
pub(super) fn lost(before: u64, after: &Line, has_trace: bool) -> Option<RangeInclusive<u64>> {
    let first = before.saturating_add(1);
    let is_lost = has_trace && (after.reach()..after.seq).contains(&first);
    is_lost.then(|| first..=after.seq - 1)
}

/// The seal of a hole with one more line of what lies in it. It begins as the hash of the line
/// before.
pub(super) fn seal(so_far: &str, bytes: &[u8]) -> String {
    hash(&[so_far.as_bytes(), bytes].concat())
}

/// The holes that the log does not tell of yet, oldest first. Reads from the end, to the last
/// line that was on disk for certain.
pub(super) fn find(dir: &Path) -> io::Result<Vec<Hole>> {
    let mut look = Look::default();
    let mut seen = 0;
    let mut files = files::list(dir)?;
    'files: while let Some(day) = files.pop() {
        let mut lines = Backwards::open(&day.path)?;
        while let Some(raw) = lines.next()? {
            seen += raw.bytes.len() as u64 + 1;
            if seen > LOOK_BACK || !look.further(&day, raw.bytes) {
                break 'files;
            }
        }
        look.file_ended = true;
        if files.is_empty() {
            look.close(0, &no_line());
        }
    }
    let Look {
        told, mut holes, ..
    } = look;
    let is_told = |hole: &Hole| {
        let mut told = told.iter();
        told.any(|mark| mark.missing == hole.missing && mark.seal == hole.seal)
    };
    holes.retain(|hole| !is_told(hole));
    holes.reverse();
    Ok(holes)
}

/// What was found on the way back.
#[derive(Default)]
struct Look {
    /// The line after what is being read, and its file.
    after: Option<(String, Line)>,
    /// What is no line, since then; the last one first.
    between: Vec<Vec<u8>>,
    /// A file began, since then.
    file_ended: bool,
    /// The first number that may not have been on disk, by all lines so far. Those that a start
    /// wrote don't count: they may be the very ones that tell of it.
    reach: u64,
    told: Vec<Mark>,
    holes: Vec<Hole>,
}

impl Look {
    /// Takes in the line before all that was seen. False if no hole can be before it.
    fn further(&mut self, day: &DayFile, bytes: Vec<u8>) -> bool {
        let Some(line) = Line::parse(&bytes) else {
            // The end of the log is not a hole: it is closed as a torn line.
            if self.after.is_some() {
                self.between.push(bytes);
            }
            return true;
        };
        self.close(line.seq, &hash(&bytes));
        self.told.extend(Mark::of(&line));
        if line.event != TORN_LINE {
            self.reach = self.reach.max(line.reach());
        }
        let goes_on = line.seq > self.reach;
        self.after = Some((name_of(&day.day), line));
        goes_on
    }

    /// Ends what lies between the last line and this one before it.
    fn close(&mut self, before: u64, its_hash: &str) {
        let between = std::mem::take(&mut self.between);
        let has_trace = std::mem::take(&mut self.file_ended) || !between.is_empty();
        let Some((file, after)) = self.after.take() else {
            return;
        };
        let missing = lost(before, &after, has_trace);
        let Some(missing) = missing.filter(|missing| *missing.start() >= self.reach) else {
            return;
        };
        let sealed = |so_far: String, bytes: &Vec<u8>| seal(&so_far, bytes);
        self.holes.push(Hole {
            file,
            bytes: between.iter().map(|bytes| bytes.len() as u64).sum(),
            lines: between.len() as u64,
            missing,
            seal: between.iter().rev().fold(its_hash.to_owned(), sealed),
        });
    }
}
