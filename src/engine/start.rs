//! Start: from a root and a configuration to a running engine, recovery included.

use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::clock::{Clock, Wall, boot_id};
use crate::config::{Config, Watch};
use crate::engine::anchors::{self, Anchoring};
use crate::engine::arrivals::{CONTROL, PENDING};
use crate::engine::boards;
use crate::engine::busy::{Busy, BusyIds};
use crate::engine::confine;
use crate::engine::event::Event;
use crate::engine::figures::Meter;
use crate::engine::folders;
use crate::engine::kept::Kept;
use crate::engine::key;
use crate::engine::line;
use crate::engine::lock;
use crate::engine::observer::{Observer, Told};
use crate::engine::parked::Lot;
use crate::engine::past::Past;
use crate::engine::readmit::finish_rejections;
use crate::engine::recovery::{Found, recover_one, sweep_claims};
use crate::engine::rights;
use crate::engine::start_error::{StartError, no_keeper, system};
use crate::engine::workers::Workers;
use crate::engine::world::World;
use crate::engine::{Engine, retention};
use crate::figures::histogram::Histogram;
use crate::keeper::forbid_tracing;
use crate::keeper::wire::Held;
use crate::policy::ahead::Ahead;
use crate::policy::looks::Looks;
use crate::policy::orders::Orders;
use crate::policy::schedule::Schedule;
use crate::protocol::agent::AgentName;
use crate::protocol::lifecycle::State;
use crate::retention::leave;
use crate::runner::agents;
use crate::runner::rubbish::Rubbish;
use crate::spool::commit::{Committer, OnRound};
use crate::spool::layout::Layout;
use crate::spool::{look, scan};
use crate::store::audit::{AuditLog, Line};
use crate::store::board::Board;
use crate::watch::{Mode, Watcher, filesystem};

/// How much of the audit log's end is read at a start: enough for what a crash left open.
const RECENT_BYTES: u64 = 1024 * 1024;

/// What nobody but the owner and the group may do with what the daemon writes.
const UMASK: u32 = 0o027;

#[derive(Debug)]
pub struct Options {
    pub root: PathBuf,
    /// Another file than `handoffd.toml` in the root.
    pub config: Option<PathBuf>,
    pub drain: bool,
    /// This program, to start the keeper with.
    pub program: PathBuf,
    /// Told what becomes of the daemon.
    pub observer: Arc<dyn Observer>,
}

/// Records and logs are not everybody's, whoever starts the daemon. A stricter umask stays.
fn close_to_others() {
    let others = rustix::fs::Mode::from_raw_mode(UMASK);
    let inherited = rustix::process::umask(others);
    rustix::process::umask(inherited | others);
}

/// Sets up this process as a whole, before it has threads.
fn prepare_process() {
    if std::env::var_os("HANDOFFD_DUMPABLE").is_none() {
        forbid_tracing();
    }
    look::ignore_lease_signals();
    close_to_others();
    tune_allocator();
}

