//! Every promise that can be read off a root, held against what stands there.
//!
//! For people who want to know whether a root is sound, and for every test that tries to break
//! one. Everything is read, nothing is changed, and nothing is asked of a daemon that may run
//! meanwhile: a file that moves while it is looked at is no breach. So whatever seems broken is
//! looked at again, and only what is still the same is told.

mod chains;
mod gather;
mod history;
mod outcome;
mod processes;
mod record;
mod stores;
#[cfg(test)]
mod tests;
mod wakers;

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::inspect::daemon::Daemon;
use crate::spool::layout::Layout;
use crate::spool::look::Identity;

/// How long to wait before each further look at what seems broken; a daemon that works may take
/// its time for one step.
const SECOND_LOOK: [Duration; 1] = [Duration::from_millis(200)];
const WHILE_IT_WORKS: [Duration; 3] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_millis(2500),
];

/// What is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// An admitted id stands in exactly one state folder.
    OneFolder,
    /// A record is a whole document, and what the daemon wrote into it fits.
    WholeRecord,
    /// An outcome is written once, and whole.
    Outcome,
    /// What was decided is carried out.
    Decided,
    /// Attempts are numbered, one at a time, and nothing of an ended one is alive.
    Attempts,
    /// Whatever has not ended is waited for by somebody.
    Waker,
    /// Parents and children know each other.
    Chain,
    /// The log is unbroken and says what the folders say.
    Audit,
    /// Registered artifacts are there, and as they were.
    Artifacts,
    /// States of tasks can be read, have a history of every version, and follow from the outcomes.
    Tasks,
    /// The root's folders are folders, and the daemon's alone to write.
    Folders,
}

impl Invariant {
    pub fn word(self) -> &'static str {
        match self {
            Self::OneFolder => "one_folder",
            Self::WholeRecord => "whole_record",
            Self::Outcome => "outcome",
            Self::Decided => "decided",
            Self::Attempts => "attempts",
            Self::Waker => "waker",
            Self::Chain => "chain",
            Self::Audit => "audit",
            Self::Artifacts => "artifacts",
            Self::Tasks => "tasks",
            Self::Folders => "folders",
        }
    }
}

/// One promise that is broken.
#[derive(Debug, Clone, PartialEq)]
pub struct Breach {
    pub invariant: Invariant,
    /// The file that shows it, from the root.
    pub path: String,
    pub what: String,
    pub do_this: String,
    /// The file as it was looked at: another one is another matter.
    seen: Option<Identity>,
}

/// What is wrong, before it is known with which file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    invariant: Invariant,
    what: String,
    do_this: String,
}

impl Fault {
    fn new(invariant: Invariant, what: impl Into<String>, do_this: impl Into<String>) -> Self {
        Self {
            invariant,
            what: what.into(),
            do_this: do_this.into(),
        }
    }

    fn at(self, path: impl Into<String>, seen: Option<Identity>) -> Breach {
        Breach {
            invariant: self.invariant,
            path: path.into(),
            what: self.what,
            do_this: self.do_this,
            seen,
        }
    }
}

/// How much was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Examined {
    pub records: u64,
    pub submissions: u64,
    pub audit_lines: u64,
    pub artifacts: u64,
    pub tasks: u64,
    pub processes: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Report {
    pub breaches: Vec<Breach>,
    pub examined: Examined,
}

impl Report {
    pub fn is_sound(&self) -> bool {
        self.breaches.is_empty()
    }
}

/// Holds a whole root against what is promised of it.
pub fn examine(layout: &Layout) -> io::Result<Report> {
    let (mut report, works) = look(layout)?;
    let pauses: &[Duration] = if works { &WHILE_IT_WORKS } else { &SECOND_LOOK };
    for pause in pauses {
        if report.is_sound() {
            break;
        }
        std::thread::sleep(*pause);
        let (again, _) = look(layout)?;
        let before = report.breaches;
        report = again;
        report.breaches.retain(|breach| before.contains(breach));
    }
    Ok(report)
}

/// The same for a root given by its path.
pub fn examine_root(root: &Path) -> io::Result<Report> {
    examine(&Layout::new(root))
}

/// One look at everything, and whether a daemon was at work.
fn look(layout: &Layout) -> io::Result<(Report, bool)> {
    let works = Daemon::of(layout).running;
    let mut report = Report::default();
    stores::folders(layout, &mut report);
    let mut seen = gather::gather(layout, works, &mut report)?;
    gather::one_folder_each(layout, &mut seen, &mut report);
    history::check(layout, &mut seen, works, &mut report)?;
    chains::check(layout, &seen, &mut report);
    wakers::check(layout, &seen, works, &mut report);
    processes::check(layout, &seen, works, &mut report)?;
    stores::artifacts(layout, &seen, &mut report)?;
    stores::tasks(layout, &seen, &mut report)?;
    let works = works || Daemon::of(layout).running;
    report
        .breaches
        .sort_by(|a, b| (a.invariant, &a.path, &a.what).cmp(&(b.invariant, &b.path, &b.what)));
    Ok((report, works))
}
