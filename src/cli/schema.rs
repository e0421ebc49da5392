//! `handoffd schema`: the published formats, as JSON Schema.

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use crate::cli::{Failed, Global, Outcome, out};
use crate::config;
use crate::protocol::published;

#[derive(Debug, Args)]
#[command(
    after_help = "Without a name, lists the formats. Needs no root.\n\nFor example:\n  \
                        handoffd schema request > request.schema.json"
)]
pub struct Options {
    /// The format
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(names()))]
    name: Option<String>,
}

pub fn schema(global: &Global, options: &Options) -> Outcome {
    let formats = published::NAMES
        .into_iter()
        .chain([("config", config::published::ABOUT)]);
    let text = match &options.name {
        Some(name) => pretty(&named(name)?)?,
        None if global.json => {
            let formats = formats.map(|(name, about)| json!({"name": name, "about": about}));
            format!("{}\n", formats.collect::<Value>())
        }
        None => {
            let lines: Vec<String> = formats
                .map(|(name, about)| format!("{name:<8} {about}\n"))
                .collect();
            lines.concat()
        }
    };
    out::put(text)?;
    Ok(0)
}

fn names() -> impl Iterator<Item = &'static str> {
    let documents = published::NAMES.iter().map(|(name, _)| *name);
    documents.chain(["config"])
}

fn named(name: &str) -> Result<Value, Failed> {
    let known = match name {
        "config" => Some(config::published::schema()),
        name => published::schema(name),
    };
    known.ok_or_else(|| Failed::usage("USAGE", anyhow::anyhow!("unknown format {name:?}")))
}

fn pretty(schema: &Value) -> Result<String, Failed> {
    Ok(format!("{}\n", serde_json::to_string_pretty(schema)?))
}
