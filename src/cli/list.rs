//! `handoffd list`: handoffs in rows, newest first.

use std::io::Write;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::style::{Ink, columns, ink, line, moment, safe, span, state, words};
use crate::cli::{Failed, Global, Outcome, complete, duration, out};
use crate::clock::{Clock, Wall};
use crate::inspect::links::thing;
use crate::inspect::list::{Filter, rows};
use crate::inspect::newest;
use crate::inspect::summary::{Place, Row};
use crate::protocol::agent::AgentName;
use crate::protocol::error::ErrorCode;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;
use crate::store::archive::Archive;

/// The filters that `list` and bulk actions share.
#[derive(Debug, Default, Args)]
pub struct Filters {
    /// Only these states
    #[arg(long, value_enum, value_delimiter = ',')]
    state: Vec<StateName>,
    /// Only handoffs for this agent
    #[arg(long, value_name = "AGENT", add = complete::agents())]
    agent: Option<String>,
    /// Only failures with this code, like TIMEOUT
    #[arg(long, value_name = "CODE", add = complete::codes())]
    code: Option<String>,
    /// Only changes within this time, like 1h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    since: Option<Duration>,
    /// Only handoffs with this text in their id, or in their error's code or message
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Only handoffs that wait for this; `human` is the inbox
    #[arg(long, value_enum, value_name = "WHAT")]
    waiting: Option<Waiting>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum StateName {
    Pending,
    #[value(alias = "in-progress", alias = "running")]
    InProgress,
    Waiting,
    Completed,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Waiting {
    #[value(alias = "person")]
    Human,
    Handoff,
    Retry,
    Time,
    Dependency,
}

impl Waiting {
    fn word(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Handoff => "handoff",
            Self::Retry => "retry",
            Self::Time => "time",
            Self::Dependency => "dependency",
        }
    }
}

impl Filters {
    pub fn is_empty(&self) -> bool {
        self.state.is_empty()
            && self.agent.is_none()
            && self.code.is_none()
            && self.since.is_none()
            && self.text.is_none()
            && self.waiting.is_none()
    }

    pub fn to_filter(&self) -> Result<Filter, Failed> {
        let usage = |text: String| Failed::usage("USAGE", anyhow::anyhow!(text));
        let mut states: Vec<State> = self
            .state
            .iter()
            .map(|name| match name {
                StateName::Pending => State::Pending,
                StateName::InProgress => State::InProgress,
                StateName::Waiting => State::Waiting,
                StateName::Completed => State::Completed,
                StateName::Failed => State::Failed,
            })
            .collect();
        let code = match &self.code {
            None => None,
            Some(code) => {
                let code = code.to_uppercase();
                if ErrorCode::parse(&code).is_none() {
                    let known: Vec<&str> =
                        ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
                    return Err(usage(format!(
                        "unknown error code {code}; the codes are {}",
                        known.join(", ")
                    )));
                }
                Some(code)
            }
        };
        // Others can't match; looking only there saves reading them. What was named stays named.
        if states.is_empty() {
            states.extend(code.as_ref().map(|_| State::Failed));
            states.extend(self.waiting.map(|_| State::Waiting));
        }
        Ok(Filter {
            states,
            agent: match &self.agent {
                Some(agent) => Some(AgentName::parse(agent).map_err(|e| usage(e.to_owned()))?),
                None => None,
            },
            code,
            since: self
                .since
                .map(|since| before(Clock::System.now().wall, since)),
            before: None,
            text: self.text.clone(),
            waiting: self.waiting.map(|what| what.word().to_owned()),
        })
    }
}

fn before(now: Wall, since: Duration) -> Wall {
    now.plus_ms(-i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  handoffd list --state failed --since 1d\n  handoffd list --agent \
                        coder --code TIMEOUT\n  handoffd list --waiting human     # the inbox\n  \
                        handoffd list --json | head -5"
)]
pub struct Options {
    #[command(flatten)]
    filters: Filters,
    /// Rows per page; 0 for all [default: 50, or all with --json]
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
    /// The page, from 1
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = page)]
    page: usize,
    /// Packed handoffs, newest file first, instead of those in folders
    #[arg(long, conflicts_with_all = ["waiting", "page"])]
    archived: bool,
    /// Only changes before this instant; for the next page, the last row's `updated_at`
    #[arg(long, value_name = "TIME", value_parser = instant)]
    before: Option<Wall>,
}

fn page(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("the first page is 1".to_owned()),
        Ok(page) => Ok(page),
    }
}

fn instant(text: &str) -> Result<Wall, String> {
    Wall::parse(text).ok_or_else(|| "write it like 2026-11-16T03:12:32.600Z".to_owned())
}

