//! Keeping the boards: when they are written, and how they catch up after a crash.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::clock::Wall;
use crate::config::KeptPackages;
use crate::engine::event::Event;
use crate::engine::moves::load;
use crate::engine::world::World;
use crate::engine::{Alarm, Engine, packages};
use crate::protocol::lifecycle::State;
use crate::spool::foreign::own_states;
use crate::spool::scan;
use crate::store::audit::Line;

/// How long changes are gathered before the boards are written.
const GATHER_MS: u64 = 500;

impl Engine {
    /// Has written what a crash may have kept the last daemon from writing.
    pub(super) fn catch_up(&self, shown_at: Option<Wall>, recent: &[Line]) {
        let moved = moved_since(shown_at, recent);
        let ended = packages::ended_lately(recent);
        self.readers
            .run(move |world| catch_up(world, shown_at, moved));
        if self.world.config().audit.packages != KeptPackages::None {
            self.people
                .keep(move |world| packages::catch_up(world, &ended));
        }
    }

    /// Sees to it that what was noted is shown before long.
    pub(super) fn show_board(&mut self) {
        if !self.due.board && self.world.board.is_dirty() {
            self.due.board = true;
            let at = self.now_ms() + GATHER_MS;
            self.alarm(at, Alarm::Board);
        }
    }

    pub(super) fn flush_board(&mut self) {
        self.due.board = false;
        self.readers.run(|world| write(world, false));
    }
}

/// Writes the boards. One that can't be written is only old, and is tried again later.
pub fn write(world: &World, all: bool) {
    let written = world.board.flush(world.now().wall, all);
    let trouble = written
        .err()
        .map(|error| format!("can't write the boards in context/: {error}; see handoffd check"));
    world.tell(Event::Boards(trouble));
}

/// Brings the boards up to date: by what the audit log tells of the time since they were
/// written, or, where they are lost, by all records.
pub fn catch_up(world: &World, since: Option<Wall>, moved: Vec<(String, Wall)>) {
    if since.is_some() {
        let newest: HashMap<String, Wall> = moved.into_iter().collect();
        for (id, at) in newest {
            for state in own_states(&world.layout, &id) {
                note(world, state, &id, Some(at));
            }
        }
        return;
    }
    for state in [
        State::Completed,
        State::Failed,
        State::Waiting,
        State::InProgress,
    ] {
        let ids = scan::record_ids(world.layout.state(state)).unwrap_or_default();
        for id in ids {
            note(world, state, &id, None);
        }
    }
    write(world, true);
}

/// The handoffs that moved after the boards were last written.
pub fn moved_since(since: Option<Wall>, recent: &[Line]) -> Vec<(String, Wall)> {
    let Some(since) = since else {
        return Vec::new();
    };
    // A batch is written a moment after it was noted.
    let since = since.plus_ms(-5_000);
    recent
        .iter()
        .filter(|line| line.at >= since)
        .filter_map(|line| Some((line.handoff_id.clone()?, line.at)))
        .collect()
}

fn note(world: &World, state: State, id: &str, at: Option<Wall>) {
    let path = world.layout.record(state, id);
    let Some(record) = load(world, state, id) else {
        return;
    };
    let modified = || {
        let metadata = fs::symlink_metadata(&path).ok()?;
        Some(Wall(
            metadata.mtime() * 1000 + metadata.mtime_nsec() / 1_000_000,
        ))
    };
    if let Some(at) = at.or_else(modified) {
        world.board.note(&record, id, state, at);
    }
}
