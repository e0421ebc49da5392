//! Whether a daemon runs on a root, and what it says of itself.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;

use serde_json::Value;

use crate::clock::Wall;
use crate::keeper::is_alive;
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
/// Readable only for those who may look into its process.
fn in_memory(pid: u64, told: &Value) -> Option<Value> {
    let fd = told.get("memory_fd").and_then(Value::as_u64)?;
    (0..LOOKS).find_map(|_| {
        // It says itself which process it is, so that whatever else stands there is not believed.
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(format!("/proc/{pid}/fd/{fd}"))
            .ok()?;
        let mut bytes = Vec::new();
        file.take(MOST_SHOWN).read_to_end(&mut bytes).ok()?;
        let shown: Value = serde_json::from_slice(&bytes).ok()?;
        (shown.get("pid") == told.get("pid") && shown.get("start_time") == told.get("start_time"))
            .then_some(shown)
    })
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
        let Some(told) = told else {
            return Self::default();
        };
        let pid = told.get("pid").and_then(Value::as_u64);
        let started = told.get("start_time").and_then(Value::as_u64);
        let process = pid.and_then(|pid| i32::try_from(pid).ok()).zip(started);
        // The lock would tell too, but only who tries to take it, and a daemon that starts at that
        // moment would find it taken.
        let running = process.is_some_and(|(pid, started)| is_alive(pid, started));
        if !running {
            return Self::default();
        }
        let told = pid.and_then(|pid| in_memory(pid, &told)).unwrap_or(told);
        let text = |key: &str| told.get(key).and_then(Value::as_str).map(str::to_owned);
        Self {
            running,
            hidden: false,
            stopping: told.get("stopping").and_then(Value::as_bool) == Some(true),
            pid,
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
    use crate::keeper::start_time;

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
        // A text in memory is believed before the file, but only this process's own.
        let memory = tempfile::tempfile().unwrap();
        let start = start_time(i32::try_from(own).unwrap()).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&memory);
        for (start_time, problem) in [(start, "full"), (1, "p")] {
            let text = format!(r#"{{"pid":{own},"start_time":{start_time},"problems":["full"]}}"#);
            memory.set_len(0).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&memory, text.as_bytes(), 0).unwrap();
            let text = format!(
                r#"{{"pid":{own},"start_time":{start},"memory_fd":{fd},"problems":["p"]}}"#
            );
            fs::write(layout.daemon_file(), text).unwrap();
            assert_eq!(Daemon::of(&layout).problems, [problem]);
        }
        write(1);
        assert_eq!(Daemon::of(&layout), Daemon::default());
    }
}
