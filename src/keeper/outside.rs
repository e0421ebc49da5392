//! Processes of an attempt that left its fence by moving themselves into another cgroup.
//!
//! A process may do that where it may write to the other cgroup, as root may. It stays our descendant,
//! because the keeper is a subreaper: when its parent has ended it becomes our child. So an attempt
//! leaves behind not only what is in its cgroup, but also each child of ours that belongs to no other
//! attempt. By its cgroup, its session or its environment a child is known to belong to another
//! attempt; a process that hides all three is ended with the next attempt that ends.
//!
//! A minder is a subreaper itself, and no process leaves it. Of an attempt that was taken over from a
//! killed keeper no process becomes our child: only session and environment are left to go by.

use std::collections::HashSet;
use std::path::Path;

use rustix::process::Signal;

use super::attempt::Attempt;
use super::books::Books;
use super::journal;
use super::proc::{self, Stat};
use super::tree::{self, Tree};
use super::wire::Key;
use super::{LOCK, cgroup};
use crate::clock;

/// How long what is outside is killed as it comes, before the next look at the attempt.
const DASH_MS: u64 = 20;

impl Books {
    /// Whether nothing of an attempt is alive, in its fence or outside.
    pub fn is_over(&self, key: &Key) -> bool {
        self.attempts.get(key).is_some_and(|attempt| {
            !attempt.tells() && attempt.is_empty(&self.root) && self.outside(attempt).is_empty()
        })
    }

    /// Asks the processes outside to end, and all that descends from them.
    pub fn terminate_outside(&self, key: &Key) {
        let Some(attempt) = self.attempts.get(key) else {
            return;
        };
        let mut found = self.outside(attempt);
        if found.is_empty() {
            return;
        }
        let pids: Vec<i32> = found.iter().map(|stat| stat.pid).collect();
        let below = proc::descendants(&proc::snapshot(), &pids);
        found.extend(
            below
                .into_iter()
                .filter(|stat| !is_fenced(attempt, stat.pid)),
        );
        proc::signal_all(&found, Signal::TERM);
        proc::signal_all(&found, Signal::CONT);
    }

