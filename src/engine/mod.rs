//! The engine: one loop that owns all that changes, and sequences everything else.
//!
//! Events come in on one channel, as one closed list ([`event::Event`]); timers are part of the
//! state. Handling an event is bookkeeping and the start of jobs, never I/O: reading, writing
//! and syncing happen on worker threads and come back as events. One id has at most one job at
//! a time (`busy`), which is what keeps two hands off one record.

pub mod admit;
pub mod again;
pub mod ahead;
mod anchors;
pub mod arrivals;
pub mod attempt;
pub mod begin;
pub mod boards;
mod busy;
pub mod chains;
pub mod children;
pub mod commands;
pub mod confine;
pub mod crew;
pub mod delivery;
pub mod destination;
mod dispatch;
pub mod divert;
mod drained;
pub mod effects;
pub mod event;
pub mod expected;
pub mod figures;
mod finals;
pub mod findings;
pub mod folders;
pub mod former;
mod gone;
pub mod handover;
pub mod heard;
pub mod hire;
pub mod intake;
pub mod judging;
pub mod kept;
pub mod key;
mod last_result;
pub mod launch;
mod leaving;
pub mod leftovers;
pub mod lifetimes;
pub mod line;
mod listing;
mod lock;
mod looks;
pub mod moves;
pub mod notify;
pub mod obey;
pub mod observer;
pub mod orders;
pub mod outcome;
pub mod packages;
pub mod parked;
pub mod past;
mod problems;
pub mod queued;
pub mod reading;
pub mod readmit;
pub mod receive;
pub mod recovery;
pub mod retention;
pub mod rights;
pub mod sampling;
mod shown;
mod signals;
pub mod start;
pub mod start_error;
pub mod story;
mod strangers;
mod succession;
mod sweeping;
mod takeup;
pub mod tasks;
pub mod users;
pub mod verify;
pub mod waits;
mod window;
pub mod workers;
pub mod world;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::config::{Config, OnStop};
use crate::engine::attempt::Running;
use crate::engine::busy::{Busy, BusyIds};
use crate::engine::commands::Dismissal;
use crate::engine::event::{Event, Folder};
use crate::engine::kept::Kept;
use crate::engine::outcome::End;
use crate::engine::parked::Lot;
use crate::engine::workers::{Job, Workers};
use crate::engine::world::World;
use crate::figures::histogram::Histogram;
use crate::keeper::wire::{Held, Key};
use crate::policy::ahead::Ahead;
use crate::policy::looks::Looks;
use crate::policy::orders::Orders;
use crate::policy::schedule::Schedule;
use crate::protocol::agent::AgentName;
use crate::spool::scan::Scanner;
use crate::watch::Watcher;

/// A bug that one file brings to light must not take the rest along, and must not be hidden.
const PANICKED: &str = "a job of the daemon crashed (the log says where); its handoff may be \
stuck until the daemon restarts. Please report it";

/// Moments to wake up at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Look(OsString),
    ReadCommand(OsString),
    /// Commands that could not be set aside are tried again.
    StuckCommands,
    Vitals,
    Rescan,
    /// A folder that could not be listed is tried again.
    List(Folder),
    StopWaiting,
    GiveUp,
    Status,
    Watchdog,
    /// What a broken disk refused is tried again.
    Again(String),
    /// Large artifacts may still be being read.
    Large(String),
    /// Somebody waits for artifacts.
    Artifacts,
    Board,
    /// Helpers that could not be found are looked for again.
    Helpers(String),
    /// A person's time to answer is nearly over.
    Deadline(String),
    Retention,
    /// A resident process may have to go.
    Crew(u32),
}

/// Alarms that are set already, and not to be set twice.
#[derive(Debug, Default)]
struct Due {
    vitals: bool,
    artifacts: bool,
    board: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    /// Attempts may end by themselves.
    Finish,
    /// Attempts are left to the keeper.
    Detach,
    /// Attempts are being ended.
    Ending,
}

