//! Reading the whole log and saying where it is not what was written.
//!
//! One pass, one line in memory. After a fault the check goes on from the line it found, so
//! that one removed line is one problem and not a thousand. A log that does not begin with line
//! 1 has a gap there: whoever archives old files must expect to be told.
//!
//! A place where a power cut may have taken lines waits for the event that tells of it
//! ([`super::holes`]); without one it is a problem like any other.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::anchor::{Anchors, Placed};
use super::files::{self, name_of};
use super::holes::{Mark, lost, seal};
use super::line::{Line, TORN_LINE, hash, no_line};
use crate::clock::Wall;
use crate::durable;

/// How many problems are listed; the rest is only counted.
pub const MAX_PROBLEMS: usize = 20;

/// What a check of the log found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    pub files: u64,
    /// Whole lines.
    pub lines: u64,
    pub last_seq: u64,
    /// Lines that a crash tore or took, and that an event tells of as it should. They are no
    /// problem.
    pub torn: u64,
    /// Anchors that were held against the log.
    pub anchored: u64,
    /// Anchors of lines before the first one that is there.
    pub older: u64,
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
    #[error("lines are missing before it: expected number {expected}, found {found}")]
    Gap { expected: u64, found: u64 },
    #[error("out of order: expected number {expected}, found {found}")]
    Order { expected: u64, found: u64 },
    #[error("this line was changed: the hash in the line after it does not match")]
    Changed,
    #[error("the first line refers to a line before it")]
    NotTheFirst,
    #[error("not a line of this log, and no {TORN_LINE} event follows")]
    Unreadable,
    #[error("line {seq} is not what it was when this anchor was made, at {at}")]
    NotAsAnchored { seq: u64, at: Wall },
    #[error("line {seq} was there when this anchor was made, at {at}, and is gone")]
    AnchoredIsGone { seq: u64, at: Wall },
    #[error("an anchor that can't be read: {0}")]
    BrokenAnchor(String),
    #[error("torn at the end of the log; the daemon closes it at the next start")]
    Torn,
}

/// Checks every line of the log in `dir`.
pub fn verify(dir: &Path) -> io::Result<Verdict> {
    verify_each(dir, |_| {})
}

/// The same, and holds every anchor against the line that it is of. A problem with one names the
/// place of the anchor.
pub fn verify_against(dir: &Path, anchors: &Anchors) -> io::Result<Verdict> {
    let mut check = Check::new(anchors);
    check.files(dir, |_| {})?;
    Ok(check.finish())
}

/// What is to be said where there is no log at all.
pub fn verify_against_nothing(anchors: &Anchors) -> Verdict {
    Check::new(anchors).finish()
}

/// The same, and hands every whole line to `each` on the way.
pub fn verify_each(dir: &Path, each: impl FnMut(&Line)) -> io::Result<Verdict> {
    let none = Anchors::default();
    let mut check = Check::new(&none);
    check.files(dir, each)?;
    Ok(check.finish())
}

#[derive(Debug, Clone, Default)]
struct Place {
    file: String,
    line: u64,
}

impl Place {
    fn has(&self, fault: Fault) -> Problem {
        Problem {
            file: self.file.clone(),
            line: self.line,
            fault,
        }
    }
}

impl Placed {
    fn has(&self, fault: Fault) -> Problem {
        Problem {
            file: self.file.clone(),
            line: self.line,
            fault,
        }
    }
}

struct Check<'a> {
    verdict: Verdict,
    /// Where the line before stands, and its hash.
    before: Place,
    prev: String,
    /// It had no newline.
    prev_open: bool,
    /// Unreadable lines since the last whole one: torn if the next one says so.
    unread: Vec<Place>,
    /// Of the last whole line and of those.
    seal: String,
    /// Holes that nothing has told of yet, and what they are if nothing does.
    untold: Vec<(Mark, Vec<Problem>)>,
    anchors: &'a Anchors,
    /// The number of the first whole line.
    first: Option<u64>,
    /// The numbers of anchors whose line was met.
    met: HashSet<u64>,
}

impl<'a> Check<'a> {
    fn new(anchors: &'a Anchors) -> Self {
        Self {
            verdict: Verdict::default(),
            before: Place::default(),
            prev: no_line(),
            prev_open: false,
            unread: Vec::new(),
            seal: no_line(),
            untold: Vec::new(),
            anchors,
            first: None,
            met: HashSet::new(),
        }
    }

    fn files(&mut self, dir: &Path, mut each: impl FnMut(&Line)) -> io::Result<()> {
        let mut bytes = Vec::new();
        for day in files::list(dir)? {
            self.verdict.files += 1;
            let file = name_of(&day.day);
            let opened = File::open(&day.path).map_err(|error| durable::at(&day.path, &error))?;
            let mut reader = BufReader::new(opened);
            let mut line = 0;
            loop {
                bytes.clear();
                if reader.read_until(b'\n', &mut bytes)? == 0 {
                    break;
                }
                line += 1;
                let open = bytes.pop_if(|last| *last == b'\n').is_none();
                let file = file.clone();
                self.line(Place { file, line }, &bytes, open, &mut each);
            }
        }
        Ok(())
    }

