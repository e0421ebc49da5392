//! Whether a daemon runs on a root, and what it says of itself.

use std::fs;
use std::net::SocketAddr;

use serde_json::Value;

use crate::clock::Wall;
use crate::keeper::start_time;
use crate::spool::layout::Layout;

/// What `.handoffd/daemon.json` says, and whether its process is still that one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Daemon {
    pub running: bool,
    pub pid: Option<u64>,
    pub version: Option<String>,
    pub since: Option<Wall>,
    pub watching: Option<String>,
    /// Where it serves its figures, if it does.
    pub metrics: Option<SocketAddr>,
    pub problems: Vec<String>,
}

impl Daemon {
    pub fn of(layout: &Layout) -> Self {
        let Some(told) = fs::read(layout.daemon_file())
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok())
        else {
            return Self::default();
        };
        let text = |key: &str| told.get(key).and_then(Value::as_str).map(str::to_owned);
        let pid = told.get("pid").and_then(Value::as_u64);
        let started = pid.and_then(|pid| start_time(i32::try_from(pid).ok()?));
        let running =
            started.is_some() && started == told.get("start_time").and_then(Value::as_u64);
        if !running {
            return Self::default();
        }
        Self {
            running,
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
        write(1);
        assert_eq!(Daemon::of(&layout), Daemon::default());
    }
}
