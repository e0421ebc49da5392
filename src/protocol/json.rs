//! JSON as it was written: numbers keep their text, keys their order, duplicates are refused.
//!
//! `serde_json` does the parsing and says what is wrong. Two things it loses are put back by a
//! second pair of eyes, `Tokens`, which walks the same text one step behind it and sees every
//! string and number in the same order:
//!
//! - the text of a number. Even with `arbitrary_precision`, `serde_json` rewrites `1e400` and
//!   `1E5` to `1e+400` and `1e+5`;
//! - the place of a key, so that a duplicate is reported where it stands.
//!
//! The same walk tells a number, which reaches a visitor dressed as an object with one reserved
//! key, from a producer who wrote that key. Records must be read here too: `serde_json::from_str`
//! and `to_value` would rewrite the exponents that this file kept.

use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Deserializer, Map, Number, Value};

use super::document::{
    DocumentError, Kind, MAX_LEVELS, MAX_VALUES, RESERVED_KEY, place, too_many_values,
};
use super::field::quoted;

/// Reads one JSON value that a producer or a specialist wrote, nested at most [`MAX_LEVELS`]
/// deep and with at most [`MAX_VALUES`] values in it, and nothing after it.
pub fn parse(text: &str) -> Result<Value, DocumentError> {
    parse_within(text, MAX_LEVELS, MAX_VALUES)
}

/// Reads what the daemon itself wrote, which may be nested a little deeper.
pub fn parse_own(text: &str) -> Result<Value, DocumentError> {
    parse_within(text, usize::MAX, usize::MAX)
}

fn parse_within(text: &str, levels: usize, values: usize) -> Result<Value, DocumentError> {
    let mut tokens = Tokens {
        text,
        at: 0,
        values,
        refusal: None,
    };
    let mut deserializer = Deserializer::from_str(text);
    let seed = Node {
        tokens: &mut tokens,
        levels,
    };
    let parsed = seed
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    parsed.map_err(|error| match tokens.refusal {
        Some((offset, message)) => {
            DocumentError::new(Kind::Syntax, message).at(place(text, offset))
        }
        None => explain(text, &error),
    })
}

/// `serde_json`'s own words, with its place in characters instead of bytes.
fn explain(text: &str, error: &serde_json::Error) -> DocumentError {
    let shown = error.to_string();
    let message = shown.rsplit_once(" at line ").map_or(&*shown, |(m, _)| m);
    let message = match message {
        "recursion limit exceeded" => "nested too deeply".to_owned(),
        message => format!("not valid JSON: {message}"),
    };
    let line_start: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let offset = line_start + error.column().saturating_sub(1);
    DocumentError::new(Kind::Syntax, message).at(place(text, offset))
}

/// The strings and numbers of a text, in order. Only ever asked about text that `serde_json` has
/// already read, so it need not check anything.
struct Tokens<'t> {
    text: &'t str,
    at: usize,
    /// How many more values there may be.
    values: usize,
    /// Why the walk was stopped, and where; serde's errors have no room for the place.
    refusal: Option<(usize, String)>,
}

impl Tokens<'_> {
    /// Moves to the next string or number, and says whether it is a number.
    fn at_number(&mut self) -> bool {
        let rest = &self.text.as_bytes()[self.at..];
        let starts = |b: &u8| matches!(b, b'"' | b'-' | b'0'..=b'9');
        self.at += rest.iter().position(starts).unwrap_or(rest.len());
        self.text
            .as_bytes()
            .get(self.at)
            .is_some_and(|&b| b != b'"')
    }

    fn number(&mut self) -> Value {
        self.at_number();
        let text = &self.text[self.at..];
        let belongs = |b: u8| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = text.bytes().position(|b| !belongs(b)).unwrap_or(text.len());
        self.at += length;
        Value::Number(Number::from_string_unchecked(text[..length].to_owned()))
    }

    /// Steps over a string and gives its offset.
    fn string(&mut self) -> usize {
        self.at_number();
        let start = self.at;
        let bytes = self.text.as_bytes();
        self.at += 1;
        while let Some(&byte) = bytes.get(self.at) {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
        self.at = self.at.min(bytes.len());
        start
    }

    fn refuse<E: serde::de::Error>(&mut self, offset: usize, message: String) -> E {
        self.refusal = Some((offset, message));
        E::custom("refused")
    }
}

/// Builds a [`Value`] with at most `levels` more levels of nesting.
struct Node<'s, 't> {
    tokens: &'s mut Tokens<'t>,
    levels: usize,
}

