//! `handoffd show`: one record, readably.

mod material;

use std::io::Write;

use clap::Args;
use serde_json::{Map, Value};

use crate::cli::style::{
    Ink, columns, facts as in_facts, ink, local, moment, safe, span, state, words,
};
use crate::cli::{Failed, Global, Outcome, complete, find, out};
use crate::clock::Wall;
use crate::inspect::links::{Relations, standing};
use crate::inspect::material::Material;
use crate::inspect::question::Question;
use crate::inspect::summary::Place;
use crate::keeper::journal;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::shown;
use crate::protocol::usage;
use crate::protocol::view::View;
use crate::spool::layout::Layout;

#[derive(Debug, Args)]
pub struct Options {
    #[arg(value_name = "ID", add = complete::ids())]
    id: String,
}

pub fn show(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    let place = find(&layout, &options.id)?;
    if let Some(why) = place.why_foreign(&layout) {
        let path = shown::word(&layout.relative(&place.path));
        let text = format!(
            "{path} is not the outcome of {}: {why}. Somebody else put the file there or edited it. Move it away, like: mv {path} .",
            place.id
        );
        return Err(Failed::thing("NO_RECORD", anyhow::anyhow!(text)));
    }
    let mut out = out::lock();
    if global.json {
        out.write_all(&place.bytes()?)?;
        return Ok(0);
    }
    let Some((doc, record)) = place.read() else {
        writeln!(
            out,
            "{} in {} is not a complete document yet",
            safe(&place.id, false),
            place.state
        )?;
        return Ok(0);
    };
    out.write_all(page(&layout, &place, &doc, record.as_ref()).as_bytes())?;
    Ok(0)
}

fn text<'a>(doc: &'a Map<String, Value>, path: &[&str]) -> Option<&'a str> {
    let (first, rest) = path.split_first()?;
    let mut value = doc.get(*first)?;
    for key in rest {
        value = value.get(key)?;
    }
    value.as_str()
}

fn page(
    layout: &Layout,
    place: &Place,
    doc: &Map<String, Value>,
    record: Option<&Record>,
) -> String {
    let mut page = format!(
        "{}  {}\n",
        ink(&safe(&place.id, false), Ink::Bold),
        state(place.state)
    );
    let mut say = |line: String| {
        page.push_str(&line);
        page.push('\n');
    };
    if let Some(code) = text(doc, &["error", "code"]) {
        let message = text(doc, &["error", "message"]).unwrap_or_default();
        say(format!(
            "\n{} {}",
            ink(&safe(code, false), Ink::Bad),
            safe(message, true)
        ));
        let actions = doc.get("recovery_actions").and_then(Value::as_array);
        for action in actions.into_iter().flatten().filter_map(Value::as_str) {
            say(format!("  → {}", safe(action, false)));
        }
        say(String::new());
    }
    let mut facts: Vec<Vec<String>> = Vec::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.push(vec![ink(name, Ink::Dim), value]);
        }
    };
    let plain = |path: &[&str]| text(doc, path).map(|value| safe(value, false));
    let when = |key: &str| text(doc, &[key]).and_then(Wall::parse).map(local);
    let view = View::of_document(doc);
    fact("for", view.agent_shown().map(|agent| safe(&agent, false)));
    fact("from", view.source_shown().map(|agent| safe(&agent, false)));
    let priority = view.get("priority").and_then(Value::as_str);
    fact("priority", priority.map(|priority| safe(priority, false)));
    let links = Relations::of(doc);
    fact("chain", links.chain.as_deref().map(|id| safe(id, false)));
    fact("parent", links.parent.as_deref().map(|id| safe(id, false)));
    fact("waits for", plain(&["waiting", "on"]));
    fact(
        "until",
        text(doc, &["waiting", "until"])
            .and_then(Wall::parse)
            .map(local),
    );
    fact("because", plain(&["waiting", "reason"]));
    fact("answer", answer(doc));
    fact("comment", plain(&["answer", "comment"]));
    fact("started", when("started_at"));
    fact("completed", when("completed_at"));
    fact("failed", when("failed_at"));
    fact(
        "worked",
        doc.get("execution_time_seconds")
            .map(|seconds| format!("{seconds} s")),
    );
    fact("summary", plain(&["result", "summary"]));
    let takeover = record.and_then(|record| takeover(place, record));
    fact("take over", takeover.map(|line| safe(&line, false)));
    let file = safe(&layout.relative(&place.path), false);
    fact(
        "file",
        Some(match place.packed {
            Some(_) => format!("packed in {file}/"),
            None => file,
        }),
    );
    say(in_facts(&facts).trim_end().to_owned());
    if let Some(asked) = Question::of(doc).filter(|_| place.state == State::Waiting) {
        say(material::question(&place.id, &asked).trim_end().to_owned());
    }
    if let Some(input) = Material::of(doc).input {
        say(material::input(&place.id, &input).trim_end().to_owned());
    }
    if !links.children.is_empty() {
        say(format!("\n{}", ink("CHILDREN", Ink::Bold)));
        say(children(layout, &links).trim_end().to_owned());
        let id = safe(&place.id, false);
        say(ink(&format!("  all of it: handoffd chain {id}"), Ink::Dim));
    }
    if let Some(record) = record.filter(|record| !record.meta.attempts.is_empty()) {
        say(format!("\n{}", ink("ATTEMPTS", Ink::Bold)));
        say(attempts(layout, &place.id, record).trim_end().to_owned());
    }
    for key in ["output", "next_steps", "warnings"] {
        if let Some(value) = doc.get(key).filter(|value| !is_empty(value)) {
            say(format!(
                "\n{}",
                ink(&key.to_uppercase().replace('_', " "), Ink::Bold)
            ));
            let pretty = serde_json::to_string_pretty(value).unwrap_or_default();
            say(safe(&pretty, true));
        }
    }
    page
}

