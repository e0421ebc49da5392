//! Receiving: looking up on disk what [`crate::policy::receive`] judges.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::config::{Config, MissingSchema};
use crate::engine::intake::dependency_states;
use crate::policy::follow::{as_written, work_in};
use crate::policy::intake::Needs;
use crate::policy::receive::{
    Findings, Found, Receipt, Reference, Rules, SchemaCheck, receive, references,
};
use crate::protocol::dialect::Dialect;
use crate::protocol::field::FieldError;
use crate::protocol::links::Links;
use crate::protocol::request::Request;
use crate::protocol::shape::join;
use crate::protocol::view::View;
use crate::spool::layout::Layout;
use crate::store::artifacts::{Artifacts, Bounds, Presence, RelPath, Unread};
use crate::store::schemas::{Checked, Schemas};

/// What a receiver looks things up in: the daemon's own, or a command's that asks what it would
/// say.
pub struct Desk<'a> {
    pub layout: &'a Layout,
    pub config: Arc<Config>,
    pub schemas: &'a Schemas,
    pub artifacts: &'a Artifacts,
}

/// How what a request needs stands.
pub fn needs(desk: &Desk<'_>, request: &Request) -> Needs {
    Needs {
        dependencies: dependency_states(desk.layout, request),
        missing_artifacts: missing_artifacts(desk, &request.requires_artifacts),
    }
}

/// Of these artifacts, by id or path, those that are not there.
pub fn missing_artifacts(desk: &Desk<'_>, required: &[String]) -> Vec<String> {
    let is_there = |named: &String| {
        let path = path_of(desk, named);
        path.is_ok_and(|path| is_present(desk, &path))
    };
    let missing = required.iter().filter(|named| !is_there(named));
    missing.cloned().collect()
}

fn is_present(desk: &Desk<'_>, path: &RelPath) -> bool {
    matches!(
        desk.artifacts.presence(path),
        Presence::File { .. } | Presence::Folder
    )
}

/// The path of an artifact that is named by its id or its path.
fn path_of(desk: &Desk<'_>, named: &str) -> Result<RelPath, String> {
    match desk.artifacts.find(named) {
        Ok(Some(entry)) => RelPath::parse(&entry.path),
        _ => RelPath::parse(named.trim_end_matches('/')),
    }
}

/// Receives a handoff. `links` is only asked for where a schema is to be held against its input.
/// What it refers to is only looked for where it is about to run: before
/// that, what it waits for may still produce it.
pub fn receipt(
    desk: &Desk<'_>,
    view: &View<'_>,
    links: impl FnOnce() -> Links,
    request: &Request,
    runs: bool,
) -> Receipt {
    let config = &desk.config;
    let links = LazyCell::new(links);
    let mut findings = Findings {
        input: input_check(desk, view, || Links::clone(&links), request, config),
        output: output_schema(desk, request, config),
        references: Vec::new(),
    };
    for (at, named) in request.requires_artifacts.iter().enumerate() {
        if let Err(why) = path_of(desk, named) {
            findings.references.push(Reference {
                field: join(
                    view.holder("requires_artifacts").1,
                    &format!("requires_artifacts[{at}]"),
                ),
                path: named.clone(),
                found: Found::Refused(why),
            });
        }
    }
    if runs {
        for (field, path) in references(view) {
            let found = look_up(desk, view, &path);
            findings.references.push(Reference { field, path, found });
        }
    }
    // The daemon's own returns have the words of a result or of a person: an answer is never refused
    // for its style.
    let is_own = || view.dialect == Dialect::Package && links.mark.is_some();
    let rules = Rules {
        strict: config.intake.strict && !is_own(),
        schema_may_be_missing: config.intake.missing_schema == MissingSchema::Warn,
    };
    receive(view, &findings, rules)
}

fn look_up(desk: &Desk<'_>, view: &View<'_>, path: &str) -> Found {
    let root = desk.layout.root();
    // A result may name its files by their whole path, and so may a report.
    let path = match Path::new(path).strip_prefix(root) {
        Ok(inside) if view.dialect == Dialect::Report => inside.to_str().unwrap_or(path),
        _ => path,
    };
    match RelPath::parse(path.trim_end_matches('/')) {
        // An address is no path that could leave the root.
        Err(_) if view.dialect == Dialect::Report && path.contains("://") => Found::There,
        Err(why) => Found::Refused(why),
        Ok(path) => match desk.artifacts.presence(&path) {
            Presence::Missing => Found::Missing,
            Presence::Other(what) => Found::Refused(format!("is {what}")),
            Presence::File { .. } | Presence::Folder => Found::There,
        },
    }
}

/// The most bytes that are read of a handoff's references before its attempt starts.
const MOST_COMPARED: u64 = 1 << 30;

