//! The order of calls: content is on disk before a name shows it, the log before the deed, and
//! each folder after the last name in it has changed.
//!
//! A power cut in between is tried elsewhere; this sees a sync that is missing without a disk to
//! lose anything.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::kill_points::can_trace;
use crate::report::Row;
use crate::scenarios::{self, Leaving, Scenario};
use crate::tracer::{Call, Deed, Fault, Kind};

const SPARES: &str = ".handoffd/spares/";
const CLAIM: &str = ".handoffd/tmp/claim-";

thread_local! {
    /// Calls in the order in which they began. The tracer runs in the test's own thread.
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

#[test]
fn content_is_synced_before_it_is_shown_and_folders_after_that() {
    let mut row = Row::new("syncs between writing and showing");
    if !can_trace(&mut row) {
        return row.finish();
    }
    let mut leaving = Leaving::default();
    let mut shown = 0;
    for scenario in [
        Scenario::Success,
        Scenario::Retry,
        Scenario::BlockedAndReturn,
    ] {
        CALLS.take();
        let root = scenario.root();
        let note_down = Fault {
            deed: Deed::Count,
            at: 0,
            stretch: 0,
            falls_on: |call| {
                CALLS.with_borrow_mut(|calls| calls.push(call.clone()));
                true
            },
        };
        let ended = scenarios::traced(&root, note_down);
        let mut seen = Seen::default();
        for call in CALLS.take() {
            seen.take_in(&call);
        }
        seen.end();
        if !ended.status.success() {
            seen.found.push(format!("it ended with {}", ended.status));
        }
        shown += seen.shown;
        let say = |what| format!("{scenario:?}: {what}");
        row.tried_many(seen.calls);
        row.broke(seen.found.into_iter().map(say));
        leaving.add(root);
    }
    assert!(shown >= 10, "only {shown} contents were shown");
    row.note(format!("{shown} contents were put in their place"));
    row.finish();
}

/// What is known to be on disk, call by call.
#[derive(Default)]
struct Seen {
    /// Written, and not synced since.
    unsynced: BTreeSet<String>,
    /// Folders in which a name has changed since their last sync, and the last such change.
    changed: BTreeMap<String, String>,
    found: Vec<String>,
    calls: usize,
    shown: usize,
}

impl Seen {
    fn take_in(&mut self, call: &Call) {
        self.calls += 1;
        match call.kind {
            Kind::Write => {
                self.unsynced.insert(call.about.clone());
            }
            // Only begins to write.
            Kind::Sync if call.name == "sync_file_range" => {}
            Kind::Sync => {
                self.unsynced.remove(&call.about);
                self.changed.remove(&call.about);
            }
            Kind::Remove => {
                self.let_go(&call.about);
                self.unsynced.remove(&call.about);
                self.change(&call.about, call);
            }
            Kind::Move => {
                let to = call.to.as_deref().unwrap_or_default();
                if is_shown(to) {
                    self.show(call, to);
                } else {
                    self.let_go(&call.about);
                }
                self.change(&call.about, call);
                self.change(to, call);
                self.swap(&call.about, to);
            }
            _ => {}
        }
    }

    /// A content gets a name under which others see it.
    fn show(&mut self, call: &Call, to: &str) {
        self.shown += 1;
        // Claims wait for no disk; what they were made of is kept until they are there.
        let decides = call.about.starts_with(SPARES);
        let claims = call.about.starts_with(CLAIM) || folder(to) == "handoffs/in-progress";
        let must_be_there = decides || !claims;
        if must_be_there && self.unsynced.contains(&call.about) {
            self.found.push(format!(
                "{to} is shown before its content is on disk: {call}"
            ));
        }
        if decides && let Some(log) = self.unsynced.iter().find(|it| it.starts_with("audit/")) {
            self.found
                .push(format!("{to} is decided before {log} is on disk"));
        }
    }

    /// What a claim was made of goes; then its successor must be on disk.
    fn let_go(&mut self, path: &str) {
        let Some(rest) = path.strip_prefix(CLAIM) else {
            return;
        };
        // What is left is `<letter>-<inode>-<id>.json`.
        let name = rest.splitn(3, '-').nth(2).unwrap_or(rest);
        let record = self
            .unsynced
            .iter()
            .find(|it| is_shown(it) && it.ends_with(&format!("/{name}")));
        if let Some(record) = record {
            self.found
                .push(format!("{path} is let go before {record} is on disk"));
        }
    }

    fn change(&mut self, path: &str, call: &Call) {
        if is_shown(path) {
            self.changed.insert(folder(path), call.to_string());
        }
    }

    /// An exchange and a move look the same, and nobody asks for a name that is gone.
    fn swap(&mut self, a: &str, b: &str) {
        let (was_a, was_b) = (self.unsynced.remove(a), self.unsynced.remove(b));
        if was_a {
            self.unsynced.insert(b.to_owned());
        }
        if was_b {
            self.unsynced.insert(a.to_owned());
        }
    }

    fn end(&mut self) {
        for (folder, call) in &self.changed {
            self.found
                .push(format!("{folder} was never synced after {call}"));
        }
        for path in &self.unsynced {
            if is_shown(path) || path.starts_with("audit/") {
                self.found.push(format!("{path} was never synced"));
            }
        }
    }
}

fn is_shown(path: &str) -> bool {
    path.starts_with("handoffs/") && !path.starts_with("handoffs/control")
}

fn folder(path: &str) -> String {
    let parent = Path::new(path).parent().unwrap_or(Path::new(""));
    parent.display().to_string()
}
