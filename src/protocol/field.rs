//! What is wrong with a field, in words.
//!
//! A producer that made three mistakes should hear of three, so readers collect
//! [`FieldError`]s instead of stopping at the first. `null` counts as absent everywhere,
//! because many serializers write it for what was never set.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
pub fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let cut = text.char_indices().nth(SHOWN).map(|(at, _)| at);
    match cut {
        Some(at) => format!("{:?}…", &text[..at]),
        None => format!("{text:?}"),
    }
}

/// What stands in a field instead of what was expected.
pub(super) struct Found<'v>(pub &'v Value);

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

/// Something else was expected in a field.
pub(super) fn expected(field: impl Into<String>, what: &str, value: &Value) -> FieldError {
    FieldError::new(field, format!("expected {what}, found {}", Found(value)))
}

/// The value at `key`. Most objects have a handful of keys, and looking at each is quicker than
/// hashing one; a document is asked for some hundred on its way.
pub(super) fn find<'m>(map: &'m Map<String, Value>, key: &str) -> Option<&'m Value> {
    const FEW: usize = 16;
    if map.len() > FEW {
        return map.get(key);
    }
    map.iter()
        .find_map(|(name, value)| (name == key).then_some(value))
}

/// The value at `key`, unless it is missing or `null`.
pub fn present<'m>(map: &'m Map<String, Value>, key: &str) -> Option<&'m Value> {
    find(map, key).filter(|value| !value.is_null())
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
