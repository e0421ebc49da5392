//! Telling people: the commands of `[notify]`, run once an outcome is on disk.
//!
//! They are a courtesy and hold up nothing: a few threads of their own run them, each command has
//! half a minute, what goes wrong is logged, and a flood of news is cut. Nothing remembers that
//! somebody was told, so a kill at the wrong moment means that nobody is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::engine::parked::{On, Parked};
use crate::engine::workers::Workers;
use crate::engine::world::World;
use crate::engine::{Engine, packages, rights};
use crate::protocol::lifecycle::State;
use crate::runner::command::{self, Call};
use crate::spool::change::Change;
use crate::spool::look::{Looked, look};
use crate::store::audit;

/// How many commands run at once.
const AT_ONCE: usize = 3;
/// How many may wait to be run; news beyond that is not told.
const MOST_WAITING: usize = 1000;
const TIMEOUT: Duration = Duration::from_secs(30);
const KILL_GRACE: Duration = Duration::from_secs(2);
/// How long a stop waits for what is being told, and how long a drain does.
const LAST_NEWS: Duration = Duration::from_secs(5);
const LAST_NEWS_OF_DRAIN: Duration = Duration::from_secs(60);

/// What is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    Failed,
    Completed,
    WaitingHuman,
    DeadlineNear,
    AdvisoryGate,
}

impl News {
    fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Completed => "completed",
            Self::WaitingHuman => "waiting_human",
            Self::DeadlineNear => "deadline_near",
            Self::AdvisoryGate => "advisory_gate",
        }
    }

    fn command(self, config: &Config) -> Option<&[String]> {
        let notify = &config.notify;
        let command = match self {
            Self::Failed => &notify.failed,
            Self::Completed => &notify.completed,
            Self::WaitingHuman | Self::DeadlineNear | Self::AdvisoryGate => &notify.waiting_human,
        };
        command.as_deref()
    }

    /// The folder in which the record stands as long as this is news.
    fn state(self, world: &World, id: &str) -> State {
        match self {
            Self::Failed => State::Failed,
            Self::Completed => State::Completed,
            Self::WaitingHuman | Self::DeadlineNear => State::Waiting,
            // It holds nothing, so the handoff may be anywhere by now.
            Self::AdvisoryGate => {
                let states = world.layout.states_of(id);
                states.first().copied().unwrap_or(State::InProgress)
            }
        }
    }
}

/// Those who run the commands, and the one who keeps packages.
pub struct People {
    tellers: Workers,
    archivist: Workers,
    open: Open,
}

/// How much is still to be told and to be kept.
#[derive(Debug, Clone, Default)]
pub struct Open {
    news: Arc<AtomicUsize>,
    packages: Arc<AtomicUsize>,
    /// The daemon leaves: what still runs is ended.
    closing: Arc<AtomicBool>,
}

/// One thing that is still to be done; gone when it was, or could not be.
struct OnItsWay(Arc<AtomicUsize>);

impl OnItsWay {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Open {
    /// Gives what is still to be told a moment before the daemon leaves, and ends the rest.
    pub fn rest(&self, drain: bool) {
        self.wait(if drain { LAST_NEWS_OF_DRAIN } else { LAST_NEWS });
        self.closing.store(true, Ordering::SeqCst);
        self.wait(KILL_GRACE + Duration::from_secs(1));
    }

