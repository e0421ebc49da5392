//! What has happened, read off the audit log's lines.
//!
//! The log has one line for every transition, so counting its lines misses nothing and counts
//! nothing twice. The committer shows each batch of lines as it writes them; without a daemon the
//! same is done with the files.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use crate::clock::Wall;
use crate::figures::histogram::Histogram;

/// How many agents have figures of their own. Anybody may drop a request for an agent that
/// nobody knows, and each name would stay in memory.
const MOST_AGENTS: usize = 200;

/// The rest.
pub const OTHER: &str = "(other)";

/// What was refused before anybody knew for whom it was.
pub const NOBODY: &str = "(none)";

#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    pub started: u64,
    pub retries: u64,
    pub completed: u64,
    /// By error code.
    pub failed: BTreeMap<String, u64>,
    /// From the claim to whatever came of it, in seconds.
    pub durations: Histogram,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            started: 0,
            retries: 0,
            completed: 0,
            failed: BTreeMap::new(),
            durations: Histogram::seconds(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    pub agents: BTreeMap<String, Agent>,
    /// What retention deleted, by kind.
    pub pruned: BTreeMap<String, u64>,
    /// When the attempts began that run now, by handoff.
    begun: HashMap<String, Wall>,
}

impl Counts {
    /// Counts one line.
    pub fn note(&mut self, at: Wall, event: &str, id: Option<&str>, detail: &Map<String, Value>) {
        let text = |key: &str| detail.get(key).and_then(Value::as_str);
        if event == "pruned" {
            let kind = text("from").or_else(|| text("kind")).unwrap_or("record");
            let files = detail.get("files").and_then(Value::as_u64).unwrap_or(1);
            *self.pruned.entry(kind.to_owned()).or_default() += files;
            return;
        }
        if event == "started" {
            self.agent(text("agent")).started += 1;
            if let Some(id) = id {
                self.begun.insert(id.to_owned(), at);
            }
            return;
        }
        let Some(to) = text("to") else { return };
        let begun = id.and_then(|id| self.begun.remove(id));
        let agent = self.agent(text("agent"));
        if let Some(begun) = begun {
            let ms = u32::try_from(at.0.saturating_sub(begun.0)).unwrap_or(u32::MAX);
            agent.durations.note(f64::from(ms) / 1000.0);
        }
        match to {
            "completed" => agent.completed += 1,
            "failed" => {
                let code = text("code").unwrap_or("UNKNOWN");
                *agent.failed.entry(code.to_owned()).or_default() += 1;
            }
            _ if event == "retry_scheduled" => agent.retries += 1,
            _ => {}
        }
    }

    /// Learns from lines of the past what runs now, and counts nothing.
    pub fn recall(&mut self, at: Wall, event: &str, id: &str) {
        if event == "started" {
            self.begun.insert(id.to_owned(), at);
        } else {
            self.begun.remove(id);
        }
    }

    fn agent(&mut self, name: Option<&str>) -> &mut Agent {
        let name = name.unwrap_or(NOBODY);
        let name = if self.agents.len() < MOST_AGENTS || self.agents.contains_key(name) {
            name
        } else {
            OTHER
        };
        self.agents.entry(name.to_owned()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn note(counts: &mut Counts, at: i64, event: &str, id: &str, detail: &Value) {
        counts.note(Wall(at), event, Some(id), detail.as_object().unwrap());
    }

    #[test]
    fn lines_are_counted_by_agent_and_code_and_attempts_are_timed() {
        let mut counts = Counts::default();
        let started = json!({"agent": "@a", "to": "in_progress"});
        note(&mut counts, 1000, "started", "x", &started);
        let waits = json!({"agent": "@a", "to": "waiting"});
        note(&mut counts, 3000, "retry_scheduled", "x", &waits);
        note(&mut counts, 4000, "started", "x", &started);
        let failed = json!({"agent": "@a", "to": "failed", "code": "TIMEOUT"});
        note(&mut counts, 4500, "failed", "x", &failed);
        let refused = json!({"to": "failed", "code": "SCHEMA_VALIDATION_FAILED"});
        note(&mut counts, 4600, "refused", "y", &refused);
        note(&mut counts, 4700, "pruned", "y", &json!({"from": "failed"}));
        let agent = &counts.agents["@a"];
        assert_eq!((agent.started, agent.retries, agent.completed), (2, 1, 0));
        assert_eq!(agent.failed["TIMEOUT"], 1);
        assert_eq!(agent.durations.count(), 2);
        assert!((agent.durations.sum() - 2.5).abs() < 1e-9);
        assert_eq!(counts.agents[NOBODY].failed.len(), 1);
        assert_eq!(counts.pruned["failed"], 1);
    }

    #[test]
    fn names_that_anybody_can_make_up_are_bounded() {
        let mut counts = Counts::default();
        for n in 0..1000 {
            let line = json!({"agent": format!("@{n}"), "to": "failed", "code": "UNKNOWN_AGENT"});
            note(&mut counts, 0, "failed", "x", &line);
        }
        assert_eq!(counts.agents.len(), MOST_AGENTS + 1);
        assert_eq!(counts.agents[OTHER].failed["UNKNOWN_AGENT"], 800);
    }

    #[test]
    fn an_attempt_that_began_before_is_timed_and_not_counted_twice() {
        let mut counts = Counts::default();
        counts.recall(Wall(1000), "started", "x");
        counts.recall(Wall(1000), "started", "gone");
        counts.recall(Wall(1100), "completed", "gone");
        let done = json!({"agent": "@a", "to": "completed"});
        note(&mut counts, 2000, "completed", "x", &done);
        note(&mut counts, 2000, "completed", "gone", &done);
        let agent = &counts.agents["@a"];
        assert_eq!((agent.started, agent.completed), (0, 2));
        assert_eq!(agent.durations.count(), 1);
    }
}
