//! The handoffs of late: all that are on their way, and those that ended last.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::FORMAT;
use super::phases::phase_of;
use crate::clock::Wall;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::view::View;

/// The most that are shown. Those that ended first make room first.
const MOST: usize = 500;

#[derive(Debug, Default)]
pub struct Handoffs {
    entries: HashMap<String, Entry>,
    /// Counts notes, so that the order of the last changes is known.
    notes: u64,
}

/// What is shown of one. It becomes JSON when the board is written, not with every note.
#[derive(Debug)]
struct Entry {
    at: Wall,
    from: Option<String>,
    to: Option<String>,
    phase: Option<String>,
    state: State,
    noted: u64,
}

impl Entry {
    fn read(value: &Value, noted: u64) -> Option<Self> {
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let status = value.get("status")?.as_str()?;
        Some(Self {
            at: Wall::parse(value.get("timestamp")?.as_str()?)?,
            from: text("from"),
            to: text("to"),
            phase: text("phase"),
            state: State::ALL.into_iter().find(|it| it.status() == status)?,
            noted,
        })
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, State::Completed | State::Failed)
    }

    fn to_value(&self, id: &str) -> Value {
        json!({
            "id": id,
            "timestamp": self.at.to_string(),
            "from": self.from,
            "to": self.to,
            "phase": self.phase,
            "status": self.state.status(),
        })
    }
}

impl Handoffs {
    pub fn read(map: &Map<String, Value>) -> Option<Self> {
        let mut it = Self::default();
        for value in map.get("handoffs")?.as_array()? {
            let id = value.get("id")?.as_str()?.to_owned();
            it.notes += 1;
            it.entries.insert(id, Entry::read(value, it.notes)?);
        }
        Some(it)
    }

    pub fn note(&mut self, record: &Record, id: &str, to: State, at: Wall) {
        if self.entries.get(id).is_some_and(|known| known.at > at) {
            return;
        }
        self.notes += 1;
        let view = View::of_record(record);
        let entry = Entry {
            at,
            from: view.source().map(str::to_owned),
            to: view.agent_written().map(str::to_owned),
            phase: phase_of(record, to),
            state: to,
            noted: self.notes,
        };
        match self.entries.get_mut(id) {
            Some(known) => *known = entry,
            None => drop(self.entries.insert(id.to_owned(), entry)),
        }
        // In steps, so that a full board does not cost a search for each note.
        if self.entries.len() > MOST * 2 {
            let kept = self.kept();
            let last = kept.len().saturating_sub(MOST);
            let surplus: Vec<String> = kept[..last].iter().map(|id| (*id).clone()).collect();
            for id in surplus {
                self.entries.remove(&id);
            }
        }
    }

    /// Whether it was shown.
    pub fn forget(&mut self, id: &str) -> bool {
        self.entries.remove(id).is_some()
    }

    /// Ids in the order in which they leave the board.
    fn kept(&self) -> Vec<&String> {
        let mut ids: Vec<(&String, &Entry)> = self.entries.iter().collect();
        ids.sort_by_key(|(_, entry)| (!entry.has_ended(), entry.noted));
        ids.into_iter().map(|(id, _)| id).collect()
    }

    pub fn to_value(&self, now: Wall) -> Value {
        let kept = self.kept();
        let last = kept.len().saturating_sub(MOST);
        let mut shown: Vec<(&String, &Entry)> = kept[last..]
            .iter()
            .map(|id| (*id, &self.entries[*id]))
            .collect();
        shown.sort_by_key(|(_, entry)| entry.noted);
        let values: Vec<Value> = shown
            .into_iter()
            .map(|(id, entry)| entry.to_value(id))
            .collect();
        json!({ "format": FORMAT, "updated_at": now.to_string(), "handoffs": values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_makes_room_for_what_is_on_its_way() {
        let mut it = Handoffs::default();
        let record = Record::admit(Map::new(), "x", None);
        it.note(&record, "live", State::Waiting, Wall(0));
        for n in 0..3 * MOST {
            it.note(&record, &format!("done-{n}"), State::Completed, Wall(1));
        }
        let value = it.to_value(Wall(2));
        let list = value["handoffs"].as_array().unwrap();
        assert_eq!(list.len(), MOST);
        assert_eq!(list[0]["id"], "live");
        assert_eq!(list[MOST - 1]["id"], format!("done-{}", 3 * MOST - 1));
        assert!(it.entries.len() <= 2 * MOST);
    }
}
