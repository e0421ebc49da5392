//! Whether a daemon runs on a root, and what it says of itself.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use serde_json::Value;

use crate::clock::Wall;
use crate::keeper::{is_alive, start_time};
use crate::spool::layout::Layout;

/// What `.handoffd/daemon.json` says, and whether its process is still that one, and alive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Daemon {
    pub running: bool,
    /// Whoever asks may not know.
    pub hidden: bool,
    /// It waits for its last attempts and begins nothing new.
    pub stopping: bool,
    pub pid: Option<u64>,
    pub version: Option<String>,
    pub since: Option<Wall>,
    pub watching: Option<String>,
    /// Where it serves its figures, if it does.
    pub metrics: Option<SocketAddr>,
    pub problems: Vec<String>,
}

/// More than a daemon ever says of itself.
const MOST_SHOWN: u64 = 16 * 1024 * 1024;

/// How often a text is looked at that is being rewritten.
const LOOKS: usize = 5;

/// What the daemon keeps in memory of the same: newer than its file where the disk takes nothing.
/// Readable only for its user and root.
fn in_memory(pid: i32, start: u64) -> Option<Value> {
    let path = Layout::daemon_in_memory(pid.unsigned_abs(), start);
    (0..LOOKS).find_map(|_| {
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
            .open(&path)
            .ok()?;
        // Anybody may put a file there; only the daemon's own is believed.
        let found = file.metadata().ok()?;
        if !found.is_file() || Some(found.uid()) != user_of(pid) {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(MOST_SHOWN).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    })
}

/// Whom a process runs as. Its folder in `/proc` may be root's, where others may not look into it.
fn user_of(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The process that holds the lock on the root, and when it began. A daemon that began on a full disk
/// has nothing else to be known by. Taking the lock would tell too, but a daemon that starts at that
/// moment would find it taken.
fn holder(layout: &Layout) -> Option<(i32, u64)> {
    let folder = fs::metadata(layout.handoffs()).ok()?;
    let (major, minor) = (
        rustix::fs::major(folder.dev()),
        rustix::fs::minor(folder.dev()),
    );
    let file = format!("{major:02x}:{minor:02x}:{}", folder.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        // 1: FLOCK  ADVISORY  WRITE 1579 00:2a:12345 0 EOF
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["FLOCK", _, "WRITE", pid, found, ..] = *words.get(1..)? else {
            return None;
        };
        let pid = pid.parse().ok().filter(|_| found == file)?;
        Some((pid, start_time(pid)?))
    })
}

/// The process that the daemon's file names, if it is alive.
fn named(told: &Value) -> Option<(i32, u64)> {
    let pid = i32::try_from(told.get("pid")?.as_u64()?).ok()?;
    let start = told.get("start_time")?.as_u64()?;
    is_alive(pid, start).then_some((pid, start))
}

impl Daemon {
    /// Whether one runs, as far as whoever asks may know.
    pub fn may_run(&self) -> bool {
        self.running || self.hidden
    }

    pub fn of(layout: &Layout) -> Self {
        let told = match fs::read(layout.daemon_file()) {
            Ok(bytes) => serde_json::from_slice::<Value>(&bytes).ok(),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Self {
                    hidden: true,
                    ..Self::default()
                };
            }
            Err(_) => None,
        };
        let told = told.and_then(|told| Some((named(&told)?, told)));
        // One that has shown nothing yet is still starting.
        let unnamed = || {
            let process = holder(layout)?;
            Some((process, in_memory(process.0, process.1)?))
        };
        let Some(((pid, start), told)) = told.or_else(unnamed) else {
            return Self::default();
        };
        let told = in_memory(pid, start).unwrap_or(told);
        let text = |key: &str| told.get(key).and_then(Value::as_str).map(str::to_owned);
        Self {
            running: true,
            hidden: false,
            stopping: told.get("stopping").and_then(Value::as_bool) == Some(true),
            pid: u64::try_from(pid).ok(),
            version: text("version"),
            since: text("since").and_then(|since| Wall::parse(&since)),
            watching: text("watching"),
            metrics: text("metrics").and_then(|address| address.parse().ok()),
            problems: told
                .get("problems")
                .and_then(Value::as_array)
                .map(|list| {
                    list.iter()
                        .filter_map(Value::as_str)
                        .map(str::to_owned)
                        .collect()
                })
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start_and_a_stale_file_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        assert!(!Daemon::of(&layout).running);
        let own = u64::from(std::process::id());
        let write = |start: u64| {
            let text = format!(r#"{{"pid":{own},"start_time":{start},"problems":["p"]}}"#);
            fs::write(layout.daemon_file(), text).unwrap();
        };
        write(start_time(i32::try_from(own).unwrap()).unwrap());
        let daemon = Daemon::of(&layout);
        assert_eq!((daemon.running, daemon.pid), (true, Some(own)));
        assert_eq!(daemon.problems, ["p"]);
        // A text in memory is believed before the file.
        let start = start_time(i32::try_from(own).unwrap()).unwrap();
        let memory = Layout::daemon_in_memory(std::process::id(), start);
        let text = format!(r#"{{"pid":{own},"start_time":{start},"problems":["full"]}}"#);
        fs::write(&memory, text).unwrap();
        assert_eq!(Daemon::of(&layout).problems, ["full"]);
        write(1);
        assert_eq!(Daemon::of(&layout), Daemon::default());
        // The lock tells of one whose file is of another or missing.
        let folder = File::open(layout.handoffs()).unwrap();
        folder.try_lock().unwrap();
        for stale in [true, false] {
            let daemon = Daemon::of(&layout);
            assert_eq!((daemon.running, daemon.pid), (true, Some(own)), "{stale}");
            let _ = fs::remove_file(layout.daemon_file());
        }
        // One that has shown nothing is still starting.
        fs::remove_file(memory).unwrap();
        assert!(!Daemon::of(&layout).running);
    }
}