/// Runs the daemon until it is stopped, or has drained.
pub fn run(options: &Options, greet: impl FnOnce(&Config, &str)) -> Result<(), StartError> {
    prepare_process();
    agents::remember_own_program();
    let root = std::path::absolute(&options.root).map_err(system("the root has no path"))?;
    let in_root = |what: String| StartError::Root {
        root: root.clone(),
        what,
    };
    let config_path = options
        .config
        .clone()
        .unwrap_or_else(|| root.join("handoffd.toml"));
    let mut config = Config::load(&config_path, options.config.is_some(), &root)?;
    let layout = Layout::new(&root);
    if let Some(wrong) = unusable(&layout, &config_path, &config) {
        return Err(in_root(wrong));
    }
    if let Some(wrong) = rights::above(rights::me(), &root) {
        tracing::warn!("{wrong}");
    }
    layout
        .ensure()
        .map_err(|error| StartError::in_root(&root, "", &error))?;
    let lock = lock::hold_patiently(&layout)?;
    layout
        .check_one_file_system()
        .map_err(|error| in_root(error.to_string()))?;
    let remote = on_network(layout.handoffs(), &config);
    if let Some(wrong) = remote.map_err(system("can't determine the file system"))? {
        return Err(in_root(wrong));
    }
    config.key = key::hold(&layout)
        .map_err(|error| StartError::in_root(&root, ".handoffd/key: ", &error))?;
    let config = Arc::new(config);
    let meter = config.metrics.listen.map(Meter::open).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .enable_io()
        .build()
        .map_err(system("can't start the runtime"))?;
    runtime.block_on(async {
        let signals = signal_hook_tokio::Signals::new([SIGTERM, SIGINT, SIGHUP])
            .map_err(system("can't receive signals"))?;
        let (events, inbox) = unbounded_channel();
        let clock = Clock::System;
        let since = clock.now().wall;
        let audit = open_audit(&layout, &config, since)
            .map_err(|error| StartError::in_root(&root, "audit/: ", &error))?;
        let recent = audit
            .recent(RECENT_BYTES)
            .map_err(system("can't read audit/"))?;
        let anchoring = Anchoring::default();
        let on_round = meter.as_ref().map(Meter::on_round);
        let (committer, commit_thread) =
            start_committer(&layout, audit, &config, &events, &anchoring, on_round)
                .map_err(system("can't start a thread"))?;
        let (keeper, mut reader) = line::connect(&options.program, &layout).map_err(no_keeper)?;
        let held = line::inventory(&keeper, &mut reader, &events)
            .map_err(system("the keeper does not answer"))?;
        let (board, shown_at) = Board::open(layout.root());
        let rubbish = start_rubbish(events.clone()).map_err(system("can't start a thread"))?;
        let world = Arc::new(World::new(
            layout,
            clock,
            boot_id(),
            committer,
            events,
            Arc::clone(&config),
            keeper,
            options.program.clone(),
            lock,
            rubbish,
            board,
            meter.as_ref().map(Meter::address),
        ));
        line::listen(&world, reader).map_err(system("can't listen to the keeper"))?;
        let anchors = anchoring.start(&world);
        let anchors = anchors.map_err(system("can't start a thread"))?;
        let mut engine = build(&world, held, &recent, since, options, anchoring)?;
        engine.plan_retention();
        engine.catch_up(shown_at, &recent);
        if let Some(meter) = meter {
            let served = meter.serve(&world.layout, world.events.clone(), &recent);
            served.map_err(system("can't start a thread"))?;
        }
        let untold = engine.people.open();
        greet(&config, &engine.watcher.describe());
        options.observer.ready(&engine.counts().to_string());
        engine.run(inbox, signals).await;
        untold.rest(options.drain);
        farewell(&world, commit_thread, anchors);
        Ok(())
    })
}

/// Starts the thread that writes, which says what it finds wrong, and which line of the audit log is the
/// last on disk.
fn start_committer(
    layout: &Layout,
    mut audit: AuditLog,
    config: &Config,
    events: &UnboundedSender<Event>,
    anchoring: &Anchoring,
    on_round: Option<OnRound>,
) -> io::Result<(Committer, std::thread::JoinHandle<()>)> {
    let anchoring = anchoring.clone();
    audit.on_synced(move |head| anchoring.hear(head));
    let trouble = events.clone();
    audit.on_altered(move |altered| {
        let _ = trouble.send(Event::AuditAltered(altered.to_string()));
    });
    let trouble = events.clone();
    let on_trouble = move |text| {
        let _ = trouble.send(Event::Trouble(text));
    };
    let durability = config.daemon.durability;
    Committer::start(layout.clone(), audit, durability, on_trouble, on_round)
}

fn start_rubbish(events: UnboundedSender<Event>) -> io::Result<Rubbish> {
    Rubbish::start(move |path, error| {
        let text = format!("can't delete {}: {error}", path.display());
        let _ = events.send(Event::Undeletable(text));
    })
}

/// Why a daemon without a configuration would refuse a root here, which need not be there yet.
pub fn refuses(layout: &Layout) -> io::Result<Option<String>> {
    let config = Config::default();
    let file = layout.root().join("handoffd.toml");
    if let Some(wrong) = unusable(layout, &file, &config) {
        return Ok(Some(wrong));
    }
    layout.check_one_file_system()?;
    let mut above = layout.root().ancestors();
    match above.find(|folder| folder.is_dir()) {
        Some(folder) => on_network(folder, &config),
        None => Ok(None),
    }
}

