//! Walking over a schema as a document: who refers to whom, and where alternatives stand.
//!
//! Only what is a schema is walked, not the values that schemas carry: a `$ref` in an `enum` is
//! data, and so is everything below `const`.

use serde_json::{Map, Value, json};

use super::engine;
use super::load::Document;

/// A keyword of our own that counts how often it is passed. As `true` it is a further
/// alternative that never fits, as `false` a rule that always holds.
pub(super) const METER: &str = "\u{0}handoffd-meter";

const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords whose schemas look at the same value again.
const IN_PLACE: [&str; 10] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependencies",
    "propertyNames",
];

/// Keywords whose members are schemas by names of their own.
const BY_NAME: [&str; 6] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
];

/// Keywords that hold values, not schemas.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// A reference in a schema.
#[derive(Debug)]
pub(super) struct Reference {
    /// The file that it stands in.
    pub name: String,
    pub pointer: String,
    pub text: String,
}

/// Puts the meter beside everything that looks at the same value again.
pub(super) fn meter(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(meter),
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match (DATA.contains(&&**key), BY_NAME.contains(&&**key), value) {
                    (true, ..) => {}
                    (_, true, Value::Object(named)) => named.values_mut().for_each(meter),
                    (.., value) => meter(value),
                }
            }
            // A rule of our own comes last and is not reached if another is broken; so does an
            // alternative, but all are tried where none fits.
            for key in ["anyOf", "oneOf"] {
                if let Some(Value::Array(alternatives)) = map.get_mut(key) {
                    alternatives.push(json!({METER: true}));
                }
            }
            if IN_PLACE.iter().any(|key| map.contains_key(*key)) {
                map.insert(METER.to_owned(), Value::Bool(false));
            }
        }
        _ => {}
    }
}

/// How many steps a check can take without going deeper into the document: no schema is
/// entered twice for one value, so there are no more than there are in-place keywords.
pub(super) fn links(schema: &Value) -> usize {
    match schema {
        Value::Array(items) => items.iter().map(links).sum(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| {
                let own = REFERENCES.contains(&&**key) || IN_PLACE.contains(&&**key);
                usize::from(own) + links(value)
            })
            .sum(),
        _ => 0,
    }
}

/// The first reference for which `wanted(base, text)` holds.
pub(super) fn find_reference(
    document: &Document,
    wanted: &dyn Fn(&str, &str) -> bool,
) -> Option<Reference> {
    let mut pointer = String::from("#");
    let text = find(&document.value, &document.address, &mut pointer, wanted)?;
    Some(Reference {
        name: document.name.clone(),
        pointer,
        text,
    })
}

fn find(
    schema: &Value,
    base: &str,
    pointer: &mut String,
    wanted: &dyn Fn(&str, &str) -> bool,
) -> Option<String> {
    match schema {
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
            below(pointer, &index.to_string(), |pointer| {
                find(item, base, pointer, wanted)
            })
        }),
        Value::Object(map) => find_in_object(map, base, pointer, wanted),
        _ => None,
    }
}

fn find_in_object(
    map: &Map<String, Value>,
    base: &str,
    pointer: &mut String,
    wanted: &dyn Fn(&str, &str) -> bool,
) -> Option<String> {
    let id = map.get("$id").and_then(Value::as_str);
    let own = id.and_then(|id| engine::resolve(base, id));
    let base = own.as_deref().unwrap_or(base);
    map.iter().find_map(|(key, value)| {
        below(pointer, key, |pointer| match value {
            _ if DATA.contains(&&**key) => None,
            Value::String(text) if REFERENCES.contains(&&**key) && wanted(base, text) => {
                Some(text.clone())
            }
            Value::Object(named) if BY_NAME.contains(&&**key) => {
                named.iter().find_map(|(name, schema)| {
                    below(pointer, name, |pointer| find(schema, base, pointer, wanted))
                })
            }
            value => find(value, base, pointer, wanted),
        })
    })
}

/// Searches one step further down; the pointer stays there if something was found.
fn below<T>(
    pointer: &mut String,
    step: &str,
    search: impl FnOnce(&mut String) -> Option<T>,
) -> Option<T> {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(&step.replace('~', "~0").replace('/', "~1"));
    let found = search(pointer);
    if found.is_none() {
        pointer.truncate(length);
    }
    found
}
