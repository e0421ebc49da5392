//! When a keeper is lost: another one is started, and what it found counts.
//!
//! Attempts outlive their keeper, and the next one knows them from the journal. What it does not
//! know never began, or ended without anybody to see it.

use crate::engine::attempt::{self, Running};
use crate::engine::event::Event;
use crate::engine::outcome::End;
use crate::engine::{Engine, ahead, line};
use crate::keeper::wire::{Held, State as KeeperState};

impl Engine {
    pub(super) fn on_keeper_lost(&mut self) {
        tracing::error!("the keeper has ended; starting another");
        self.problem(
            "keeper",
            Some("the keeper has ended; starting another".to_owned()),
        );
        self.actors.run(|world| match line::reconnect(world) {
            Ok((count, entries)) => {
                ahead::resolve(world);
                world.tell(Event::KeeperBack { count, entries });
            }
            Err(error) => {
                tracing::error!("can't start a keeper: {error}");
                std::thread::sleep(std::time::Duration::from_secs(1));
                world.tell(Event::KeeperLost);
            }
        });
    }

    /// What the new keeper says of the attempts that the old one had is the truth.
    pub(super) fn on_keeper_back(&mut self, count: u64, entries: Vec<Held>) {
        self.problem("keeper", None);
        self.reconcile_crew(count, &entries);
        self.keeper = (count, entries);
        let spawned = self.running.values().filter(|it| it.post.is_none());
        let ids: Vec<String> = spawned.map(|it| it.key.id.clone()).collect();
        for id in ids {
            if let Some(running) = self.running.remove(&id) {
                self.take_over(running);
            }
        }
        self.forget_again();
    }

    /// What the old keeper was told to forget it may not have written down.
    fn forget_again(&mut self) {
        let keeper = self.world.keeper();
        for held in &self.keeper.1 {
            let id = attempt::handoff_of(&held.key);
            let running = self.running.get(id);
            let is_needed = attempt::is_resident(&held.key)
                || self.busy.contains(id)
                || running.is_some_and(|it| [&it.key, &it.live_key()].contains(&&held.key));
            let is_over = matches!(held.state, KeeperState::Ended(_) | KeeperState::Failed(_));
            if is_over && !is_needed {
                // One that can't be told is gone, and the next one is told again.
                let _ = keeper.forget(&held.key);
                self.unsaid += 1;
            }
        }
    }

    /// Goes on with an attempt that was given to an earlier keeper, as the present one found
    /// it; one of the present keeper's own just goes on.
    pub(super) fn take_over(&mut self, mut running: Running) {
        let (count, entries) = &self.keeper;
        if running.keeper >= *count {
            self.running.insert(running.key.id.clone(), running);
            return;
        }
        let live = running.live_key();
        let held = entries.iter().find(|held| held.key == live);
        let end = match held.map(|held| (&held.state, held.why)) {
            Some((KeeperState::Ended(exit), why)) => End::of(*exit, why),
            Some((KeeperState::Failed(failure), _)) => End::NotStarted {
                errno: failure.errno,
                what: failure.what.clone(),
            },
            None => End::NotBegun,
            Some((KeeperState::Running | KeeperState::Ending, _)) => {
                running.keeper = *count;
                let (id, ending) = (running.key.id.clone(), running.ending);
                self.running.insert(id.clone(), running);
                // The old keeper may have died with the order unread.
                if let Some((why, grace_ms)) = ending {
                    self.end(&id, why, Some(grace_ms));
                }
                return;
            }
        };
        self.conclude(running, end);
    }
}
