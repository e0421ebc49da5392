//! `kill -9` at every single call: before it is made, and right after it.
//!
//! One run counts the calls of a scenario; then each of them is a point to be killed at. The
//! next daemon has no faults, and afterwards everything must be as if nothing had happened.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::report::{Row, is_full, times};
use crate::scenarios::{self, Leaving, Scenario, Strict};
use crate::tracer::{self, Call, Deed, Fault, Kind};

/// How many are tried at the same time.
const WORKERS: usize = 2;

/// A kill between two reads is the same as one before both, and the log is not the daemon's.
pub fn changes_something(call: &Call) -> bool {
    !matches!(call.kind, Kind::Read | Kind::List) && !call.about.starts_with("daemon-log")
}

pub fn kill_at(at: usize, after: bool) -> Fault {
    Fault {
        deed: if after {
            Deed::KillAfter
        } else {
            Deed::KillBefore
        },
        at,
        stretch: 1,
        falls_on: changes_something,
    }
}

/// How many points a scenario has; it varies a little, as threads do.
pub fn points_of(scenario: Scenario, falls_on: fn(&Call) -> bool, leaving: &mut Leaving) -> usize {
    let root = scenario.root();
    let fault = Fault {
        deed: Deed::Count,
        at: 0,
        stretch: 0,
        falls_on,
    };
    let ended = scenarios::traced(&root, fault);
    assert!(ended.status.success(), "{scenario:?}: {:?}", ended.status);
    let found = scenarios::breaches(&root, scenario, Strict::Exactly);
    assert!(found.is_empty(), "{scenario:?} without faults: {found:#?}");
    leaving.add(root);
    ended.points
}

/// Spreads `count` numbers over 0..`all`.
pub fn spread(all: usize, count: usize) -> Vec<usize> {
    (0..count.min(all))
        .map(|n| n * all / count.min(all))
        .collect()
}

/// Does `job` for each of `work`, a few at a time; what it says of each goes into the row.
pub fn each<T: Send + Sync>(
    row: &mut Row,
    work: &[T],
    job: impl Fn(&T, &mut Leaving) -> Option<Vec<String>> + Sync,
) {
    let next = AtomicUsize::new(0);
    let row = Mutex::new(row);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut leaving = Leaving::default();
                while let Some(item) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(found) = job(item, &mut leaving) {
                        for line in &found {
                            eprintln!("{line}");
                        }
                        row.lock().unwrap().tried(found);
                    }
                }
            });
        }
    });
}

/// Whether faults can be tried here; if not, that is said.
pub fn can_trace(row: &mut Row) -> bool {
    let possible = tracer::is_possible();
    if let Err(error) = &possible {
        eprintln!("nothing was tried: a process can't be traced here ({error})");
        row.note(format!("a process can't be traced here: {error}"));
    }
    possible.is_ok()
}

#[test]
fn a_daemon_that_is_killed_at_any_call_loses_and_doubles_nothing() {
    let mut row = Row::new("kill -9 before and after every call");
    if !can_trace(&mut row) {
        return row.finish();
    }
    let mut work = Vec::new();
    let mut note = Vec::new();
    let mut leaving = Leaving::default();
    for scenario in scenarios::ALL {
        let points = points_of(scenario, changes_something, &mut leaving);
        note.push(format!("{scenario:?}: {points} points"));
        let both = |at: usize| [(scenario, at + 1, false), (scenario, at + 1, true)];
        if is_full() {
            work.extend((0..points).flat_map(both));
        } else {
            work.extend(spread(points, 4).into_iter().flat_map(both));
        }
    }
    let rounds = times("kill_points", 1, 20);
    for _ in 0..rounds {
        each(&mut row, &work, one_kill);
    }
    row.note(note.join(", "));
    row.finish();
}

