//! Records that somebody took out of `waiting/`: noticed, said once, and let go.
//!
//! A listing shows which are there. One that it does not show may have been parked while the
//! folder was read, so it is looked for; and what the daemon itself has moved meanwhile is busy, or
//! was parked anew. Whatever is left was deleted or moved by somebody else, and that is their
//! right: nothing is put back. Whoever waits for it finds that it is missing.

use std::ffi::OsStr;
use std::path::Path;

use crate::engine::Engine;
use crate::engine::event::{Event, Folder};
use crate::engine::parked::{On, Sight};
use crate::engine::story::record_gone;
use crate::engine::waits::MISSES;
use crate::engine::world::World;
use crate::protocol::lifecycle::State;
use crate::spool::change::Change;
use crate::spool::scan::record_id;

impl Engine {
    /// The listing of `waiting/` that is under way shows this name.
    pub(super) fn see_waiting(&mut self, name: &OsStr) {
        let parked = record_id(name).and_then(|id| self.lot.get_mut(id));
        if let Some(parked) = parked.filter(|_| self.listing.contains(&Folder::Waiting)) {
            parked.sight = Sight::Seen;
        }
    }

    /// A listing of `waiting/` is over: those are looked for that a whole one did not show.
    pub(super) fn seek_unseen(&mut self, whole: bool) {
        let busy = &self.busy;
        let unseen = self.lot.take_unseen(whole, |id| busy.contains(id));
        if !unseen.is_empty() {
            self.seek(unseen);
        }
    }

    /// Finds out where an id stands that is not where it was thought to be. If it waited, it
    /// is not to vanish without a word.
    pub(super) fn recheck(&mut self, id: String, waited: bool) {
        if waited {
            self.seek(vec![id]);
        } else {
            self.checks += 1;
            self.readers.run(move |world| {
                tell_whereabouts(world, &id);
                world.tell(Event::Sought { gone: Vec::new() });
            });
        }
    }

    fn seek(&mut self, ids: Vec<String>) {
        self.checks += 1;
        self.readers.run(move |world| {
            let mut gone = Vec::new();
            for id in ids {
                if !tell_whereabouts(world, &id) {
                    let stands = world.layout.states_of(&id).first().copied();
                    gone.push((id, stands));
                }
            }
            world.tell(Event::Sought { gone });
        });
    }

    pub(super) fn on_sought(&mut self, gone: Vec<(String, Option<State>)>) {
        self.checks -= 1;
        for (id, stands) in gone {
            let parked = self.lot.get(&id);
            let is_back = self.busy.contains(&id)
                || self.running.contains_key(&id)
                || self.pending.contains(&id)
                || parked.is_some_and(|parked| parked.sight != Sight::Sought)
                || matches!(stands, Some(State::InProgress | State::Waiting));
            if !is_back {
                self.let_go(&id, stands);
            }
        }
    }

    fn let_go(&mut self, id: &str, stands: Option<State>) {
        self.lot.remove(id);
        if let Some(state) = stands {
            tracing::warn!(
                handoff_id = id,
                "somebody moved its record from waiting/ to {}/; it no longer waits",
                state.folder()
            );
        } else {
            tracing::warn!(
                handoff_id = id,
                "its record was deleted from waiting/ or moved away; it will not run. To run it \
                 after all, drop it into pending/ again"
            );
            let line = record_gone(id, self.world.now().wall);
            let committer = &self.world.committer;
            committer.submit(Change::Note, vec![line], |_| {});
        }
        self.world.board.forget(id);
        // It is known to be gone, so nobody has to look for it several times.
        for waiting in self.lot.dependents_of(id) {
            let parked = self.lot.get_mut(&waiting);
            if let Some(parked) = parked.filter(|it| it.on == On::Handoff && stands.is_none()) {
                parked.misses = MISSES;
            }
        }
        self.on_ended(id);
    }
}

/// Tells of a record or a submission that is on its way, in whatever folder. `false` if there is
/// none.
fn tell_whereabouts(world: &World, id: &str) -> bool {
    let mut stands = false;
    let mut tell = |folder: Folder, path: &Path| {
        stands = true;
        if let Some(name) = path.file_name() {
            let names = vec![name.to_owned()];
            world.tell(Event::Listed { folder, names });
        }
    };
    if let Some(path) = world.layout.submission(id) {
        tell(Folder::Pending, &path);
    }
    for (state, folder) in [
        (State::Waiting, Folder::Waiting),
        (State::InProgress, Folder::InProgress),
    ] {
        let path = world.layout.record(state, id);
        // Only one that is certainly not there is gone.
        if path.try_exists().unwrap_or(true) {
            tell(folder, &path);
        }
    }
    stands
}
