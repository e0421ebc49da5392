//! Receiving: what a careful receiver would check of a handoff before beginning, and the
//! acknowledgment that says so.
//!
//! What was found on disk is passed in; here it is only judged.

use serde_json::{Map, Value, json};

use crate::policy::intake::{MOST_ACTIONS, left_out};
use crate::policy::judge::Failure;
use crate::policy::misnamed::misnamed;
use crate::policy::next::refusal;
use crate::policy::reports::{dropped_findings, listed, telling, vague};
use crate::policy::rules::{
    self, ARTIFACT_EXISTS, ARTIFACT_PATH, DELIVERABLE, Finding, HANDOFF_TYPE, Kind, PACKAGE_SUMMARY,
};
use crate::protocol::dialect::Dialect;
use crate::protocol::error::ErrorCode;
use crate::protocol::field::{FieldError, present};
use crate::protocol::shape::join;
use crate::protocol::view::View;

/// What came of holding a document against its schema.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SchemaCheck {
    #[default]
    Unchecked,
    Valid,
    Invalid(Vec<FieldError>),
    /// A schema is not there: which, in a sentence.
    NoSchema(String),
    /// The schema itself is wrong.
    BadSchema(String),
}

/// An artifact that the handoff refers to, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub field: String,
    /// What stands there as its path.
    pub path: String,
    pub found: Found,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    There,
    Missing,
    /// It leads elsewhere, or can't be read.
    Refused(String),
    /// There, but its content is not what was registered.
    Changed(String),
}

/// All that was found on disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    pub input: SchemaCheck,
    /// Only whether the schema for the output can be used.
    pub output: SchemaCheck,
    pub references: Vec<Reference>,
}

/// What the configuration asks of a receiver.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// What leaves the receiver guessing counts as an error.
    pub strict: bool,
    /// A schema that is not there is only worth a warning.
    pub schema_may_be_missing: bool,
}

/// What a receiver has to say.
#[derive(Debug, Clone, PartialEq)]
pub struct Receipt {
    pub acknowledgment: Value,
    pub warnings: Vec<FieldError>,
    pub refusal: Option<Failure>,
}

/// The artifacts that a package or a report refers to, with the field that names each. One without
/// a path is left out.
pub fn references(view: &View<'_>) -> Vec<(String, String)> {
    let (listed, list) = artifacts(view);
    listed
        .iter()
        .enumerate()
        .filter_map(|(at, artifact)| {
            let path = path_of(artifact)?;
            let field = match artifact {
                Value::String(_) => format!("{list}[{at}]"),
                _ => format!("{list}[{at}].path"),
            };
            Some((field, path.trim_start_matches("./").to_owned()))
        })
        .collect()
}

/// The artifacts that a document lists, and the path of that list.
fn artifacts<'d>(view: &View<'d>) -> (&'d [Value], &'static str) {
    let (listed, list) = match view.dialect {
        Dialect::Package => (view.context("artifacts"), "handoff.context.artifacts"),
        Dialect::Report => (present(view.doc, "artifacts"), "artifacts"),
        _ => (None, ""),
    };
    let listed = listed.and_then(Value::as_array);
    (listed.map_or(&[], Vec::as_slice), list)
}

/// Artifacts without a path.
fn without_path(view: &View<'_>) -> Vec<Finding> {
    let (listed, list) = artifacts(view);
    let nameless = listed.iter().enumerate();
    nameless
        .filter(|(_, artifact)| path_of(artifact).is_none())
        .map(|(at, _)| {
            let field = format!("{list}[{at}].path");
            let why = "missing: without a path the file can't be found";
            Finding::new(&ARTIFACT_PATH, field, why)
        })
        .collect()
}

fn path_of(artifact: &Value) -> Option<&str> {
    let path = artifact
        .as_str()
        .or_else(|| artifact.get("path").and_then(Value::as_str));
    path.filter(|path| !path.trim().is_empty())
}

