//! Processes as /proc shows them: who they are, whose they are, and signals that can't hit
//! the wrong one.
//!
//! A pid alone names nobody: it may have been given to another process since it was read. Here
//! a process is a pid and its start time, and a signal goes through a pidfd that was opened
//! first and checked second. Descendants are found by walking all of /proc, because the
//! `children` files are not there in every kernel; where they are, they are the quick way to
//! those that would be gone by the end of the walk.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::journal;
use super::wire::Key;
use crate::mutant;

/// What `/proc/<pid>/stat` says that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    pub state: u8,
    pub ppid: i32,
    pub session: i32,
    /// Processor time, its own and that of children it waited for, in clock ticks.
    pub ticks: u64,
    pub threads: u64,
    /// In clock ticks since boot. With the pid, it names a process within this boot.
    pub starttime: u64,
}

impl Stat {
    /// Of one process; none if it is gone.
    pub fn read(pid: i32) -> Option<Self> {
        // In one read, which is one look: the line has room for every field at its longest.
        let mut text = [0; 2048];
        let length = File::open(format!("/proc/{pid}/stat"))
            .and_then(|mut file| file.read(&mut text))
            .ok()?;
        Self::parse(&text[..length])
    }

    fn parse(text: &[u8]) -> Option<Self> {
        // The name in parentheses is the process's to choose, so only its last one counts.
        let close = text.iter().rposition(|&byte| byte == b')')?;
        let pid = std::str::from_utf8(text.split(|&byte| byte == b' ').next()?).ok()?;
        let rest = std::str::from_utf8(&text[close + 1..]).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            state: *fields.first()?.as_bytes().first()?,
            ppid: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            // Those of waited-for children are signed, and negative nowhere.
            ticks: number(11)? + number(12)? + number(13).unwrap_or(0) + number(14).unwrap_or(0),
            threads: number(17)?,
            starttime: number(19)?,
        })
    }

    /// Whether it can still do anything. A zombie can't, unless only its first thread is one.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X') || self.threads > 1
    }
}

/// Whether this very process, and not a later one with its pid, is still alive.
pub fn is_alive(pid: i32, starttime: u64) -> bool {
    let is_it = |stat: &Stat| stat.starttime == starttime || mutant::is("forged-record-believed");
    Stat::read(pid).is_some_and(|stat| is_it(&stat) && stat.is_alive())
}

/// A descriptor for this very process, or none if it is gone.
pub fn open(pid: i32, starttime: u64) -> Option<OwnedFd> {
    let fd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    is_alive(pid, starttime).then_some(fd)
}

/// Signals each of these very processes that is still there.
pub fn signal_all<'a>(processes: impl IntoIterator<Item = &'a Stat>, signal: Signal) {
    for process in processes {
        if let Some(fd) = open(process.pid, process.starttime) {
            // It may have ended since, and then there is nothing to do.
            let _ = pidfd_send_signal(fd, signal);
        }
    }
}

/// Kills the children of `parent` that are there now; false if there was none to kill, or the
/// kernel does not list them.
///
/// What forks and leaves faster than /proc can be walked is never found in a walk. Below a
/// subreaper it is a child at nearly every moment, and this takes a moment.
pub fn kill_children(parent: i32) -> bool {
    let mut any = false;
    for pid in listed_children(parent).unwrap_or_default() {
        let Some(pid) = Pid::from_raw(pid) else {
            continue;
        };
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        let stat = Stat::read(pid.as_raw_pid());
        if stat.is_some_and(|stat| stat.ppid == parent && stat.is_alive()) {
            any |= pidfd_send_signal(fd, Signal::KILL).is_ok();
        }
    }
    any
}

/// The children of a process with one thread, also those that have ended and were not waited for.
pub fn children(parent: i32) -> Vec<i32> {
    listed_children(parent).unwrap_or_else(|_| {
        let all = snapshot().into_values();
        all.filter(|stat| stat.ppid == parent)
            .map(|stat| stat.pid)
            .collect()
    })
}

fn listed_children(parent: i32) -> io::Result<Vec<i32>> {
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    Ok(list
        .split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect())
}

