//! What a new keeper does before it listens: it takes over from one that was killed.
//!
//! Attempts of this boot that are still alive are watched from here on, with their deadlines
//! and the reasons for which they were being ended; those that are dead are kept with what the
//! journal knows of their exit. An `Adopt` order from the daemon is therefore not needed.
//! What is alive without being known, in our cgroups or by its environment, is ended: an
//! attempt that was never recorded must not run beside the next one. All this happens before
//! the daemon can reach us, so that no start has to wait for it.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use super::attempt::{Attempt, Watch};
use super::books::{Books, log};
use super::journal::{Entry, Held};
use super::tree::Tree;
use super::{cgroup, proc};
use crate::clock;

/// How long strays have between SIGTERM and SIGKILL.
const STRAY_GRACE_MS: u64 = 2000;
/// Nothing survives a SIGKILL this long but what hangs in the kernel, and that starts nothing.
const PATIENCE_MS: u64 = 5000;
const PAUSE: Duration = Duration::from_millis(10);

/// Fills the books with what the journal knows.
pub fn take_over(books: &mut Books, entries: Vec<Entry>) {
    let now = clock::boot_ms();
    for entry in entries {
        let key = entry.key.clone();
        let reason = entry.why.is_some();
        let (boot, held, minder) = (entry.boot.clone(), entry.held.clone(), entry.minder);
        let gone = entry.gone;
        let attempt = Attempt::from_entry(entry);
        if gone {
            books.over.insert(key, attempt.over());
            continue;
        }
        let attempt = books.attempts.entry(key.clone()).or_insert(attempt);
        if boot != clock::boot_id() {
            books.finish(&key);
            continue;
        }
        let main = attempt.main.and_then(|(pid, start)| proc::open(pid, start));
        let main_runs = main.is_some() && !attempt.main_ended();
        let minder = minder.and_then(|(pid, start)| Some((pid, start, proc::open(pid, start)?)));
        match (held, minder) {
            (Held::Cgroup(dir), _) => {
                attempt.tree = Tree::Cgroup(dir);
                attempt.watch = Watch::Foreign { main, minder: None };
            }
            (Held::Minder, Some((pid, starttime, fd))) => {
                attempt.tree = Tree::Minder { pid, starttime };
                let minder = Some(fd);
                attempt.watch = Watch::Foreign { main, minder };
            }
            (Held::Minder, None) => {
                attempt.watch = Watch::Foreign { main, minder: None };
                // It may have ended between the reading of the journal and the look at it.
                if books.recall(&key) {
                    books.finish(&key);
                    continue;
                }
            }
        }
        if !main_runs {
            books.settle(&key, now);
        }
        if reason && let Some(attempt) = books.attempts.get_mut(&key) {
            attempt.end_within(attempt.grace, now);
        }
        log(format_args!("took over {key}"));
    }
    // Nobody is there to hear them yet; they will be in the inventory.
    books.reports.clear();
}

/// Removes cgroups of this root that belong to no attempt, and kills what is in them.
pub fn clear_cgroups(books: &Books) {
    let Some(base) = &books.base else {
        return;
    };
    let ours: HashSet<&PathBuf> = books
        .attempts
        .values()
        .filter_map(|attempt| match &attempt.tree {
            Tree::Cgroup(dir) => Some(dir),
            _ => None,
        })
        .collect();
    let until = clock::boot_ms() + PATIENCE_MS;
    for dir in cgroup::children(base) {
        if ours.contains(&dir) {
            continue;
        }
        while cgroup::is_populated(&dir) && clock::boot_ms() < until {
            log(format_args!("killing what is in {}", dir.display()));
            cgroup::kill(&dir);
            std::thread::sleep(PAUSE);
        }
        while cgroup::remove(&dir).is_err() && clock::boot_ms() < until {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Ends processes that say they are an attempt of this root and that nobody knows. `spared` are
/// never touched: ourselves, and those that we were started by.
pub fn end_strays(books: &Books, spared: &HashSet<i32>) {
    let begun = clock::boot_ms();
    let users = proc::Users::of(&books.run_dir);
    let mut asked = HashSet::new();
    loop {
        let strays: Vec<proc::Stray> = proc::alive_outside(&books.root, &users, None)
            .unwrap_or_default()
            .into_iter()
            .filter(|stray| !books.knows(stray) && !spared.contains(&stray.pid))
            .collect();
        let waited = clock::boot_ms() - begun;
        if strays.is_empty() {
            return;
        }
        if waited > STRAY_GRACE_MS + PATIENCE_MS {
            return log(format_args!("these do not end: {strays:?}"));
        }
        for stray in strays {
            let Some(fd) = proc::open(stray.pid, stray.starttime) else {
                continue;
            };
            if waited >= STRAY_GRACE_MS {
                let _ = rustix::process::pidfd_send_signal(fd, Signal::KILL);
            } else if asked.insert((stray.pid, stray.starttime)) {
                log(format_args!(
                    "ending a stray of {}: {}",
                    stray.key, stray.pid
                ));
                let _ = rustix::process::pidfd_send_signal(&fd, Signal::TERM);
                let _ = rustix::process::pidfd_send_signal(&fd, Signal::CONT);
            }
        }
        std::thread::sleep(PAUSE);
    }
}
