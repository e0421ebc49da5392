//! Reading fields out of a document, and saying what is wrong with each.
//!
//! A producer that made three mistakes should hear of three, so nothing here stops at the first:
//! a `Reader` hands out what it can and collects the rest as [`FieldError`]s. `null` counts
//! as absent everywhere, because many serializers write it for what was never set.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{field}: {error}")]
pub struct FieldError {
    /// A dotted path, such as `retry_policy.max_retries` or `depends_on[2]`.
    pub field: String,
    pub error: String,
    /// Where in a schema the rule stands that it breaks, where it breaks one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_path: Option<String>,
}

impl FieldError {
    pub fn new(field: impl Into<String>, error: impl fmt::Display) -> Self {
        Self {
            field: field.into(),
            error: error.to_string(),
            schema_path: None,
        }
    }
}

/// Text in quotes for a message: shortened, and harmless on a terminal.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let cut = text.char_indices().nth(SHOWN).map(|(at, _)| at);
    match cut {
        Some(at) => format!("{:?}…", &text[..at]),
        None => format!("{text:?}"),
    }
}

/// What stands in a field instead of what was expected.
struct Found<'v>(&'v Value);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(number) => {
                let shown = quoted(number.as_str());
                write!(f, "the number {}", shown.replace('"', ""))
            }
            Value::String(text) => write!(f, "the string {}", quoted(text)),
            Value::Array(_) => f.write_str("an array"),
            Value::Object(_) => f.write_str("an object"),
        }
    }
}

/// Collects what is wrong while fields are read.
#[derive(Debug, Default)]
pub(super) struct Reader {
    errors: Vec<FieldError>,
}

impl Reader {
    pub fn wrong(&mut self, field: impl Into<String>, error: impl fmt::Display) {
        self.errors.push(FieldError::new(field, error));
    }

    pub fn expected(&mut self, field: impl Into<String>, what: &str, value: &Value) {
        self.wrong(field, format!("expected {what}, found {}", Found(value)));
    }

    /// The errors, if there are any; else what was read.
    pub fn finish<T>(self, read: Option<T>) -> Result<T, Vec<FieldError>> {
        match read {
            Some(read) if self.errors.is_empty() => Ok(read),
            _ => Err(self.errors),
        }
    }

    /// The object at `key`; its own fields are then read by paths such as `key.field`.
    pub fn object<'m>(
        &mut self,
        map: &'m Map<String, Value>,
        key: &str,
    ) -> Option<&'m Map<String, Value>> {
        let value = present(map, key)?;
        if value.is_object() {
            return value.as_object();
        }
        self.expected(key, "an object", value);
        None
    }

    pub fn string<'m>(&mut self, map: &'m Map<String, Value>, path: &str) -> Option<&'m str> {
        let value = present(map, leaf(path))?;
        if value.is_string() {
            return value.as_str();
        }
        self.expected(path, "a string", value);
        None
    }

    /// A number for which `good` holds; `what` says which numbers those are.
    pub fn number(
        &mut self,
        map: &Map<String, Value>,
        path: &str,
        what: &str,
        good: impl Fn(f64) -> bool,
    ) -> Option<f64> {
        let value = present(map, leaf(path))?;
        match value.as_number().map(Number::as_f64) {
            Some(Some(number)) if good(number) => return Some(number),
            Some(None) => self.wrong(path, format!("{} is out of range", Found(value))),
            _ => self.expected(path, what, value),
        }
        None
    }

    /// A list of strings, each with the path that names it.
    pub fn strings<'m>(
        &mut self,
        map: &'m Map<String, Value>,
        key: &str,
    ) -> Vec<(String, &'m str)> {
        let items = match present(map, key) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => {
                self.expected(key, "an array of strings", other);
                return Vec::new();
            }
        };
        let mut strings = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{key}[{index}]");
            match item {
                Value::String(text) => strings.push((path, &**text)),
                other => self.expected(path, "a string", other),
            }
        }
        strings
    }
}

/// The value at `key`, unless it is missing or `null`.
pub(super) fn present<'m>(map: &'m Map<String, Value>, key: &str) -> Option<&'m Value> {
    map.get(key).filter(|value| !value.is_null())
}

/// The last step of a dotted path: the key inside the object that is being read.
fn leaf(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, leaf)| leaf)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_say_what_was_found() {
        let long = "9".repeat(100);
        for (value, shown) in [
            (json!(null), "null".to_owned()),
            (json!(true), "true".to_owned()),
            (json!("abc"), r#"the string "abc""#.to_owned()),
            (
                json!("\u{1b}[31m\n\u{202e}"),
                r#"the string "\u{1b}[31m\n\u{202e}""#.to_owned(),
            ),
            (
                json!("é".repeat(61)),
                format!("the string \"{}\"…", "é".repeat(60)),
            ),
            (
                serde_json::from_str(&long).unwrap(),
                format!("the number {}…", &long[..60]),
            ),
            (json!([1]), "an array".to_owned()),
            (json!({"a": 1}), "an object".to_owned()),
        ] {
            assert_eq!(Found(&value).to_string(), shown);
        }
    }
}
