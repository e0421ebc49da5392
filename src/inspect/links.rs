//! How a handoff says that it stands to others, and how those stand now.
//!
//! Records and pending submissions are read alike, and leniently: what somebody made up is shown
//! as far as it makes sense, and is never an error.

use serde_json::{Map, Value};

use crate::inspect::summary::Place;
use crate::protocol::lifecycle::State;
use crate::protocol::view::View;
use crate::spool::layout::Layout;

/// How many others of one kind are believed.
const MOST: usize = 10_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relations {
    /// The first handoff of the chain; absent where it is that one itself.
    pub chain: Option<String>,
    pub hop: u64,
    pub parent: Option<String>,
    pub children: Vec<String>,
    /// Those that have helped: id, agent and how they ended.
    pub returned: Vec<Returned>,
    /// Those whose help it waits for.
    pub awaited: Vec<String>,
    /// Its outcome is decided and good, also where it has not moved yet.
    pub completed: bool,
    /// Those that its wait names, whatever it waits for.
    pub waits_for: Vec<String>,
    /// Those that have to complete before it runs.
    pub depends_on: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Returned {
    pub id: String,
    pub agent: Option<String>,
    pub status: String,
}

impl Relations {
    pub fn of(doc: &Map<String, Value>) -> Self {
        let own = doc.get("handoffd");
        let of = |key: &str| own.and_then(|own| own.get(key));
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let waiting = doc.get("waiting");
        let helped = waiting.filter(|it| it.get("on").is_some_and(|on| on == "handoff"));
        let returns = of("returns").and_then(Value::as_array);
        Self {
            chain: text(of("chain")),
            hop: of("hop").and_then(Value::as_u64).unwrap_or(0),
            parent: text(of("parent")),
            children: ids(of("children")),
            returned: returns
                .into_iter()
                .flatten()
                .take(MOST)
                .filter_map(|it| {
                    Some(Returned {
                        id: text(it.get("id"))?,
                        agent: text(it.get("agent")),
                        status: text(it.get("status")).unwrap_or_default(),
                    })
                })
                .collect(),
            awaited: ids(helped.and_then(|it| it.get("ids"))),
            completed: doc.get("status").is_some_and(|it| it == "completed"),
            waits_for: ids(waiting.and_then(|it| it.get("ids"))),
            depends_on: ids(View::of_document(doc).get("depends_on")),
        }
    }

    /// Whether it is linked with any other handoff of a chain.
    pub fn is_linked(&self) -> bool {
        self.chain.is_some() || self.parent.is_some() || !self.children.is_empty()
    }

    /// Whether a child was asked to help, rather than to go on.
    pub fn is_helper(&self, child: &str) -> bool {
        // Only a completed one hands the baton on.
        !self.completed
            || self.awaited.iter().any(|id| id == child)
            || self.returned.iter().any(|it| it.id == child)
    }

    /// All ids that it names.
    pub fn named(&self) -> impl Iterator<Item = &String> {
        self.chain
            .iter()
            .chain(&self.parent)
            .chain(&self.children)
            .chain(&self.waits_for)
            .chain(&self.depends_on)
            .chain(self.returned.iter().map(|it| &it.id))
    }
}

fn ids(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(ids)) => ids
            .iter()
            .filter_map(Value::as_str)
            .take(MOST)
            .map(str::to_owned)
            .collect(),
        Some(Value::String(id)) => vec![id.clone()],
        _ => Vec::new(),
    }
}

/// Where an id stands now, in a few words.
pub fn standing(layout: &Layout, id: &str) -> String {
    let Some(place) = Place::find(layout, id) else {
        return "not there".to_owned();
    };
    let row = place.row();
    match (place.state, row.waiting_on, row.error) {
        (State::Pending, ..) => "queued".to_owned(),
        (State::InProgress, ..) => "running".to_owned(),
        (State::Waiting, Some(on), _) => format!("waiting for {}", thing(&on)),
        (State::Failed, _, Some((code, _))) => format!("failed with {code}"),
        (state, ..) => state.status().to_owned(),
    }
}

/// What is waited for, as one says it.
pub fn thing(on: &str) -> &str {
    match on {
        "human" => "a human",
        "handoff" => "helpers",
        "dependency" => "a dependency",
        "retry" => "its next attempt",
        "time" => "a time",
        "claim" => "a claim",
        "slots" => "a slot",
        "rate" => "its rate limit",
        "hold" => "the end of a hold",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_made_up_is_read_as_far_as_it_makes_sense() {
        let doc = json!({
            "handoffd": {
                "chain": 7, "parent": "p", "hop": "far", "children": ["a", 3, "b"],
                "returns": [{"id": "a", "status": "completed"}, {"status": "x"}, "y"],
            },
            "waiting": {"on": "human", "ids": ["z"]},
            "depends_on": "d",
        });
        let read = Relations::of(doc.as_object().unwrap());
        assert_eq!((read.chain, read.hop), (None, 0));
        assert_eq!(read.children, ["a", "b"]);
        assert_eq!(read.returned.len(), 1);
        assert_eq!(read.awaited, [""; 0], "it does not wait for helpers");
        assert_eq!(read.depends_on, ["d"]);
        assert_eq!(
            Relations::of(json!({"handoffd": []}).as_object().unwrap()),
            Relations::default()
        );
    }

    #[test]
    fn helpers_and_next_steps_are_told_apart() {
        let mut doc = json!({"status": "completed", "handoffd": {
            "children": ["helper", "next"],
            "returns": [{"id": "helper", "status": "completed"}],
        }});
        let read = Relations::of(doc.as_object().unwrap());
        assert!(read.is_helper("helper"));
        assert!(!read.is_helper("next"));
        doc["status"] = "failed".into();
        let read = Relations::of(doc.as_object().unwrap());
        assert!(read.is_helper("next"), "a failed handoff has no follow-up");
    }
}
