//! What every job of the engine may use: the root, the clock, the committer, the keeper.
//!
//! Jobs run on worker threads and do all file I/O; the loop itself does none. A job gets a
//! reference to this and reports back with an [`Event`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use tokio::sync::mpsc::UnboundedSender;

use crate::clock::{Clock, Now};
use crate::config::Config;
use crate::engine::ahead::Ahead;
use crate::engine::event::Event;
use crate::engine::leftovers::Leftovers;
use crate::engine::receive::Desk;
use crate::engine::shown::Shown;
use crate::keeper::client::Client;
use crate::runner::launch::AttemptPaths;
use crate::runner::resident::wires::Wires;
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
    pub shown: Shown,
    /// What the log said of unended records before this start, by id and revision. A line stands
    /// before its record does; where the record never came, it is decided again.
    pub told_before: OnceLock<HashSet<(String, u64)>>,
    /// Attempts that wait with the keeper for their turn.
    pub ahead: Ahead,
    /// Whether there may be attempts with folders of their own.
    homes: AtomicBool,
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
            shown: Shown::new(),
            told_before: OnceLock::new(),
            ahead: Ahead::default(),
            homes: AtomicBool::new(
                fs::read_dir(layout.homes()).is_ok_and(|mut homes| homes.next().is_some()),
            ),
            sweeping: Mutex::default(),
            layout,
            clock,
            boot,
            slots,
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

pub type Job = Box<dyn FnOnce(&World) + Send>;

/// How many quick jobs a thread takes at the most.
const TOGETHER: usize = 4;

/// A few threads that work off jobs in the order they came, and end once this is dropped.
///
/// One job wakes one thread at the most. A channel's receiver behind a mutex would wake two: the one that
/// gets the job, and the next in line for the mutex, only to wait there. And it wakes the one that
/// worked last, whose memory is still at hand, rather than each in its turn.
pub struct Workers {
    queue: Arc<Queue>,
}

struct Queue {
    state: Mutex<Jobs>,
    /// One for each thread.
    bells: Vec<Condvar>,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Waiting>,
    /// Threads with nothing to do, the one that worked last at the end.
    idle: Vec<usize>,
    closed: bool,
}

struct Waiting {
    job: Job,
    /// Whoever takes it takes the next one too.
    with_next: bool,
}

impl Waiting {
    fn alone(job: Job) -> Self {
        Self {
            job,
            with_next: false,
        }
    }
}

impl Workers {
    pub fn start(world: &Arc<World>, name: &str, threads: usize) -> std::io::Result<Self> {
        let workers = Self {
            queue: Arc::new(Queue {
                state: Mutex::default(),
                bells: (0..threads).map(|_| Condvar::new()).collect(),
            }),
        };
        for n in 0..threads {
            let (queue, world) = (Arc::clone(&workers.queue), Arc::clone(world));
            std::thread::Builder::new()
                .name(format!("{name}-{n}"))
                .spawn(move || {
                    let mut taken = Vec::new();
                    while queue.next(n, &mut taken) {
                        for job in taken.drain(..) {
                            if catch_unwind(AssertUnwindSafe(|| job(&world))).is_err() {
                                world.tell(Event::Panicked);
                            }
                        }
                    }
                })?;
        }
        Ok(workers)
    }

    pub fn run(&self, job: impl FnOnce(&World) + Send + 'static) {
        let mut jobs = self.queue.lock();
        jobs.waiting.push_back(Waiting::alone(Box::new(job)));
        self.queue.wake_one(jobs);
    }

    /// Has pairs of jobs done, `first` before `second`. One thread is woken, and wakes the next while
    /// there is more to do: those that would find nothing sleep on.
    pub fn run_pairs(&self, first: Vec<Job>, second: Vec<Job>) {
        let pairs = first.len().max(second.len());
        if pairs == 0 {
            return;
        }
        let (mut first, mut second) = (first.into_iter(), second.into_iter());
        let mut jobs = self.queue.lock();
        for _ in 0..pairs {
            jobs.waiting.extend(first.next().map(Waiting::alone));
            jobs.waiting.extend(second.next().map(Waiting::alone));
        }
        self.queue.wake_one(jobs);
    }

    /// Has jobs done that take microseconds each: waking a thread for every one of them would cost as
    /// much as they do, so a thread takes several.
    pub fn run_quick(&self, quick: Vec<Job>) {
        let Some(last) = quick.len().checked_sub(1) else {
            return;
        };
        let mut jobs = self.queue.lock();
        for (at, job) in quick.into_iter().enumerate() {
            let with_next = at < last && (at + 1) % TOGETHER != 0;
            jobs.waiting.push_back(Waiting { job, with_next });
        }
        self.queue.wake_one(jobs);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        for bell in &self.queue.bells {
            bell.notify_one();
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes a thread, if there is one with nothing to do.
    fn wake_one(&self, mut jobs: MutexGuard<'_, Jobs>) {
        let idle = jobs.idle.pop();
        drop(jobs);
        if let Some(bell) = idle.and_then(|n| self.bells.get(n)) {
            bell.notify_one();
        }
    }

    /// Waits, as thread `n`, for the next job, and those that go with it; `false` when there will
    /// be none.
    fn next(&self, n: usize, taken: &mut Vec<Job>) -> bool {
        let mut jobs = self.lock();
        loop {
            match jobs.waiting.pop_front() {
                Some(Waiting { job, with_next }) => {
                    taken.push(job);
                    if with_next {
                        continue;
                    }
                    if !jobs.waiting.is_empty() {
                        self.wake_one(jobs);
                    }
                    return true;
                }
                None if jobs.closed => return false,
                None => {
                    jobs.idle.push(n);
                    let woken = self.bells[n].wait(jobs);
                    jobs = woken.unwrap_or_else(PoisonError::into_inner);
                    // It may have woken by itself.
                    jobs.idle.retain(|idle| *idle != n);
                }
            }
        }
    }
}