/// Why a folder is no place for a root, if its file system is the reason.
fn on_network(folder: &Path, config: &Config) -> io::Result<Option<String>> {
    let kind = filesystem(folder)?;
    Ok((kind.network && !config.daemon.allow_network_fs).then(|| {
        format!(
            "the root is on {}, a network file system, where renames and locks are unreliable; \
             move the root to a local disk, or set daemon.allow_network_fs = true",
            kind.name
        )
    }))
}

/// Why this configuration may not be used on this root, with what to do about it.
fn unusable(layout: &Layout, file: &Path, config: &Config) -> Option<String> {
    let said = |(what, advice)| format!("{what}; {advice}");
    let wrong = rights::all(layout.root(), file, config).into_iter().next();
    wrong
        .map(|wrong| wrong.to_string())
        .or_else(|| confine::check(config).into_iter().next().map(said))
        .or_else(|| folders::shared(layout, config).map(said))
}

/// Opens the log, and warns of what a crash did to it.
fn open_audit(layout: &Layout, config: &Config, since: Wall) -> io::Result<AuditLog> {
    let (audit, opened) = AuditLog::open(&layout.audit(), config.daemon.durability, since)?;
    if let Some(torn) = opened.torn {
        tracing::warn!("{}: a crash tore the last line; closed it", torn.file);
    }
    for hole in opened.holes {
        let (first, last) = hole.missing.into_inner();
        let file = hole.file;
        tracing::warn!(
            "{file}: a power cut took lines {first} to {last}, which were not acted on yet; the \
             log now says so"
        );
    }
    Ok(audit)
}

/// Documents come on one thread and go on another, in small pieces. Without this, the C library
/// gathers all of them whenever one beside the end of a heap goes, and gives memory back that it
/// asks for a moment later.
fn tune_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: settings of the allocator, made before other threads start.
    unsafe {
        libc::mallopt(libc::M_MXFAST, 0);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 20);
        // Large tables stay apart, and are given back as soon as they have grown out of their
        // place; left to itself, the limit rises with the first of them.
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 18);
    }
}

/// Gives memory back that is free, but surrounded by what is not.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: asks the allocator for what it may do at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets what is being written be written, then leaves. Worker threads that still hold the world
/// keep the committer open, so this waits for a last empty change instead of for the thread.
fn farewell(world: &World, commit_thread: std::thread::JoinHandle<()>, anchors: anchors::Running) {
    boards::write(world, false);
    let (tell, told) = std::sync::mpsc::channel();
    world
        .committer
        .submit(crate::spool::change::Change::Note, Vec::new(), move |_| {
            let _ = tell.send(());
        });
    let _ = told.recv_timeout(Duration::from_secs(5));
    anchors.finish();
    let _ = world.keeper().flush();
    drop(commit_thread);
    let _ = world.committer.spares().clear();
    let _ = std::fs::remove_file(world.layout.daemon_file());
    world.shown.forget();
}

