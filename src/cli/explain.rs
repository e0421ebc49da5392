//! `handoffd explain`: why it is where it is, and what moves it next.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::style::{local, safe};
use crate::cli::{Global, Outcome, complete, find, out};
use crate::clock::{Clock, Now, Wall, boot_id};
use crate::config::{Config, Specialist};
use crate::inspect::daemon::Daemon;
use crate::inspect::explain::{Hold, Process, Queue, Situation, Standing, sentences};
use crate::inspect::links::{self, Relations};
use crate::inspect::list::{Filter, rows};
use crate::inspect::newest;
use crate::inspect::question::Question;
use crate::inspect::summary::{Place, Row};
use crate::inspect::waits::Wait;
use crate::keeper::journal;
use crate::policy::intake::Terms;
use crate::policy::schedule::head_start_ms;
use crate::protocol::agent::AgentName;
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
    let standing = match read {
        None if place.state == State::Pending => Standing::Unread {
            why: "it is not a whole document".to_owned(),
        },
        None => Standing::Foreign {
            state: place.state,
            why: "it is not a whole document".to_owned(),
        },
        Some(_) => standing(&layout, &config, &place, &doc, record.as_ref(), now)?,
    };
    let standing = match (standing, &record) {
        (Standing::Interrupted, Some(record)) if daemon.running => {
            resident(&config, &options.id, record, now).unwrap_or(Standing::Interrupted)
        }
        (standing, _) => standing,
    };
    let told = sentences(&Situation {
        id: options.id.clone(),
        agent: View::of_document(&doc)
            .agent()
            .map(|agent| agent.to_string()),
        daemon_runs: daemon.may_run(),
        daemon_stops: daemon.stopping,
        problems: daemon.problems,
        standing,
    });
    if global.json {
        let text = json!({ "id": options.id, "state": place.state.status(), "explanation": told });
        out::tell(text)?;
    } else {
        for sentence in told {
            out::tell(safe(&sentence, false))?;
        }
    }
    Ok(0)
}

fn standing(
    layout: &Layout,
    config: &Config,
    place: &Place,
    doc: &Map<String, Value>,
    record: Option<&Record>,
    now: Now,
) -> Result<Standing, crate::cli::Failed> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let state = place.state;
    if let Some(why) = place.why_foreign(layout) {
        return Ok(Standing::Foreign { state, why });
    }
    Ok(match place.state {
        State::Pending => Standing::Queued(queue(layout, config, &place.row(), now)?),
        State::InProgress => running(layout, &place.id, record, now),
        State::Waiting => {
            let timer = record.and_then(|record| record.meta.timer.as_ref());
            let left = timer.map(|timer| timer.remaining_ms(now, boot_id()));
            let waiting = doc.get("waiting");
            let of = |key: &str| waiting.and_then(|waiting| waiting.get(key));
            let on = text(of("on")).unwrap_or_else(|| "unknown".to_owned());
            if left == Some(0) && matches!(on.as_str(), "retry" | "time") {
                return Ok(Standing::Queued(queue(layout, config, &place.row(), now)?));
            }
            let links = Relations::of(doc);
            let helpers = links
                .awaited
                .iter()
                .map(|helper| (helper.clone(), links::standing(layout, helper)));
            let since = now.wall.0.saturating_sub(place.modified.0);
            Standing::Waiting(Box::new(Wait {
                until: timer
                    .map(|timer| timer.until)
                    .or_else(|| text(of("until")).and_then(|until| Wall::parse(&until)))
                    .map(local),
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
) -> Result<Queue, crate::cli::Failed> {
    let agent_of = |row: &Row| {
        row.agent
            .as_deref()
            .and_then(|agent| AgentName::parse(agent).ok())
    };
    let agent = agent_of(row);
    let specialist = agent.as_ref().and_then(|agent| config.specialist(agent));
    let key = |row: &Row| row.updated_at.0.saturating_sub(head_start_ms(row.priority));
    let pending = Filter {
        states: vec![State::Pending],
        ..Filter::default()
    };
    let mut ahead: Vec<(i64, String)> = rows(layout, newest::all(layout, &pending)?, &pending)
        .map(|(_, other)| other)
        .filter(|other| agent_of(other) == agent && other.id != row.id && key(other) <= key(row))
        .map(|other| (key(&other), other.id))
        .collect();
    ahead.sort();
    let running = Filter {
        states: vec![State::InProgress],
        ..Filter::default()
    };
    let running: Vec<Row> = rows(layout, newest::all(layout, &running)?, &running)
        .map(|(_, row)| row)
        .collect();
    Ok(Queue {
        ahead: ahead.len(),
        next: ahead.first().map(|(_, id)| id.clone()),
        specialist_running: running
            .iter()
            .filter(|other| agent_of(other) == agent)
            .count(),
        specialist_limit: specialist.and_then(Specialist::at_once),
        all_running: running.len(),
        limit: config.daemon.max_concurrent,
        held: held(layout, agent.as_ref(), now)?,
        rate: specialist
            .and_then(|specialist| specialist.rate.as_ref())
            .map(|rate| {
                format!(
                    "{} in {}",
                    rate.starts,
                    humantime::format_duration(rate.per)
                )
            }),
        configured: specialist.is_some(),
    })
}

/// Until when the specialist asked to be left alone, if it did, and in which handoff.
fn held(
    layout: &Layout,
    agent: Option<&AgentName>,
    now: Now,
) -> Result<Option<Hold>, crate::cli::Failed> {
    let waiting = Filter {
        states: vec![State::Waiting],
        agent: agent.cloned(),
        waiting: Some("time".to_owned()),
        ..Filter::default()
    };
    Ok(rows(layout, newest::all(layout, &waiting)?, &waiting)
        .filter_map(|(place, _)| Some((place.read()?.1?, place.id)))
        .filter(|(record, _)| record.meta.holds_agent)
        .filter_map(|(record, id)| Some((record.meta.timer?, id)))
        .filter(|(timer, _)| timer.remaining_ms(now, boot_id()) > 0)
        .max_by_key(|(timer, _)| timer.until)
        .map(|(timer, id)| Hold {
            until: local(timer.until),
            id,
        }))
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
