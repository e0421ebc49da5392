//! `handoffd explain`: why it is where it is, and what moves it next.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::style::{local, safe};
use crate::cli::{Failed, Global, Outcome, complete, find, out};
use crate::clock::{Clock, Now, Wall, boot_id};
use crate::config::Config;
use crate::inspect::daemon::Daemon;
use crate::inspect::explain::{Hold, Process, Queue, Situation, Standing, sentences};
use crate::inspect::links::{self, Relations};
use crate::inspect::question::Question;
use crate::inspect::queue::{Held, Limit, Limits, agent_of, ahead_of};
use crate::inspect::summary::{Place, Row};
use crate::inspect::waits::Wait;
use crate::keeper::journal;
use crate::policy::intake::Terms;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::protocol::view::View;
use crate::spool::layout::Layout;

#[derive(Debug, Args)]
pub struct Options {
    #[arg(value_name = "ID", add = complete::ids())]
    id: String,
}

pub fn explain(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    let config = global.load_config()?;
    let place = find(&layout, &options.id)?;
    let daemon = Daemon::of(&layout);
    let read = place.read();
    let (doc, record) = read.clone().unwrap_or_default();
    let now = Clock::System.now();
    let mut facts = Facts::default();
    let why = || "it is not a complete document".to_owned();
    let standing = match read {
        None if place.state == State::Pending => Standing::Unread { why: why() },
        None => Standing::Foreign {
            state: place.state,
            why: why(),
        },
        Some(_) => {
            let record = record.as_ref();
            standing(&layout, &config, &place, &doc, record, now, &mut facts)?
        }
    };
    let standing = match (standing, &record) {
        (Standing::Interrupted, Some(record)) if daemon.running => {
            resident(&config, &place.id, record, now).unwrap_or(Standing::Interrupted)
        }
        (standing, _) => standing,
    };
    facts.note(&standing, now);
    let told = sentences(&Situation {
        id: place.id.clone(),
        agent: View::of_document(&doc)
            .agent()
            .map(|agent| agent.to_string()),
        daemon_runs: daemon.may_run(),
        daemon_stops: daemon.stopping,
        problems: daemon.problems,
        standing,
    });
    if global.json {
        out::tell(facts.to_json(&place, told))?;
    } else {
        for sentence in told {
            out::tell(safe(&sentence, false))?;
        }
    }
    Ok(0)
}

/// The same as the sentences, for machines.
#[derive(Debug, Default)]
struct Facts {
    waiting_on: Option<String>,
    until: Option<Wall>,
    position: Option<usize>,
    limit: Option<Limit>,
    /// What moves it next, in one word; nothing moves what has ended.
    waker: Option<&'static str>,
}

impl Facts {
    /// What the standing itself says.
    fn note(&mut self, standing: &Standing, now: Now) {
        self.waker = match standing {
            Standing::Completed { .. } | Standing::Failed { .. } => None,
            Standing::Foreign { state, .. } if state.is_final() => None,
            Standing::Unread { .. } | Standing::Interrupted | Standing::Foreign { .. } => {
                Some("daemon")
            }
            Standing::Queued(_) => Some("queue"),
            Standing::Running(process) => {
                self.until = process.deadline_in.map(|left| {
                    let ms = i64::try_from(left.as_millis()).unwrap_or(i64::MAX);
                    now.wall.plus_ms(ms)
                });
                Some("process")
            }
            Standing::Waiting(wait) => Some(match wait.on.as_str() {
                "retry" | "time" => "timer",
                "dependency" => "dependency",
                "handoff" => "handoff",
                "human" => "human",
                "claim" => "claim",
                _ => "daemon",
            }),
        };
    }

    fn to_json(&self, place: &Place, sentences: Vec<String>) -> Value {
        let mut told = json!({ "id": place.id, "state": place.state.status() });
        let mut say = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                told[key] = value;
            }
        };
        say("waiting_on", self.waiting_on.clone().map(Value::from));
        say("until", self.until.map(|until| until.to_string().into()));
        say("position", self.position.map(Value::from));
        say("limit", self.limit.as_ref().map(Limit::to_json));
        say("waker", Some(self.waker.into()));
        say("sentences", Some(sentences.into()));
        told
    }
}

/// One that is ready, with its place in the queue.
fn queued(
    layout: &Layout,
    config: &Config,
    place: &Place,
    now: Now,
    facts: &mut Facts,
) -> Result<Standing, Failed> {
    let (queue, held) = queue(layout, config, &place.row(), now)?;
    facts.position = Some(queue.ahead + 1);
    if let Some(held) = held {
        facts.waiting_on = Some(held.word.to_owned());
        facts.until = held.until;
        facts.limit = held.limit;
    }
    Ok(Standing::Queued(queue))
}

