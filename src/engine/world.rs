//! What every job of the engine may use: the root, the clock, the committer, the keeper.
//!
//! Jobs run on worker threads and do all file I/O; the loop itself does none. A job gets a
//! reference to this and reports back with an [`Event`].

use std::collections::HashSet;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::mpsc::UnboundedSender;

use crate::clock::{Clock, Now};
use crate::config::Config;
use crate::engine::event::Event;
use crate::keeper::client::Client;
use crate::runner::launch::AttemptPaths;
use crate::runner::slots::Slots;
use crate::spool::commit::Committer;
use crate::spool::layout::Layout;

pub struct World {
    pub layout: Layout,
    pub clock: Clock,
    pub boot: &'static str,
    pub slots: Slots,
    pub committer: Committer,
    pub events: UnboundedSender<Event>,
    config: RwLock<Arc<Config>>,
    /// The keeper, and how many there have been.
    keeper: RwLock<(Client, u64)>,
    /// This program, to start a keeper with.
    pub program: PathBuf,
    /// `handoffs/` itself, locked.
    pub lock: Mutex<File>,
    passing: Passing,
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
    ) -> Self {
        let slots = Slots::new(&layout.run());
        Self {
            layout,
            clock,
            boot,
            slots,
            committer,
            events,
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
        AttemptPaths::new(&self.layout.run(), &self.layout.logs(), id, attempt)
    }

    /// Tells the loop. It may be gone already; then nobody needs to know.
    pub fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

type Job = Box<dyn FnOnce(&World) + Send>;

/// A few threads that work off jobs in the order they came.
#[derive(Clone)]
pub struct Workers {
    jobs: Sender<Job>,
}

impl Workers {
    pub fn start(world: &Arc<World>, name: &str, threads: usize) -> std::io::Result<Self> {
        let (jobs, inbox) = channel::<Job>();
        let inbox = Arc::new(Mutex::new(inbox));
        for n in 0..threads {
            let (inbox, world) = (Arc::clone(&inbox), Arc::clone(world));
            std::thread::Builder::new()
                .name(format!("{name}-{n}"))
                .spawn(move || work(&inbox, &world))?;
        }
        Ok(Self { jobs })
    }

    pub fn run(&self, job: impl FnOnce(&World) + Send + 'static) {
        let _ = self.jobs.send(Box::new(job));
    }
}

fn work(inbox: &Mutex<Receiver<Job>>, world: &World) {
    loop {
        let job = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // A bug that one file brings to light must not take the thread, and so the rest, along.
        if catch_unwind(AssertUnwindSafe(|| job(world))).is_err() {
            tracing::error!("a job failed in a way nobody foresaw; the others go on");
        }
    }
}
