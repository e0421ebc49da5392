//! What the audit log tells already, of decisions that were never carried out.
//!
//! A line is on disk before the content that it speaks of stands in its place. A daemon that is
//! killed in between leaves a line that is ahead of its record. The next one decides again, from
//! the same facts; the line that would say the same is not written a second time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::store::audit::{Event, Line};

/// Lines that are ahead of their records. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Told {
    lines: Arc<Mutex<HashSet<Words>>>,
}

/// What makes two lines say the same.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Words {
    handoff_id: String,
    revision: u64,
    event: String,
    to: Option<String>,
    code: Option<String>,
}

impl Words {
    fn of(handoff_id: Option<&str>, event: &str, detail: &Map<String, Value>) -> Option<Self> {
        let text = |key: &str| Some(detail.get(key)?.as_str()?.to_owned());
        Some(Self {
            handoff_id: handoff_id?.to_owned(),
            revision: detail.get("revision")?.as_u64()?,
            event: event.to_owned(),
            to: text("to"),
            code: text("code"),
        })
    }
}

impl Told {
    /// Of these lines about a handoff, in order, those that are ahead of its record, which is of
    /// this revision, are not to be written again.
    ///
    /// Only what follows the record's own last line counts: before it there may be an earlier
    /// handoff of the same id. And of a revision that was decided in one way and, after another
    /// crash, in another (`again`), only the last one: whoever reads the log believes that.
    pub fn remember(&self, own: &[Line], id: &str, revision: u64) {
        let revision_of = |line: &Line| line.detail.get("revision").and_then(Value::as_u64);
        let is_last = |line: &Line| revision_of(line) == Some(revision);
        let Some(last) = own.iter().rposition(is_last) else {
            return;
        };
        let mut ahead: Vec<(_, Words)> = Vec::new();
        for line in &own[last + 1..] {
            let words = Words::of(Some(id), &line.event, &line.detail);
            let Some(words) = words.filter(|words| words.revision > revision) else {
                continue;
            };
            if line.detail.get("again") == Some(&Value::Bool(true)) {
                // Lines of one decision have one time.
                ahead.retain(|(at, former)| former.revision != words.revision || *at == line.at);
            }
            ahead.push((line.at, words));
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.extend(ahead.into_iter().map(|(_, words)| words));
    }

    /// Whether the log has a line that says the same.
    pub fn knows(&self, event: &Event) -> bool {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        !lines.is_empty()
            && Words::of(event.handoff_id.as_deref(), &event.event, &event.detail)
                .is_some_and(|words| lines.contains(&words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Wall;

    fn event(name: &'static str, revision: u64) -> Event {
        Event::new(Wall(0), name)
            .about("x")
            .with("revision", revision)
            .with("to", "completed")
    }

    fn line(name: &'static str, revision: u64) -> Line {
        let event = event(name, revision);
        Line {
            seq: 0,
            at: event.at,
            event: event.event.into_owned(),
            handoff_id: event.handoff_id,
            detail: event.detail,
            prev: String::new(),
        }
    }

    #[test]
    fn only_lines_behind_the_records_own_are_ahead_of_it() {
        let told = Told::default();
        // An earlier handoff of this id, which was pruned, and the one that a crash cut short.
        let log = [
            line("started", 1),
            line("failed", 2),
            line("started", 1),
            line("completed", 2),
        ];
        told.remember(&log, "x", 1);
        assert!(told.knows(&event("completed", 2)));
        assert!(!told.knows(&event("failed", 2)));
        assert!(!told.knows(&event("started", 1)));
        assert!(!told.knows(&event("completed", 3)));
        assert!(!told.knows(&event("completed", 2).about("y")));
        let told = Told::default();
        told.remember(&log, "x", 7);
        assert!(!told.knows(&event("completed", 2)));
    }

    #[test]
    fn of_what_was_decided_again_only_the_last_counts() {
        let again = |name, at| {
            let mut line = line(name, 2);
            line.at = Wall(at);
            line.detail.insert("again".to_owned(), true.into());
            line
        };
        let mut log = vec![line("started", 1), line("completed", 2)];
        for (name, at) in [("failed", 1), ("noted", 1), ("completed", 2), ("failed", 3)] {
            log.push(again(name, at));
            let told = Told::default();
            told.remember(&log, "x", 1);
            let known = ["completed", "failed", "noted"].map(|it| told.knows(&event(it, 2)));
            let expected = match at {
                1 => [false, true, name == "noted"],
                2 => [true, false, false],
                _ => [false, true, false],
            };
            assert_eq!(known, expected, "after {name}");
        }
    }
}