fn standing(
    layout: &Layout,
    config: &Config,
    place: &Place,
    doc: &Map<String, Value>,
    record: Option<&Record>,
    now: Now,
    facts: &mut Facts,
) -> Result<Standing, Failed> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let state = place.state;
    if let Some(why) = place.why_foreign(layout) {
        return Ok(Standing::Foreign { state, why });
    }
    Ok(match place.state {
        State::Pending => queued(layout, config, place, now, facts)?,
        State::InProgress => running(layout, &place.id, record, now),
        State::Waiting => {
            let timer = record.and_then(|record| record.meta.timer.as_ref());
            let left = timer.map(|timer| timer.remaining_ms(now, boot_id()));
            let waiting = doc.get("waiting");
            let of = |key: &str| waiting.and_then(|waiting| waiting.get(key));
            let on = text(of("on")).unwrap_or_else(|| "unknown".to_owned());
            if left == Some(0) && matches!(on.as_str(), "retry" | "time") {
                return queued(layout, config, place, now, facts);
            }
            let links = Relations::of(doc);
            let helpers = links
                .awaited
                .iter()
                .map(|helper| (helper.clone(), links::standing(layout, helper)));
            let since = now.wall.0.saturating_sub(place.modified.0);
            let until = timer
                .map(|timer| timer.until)
                .or_else(|| text(of("until")).and_then(|until| Wall::parse(&until)));
            facts.waiting_on = Some(on.clone());
            facts.until = until;
            Standing::Waiting(Box::new(Wait {
                until: until.map(local),
                left: left.map(Duration::from_millis),
                since: u64::try_from(since).ok().map(Duration::from_millis),
                helpers: helpers.collect(),
                ids: match on.as_str() {
                    "handoff" => links.awaited.clone(),
                    _ if of("ids").is_some() => links.waits_for,
                    _ => links.depends_on,
                },
                reason: text(of("reason"))
                    .unwrap_or_default()
                    .trim_end_matches('.')
                    .to_owned(),
                question: Question::of(doc),
                on,
            }))
        }
        State::Completed => Standing::Completed {
            at: text(doc.get("completed_at"))
                .and_then(|at| Wall::parse(&at))
                .map(local),
            seconds: doc.get("execution_time_seconds").map(ToString::to_string),
            warnings: record.map_or_else(Vec::new, warnings),
        },
        State::Failed => {
            let error = doc.get("error");
            let actions = doc.get("recovery_actions").and_then(Value::as_array);
            let trimmed = |text: &str| text.trim_end_matches('.').to_owned();
            Standing::Failed {
                code: text(error.and_then(|e| e.get("code"))).unwrap_or_else(|| "?".to_owned()),
                message: text(error.and_then(|e| e.get("message")))
                    .map(|message| trimmed(&message))
                    .unwrap_or_default(),
                actions: actions
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .map(trimmed)
                    .collect(),
                packed: place.packed.is_some(),
                retry_available: record.is_some_and(|record| record.meta.rejected.is_none())
                    && doc
                        .get("retry_available")
                        .and_then(Value::as_bool)
                        .unwrap_or(false),
            }
        }
    })
}

fn running(layout: &Layout, id: &str, record: Option<&Record>, now: Now) -> Standing {
    let attempt = record.and_then(Record::running_attempt);
    let live = journal::read(layout.run()).unwrap_or_default();
    let entry = live.into_iter().rfind(|entry| {
        entry.key.id == id
            && !entry.gone
            && entry.boot == boot_id()
            && attempt.is_none_or(|attempt| attempt.number == entry.key.attempt)
    });
    let Some(entry) = entry else {
        return Standing::Interrupted;
    };
    Standing::Running(Process {
        attempt: entry.key.attempt,
        most: None,
        pid: entry.pid,
        resident: false,
        deadline_in: Some(Duration::from_millis(
            entry.deadline_boot_ms.saturating_sub(now.boot_ms),
        )),
        ending: entry.why.map(|why| format!("{why:?}").to_lowercase()),
    })
}

/// An attempt that a resident process does, which the keeper knows nothing of.
fn resident(config: &Config, id: &str, record: &Record, now: Now) -> Option<Standing> {
    let attempt = record.running_attempt()?;
    let stem = HandoffId::parse_made(id).ok()?;
    let request = Request::from_record(record, &stem).ok()?;
    let specialist = config.specialist(&request.agent);
    let specialist = specialist.filter(|specialist| specialist.is_resident())?;
    let terms = Terms::of(&request, Some(specialist), config);
    let ran = now.wall.0.saturating_sub(attempt.started_at.0);
    let ran = Duration::from_millis(u64::try_from(ran).unwrap_or(0));
    Some(Standing::Running(Process {
        attempt: attempt.number,
        resident: true,
        deadline_in: Some(terms.timeout.saturating_sub(ran)),
        ..Process::default()
    }))
}

/// Where it stands among those that are ready for the same specialist, and what is full.
fn queue(
    layout: &Layout,
    config: &Config,
    row: &Row,
    now: Now,
) -> Result<(Queue, Option<Held>), Failed> {
    let limits = Limits::gather(layout, config, now)?;
    let agent = agent_of(row);
    let specialist = agent.as_ref().and_then(|agent| config.specialist(agent));
    let lane = agent.as_ref().map(|agent| limits.lane(config, agent));
    let held = limits.holding(lane.as_ref());
    let lane = lane.unwrap_or_default();
    let ahead = ahead_of(layout, row)?;
    let queue = Queue {
        ahead: ahead.len(),
        next: ahead.into_iter().next(),
        specialist_running: lane.running,
        specialist_limit: lane.limit,
        all_running: limits.running,
        limit: limits.limit,
        held: lane.hold.map(|hold| Hold {
            until: local(hold.until),
            id: hold.id,
            shared: hold
                .shared
                .map(|(asked, account)| (asked.to_string(), account)),
        }),
        rate: lane.rate.map(|rate| {
            let per = humantime::format_duration(rate.per);
            format!("{} in {per}", rate.starts)
        }),
        rate_until: lane.rate_until.map(local),
        configured: specialist.is_some(),
    };
    Ok((queue, held))
}

/// The warnings of an outcome: the specialist's and the daemon's. A producer may have a key of that
/// name, which says nothing about the outcome.
fn warnings(record: &Record) -> Vec<String> {
    if !record.meta.lifted.iter().any(|key| key == "warnings") {
        return Vec::new();
    }
    let found = record.doc.get("warnings").and_then(Value::as_array);
    let texts = found.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}
