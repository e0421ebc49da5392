//! YAML as far as JSON reaches: one document, string keys, no anchors, no merge keys.
//!
//! Built from the events of granit-parser and not through a serde deserializer: those turn
//! `1.0`, `1e400` and 20-digit integers into floating-point numbers before anyone can object,
//! and a record must show what its producer wrote. The events also carry the place of every
//! key, and the stack is ours, so depth is ours to bound.
//!
//! Plain scalars are read by the core schema of YAML 1.2, so `yes`, `1.2.3` and `2026-01-13`
//! are strings. One deviation: a number with leading zeros (`007`) is a string too, because
//! YAML 1.1 and 1.2 read it differently and a postal code is likelier than either.

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};
use serde_json::{Map, Number, Value};

use super::document::{DocumentError, Kind, MAX_LEVELS, MAX_VALUES, RESERVED_KEY, too_many_values};
use super::field::quoted;
use super::json::duplicate;

/// Reads the one document of a YAML text; it may be of any type.
pub fn parse(text: &str) -> Result<Value, DocumentError> {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_LEVELS + 1,
        block_nesting_limit: MAX_LEVELS + 1,
    };
    let mut builder = Builder::default();
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| scan_error(&error))?;
        builder.take(event, &span)?;
    }
    builder
        .root
        .ok_or_else(|| DocumentError::new(Kind::Empty, "it has only comments and no YAML"))
}

fn scan_error(error: &ScanError) -> DocumentError {
    let place = (error.marker().line(), error.marker().col() + 1);
    DocumentError::new(Kind::Syntax, format!("not valid YAML: {}", error.info())).at(place)
}

fn refuse<T>(span: &Span, message: impl Into<String>) -> Result<T, DocumentError> {
    let place = (span.start.line(), span.start.col() + 1);
    Err(DocumentError::new(Kind::Syntax, message).at(place))
}

enum Frame {
    Sequence(Vec<Value>),
    /// A mapping, and the key that waits for its value.
    Mapping(Map<String, Value>, Option<String>),
}

#[derive(Default)]
struct Builder {
    stack: Vec<Frame>,
    root: Option<Value>,
    values: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), DocumentError> {
        if matches!(
            event,
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..)
        ) {
            self.values += 1;
            // Keys count, too: they are as dear.
            if self.values > MAX_VALUES {
                return refuse(span, too_many_values());
            }
        }
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                refuse(span, "more than one YAML document in a file")
            }
            Event::Scalar(text, style, anchor, tag) => {
                no_anchor(anchor, span)?;
                let value = scalar(&text, style, tag.as_deref(), span)?;
                if let Some(Frame::Mapping(map, key @ None)) = self.stack.last_mut() {
                    *key = Some(check_key(map, value, &text, style, span)?);
                    return Ok(());
                }
                self.add(value);
                Ok(())
            }
            Event::SequenceStart(_, anchor, tag) => self.open(
                Frame::Sequence(Vec::new()),
                "seq",
                anchor,
                tag.as_deref(),
                span,
            ),
            Event::MappingStart(_, anchor, tag) => {
                let frame = Frame::Mapping(Map::new(), None);
                self.open(frame, "map", anchor, tag.as_deref(), span)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                match self.stack.pop() {
                    Some(Frame::Sequence(array)) => self.add(Value::Array(array)),
                    Some(Frame::Mapping(map, _)) => self.add(Value::Object(map)),
                    None => {}
                }
                Ok(())
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => refuse(
                span,
                "YAML aliases (*name) are not supported: write the value out",
            ),
            _ => Ok(()),
        }
    }

    fn open(
        &mut self,
        frame: Frame,
        kind: &str,
        anchor: usize,
        tag: Option<&Tag>,
        span: &Span,
    ) -> Result<(), DocumentError> {
        no_anchor(anchor, span)?;
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema_tag(kind)) {
            return unsupported(tag, span);
        }
        if let Some(Frame::Mapping(_, None)) = self.stack.last() {
            return refuse(span, "a key must be a string, found a collection");
        }
        if self.stack.len() >= MAX_LEVELS {
            let message = format!("nested too deeply: at most {MAX_LEVELS} levels");
            return refuse(span, message);
        }
        self.stack.push(frame);
        Ok(())
    }

    /// Puts a finished value where it belongs.
    fn add(&mut self, value: Value) {
        match self.stack.last_mut() {
            Some(Frame::Sequence(array)) => array.push(value),
            Some(Frame::Mapping(map, key)) => {
                if let Some(key) = key.take() {
                    map.insert(key, value);
                }
            }
            None => self.root = Some(value),
        }
    }
}

