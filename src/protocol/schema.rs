//! Shapes as JSON Schema, for [`super::published`].

use serde_json::{Map, Value, json};

use super::patterns;
use super::shape::{Field, MOST_WHOLE, Range, Shape};

impl Shape {
    /// This shape as a JSON Schema.
    pub fn schema(&self) -> Value {
        match self {
            Self::Any => json!({}),
            Self::Text => json!({"type": "string"}),
            Self::Bool => json!({"type": "boolean"}),
            Self::Word(words) => json!({"enum": words}),
            Self::Number(range) => range.schema(),
            Self::Instant => json!({"type": "string", "pattern": patterns::INSTANT}),
            Self::Deadline => json!({
                "type": "string",
                "anyOf": [{"pattern": patterns::INSTANT}, {"pattern": patterns::duration()}],
            }),
            Self::Duration => json!({"type": "string", "pattern": patterns::duration()}),
            Self::Id => json!({"type": "string", "pattern": patterns::ID}),
            Self::Task => json!({
                "type": "string", "pattern": patterns::TASK, "not": {"const": "current"},
            }),
            Self::Agent => json!({"type": "string", "pattern": patterns::AGENT}),
            Self::Destination => json!({
                "type": "string", "pattern": patterns::DESTINATION, "maxLength": 1024,
                "not": {"anyOf": [
                    {"const": "artifacts/registry.jsonl"}, {"type": "string", "pattern": patterns::DOTS},
                ]},
            }),
            Self::Phase => json!({
                "type": ["string", "integer"],
                "minimum": plain(-MOST_WHOLE), "maximum": plain(MOST_WHOLE),
            }),
            Self::List { of, most, .. } => {
                json!({"type": "array", "items": of.schema(), "maxItems": most})
            }
            Self::Object(fields) => object_schema(&[fields]),
            Self::OneOf(names, _, fields) => {
                let mut schema = object_schema(&[fields]);
                let any: Vec<Value> = names.iter().map(|name| has(name)).collect();
                schema["anyOf"] = any.into();
                schema
            }
            Self::Loose(fields) => {
                let mut schema = object_schema(&[fields]);
                if let Some(schema) = schema.as_object_mut() {
                    schema.shift_remove("type");
                }
                schema
            }
            Self::Map => json!({"type": "object"}),
            Self::Either(shapes, _) => {
                let any: Vec<Value> = shapes.iter().map(Self::schema).collect();
                json!({"anyOf": any})
            }
        }
    }
}

/// The schema of an object with the fields of these tables; others are allowed. What is not
/// needed may be `null` as well.
pub fn object_schema(tables: &[&[Field]]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in tables.iter().copied().flatten() {
        let mut schema = field.shape.schema();
        if field.need.is_some() {
            required.push(field.name);
        } else {
            schema = nullable(schema);
        }
        properties.insert(field.name.to_owned(), described(schema, field.about));
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// A schema with its description in front, where a reader looks first.
pub fn described(schema: Value, about: &str) -> Value {
    let mut described = Map::new();
    described.insert("description".to_owned(), about.into());
    if let Value::Object(schema) = schema {
        described.extend(schema);
    }
    Value::Object(described)
}

/// The same, or `null`.
fn nullable(mut schema: Value) -> Value {
    let Some(map) = schema.as_object_mut() else {
        return schema;
    };
    if let Some(Value::Array(words)) = map.get_mut("enum") {
        words.push(Value::Null);
        return schema;
    }
    match map.get_mut("type") {
        Some(Value::Array(types)) => types.push("null".into()),
        Some(one) => *one = json!([one.take(), "null"]),
        // Without a type, it is about objects alone, or about one of several.
        None => {
            if let Some(Value::Array(any)) = map.get_mut("anyOf") {
                any.push(json!({"type": "null"}));
            }
        }
    }
    schema
}

/// A field is there, and is not `null`.
pub fn has(name: &str) -> Value {
    json!({"required": [name], "properties": {name: {"not": {"type": "null"}}}})
}

impl Range {
    fn schema(&self) -> Value {
        let mut schema = Map::new();
        let kind = if self.whole { "integer" } else { "number" };
        schema.insert("type".to_owned(), kind.into());
        let least = if self.open {
            "exclusiveMinimum"
        } else {
            "minimum"
        };
        schema.insert(least.to_owned(), plain(self.least));
        schema.insert("maximum".to_owned(), plain(self.most));
        Value::Object(schema)
    }
}

/// A bound, written without a fraction where it has none.
fn plain(number: f64) -> Value {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is whole and not too large"
    )]
    if number.fract() == 0.0 && number.abs() <= MOST_WHOLE {
        (number as i64).into()
    } else {
        number.into()
    }
}
