//! What is wrong with a document, in sentences.
//!
//! A sentence says what was expected and what was found, with values shortened. It never quotes
//! a whole schema: where the rule stands is told by its path.

use std::cmp::Ordering;

use serde_json::Value;

use super::alternatives;
use super::engine::{Fault, Kind, Place, Types, Unresolved, named};
use super::load::Document;
use super::name::{quoted, shortened};
use super::show::{SHOWN, SHOWN_LIST, bare, field, list, many, shown, some, unescaped, with_type};
use super::walk;
use crate::protocol::field::FieldError;

/// Errors that are listed; the rest is counted.
const MOST: usize = 100;

/// Levels of alternatives within alternatives that are explained.
const LEVELS: usize = 2;

/// All faults as errors, in the order of the document.
pub(super) fn all(
    document: &Value,
    faults: &[Fault<'_>],
    documents: &[Document],
) -> Vec<FieldError> {
    let mut faults: Vec<&Fault<'_>> = faults.iter().collect();
    faults.sort_by(|a, b| {
        by_place(a.instance_path().as_str(), b.instance_path().as_str())
            .then_with(|| a.schema_path().as_str().cmp(b.schema_path().as_str()))
    });
    let mut errors: Vec<FieldError> = Vec::new();
    let mut more = 0;
    for fault in faults {
        if errors.len() == MOST {
            more += 1;
            continue;
        }
        let error = told(document, fault, documents);
        // A rule that is reached in two ways is broken once.
        if !errors.contains(&error) {
            errors.push(error);
        }
    }
    if more > 0 {
        errors.push(FieldError::new("", format!("and {more} more errors")));
    }
    errors
}

fn told(document: &Value, fault: &Fault<'_>, documents: &[Document]) -> FieldError {
    let (rule, unfinished) = rule(fault, documents);
    let place = fault.instance_path().as_str();
    let error = match (fault.kind(), unfinished, document.pointer(place)) {
        (_, Some(sentence), _) => sentence,
        (Kind::FalseSchema, _, Some(Value::Object(map))) if forbids_fields(fault) => {
            unknown(map.keys())
        }
        _ => sentence(fault),
    };
    FieldError {
        field: field(document, place),
        error,
        schema_path: Some(rule),
    }
}

/// Why a schema that is one could not be compiled.
pub(super) fn unusable(name: &str, fault: &Fault<'_>, documents: &[Document]) -> String {
    let asker = |end: &str| {
        documents
            .iter()
            .find_map(|each| walk::find_reference(each, &|_, text| text.ends_with(end)))
            .map_or_else(
                || format!("the schema {}", quoted(name)),
                |asked| format!("{} (at {})", asked.name, asked.pointer),
            )
    };
    match fault.kind() {
        Kind::Referencing(Unresolved::PointerToNowhere { pointer }) => format!(
            "{} refers to {}, which does not exist",
            asker(pointer),
            quoted(pointer)
        ),
        Kind::Referencing(Unresolved::NoSuchAnchor { anchor }) => format!(
            "{} refers to the anchor {}, which does not exist",
            asker(anchor),
            quoted(anchor)
        ),
        Kind::Referencing(other) => format!(
            "the schema {} has an unresolved reference: {}",
            quoted(name),
            shortened(&other.to_string(), 200)
        ),
        Kind::Format { format } if format == "regex" => format!(
            "the schema {} has an unusable regular expression at {}: {}",
            quoted(name),
            rule(fault, documents).0,
            shown(fault.instance())
        ),
        _ => format!(
            "the schema {} is not a valid JSON Schema: at {}: {}",
            quoted(name),
            rule(fault, documents).0,
            sentence(fault)
        ),
    }
}

/// Whether a rule forbids all fields that no other rule names. Where there is no other, the
/// fault does not say which fields those are: all of them.
fn forbids_fields(fault: &Fault<'_>) -> bool {
    let rule = fault.schema_path().as_str();
    rule.ends_with("/additionalProperties") || rule.ends_with("/unevaluatedProperties")
}

fn unknown<'n>(names: impl ExactSizeIterator<Item = &'n String>) -> String {
    let many = if names.len() == 1 { "" } else { "s" };
    format!(
        "unknown field{many} {}",
        list(names.map(|name| quoted(name)))
    )
}

/// Where the rule stands that a fault broke; and the sentence for a match that was given up,
/// because the fault itself does not know its expression.
fn rule(fault: &Fault<'_>, documents: &[Document]) -> (String, Option<String>) {
    let pointer = fault.schema_path().as_str();
    let absolute = fault.absolute_keyword_location().map(Place::as_str);
    let base = absolute.map(|uri| uri.split('#').next().unwrap_or(uri));
    let home = match base {
        None => documents.first(),
        Some(base) => documents
            .iter()
            .find(|each| each.id == base || each.address == base),
    };
    let path = match (home, documents.first(), absolute) {
        (Some(home), Some(first), _) if home.name == first.name => format!("#{pointer}"),
        (Some(home), ..) => format!("{}#{pointer}", home.name),
        (None, _, Some(absolute)) => absolute.to_owned(),
        (None, ..) => format!("#{pointer}"),
    };
    if !matches!(
        fault.kind(),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. }
    ) {
        return (path, None);
    }
    let found = home.and_then(|home| home.value.pointer(pointer));
    let pattern = match found {
        Some(Value::String(pattern)) => quoted(pattern),
        Some(Value::Object(patterns)) if pointer.ends_with("/patternProperties") => patterns
            .keys()
            .map(|pattern| quoted(pattern))
            .collect::<Vec<_>>()
            .join(" or "),
        _ => pointer
            .rsplit('/')
            .next()
            .map(|last| quoted(&unescaped(last)))
            .unwrap_or_default(),
    };
    let sentence = format!(
        "the pattern {pattern} takes too long to match {}",
        shown(fault.instance())
    );
    (path, Some(sentence))
}

