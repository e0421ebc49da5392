//! `[retention]`: the daemon deletes by itself what is older than it is to keep.
//!
//! A pass runs on a thread of its own, in small steps with pauses in between, and only while there
//! is something to do: between two passes there is one alarm, set for when the next file may be old
//! enough. An audit line for each record is on disk before the record goes.

use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use handoffd_agents::workspace::list::prune;

use crate::clock::Wall;
use crate::config::Retention;
use crate::engine::event::Event;
use crate::engine::world::World;
use crate::engine::{Alarm, Engine, attempt};
use crate::retention::leave;
use crate::retention::sessions::sweep;
use crate::retention::spared::Spared;
use crate::retention::sweep::{Kind, Old, Sweep};
use crate::retention::trees::{Trees, told, touched};
use crate::spool::change::Change;
use crate::spool::layout::Layout;
use crate::store::archive::Archive;
use crate::store::audit;

/// How long a pass leaves the disk to others after each step.
const PAUSE: Duration = Duration::from_millis(25);
/// How long a pass waits for its audit lines. A disk that can't take them is left alone.
const PATIENCE: Duration = Duration::from_secs(60);
/// No two passes are closer than this, unless the ages are short.
const SELDOM: Duration = Duration::from_secs(60 * 60);
/// What is spared today may go tomorrow.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const SHORTEST: Duration = Duration::from_millis(500);
/// A start has better things to do first.
const AFTER_START: Duration = Duration::from_secs(60);

fn age(retention: &Retention, kind: Kind) -> Option<Duration> {
    match kind {
        Kind::Completed => retention.completed,
        Kind::Failed => retention.failed,
        Kind::Logs => retention.logs,
    }
}

/// How far apart passes are at least; `None` if there are none.
fn every(retention: &Retention) -> Option<Duration> {
    let ages = Kind::ALL.iter().filter_map(|kind| age(retention, *kind));
    let ages = ages.chain(retention.worktrees).chain(retention.sessions);
    ages.min().map(|age| (age / 10).clamp(SHORTEST, SELDOM))
}

impl Engine {
    /// Sets the alarm for the first pass, at a start and after a reload.
    pub(super) fn plan_retention(&mut self) {
        let every = every(&self.world.config().retention);
        self.sweep_at = every.map(|every| self.now_ms() + attempt::ms(every.min(AFTER_START)));
        if let Some(at) = self.sweep_at {
            self.alarm(at, Alarm::Retention);
        }
    }

    /// An alarm that was overtaken by another one means nothing.
    pub(super) fn retention_due(&mut self) {
        let due = self.sweep_at.is_some_and(|at| at <= self.now_ms());
        if !due || self.stopping.is_some() || self.drain {
            return;
        }
        self.sweep_at = None;
        let world = Arc::clone(&self.world);
        let spawned = std::thread::Builder::new()
            .name("retention".to_owned())
            .spawn(move || {
                let next = pass(&world);
                world.tell(Event::Swept { next });
            });
        if let Err(error) = spawned {
            tracing::warn!("can't start a thread for retention: {error}");
            self.plan_retention();
        }
    }

    pub(super) fn on_swept(&mut self, next: Option<Duration>) {
        // A reload may have planned another pass meanwhile.
        if let (None, Some(next)) = (self.sweep_at, next) {
            let at = self.now_ms() + attempt::ms(next);
            self.sweep_at = Some(at);
            self.alarm(at, Alarm::Retention);
        }
    }
}

/// An index of the archive that is behind, as a crash leaves it, is brought up to date: an id that
/// is packed must not run again. Who packs at this moment does the same.
pub(super) fn mend_archive(layout: &Layout) {
    let archive = Archive::new(&layout.archive());
    if !layout.archive().is_dir() {
        return;
    }
    let mended = archive.try_lock().and_then(|lock| match lock {
        Some(_lock) => archive.mend(),
        None => Ok(()),
    });
    if let Err(error) = mended {
        tracing::warn!("can't read the archive, so the ids in it count as free: {error}");
    }
}