    /// Kills the processes outside, and what becomes our child by that, for a moment.
    pub fn kill_outside(&self, key: &Key) {
        let until = clock::boot_ms() + DASH_MS;
        while let Some(attempt) = self.attempts.get(key) {
            let found = self.outside(attempt);
            proc::signal_all(&found, Signal::KILL);
            if found.is_empty() || clock::boot_ms() >= until {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// The live processes of an attempt that are not where its fence holds them. For nearly every
    /// attempt there are none, and one look at the list of our children says so.
    fn outside(&self, attempt: &Attempt) -> Vec<Stat> {
        let mut found = match attempt.tree {
            Tree::Minder { .. } => return Vec::new(),
            // Its cgroup is all that an earlier keeper left us, and that holds only who stays there.
            Tree::Cgroup(_) if attempt.group.is_none() => tree::loose(attempt.whose(&self.root)),
            Tree::Cgroup(_) | Tree::Loose => Vec::new(),
        };
        found.extend(self.unclaimed_children(&attempt.key));
        found.extend(self.main_of(&attempt.key));
        if found.is_empty() {
            return found;
        }
        if attempt.tree == Tree::Loose {
            let known = tree::loose(attempt.whose(&self.root));
            found.retain(|stat| !known.iter().any(|it| it.pid == stat.pid));
        }
        found.retain(|stat| !is_fenced(attempt, stat.pid));
        found
    }

    /// The main process, while it is our child and alive.
    fn main_of(&self, key: &Key) -> Option<Stat> {
        let (&pid, _) = self.children.iter().find(|(_, of)| *of == key)?;
        Stat::read(pid).filter(Stat::is_alive)
    }

    /// Live children of ours that belong to no attempt, or to this one.
    fn unclaimed_children(&self, key: &Key) -> Vec<Stat> {
        let us = rustix::process::getpid().as_raw_pid();
        let mut seen = HashSet::new();
        loop {
            let mut new = proc::children(us);
            new.retain(|pid| !self.children.contains_key(pid) && seen.insert(*pid));
            if new.is_empty() {
                return Vec::new();
            }
            let mut found: Vec<Stat> = new.into_iter().filter_map(Stat::read).collect();
            found.retain(|stat| stat.is_alive() && !self.is_anothers(key, stat));
            if !found.is_empty() {
                return found;
            }
            // What an ended child leaves is our child by now: the list is read again.
        }
    }

    fn is_anothers(&self, key: &Key, stat: &Stat) -> bool {
        if self.children.get(&stat.session).is_some_and(|of| of != key) {
            return true;
        }
        let cgroup = cgroup::of(stat.pid);
        let holds = |other: &Attempt| match (&other.tree, &cgroup) {
            (Tree::Cgroup(dir), Some(cgroup)) => cgroup.starts_with(dir),
            _ => false,
        };
        let others = || self.attempts.values().filter(|other| other.key != *key);
        others().any(holds)
            || others().any(|it| it.main.is_some_and(|(main, _)| main == stat.session))
            || proc::attempt_of(stat.pid, &self.root, &self.users())
                .is_some_and(|of| of != *key && self.attempts.contains_key(&of))
    }
}

/// Whether a process is in the cgroup of the attempt, where the means of its tree reach it.
fn is_fenced(attempt: &Attempt, pid: i32) -> bool {
    match &attempt.tree {
        Tree::Cgroup(dir) => cgroup::of(pid).is_some_and(|of| of.starts_with(dir)),
        Tree::Minder { .. } | Tree::Loose => false,
    }
}

/// The live children of a root's keeper that belong to no attempt, as another process sees them: by
/// pid and start time. What is just being started may be among them for a moment.
pub fn unclaimed(run_dir: &Path, root: &Path) -> Vec<(i32, u64)> {
    let Some(keeper) = holder_of(&run_dir.join(LOCK)) else {
        return Vec::new();
    };
    let known = journal::read(run_dir).unwrap_or_default();
    let users = proc::Users::of(run_dir);
    let fence = super::tag_of(run_dir)
        .map(|tag| format!("handoffd-{}", tag.to_string_lossy()))
        .unwrap_or_default();
    let is_known = |stat: &Stat| {
        let of_entry = |entry: &journal::Entry| {
            let main = entry.pid.zip(entry.starttime);
            [main, entry.minder].contains(&Some((stat.pid, stat.starttime)))
                || main.is_some_and(|(main, _)| main == stat.session)
                || proc::attempt_of(stat.pid, root, &users).as_ref() == Some(&entry.key)
        };
        let in_fence =
            cgroup::of(stat.pid).is_some_and(|dir| dir.iter().any(|name| name == fence.as_str()));
        in_fence || known.iter().filter(|entry| !entry.gone).any(of_entry)
    };
    let children = proc::children(keeper).into_iter().filter_map(Stat::read);
    children
        .filter(|stat| stat.is_alive() && !is_known(stat))
        .map(|stat| (stat.pid, stat.starttime))
        .collect()
}

/// The process that holds the lock on a file.
fn holder_of(path: &Path) -> Option<i32> {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{}", std::fs::metadata(path).ok()?.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // As in `1: FLOCK ADVISORY WRITE 4711 fd:01:5678 0 EOF`. The device is the file system's own,
    // which is not what a look at the file says everywhere, so the holder's name is looked at, too.
    let holders = locks.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = words.get(1) == Some(&"FLOCK") && words.get(5)?.ends_with(&inode);
        words.get(4)?.parse().ok().filter(|_| is_it)
    });
    let mut keepers = holders.filter(|pid: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim_end() == super::NAME
    });
    keepers.next()
}
