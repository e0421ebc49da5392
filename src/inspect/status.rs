//! Everything at a glance.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::{Now, Wall};
use crate::config::Config;
use crate::inspect::census;
use crate::inspect::daemon::Daemon;
use crate::inspect::list::{Filter, rows};
use crate::inspect::newest;
use crate::inspect::queue;
use crate::inspect::summary::{Place, Row, id_of};
use crate::keeper::journal;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;
use crate::store::audit;

/// How many of a kind are shown.
const SHOWN: usize = 10;
/// How many lines of the audit log are read for rates.
const RATE_LINES: usize = 200_000;
/// How many waiting records are read to say what they wait for.
const WAITING_READ: usize = 20_000;
const HOUR_MS: i64 = 3_600_000;

#[derive(Debug)]
pub struct Status {
    pub root: String,
    pub daemon: Daemon,
    pub counts: BTreeMap<&'static str, usize>,
    pub waiting_on: BTreeMap<String, usize>,
    pub problems: Vec<String>,
    pub running: Vec<RunningRow>,
    pub failed_lately: Vec<Row>,
    pub oldest_pending: Option<(String, Duration)>,
    /// Completed and failed within the last hour.
    pub last_hour: (usize, usize),
}

#[derive(Debug)]
pub struct RunningRow {
    pub row: Row,
    pub attempt: u32,
    pub pid: Option<i32>,
    pub deadline_in: Option<Duration>,
}

/// Without a configuration nobody knows the limits, and what they hold is not counted.
pub fn gather(layout: &Layout, config: Option<&Config>, now: Now) -> io::Result<Status> {
    let of = |state: State| Filter {
        states: vec![state],
        ..Filter::default()
    };
    let counts = census::take(layout)?;
    let daemon = Daemon::of(layout);
    let mut problems = daemon.problems.clone();
    if let Err(error) = layout.check_one_file_system() {
        problems.push(error.to_string());
    }
    let mut waiting_on = BTreeMap::new();
    let waiting = newest::all(layout, &of(State::Waiting))?;
    for (_, row) in rows(layout, waiting, &Filter::default()).take(WAITING_READ) {
        let on = row.waiting_on.unwrap_or_else(|| "unknown".to_owned());
        *waiting_on.entry(on).or_insert(0) += 1;
    }
    if let Some(config) = config {
        waiting_on.extend(queue::count(layout, config, now)?);
    }
    let hour_ago = now.wall.plus_ms(-HOUR_MS);
    let lately = hour_ago.plus_ms(-23 * HOUR_MS);
    // In a large folder they come in the order of the log, so the first that is too old ends it.
    let failures = newest::first(layout, &of(State::Failed), newest::MANY)?;
    let recent_failures = failures
        .take_while(|place| place.modified >= lately)
        .take(SHOWN);
    let in_progress = newest::all(layout, &of(State::InProgress))?;
    Ok(Status {
        root: layout.root().display().to_string(),
        counts,
        waiting_on,
        problems,
        running: running(layout, in_progress, now),
        failed_lately: recent_failures
            .filter_map(|place| place.own_row(layout))
            .collect(),
        oldest_pending: oldest_pending(layout, now)?,
        last_hour: last_hour(layout, hour_ago),
        daemon,
    })
}

fn oldest_pending(layout: &Layout, now: Now) -> io::Result<Option<(String, Duration)>> {
    let mut oldest: Option<(Wall, String)> = None;
    newest::walk(layout.pending(), State::Pending, |name, modified| {
        if oldest.as_ref().is_none_or(|(known, _)| modified < *known)
            && let Some(id) = id_of(State::Pending, name)
        {
            oldest = Some((modified, id));
        }
    })?;
    Ok(oldest.map(|(at, id)| {
        let ms = now.wall.0.saturating_sub(at.0);
        (id, Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
    }))
}

fn running(layout: &Layout, places: impl Iterator<Item = Place>, now: Now) -> Vec<RunningRow> {
    let attempts = journal::read(layout.run()).unwrap_or_default();
    places
        .take(200)
        .map(|place| {
            let row = place.row();
            let entry = attempts
                .iter()
                .rfind(|entry| entry.key.id == row.id && !entry.gone);
            let same_boot = entry.filter(|entry| entry.boot == crate::clock::boot_id());
            RunningRow {
                // What a resident process does, the keeper does not know.
                attempt: entry.map_or_else(
                    || u32::try_from(row.attempts).unwrap_or(0),
                    |entry| entry.key.attempt,
                ),
                pid: same_boot.and_then(|entry| entry.pid),
                deadline_in: same_boot.map(|entry| {
                    Duration::from_millis(entry.deadline_boot_ms.saturating_sub(now.boot_ms))
                }),
                row,
            }
        })
        .collect()
}

fn last_hour(layout: &Layout, since: Wall) -> (usize, usize) {
    let mut ended = (0, 0);
    let lines = audit::newest_first(&layout.audit());
    // Lines may be a little out of order; a minute is much more than that.
    let recent = lines.into_iter().flatten().map_while(Result::ok);
    let recent = recent.take_while(|line| line.at >= since.plus_ms(-60_000));
    for line in recent.take(RATE_LINES).filter(|line| line.at >= since) {
        match line.detail.get("to").and_then(Value::as_str) {
            Some("completed") => ended.0 += 1,
            Some("failed") => ended.1 += 1,
            _ => {}
        }
    }
    ended
}

impl Status {
    pub fn to_json(&self) -> Value {
        let seconds = |duration: &Duration| duration.as_secs();
        json!({
            "root": self.root,
            "daemon": {
                "running": (!self.daemon.hidden).then_some(self.daemon.running),
                "stopping": self.daemon.stopping,
                "pid": self.daemon.pid,
                "version": self.daemon.version,
                "since": self.daemon.since.map(|since| since.to_string()),
            },
            "counts": self.counts,
            "waiting_on": self.waiting_on,
            "problems": self.problems,
            "running": self.running.iter().map(|running| json!({
                "id": running.row.id,
                "agent": running.row.agent,
                "attempt": running.attempt,
                "pid": running.pid,
                "deadline_in_seconds": running.deadline_in.as_ref().map(seconds),
            })).collect::<Vec<_>>(),
            "failed_lately": self.failed_lately.iter().map(Row::to_json).collect::<Vec<_>>(),
            "oldest_pending": self.oldest_pending.as_ref().map(|(id, age)| {
                json!({ "id": id, "age_seconds": seconds(age) })
            }),
            "last_hour": { "completed": self.last_hour.0, "failed": self.last_hour.1 },
        })
    }
}
