//! Decisions, artifacts and open questions: the three lists that grow over a chain.
//!
//! Each entry is an object that names the handoff it came from. A later entry that says the same
//! takes the place of the earlier one; of artifacts, one with the same path.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::Author;
use crate::protocol::dialect::Dialect;
use crate::protocol::record::Record;
use crate::protocol::view::View;

/// The lists, each with the field that a plain text in it stands for.
pub const LISTS: [(&str, &str); 3] = [
    ("decisions", "decision"),
    ("artifacts", "path"),
    ("open_questions", "question"),
];

const ARTIFACTS: usize = 1;
const QUESTIONS: usize = 2;

/// The field in which an entry names the handoff it came from.
pub const CAME_FROM: &str = "handoff_id";

/// The three lists of one document, as they were written there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Said<'a>([Option<&'a Value>; 3]);

/// Whether a list of open questions replaces the known one or adds to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Questions {
    /// Whoever works on the handoff itself says what is still open.
    Replace,
    /// A helper knows its own part only.
    Add,
}

/// The three lists, in the order of [`LISTS`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entries([Vec<Value>; 3]);

impl<'a> Said<'a> {
    /// What a result says; its open questions may also stand in its `handoff`.
    pub fn of_result(result: &'a Map<String, Value>) -> Self {
        let handoff = result.get("handoff").and_then(Value::as_object);
        let inside = |key: &str| handoff.and_then(|handoff| handoff.get(key));
        Self(LISTS.map(|(key, _)| {
            let inside = inside(key).filter(|_| key == LISTS[QUESTIONS].0);
            let said = inside.or_else(|| result.get(key));
            said.filter(|said| !said.is_null())
        }))
    }

    /// What stands in an object under the names of the lists.
    fn of_object(object: Option<&'a Map<String, Value>>) -> Self {
        Self(LISTS.map(|(key, _)| object?.get(key).filter(|said| !said.is_null())))
    }

    /// The artifacts that the daemon took delivery of, where there are some.
    #[must_use]
    pub fn delivered(mut self, record: &'a Record) -> Self {
        let ours = record.meta.lifted.iter().any(|key| key == "output");
        let output = record.doc.get("output").filter(|_| ours);
        let delivered = output.and_then(|output| output.get("artifacts"));
        self.0[ARTIFACTS] = delivered.or(self.0[ARTIFACTS]);
        self
    }

    /// Without artifacts that the daemon has not seen.
    #[must_use]
    pub fn only_delivered(mut self, record: &'a Record) -> Self {
        self.0[ARTIFACTS] = None;
        self.delivered(record)
    }
}

impl Entries {
    /// What is known before this handoff's result: from the way here, from the package or report
    /// that began the chain, from its own earlier results, and from its helpers.
    pub fn known(record: &Record, id: &str, author: Author) -> Self {
        let links = &record.meta.links;
        let view = View::of_record(record);
        let mut known = Self::default();
        if links.parent.is_some() {
            let data = view.inner("input", "data").and_then(Value::as_object);
            for (at, (key, _)) in LISTS.iter().enumerate() {
                let is_works_own = links.written.get(*key) == Some(&Value::Bool(true));
                let brought = match links.carried.get(*key) {
                    None if !is_works_own => data.and_then(|data| data.get(*key)),
                    carried => carried,
                };
                known.0[at] = brought
                    .and_then(Value::as_array)
                    .cloned()
                    .unwrap_or_default();
            }
        } else {
            let said = match view.dialect {
                Dialect::Package => {
                    let context = view.handoff().and_then(|it| it.get("context"));
                    Said::of_object(context.and_then(Value::as_object))
                }
                // A report that is the result itself is not counted twice.
                Dialect::Report if author != Author::Reporter => Said::of_result(view.doc),
                _ => Said::default(),
            };
            known.add(id, said, Questions::Replace);
        }
        let gathered = &links.gathered;
        for (at, (key, _)) in LISTS.iter().enumerate() {
            let Some(Value::Array(more)) = gathered.get(*key) else {
                continue;
            };
            if at == QUESTIONS {
                known.0[at].clone_from(more);
            } else {
                lay(&mut known.0[at], at, more.clone());
            }
        }
        known
    }

