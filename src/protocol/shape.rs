//! Shapes: what the fields of a document may hold, as tables.
//!
//! A reader checks a document against its table and the published schema is printed from the
//! same one, so that the two can't say different things. `null` counts as absent in a field.

use serde_json::{Map, Number, Value, json};

use super::agent::AgentName;
use super::field::{FieldError, expected, present};
use super::id::HandoffId;
use crate::clock::Wall;

pub enum Shape {
    Any,
    Text,
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
    Number(Range),
    /// An instant of RFC 3339.
    Instant,
    /// An instant, or how long from now.
    Deadline,
    /// A duration such as `30m`.
    Duration,
    /// A handoff's id, also one that the daemon made.
    Id,
    Task,
    Agent,
    /// A string or a whole number.
    Phase,
    List {
        of: &'static Shape,
        /// What stands there, in a message.
        what: &'static str,
        most: usize,
    },
    Object(&'static [Field]),
    /// Any object with fields of the producer's own.
    Map,
    /// One of several, told apart by the kind of value: text, list, object.
    Either(&'static [Shape], &'static str),
}

/// Numbers from `least` to `most`; `least` itself is left out where `open`.
pub struct Range {
    pub what: &'static str,
    pub least: f64,
    pub open: bool,
    pub most: f64,
    pub whole: bool,
}

pub struct Field {
    pub name: &'static str,
    pub shape: Shape,
    /// What it is for, as the published schema tells it.
    pub about: &'static str,
}

pub const MOST: usize = 100_000;

pub const fn field(name: &'static str, shape: Shape, about: &'static str) -> Field {
    Field { name, shape, about }
}

/// A list of strings.
pub const TEXTS: Shape = Shape::List {
    of: &Shape::Text,
    what: "an array of strings",
    most: MOST,
};

/// Text, or a list of it: both are written.
pub const TEXT_OR_TEXTS: Shape = Shape::Either(&[Shape::Text, TEXTS], "an array of strings");

const INSTANT: &str = "an RFC 3339 instant such as 2026-01-13T10:00:00Z";
const DEADLINE: &str = "an instant such as 2026-01-13T10:00:00Z, or a duration such as 2h";

/// Adds what is wrong with the fields of `map`, which stands at `path`.
pub fn check_fields(
    fields: &[Field],
    map: &Map<String, Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for field in fields {
        if let Some(value) = present(map, field.name) {
            check(&field.shape, value, &join(path, field.name), errors);
        }
    }
}

pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Adds what is wrong with `value`, which stands at `path`.
pub fn check(shape: &Shape, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut wrong = |what: &str| errors.push(expected(path, what, value));
    match shape {
        Shape::Any => {}
        Shape::Text if value.is_string() => {}
        Shape::Text => wrong("a string"),
        Shape::Bool if value.is_boolean() => {}
        Shape::Bool => wrong("true or false"),
        Shape::Word(words) => {
            if !value.as_str().is_some_and(|word| words.contains(&word)) {
                wrong(&one_of(words));
            }
        }
        Shape::Number(range) => match value.as_number().map(Number::as_f64) {
            Some(Some(number)) if range.holds(number) => {}
            Some(None) => errors.push(FieldError::new(
                path,
                format!("{} is out of range", super::field::Found(value)),
            )),
            _ => wrong(range.what),
        },
        Shape::Instant => {
            if value.as_str().and_then(Wall::parse).is_none() {
                wrong(INSTANT);
            }
        }
        Shape::Deadline => {
            let good =
                |text| Wall::parse(text).is_some() || humantime::parse_duration(text).is_ok();
            if !value.as_str().is_some_and(good) {
                wrong(DEADLINE);
            }
        }
        Shape::Duration => {
            let good = |text| humantime::parse_duration(text).is_ok();
            if !value.as_str().is_some_and(good) {
                wrong("a duration such as 30m");
            }
        }
        Shape::Phase => {
            if !(value.is_string() || value.as_i64().is_some()) {
                wrong("a string or a whole number");
            }
        }
        Shape::Id | Shape::Task | Shape::Agent => check_name(shape, value, path, errors),
        Shape::List { of, what, most } => match value {
            Value::Array(items) if items.len() > *most => {
                let error = format!("expected at most {most} entries, found {}", items.len());
                errors.push(FieldError::new(path, error));
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    check(of, item, &format!("{path}[{at}]"), errors);
                }
            }
            _ => wrong(what),
        },
        Shape::Object(fields) => match value {
            Value::Object(map) => check_fields(fields, map, path, errors),
            _ => wrong("an object"),
        },
        Shape::Map if value.is_object() => {}
        Shape::Map => wrong("an object"),
        Shape::Either(shapes, what) => match shapes.iter().find(|shape| shape.takes(value)) {
            Some(shape) => check(shape, value, path, errors),
            None => wrong(what),
        },
    }
}