/// A file that is not believed yet.
#[derive(Debug, Clone, Copy)]
struct Unsettled {
    identity: crate::spool::look::Identity,
    since_ms: u64,
    /// Somebody is still writing it: not to be waited for when draining.
    open: bool,
}

const VITALS_EVERY_MS: u64 = 250;
/// How long a file that was created and never closed must be still before it is judged, where
/// the system does not say who has it open. A hard link is never closed.
const UNCLOSED_SETTLE_MS: u64 = 30_000;

pub struct Engine {
    world: Arc<World>,
    /// Reads of `pending/` and listings; may lag behind without holding up the rest.
    readers: Workers,
    /// Launches, outcomes, commands.
    actors: Workers,
    /// What short attempts need: one thread, so that those that are given ahead come to the keeper
    /// in their order, and so that preparing and judging don't take both processors from them.
    short: Workers,
    /// Outcomes whose gates run commands, which may take their time.
    slow: Workers,
    /// Outcomes with large artifacts.
    large_outcomes: Workers,
    /// Sends anchors of the audit log.
    anchoring: anchors::Anchoring,
    /// Commands that tell people; may take their time.
    people: notify::People,
    /// What this turn of the loop gives to the actors, at its end.
    launches: Vec<Job>,
    finishes: Vec<Job>,
    /// What it gives to the thread of the short ones.
    preparations: Vec<Job>,
    judgements: Vec<Job>,
    watcher: Arc<Watcher>,
    scanner: Arc<Mutex<Scanner>>,
    schedule: Schedule,

    pending: queued::Queued,
    kept: Kept,
    leaving: leaving::Leaving,
    running: HashMap<String, Running>,
    lot: Lot,
    busy: BusyIds,
    /// Looks at dependencies, and for ids that were not where they should be, on their way.
    checks: usize,
    /// Duplicates on their way: files that are nobody's id.
    departures: usize,
    /// Files that are being set aside, because they are no requests.
    rejecting: HashSet<OsString>,
    /// The present keeper, and the attempts it knew when it came.
    keeper: (u64, Vec<Held>),
    /// The resident processes.
    crew: crew::Crew,
    /// Attempts that ended while no daemon ran, and are to be judged in their turn.
    to_judge: VecDeque<(Box<Running>, End)>,
    /// Those of them that are being judged.
    judging: HashSet<String>,
    /// Outcomes whose large artifacts are being read.
    large: HashMap<String, reading::Large>,
    /// Whose attempts are given ahead.
    ahead: Ahead,
    /// Launches on their way that are not.
    at_once: HashSet<String>,
    /// Ends that were reported before the launch was.
    early_ends: HashMap<Key, End>,
    /// What could not be delivered or applied, and waits to be tried again.
    delayed: HashMap<String, judging::Delayed>,
    /// Attempts that the keeper may not have been told yet to forget.
    unsaid: usize,

    to_look: Looks,
    /// Names being looked at; `true` if they changed meanwhile.
    looking: HashMap<OsString, bool>,
    /// Names that came by rename, and so are whole.
    renamed: HashSet<OsString>,
    /// Names that were created under our eyes and not closed since.
    unclosed: HashSet<OsString>,
    unsettled: HashMap<OsString, Unsettled>,
    listing: HashSet<Folder>,
    /// Folders whose last listing failed: what they hold is not known.
    unlisted: HashMap<Folder, u32>,
    strangers: strangers::Strangers,
    finals: Arc<finals::Finals>,
    foreign: finals::Foreign,
    restoring: HashSet<String>,

    orders: Orders,
    /// Commands that are being set aside.
    refusing: HashSet<OsString>,
    /// Commands that could not be set aside.
    stuck: orders::Stuck,
    /// Commands whose end is an attempt's end.
    dismissals: HashMap<String, Vec<Dismissal>>,

