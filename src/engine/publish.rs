//! `.handoffd/daemon.json`: who runs here, since when, and what is wrong.

use serde_json::json;

use crate::clock::Wall;
use crate::durable;
use crate::engine::Engine;
use crate::engine::world::World;
use crate::keeper::start_time;

impl Engine {
    /// Writes it for other programs to read.
    pub(super) fn publish(&self) {
        let problems: Vec<String> = self.problems.values().cloned().collect();
        let (since, watching) = (self.since, self.watcher.describe());
        self.actors.run(move |world| {
            publish(world, since, &watching, &problems);
        });
    }
}

fn publish(world: &World, since: Wall, watching: &str, problems: &[String]) {
    let text = json!({
        "pid": std::process::id(),
        "start_time": i32::try_from(std::process::id()).ok().and_then(start_time),
        "version": env!("CARGO_PKG_VERSION"),
        "since": since.to_string(),
        "watching": watching,
        "metrics": world.metrics.map(|address| address.to_string()),
        "problems": problems,
    });
    let mut bytes = serde_json::to_vec_pretty(&text).unwrap_or_default();
    bytes.push(b'\n');
    let path = world.layout.daemon_file();
    let temp = world.layout.own().join("daemon.json.tmp");
    if let Err(error) = durable::write_whole(&path, &temp, &bytes, durable::Durability::Relaxed) {
        tracing::debug!("{}: {error}", path.display());
    }
}
