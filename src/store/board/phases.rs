//! Each phase of each project: the handoff that last moved in it, and how it stands.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::FORMAT;
use crate::clock::Wall;
use crate::protocol::agent::AgentName;
use crate::protocol::dialect::Dialect;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::view::View;

/// Where no project is named.
const NO_PROJECT: &str = "default";
/// Beyond this the oldest make room: a board that grows for ever shows nothing.
const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub struct Phases {
    entries: BTreeMap<(String, String), Value>,
}

impl Phases {
    pub fn read(map: &Map<String, Value>) -> Option<Self> {
        let mut entries = BTreeMap::new();
        for (project, it) in map.get("projects")?.as_object()? {
            for (phase, entry) in it.get("phases")?.as_object()? {
                entries.insert((project.clone(), phase.clone()), entry.clone());
            }
        }
        Some(Self { entries })
    }

    /// Notes a record that belongs to a phase; `false` for any other.
    pub fn note(&mut self, record: &Record, id: &str, to: State, at: Wall) -> bool {
        let view = View::of_record(record);
        let reported = self.note_reported(record, &view, id, to, at);
        let Some(phase) = phase_of(record, to) else {
            return reported;
        };
        let mut entry = json!({ "status": to.status(), "handoff_id": id });
        if let Some(entry) = entry.as_object_mut() {
            let agent = if is_only_reported(record, &view) {
                AgentName::parse(view.source().unwrap_or_default()).ok()
            } else {
                view.agent()
            };
            if let Some(agent) = agent {
                entry.insert("agent".to_owned(), agent.to_string().into());
            }
            for key in ["started_at", "completed_at", "failed_at"] {
                if let Some(time) = record.doc.get(key) {
                    entry.insert(key.to_owned(), time.clone());
                }
            }
            if let Some(code) = record.doc.get("error").and_then(|error| error.get("code")) {
                entry.insert("error".to_owned(), code.clone());
            }
            if let Some(on) = record
                .doc
                .get("waiting")
                .and_then(|waiting| waiting.get("on"))
            {
                entry.insert("waiting_on".to_owned(), on.clone());
            }
            entry.insert("updated_at".to_owned(), at.to_string().into());
        }
        self.put((project_of(&view), phase), entry, at) || reported
    }

    /// A dropped report that hands on is two phases: the one that it reports as completed, and the
    /// one that the next agent works in.
    fn note_reported(
        &mut self,
        record: &Record,
        view: &View<'_>,
        id: &str,
        to: State,
        at: Wall,
    ) -> bool {
        let hands_on = view.dialect == Dialect::Report
            && view.status == Some("complete")
            && !is_only_reported(record, view);
        let Some(phase) = reported_phase(view).filter(|_| hands_on) else {
            return false;
        };
        // A report that was refused completes nothing.
        if to == State::Failed && record.meta.attempts.is_empty() {
            return false;
        }
        // Where it hands on within one phase, that phase is the next agent's.
        if view.phase().as_ref() == Some(&phase) {
            return false;
        }
        let key = (project_of(view), phase);
        let known = |entry: &Value| entry["handoff_id"] == id && entry["status"] == "completed";
        if self.entries.get(&key).is_some_and(known) {
            return false;
        }
        let said = view.doc.get("timestamp").and_then(Value::as_str);
        let completed_at = said.and_then(Wall::parse).unwrap_or(at);
        let mut entry = json!({
            "status": State::Completed.status(),
            "handoff_id": id,
            "completed_at": completed_at.to_string(),
            "updated_at": at.to_string(),
        });
        let source = view.source().and_then(|name| AgentName::parse(name).ok());
        if let Some(agent) = source {
            entry["agent"] = agent.to_string().into();
        }
        self.put(key, entry, at)
    }

    /// Shows an entry, unless a newer one is shown.
    fn put(&mut self, key: (String, String), entry: Value, at: Wall) -> bool {
        // What is caught up with is older than what has happened since.
        let newer = self
            .entries
            .get(&key)
            .and_then(|known| Wall::parse(known.get("updated_at")?.as_str()?));
        if newer.is_some_and(|newer| newer > at) {
            return false;
        }
        self.entries.insert(key, entry);
        if self.entries.len() > MOST {
            self.forget_oldest();
        }
        true
    }

    /// Whether a phase was shown by this handoff.
    pub fn forget(&mut self, id: &str) -> bool {
        let before = self.entries.len();
        self.entries.retain(|_, entry| entry["handoff_id"] != id);
        self.entries.len() != before
    }

    fn forget_oldest(&mut self) {
        let updated = |entry: &Value| entry["updated_at"].as_str().unwrap_or("").to_owned();
        let oldest = self
            .entries
            .iter()
            .min_by_key(|(_, entry)| updated(entry))
            .map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.entries.remove(&key);
        }
    }

    pub fn to_value(&self, now: Wall) -> Value {
        let mut projects: Map<String, Value> = Map::new();
        for ((project, phase), entry) in &self.entries {
            let phases = projects
                .entry(project.clone())
                .or_insert_with(|| json!({ "phases": {} }));
            phases["phases"][phase] = entry.clone();
        }
        json!({ "format": FORMAT, "updated_at": now.to_string(), "projects": projects })
    }
}

fn project_of(view: &View<'_>) -> String {
    let named = view
        .context("project_id")
        .or_else(|| view.get("project_id"));
    named
        .and_then(Value::as_str)
        .unwrap_or(NO_PROJECT)
        .to_owned()
}

/// The phase that a handoff stands for on the boards: that of a dropped report which nobody runs is
/// the one that it reports. Where no request names one, the result of a completed handoff may.
pub fn phase_of(record: &Record, to: State) -> Option<String> {
    let view = View::of_record(record);
    if is_only_reported(record, &view)
        && let Some(phase) = reported_phase(&view)
    {
        return Some(phase);
    }
    let worked = || {
        let result = record.doc.get("result").filter(|_| to == State::Completed);
        phase_text(result?.get("phase")?)
    };
    view.phase().or_else(worked)
}

/// Whether it is a dropped report that no agent goes on with under its own id: it ended its work, or
/// a person or a helper is asked.
fn is_only_reported(record: &Record, view: &View<'_>) -> bool {
    view.dialect == Dialect::Report
        && record.meta.attempts.is_empty()
        && (view.status != Some("complete") || view.target().0.is_none())
}

fn reported_phase(view: &View<'_>) -> Option<String> {
    phase_text(view.doc.get("phase")?)
}

fn phase_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
