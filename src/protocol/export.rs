//! Export: any handoff as a package, whatever dialect it came in.
//!
//! Two rules. Nothing of the producer's is lost: a field goes where a package has a place for
//! it, stays at the top where it has none, and goes to `handoff.submitted`, under the path it
//! had, where its place is taken. And an export is a fixed point: dropped again and exported
//! again it is the same package, apart from `outcome`.
//!
//! A package is therefore exported as it is. What a request or a report leaves unsaid (who
//! sent it, a summary) is said as far as it follows from the rest, and never guessed.

mod outcome;
mod summary;

use serde_json::{Map, Value};

use super::dialect::{Dialect, fits};
use super::field::present;
use super::record::Record;

/// Stands for an agent that the producer did not name.
pub const UNKNOWN: &str = "unknown";

/// The reserved name of whoever decides what no agent does.
const HUMAN: &str = "human";

/// Fields that the daemon acts on, in the order in which a package shows them.
const ACTED_ON: [&str; 11] = [
    "workflow_state",
    "gate",
    "validation_request",
    "timeout_seconds",
    "priority",
    "retry_policy",
    "not_before",
    "depends_on",
    "requires_artifacts",
    "input",
    "expected_output",
];

/// What of a report belongs into the context of a package.
const CONTEXT: [&str; 3] = ["decisions", "artifacts", "open_questions"];

type Object = Map<String, Value>;

/// The handoff as a package: `handoff` first, then what else the producer wrote at the top.
pub fn as_package(record: &Record) -> Object {
    let mut doc = record.submitted_document();
    let id = record.doc.get("handoff_id").cloned();
    if doc.get("handoff_id") == id.as_ref() {
        doc.shift_remove("handoff_id");
    }
    let fits = fits_of(&doc);
    let mut package = if fits.contains(&Dialect::Package) {
        Package::of_package(&mut doc)
    } else if fits == [Dialect::Report] {
        Package::of_report(&mut doc)
    } else {
        Package::of_request(&mut doc)
    };
    if let Some(id) = id.filter(|_| present(&package.handoff, "id").is_none()) {
        package.handoff.shift_insert(0, "id".to_owned(), id);
    }
    if let Some(mut outcome) = outcome::of(record) {
        if let Some(earlier) = package.handoff.shift_remove("outcome") {
            outcome.insert("previous".to_owned(), earlier);
        }
        package.put("outcome", outcome.into());
    }
    package.finish(doc)
}

/// The dialects of a document as its producer wrote it.
fn fits_of(doc: &Object) -> Vec<Dialect> {
    fits(doc, doc.get("status").and_then(Value::as_str))
}

/// A package in the making.
#[derive(Default)]
struct Package {
    handoff: Object,
    /// What had its place taken, by its path in the producer's document.
    displaced: Object,
}

impl Package {
    fn of_package(doc: &mut Object) -> Self {
        let mut package = Self {
            handoff: take_object(doc, "handoff").unwrap_or_default(),
            ..Self::default()
        };
        // One that fits two dialects was refused; its export should not be.
        if fits_of(doc).contains(&Dialect::Request) {
            package.displace("target", doc.shift_remove("target"));
        }
        package
    }

    fn of_request(doc: &mut Object) -> Self {
        let mut package = Self::default();
        package.displace("handoff", doc.shift_remove("handoff"));
        let from = package.party(doc, "source");
        let to = package.party(doc, "target");
        let context = package.context_of_request(doc, &from, &to);
        package.move_from(doc, "timestamp");
        package.put("from", from.into());
        package.put("to", to.into());
        package.put("context", context.into());
        package.move_from(doc, "expectations");
        if let Some(deliverable) = summary::deliverable(doc)
            && !package.handoff.contains_key("expectations")
        {
            let expectations = one("deliverable", deliverable.into());
            package.put("expectations", expectations.into());
        }
        for key in ACTED_ON {
            package.move_from(doc, key);
        }
        package
    }

    fn of_report(doc: &mut Object) -> Self {
        let mut package = Self::default();
        let mut told = take_object(doc, "handoff").unwrap_or_default();
        let from = reporter(doc);
        let to = receiver(doc, &mut told);
        let context = package.context_of_report(doc, &mut told, &to);
        for key in ["id", "timestamp"] {
            package.move_from(&mut told, key);
        }
        package.move_from(doc, "timestamp");
        package.put("from", from.into());
        package.put("to", to.into());
        package.put("context", context.into());
        for key in ["expectations"].into_iter().chain(ACTED_ON) {
            // Inside `handoff` first, then at the top: where the daemon reads them.
            package.move_from(&mut told, key);
            package.move_from(doc, key);
        }
        for (key, value) in told {
            package.keep("handoff", key, value);
        }
        package
    }

    /// `from` or `to`, out of what a request says of its `source` or `target`.
    fn party(&mut self, doc: &mut Object, key: &str) -> Object {
        let mut party = Object::new();
        match doc.get(key) {
            Some(Value::Object(_)) => {
                let mut written = take_object(doc, key).unwrap_or_default();
                let name = written
                    .shift_remove("agent_id")
                    .filter(|name| !name.is_null())
                    .or_else(|| written.shift_remove("agent"))
                    .unwrap_or_else(|| UNKNOWN.into());
                party.insert("agent".to_owned(), name);
                self.displace(&format!("{key}.agent"), written.shift_remove("agent"));
                party.extend(written);
            }
            Some(Value::String(name)) => {
                party.insert("agent".to_owned(), name.clone().into());
                doc.shift_remove(key);
            }
            _ => {
                party.insert("agent".to_owned(), UNKNOWN.into());
            }
        }
        party
    }

