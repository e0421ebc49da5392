//! `handoffd export`: one handoff as a package, for people, archives and other tools.

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::cli::{Failed, Global, Outcome, complete, find, out};
use crate::inspect::summary::Place;
use crate::protocol::export::as_package;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::yaml_write;

#[derive(Debug, Args)]
pub struct Options {
    #[arg(value_name = "ID", add = complete::ids())]
    id: String,
    /// The format [default: yaml, or json with --json]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

pub fn export(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    let place = find(&layout, &options.id)?;
    let package = Value::Object(as_package(&record(&place)?));
    let text = match options.format {
        Some(Format::Json) => pretty(&package)?,
        None if global.json => pretty(&package)?,
        _ => yaml_write::write(&package),
    };
    out::put(text)?;
    Ok(0)
}

fn pretty(package: &Value) -> Result<String, Failed> {
    Ok(serde_json::to_string_pretty(package)? + "\n")
}

/// The record there. A submission, or a file that someone else put there, is seen as it would
/// be if it were admitted.
fn record(place: &Place) -> Result<Record, Failed> {
    let Some((doc, record)) = place.read() else {
        let (id, state) = (&place.id, place.state);
        let error = anyhow::anyhow!("{id} in {state} is not a complete document");
        return Err(Failed::thing("NOT_A_DOCUMENT", error));
    };
    if place.state == State::Pending || !doc.contains_key("handoffd") {
        return Ok(Record::admit(doc, &place.id, None));
    }
    match record {
        Some(record) => Ok(record),
        // Says why it can't be read, such as a newer format.
        None => Record::from_document(doc).map_err(|error| {
            let error = anyhow::anyhow!("{} {error}", place.path.display());
            Failed::thing("NOT_A_RECORD", error)
        }),
    }
}
