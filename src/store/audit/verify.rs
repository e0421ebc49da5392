//! Reading the whole log and saying where it is not what was written.
//!
//! One pass, one line in memory. After a fault the check goes on from the line it found, so
//! that one removed line is one problem and not a thousand. A log that does not begin with line
//! 1 has a gap there: whoever archives old files must expect to be told.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::files::{self, name_of};
use super::line::{Line, TORN_LINE, hash, no_line};

/// How many problems are listed; the rest is only counted.
pub const MAX_PROBLEMS: usize = 20;

/// What a check of the log found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    pub files: u64,
    /// Whole lines.
    pub lines: u64,
    pub last_seq: u64,
    /// Torn lines that were closed as they should be. They are no problem.
    pub torn: u64,
    /// The first [`MAX_PROBLEMS`].
    pub problems: Vec<Problem>,
    /// How many there are in all.
    pub problem_count: u64,
}

impl Verdict {
    pub fn is_sound(&self) -> bool {
        self.problem_count == 0
    }
}

/// One place where the log is not what was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {fault}")]
pub struct Problem {
    pub file: String,
    /// Counted from 1.
    pub line: u64,
    pub fault: Fault,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("lines are missing before it: number {expected} was due and {found} stands here")]
    Gap { expected: u64, found: u64 },
    #[error("out of order: number {expected} was due and {found} stands here")]
    Order { expected: u64, found: u64 },
    #[error("this line was changed: the hash in the line after it does not match")]
    Changed,
    #[error("the first line claims that another was before it")]
    NotTheFirst,
    #[error("not a line of this log, and no {TORN_LINE} event follows")]
    Unreadable,
    #[error("torn at the end of the log; the daemon closes it when it starts")]
    Torn,
}

/// Checks every line of the log in `dir`.
pub fn verify(dir: &Path) -> io::Result<Verdict> {
    verify_each(dir, |_| {})
}

/// The same, and hands every whole line to `each` on the way.
pub fn verify_each(dir: &Path, mut each: impl FnMut(&Line)) -> io::Result<Verdict> {
    let mut check = Check {
        verdict: Verdict::default(),
        before: Place::default(),
        prev: no_line(),
        prev_open: false,
        unread: Vec::new(),
    };
    let mut bytes = Vec::new();
    for day in files::list(dir)? {
        check.verdict.files += 1;
        let file = name_of(&day.day);
        let mut reader = BufReader::new(File::open(&day.path)?);
        let mut line = 0;
        loop {
            bytes.clear();
            if reader.read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            line += 1;
            let open = bytes.pop_if(|last| *last == b'\n').is_none();
            let file = file.clone();
            check.line(Place { file, line }, &bytes, open, &mut each);
        }
    }
    Ok(check.finish())
}

#[derive(Debug, Clone, Default)]
struct Place {
    file: String,
    line: u64,
}

struct Check {
    verdict: Verdict,
    /// Where the line before stands, and its hash.
    before: Place,
    prev: String,
    /// It had no newline.
    prev_open: bool,
    /// Unreadable lines since the last whole one: torn if the next one says so.
    unread: Vec<Place>,
}

impl Check {
    fn line(&mut self, place: Place, bytes: &[u8], open: bool, each: &mut impl FnMut(&Line)) {
        let actual = hash(bytes);
        if let Some(line) = Line::parse(bytes) {
            self.whole(&place, &line);
            each(&line);
            self.verdict.lines += 1;
            self.verdict.last_seq = line.seq;
        } else {
            self.unread.push(place.clone());
        }
        self.before = place;
        self.prev = actual;
        self.prev_open = open;
    }

    fn whole(&mut self, place: &Place, line: &Line) {
        let expected = self.verdict.last_seq.saturating_add(1);
        let linked = line.prev == self.prev;
        let unread = std::mem::take(&mut self.unread);
        if !unread.is_empty() {
            if line.event == TORN_LINE && line.seq == expected && linked {
                self.verdict.torn += unread.len() as u64;
                return;
            }
            // Each of them may have been a line; numbers that fit that are no second problem.
            let most = expected.saturating_add(unread.len() as u64);
            for place in unread {
                self.report(&place, Fault::Unreadable);
            }
            if (expected..=most).contains(&line.seq) {
                return;
            }
        }
        let found = line.seq;
        if found > expected {
            self.report(place, Fault::Gap { expected, found });
        } else if found < expected {
            self.report(place, Fault::Order { expected, found });
        } else if !linked && expected == 1 {
            self.report(place, Fault::NotTheFirst);
        } else if !linked {
            let before = self.before.clone();
            self.report(&before, Fault::Changed);
        }
    }

    /// An unreadable end is what a crash leaves; so is a whole line without its newline.
    fn finish(mut self) -> Verdict {
        let mut torn = std::mem::take(&mut self.unread);
        if torn.is_empty() && self.prev_open {
            torn.push(self.before.clone());
        }
        for place in torn {
            self.report(&place, Fault::Torn);
        }
        self.verdict
    }

    fn report(&mut self, place: &Place, fault: Fault) {
        self.verdict.problem_count += 1;
        if self.verdict.problems.len() < MAX_PROBLEMS {
            self.verdict.problems.push(Problem {
                file: place.file.clone(),
                line: place.line,
                fault,
            });
        }
    }
}
