//! The handoffs of late: all that are on their way, and those that ended last.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::FORMAT;
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

#[derive(Debug)]
struct Entry {
    value: Value,
    ended: bool,
    noted: u64,
}

impl Handoffs {
    pub fn read(map: &Map<String, Value>) -> Option<Self> {
        let mut it = Self::default();
        for value in map.get("handoffs")?.as_array()? {
            let id = value.get("id")?.as_str()?.to_owned();
            let status = value.get("status")?.as_str()?;
            it.notes += 1;
            let entry = Entry {
                ended: matches!(status, "completed" | "failed"),
                noted: it.notes,
                value: value.clone(),
            };
            it.entries.insert(id, entry);
        }
        Some(it)
    }

    pub fn note(&mut self, record: &Record, id: &str, to: State, at: Wall) {
        let view = View::of_record(record);
        let newer = self
            .entries
            .get(id)
            .and_then(|known| Wall::parse(known.value.get("timestamp")?.as_str()?));
        if newer.is_some_and(|newer| newer > at) {
            return;
        }
        self.notes += 1;
        let value = json!({
            "id": id,
            "timestamp": at.to_string(),
            "from": view.source(),
            "to": view.agent_written(),
            "status": to.status(),
        });
        let entry = Entry {
            value,
            ended: matches!(to, State::Completed | State::Failed),
            noted: self.notes,
        };
        self.entries.insert(id.to_owned(), entry);
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
        ids.sort_by_key(|(_, entry)| (!entry.ended, entry.noted));
        ids.into_iter().map(|(id, _)| id).collect()
    }

    pub fn to_value(&self, now: Wall) -> Value {
        let kept = self.kept();
        let last = kept.len().saturating_sub(MOST);
        let mut shown: Vec<&Entry> = kept[last..].iter().map(|id| &self.entries[*id]).collect();
        shown.sort_by_key(|entry| entry.noted);
        let values: Vec<&Value> = shown.into_iter().map(|entry| &entry.value).collect();
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