/// What a handoff depends on and that is no longer what was registered, in sentences.
pub fn changed_artifacts(desk: &Desk<'_>, view: &View<'_>, request: &Request) -> Vec<String> {
    // A report brings its artifacts, whatever stood there before.
    let is_report = view.dialect == Dialect::Report;
    let named = references(view).into_iter().filter(|_| !is_report);
    let named = named.map(|(_, path)| path);
    let required = request.requires_artifacts.iter().cloned();
    let mut changed = Vec::new();
    let mut unread = MOST_COMPARED;
    for named in required.chain(named) {
        let Ok(Some(entry)) = desk.artifacts.find(named.trim_end_matches('/')) else {
            continue;
        };
        let Ok(path) = RelPath::parse(&entry.path) else {
            continue;
        };
        let bounds = Bounds {
            most: unread,
            ..Bounds::NONE
        };
        match desk.artifacts.measure_within(&path, bounds) {
            Ok(measured) => {
                unread -= measured.size_bytes;
                if measured.sha256 != entry.sha256 {
                    changed.push(format!(
                        "artifact {named} has changed since it was registered: sha256 {} then, {} \
                         now",
                        entry.sha256, measured.sha256
                    ));
                }
            }
            Err(Unread::TooLarge { size_bytes }) if size_bytes != entry.size_bytes => {
                changed.push(format!(
                    "artifact {named} has changed since it was registered: {} bytes then, \
                     {size_bytes} now",
                    entry.size_bytes
                ));
            }
            Err(Unread::TooLarge { size_bytes }) => changed.push(format!(
                "artifact {named} was not checked against its registered sha256: its \
                 {size_bytes} bytes take too long to read"
            )),
            Err(_) => {}
        }
    }
    changed
}

fn input_check(
    desk: &Desk<'_>,
    view: &View<'_>,
    links: impl FnOnce() -> Links,
    request: &Request,
    config: &Config,
) -> SchemaCheck {
    let specialist = config.specialist(&request.agent);
    let own = specialist.and_then(|specialist| specialist.input_schema.as_deref());
    let Some(schema) = request.input_schema.as_deref().or(own) else {
        return SchemaCheck::Unchecked;
    };
    let data = view.inner("input", "data");
    let links = links();
    let work = data.and_then(|data| work_in(data, &links));
    let is_request = view.dialect == Dialect::Request;
    // What the daemon itself laid into a package is no input.
    let is_empty = !is_request && work.as_ref().is_some_and(Map::is_empty);
    let data = data.filter(|_| !is_empty);
    // A package or a report without `input` is not what its agent's schema is about.
    if request.input_schema.is_none() && !is_request && data.is_none() {
        return SchemaCheck::Unchecked;
    }
    let document = match (work, data) {
        (Some(work), Some(_)) => {
            let written = Value::Object(as_written(work.clone(), &links));
            if matches!(desk.schemas.check(schema, &written), Checked::Valid) {
                return SchemaCheck::Valid;
            }
            Cow::Owned(Value::Object(work))
        }
        (None, Some(data)) => Cow::Borrowed(data),
        (_, None) if is_request => Cow::Owned(Value::Null),
        (_, None) => Cow::Owned(work_of(view)),
    };
    match desk.schemas.check(schema, &document) {
        Checked::Valid => SchemaCheck::Valid,
        Checked::Missing(why) => SchemaCheck::NoSchema(why),
        Checked::Broken(why) => SchemaCheck::BadSchema(why),
        Checked::Invalid(errors) => SchemaCheck::Invalid(named_whole(errors, "input.data")),
    }
}

/// What a package or a report gives to do, as one document.
fn work_of(view: &View<'_>) -> Value {
    let mut work = Map::new();
    for key in ["context", "expectations"] {
        if let Some(value) = view.handoff().and_then(|handoff| handoff.get(key)) {
            work.insert(key.to_owned(), value.clone());
        }
    }
    Value::Object(work)
}

/// An error about the whole document gets that document's name.
pub fn named_whole(mut errors: Vec<FieldError>, whole: &str) -> Vec<FieldError> {
    for error in errors.iter_mut().filter(|error| error.field.is_empty()) {
        whole.clone_into(&mut error.field);
    }
    errors
}

/// An output schema that can't be used is better known before an agent works for an hour.
fn output_schema(desk: &Desk<'_>, request: &Request, config: &Config) -> SchemaCheck {
    let specialist = config.specialist(&request.agent);
    let own = specialist.and_then(|specialist| specialist.output_schema.as_deref());
    let Some(schema) = request.output.schema.as_deref().or(own) else {
        return SchemaCheck::Unchecked;
    };
    match desk.schemas.check(schema, &Value::Null) {
        Checked::Missing(why) => SchemaCheck::NoSchema(why),
        Checked::Broken(why) => SchemaCheck::BadSchema(why),
        Checked::Valid | Checked::Invalid(_) => SchemaCheck::Unchecked,
    }
}