    /// The context with a summary in front: the producer's own where it is a text.
    fn with_summary(
        &mut self,
        mut context: Object,
        told: impl FnOnce(&Object) -> String,
    ) -> Object {
        if text_at(&context, "summary").is_none() {
            self.displace("context.summary", context.shift_remove("summary"));
            let summary = told(&context);
            context.shift_insert(0, "summary".to_owned(), summary.into());
        }
        context
    }

    fn context_of_request(&mut self, doc: &mut Object, from: &Object, to: &Object) -> Object {
        let (context, text) = match doc.shift_remove("context") {
            Some(Value::Object(context)) => (context, None),
            Some(Value::String(text)) if !text.trim().is_empty() => (Object::new(), Some(text)),
            other => {
                self.displace("context", other);
                (Object::new(), None)
            }
        };
        self.with_summary(context, |context| {
            text.unwrap_or_else(|| summary::of_request(doc, context, from, to))
        })
    }

    fn context_of_report(&mut self, doc: &mut Object, told: &mut Object, to: &Object) -> Object {
        let (mut context, mut text) = match told.shift_remove("context") {
            Some(Value::Object(context)) => (context, None),
            Some(Value::Null) | None => (Object::new(), None),
            Some(other) => (Object::new(), Some(other)),
        };
        // The task may be named in a context at the top.
        if let Some(more) = take_object(doc, "context") {
            let (taken, free): (Object, Object) = more
                .into_iter()
                .partition(|(key, _)| context.contains_key(key));
            context.extend(free);
            if !taken.is_empty() {
                doc.insert("context".to_owned(), taken.into());
            }
        }
        context = self.with_summary(context, |_| {
            if text_at(doc, "summary").is_some() {
                let told = doc.shift_remove("summary");
                told.as_ref()
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            } else if let Some(Value::String(told)) = text.take_if(is_text) {
                told
            } else {
                summary::of_report(doc, to)
            }
        });
        if let Some(text) = text {
            if context.contains_key("notes") {
                self.displace("handoff.context", Some(text));
            } else {
                context.shift_insert(1, "notes".to_owned(), text);
            }
        }
        for key in CONTEXT {
            if context.contains_key(key) {
                continue;
            }
            if let Some(mut value) = told.shift_remove(key).or_else(|| doc.shift_remove(key)) {
                if let (Value::Array(items), "artifacts") = (&mut value, key) {
                    items.iter_mut().for_each(as_artifact);
                }
                context.insert(key.to_owned(), value);
            }
        }
        context
    }

    fn put(&mut self, key: &str, value: Value) {
        self.handoff.insert(key.to_owned(), value);
    }

    /// Moves a field into `handoff`, unless it has one by that name.
    fn move_from(&mut self, doc: &mut Object, key: &str) {
        if !self.handoff.contains_key(key)
            && let Some(value) = doc.shift_remove(key)
        {
            self.put(key, value);
        }
    }

    fn keep(&mut self, path: &str, key: String, value: Value) {
        if self.handoff.contains_key(&key) {
            self.displace(&format!("{path}.{key}"), Some(value));
        } else {
            self.handoff.insert(key, value);
        }
    }

    /// Keeps a value whose place is taken. `null` counts as absent here as everywhere.
    fn displace(&mut self, path: &str, value: Option<Value>) {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            self.displaced.insert(path.to_owned(), value);
        }
    }

    fn finish(mut self, rest: Object) -> Object {
        if !self.displaced.is_empty() {
            if let Some(own) = self.handoff.shift_remove("submitted") {
                self.displaced.insert("handoff.submitted".to_owned(), own);
            }
            let displaced = std::mem::take(&mut self.displaced);
            self.put("submitted", displaced.into());
        }
        let mut whole = one("handoff", self.handoff.into());
        whole.extend(rest);
        whole
    }
}

/// Takes the object at `key`; what is not one stays.
fn take_object(doc: &mut Object, key: &str) -> Option<Object> {
    let object = std::mem::take(doc.get_mut(key)?.as_object_mut()?);
    doc.shift_remove(key);
    Some(object)
}

fn text_at<'m>(map: &'m Object, key: &str) -> Option<&'m str> {
    let text = map.get(key)?.as_str()?;
    (!text.trim().is_empty()).then_some(text)
}

fn is_text(value: &mut Value) -> bool {
    value.as_str().is_some_and(|text| !text.trim().is_empty())
}

fn one(key: &str, value: Value) -> Object {
    Object::from_iter([(key.to_owned(), value)])
}

/// A report lists artifacts by their paths; a package says `path`.
fn as_artifact(item: &mut Value) {
    if item.is_string() {
        *item = one("path", item.take()).into();
    }
}

/// `from` of a report: its agent, and the phase that it reports on.
fn reporter(doc: &mut Object) -> Object {
    let name = doc.shift_remove("agent").filter(|name| !name.is_null());
    let mut from = one("agent", name.unwrap_or_else(|| UNKNOWN.into()));
    if let Some(phase) = doc.shift_remove("phase") {
        from.insert("phase".to_owned(), phase);
    }
    from
}

/// `to` of a report: the next agent, or whoever decides where there is none.
fn receiver(doc: &Object, told: &mut Object) -> Object {
    let next = match text_at(told, "next_agent") {
        Some(_) => told.shift_remove("next_agent"),
        None => None,
    };
    let mut to = one("agent", next.unwrap_or_else(|| HUMAN.into()));
    let reason = match (text_at(doc, "status"), text_at(doc, "blocked_reason")) {
        (Some("blocked"), Some(reason)) => format!("Blocked: {reason}"),
        (Some("blocked"), None) => "Blocked".to_owned(),
        (Some("needs_review"), _) => "Needs a review".to_owned(),
        _ => return to,
    };
    to.insert("reason".to_owned(), reason.into());
    to
}