/// Judges a handoff as its receiver would.
pub fn receive(view: &View<'_>, findings: &Findings, rules: Rules) -> Receipt {
    let mut errors = Vec::new();
    let mut missing = Vec::new();
    let mut warnings = Vec::new();
    for (check, field) in [
        (&findings.input, "input"),
        (&findings.output, "expected_output"),
    ] {
        let field = join(view.holder(field).1, &format!("{field}.schema"));
        match check {
            SchemaCheck::Unchecked | SchemaCheck::Valid => {}
            SchemaCheck::Invalid(wrong) => errors.extend(wrong.iter().cloned()),
            SchemaCheck::NoSchema(why) if rules.schema_may_be_missing => {
                warnings.push(FieldError::new(field, format!("{why}; not checked")));
            }
            SchemaCheck::NoSchema(why) => missing.push(FieldError::new(field, why)),
            SchemaCheck::BadSchema(why) => errors.push(FieldError::new(field, why)),
        }
    }
    for reference in &findings.references {
        let error = |why: &str| FieldError::new(&reference.field, why);
        let path = &reference.path;
        match &reference.found {
            Found::There => {}
            Found::Missing if view.dialect == Dialect::Report => {
                let why = format!("artifact {path} does not exist");
                let error = Finding::new(&ARTIFACT_EXISTS, &reference.field, why).error;
                // The work that it reports is done all the same.
                if rules.strict {
                    missing.push(error);
                } else {
                    warnings.push(error);
                }
            }
            Found::Missing => missing.push(error(&format!("artifact {path} does not exist"))),
            Found::Refused(why) => errors.push(error(&format!("artifact {path} {why}"))),
            Found::Changed(why) => warnings.push(error(&format!("artifact {path} {why}"))),
        }
    }
    let sorted = match view.dialect {
        Dialect::Package => rules::sort(package_findings(view), Kind::Package, rules.strict),
        // The rules that a report must keep were checked when it was read.
        Dialect::Report => {
            let mut found = dropped_findings(view.doc, view.status);
            found.extend(without_path(view));
            rules::sort(found, Kind::Report, rules.strict)
        }
        _ => rules::Sorted::default(),
    };
    errors.extend(sorted.errors);
    warnings.extend(sorted.warnings);
    let slips = misnamed(view);
    let only_slips = errors.is_empty();
    if rules.strict {
        errors.extend(slips);
    } else {
        warnings.extend(slips);
    }
    let warnings = rules::bounded(warnings);
    let refusal = refused(view, &errors, &missing, only_slips);
    let blockers: Vec<FieldError> = errors.into_iter().chain(missing).collect();
    Receipt {
        acknowledgment: acknowledge(view, &blockers, &warnings),
        warnings,
        refusal,
    }
}

/// What a package breaks of its rules.
fn package_findings(view: &View<'_>) -> Vec<Finding> {
    const SUMMARY: &str = "handoff.context.summary";
    const TYPES: [&str; 4] = ["sequential", "delegation", "escalation", "return"];
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("").to_owned();
    let mut found = Vec::new();
    let summary = text(view.context("summary"));
    if summary.trim().is_empty() {
        let why = "missing: the next agent needs to know what was done";
        found.push(Finding::new(&PACKAGE_SUMMARY, SUMMARY, why));
    } else {
        found.extend(telling(SUMMARY, &summary));
    }
    found.extend(without_path(view));
    let listed = view.context("artifacts");
    found.extend(rules::odd_types(listed, "handoff.context.artifacts"));
    found.extend(rules::odd_hashes(listed, "handoff.context.artifacts"));
    let questions = view.context("open_questions");
    let path = "handoff.context.open_questions";
    found.extend(rules::odd_priorities(questions, path));
    if let Some(kind) = view.get("type").filter(|kind| !kind.is_null())
        && !kind.as_str().is_some_and(|kind| TYPES.contains(&kind))
    {
        let why = format!("{kind} is not one of {}", TYPES.join(", "));
        let field = join(view.holder("type").1, "type");
        found.push(Finding::new(&HANDOFF_TYPE, field, why));
    }
    let Some(expectations) = view.handoff().and_then(|it| present(it, "expectations")) else {
        return found;
    };
    if text(expectations.get("deliverable")).trim().is_empty() {
        let why = "missing: the next agent needs to know what to deliver";
        let field = "handoff.expectations.deliverable";
        found.push(Finding::new(&DELIVERABLE, field, why));
    }
    found.extend(vague(Some(expectations), "handoff.expectations"));
    found
}

fn refused(
    view: &View<'_>,
    errors: &[FieldError],
    missing: &[FieldError],
    only_slips: bool,
) -> Option<Failure> {
    let of_schema = |error: &FieldError| error.field.ends_with(".schema");
    let (code, intro) = if errors.is_empty() {
        let intro = "something it needs is missing";
        (ErrorCode::DependencyMissing, intro)
    } else {
        let intro = match view.dialect {
            _ if only_slips => "unknown fields (intake.strict is on)",
            _ if errors.iter().all(of_schema) => "its schema is unusable",
            Dialect::Package => "incomplete package",
            Dialect::Report => "incomplete report",
            _ => "the input does not match its schema",
        };
        (ErrorCode::SchemaValidationFailed, intro)
    };
    let fields: Vec<FieldError> = errors.iter().chain(missing).cloned().collect();
    if fields.is_empty() {
        return None;
    }
    let list: Vec<String> = fields.iter().take(20).map(ToString::to_string).collect();
    let more = match fields.len().saturating_sub(20) {
        0 => String::new(),
        more => format!("; and {more} more, in validation.errors"),
    };
    let mend = errors.iter().map(|error| format!("Fix {error}"));
    let provide = missing
        .iter()
        .map(|error| format!("Provide what is missing: {error}"));
    let actions = mend
        .chain(provide)
        .take(MOST_ACTIONS)
        .chain(left_out(errors.len() + missing.len()))
        .chain(["Then move the file back to handoffs/pending/".to_owned()])
        .collect();
    let mut refusal = refusal(code, format!("{intro}: {}{more}", list.join("; ")), actions);
    refusal.fields = fields;
    Some(refusal)
}

