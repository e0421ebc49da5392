//! Calls that fail: a full disk, a broken one, no descriptors, no permission, an interruption,
//! and writes that end halfway.
//!
//! The error comes once, or for a stretch of calls, and then never again. The daemon must live
//! through it, lose and double nothing, and go on by itself. An attempt that could not be
//! started or read because of it may count as failed, if it says so. A start that could not read
//! the root may give up with a message; the next one then works.

use std::fs;

use crate::common::Root;
use crate::kill_points::{can_trace, each, points_of, spread};
use crate::report::{Row, times};
use crate::scenarios::{self, Leaving, Scenario, Strict};
use crate::tracer::{Call, Deed, Ended, Fault, Kind};

/// An error, and the calls that may end with it.
struct Error {
    name: &'static str,
    deed: Deed,
    falls_on: fn(&Call) -> bool,
}

const ERRORS: [Error; 8] = [
    Error {
        name: "ENOSPC",
        deed: Deed::Fail(libc::ENOSPC),
        falls_on: takes_space,
    },
    Error {
        name: "EIO",
        deed: Deed::Fail(libc::EIO),
        falls_on: |call| !matches!(call.kind, Kind::Send | Kind::Lock),
    },
    Error {
        name: "EMFILE",
        deed: Deed::Fail(libc::EMFILE),
        falls_on: opens,
    },
    Error {
        name: "ENFILE",
        deed: Deed::Fail(libc::ENFILE),
        falls_on: opens,
    },
    Error {
        name: "EACCES",
        deed: Deed::Fail(libc::EACCES),
        falls_on: |call| opens(call) || changes_names(call),
    },
    Error {
        name: "EROFS",
        deed: Deed::Fail(libc::EROFS),
        falls_on: |call| call.kind == Kind::OpenToWrite || changes_names(call),
    },
    Error {
        name: "EINTR",
        deed: Deed::Fail(libc::EINTR),
        falls_on: may_be_interrupted,
    },
    Error {
        name: "a short write",
        deed: Deed::Shorten,
        falls_on: |call| matches!(call.name, "write" | "pwrite64"),
    },
];

fn opens(call: &Call) -> bool {
    matches!(call.kind, Kind::Open | Kind::OpenToWrite)
}

fn changes_names(call: &Call) -> bool {
    matches!(call.kind, Kind::MakeFolder | Kind::Move | Kind::Remove)
}

fn takes_space(call: &Call) -> bool {
    use Kind::{MakeFolder, Move, OpenToWrite, Sync, Write};
    matches!(call.kind, OpenToWrite | MakeFolder | Write | Sync | Move)
}

fn may_be_interrupted(call: &Call) -> bool {
    use Kind::{Lock, Open, OpenToWrite, Read, Sync, Write};
    matches!(call.kind, Open | OpenToWrite | Read | Write | Sync | Lock)
}

/// One run with one fault.
struct Trial {
    scenario: Scenario,
    error: &'static Error,
    at: usize,
    stretch: usize,
}

impl Trial {
    fn fault(&self) -> Fault {
        Fault {
            deed: self.error.deed,
            at: self.at,
            stretch: self.stretch,
            falls_on: self.error.falls_on,
        }
    }
}

#[test]
fn a_call_that_fails_loses_nothing_and_is_got_over() {
    let mut row = Row::new("errors and short writes at every call");
    if !can_trace(&mut row) {
        return row.finish();
    }
    let wanted = times("errors", 25, 3200);
    let per_pair = wanted.div_ceil(ERRORS.len() * scenarios::ALL.len());
    let mut leaving = Leaving::default();
    let mut work = Vec::new();
    for scenario in scenarios::ALL {
        for error in &ERRORS {
            if wanted < ERRORS.len() * scenarios::ALL.len() {
                continue;
            }
            let points = points_of(scenario, error.falls_on, &mut leaving);
            // Every point once before any stretch of them.
            let single = spread(points, per_pair);
            let rest = per_pair - single.len();
            let trial = |at: usize, stretch| Trial {
                scenario,
                error,
                at: at + 1,
                stretch,
            };
            work.extend(single.into_iter().map(|at| trial(at, 1)));
            work.extend(spread(points, rest).into_iter().map(|at| trial(at, 12)));
        }
    }
    if work.is_empty() {
        // A sample, over all errors and scenarios.
        for n in 0..wanted {
            work.push(Trial {
                scenario: scenarios::ALL[n % scenarios::ALL.len()],
                error: &ERRORS[n % ERRORS.len()],
                at: n * 7 % 40 + 1,
                stretch: if n % 3 == 0 { 6 } else { 1 },
            });
        }
    }
    each(&mut row, &work, one_error);
    row.finish();
}

/// A folder that could not be listed counted as listed until something changed in it.
static LISTING: Error = Error {
    name: "EMFILE",
    deed: Deed::Fail(libc::EMFILE),
    falls_on: |call| call.kind == Kind::Open && call.about == "handoffs/pending",
};

/// A log that can't be written ended the daemon.
static LOGGING: Error = Error {
    name: "ENOSPC",
    deed: Deed::Fail(libc::ENOSPC),
    falls_on: |call| call.kind == Kind::Write && call.about.starts_with("daemon-log"),
};

