//! Packages that return: what became of the work goes back to the agent that sent it.
//!
//! A delegation is a question, and so is a package to a person. Its end is the answer, whether it
//! was done, failed or was rejected. A cancel is no answer, and a return never returns itself.

use serde_json::{Map, Value, json};

use super::Author;
use super::bound::bound;
use super::entries::{Entries, Questions, Said};
use super::handed::{approval, carried, origin};
use super::next_agent;
use super::request::Link;
use crate::clock::Wall;
use crate::config::Config;
use crate::protocol::agent::AgentName;
use crate::protocol::dialect::Dialect;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::links::Spawn;
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::protocol::view::View;

/// A package on its way back.
#[derive(Debug, Clone, PartialEq)]
pub struct Return {
    spawn: Spawn,
    outcome: &'static str,
}

impl Return {
    /// Links a decided record with its return.
    pub fn put_into(self, record: &mut Record) {
        let links = &mut record.meta.links;
        links.children.push(self.spawn.id.clone());
        links.spawns.push(self.spawn);
        links.returned = Some(self.outcome.to_owned());
    }
}

/// The return of a record that is decided, if it is a package that returns. An outcome that the
/// sender knows already, from before a retry, is not told again.
pub fn return_of(record: &Record, id: &str, config: &Config, now: Wall) -> Option<Return> {
    let view = View::of_record(record);
    let caller = caller(&view, config)?;
    let outcome =
        outcome(record).filter(|it| record.meta.links.returned.as_deref() != Some(*it))?;
    let goes_on = || {
        let result = record.doc.get("result").and_then(Value::as_object);
        !record.meta.links.spawns.is_empty() || result.and_then(next_agent).is_some()
    };
    if outcome == COMPLETED && goes_on() {
        return None;
    }
    // What can't be read as a package was never handed to anybody.
    let stem = HandoffId::parse_made(id).ok()?;
    Request::from_record(record, &stem).ok()?;
    let context = context(record, id, &view, outcome);
    let said = Value::Object(context.clone());
    let link = Link::new(record, id, &caller, &said, true, 0, config);
    let child = link.child_id(record, id, 0, now);
    let mut handoff = json!({
        "id": child, "timestamp": now.to_string(), "type": "return",
        "from": { "agent": view.agent_written() },
        "to": { "agent": view.source(), "reason": format!("{id} is {outcome}") },
        "context": context,
    });
    if let Some(priority) = view.get("priority") {
        handoff["priority"] = priority.clone();
    }
    let mut request = Map::new();
    request.insert("handoff_id".to_owned(), child.clone().into());
    request.insert("handoff".to_owned(), handoff);
    let around = carried(&view);
    if !around.is_empty() {
        request.insert("context".to_owned(), Value::Object(around));
    }
    let data = chain_data(record, id);
    request.insert("input".to_owned(), json!({ "data": data }));
    let nothing = Map::new();
    bound(
        &mut request,
        &nothing,
        &mut Map::new(),
        (record, id),
        config,
    );
    let refused = link.refused.clone();
    let block = link.block(id, Map::new(), Map::new());
    request.insert("handoffd".to_owned(), block);
    let spawn = Spawn {
        id: child,
        request,
        refused,
    };
    Some(Return { spawn, outcome })
}

const COMPLETED: &str = "completed";

/// The agent that waits for what becomes of this, if there is one that was configured by name.
fn caller(view: &View<'_>, config: &Config) -> Option<AgentName> {
    if view.dialect != Dialect::Package {
        return None;
    }
    let is_for_person = view.agent().is_some_and(|agent| agent.is_human());
    let returns = match view.get("type").and_then(Value::as_str) {
        Some(kind) => ["delegation", "escalation"].contains(&kind),
        None => is_for_person,
    };
    let caller = AgentName::parse(view.source()?).ok()?;
    let is_named = !caller.is_wildcard() && config.specialists.contains_key(&caller);
    (returns && is_named).then_some(caller)
}

/// How it ended, if that is an answer.
fn outcome(record: &Record) -> Option<&'static str> {
    let error = record.doc.get("error");
    let code = error.and_then(|error| error.get("code")?.as_str());
    match (record.meta.to?, code) {
        (State::Completed, _) => Some(COMPLETED),
        (State::Failed, Some("CANCELLED" | "DUPLICATE_ID")) => None,
        (State::Failed, Some("REJECTED")) => Some("rejected"),
        (State::Failed, _) => Some("failed"),
        _ => None,
    }
}

/// What the caller is told.
fn context(record: &Record, id: &str, view: &View<'_>, outcome: &str) -> Map<String, Value> {
    let mut context = Map::new();
    let empty = Map::new();
    let result = record.doc.get("result").and_then(Value::as_object);
    let result = result.filter(|_| outcome == COMPLETED).unwrap_or(&empty);
    let error = record.doc.get("error").filter(|_| outcome != COMPLETED);
    let handoff = result.get("handoff").and_then(Value::as_object);
    let said = [
        error.and_then(|error| error.get("message")),
        result.get("summary"),
        handoff.and_then(|handoff| handoff.get("context")),
        record
            .doc
            .get("output")
            .and_then(|output| output.get("text")),
    ];
    let said = said.into_iter().flatten().filter_map(Value::as_str);
    let agent = view.agent_written().unwrap_or("a specialist");
    let summary = said
        .map(str::trim)
        .find(|text| !text.is_empty())
        .map_or_else(
            || format!("{id}, sent to {agent}, is {outcome}"),
            str::to_owned,
        );
    context.insert("summary".to_owned(), summary.into());
    context.insert("status".to_owned(), outcome.into());
    if let Some(error) = error {
        context.insert("error".to_owned(), error.clone());
    }
    if let Some(answer) = record.doc.get("answer") {
        context.insert("answer".to_owned(), answer.clone());
    }
    let mut entries = Entries::default();
    if outcome == COMPLETED {
        let said = Said::of_result(result).only_delivered(record);
        entries.add(id, said, Questions::Replace);
    }
    entries.put_into(&mut context, &Map::new());
    for key in ["files_modified", "verification"] {
        if let Some(value) = result.get(key).filter(|value| !value.is_null()) {
            context.insert(key.to_owned(), value.clone());
        }
    }
    for (key, value) in carried(view) {
        if ["task_id", "project_id"].contains(&key.as_str()) {
            context.insert(key, value);
        }
    }
    context
}

/// What the chain carries, for what the caller sets in motion.
fn chain_data(record: &Record, id: &str) -> Map<String, Value> {
    let mut data = Map::new();
    let mut entries = Entries::known(record, id, Author::Specialist);
    let result = record.doc.get("result").and_then(Value::as_object);
    if let Some(result) = result.filter(|_| record.meta.to == Some(State::Completed)) {
        let said = Said::of_result(result).delivered(record);
        entries.add(id, said, Questions::Replace);
    }
    entries.put_into(&mut data, &Map::new());
    if let Some(answer) = approval(record) {
        data.insert("answer".to_owned(), answer.clone());
    }
    if let Some(origin) = origin(record, id) {
        data.insert("origin".to_owned(), origin);
    }
    data
}
