//! Who runs here and what is wrong, for other programs to read.
//!
//! It stands in `.handoffd/daemon.json`. A disk that is full, read-only or dead takes no news, and
//! that is the very news to tell; so the same text is kept in memory, in a file without a name that
//! those who may look into this process reach by way of `/proc`. The file on disk says where.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::clock::Wall;
use crate::durable;
use crate::engine::Engine;
use crate::engine::world::World;
use crate::keeper::start_time;

/// The text in memory, where the system has such files, and how new it is.
#[derive(Debug)]
pub struct Shown {
    /// Snapshots are numbered when they are taken: several threads write them, in any order.
    taken: AtomicU64,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    memory: Option<File>,
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
}

impl Default for Shown {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(target_os = "linux")]
fn in_memory() -> Option<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    rustix::fs::memfd_create("handoffd.json", flags)
        .ok()
        .map(File::from)
}

#[cfg(not(target_os = "linux"))]
fn in_memory() -> Option<File> {
    None
}

fn descriptor(file: &File) -> i32 {
    use std::os::fd::AsRawFd;
    file.as_raw_fd()
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
    let mut shown = json!({
        "pid": std::process::id(),
        "start_time": i32::try_from(std::process::id()).ok().and_then(start_time),
        "version": env!("CARGO_PKG_VERSION"),
        "since": since.to_string(),
        "stopping": stopping,
        "watching": watching,
        "metrics": world.metrics.map(|address| address.to_string()),
        "problems": problems,
    });
    if let Some(file) = memory.as_ref() {
        shown["memory_fd"] = Value::from(descriptor(file));
    }
    let mut bytes = serde_json::to_vec_pretty(&shown).unwrap_or_default();
    bytes.push(b'\n');
    if let Some(file) = memory.as_ref()
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