    alarms: BinaryHeap<Reverse<(u64, Alarm)>>,
    due: Due,
    dispatch_at: Option<u64>,
    paused_until_ms: u64,
    trouble: Option<String>,
    problems: BTreeMap<String, String>,
    /// Everybody may write to a folder.
    shared: bool,
    /// Specialists whose programs others may rewrite, and until when they are held for that.
    unsafe_until: BTreeMap<AgentName, u64>,
    /// Folders to be listed once more, whatever their times say.
    relist: HashSet<event::Folder>,
    stopping: Option<Stopping>,
    drain: bool,
    done: bool,
    config_path: Option<std::path::PathBuf>,
    /// What some settings are taken from for good.
    started_with: Arc<Config>,
    since: crate::clock::Wall,
    observer: Arc<dyn observer::Observer>,
    told: observer::Told,
    /// How long handoffs wait for a slot; only where figures are served.
    pickup: Option<Histogram>,
    /// When the next pass of retention is due.
    sweep_at: Option<u64>,
}

impl Engine {
    /// Runs until it is told to stop, or has nothing left to drain.
    pub async fn run(
        mut self,
        mut inbox: UnboundedReceiver<Event>,
        mut signals: impl futures_util::Stream<Item = i32> + Unpin,
    ) {
        use futures_util::StreamExt;
        self.begin();
        self.act();
        while !self.done {
            let wake = self.next_wake_ms();
            tokio::select! {
                biased;
                signal = signals.next() => {
                    if let Some(signal) = signal {
                        self.on_signal(signal);
                    }
                }
                event = inbox.recv() => {
                    let Some(event) = event else { break };
                    self.handle(event);
                    // What is there already shares one dispatch.
                    for _ in 0..256 {
                        match inbox.try_recv() {
                            Ok(event) => self.handle(event),
                            Err(_) => break,
                        }
                    }
                }
                () = tokio::time::sleep(Duration::from_millis(wake)) => {}
            }
            self.ring();
            self.feed_looks();
            self.feed_commands();
            self.feed_judgements();
            self.dispatch();
            self.act();
            self.tell_keeper();
            self.check_end();
            self.tell_status();
            self.show_board();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Hint(hint) => self.on_hint(hint),
            Event::Listed { folder, names } => self.on_listed(folder, names),
            Event::ListingDone { folder, listed } => self.on_listing_done(folder, listed),
            Event::Immovable { name, why } => self.on_immovable(&name, why),
            Event::Shared(found) => self.on_shared(found),
            Event::Unsafe { agent, found } => self.on_unsafe(&agent, found),
            Event::Seen { name, seen } => self.on_seen(name, *seen),
            Event::Diverted { name, id, outcome } => self.on_diverted(name, id, outcome),
            Event::Rejected { name, id } => self.on_rejected(&name, id.as_deref()),
            Event::Launched(running) => self.on_launched(*running),
            Event::NotLaunched { id, from, why } => self.on_not_launched(&id, &from, &why),
            Event::Keeper(report) => self.on_report(report),
            Event::KeeperLost => self.on_keeper_lost(),
            Event::KeeperBack { count, entries } => self.on_keeper_back(count, entries),
            Event::Said { number, said } => self.on_said(number, said),
            Event::Sampled(samples) => self.on_sampled(samples),
            Event::RecordRestored { id, identity } => self.on_restored(&id, identity),
            Event::BroughtFiles { running, end } => self.judge(*running, end),
            Event::Large { running, end } => self.on_large(*running, end),
            Event::Judge { running, end } => self.to_judge.push_back((running, end)),
            Event::Verifying(running) => self.on_verifying(*running),
            Event::Undelivered {
                running,
                end,
                error,
            } => self.on_undelivered(running, end, &error),
            Event::Decided(decided) => self.apply(decided),
            Event::Unapplied { decided, error } => self.on_unapplied(decided, &error),
            Event::Concluded(concluded) => self.on_concluded(concluded),
            Event::Command { name, file } => self.on_command(name, *file),
            Event::CommandDone { name } => self.on_command_done(&name),
            Event::CommandStuck { name, why } => self.on_command_stuck(name, &why),
            Event::Moved { id, to, parked } => self.on_moved(&id, to, parked),
            Event::Reparked { id, parked } => self.on_reparked(&id, parked),
            Event::Unmoved { id } => self.on_unmoved(id),
            Event::DependencyStates { id, needs } => self.on_dependency_states(&id, &needs),
            Event::Sought { gone } => self.on_sought(gone),
            Event::StrayDone { folder, id, found } => self.on_stray(folder, &id, *found),
            Event::Foreign(foreign) => self.on_foreign(foreign),
            Event::Reloaded(read) => self.on_reloaded(read),
            Event::Swept { next } => self.on_swept(next),
            Event::Figures(tell) => self.on_figures(&tell),
            Event::Trouble(trouble) => self.on_trouble(trouble),
            Event::AuditAltered(what) => self.problem("audit", Some(what)),
            Event::Anchored(trouble) => self.problem("anchor", trouble),
            Event::Undeletable(what) => self.problem("rubbish", Some(what)),
            Event::Boards(trouble) => self.problem("boards", trouble),
            Event::Panicked => self.problem("bug", Some(PANICKED.to_owned())),
            Event::RootLost => {
                // Whoever has the root now ends them.
                self.crew.members.clear();
                self.stopping = Some(Stopping::Detach);
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.world.now().boot_ms
    }

    fn alarm(&mut self, at_ms: u64, alarm: Alarm) {
        self.alarms.push(Reverse((at_ms, alarm)));
    }

    /// How long to sleep, in milliseconds.
    fn next_wake_ms(&mut self) -> u64 {
        let now = self.now_ms();
        let alarm = self.alarms.peek().map(|Reverse((at, _))| *at);
        let due = self.lot.next_due();
        let at = [alarm, due, self.dispatch_at].into_iter().flatten().min();
        at.map_or(3_600_000, |at| at.saturating_sub(now))
    }

    /// Handles every moment that has come.
    fn ring(&mut self) {
        let now = self.now_ms();
        while let Some(Reverse((at, _))) = self.alarms.peek() {
            if *at > now {
                break;
            }
            let Some(Reverse((_, alarm))) = self.alarms.pop() else {
                break;
            };
            match alarm {
                Alarm::Look(name) => self.look(name),
                Alarm::ReadCommand(name) => self.read_command(name),
                Alarm::StuckCommands => self.reread_stuck(),
                Alarm::Vitals => self.sample(),
                Alarm::Rescan => self.rescan(),
                Alarm::List(folder) => self.list(folder, true),
                Alarm::StopWaiting => self.end_all("shutdown_grace is over"),
                Alarm::GiveUp => self.give_up(),
                Alarm::Status => self.status_due(),
                Alarm::Watchdog => self.show_alive(),
                Alarm::Again(id) => self.try_again(&id),
                Alarm::Large(id) => self.large_takes_long(&id),
                Alarm::Artifacts => self.look_for_artifacts(),
                Alarm::Board => self.flush_board(),
                Alarm::Helpers(id) => self.check_dependencies(&id),
                Alarm::Deadline(id) => self.deadline_near(&id),
                Alarm::Retention => self.retention_due(),
                Alarm::Crew(number) => self.tend(number),
            }
        }
        while let Some(id) = self.lot.pop_due(now) {
            self.on_due(&id);
        }
    }

    /// A slot that was freed is filled first; whoever does that then judges what was there.
    fn act(&mut self) {
        let launches = std::mem::take(&mut self.launches);
        let finishes = std::mem::take(&mut self.finishes);
        let preparations = std::mem::take(&mut self.preparations);
        let judgements = std::mem::take(&mut self.judgements);
        self.actors.run_pairs(launches, finishes);
        self.short
            .run_all(preparations.into_iter().chain(judgements));
    }

    /// What the keeper is to forget goes with the next launch, or alone when there is none.
    fn tell_keeper(&mut self) {
        if self.unsaid > 0 && self.running.is_empty() && self.busy.is_empty() {
            self.unsaid = 0;
            self.actors.run(|world| drop(world.keeper().flush()));
        }
    }

    fn on_stop(&self) -> OnStop {
        self.world.config().daemon.on_stop
    }
}
