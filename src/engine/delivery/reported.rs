//! What a dropped report names as its artifacts: measured as an attempt's files are, and registered
//! as the report's own.
//!
//! A report is finished work. Where one of its files is missing or can't be measured, the work counts
//! all the same, and a warning names the file. Where somebody goes on with the report, its artifacts
//! are registered before that attempt begins; otherwise with the outcome, as an attempt's are.

use std::io;

use serde_json::{Value, json};

use super::{Allowance, Delivery, Undelivered};
use crate::engine::effects::registered;
use crate::engine::world::World;
use crate::policy::judge::{Compliance, Delivered};
use crate::policy::rules::bounded;
use crate::protocol::dialect::Dialect;
use crate::protocol::field::FieldError;
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::protocol::view::View;

/// The most bytes that are read of one report's artifacts: a thread that acts reads them.
const MOST_READ: u64 = 1 << 30;

/// Measures the artifacts of a dropped report that nobody goes on with, for its outcome.
pub fn delivered(world: &World, record: &mut Record, request: &Request) -> Delivered {
    let (artifacts, is_all) = measured(world, record, request).unwrap_or_else(|error| {
        warn(record, vec![FieldError::new("artifacts", error)]);
        (Vec::new(), false)
    });
    let has_some = !artifacts.is_empty();
    Delivered {
        artifacts,
        compliance: has_some.then_some(Compliance::Unchecked),
        checked: has_some && is_all,
        ..Delivered::default()
    }
}

/// Registers the artifacts of a dropped report before the first attempt of the agent that goes on.
pub fn register(world: &World, record: &mut Record, request: &Request) -> io::Result<()> {
    if !record.meta.attempts.is_empty() {
        return Ok(());
    }
    let (artifacts, _) = measured(world, record, request)?;
    let now = world.now().wall;
    let entries = artifacts
        .iter()
        .filter_map(|item| registered(item, request.id.as_str(), now))
        .collect::<Vec<_>>();
    world.artifacts.register(&entries)
}

/// The artifacts of a dropped report, as `output.artifacts` shows them, and whether they are all that
/// it names. What can't be measured is warned about.
fn measured(
    world: &World,
    record: &mut Record,
    request: &Request,
) -> io::Result<(Vec<Value>, bool)> {
    if View::of_record(record).dialect != Dialect::Report {
        return Ok((Vec::new(), true));
    }
    let config = world.config();
    let mut delivery = Delivery {
        world,
        config: &config,
        request,
        schema: None,
        attempt: 0,
        given: None,
        allowance: Allowance {
            most: MOST_READ,
            go_on: &|| true,
        },
        oversized: false,
        problems: Vec::new(),
        artifacts: Vec::new(),
        seen: Vec::new(),
    };
    match delivery.listed(Some(&record.doc)) {
        Ok(()) | Err(Undelivered::Stopped | Undelivered::Wrong(_)) => {}
        Err(Undelivered::Trouble(error)) => return Err(error),
        Err(Undelivered::Large) => {
            let why = format!(
                "the artifacts have more than {MOST_READ} bytes: those after the first {} are not \
                 registered",
                delivery.artifacts.len()
            );
            delivery.problem("artifacts", why);
        }
    }
    let Delivery {
        problems,
        artifacts,
        ..
    } = delivery;
    let is_all = problems.is_empty();
    warn(record, problems);
    Ok((artifacts, is_all))
}

/// Adds warnings to the acknowledgment, about entries that it does not warn about already.
fn warn(record: &mut Record, problems: Vec<FieldError>) {
    let problems = bounded(problems);
    let Some(Value::Object(said)) = record.doc.get_mut("acknowledgment") else {
        return;
    };
    let warnings = said.entry("warnings").or_insert_with(|| json!([]));
    if let Some(warnings) = warnings.as_array_mut() {
        for problem in problems {
            let entry = problem.field.trim_end_matches(".path");
            let is_about_it = |it: &Value| it.as_str().is_some_and(|it| it.starts_with(entry));
            if !warnings.iter().any(is_about_it) {
                warnings.push(format!("{problem}; not registered").into());
            }
        }
    }
    if warnings.as_array().is_some_and(Vec::is_empty) {
        said.shift_remove("warnings");
    }
}
