//! Each phase of each project: the handoff that last moved in it, and how it stands.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::FORMAT;
use crate::clock::Wall;
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
        let Some(phase) = view.phase() else {
            return false;
        };
        let project = view
            .context("project_id")
            .or_else(|| view.get("project_id"))
            .and_then(Value::as_str)
            .unwrap_or(NO_PROJECT);
        let mut entry = json!({ "status": to.status(), "handoff_id": id });
        if let Some(entry) = entry.as_object_mut() {
            if let Some(agent) = view.agent() {
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
        let key = (project.to_owned(), phase);
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
