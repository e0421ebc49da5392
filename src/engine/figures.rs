//! Figures for monitoring, where the configuration asks for them.
//!
//! The counts are kept by the committer's thread, which sees every audit line; what only the loop
//! knows, it tells when it is asked, from what it has in memory anyway. Ended handoffs are counted
//! in their folders by whoever serves the page, and seldom: a folder of a million names takes a
//! while to list.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use crate::engine::Engine;
use crate::engine::event::Event;
use crate::engine::start_error::StartError;
use crate::figures::counts::{Counts, OTHER};
use crate::figures::families::{Figures, seconds};
use crate::figures::histogram::Histogram;
use crate::figures::http;
use crate::protocol::lifecycle::State;
use crate::spool::commit::OnRound;
use crate::spool::layout::Layout;
use crate::spool::scan;
use crate::store::audit::Line;

/// How long the loop may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Counting folders may take this share of the time, one in so many.
const COUNTING_SHARE: u32 = 100;
/// How many agents are shown.
const MOST_AGENTS: usize = 200;

/// What the committer's thread counts.
#[derive(Debug)]
struct Tally {
    counts: Counts,
    batches: Histogram,
}

/// The port, open but not served yet, and what is counted for it.
pub struct Meter {
    listener: TcpListener,
    address: SocketAddr,
    tally: Arc<Mutex<Tally>>,
}

impl Meter {
    /// Opens the port, before anything else is begun: a start that can't have it is refused.
    pub fn open(listen: SocketAddrV4) -> Result<Self, StartError> {
        let opened = TcpListener::bind(listen).and_then(|it| Ok((it.local_addr()?, it)));
        let (address, listener) =
            opened.map_err(|source| StartError::Metrics { listen, source })?;
        Ok(Self {
            listener,
            address,
            tally: Arc::new(Mutex::new(Tally {
                counts: Counts::default(),
                batches: Histogram::sizes(),
            })),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the committer is to call with each round.
    pub fn on_round(&self) -> OnRound {
        let tally = Arc::clone(&self.tally);
        Box::new(move |changes, events| {
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            let changes = u32::try_from(changes).unwrap_or(u32::MAX);
            tally.batches.note(f64::from(changes));
            for event in events {
                let id = event.handoff_id.as_deref();
                tally.counts.note(event.at, &event.event, id, &event.detail);
            }
        })
    }

    /// Begins to answer.
    pub fn serve(
        self,
        layout: &Layout,
        events: UnboundedSender<Event>,
        recent: &[Line],
    ) -> io::Result<()> {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        for line in recent {
            if let Some(id) = &line.handoff_id {
                tally.counts.recall(line.at, &line.event, id);
            }
        }
        drop(tally);
        tracing::info!("figures are served at http://{}/metrics", self.address);
        let (tally, layout) = (self.tally, layout.clone());
        let census = Mutex::new(Census::default());
        let page = move || {
            let (tell, told) = channel();
            events.send(Event::Figures(tell)).ok()?;
            let mut figures = told.recv_timeout(PATIENCE).ok()?;
            census
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(&layout, &mut figures.handoffs);
            let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            figures.counts = tally.counts.clone();
            figures.batches = Some(tally.batches.clone());
            drop(tally);
            Some(figures.text())
        };
        http::serve(self.listener, Arc::new(page))
    }
}

/// How many have ended, as far as that is known.
#[derive(Debug, Default)]
struct Census {
    counted: BTreeMap<&'static str, Counted>,
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    files: u64,
    /// The folder's time of change when it was counted.
    modified_ns: i128,
    next: Instant,
}

impl Census {
    fn take(&mut self, layout: &Layout, into: &mut BTreeMap<&'static str, u64>) {
        for state in [State::Completed, State::Failed] {
            let word = state.status();
            let known = self.counted.get(word).copied();
            let counted = match known {
                Some(known) if Instant::now() < known.next => Some(known),
                _ => count(layout.state(state), known).or(known),
            };
            if let Some(counted) = counted {
                self.counted.insert(word, counted);
                into.insert(word, counted.files);
            }
        }
    }
}

/// Counts a folder, unless it has not changed.
fn count(folder: &Path, known: Option<Counted>) -> Option<Counted> {
    let begun = Instant::now();
    let metadata = std::fs::metadata(folder).ok()?;
    let modified_ns =
        i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    if let Some(known) = known.filter(|known| known.modified_ns == modified_ns) {
        return Some(known);
    }
    let files = scan::count_records(folder).ok()?;
    let next = begun + begun.elapsed() * COUNTING_SHARE;
    Some(Counted {
        files,
        modified_ns,
        next,
    })
}

impl Engine {
    /// Notes how long one that is picked had to wait.
    pub(super) fn note_pickup(&mut self, arrival_ms: i64) {
        let now = self.world.now().wall;
        if let Some(pickup) = &mut self.pickup {
            pickup.note(seconds(now.0.saturating_sub(arrival_ms)));
        }
    }

    /// Somebody asks how things stand.
    pub(super) fn on_figures(&self, tell: &Sender<Box<Figures>>) {
        let _ = tell.send(Box::new(self.figures()));
    }

    fn figures(&self) -> Figures {
        let (pending, lot) = (&self.pending, &self.lot);
        let wanted = |id: &str| pending.contains(id) || lot.get(id).is_some_and(|it| it.ready);
        let now = self.world.now().wall;
        let age = |at: i64| seconds(now.0.saturating_sub(at)).max(0.0);
        let mut figures = Figures {
            daemon: Some((env!("CARGO_PKG_VERSION").to_owned(), self.since)),
            problems: self.problems.len() as u64,
            queue_age: self.schedule.oldest_ms(wanted).map_or(0.0, age),
            slots: self.schedule.max_concurrent() as u64,
            slots_used: self.schedule.running() as u64,
            pickup: self.pickup.clone(),
            ..Figures::default()
        };
        let unread = self.to_look.len() + self.looking.len();
        figures.handoffs.extend([
            (
                State::Pending.status(),
                (self.pending.len() + unread) as u64,
            ),
            (State::InProgress.status(), self.running.len() as u64),
            (State::Waiting.status(), self.lot.len() as u64),
        ]);
        for (on, count) in self.lot.by_reason() {
            figures.waiting.insert(on.to_owned(), count as u64);
        }
        for (at, (agent, queued, running)) in self.schedule.by_agent().enumerate() {
            let name = if at < MOST_AGENTS {
                agent.to_string()
            } else {
                OTHER.to_owned()
            };
            *figures.queued.entry(name.clone()).or_default() += queued as u64;
            *figures.running.entry(name).or_default() += running as u64;
        }
        figures
    }
}
