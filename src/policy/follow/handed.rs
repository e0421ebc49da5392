//! What a handoff gives to the next agent: the work, what the chain carries along, and the context.

use serde_json::{Map, Value, json};

use super::Author;
use super::entries::{Entries, Questions, Said};
use crate::protocol::dialect::Dialect;
use crate::protocol::record::Record;
use crate::protocol::view::View;

/// What a result says in one word or a few, apart from the lists and the summary.
const SAID: [&str; 3] = ["phase", "files_modified", "verification"];

/// A text that stands for a summary is cut here, in characters: the record has the whole text.
const LONGEST_TEXT: usize = 4000;

/// The `input.data` of a handoff that the daemon makes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Handed {
    pub data: Map<String, Value>,
    /// Which part of it the result itself wrote.
    pub written: Map<String, Value>,
    /// What the chain carries, under names that the result uses for its own.
    pub carried: Map<String, Value>,
}

/// What a result hands to the next agent.
pub fn handed_on(record: &Record, id: &str, result: &Map<String, Value>, author: Author) -> Handed {
    let said = Said::of_result(result).delivered(record);
    hand_on(record, id, result, author, said)
}

/// What a blocked specialist hands to its helper. Nothing was delivered.
pub fn handed_to_helper(record: &Record, id: &str, result: &Map<String, Value>) -> Handed {
    let said = Said::of_result(result);
    hand_on(record, id, result, Author::of(record), said)
}

fn hand_on(
    record: &Record,
    id: &str,
    result: &Map<String, Value>,
    author: Author,
    said: Said<'_>,
) -> Handed {
    let mut data = Map::new();
    let handoff = result.get("handoff").and_then(Value::as_object);
    // A person says yes or no; the work is that of whoever came before.
    let held = match author {
        Author::Person => held(record),
        Author::Specialist | Author::Reporter => Map::new(),
    };
    let mut put = |key: &str, value: Option<&Value>| {
        let value = value.filter(|value| !value.is_null());
        if let Some(value) = value.or_else(|| held.get(key)) {
            data.insert(key.to_owned(), value.clone());
        }
    };
    put("context", handoff.and_then(|it| it.get("context")));
    let text = text_of(record, id, author);
    put("summary", result.get("summary").or(text.as_ref()));
    for key in SAID {
        put(key, result.get(key));
    }
    let expectations = handoff.and_then(|it| it.get("expectations"));
    put(
        "expectations",
        expectations.or_else(|| result.get("expectations")),
    );
    let mut entries = Entries::known(record, id, author);
    let written = entries.add(id, said, Questions::Replace);
    entries.put_into(&mut data, &written);
    if let Some(answer) = approval(record) {
        data.insert("answer".to_owned(), answer.clone());
    }
    if let Some(origin) = origin(record, id) {
        data.insert("origin".to_owned(), origin);
    }
    Handed {
        data,
        written,
        carried: Map::new(),
    }
}

/// What a specialist printed, for the next agent to read where its result has no summary.
fn text_of(record: &Record, id: &str, author: Author) -> Option<Value> {
    if author != Author::Specialist {
        return None;
    }
    let text = record.doc.get("output")?.get("text")?.as_str()?.trim();
    if text.is_empty() {
        return None;
    }
    Some(match text.char_indices().nth(LONGEST_TEXT) {
        None => text.into(),
        Some((end, _)) => format!(
            "{} … (the whole text is in the record of {id})",
            &text[..end]
        )
        .into(),
    })
}

/// What an agent is given whose input a result wrote, or a person's question: that, and what the
/// chain carries.
pub fn handed_beside(
    record: &Record,
    id: &str,
    input: Map<String, Value>,
    result: &Map<String, Value>,
) -> Handed {
    let mut brought = Map::new();
    let mut entries = Entries::known(record, id, Author::of(record));
    entries.add(id, Said::of_result(result), Questions::Replace);
    entries.put_into(&mut brought, &Map::new());
    if let Some(origin) = origin(record, id) {
        brought.insert("origin".to_owned(), origin);
    }
    let mut handed = Handed {
        data: input,
        ..Handed::default()
    };
    for key in super::work::ADDED {
        let is_taken = handed.data.contains_key(key);
        if is_taken {
            handed.written.insert(key.to_owned(), true.into());
        }
        if let Some(value) = brought.shift_remove(key) {
            let place = if is_taken {
                &mut handed.carried
            } else {
                &mut handed.data
            };
            place.insert(key.to_owned(), value);
        }
    }
    handed
}