/// Orders pointers by their steps, and indices by their numbers.
fn by_place(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('/'), b.split('/'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (Some(a), Some(b)) => match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                _ => a.cmp(b),
            },
            (a, b) => a.cmp(&b),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// One fault as a sentence about its value.
pub(super) fn sentence(fault: &Fault<'_>) -> String {
    sentence_within(fault, LEVELS)
}

pub(super) fn sentence_within(fault: &Fault<'_>, levels: usize) -> String {
    let value: &Value = fault.instance();
    let found = || shown(value);
    match fault.kind() {
        Kind::Required { property } => {
            format!("missing required field {}", bare(property))
        }
        Kind::Type { kind } => {
            let expected = match kind {
                Types::Single(kind) => kind.to_string(),
                Types::Multiple(kinds) => {
                    let kinds: Vec<String> = kinds.iter().map(|kind| kind.to_string()).collect();
                    kinds.join(" or ")
                }
            };
            format!("expected {expected}, found {}", with_type(value))
        }
        Kind::Enum { options } => match &**options {
            Value::Array(options) => {
                format!(
                    "must be one of {}, found {}",
                    list(options.iter().map(shown)),
                    found()
                )
            }
            _ => format!("{} is not one of the allowed values", found()),
        },
        Kind::Constant { expected_value } => {
            format!("must be {}, found {}", shown(expected_value), found())
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            unknown(unexpected.iter())
        }
        Kind::UnevaluatedItems { unexpected } => {
            format!(
                "has items that no rule allows: {}",
                list(unexpected.iter().map(|item| shortened(item, SHOWN)))
            )
        }
        Kind::AdditionalItems { limit } => at_most(value, limit),
        Kind::MaxItems { limit } | Kind::MaxProperties { limit } | Kind::MaxLength { limit } => {
            at_most(value, limit)
        }
        Kind::MinItems { limit } | Kind::MinProperties { limit } | Kind::MinLength { limit } => {
            let needed = some(value, limit);
            format!("at least {needed} needed, has {}", many(value))
        }
        Kind::Minimum { limit } => must_be("at least", limit, value),
        Kind::Maximum { limit } => must_be("at most", limit, value),
        Kind::ExclusiveMinimum { limit } => must_be("more than", limit, value),
        Kind::ExclusiveMaximum { limit } => must_be("less than", limit, value),
        Kind::MultipleOf { multiple_of } => {
            format!(
                "must be a multiple of {}, found {}",
                shortened(&multiple_of.to_string(), SHOWN),
                found()
            )
        }
        Kind::Pattern { pattern } => {
            format!("{} does not match the pattern {}", found(), quoted(pattern))
        }
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            format!("a pattern takes too long to match {}", found())
        }
        Kind::Format { format } => {
            format!("{} is not a valid {}", found(), shortened(format, SHOWN))
        }
        Kind::ContentEncoding {
            content_encoding: what,
        }
        | Kind::ContentMediaType {
            content_media_type: what,
        } => {
            format!("{} is not valid {}", found(), shortened(what, SHOWN))
        }
        Kind::FromUtf8 { .. } => format!("{} does not hold UTF-8 text", found()),
        Kind::Contains => "has too few or too many items that match `contains`".to_owned(),
        Kind::UniqueItems => "has two equal items".to_owned(),
        Kind::FalseSchema if forbids_fields(fault) => "no fields are allowed here".to_owned(),
        Kind::FalseSchema => "is not allowed here".to_owned(),
        Kind::Not { .. } => format!("{} matches what `not` forbids", found()),
        Kind::PropertyNames { error } => {
            format!(
                "has a field with a name that is not allowed: {}",
                sentence(error)
            )
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => alternatives::none_fits(
            fault.instance_path().as_str(),
            value,
            named(context),
            levels,
        ),
        Kind::OneOfMultipleValid { context } => alternatives::several(named(context)),
        Kind::Custom { message, .. } => shortened(message, SHOWN_LIST),
        Kind::Referencing(error) => shortened(&error.to_string(), SHOWN_LIST),
    }
}

fn at_most(value: &Value, limit: impl std::fmt::Display) -> String {
    format!(
        "at most {} allowed, has {}",
        some(value, limit),
        many(value)
    )
}

fn must_be(how: &str, limit: &Value, value: &Value) -> String {
    format!("must be {how} {}, found {}", shown(limit), shown(value))
}