impl<'t> Node<'_, 't> {
    fn child(&mut self) -> Node<'_, 't> {
        Node {
            tokens: &mut *self.tokens,
            levels: self.levels,
        }
    }

    /// Called once inside every array and object.
    fn descend<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.levels = self.levels.checked_sub(1).ok_or_else(|| {
            let message = format!("nested too deeply: at most {MAX_LEVELS} levels");
            self.tokens.refuse(self.tokens.at, message)
        })?;
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let Some(values) = self.tokens.values.checked_sub(1) else {
            return Err(self.tokens.refuse(self.tokens.at, too_many_values()));
        };
        self.tokens.values = values;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(self.tokens.number())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(self.tokens.number())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        self.tokens.string();
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Value, A::Error> {
        self.descend()?;
        let mut array = Vec::new();
        while let Some(value) = seq.next_element_seed(self.child())? {
            array.push(value);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut next = access.next_key::<String>()?;
        if next.as_deref() == Some(RESERVED_KEY) && self.tokens.at_number() {
            access.next_value::<IgnoredAny>()?;
            return Ok(self.tokens.number());
        }
        self.descend()?;
        let mut map = Map::new();
        while let Some(key) = next {
            let offset = self.tokens.string();
            if key == RESERVED_KEY {
                let message = format!("the key {key:?} is reserved");
                return Err(self.tokens.refuse(offset, message));
            }
            if map.contains_key(&key) {
                return Err(self.tokens.refuse(offset, duplicate(&key)));
            }
            let value = access.next_value_seed(self.child())?;
            map.insert(key, value);
            next = access.next_key()?;
        }
        Ok(Value::Object(map))
    }
}

/// The words for a key that stands twice in one object; shared with YAML.
pub(super) fn duplicate(key: &str) -> String {
    format!("the key {} appears twice in one object", quoted(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_comes_back() {
        for text in [
            r#"{"z":1.0,"a":1e400,"m":-0,"b":1E5,"c":1e-7,"d":1.50,"e":2E+3,"f":-0.0}"#,
            r#"{"n":12345678901234567890123,"m":-99999999999999999999,"u":18446744073709551615}"#,
            r#"{"s":"1e5 \"-3\" {[","t":[true,false,null,{},[],{"-1":-1}]}"#,
            r#"[1,"\\",2,"\\\"",3]"#,
            r#"[{},5,[{}],"$serde_json::private::Number",1.0]"#,
            "7",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn errors_name_line_and_column() {
        for (text, part, line, column) in [
            (r#"{"a":1,}"#, "trailing comma", 1, 8),
            ("{'a':1}", "key must be a string", 1, 2),
            ("{\"a\": 1\n \"b\": 2}", "expected `,` or `}`", 2, 2),
            ("{\"é\": x}", "expected value", 1, 7),
            ("{\"a\": 1}\n{}", "trailing characters", 2, 1),
            (r#"{"a":"#, "EOF", 1, 5),
            (r#"{"a":01}"#, "invalid number", 1, 7),
            ("{\"a\":\"x\ty\"}", "control character", 1, 8),
            (r#"{"a":"\ud800"}"#, "hex escape", 1, 13),
            ("{\"a\": 1,\n  \"a\": 2}", r#""a" appears twice"#, 2, 3),
            (
                r#"{"é":{"b":"\"","\u0062":2}}"#,
                r#""b" appears twice"#,
                1,
                16,
            ),
            (r#"{"$serde_json::private::Number":"1"}"#, "reserved", 1, 2),
            (
                r#"{"\u0024serde_json::private::Number":1}"#,
                "reserved",
                1,
                2,
            ),
            (
                r#"[1,{"a":1,"$serde_json::private::Number":1}]"#,
                "reserved",
                1,
                11,
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message.contains(part), "{text}: {error}");
            assert_eq!(
                (error.line, error.column),
                (Some(line), Some(column)),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn values_are_counted() {
        for one in ["{}", "0", "[]", "\"\"", "null"] {
            let list = |n: usize| format!("[{}{one}]", format!("{one},").repeat(n - 1));
            // The list is one of them.
            assert!(parse(&list(MAX_VALUES - 1)).is_ok(), "{one}");
            let error = parse(&list(MAX_VALUES)).unwrap_err();
            assert!(error.message.contains("at most 500000"), "{error}");
            assert!(parse_own(&list(MAX_VALUES)).is_ok(), "{one}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |n| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(parse(&nested(MAX_LEVELS)).is_ok());
        assert!(parse_own(&nested(MAX_LEVELS + 1)).is_ok());
        let objects = |n| format!("{}{}", r#"{"a":"#.repeat(n), "}".repeat(n));
        for text in [nested(MAX_LEVELS + 1), nested(100_000), objects(100_000)] {
            let error = parse(&text).unwrap_err();
            assert!(error.message.contains("nested too deeply"), "{error}");
        }
        assert!(parse_own(&nested(100_000)).is_err());
    }
}