    /// Takes in what a handoff said, and answers with how many entries of each list are from it,
    /// where it has that list: they stand at the end.
    pub fn add(&mut self, id: &str, said: Said<'_>, questions: Questions) -> Map<String, Value> {
        let mut written = Map::new();
        for (at, (key, field)) in LISTS.iter().enumerate() {
            let Some(said) = said.0[at] else {
                continue;
            };
            let entries = objects(said, field, id, &self.0[at], at == QUESTIONS);
            if at == QUESTIONS && questions == Questions::Replace {
                self.0[at].clear();
            }
            let count = lay(&mut self.0[at], at, entries);
            written.insert((*key).to_owned(), count.into());
        }
        written
    }

    /// The lists that are not empty, or that are named in `also`.
    pub fn put_into(self, data: &mut Map<String, Value>, also: &Map<String, Value>) {
        for ((key, _), list) in LISTS.iter().zip(self.0) {
            if !list.is_empty() || also.contains_key(*key) {
                data.insert((*key).to_owned(), Value::Array(list));
            }
        }
    }
}

/// Notes in a record what an earlier result of its own said, or a helper, so that its follow-ups
/// have it.
pub fn gather(record: &mut Record, id: &str, from: &str, said: Said<'_>, questions: Questions) {
    let known = Entries::known(record, id, Author::of(record));
    let gathered = &record.meta.links.gathered;
    let earlier = |at: usize| match gathered.get(LISTS[at].0) {
        Some(Value::Array(list)) => list.clone(),
        _ => Vec::new(),
    };
    let has_questions = said.0[QUESTIONS].is_some() || gathered.contains_key(LISTS[QUESTIONS].0);
    let [_, _, open] = known.0;
    let mut all = Entries([earlier(0), earlier(ARTIFACTS), open]);
    all.add(from, said, questions);
    let mut named = Map::new();
    if has_questions {
        // That none is left is said, too.
        named.insert(LISTS[QUESTIONS].0.to_owned(), true.into());
    } else {
        all.0[QUESTIONS].clear();
    }
    let mut gathered = Map::new();
    all.put_into(&mut gathered, &named);
    record.meta.links.gathered = gathered;
}

/// Each entry as an object that names where it came from. One that is known already, as an agent
/// repeats it that was given it, keeps the name it has.
fn objects(said: &Value, field: &str, id: &str, known: &[Value], questions: bool) -> Vec<Value> {
    let entries: &[Value] = match said {
        Value::Array(entries) => entries,
        one => std::slice::from_ref(one),
    };
    let texts: HashSet<String> = known.iter().map(Value::to_string).collect();
    let object = |entry: &Value| {
        let mut object = match entry {
            Value::Null => return None,
            Value::Object(_) if texts.contains(&entry.to_string()) => return Some(entry.clone()),
            Value::Object(object) => object.clone(),
            Value::String(text) if text.trim().is_empty() => return None,
            plain => {
                let asked = |it: &&Value| questions && it.get(field) == Some(plain);
                if let Some(same) = known.iter().find(asked) {
                    return Some(same.clone());
                }
                Map::from_iter([(field.to_owned(), plain.clone())])
            }
        };
        object.insert(CAME_FROM.to_owned(), id.into());
        Some(Value::Object(object))
    };
    entries.iter().filter_map(object).collect()
}

/// Lays entries at the end of a list, in the place of those that say the same.
fn lay(list: &mut Vec<Value>, at: usize, new: Vec<Value>) -> usize {
    let same = |entry: &Value| {
        let path = entry.get("path").filter(|_| at == ARTIFACTS);
        match path.and_then(Value::as_str) {
            Some(path) => path
                .trim_start_matches("./")
                .trim_end_matches('/')
                .to_owned(),
            None => entry.to_string(),
        }
    };
    let mut seen = HashSet::new();
    let mut kept: Vec<Value> = new.into_iter().rev().collect();
    kept.retain(|entry| seen.insert(same(entry)));
    kept.reverse();
    list.retain(|entry| !seen.contains(&same(entry)));
    let count = kept.len();
    list.append(&mut kept);
    count
}

#[cfg(test)]
#[path = "entries_tests.rs"]
mod tests;
