//! Processes seen from outside: who is alive, who belongs to a root, and the end of them.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a keeper may take to leave once it has nothing to keep.
const LEAVING: Duration = Duration::from_secs(20);

/// Whether the process runs; one that only waits to be buried does not.
pub fn is_alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat.rfind(')').and_then(|at| stat[at..].chars().nth(2));
    !matches!(state, Some('Z' | 'X') | None)
}

/// Sends a signal to one process, which may be gone already.
pub fn kill(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

fn command_line(pid: i32) -> Vec<Vec<u8>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

fn pids() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The keeper of a root, and its minders, which look the same.
pub fn keepers(root: &Path) -> Vec<i32> {
    let is_keeper = |pid: &i32| {
        let line = command_line(*pid);
        line.get(1).is_some_and(|word| word == b"keeper")
            && line.iter().any(|word| word == root.as_os_str().as_bytes())
    };
    pids()
        .filter(is_keeper)
        .filter(|pid| is_alive(*pid))
        .collect()
}

/// The keeper itself.
pub fn keeper(root: &Path) -> i32 {
    find_keeper(root).expect("a keeper")
}

/// The keeper, if there is one now: the one that is nobody's child among them.
pub fn find_keeper(root: &Path) -> Option<i32> {
    let all = keepers(root);
    let parent = |pid: &i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat[stat.rfind(')')?..].split(' ').nth(2)?.parse().ok()
    };
    let is_top = |pid: &&i32| parent(pid).is_some_and(|parent| !all.contains(&parent));
    all.iter().find(is_top).copied()
}

/// What runs for a root's handoffs, by the variable that each attempt is given.
pub fn attempts(root: &Path) -> Vec<i32> {
    let wanted = [b"HANDOFF_ROOT=", root.as_os_str().as_bytes()].concat();
    let is_ours = |pid: &i32| {
        let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        env.split(|byte| *byte == 0).any(|word| word == wanted)
    };
    pids().filter(is_ours).collect()
}

/// Ends what a test has left running: its attempts by force, and the keeper by leaving it
/// nothing to keep.
pub fn sweep(root: &Path) {
    let begun = Instant::now();
    loop {
        let attempts = attempts(root);
        let keepers = keepers(root);
        if attempts.is_empty() && keepers.is_empty() {
            return;
        }
        for pid in attempts {
            kill(pid, Signal::KILL);
        }
        if begun.elapsed() > LEAVING {
            for pid in keepers {
                eprintln!("keeper {pid} of {} did not leave", root.display());
                kill(pid, Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