    fn line(&mut self, place: Place, bytes: &[u8], open: bool, each: &mut impl FnMut(&Line)) {
        let actual = hash(bytes);
        if let Some(line) = Line::parse(bytes) {
            self.whole(&place, &line);
            each(&line);
            self.verdict.lines += 1;
            self.first.get_or_insert(line.seq);
            self.hold_anchors(line.seq, &actual);
            self.verdict.last_seq = line.seq;
            self.seal.clone_from(&actual);
        } else {
            self.unread.push(place.clone());
            self.seal = seal(&self.seal, bytes);
        }
        self.before = place;
        self.prev = actual;
        self.prev_open = open;
    }

    fn whole(&mut self, place: &Place, line: &Line) {
        let expected = self.verdict.last_seq.saturating_add(1);
        let linked = line.prev == self.prev;
        let unread = std::mem::take(&mut self.unread);
        self.settle(line);
        if !unread.is_empty() && line.event == TORN_LINE && line.seq == expected && linked {
            self.verdict.torn += unread.len() as u64;
            return;
        }
        let has_trace = !unread.is_empty() || place.line == 1;
        let problems = self.compare(place, line, linked, unread);
        match lost(self.verdict.last_seq, line, has_trace) {
            Some(missing) => {
                let seal = self.seal.clone();
                self.untold.push((Mark { missing, seal }, problems));
            }
            None => self.report_all(problems),
        }
    }

    /// A line may tell of a hole; whether it is sound itself is another matter. One that was
    /// written after the hole's lines were on disk shows that a start found nothing there.
    fn settle(&mut self, line: &Line) {
        let told = Mark::of(line);
        for (mark, problems) in std::mem::take(&mut self.untold) {
            let first = *mark.missing.start();
            if told.as_ref() == Some(&mark) {
                self.verdict.torn += mark.missing.end() - first + 1;
            } else if line.event == TORN_LINE || line.reach() <= first {
                self.untold.push((mark, problems));
            } else {
                self.report_all(problems);
            }
        }
    }

    /// What is wrong with a line, after what was before it.
    fn compare(
        &self,
        place: &Place,
        line: &Line,
        linked: bool,
        unread: Vec<Place>,
    ) -> Vec<Problem> {
        let expected = self.verdict.last_seq.saturating_add(1);
        let found = line.seq;
        // Each of them may have been a line; numbers that fit that are no second problem.
        let most = expected.saturating_add(unread.len() as u64);
        let fits = !unread.is_empty() && (expected..=most).contains(&found);
        let unreadable = |place: Place| place.has(Fault::Unreadable);
        let mut problems: Vec<Problem> = unread.into_iter().map(unreadable).collect();
        if fits {
            return problems;
        }
        if found > expected {
            problems.push(place.has(Fault::Gap { expected, found }));
        } else if found < expected {
            problems.push(place.has(Fault::Order { expected, found }));
        } else if !linked && expected == 1 {
            problems.push(place.has(Fault::NotTheFirst));
        } else if !linked {
            problems.push(self.before.has(Fault::Changed));
        }
        problems
    }

    /// Holds the anchors of a line against it. Of two lines with one number, both must be right.
    fn hold_anchors(&mut self, seq: u64, hash: &str) {
        let Some(placed) = self.anchors.placed.get(&seq) else {
            return;
        };
        self.met.insert(seq);
        for it in placed.iter().filter(|it| it.anchor.head.hash != hash) {
            let at = it.anchor.at;
            self.report(it.has(Fault::NotAsAnchored { seq, at }));
        }
    }

    /// Counts the anchors, and reports those whose line is not there.
    fn close_anchors(&mut self) {
        for (file, line, why) in &self.anchors.unreadable {
            self.report(Problem {
                file: file.clone(),
                line: *line,
                fault: Fault::BrokenAnchor(why.clone()),
            });
        }
        for (&seq, placed) in &self.anchors.placed {
            // A log that was archived from its beginning on says so by itself.
            let counted = placed.len() as u64;
            if self.first.is_some_and(|first| seq < first) {
                self.verdict.older += counted;
                continue;
            }
            self.verdict.anchored += counted;
            if seq > 0 && !self.met.contains(&seq) {
                for it in placed {
                    let at = it.anchor.at;
                    self.report(it.has(Fault::AnchoredIsGone { seq, at }));
                }
            }
        }
    }

    /// An unreadable end is what a crash leaves; so is a whole line without its newline.
    fn finish(mut self) -> Verdict {
        for (_, problems) in std::mem::take(&mut self.untold) {
            self.report_all(problems);
        }
        let mut torn = std::mem::take(&mut self.unread);
        if torn.is_empty() && self.prev_open {
            torn.push(self.before.clone());
        }
        for place in torn {
            self.report(place.has(Fault::Torn));
        }
        self.close_anchors();
        self.verdict
    }

    fn report_all(&mut self, problems: Vec<Problem>) {
        for problem in problems {
            self.report(problem);
        }
    }

    fn report(&mut self, problem: Problem) {
        self.verdict.problem_count += 1;
        if self.verdict.problems.len() < MAX_PROBLEMS {
            self.verdict.problems.push(problem);
        }
    }
}