    fn wait(&self, most: Duration) {
        let begun = Instant::now();
        let some = |count: &AtomicUsize| count.load(Ordering::SeqCst) > 0;
        while (some(&self.news) || some(&self.packages)) && begun.elapsed() < most {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl People {
    pub fn start(world: &Arc<World>) -> std::io::Result<Self> {
        Ok(Self {
            tellers: Workers::start(world, "tell", AT_ONCE)?,
            archivist: Workers::start(world, "keep", 1)?,
            open: Open::default(),
        })
    }

    pub fn open(&self) -> Open {
        self.open.clone()
    }

    fn tell(&self, id: &str, news: News) {
        if self.open.news.load(Ordering::SeqCst) >= MOST_WAITING {
            let event = news.word();
            tracing::warn!(
                handoff_id = id,
                event,
                "skipped a notification: too many at once"
            );
            return;
        }
        let (id, on_its_way) = (id.to_owned(), OnItsWay::new(&self.open.news));
        let closing = Arc::clone(&self.open.closing);
        self.tellers.run(move |world| {
            let _until_told = on_its_way;
            if !closing.load(Ordering::SeqCst) {
                tell(world, &id, news, &closing);
            }
        });
    }

    /// Has something done with packages, one thing after the other.
    pub fn keep(&self, job: impl FnOnce(&World) + Send + 'static) {
        let on_its_way = OnItsWay::new(&self.open.packages);
        self.archivist.run(move |world| {
            let _until_kept = on_its_way;
            job(world);
        });
    }
}

impl Engine {
    /// Something new stands on disk: people may want to hear of it, and an end to be kept.
    pub(super) fn make_known(&mut self, id: &str, to: State, parked: Option<&Parked>) {
        let news = match to {
            State::Completed => News::Completed,
            State::Failed => News::Failed,
            State::Waiting if parked.is_some_and(|it| it.on == On::Human) => News::WaitingHuman,
            _ => return,
        };
        if to.is_final() {
            self.note_end(to, id);
        }
        let config = self.world.config();
        if to.is_final() && packages::is_kept(&self.world, id) {
            let id = id.to_owned();
            self.people.keep(move |world| packages::keep(world, &id));
        }
        // What completes may have a follow-up that was refused.
        let wanted = news.command(&config).is_some()
            || (news == News::Completed && config.notify.failed.is_some());
        if wanted {
            self.people.tell(id, news);
        }
    }

    /// An advisory gate was passed: people may want to look.
    pub(super) fn advise(&mut self, id: &str) {
        tracing::info!(
            handoff_id = id,
            "it has an advisory gate; nothing waits for an answer"
        );
        if News::AdvisoryGate.command(&self.world.config()).is_some() {
            self.people.tell(id, News::AdvisoryGate);
        }
    }

    /// The time to answer a question is nearly over.
    pub(super) fn deadline_near(&mut self, id: &str) {
        let now = self.now_ms();
        let Some(parked) = self.lot.get_mut(id) else {
            return;
        };
        // It may have been asked anew meanwhile, with more time.
        if parked.on == On::Human && parked.warn_ms.is_some_and(|warn| warn <= now) {
            parked.warn_ms = None;
            let left = parked.due_ms.unwrap_or(now).saturating_sub(now);
            let left = humantime::format_duration(Duration::from_secs(left.div_ceil(1000)));
            tracing::warn!(
                handoff_id = id,
                "it waits for a human; {left} left until the deadline"
            );
            let line = audit::Event::new(self.world.now().wall, News::DeadlineNear.word())
                .about(id)
                .with("left", left.to_string());
            self.actors
                .run(move |world| world.committer.submit(Change::Note, vec![line], |_| {}));
            if News::DeadlineNear.command(&self.world.config()).is_some() {
                self.people.tell(id, News::DeadlineNear);
            }
        }
    }
}

fn tell(world: &World, id: &str, news: News, closing: &AtomicBool) {
    if news == News::Completed
        && let Some((State::Completed, record)) = packages::ended(world, id)
    {
        for refused in packages::refused(&record) {
            run(world, refused, News::Failed, closing);
        }
    }
    run(world, id, news, closing);
}

fn run(world: &World, id: &str, news: News, closing: &AtomicBool) {
    let config = world.config();
    let Some(command) = news.command(&config) else {
        return;
    };
    let event = news.word();
    if let Some(wrong) = rights::command(world.layout.root(), command) {
        return tracing::warn!(
            handoff_id = id,
            event,
            "did not run the notify command: {wrong}"
        );
    }
    // It may be somewhere else by now; then there is other news.
    let path = world.layout.record(news.state(world, id), id);
    let Looked::Bytes { bytes, .. } = look(&path, u64::MAX - 1) else {
        return tracing::debug!(
            handoff_id = id,
            event,
            "skipped a notification: the handoff has \
        moved on"
        );
    };
    let call = Call {
        command,
        root: world.layout.root(),
        env: &[("HANDOFF_ID", id), ("HANDOFF_EVENT", event)],
        input: &bytes,
        timeout: TIMEOUT,
        kill_grace: KILL_GRACE,
        give_up: Some(closing),
    };
    match command::run(&call) {
        Ok(ended) if ended.passed => tracing::debug!(handoff_id = id, event, "told"),
        Ok(ended) => tracing::warn!(
            handoff_id = id,
            event,
            "the notify command {}",
            ended.reason
        ),
        Err(error) => tracing::warn!(
            handoff_id = id,
            event,
            "can't run the notify command: {error}"
        ),
    }
}
