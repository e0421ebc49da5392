//! Shapes: what the fields of a document may hold, as tables.
//!
//! A reader checks a document against its table and the published schema is printed from the
//! same one ([`super::schema`]), so that the two can't say different things. `null` counts as
//! absent in a field.

use serde_json::{Map, Number, Value};

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
    /// Where an artifact goes. Here it is text; the template is read where its values are known.
    Destination,
    List {
        of: &'static Shape,
        /// What stands there, in a message.
        what: &'static str,
        most: usize,
    },
    Object(&'static [Field]),
    /// An object with at least one of the fields that are named first, and why it needs one.
    OneOf(&'static [&'static str], &'static str, &'static [Field]),
    /// Anything; only an object has these fields.
    Loose(&'static [Field]),
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
    /// Why nothing works without it, where that is so.
    pub need: Option<&'static str>,
}

pub const MOST: usize = 100_000;

pub const fn field(name: &'static str, shape: Shape, about: &'static str) -> Field {
    Field {
        name,
        shape,
        about,
        need: None,
    }
}

/// A field that must be there; `why` is told of one that is not.
pub const fn needed(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    why: &'static str,
) -> Field {
    Field {
        name,
        shape,
        about,
        need: Some(why),
    }
}

/// What a double can still tell from its neighbours.
pub const MOST_WHOLE: f64 = 9_007_199_254_740_992.0;

const PHASE_NUMBER: Range = Range {
    what: "a string or a whole number",
    least: -MOST_WHOLE,
    open: false,
    most: MOST_WHOLE,
    whole: true,
};

/// A whole number from `least`.
pub const fn whole(what: &'static str, least: f64) -> Shape {
    Shape::Number(Range {
        what,
        least,
        open: false,
        most: MOST_WHOLE,
        whole: true,
    })
}

pub const COUNT: Shape = whole("a whole number that is not negative", 0.0);

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
        match (present(map, field.name), field.need) {
            (Some(value), _) => check(&field.shape, value, &join(path, field.name), errors),
            (None, Some(why)) => {
                let error = format!("missing: {why}");
                errors.push(FieldError::new(join(path, field.name), error));
            }
            (None, None) => {}
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
        Shape::Text | Shape::Destination if value.is_string() => {}
        Shape::Text | Shape::Destination => wrong("a string"),
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
            let whole = |number| PHASE_NUMBER.holds(number);
            if !(value.is_string() || value.as_f64().is_some_and(whole)) {
                wrong(PHASE_NUMBER.what);
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
        Shape::OneOf(names, why, fields) => match value {
            Value::Object(map) => {
                if !names.iter().any(|name| present(map, name).is_some()) {
                    let first = join(path, names.first().copied().unwrap_or_default());
                    errors.push(FieldError::new(first, format!("missing: {why}")));
                }
                check_fields(fields, map, path, errors);
            }
            _ => wrong("an object"),
        },
        Shape::Loose(fields) => {
            if let Value::Object(map) = value {
                check_fields(fields, map, path, errors);
            }
        }
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
            Self::Any | Self::Loose(_) => true,
            Self::Bool => value.is_boolean(),
            Self::Number(_) => value.is_number(),
            Self::List { .. } => value.is_array(),
            Self::Object(_) | Self::OneOf(..) | Self::Map => value.is_object(),
            Self::Phase => value.is_string() || value.is_number(),
            Self::Either(shapes, _) => shapes.iter().any(|shape| shape.takes(value)),
            _ => value.is_string(),
        }
    }
}