fn no_anchor(anchor: usize, span: &Span) -> Result<(), DocumentError> {
    if anchor == 0 {
        return Ok(());
    }
    refuse(
        span,
        "YAML anchors (&name) are not supported: write the value out",
    )
}

fn unsupported<T>(tag: &Tag, span: &Span) -> Result<T, DocumentError> {
    refuse(
        span,
        format!(
            "the YAML tag {} is not supported here",
            quoted(&tag.original())
        ),
    )
}

fn check_key(
    map: &Map<String, Value>,
    key: Value,
    text: &str,
    style: ScalarStyle,
    span: &Span,
) -> Result<String, DocumentError> {
    let Value::String(key) = key else {
        let message = format!("a key must be a string: put {} in quotes", quoted(text));
        return refuse(span, message);
    };
    if key == "<<" && style == ScalarStyle::Plain {
        return refuse(
            span,
            "YAML merge keys (<<) are not supported: write the keys out",
        );
    }
    if key == RESERVED_KEY {
        return refuse(span, format!("the key {key:?} is reserved"));
    }
    if map.contains_key(&key) {
        return refuse(span, duplicate(&key));
    }
    Ok(key)
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    span: &Span,
) -> Result<Value, DocumentError> {
    let Some(tag) = tag else {
        return match style {
            ScalarStyle::Plain => plain(text, span),
            _ => Ok(Value::String(text.to_owned())),
        };
    };
    let value = match tag.core_suffix() {
        Some("str") => return Ok(Value::String(text.to_owned())),
        Some("null" | "bool" | "int" | "float") => plain(text, span)?,
        _ => return unsupported(tag, span),
    };
    let fits = match tag.core_suffix() {
        Some("null") => value.is_null(),
        Some("bool") => value.is_boolean(),
        Some("int") => matches!(&value, Value::Number(n) if !n.as_str().contains(['.', 'e', 'E'])),
        _ => value.is_number(),
    };
    if fits {
        return Ok(value);
    }
    let message = format!("{} does not fit its tag {}", quoted(text), tag.original());
    refuse(span, message)
}

/// A plain scalar by the core schema.
fn plain(text: &str, span: &Span) -> Result<Value, DocumentError> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return refuse(span, "JSON has no number for .nan"),
        _ => match text.strip_prefix(['-', '+']).unwrap_or(text) {
            ".inf" | ".Inf" | ".INF" => return refuse(span, "JSON has no number for .inf"),
            _ => match based(text, span)?.or_else(|| decimal(text)) {
                Some(number) => Value::Number(Number::from_string_unchecked(number)),
                None => Value::String(text.to_owned()),
            },
        },
    })
}

/// `0x1f` and `0o17`, which JSON can only say in decimal.
fn based(text: &str, span: &Span) -> Result<Option<String>, DocumentError> {
    let (digits, radix) = match (text.strip_prefix("0x"), text.strip_prefix("0o")) {
        (Some(digits), _) => (digits, 16),
        (_, Some(digits)) => (digits, 8),
        _ => return Ok(None),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Ok(None);
    }
    match u128::from_str_radix(digits, radix) {
        Ok(number) => Ok(Some(number.to_string())),
        Err(_) => refuse(span, "too large for a number: put it in quotes"),
    }
}

/// A decimal number in JSON's spelling, unchanged wherever JSON has the same one.
fn decimal(text: &str) -> Option<String> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = rest.split_at(digits(rest));
    let (point, fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => {
            let (fraction, rest) = rest.split_at(digits(rest));
            (".", fraction, rest)
        }
        None => ("", "", rest),
    };
    let exponent = rest.strip_prefix(['e', 'E']);
    let power = exponent.map_or("0", |e| e.strip_prefix(['-', '+']).unwrap_or(e));
    let no_digits = whole.is_empty() && fraction.is_empty();
    let leading_zeros = whole.len() > 1 && whole.starts_with('0');
    let sound = !no_digits
        && !leading_zeros
        && (exponent.is_some() || rest.is_empty())
        && !power.is_empty()
        && digits(power) == power.len();
    let zero = |s: &'static str, missing: bool| if missing { s } else { "" };
    sound.then(|| {
        format!(
            "{sign}{}{whole}{point}{fraction}{}{rest}",
            zero("0", whole.is_empty()),
            zero("0", !point.is_empty() && fraction.is_empty()),
        )
    })
}

#[cfg(test)]
#[path = "yaml_tests.rs"]
mod tests;