/// Row 17: what a start writes anew of a refusal may be cut in half, too.
#[test]
fn a_reason_is_not_lost_when_a_refusal_is_cut_in_half_twice() {
    let mut row = Row::new("kill -9 while a refusal is taken up again");
    if !can_trace(&mut row) {
        return row.finish();
    }
    let notice = |call: &Call| {
        changes_something(call)
            && (call.about.starts_with(".handoffd/rejecting/b")
                || call.about.starts_with(".handoffd/tmp/notice-"))
    };
    let points = points_of(Scenario::Recovery, notice, &mut Leaving::default());
    let both = |at| [(at, false), (at, true)];
    let work: Vec<_> = (1..=points).flat_map(both).collect();
    each(&mut row, &work, |(at, after), leaving| {
        let fault = Fault {
            falls_on: notice,
            ..kill_at(*at, *after)
        };
        killed(Scenario::Recovery, fault, leaving)
    });
    row.finish();
}

/// Row 37: the log is ahead of the records after each of these lines, and behind them before.
#[test]
fn a_daemon_that_is_killed_around_a_line_of_the_audit_log_tells_all_of_it_once() {
    let mut row = Row::new("kill -9 around a line of the audit log");
    if !can_trace(&mut row) {
        return row.finish();
    }
    let lines = |call: &Call| call.kind == Kind::Write && call.about.starts_with("audit/");
    let scenarios = [
        Scenario::Success,
        Scenario::Retry,
        Scenario::BlockedAndReturn,
    ];
    let numbers = scenarios
        .into_iter()
        .flat_map(|scenario| (1..=4).map(move |at| (scenario, at)))
        .flat_map(|(scenario, at)| [(scenario, at, false), (scenario, at, true)]);
    let work: Vec<_> = numbers
        .map(|(scenario, at, after)| {
            let fault = Fault {
                falls_on: lines,
                ..kill_at(at, after)
            };
            (scenario, fault)
        })
        .collect();
    each(&mut row, &work, |(scenario, fault), leaving| {
        killed(*scenario, *fault, leaving)
    });
    row.finish();
}

/// What stands in the state folders changes by these calls alone.
#[test]
fn a_daemon_that_is_killed_around_a_change_of_a_state_folder_loses_and_doubles_nothing() {
    let mut row = Row::new("kill -9 around a change of a state folder");
    if !can_trace(&mut row) {
        return row.finish();
    }
    let changes = |call: &Call| {
        let in_sight = |path: &str| path.starts_with("handoffs/");
        let changes = !matches!(call.kind, Kind::Open | Kind::Lock | Kind::Sync);
        let shows = in_sight(&call.about) || call.to.as_deref().is_some_and(in_sight);
        changes_something(call) && changes && shows
    };
    let mut work = Vec::new();
    let most = times("changes", 4, usize::MAX);
    for scenario in [Scenario::Success, Scenario::Retry] {
        let points = points_of(scenario, changes, &mut Leaving::default());
        for at in spread(points, most) {
            work.extend([(scenario, at + 1, false), (scenario, at + 1, true)]);
        }
    }
    each(&mut row, &work, |(scenario, at, after), leaving| {
        let fault = Fault {
            falls_on: changes,
            ..kill_at(*at, *after)
        };
        killed(*scenario, fault, leaving)
    });
    row.finish();
}

fn one_kill(
    (scenario, at, after): &(Scenario, usize, bool),
    leaving: &mut Leaving,
) -> Option<Vec<String>> {
    killed(*scenario, kill_at(*at, *after), leaving)
}

/// None if the daemon ended before it came to the point.
fn killed(scenario: Scenario, fault: Fault, leaving: &mut Leaving) -> Option<Vec<String>> {
    let root = scenario.root();
    let struck = scenarios::traced(&root, fault).struck?;
    let mut found: Vec<String> = scenarios::undisturbed(&root).into_iter().collect();
    found.extend(scenarios::breaches(&root, scenario, Strict::Exactly));
    let (deed, at) = (fault.deed, fault.at);
    let place = format!("{scenario:?}, killed: {deed:?} call {at}, {struck}");
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