/// The line that takes the session of a coding agent over by hand. While an attempt runs, the
/// session is the attempt's.
fn takeover(place: &Place, record: &Record) -> Option<String> {
    if place.state == State::InProgress {
        return None;
    }
    let results = [
        record.doc.get("result"),
        record.meta.last_result.get("result"),
    ];
    let line = |result: &Value| {
        result
            .get("metadata")?
            .get("takeover")?
            .as_str()
            .map(str::to_owned)
    };
    results.into_iter().flatten().find_map(line)
}

/// What a human answered, who it was, and when.
fn answer(doc: &Map<String, Value>) -> Option<String> {
    let said = |key: &str| text(doc, &["answer", key]);
    let action = said("action")?;
    let choice = said("choice").map(|choice| format!(" ({choice})"));
    let by = said("by").unwrap_or("a human");
    let at = said("at").and_then(Wall::parse).map(local);
    let at = at.map(|at| format!(", {at}"));
    let answer = format!(
        "{action}{} by {by}{}",
        choice.unwrap_or_default(),
        at.unwrap_or_default()
    );
    Some(safe(&answer, false))
}

/// Whom it has set in motion, and how they stand.
fn children(layout: &Layout, links: &Relations) -> String {
    const SHOWN: usize = 20;
    let mut rows: Vec<Vec<String>> = links
        .children
        .iter()
        .take(SHOWN)
        .map(|child| {
            let role = match links.returned.iter().find(|it| it.id == *child) {
                Some(back) => format!("helped: {}", safe(&back.status, false)),
                None if links.is_helper(child) => "helps".to_owned(),
                None => "goes on".to_owned(),
            };
            let stands = standing(layout, child);
            vec![
                format!("  {}", safe(child, false)),
                role,
                safe(&stands, false),
            ]
        })
        .collect();
    if links.children.len() > SHOWN {
        rows.push(vec![format!("  and {} more", links.children.len() - SHOWN)]);
    }
    columns(&rows)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn attempts(layout: &Layout, id: &str, record: &Record) -> String {
    let live = journal::read(layout.run()).unwrap_or_default();
    let rows: Vec<Vec<String>> = record
        .meta
        .attempts
        .iter()
        .map(|attempt| {
            let outcome = attempt.outcome.map_or_else(
                || {
                    let entry = live
                        .iter()
                        .find(|entry| entry.key.id == id && entry.key.attempt == attempt.number);
                    match entry.and_then(|entry| entry.pid) {
                        Some(pid) => format!("running (process {pid})"),
                        None => "running".to_owned(),
                    }
                },
                |outcome| {
                    serde_json::to_value(outcome)
                        .ok()
                        .and_then(|word| word.as_str().map(str::to_owned))
                        .unwrap_or_default()
                },
            );
            let end = match (attempt.exit_code, attempt.signal) {
                (Some(code), _) => format!("exit {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => String::new(),
            };
            let error = attempt
                .error
                .as_ref()
                .map(|error| words(&error.message, 60));
            let many = attempt
                .count
                .map(|count| format!("the last of {count} in a row"));
            vec![
                format!("  {}", attempt.number),
                moment(attempt.started_at),
                attempt
                    .milliseconds
                    .map(|ms| span(std::time::Duration::from_millis(ms)))
                    .unwrap_or_default(),
                outcome,
                end,
                error.or(many).unwrap_or_default(),
                attempt
                    .usage
                    .as_ref()
                    .and_then(usage::in_words)
                    .unwrap_or_default(),
            ]
        })
        .collect();
    columns(&rows)
}
