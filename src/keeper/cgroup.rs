//! One cgroup (v2) per attempt: the one fence that a process can't leave by forking.
//!
//! Used where we may make cgroups below our own, without asking for any controller: a cgroup
//! is wanted only as a list of processes that is complete at every moment. An attempt is put
//! into it at clone, or goes there while it still is a copy of the keeper, so nothing it starts
//! can be outside.
//!
//! The v2 hierarchy may be mounted beside the old ones, so its place is read from the mount
//! table and never guessed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Makes the folder for a root's attempts below our own cgroup, if that can be done here.
pub fn base(tag: &str) -> io::Result<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    let own = fs::read("/proc/self/cgroup")?;
    let own = own_dir(&mounts, &own)
        .ok_or_else(|| io::Error::new(ErrorKind::NotFound, "no cgroup v2 hierarchy"))?;
    let base = own.join(format!("handoffd-{tag}"));
    make(&base)?;
    // Where we may make folders but not put processes into them, they are of no use.
    File::options()
        .write(true)
        .open(base.join("cgroup.procs"))?;
    Ok(base)
}

/// The folder of a cgroup, from the texts of `mountinfo` and of the process's `cgroup`.
fn own_dir(mounts: &[u8], own: &[u8]) -> Option<PathBuf> {
    let own = own
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))?;
    let own = PathBuf::from(OsString::from_vec(own.to_vec()));
    mounts.split(|&byte| byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let dash = fields.iter().position(|field| *field == b"-")?;
        if *fields.get(dash + 1)? != b"cgroup2" {
            return None;
        }
        // A container may see only a part of the hierarchy; what is outside can't be used.
        let shown = unescape(fields.get(3)?);
        let below = own.strip_prefix(&shown).ok()?;
        Some(unescape(fields.get(4)?).join(below))
    })
}

/// Spaces and the like stand in the mount table as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let code = after
            .get(..3)
            .filter(|_| byte == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The folder of a process's cgroup, where it can be seen.
pub fn of(pid: i32) -> Option<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    own_dir(&mounts, &fs::read(format!("/proc/{pid}/cgroup")).ok()?)
}

fn make(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Whether any live process is in it or below it. A cgroup that is gone has none.
pub fn is_populated(dir: &Path) -> bool {
    match fs::read_to_string(dir.join("cgroup.events")) {
        Ok(events) => events.lines().any(|line| line == "populated 1"),
        Err(error) => {
            error.kind() != ErrorKind::NotFound && error.raw_os_error() != Some(libc::ENODEV)
        }
    }
}

/// Signals every process in it, those below included, that is there now.
pub fn signal(dir: &Path, signal: Signal) {
    for_each(dir, &mut |dir| {
        // Opened first and checked second: a pid that is still listed afterwards is either the
        // process that was opened, or one whose predecessor is dead and hears nothing.
        let opened: Vec<(Pid, OwnedFd)> = processes(dir)
            .into_iter()
            .filter_map(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)))
            .collect();
        let still = processes(dir);
        for (pid, fd) in opened {
            if still.contains(&pid) {
                let _ = pidfd_send_signal(fd, signal);
            }
        }
    });
}

/// Kills all that is in it and below it.
pub fn kill(dir: &Path) {
    // At once, and without a gap for a fork, where the kernel can (5.14).
    if fs::write(dir.join("cgroup.kill"), "1").is_err() {
        signal(dir, Signal::KILL);
    }
}

/// Processor time used so far.
pub fn cpu_ms(dir: &Path) -> Option<u64> {
    let stat = fs::read_to_string(dir.join("cpu.stat")).ok()?;
    let used = stat
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(used.parse::<u64>().ok()? / 1000)
}

/// Removes it, and what the attempt may have made below it. Busy for a moment after the last
/// process has gone.
pub fn remove(dir: &Path) -> io::Result<()> {
    for child in children(dir) {
        remove(&child)?;
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The cgroups directly below.
pub fn children(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn for_each(dir: &Path, act: &mut dyn FnMut(&Path)) {
    act(dir);
    for child in children(dir) {
        for_each(&child, act);
    }
}

fn processes(dir: &Path) -> Vec<Pid> {
    let list = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    list.lines()
        // Zero stands for a process outside our pid namespace.
        .filter_map(|line| Pid::from_raw(line.parse().ok()?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_wherever_it_is_mounted() {
        let own = b"4:memory:/a\n0::/user.slice/x\n";
        let row = |shown: &str, at: &str, kind: &str| {
            format!("41 31 0:38 {shown} {at} rw,relatime shared:5 - {kind} cgroup2 rw\n")
        };
        for (mounts, found) in [
            (
                row("/", "/sys/fs/cgroup", "cgroup2"),
                Some("/sys/fs/cgroup/user.slice/x"),
            ),
            (
                row("/", "/sys/fs/cgroup/memory", "cgroup")
                    + &row("/", "/sys/fs/cgroup/uni\\040fied", "cgroup2"),
                Some("/sys/fs/cgroup/uni fied/user.slice/x"),
            ),
            (row("/user.slice", "/c", "cgroup2"), Some("/c/x")),
            (row("/other", "/c", "cgroup2"), None),
            (row("/", "/c", "cgroup"), None),
        ] {
            let dir = own_dir(mounts.as_bytes(), own);
            assert_eq!(dir, found.map(PathBuf::from), "{mounts}");
        }
        assert_eq!(own_dir(b"", b"1:cpu:/\n"), None);
    }
}