/// Every process there is, by pid.
pub fn snapshot() -> HashMap<i32, Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return HashMap::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Stat::read)
        .map(|stat| (stat.pid, stat))
        .collect()
}

/// All that descend from `roots`, these not included, zombies not included.
pub fn descendants(snapshot: &HashMap<i32, Stat>, roots: &[i32]) -> Vec<Stat> {
    let mut children: HashMap<i32, Vec<&Stat>> = HashMap::new();
    for stat in snapshot.values() {
        children.entry(stat.ppid).or_default().push(stat);
    }
    let mut seen: HashSet<i32> = roots.iter().copied().collect();
    let mut open: Vec<i32> = roots.to_vec();
    let mut found = Vec::new();
    while let Some(pid) = open.pop() {
        for stat in children.get(&pid).into_iter().flatten() {
            if seen.insert(stat.pid) {
                open.push(stat.pid);
                if stat.is_alive() {
                    found.push(**stat);
                }
            }
        }
    }
    found
}

/// The users whose processes may be attempts of a root. What others have in their environment is
/// their own business.
#[derive(Debug, Clone)]
pub struct Users(HashSet<u32>);

impl Users {
    /// Our own, and others that attempts run as.
    pub fn with(others: impl IntoIterator<Item = u32>) -> Self {
        let own = rustix::process::geteuid().as_raw();
        Self(others.into_iter().chain([own]).collect())
    }

    /// The daemon's, whose the run folder is, and all that the keeper's journal names.
    pub fn of(run_dir: &Path) -> Self {
        use std::os::unix::fs::MetadataExt;
        let daemon = fs::metadata(run_dir).map(|meta| meta.uid());
        Self(journal::users(run_dir).into_iter().chain(daemon).collect())
    }

    /// Whether a process is of one of them, whoever it acts as.
    fn have(&self, pid: i32) -> bool {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let user = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        user.and_then(|users| users.split_ascii_whitespace().next()?.parse().ok())
            .is_some_and(|user| self.0.contains(&user))
    }
}

/// The attempt of this root that a process was started for, as its environment says, if it is a
/// process of one of these users.
pub fn attempt_of(pid: i32, root: &Path, users: &Users) -> Option<Key> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    key_in(&environ, root).filter(|_| users.have(pid))
}

fn key_in(environ: &[u8], root: &Path) -> Option<Key> {
    let value = |name: &[u8]| {
        environ
            .split(|&byte| byte == 0)
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix(b"="))
    };
    if value(b"HANDOFF_ROOT")? != root.as_os_str().as_bytes() {
        return None;
    }
    // The key itself where it differs, as it does for what checks an attempt's work.
    let id = value(b"HANDOFFD_KEY").or_else(|| value(b"HANDOFF_ID"))?;
    let id = std::str::from_utf8(id).ok()?;
    // Likewise: a resident process has no attempt of its own.
    let attempt = value(b"HANDOFFD_ATTEMPT").or_else(|| value(b"HANDOFF_ATTEMPT"))?;
    let attempt = std::str::from_utf8(attempt).ok()?;
    Some(Key::new(id, attempt.parse().ok()?))
}

/// A process and all that it descends from, the nearest first; none if one of them is gone.
pub fn lineage(pid: i32) -> Option<Vec<Stat>> {
    let mut line: Vec<Stat> = Vec::new();
    let mut next = pid;
    while next > 0 {
        let stat = Stat::read(next)?;
        next = stat.ppid;
        line.push(stat);
    }
    Some(line)
}

/// A process that belongs to an attempt of a root, by its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    pub pid: i32,
    pub starttime: u64,
    pub key: Key,
}

/// Every live process whose environment says that it belongs to an attempt of `root` (of the
/// handoff `id`, where one is given), whoever its parent is. One scan of /proc.
///
/// Which of them are strays is for the caller to tell: those whose key no journal knows as
/// running. Processes of users other than these are not found, nor what can't be looked into.
pub fn alive_outside(root: &Path, users: &Users, id: Option<&str>) -> io::Result<Vec<Stray>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let Some(key) = attempt_of(pid, root, users) else {
            continue;
        };
        let Some(stat) = Stat::read(pid) else {
            continue;
        };
        if stat.is_alive() && id.is_none_or(|id| id == key.id) {
            found.push(Stray {
                pid,
                starttime: stat.starttime,
                key,
            });
        }
    }
    Ok(found)
}

