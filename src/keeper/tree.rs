//! All processes of one attempt: who they are, ending them, and knowing that none is left.
//!
//! Three kinds. In a cgroup the kernel keeps the list. Below a minder they are its descendants,
//! and they are gone when the minder is. If a minder was killed they are *loose*: known by their
//! session and by the environment they were started with, which is all that is left to go by; a
//! process that cleared its environment, left its session and lost its parent is then not
//! found.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process_group};

use super::wire::Key;
use super::{cgroup, proc};
use crate::clock;
use crate::mutant;
use proc::{Stat, Users};

/// Rounds of stopping before the kill. Each finds what the last one's were starting.
const ROUNDS: usize = 20;

/// How long the children of a minder are killed as they come, before the rounds.
const DASH_MS: u64 = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tree {
    Cgroup(PathBuf),
    Minder { pid: i32, starttime: u64 },
    Loose,
}

/// Whose tree it is.
#[derive(Debug, Clone, Copy)]
pub struct Whose<'a> {
    pub root: &'a Path,
    pub key: &'a Key,
    /// The main process, by pid and start time. Its pid is its session, too.
    pub main: Option<(i32, u64)>,
    /// Another user that it runs as.
    pub user: Option<u32>,
}

impl Tree {
    /// Asks every process to end, also those that are stopped.
    pub fn terminate(&self, whose: Whose<'_>) {
        if let Self::Cgroup(dir) = self {
            cgroup::signal(dir, Signal::TERM);
            cgroup::signal(dir, Signal::CONT);
        } else {
            let members = self.members(whose);
            proc::signal_all(&members, Signal::TERM);
            proc::signal_all(&members, Signal::CONT);
        }
    }

    /// Kills what is there. To be repeated until it is empty.
    pub fn kill(&self, whose: Whose<'_>) {
        if mutant::is("kill-of-the-group-only") {
            let group = whose.main.and_then(|(pid, _)| Pid::from_raw(pid));
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
            return;
        }
        if let Self::Cgroup(dir) = self {
            return cgroup::kill(dir);
        }
        if let Self::Minder { pid, .. } = *self {
            dash(pid);
        }
        // Stopped first, so that none can fork away from under the list.
        let mut members: HashMap<(i32, u64), Stat> = HashMap::new();
        for _ in 0..ROUNDS {
            let mut new = self.members(whose);
            new.retain(|stat| !members.contains_key(&(stat.pid, stat.starttime)));
            if new.is_empty() {
                break;
            }
            proc::signal_all(&new, Signal::STOP);
            members.extend(
                new.into_iter()
                    .map(|stat| ((stat.pid, stat.starttime), stat)),
            );
        }
        proc::signal_all(members.values(), Signal::KILL);
        if let Self::Minder { pid, starttime } = *self {
            // Its own attempt may have stopped it, and it has to see them die.
            if let Some(fd) = proc::open(pid, starttime) {
                let _ = rustix::process::pidfd_send_signal(fd, Signal::CONT);
            }
        }
    }

    pub fn is_empty(&self, whose: Whose<'_>) -> bool {
        match self {
            Self::Cgroup(dir) => !cgroup::is_populated(dir),
            Self::Minder { pid, starttime } => !proc::is_alive(*pid, *starttime),
            Self::Loose => self.members(whose).is_empty(),
        }
    }

    /// Processor time used so far, by those that are there and those that were waited for.
    pub fn cpu_ms(&self, whose: Whose<'_>) -> Option<u64> {
        if let Self::Cgroup(dir) = self {
            return cgroup::cpu_ms(dir);
        }
        let ticks = self.members(whose).iter().map(|stat| stat.ticks).sum();
        Some(proc::ticks_to_ms(ticks))
    }

    fn members(&self, whose: Whose<'_>) -> Vec<Stat> {
        match self {
            Self::Cgroup(_) => Vec::new(),
            Self::Minder { pid, .. } => proc::descendants(&proc::snapshot(), &[*pid]),
            Self::Loose => loose(whose),
        }
    }
}

/// Kills what is a minder's child, and what becomes one by that, again and again for a moment.
/// It meets those that hop from one process to the next before a walk of /proc could.
fn dash(minder: i32) {
    let until = clock::boot_ms() + DASH_MS;
    while proc::kill_children(minder) && clock::boot_ms() < until {
        std::thread::yield_now();
    }
}

pub fn loose(whose: Whose<'_>) -> Vec<Stat> {
    let all = proc::snapshot();
    // A session keeps its number from being used again for as long as anyone is in it. So if
    // the number is a process's that is not ours, the session is not ours either.
    let session = whose.main.filter(|(pid, starttime)| {
        let leader = all.get(pid);
        leader.is_none_or(|leader| leader.starttime == *starttime)
            || mutant::is("forged-record-believed")
    });
    let users = Users::with(whose.user);
    let mut members: Vec<Stat> = all
        .values()
        .filter(|stat| {
            session.is_some_and(|(pid, _)| pid == stat.session)
                || proc::attempt_of(stat.pid, whose.root, &users).as_ref() == Some(whose.key)
        })
        .copied()
        .collect();
    let roots: Vec<i32> = members.iter().map(|stat| stat.pid).collect();
    members.retain(Stat::is_alive);
    members.extend(proc::descendants(&all, &roots));
    members
}
