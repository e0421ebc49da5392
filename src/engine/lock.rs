//! The lock on a root: one daemon each.
//!
//! It is the kernel's, on `handoffs/` itself, and goes with whoever holds it. A daemon that is
//! killed while it starts another program leaves a child that holds a copy until it has become
//! that program. So a start that finds the lock taken, and nobody alive who would say that the
//! root is his, waits for a moment before it believes in another daemon.

use std::fs::{File, TryLockError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::engine::start_error::{StartError, system};
use crate::keeper::is_alive;
use crate::spool::layout::Layout;

/// How long a child on its way may hold a dead daemon's lock, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(10);

/// Holds the root for as long as it is open; waits for who is about to let go.
pub fn hold_patiently(layout: &Layout) -> Result<File, StartError> {
    let begun = Instant::now();
    loop {
        match hold(layout) {
            Err(StartError::Locked { .. }) if begun.elapsed() < PATIENCE && !is_held(layout) => {
                std::thread::sleep(PAUSE);
            }
            held => return held,
        }
    }
}

/// Holds the root for as long as it is open.
pub fn hold(layout: &Layout) -> Result<File, StartError> {
    let folder = File::open(layout.handoffs()).map_err(system("can't open handoffs/"))?;
    match folder.try_lock() {
        Ok(()) => Ok(folder),
        Err(TryLockError::WouldBlock) => Err(StartError::Locked {
            root: layout.root().to_owned(),
            pid: shown(layout).and_then(|daemon| daemon.get("pid")?.as_u64()),
        }),
        Err(TryLockError::Error(error)) => Err(system("can't lock handoffs/")(error)),
    }
}

/// What the last daemon said of itself.
fn shown(layout: &Layout) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(layout.daemon_file()).ok()?).ok()
}

/// Whether that daemon is alive.
fn is_held(layout: &Layout) -> bool {
    let alive = || {
        let daemon = shown(layout)?;
        let pid = i32::try_from(daemon.get("pid")?.as_u64()?).ok()?;
        Some(is_alive(pid, daemon.get("start_time")?.as_u64()?))
    };
    alive().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::start_time;

    #[test]
    fn a_lock_that_a_dead_daemon_s_child_still_holds_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        let held = hold(&layout).unwrap();
        let child = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(held);
        });
        assert!(hold_patiently(&layout).is_ok());
        child.join().unwrap();
    }

    #[test]
    fn a_daemon_that_is_alive_is_believed_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        let _held = hold(&layout).unwrap();
        let pid = std::process::id();
        let start = start_time(i32::try_from(pid).unwrap());
        let text = serde_json::json!({ "pid": pid, "start_time": start }).to_string();
        std::fs::write(layout.daemon_file(), text).unwrap();
        let told = hold_patiently(&layout).unwrap_err();
        assert!(matches!(told, StartError::Locked { pid: Some(it), .. } if it == u64::from(pid)));
    }
}