/// What a receiver says of a document that breaks the rules of its kind.
pub fn not_understood(view: &View<'_>, wrong: &[FieldError]) -> Value {
    acknowledge(view, wrong, &[])
}

fn acknowledge(view: &View<'_>, blockers: &[FieldError], warnings: &[FieldError]) -> Value {
    let mut it = Map::new();
    it.insert("received".to_owned(), true.into());
    if let Some(from) = view.source() {
        it.insert("from".to_owned(), from.into());
    }
    if blockers.is_empty() {
        it.insert(
            "understood".to_owned(),
            json!({"task": task(view), "constraints": constraints(view)}),
        );
        it.insert("questions".to_owned(), questions(view));
        it.insert("starting".to_owned(), true.into());
    } else {
        it.insert("understood".to_owned(), "partial".into());
        let list: Vec<String> = blockers.iter().map(ToString::to_string).collect();
        it.insert("blockers".to_owned(), list.into());
        it.insert("action".to_owned(), "request_clarification".into());
    }
    if !warnings.is_empty() {
        let list: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        it.insert("warnings".to_owned(), list.into());
    }
    Value::Object(it)
}

/// The most bytes of open questions that an acknowledgment repeats.
const MOST_ASKED: usize = 4 * 1024;

/// The questions that the handoff came with, as they are. Of very many it has the first.
fn questions(view: &View<'_>) -> Value {
    const KEY: &str = "open_questions";
    let (asked, place) = match view.dialect {
        Dialect::Package => (view.context(KEY), "handoff.context"),
        Dialect::Report => match view.handoff().and_then(|it| present(it, KEY)) {
            Some(inside) => (Some(inside), "handoff"),
            None => (present(view.doc, KEY), ""),
        },
        // What a chain has left open goes along in its input.
        Dialect::Request => {
            let data = view.inner("input", "data").and_then(Value::as_object);
            let asked = data.and_then(|data| present(data, KEY));
            (asked.filter(|asked| asked.is_array()), "input.data")
        }
        _ => (None, ""),
    };
    let asked = match asked {
        Some(Value::Array(questions)) => questions.as_slice(),
        Some(question) => std::slice::from_ref(question),
        None => &[],
    };
    let mut room = MOST_ASKED;
    let fits = |question: &&Value| {
        let size = question.to_string().len();
        let fits = size <= room;
        room = room.saturating_sub(size);
        fits
    };
    let mut questions: Vec<Value> = asked.iter().take_while(fits).cloned().collect();
    let left = asked.len() - questions.len();
    if left > 0 {
        questions.push(format!("{left} more in {}", join(place, KEY)).into());
    }
    Value::Array(questions)
}

/// What is to be done, in the words of whoever asked.
fn task(view: &View<'_>) -> String {
    let expectations = view.handoff().and_then(|it| it.get("expectations"));
    let deliverable = expectations.and_then(|it| it.get("deliverable"));
    let data = view.inner("input", "data");
    let told = [
        "task",
        "summary",
        "title",
        "description",
        "prompt",
        "instructions",
    ];
    let in_data = || told.iter().find_map(|key| data?.get(key));
    let context = || match view.dialect {
        Dialect::Report => view
            .handoff()
            .and_then(|it| it.get("context"))
            .or_else(|| view.doc.get("summary")),
        _ => view.context("summary"),
    };
    let text = deliverable
        .or_else(context)
        .or_else(in_data)
        .or(data)
        .and_then(Value::as_str)
        .filter(|text| !text.trim().is_empty());
    if let Some(text) = text {
        return bounded(text);
    }
    let wanted = view.text("expected_output", "artifact_type");
    let fields: Vec<&str> = data
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::keys)
        .take(8)
        .map(String::as_str)
        .collect();
    let mut task = match wanted {
        Some(wanted) => format!("produce {}", bounded(wanted)),
        None if data.is_some() => "do what input.data asks for".to_owned(),
        None => "run without input".to_owned(),
    };
    if !fields.is_empty() {
        task = bounded(&format!("{task}, from {}", fields.join(", ")));
    }
    task
}

fn constraints(view: &View<'_>) -> Vec<String> {
    let expectations = view.handoff().and_then(|it| it.get("expectations"));
    listed(expectations.and_then(|it| it.get("constraints")))
        .into_iter()
        .map(bounded)
        .collect()
}

fn bounded(text: &str) -> String {
    const MOST: usize = 500;
    let text = text.trim();
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
#[path = "receive_tests.rs"]
mod tests;
