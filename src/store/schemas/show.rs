//! Values and paths in sentences: short, and harmless on a terminal.

use std::fmt::Write;

use serde_json::Value;

use super::name::{quoted, shortened};

/// Characters of a value, and of a list of values.
pub(super) const SHOWN: usize = 60;
pub(super) const SHOWN_LIST: usize = 120;

/// The path of a value in a document, such as `items[0].name`.
pub(super) fn field(document: &Value, pointer: &str) -> String {
    let mut path = String::new();
    let mut at = Some(document);
    for step in pointer.split('/').skip(1) {
        let key = unescaped(step);
        if let Some(Value::Array(items)) = at {
            let _ = write!(path, "[{key}]");
            at = key.parse().ok().and_then(|index: usize| items.get(index));
            continue;
        }
        if is_simple(&key) {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&key);
        } else {
            let _ = write!(path, "[\"{}\"]", escaped(&key));
        }
        at = at.and_then(|value| value.get(&key));
    }
    path
}

fn is_simple(key: &str) -> bool {
    let plain = |char: char| char.is_ascii_alphanumeric() || "_$-".contains(char);
    !key.is_empty() && key.len() <= SHOWN && key.chars().all(plain)
}

pub(super) fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// Text between double quotes.
fn escaped(text: &str) -> String {
    shortened(&text.replace('\\', "\\\\").replace('"', "\\\""), SHOWN)
}

/// A value for a message: shortened, and harmless on a terminal.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", escaped(text)),
        Value::Array(items) if !items.is_empty() && items.len() > 8 => "an array".to_owned(),
        Value::Object(map) if map.len() > 8 => "an object".to_owned(),
        Value::Array(_) | Value::Object(_) => match brief(value, SHOWN) {
            Some(text) => shortened(&text, SHOWN),
            None => if value.is_array() {
                "an array"
            } else {
                "an object"
            }
            .to_owned(),
        },
        other => shortened(&other.to_string(), SHOWN),
    }
}

/// The value as JSON, if it is short.
fn brief(value: &Value, most: usize) -> Option<String> {
    fn length(value: &Value, left: usize) -> Option<usize> {
        let own = match value {
            Value::String(text) => text.len(),
            Value::Number(number) => number.as_str().len(),
            Value::Array(items) => items.iter().try_fold(0, |sum, item| {
                Some(sum + length(item, left.checked_sub(sum)?)?)
            })?,
            Value::Object(map) => map.iter().try_fold(0, |sum, (key, item)| {
                Some(sum + key.len() + length(item, left.checked_sub(sum + key.len())?)?)
            })?,
            Value::Null | Value::Bool(_) => 4,
        };
        (own + 2 <= left).then_some(own + 2)
    }
    length(value, most)?;
    Some(value.to_string())
}

pub(super) fn with_type(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => format!("boolean {value}"),
        Value::Number(number) => {
            let whole = !number.as_str().contains(['.', 'e', 'E']);
            format!(
                "{} {}",
                if whole { "integer" } else { "number" },
                shown(value)
            )
        }
        Value::String(_) => format!("string {}", shown(value)),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

pub(super) fn bare(name: &Value) -> String {
    match name {
        Value::String(name) => quoted(name),
        other => shown(other),
    }
}

/// How many things a value consists of.
pub(super) fn many(value: &Value) -> String {
    match value {
        Value::Array(items) => items.len().to_string(),
        Value::Object(map) => map.len().to_string(),
        Value::String(text) => text.chars().count().to_string(),
        _ => shown(value),
    }
}

/// A number of the things that a value consists of, such as `3 characters`.
pub(super) fn some(value: &Value, many: impl std::fmt::Display) -> String {
    let what = match value {
        Value::Array(_) => "item",
        Value::Object(_) => "field",
        _ => "character",
    };
    let many = many.to_string();
    let plural = if many == "1" { "" } else { "s" };
    format!("{many} {what}{plural}")
}

/// A list of at most about a line.
pub(super) fn list(mut items: impl Iterator<Item = String>) -> String {
    let mut line = String::new();
    while let Some(item) = items.next() {
        if line.len() + item.len() > SHOWN_LIST && !line.is_empty() {
            return format!("{line} and {} more", items.count() + 1);
        }
        if !line.is_empty() {
            line.push_str(", ");
        }
        line.push_str(&item);
    }
    line
}
