//! What every job of the engine may use: the root, the clock, the committer, the keeper.
//!
//! Jobs run on worker threads and do all file I/O; the loop itself does none. A job gets a
//! reference to this and reports back with an [`Event`].

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use tokio::sync::mpsc::UnboundedSender;

use crate::clock::{Clock, Now};
use crate::config::Config;
use crate::engine::ahead::Ahead;
use crate::engine::event::Event;
use crate::engine::expected::Expected;
use crate::engine::leftovers::Leftovers;
use crate::engine::packages::Ending;
use crate::engine::receive::Desk;
use crate::engine::shown::Shown;
use crate::keeper::client::Client;
use crate::runner::launch::AttemptPaths;
use crate::runner::resident::wires::Wires;
use crate::runner::rubbish::Rubbish;
use crate::runner::slots::Slots;
use crate::spool::commit::Committer;
use crate::spool::layout::Layout;
use crate::store::artifacts::Artifacts;
use crate::store::board::Board;
use crate::store::schemas::Schemas;

pub struct World {
    pub layout: Layout,
    pub clock: Clock,
    pub boot: &'static str,
    pub slots: Slots,
    /// Folders that attempts leave go there.
    pub rubbish: Arc<Rubbish>,
    /// To the resident processes.
    pub wires: Wires,
    pub committer: Committer,
    pub events: UnboundedSender<Event>,
    /// What the loop runs on.
    pub runtime: tokio::runtime::Handle,
    config: RwLock<Arc<Config>>,
    /// The keeper, and how many there have been.
    keeper: RwLock<(Client, u64)>,
    /// This program, to start a keeper with.
    pub program: PathBuf,
    /// `handoffs/` itself, locked.
    pub lock: Mutex<File>,
    passing: Passing,
    pub schemas: Schemas,
    pub artifacts: Artifacts,
    pub leftovers: Leftovers,
    pub board: Board,
    /// Where figures are served, if they are.
    pub metrics: Option<SocketAddr>,
    reserved: Reservations,
    /// Children that are to be made, or lie in `pending/`.
    pub expected: Expected,
    pub shown: Shown,
    /// What the log said of unended records before this start, by id and revision. A line stands
    /// before its record does; where the record never came, it is decided again.
    pub told_before: OnceLock<HashSet<(String, u64)>>,
    /// Attempts that wait with the keeper for their turn.
    pub ahead: Ahead,
    /// Whether there may be attempts with folders of their own.
    homes: AtomicBool,
    /// Packages that are about to end.
    pub ending: Ending,
    /// Held by a pass of retention: there is one at a time.
    pub sweeping: Mutex<()>,
}

/// Destinations that attempts are about to write, by path, and whose they are.
#[derive(Debug, Clone, Default)]
pub struct Reservations(Arc<Mutex<HashMap<String, String>>>);

impl Reservations {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn release(&self, id: &str) {
        self.lock().retain(|_, owner| owner != id);
    }
}

type Passing = Arc<Mutex<HashSet<String>>>;

/// Says that an id passes through `waiting/` on its way elsewhere, until it is dropped. A
/// duplicate gets its id on a worker, so the loop can't know it as busy.
pub struct Passage {
    id: String,
    passing: Passing,
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.passing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id);
    }
}

impl World {
    #[expect(clippy::too_many_arguments, reason = "assembled once, at start")]
    pub fn new(
        layout: Layout,
        clock: Clock,
        boot: &'static str,
        committer: Committer,
        events: UnboundedSender<Event>,
        config: Arc<Config>,
        keeper: Client,
        program: PathBuf,
        lock: File,
        rubbish: Rubbish,
        board: Board,
        metrics: Option<SocketAddr>,
    ) -> Self {
        let slots = Slots::new(layout.run());
        let durability = config.daemon.durability;
        let heard = events.clone();
        Self {
            wires: Wires::new(move |number, said| {
                let _ = heard.send(Event::Said { number, said });
            }),
            schemas: Schemas::new(&layout.schemas()),
            artifacts: Artifacts::new(layout.root(), durability),
            leftovers: Leftovers::new(layout.root(), layout.leftovers()),
            board,
            metrics,
            reserved: Reservations::default(),
            expected: Expected::default(),
            shown: Shown::new(),
            told_before: OnceLock::new(),
            ahead: Ahead::default(),
            homes: AtomicBool::new(
                fs::read_dir(layout.homes()).is_ok_and(|mut homes| homes.next().is_some()),
            ),
            ending: Ending::default(),
            sweeping: Mutex::default(),
            layout,
            clock,
            boot,
            slots,
            rubbish: Arc::new(rubbish),
            committer,
            events,
            runtime: tokio::runtime::Handle::current(),
            config: RwLock::new(config),
            keeper: RwLock::new((keeper, 1)),
            program,
            lock: Mutex::new(lock),
            passing: Passing::default(),
        }
    }

    pub fn passage(&self, id: &str) -> Passage {
        let passing = Arc::clone(&self.passing);
        passing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id.to_owned());
        Passage {
            id: id.to_owned(),
            passing,
        }
    }

    pub fn is_passing(&self, id: &str) -> bool {
        self.passing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(id)
    }

    /// Keeps a destination for one handoff; `Some` with whose it is already.
    pub fn reserve(&self, path: &str, id: &str) -> Option<String> {
        let mut reserved = self.reserved.lock();
        match reserved.get(path) {
            Some(owner) if owner != id => Some(owner.clone()),
            Some(_) => None,
            None => {
                reserved.insert(path.to_owned(), id.to_owned());
                None
            }
        }
    }

    /// What receiving a handoff looks things up in.
    pub fn desk(&self) -> Desk<'_> {
        Desk {
            layout: &self.layout,
            config: self.config(),
            schemas: &self.schemas,
            artifacts: &self.artifacts,
        }
    }

    pub fn reservations(&self) -> Reservations {
        self.reserved.clone()
    }

    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// The configuration in force. Hold on to it for the length of one decision only.
    pub fn config(&self) -> Arc<Config> {
        self.config
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn set_config(&self, config: Arc<Config>) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    pub fn keeper(&self) -> Client {
        self.counted_keeper().0
    }

    /// The keeper and its number, read as one: an attempt must never be taken for another
    /// keeper's than the one it was given to.
    pub fn counted_keeper(&self) -> (Client, u64) {
        self.keeper
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn set_keeper(&self, keeper: Client) -> u64 {
        let mut known = self.keeper.write().unwrap_or_else(PoisonError::into_inner);
        let count = known.1 + 1;
        *known = (keeper, count);
        count
    }

    pub fn paths(&self, id: &str, attempt: u32) -> AttemptPaths {
        let paths = AttemptPaths::new(self.layout.left_behind(), id, attempt);
        if !self.homes.load(Ordering::SeqCst) {
            return paths;
        }
        let home = self.home(id, attempt);
        if fs::symlink_metadata(&home).is_ok() {
            return paths.at_home(home);
        }
        paths
    }

    /// Where an attempt's own folder is, if it has one.
    pub fn home(&self, id: &str, attempt: u32) -> PathBuf {
        self.layout.homes().join(format!("{id}.{attempt}"))
    }

    /// From now on there may be attempts with folders of their own.
    pub fn has_homes(&self) {
        self.homes.store(true, Ordering::SeqCst);
    }

    /// Tells the loop. It may be gone already; then nobody needs to know.
    pub fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }
}