pub fn list(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    let filter = Filter {
        before: options.before,
        ..options.filters.to_filter()?
    };
    if options.archived {
        return list_archived(global, options, &layout, &filter);
    }
    // A machine reads all of it; a person reads a page.
    let limit = options.limit.unwrap_or(if global.json { 0 } else { 50 });
    let all = limit == 0;
    let (skipped, take) = if all {
        (0, usize::MAX)
    } else {
        (options.page.saturating_sub(1).saturating_mul(limit), limit)
    };
    let places = if all {
        newest::all(&layout, &filter)?
    } else {
        newest::first(&layout, &filter, newest::MANY)?
    };
    // Pages before this one are read only where that is needed to know what is on them.
    let (unread, skip) = if filter.asks_for_content() {
        (0, skipped)
    } else {
        (skipped, 0)
    };
    let mut found = rows(&layout, places.skip(unread), &filter).skip(skip);
    let mut out = out::lock();
    if global.json {
        for (_, row) in found.take(take) {
            writeln!(out, "{}", row.to_json())?;
        }
        return Ok(0);
    }
    let shown = found.by_ref().take(take).map(|(_, row)| row);
    let (heading, mut table) = match options.filters.waiting {
        Some(Waiting::Human) => inbox(shown),
        Some(_) => waits(shown),
        None => all_kinds(shown),
    };
    if table.is_empty() {
        let pages = if skipped == 0 {
            0
        } else {
            count(&layout, &filter)?.div_ceil(limit)
        };
        match pages {
            0 => out::talk!("no handoff matches"),
            1 => out::talk!("there is only one page"),
            _ => out::talk!("there are only {pages} pages"),
        }
        return Ok(0);
    }
    table.insert(0, heading.iter().map(|h| ink(h, Ink::Bold)).collect());
    out.write_all(columns(&table).as_bytes())?;
    if !all && found.next().is_some() {
        out::talk!(
            "more: --page {}, or --limit 0 for all",
            options.page.saturating_add(1)
        );
    }
    if options.filters.waiting == Some(Waiting::Human) {
        out::talk!("to see a question and how to answer it: handoffd show ID");
    }
    Ok(0)
}

/// How many handoffs the filter wants.
fn count(layout: &Layout, filter: &Filter) -> std::io::Result<usize> {
    let places = newest::all(layout, filter)?;
    Ok(if filter.asks_for_content() {
        rows(layout, places, filter).count()
    } else {
        places.count()
    })
}

/// Rows of the archive, in the order of its files.
fn list_archived(global: &Global, options: &Options, layout: &Layout, filter: &Filter) -> Outcome {
    let limit = options.limit.unwrap_or(if global.json { 0 } else { 50 });
    let most = if limit == 0 { usize::MAX } else { limit };
    let mut out = out::lock();
    let mut shown = Vec::new();
    let mut count = 0;
    let enough = || std::io::Error::from(std::io::ErrorKind::Interrupted);
    let read = Archive::new(&layout.archive()).each(|packed| {
        let place = Place::archived(layout, packed);
        if !filter.has_state(place.state) || !filter.has_time(place.modified) {
            return Ok(());
        }
        for (_, row) in rows(layout, std::iter::once(place), filter) {
            if count >= most {
                return Err(enough());
            }
            count += 1;
            if global.json {
                writeln!(out, "{}", row.to_json())?;
            } else {
                shown.push(row);
            }
        }
        Ok(())
    });
    let more = match read {
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => true,
        read => {
            read?;
            false
        }
    };
    if global.json {
        return Ok(0);
    }
    if shown.is_empty() {
        out::talk!("no handoff matches");
        return Ok(0);
    }
    let (heading, mut table) = all_kinds(shown.into_iter());
    table.insert(0, heading.iter().map(|h| ink(h, Ink::Bold)).collect());
    out.write_all(columns(&table).as_bytes())?;
    if more {
        out::talk!("for more: --limit 0");
    }
    Ok(0)
}

type Table = (&'static [&'static str], Vec<Vec<String>>);

fn all_kinds(rows: impl Iterator<Item = Row>) -> Table {
    let table = rows.map(|row| {
        let (code, message) = row.error.clone().unwrap_or_default();
        let note = match &row.waiting_on {
            Some(on) if row.state == State::Waiting => format!("for {}", thing(on)),
            _ if code.is_empty() => String::new(),
            _ => format!("{code}: {message}"),
        };
        vec![
            safe(&row.id, false),
            state(row.state),
            safe(row.agent.as_deref().unwrap_or("?"), false),
            row.attempts.to_string(),
            moment(row.updated_at),
            words(&note, 60),
        ]
    });
    let heading = &["ID", "STATE", "AGENT", "TRIES", "CHANGED", ""];
    (heading, table.collect())
}

/// What people are asked, with how long ago and until when.
fn inbox(rows: impl Iterator<Item = Row>) -> Table {
    let now = Clock::System.now().wall;
    let table = rows.map(|row| {
        let asked = row.question.unwrap_or_default();
        let kind = match &asked.gate {
            Some(gate) => format!("{} {gate}", asked.kind),
            None => asked.kind.clone(),
        };
        vec![
            safe(&row.id, false),
            line(&kind, 30),
            safe(row.agent.as_deref().unwrap_or("?"), false),
            age(row.updated_at, now),
            asked.until.map_or_else(|| "-".to_owned(), moment),
            words(&asked.in_one_line(), 2000),
        ]
    });
    let heading = &["ID", "KIND", "AGENT", "WAITS", "DEADLINE", "QUESTION"];
    (heading, table.collect())
}

fn waits(rows: impl Iterator<Item = Row>) -> Table {
    let now = Clock::System.now().wall;
    let table = rows.map(|row| {
        vec![
            safe(&row.id, false),
            safe(row.agent.as_deref().unwrap_or("?"), false),
            row.attempts.to_string(),
            age(row.updated_at, now),
            row.until.map_or_else(|| "-".to_owned(), moment),
            words(row.reason.as_deref().unwrap_or_default(), 80),
        ]
    });
    let heading = &["ID", "AGENT", "TRIES", "WAITS", "UNTIL", "WHY"];
    (heading, table.collect())
}

fn age(since: Wall, now: Wall) -> String {
    let ms = u64::try_from(now.0.saturating_sub(since.0)).unwrap_or(0);
    span(Duration::from_millis(ms))
}