/// A person's yes, which the next agent sees.
pub fn approval(record: &Record) -> Option<&Value> {
    let answer = record.doc.get("answer")?;
    (answer.get("action")?.as_str() == Some("approve")).then_some(answer)
}

/// The work of the chain's first request: what it is itself, or what came with this handoff.
pub fn origin(record: &Record, id: &str) -> Option<Value> {
    let view = View::of_record(record);
    let links = &record.meta.links;
    if links.parent.is_some() {
        if let Some(origin) = links.carried.get("origin") {
            return Some(origin.clone());
        }
        let is_works_own = links.written.contains_key("origin");
        let came = view.inner("input", "data")?.get("origin");
        return came.filter(|_| !is_works_own).cloned();
    }
    let mut origin = Map::from_iter([("handoff_id".to_owned(), id.into())]);
    let handoff_keys: &[&str] = match view.dialect {
        Dialect::Package => &["context", "expectations"],
        Dialect::Report => &["context"],
        Dialect::Request | Dialect::Ambiguous | Dialect::Unknown => &[],
    };
    for key in handoff_keys {
        let value = view.handoff().and_then(|handoff| handoff.get(*key));
        if let Some(value) = value {
            origin.insert((*key).to_owned(), value.clone());
        }
    }
    if let Some(input) = view.get("input") {
        origin.insert("input".to_owned(), input.clone());
    }
    Some(Value::Object(origin))
}

/// The work that a person was asked about.
fn held(record: &Record) -> Map<String, Value> {
    let view = View::of_record(record);
    let mut held = Map::new();
    let mut put = |key: &str, value: Option<&Value>| {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            held.insert(key.to_owned(), value.clone());
        }
    };
    let inside = |key: &str| view.handoff().and_then(|handoff| handoff.get(key));
    match view.dialect {
        Dialect::Package => {
            put("context", inside("context"));
            put("summary", view.context("summary"));
            put("expectations", inside("expectations"));
        }
        Dialect::Report => {
            put("context", inside("context"));
            for key in SAID {
                put(key, view.doc.get(key));
            }
            put(
                "expectations",
                inside("expectations").or_else(|| view.doc.get("expectations")),
            );
        }
        _ => {
            let data = view.inner("input", "data");
            for key in SAID.into_iter().chain(["context", "expectations"]) {
                put(key, data.and_then(|data| data.get(key)));
            }
        }
    }
    held
}

/// The context that goes with a handoff wherever it goes.
pub fn carried(view: &View<'_>) -> Map<String, Value> {
    let inside = view
        .handoff()
        .and_then(|handoff| handoff.get("context")?.as_object());
    let top = view.doc.get("context").and_then(Value::as_object);
    let mut context = top.cloned().unwrap_or_default();
    for key in ["task_id", "project_id"] {
        if let Some(value) = inside.and_then(|inside| inside.get(key)) {
            context.insert(key.to_owned(), value.clone());
        }
    }
    context
}

/// What a result says to the agent that it names: who says the same to the same again goes in a
/// circle. What the daemon adds does not count.
pub fn said_to_next(result: &Map<String, Value>) -> Value {
    let handoff = result.get("handoff").and_then(Value::as_object);
    let says = |value: &&Value| match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        _ => true,
    };
    let context = handoff
        .and_then(|handoff| handoff.get("context"))
        .filter(says);
    let blockers = || {
        handoff
            .and_then(|handoff| handoff.get("blockers"))
            .filter(says)
    };
    let said = context.or_else(blockers).or_else(|| result.get("summary"));
    said.map_or(json!(null), Value::clone)
}