fn check_name(shape: &Shape, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(text) = value.as_str() else {
        return errors.push(expected(path, "a string", value));
    };
    let error = match shape {
        Shape::Agent => AgentName::parse(text).err().map(str::to_owned),
        Shape::Task if text == "current" => Some("`current` is reserved".to_owned()),
        Shape::Task => HandoffId::parse(text).err().map(|error| error.to_string()),
        _ => HandoffId::parse_made(text)
            .err()
            .map(|error| error.to_string()),
    };
    if let Some(error) = error {
        errors.push(FieldError::new(path, error));
    }
}

fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

impl Range {
    fn holds(&self, number: f64) -> bool {
        let above = if self.open {
            number > self.least
        } else {
            number >= self.least
        };
        above && number <= self.most && (!self.whole || number.fract() == 0.0)
    }
}

impl Shape {
    /// Whether a value is of the kind that this shape is about.
    fn takes(&self, value: &Value) -> bool {
        match self {
            Self::Any => true,
            Self::Bool => value.is_boolean(),
            Self::Number(_) => value.is_number(),
            Self::List { .. } => value.is_array(),
            Self::Object(_) | Self::Map => value.is_object(),
            Self::Phase => value.is_string() || value.is_number(),
            Self::Either(shapes, _) => shapes.iter().any(|shape| shape.takes(value)),
            _ => value.is_string(),
        }
    }

    /// This shape as a JSON Schema.
    pub fn schema(&self) -> Value {
        match self {
            Self::Any => json!({}),
            Self::Text => json!({"type": "string"}),
            Self::Bool => json!({"type": "boolean"}),
            Self::Word(words) => json!({"enum": words}),
            Self::Number(range) => range.schema(),
            Self::Instant => json!({"type": "string", "pattern": INSTANT_PATTERN}),
            Self::Deadline => json!({
                "type": "string",
                "anyOf": [{"pattern": INSTANT_PATTERN}, {"pattern": DURATION_PATTERN}],
            }),
            Self::Duration => json!({"type": "string", "pattern": DURATION_PATTERN}),
            Self::Id => json!({
                "type": "string", "pattern": "^[A-Za-z0-9_@~-][A-Za-z0-9._@~-]{0,199}$",
            }),
            Self::Task => json!({
                "type": "string", "pattern": "^[A-Za-z0-9_@-][A-Za-z0-9._@-]{0,199}$",
                "not": {"const": "current"},
            }),
            Self::Agent => json!({
                "type": "string", "pattern": "^(@[^\\x00-\\x1f\\x7f]+|[^@\\x00-\\x1f\\x7f][^\\x00-\\x1f\\x7f]*)$",
                "maxLength": 201,
            }),
            Self::Phase => json!({"type": ["string", "integer"]}),
            Self::List { of, most, .. } => {
                json!({"type": "array", "items": of.schema(), "maxItems": most})
            }
            Self::Object(fields) => object_schema(fields),
            Self::Map => json!({"type": "object"}),
            Self::Either(shapes, _) => {
                let any: Vec<Value> = shapes.iter().map(Self::schema).collect();
                json!({"anyOf": any})
            }
        }
    }
}

/// An offset is optional: without one it is UTC.
const INSTANT_PATTERN: &str = "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt ]\
    ([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\\.[0-9]+)?([Zz]|[+-][0-9]{2}:?[0-9]{2})?$";
const DURATION_PATTERN: &str = "^ *([0-9]+(\\.[0-9]+)? *[A-Za-zµ]+ *)+$";

/// The schema of an object with these fields; others are allowed, and so is `null`.
pub fn object_schema(fields: &[Field]) -> Value {
    let mut properties = Map::new();
    for field in fields {
        let mut schema = match field.shape.schema() {
            Value::Object(plain) if plain.is_empty() => Map::new(),
            schema => Map::from_iter([("anyOf".to_owned(), json!([schema, {"type": "null"}]))]),
        };
        schema.insert("description".to_owned(), field.about.into());
        properties.insert(field.name.to_owned(), Value::Object(schema));
    }
    json!({"type": "object", "properties": properties})
}

impl Range {
    fn schema(&self) -> Value {
        let mut schema = Map::new();
        let kind = if self.whole { "integer" } else { "number" };
        schema.insert("type".to_owned(), kind.into());
        if self.least > f64::MIN {
            let key = if self.open {
                "exclusiveMinimum"
            } else {
                "minimum"
            };
            schema.insert(key.to_owned(), plain(self.least));
        }
        if self.most < f64::MAX {
            schema.insert("maximum".to_owned(), plain(self.most));
        }
        Value::Object(schema)
    }
}

/// A bound, written without a fraction where it has none.
fn plain(number: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "bounds are small")]
    if number.fract() == 0.0 {
        (number as i64).into()
    } else {
        number.into()
    }
}