fn build(
    world: &Arc<World>,
    held: Vec<Held>,
    recent: &[Line],
    since: Wall,
    options: &Options,
    anchoring: Anchoring,
) -> Result<Engine, StartError> {
    let config = world.config();
    // Watching starts before the first look, so that nothing falls between the two.
    let events = world.events.clone();
    let leaving = super::leaving::Leaving::default();
    let leaves = leaving.clone();
    let folders = [
        (PENDING, world.layout.pending().to_owned()),
        (CONTROL, world.layout.control()),
    ];
    let mode = match config.daemon.watch {
        Watch::Auto => Mode::Auto,
        Watch::Inotify => Mode::Inotify,
        Watch::Poll => Mode::Poll,
    };
    let poll = config.daemon.rescan.min(Duration::from_secs(1));
    let watcher = Watcher::new(&folders, mode, poll, move |hint| {
        if !leaves.explains(&hint, PENDING) {
            let _ = events.send(Event::Hint(hint));
        }
    })
    .map_err(system("can't watch the folders"))?;
    let threads = system("can't start a thread");
    let mut engine = Engine {
        world: Arc::clone(world),
        readers: Workers::start(world, "read", 2).map_err(&threads)?,
        actors: Workers::start(world, "act", 4).map_err(&threads)?,
        short: Workers::start(world, "short", 1).map_err(&threads)?,
        slow: Workers::start(world, "slow", 4).map_err(&threads)?,
        large_outcomes: Workers::start(world, "large", 4).map_err(&threads)?,
        anchoring,
        people: super::notify::People::start(world).map_err(&threads)?,
        launches: Vec::new(),
        preparations: Vec::new(),
        finishes: Vec::new(),
        judgements: Vec::new(),
        watcher: Arc::new(watcher),
        scanner: Arc::new(Mutex::default()),
        schedule: Schedule::new(config.daemon.max_concurrent),
        pending: super::queued::Queued::default(),
        kept: Kept::default(),
        leaving,
        running: HashMap::new(),
        lot: Lot::default(),
        busy: BusyIds::default(),
        checks: 0,
        departures: 0,
        rejecting: HashSet::new(),
        keeper: (1, Vec::new()),
        crew: super::crew::Crew::default(),
        to_judge: VecDeque::new(),
        judging: HashSet::new(),
        large: HashMap::new(),
        ahead: Ahead::default(),
        at_once: HashSet::new(),
        early_ends: HashMap::new(),
        unsaid: 0,
        to_look: Looks::default(),
        looking: HashMap::new(),
        renamed: HashSet::new(),
        unclosed: HashSet::new(),
        unsettled: HashMap::new(),
        listing: HashSet::new(),
        unlisted: HashMap::new(),
        strangers: super::strangers::Strangers::default(),
        finals: Arc::new(super::finals::Finals::open(world)),
        foreign: super::finals::Foreign::new(),
        restoring: HashSet::new(),
        orders: Orders::default(),
        refusing: HashSet::new(),
        stuck: super::orders::Stuck::default(),
        dismissals: HashMap::new(),
        alarms: BinaryHeap::new(),
        due: super::Due::default(),
        dispatch_at: None,
        paused_until_ms: 0,
        trouble: None,
        problems: BTreeMap::new(),
        shared: false,
        unsafe_until: BTreeMap::new(),
        relist: HashSet::new(),
        delayed: HashMap::new(),
        stopping: None,
        drain: options.drain,
        done: false,
        config_path: options.config.clone(),
        started_with: world.config(),
        since,
        observer: Arc::clone(&options.observer),
        told: Told::default(),
        sweep_at: None,
        pickup: world.metrics.map(|_| Histogram::seconds()),
    };
    engine
        .recover(held, recent)
        .map_err(|error| StartError::in_root(world.layout.root(), "recovery: ", &error))?;
    Ok(engine)
}

impl Engine {
    /// Finds every handoff that the last daemon left, and goes on with it.
    fn recover(&mut self, held: Vec<Held>, recent: &[Line]) -> io::Result<()> {
        let world = Arc::clone(&self.world);
        let config = world.config();
        world.committer.spares().clear()?;
        let mut past = Past::gather(&world, held, recent)?;
        finish_rejections(&world, &past)?;
        leave::put_back(&world.layout)?;
        retention::mend_archive(&world.layout);
        for folder in [State::InProgress, State::Waiting] {
            for id in scan::record_ids(world.layout.state(folder))? {
                match recover_one(&world, folder, &id, &mut past) {
                    Found::Running(running) => {
                        let agent = running.agent.clone();
                        tracing::info!(handoff_id = id, attempt = running.key.attempt, "adopted");
                        self.schedule
                            .occupy(&id, &agent, || Self::limits_of(&config, &agent));
                        self.running.insert(id, *running);
                    }
                    Found::Parked(parked) => self.park(&id, parked),
                    Found::UnderWay => self.busy.insert(id, Busy::Moving),
                    Found::Left(why) => self.leave(folder, &id, why),
                    Found::Nothing => {}
                }
            }
        }
        sweep_claims(&world, &mut past);
        self.settle_unclaimed(past.unclaimed());
        self.refill_rates(recent, &config);
        self.sweep_run();
        self.sweep_homes();
        Ok(())
    }

    /// Starts that a former daemon made still count for a rate.
    fn refill_rates(&mut self, recent: &[Line], config: &Config) {
        let now = self.world.now();
        for line in recent.iter().filter(|line| line.event == "started") {
            let agent = line.detail.get("agent").and_then(Value::as_str);
            let Some(agent) = agent.and_then(|agent| AgentName::parse(agent).ok()) else {
                continue;
            };
            let age = u64::try_from(now.wall.0.saturating_sub(line.at.0)).unwrap_or(0);
            if let Some(at) = now.boot_ms.checked_sub(age) {
                self.schedule
                    .note_start(&agent, at, || Self::limits_of(config, &agent));
            }
        }
    }
}
