//! Fields of a request with a name that is nearly right.
//!
//! A field that the daemon does not know is the producer's own and stays where it is. One that is close
//! to a known name was probably meant to be that one, and so was one with the name that the
//! configuration uses for the same thing. Nobody acts on it, so its producer must hear of it.

use serde_json::{Map, Value};

use crate::protocol::dialect::Dialect;
use crate::protocol::field::FieldError;
use crate::protocol::fields::{ACTED_ON, PACKAGE, REPORT, REPORT_HANDOFF, REQUEST, TOP};
use crate::protocol::nearest::nearest_within;
use crate::protocol::record::{LIFTED, OWNED};
use crate::protocol::shape::{Field, join};
use crate::protocol::view::View;

/// More edits than this make another word.
const MOST_EDITS: usize = 2;

/// So many unknown fields of an object are looked at, and so many reported. A person writes fewer, and a
/// document may have half a million.
const LOOKED_AT: usize = 1000;
const REPORTED: usize = 20;

/// Known words this short differ from other words by their first letter alone: date and gate.
const SHORT: usize = 5;

/// What the configuration calls a thing, and what a request calls it.
const CONFIGURED: [(&str, &str); 4] = [
    ("timeout", "timeout_seconds"),
    ("retry", "retry_policy"),
    ("input_schema", "input.schema"),
    ("output_schema", "expected_output.schema"),
];

/// Names that the formats use and the daemon only carries.
const CARRIED: [&str; 14] = [
    "handoff",
    "handoffd",
    "timestamp",
    "task_id",
    "agent",
    "phase",
    "summary",
    "type",
    "title",
    "parent",
    "state_delta",
    "context_summary",
    "state_file",
    "target_agent",
];

/// The misnamed fields at the top of a document and, where the dialect reads its fields there first,
/// in `handoff`.
pub fn misnamed(view: &View<'_>) -> Vec<FieldError> {
    let (top, inside): (&[&[Field]], &[Field]) = match view.dialect {
        Dialect::Request => (&[REQUEST], &[]),
        Dialect::Package => (&[TOP], PACKAGE),
        Dialect::Report => (&[TOP, REPORT], REPORT_HANDOFF),
        Dialect::Ambiguous | Dialect::Unknown => return Vec::new(),
    };
    let mut known = names(top);
    // A package's or a report's own words may stand at the top, too, and mean nothing there.
    let elsewhere = names(&[inside]);
    let mut found = in_object(view.doc, "", &known, &elsewhere);
    if let Some(handoff) = view.handoff() {
        known = names(&[inside]);
        found.extend(in_object(
            handoff,
            "handoff",
            &known,
            &names(&[TOP, REPORT]),
        ));
    }
    found
}

/// The names of these tables, with those that are acted on everywhere.
fn names(tables: &[&[Field]]) -> Vec<&'static str> {
    let of = |table: &[Field]| table.iter().map(|field| field.name).collect::<Vec<_>>();
    let acted_on = of(ACTED_ON);
    tables
        .iter()
        .flat_map(|table| of(table))
        .chain(acted_on)
        .collect()
}

fn in_object(
    object: &Map<String, Value>,
    path: &str,
    known: &[&'static str],
    elsewhere: &[&'static str],
) -> Vec<FieldError> {
    let is_ours = |key: &str| {
        [known, elsewhere, &CARRIED, &OWNED, &LIFTED]
            .iter()
            .any(|names| names.contains(&key))
    };
    let unknown = object.keys().filter(|key| !is_ours(key));
    let meant = unknown
        .take(LOOKED_AT)
        .filter_map(|key| Some((key, meant(key, known)?)));
    meant
        .take(REPORTED)
        .map(|(key, meant)| {
            let why = format!("unknown field; did you mean `{meant}`?");
            FieldError::new(join(path, key), why)
        })
        .collect()
}

/// The name that was probably meant.
fn meant(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let longest = known.iter().map(|name| name.len()).max()?;
    if key.len() > 2 * longest {
        return None;
    }
    let plain = in_snake_case(key);
    let configured = CONFIGURED.iter().find(|(theirs, _)| *theirs == plain);
    if let Some((_, ours)) = configured {
        return Some(ours);
    }
    let near = nearest_within(&plain, known.iter().copied(), MOST_EDITS)?;
    let is_sure = near.len() > SHORT || near.chars().next() == plain.chars().next();
    is_sure.then_some(near)
}

/// `notBefore`, `not-before` and `Not_Before` are one name.
fn in_snake_case(key: &str) -> String {
    let mut plain = String::with_capacity(key.len() + 4);
    for letter in key.chars() {
        if letter.is_uppercase() && plain.chars().next_back().is_some_and(char::is_lowercase) {
            plain.push('_');
        }
        match letter {
            '-' => plain.push('_'),
            _ => plain.extend(letter.to_lowercase()),
        }
    }
    plain
}

#[cfg(test)]
#[path = "misnamed_tests.rs"]
mod tests;