/// A notice that could not be read was taken for none, and the refusal told twice.
static NOTICE: Error = Error {
    name: "ENFILE",
    deed: Deed::Fail(libc::ENFILE),
    falls_on: |call| call.kind == Kind::Open && call.about.starts_with(".handoffd/rejecting/"),
};

/// What could not be put among the spares stayed in tmp/.
static SPARE: Error = Error {
    name: "EROFS",
    deed: Deed::Fail(libc::EROFS),
    falls_on: |call| call.name == "rename" && call.about.starts_with(".handoffd/tmp/"),
};

static FULL: Error = Error {
    name: "ENOSPC",
    deed: Deed::Fail(libc::ENOSPC),
    falls_on: |call| takes_space(call) && call.about.starts_with(".handoffd/spares/"),
};

/// What once was not got over, each at the very calls that it took.
#[test]
fn errors_that_once_stayed_are_got_over() {
    let mut row = Row::new("errors that once broke something");
    if !can_trace(&mut row) {
        return row.finish();
    }
    let trial = |scenario, error, at, stretch| Trial {
        scenario,
        error,
        at,
        stretch,
    };
    let mut work: Vec<Trial> = (1..=3)
        .map(|at| trial(Scenario::Retry, &LISTING, at, 1))
        .collect();
    work.push(trial(Scenario::Success, &LOGGING, 1, 1000));
    work.push(trial(Scenario::Recovery, &NOTICE, 1, 1));
    work.push(trial(Scenario::Retry, &SPARE, 1, 1000));
    each(&mut row, &work, one_error);
    row.finish();
}

#[test]
fn work_that_a_full_disk_holds_up_is_reported_and_goes_on() {
    let mut row = Row::new("a disk that is full for a while");
    if !can_trace(&mut row) {
        return row.finish();
    }
    let work: Vec<Trial> = [Scenario::Success, Scenario::Retry]
        .map(|scenario| Trial {
            scenario,
            error: &FULL,
            at: 1,
            stretch: 3,
        })
        .into();
    each(&mut row, &work, |trial, leaving| {
        let root = trial.scenario.root();
        let ended = scenarios::traced_to_the_end(&root, trial.scenario, trial.fault());
        let mut found = scenarios::breaches(&root, trial.scenario, Strict::Exactly);
        let log = last_log(&root);
        if !log.contains("can't write to disk (No space left on device") {
            found.push(format!("{:?}: not a word of it: {log}", trial.scenario));
        }
        if !ended.status.success() || ended.struck.is_none() {
            found.push(format!("{:?}: {ended:?}", trial.scenario));
        }
        leaving.add(root);
        Some(found)
    });
    row.finish();
}

fn one_error(trial: &Trial, leaving: &mut Leaving) -> Option<Vec<String>> {
    let (scenario, error) = (trial.scenario, trial.error);
    let root = scenario.root();
    let ended = scenarios::traced_to_the_end(&root, scenario, trial.fault());
    let struck = ended.struck.clone()?;
    let mut found: Vec<String> = Vec::new();
    if ended.hung {
        found.push("it came to no end".to_owned());
    }
    if !ended.status.success() {
        found.extend(unclear(&root, &ended, error, trial.stretch));
        found.extend(scenarios::undisturbed(&root));
    }
    // What an error kept from being deleted is deleted by the next start.
    let is_swept = [".handoffd/tmp", ".handoffd/spares"]
        .iter()
        .all(|folder| root.names(folder).is_empty());
    if ended.status.success() && !is_swept {
        found.extend(scenarios::undisturbed(&root));
    }
    found.extend(scenarios::breaches(&root, scenario, Strict::Honestly));
    let place = format!(
        "{scenario:?}, {} at call {} for {} ({struck})",
        error.name, trial.at, trial.stretch
    );
    if !found.is_empty() {
        scenarios::keep(&root, &place);
    }
    leaving.add(root);
    Some(
        found
            .into_iter()
            .map(|what| format!("{place}: {what}"))
            .collect(),
    )
}

/// What is wrong with a daemon that gave up: it must have said why, with the exit code that tells a
/// service manager whether another start may succeed. A stretch of errors may fall on the log, too.
fn unclear(root: &Root, ended: &Ended, error: &Error, stretch: usize) -> Option<String> {
    let passes = matches!(
        error.deed,
        Deed::Fail(libc::ENOSPC | libc::EMFILE | libc::ENFILE | libc::EINTR)
    );
    let log = last_log(root);
    let is_said = log.lines().any(|line| line.starts_with("handoffd: "));
    let code = if passes { 75 } else { 2 };
    let is_clear = ended.status.code() == Some(code) && (is_said || stretch > 1);
    (!is_clear).then(|| format!("it ended with {} and said {log:?}", ended.status))
}

/// What the last daemon said.
fn last_log(root: &Root) -> String {
    let names = root.names("daemon-log");
    let path = names.last().map(|name| root.path("daemon-log").join(name));
    let text = path.and_then(|path| fs::read_to_string(path).ok());
    text.unwrap_or_default()
}