/// Deletes what is old. Gives back when to look again.
fn pass(world: &World) -> Option<Duration> {
    let one_at_a_time = world.sweeping.lock();
    let _one = one_at_a_time.unwrap_or_else(PoisonError::into_inner);
    let retention = world.config().retention.clone();
    let every = every(&retention)?;
    let mut spared = Spared::default();
    let mut next = LONGEST;
    if let Err(error) = leave::put_back(&world.layout) {
        tracing::warn!("retention: {error}");
    }
    for kind in Kind::ALL {
        let Some(age) = age(&retention, kind) else {
            continue;
        };
        let sweep = Sweep {
            layout: &world.layout,
            kind,
            before: before(world, age),
            pause: &|| std::thread::sleep(PAUSE),
        };
        let mut deleted = 0;
        let swept = sweep.run(&mut spared, |old| {
            deleted += remove(world, kind, &old)?;
            Ok(())
        });
        if deleted > 0 {
            tracing::info!("retention: deleted {deleted} files ({})", kind.word());
        }
        match swept {
            Ok(oldest) => next = next.min(until_old(world, oldest, age)),
            Err(error) => {
                tracing::warn!("retention of {}: {error}", kind.word());
                next = every;
            }
        }
    }
    for (what, age, pass) in [
        ("worktrees", retention.worktrees, trees as Pass),
        ("sessions", retention.sessions, sessions),
    ] {
        let Some(age) = age else { continue };
        match pass(world, before(world, age)) {
            Ok(oldest) => next = next.min(until_old(world, oldest, age)),
            Err(error) => {
                tracing::warn!("retention of {what}: {error}");
                next = every;
            }
        }
    }
    Some(next.clamp(every, LONGEST))
}

/// A pass over something else than records and logs; when the oldest one changed that is not old yet.
type Pass = fn(&World, Wall) -> std::io::Result<Option<Wall>>;

/// What changed before this instant is older than `age`.
fn before(world: &World, age: Duration) -> Wall {
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    Wall(world.now().wall.0.saturating_sub(age_ms))
}

/// How long until the next one is old.
fn until_old(world: &World, oldest: Option<Wall>, age: Duration) -> Duration {
    let now = world.now().wall;
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let due = oldest.unwrap_or(now).0.saturating_add(age_ms) - now.0;
    Duration::from_millis(u64::try_from(due).unwrap_or(0))
}

/// Removes worktrees of chains that have ended. Uncommitted work is committed first, and a branch with
/// commits of its own stays.
fn trees(world: &World, before: Wall) -> std::io::Result<Option<Wall>> {
    let all = Trees::of(&world.layout)?;
    let mut oldest = None;
    for tree in all.ended() {
        let touched = touched(tree, world.now().wall);
        if touched >= before {
            oldest = oldest.min(Some(touched)).or(Some(touched));
            continue;
        }
        let line = audit::Event::new(world.now().wall, "pruned").with("kind", "worktrees");
        note(world, vec![line.with("line", tree.line.as_str())])?;
        match prune(&world.layout.worktrees(), tree, false) {
            Ok(pruned) => tracing::info!("retention: {}", told(tree, &pruned)),
            Err(error) => tracing::warn!("retention of the worktree {}: {error}", tree.line),
        }
        std::thread::sleep(PAUSE);
    }
    Ok(oldest)
}

/// Deletes what adapters kept of sessions.
fn sessions(world: &World, before: Wall) -> std::io::Result<Option<Wall>> {
    let pause = || std::thread::sleep(PAUSE);
    let found = sweep(&world.layout, before, true, &pause)?;
    if found.count > 0 {
        let line = audit::Event::new(world.now().wall, "pruned").with("kind", "sessions");
        note(world, vec![line.with("files", found.count)])?;
        sweep(&world.layout, before, false, &pause)?;
        tracing::info!("retention: deleted {} files (sessions)", found.count);
    }
    Ok(found.oldest)
}

/// Puts lines into the audit log, and waits until they are on disk.
fn note(world: &World, lines: Vec<audit::Event>) -> std::io::Result<()> {
    let (tell, told) = channel();
    world.committer.submit(Change::Note, lines, move |_| {
        let _ = tell.send(());
    });
    told.recv_timeout(PATIENCE)
        .map_err(|_| std::io::Error::other("can't write the audit log"))
}

/// Says so in the audit log, and then deletes.
fn remove(world: &World, kind: Kind, old: &[Old]) -> std::io::Result<usize> {
    let now = world.now().wall;
    let records = old.iter().filter_map(|old| old.record.as_ref());
    let mut lines: Vec<audit::Event> = records
        .map(|(state, id, _)| {
            let line = audit::Event::new(now, "pruned").about(id.as_str());
            line.with("from", state.status())
        })
        .collect();
    if kind == Kind::Logs {
        let line = audit::Event::new(now, "pruned").with("kind", "logs");
        lines.push(line.with("files", old.len()));
    }
    note(world, lines)?;
    let mut count = 0;
    for old in old {
        count += old.remove(&world.layout)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_as_far_apart_as_the_shortest_age_allows() {
        let days = |days: u64| Some(Duration::from_secs(days * 86_400));
        let mut retention = Retention::default();
        assert_eq!(every(&retention), None, "nothing is deleted by default");
        retention.failed = days(90);
        assert_eq!(every(&retention), Some(SELDOM));
        retention.logs = Some(Duration::from_secs(60));
        assert_eq!(every(&retention), Some(Duration::from_secs(6)));
        retention.logs = Some(Duration::ZERO);
        assert_eq!(every(&retention), Some(SHORTEST));
    }
}
