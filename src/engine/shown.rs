//! Who runs here and what is wrong, for other programs to read.
//!
//! `.handoffd/daemon.json` has the text. A disk that is full, read-only or dead takes no news, and that is
//! the very news to tell; so a file in memory has the same text, for the daemon's user and root. Nobody
//! may look into the process itself, which keeps secrets.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::json;

use crate::clock::Wall;
use crate::durable;
use crate::engine::Engine;
use crate::engine::world::World;
use crate::keeper::{is_alive, start_time};
use crate::spool::layout::{DAEMON_IN_MEMORY, Layout, MEMORY};

/// The text in memory, where the system has such files, and how new it is.
#[derive(Debug)]
pub struct Shown {
    /// Snapshots are numbered when they are taken: several threads write them, in any order.
    taken: AtomicU64,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    memory: Option<(PathBuf, File)>,
    number: u64,
}

impl Shown {
    pub fn new() -> Self {
        Self {
            taken: AtomicU64::new(0),
            written: Mutex::new(Written {
                memory: in_memory(),
                number: 0,
            }),
        }
    }

    fn number(&self) -> u64 {
        self.taken.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Deletes the file in memory.
    pub fn forget(&self) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((path, _)) = written.memory.take() {
            let _ = fs::remove_file(path);
        }
    }
}

impl Default for Shown {
    fn default() -> Self {
        Self::new()
    }
}

fn in_memory() -> Option<(PathBuf, File)> {
    sweep_memory();
    let pid = std::process::id();
    let start = i32::try_from(pid).ok().and_then(start_time)?;
    let path = Layout::daemon_in_memory(pid, start);
    // What another user put there is left alone.
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .ok()?;
    Some((path, file))
}

/// Deletes what killed daemons of this user left.
fn sweep_memory() {
    let me = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(MEMORY).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| {
            let (pid, start) = name.strip_prefix(DAEMON_IN_MEMORY)?.split_once('-')?;
            Some((pid.parse().ok()?, start.parse().ok()?))
        });
        let is_mine = || entry.metadata().is_ok_and(|found| found.uid() == me);
        if process.is_some_and(|(pid, start)| !is_alive(pid, start)) && is_mine() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Engine {
    /// Has it written.
    pub(super) fn publish(&self) {
        let problems: Vec<String> = self.problems.values().cloned().collect();
        let (since, watching) = (self.since, self.watcher.describe());
        let stopping = self.stopping.is_some();
        let number = self.world.shown.number();
        self.actors.run(move |world| {
            publish(world, number, since, stopping, &watching, &problems);
        });
    }
}

/// Writes who runs here, since when, whether for much longer, and what is wrong.
fn publish(
    world: &World,
    number: u64,
    since: Wall,
    stopping: bool,
    watching: &str,
    problems: &[String],
) {
    let written = world.shown.written.lock();
    // Held to the end: of two who publish at once, one is the later in both places.
    let mut written = written.unwrap_or_else(PoisonError::into_inner);
    if number < written.number {
        return;
    }
    written.number = number;
    let memory = &written.memory;
    let shown = json!({
        "pid": std::process::id(),
        "start_time": i32::try_from(std::process::id()).ok().and_then(start_time),
        "version": env!("CARGO_PKG_VERSION"),
        "since": since.to_string(),
        "stopping": stopping,
        "watching": watching,
        "metrics": world.metrics.map(|address| address.to_string()),
        "problems": problems,
    });
    let mut bytes = serde_json::to_vec_pretty(&shown).unwrap_or_default();
    bytes.push(b'\n');
    if let Some((_, file)) = memory.as_ref()
        && let Err(error) = rewrite(file, &bytes)
    {
        tracing::debug!("what is shown in memory: {error}");
    }
    let path = world.layout.daemon_file();
    let temp = world.layout.own().join("daemon.json.tmp");
    if let Err(error) = durable::write_whole(&path, &temp, &bytes, durable::Durability::Relaxed) {
        tracing::debug!("{}: {error}", path.display());
    }
}

/// A reader may see the middle of this, finds no whole document, and looks again.
fn rewrite(file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, 0)?;
    file.set_len(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
}
