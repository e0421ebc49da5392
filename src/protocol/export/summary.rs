//! Words for what a producer left unsaid: a summary, a deliverable.
//!
//! Only what follows from the document: a text that it carries, or a plain sentence that names
//! what is there. Texts are cut, because the whole of them stands in the export anyway.

use serde_json::{Map, Value};

use super::{UNKNOWN, text_at};

/// Where a text may stand that says what is wanted.
const TELLING: [&str; 8] = [
    "task",
    "summary",
    "title",
    "description",
    "prompt",
    "instructions",
    "question",
    "text",
];

const MOST_CHARS: usize = 500;
const MOST_NAMES: usize = 8;

type Object = Map<String, Value>;

pub(super) fn of_request(doc: &Object, context: &Object, from: &Object, to: &Object) -> String {
    let data = doc.get("input").and_then(|input| input.get("data"));
    let told = match data {
        Some(Value::String(text)) if !text.trim().is_empty() => Some(&**text),
        Some(Value::Object(data)) => telling(data),
        _ => None,
    };
    if let Some(text) = told.or_else(|| telling(doc)).or_else(|| telling(context)) {
        return cut(text);
    }
    let mut sentence = match name(to) {
        UNKNOWN => "Work without a target".to_owned(),
        name => format!("Work for {name}"),
    };
    if name(from) != UNKNOWN {
        sentence = format!("{sentence} from {}", name(from));
    }
    let names: Vec<&str> = match data {
        Some(Value::Object(data)) => data.keys().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    match &*names {
        [] => format!("{sentence}."),
        names => cut(&format!("{sentence}, given {}.", listed(names))),
    }
}

pub(super) fn of_report(doc: &Object, to: &Object) -> String {
    let status = text_at(doc, "status").unwrap_or_default();
    format!("A report with the status {status}, for {}.", name(to))
}

/// What must come out, and where, as far as `expected_output` says so.
pub(super) fn deliverable(doc: &Object) -> Option<String> {
    let expected = doc.get("expected_output")?.as_object()?;
    let kind = text_at(expected, "artifact_type");
    let destination = text_at(expected, "destination");
    match (kind, destination) {
        (Some(kind), Some(destination)) => Some(format!("{kind} at {destination}")),
        (kind, destination) => kind.or(destination).map(str::to_owned),
    }
}

fn telling(map: &Object) -> Option<&str> {
    TELLING.into_iter().find_map(|key| text_at(map, key))
}

fn name(party: &Object) -> &str {
    text_at(party, "agent").unwrap_or(UNKNOWN)
}

/// `a, b and c`, and how many more.
fn listed(names: &[&str]) -> String {
    let (shown, more) = names.split_at(names.len().min(MOST_NAMES));
    match (shown, more) {
        ([head @ .., last], []) if !head.is_empty() => format!("{} and {last}", head.join(", ")),
        (shown, []) => shown.join(", "),
        (shown, more) => format!("{} and {} more", shown.join(", "), more.len()),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARS) {
        Some((at, _)) => format!("{}…", text[..at].trim_end()),
        None => text.to_owned(),
    }
}
