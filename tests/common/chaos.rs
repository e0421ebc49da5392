//! Chance, and the end of everything at once: what storms are made of.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::{Daemon, Root, find_keeper, is_alive, kill, wait_until};

/// A small generator: what it decides differs from run to run, and is printed to be repeated.
pub struct Dice(u64);

impl Dice {
    /// One that starts anywhere, or where `STORM_SEED` says.
    pub fn thrown() -> Self {
        let told = std::env::var("STORM_SEED").ok();
        let seed = told.and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) * 7919 + 1);
        println!("STORM_SEED={seed}");
        Self(seed)
    }

    /// One that decides the same each time.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    /// Any moment before `most` has passed: when a storm strikes.
    pub fn pause(&mut self, most: Duration) {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX).max(1);
        std::thread::sleep(Duration::from_micros(self.below(most)));
    }
}

/// How many records have ended.
pub fn ended(root: &Root) -> usize {
    let is_record = |name: &&String| name.rsplit('.').next() == Some("json");
    ["handoffs/completed", "handoffs/failed"]
        .iter()
        .map(|folder| root.names(folder).iter().filter(is_record).count())
        .sum()
}

/// `kill -9` of a root's keeper, and not a moment later than it is gone. It may have left by
/// itself, or be on its way.
pub fn kill_keeper(root: &Root) {
    kill_keeper_at(root.dir());
}

/// The same for a root given by its path.
pub fn kill_keeper_at(root: &Path) {
    let Some(keeper) = find_keeper(root) else {
        return;
    };
    kill(keeper, Signal::KILL);
    wait_until("the keeper is gone", || (!is_alive(keeper)).then_some(()));
}

/// Everything that ran when the machine went down, but for the attempts themselves.
pub fn kill_all(root: &Root, daemon: Daemon) {
    daemon.kill();
    kill_keeper(root);
}