/// Clock ticks as milliseconds.
pub fn ticks_to_ms(ticks: u64) -> u64 {
    // SAFETY: asks for a constant of the system, and touches no memory of ours.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    ticks * 1000 / u64::try_from(per_second).unwrap_or(100).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_process_name_does_not_mislead() {
        let text = b"42 (a) R 1 (b) c) S 7 8 9 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 12345 9";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.pid, stat.ppid, stat.session), (42, 7, 9));
        assert_eq!((stat.state, stat.ticks, stat.starttime), (b'S', 100, 12345));
    }

    #[test]
    fn a_pid_with_another_start_time_is_somebody_else() {
        let me = Stat::read(std::process::id().cast_signed()).unwrap();
        assert!(open(me.pid, me.starttime).is_some());
        assert!(open(me.pid, me.starttime + 1).is_none());
        assert!(snapshot().contains_key(&me.pid));
    }

    #[test]
    fn an_attempt_is_known_by_all_three_of_its_variables() {
        let root = Path::new("/r");
        let environ = b"A=1\0HANDOFF_ROOT=/r\0HANDOFF_ID=x\0HANDOFF_ATTEMPT=3\0";
        assert_eq!(key_in(environ, root), Some(Key::new("x", 3)));
        assert_eq!(key_in(environ, Path::new("/other")), None);
        let resident = b"HANDOFF_ROOT=/r\0HANDOFFD_KEY=~resident\0HANDOFFD_ATTEMPT=2\0";
        assert_eq!(key_in(resident, root), Some(Key::new("~resident", 2)));
        assert_eq!(key_in(b"HANDOFF_ROOT=/r\0HANDOFF_ID=x\0", root), None);
    }

    #[test]
    fn descendants_do_not_include_their_root_or_zombies() {
        let stat = |pid, ppid, state| {
            let stat = Stat {
                pid,
                state,
                ppid,
                session: 0,
                ticks: 0,
                threads: u64::from(state != b'Z'),
                starttime: 0,
            };
            (pid, stat)
        };
        let all = HashMap::from([
            stat(1, 0, b'S'),
            stat(10, 1, b'S'),
            stat(11, 10, b'Z'),
            stat(12, 10, b'S'),
            stat(13, 12, b'T'),
            stat(20, 1, b'S'),
        ]);
        let mut found: Vec<i32> = descendants(&all, &[10]).iter().map(|s| s.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [12, 13]);
    }

    #[test]
    fn children_are_killed_and_their_parent_is_not() {
        let sh = "sleep 60 & echo; wait $!; echo killed; exec sleep 60";
        let mut parent = std::process::Command::new("sh")
            .args(["-c", sh])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = i32::try_from(parent.id()).unwrap();
        let mut lines = io::BufRead::lines(io::BufReader::new(parent.stdout.take().unwrap()));
        assert_eq!(lines.next().unwrap().unwrap(), "", "it has a child now");
        if kill_children(pid) {
            assert_eq!(lines.next().unwrap().unwrap(), "killed");
            assert!(!kill_children(pid), "none is left");
        } else {
            let list = format!("/proc/{pid}/task/{pid}/children");
            assert!(!fs::exists(&list).unwrap(), "{list} was not heeded");
        }
        assert!(Stat::read(pid).unwrap().is_alive());
        parent.kill().unwrap();
        parent.wait().unwrap();
    }

    #[test]
    fn a_child_descends_from_us_and_we_do_not_from_it() {
        let descends = |pid, from| {
            lineage(pid).is_none_or(|line| line.iter().skip(1).any(|stat| stat.pid == from))
        };
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let us = rustix::process::getpid().as_raw_pid();
        assert!(descends(pid, us));
        assert!(!descends(us, pid));
        assert!(!descends(1, us));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(descends(pid, us), "one that is gone may have been anyone");
    }
}
