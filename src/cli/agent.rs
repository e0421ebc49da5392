//! `handoffd agent`: runs a coding agent as a specialist. The record comes on stdin, the result goes
//! to stdout, and what the agent does goes to stderr, one readable line for each event.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use handoffd_agents::{Settings, run};
use serde_json::{Map, Value};

use crate::cli::{Failed, Outcome, out};
use crate::protocol::result::Output;

#[derive(Debug, Args)]
#[command(
    after_help = "Known agents: claude, codex, gemini, opencode, generic (the first ARG is then the command), \
                  and any that agents/NAME.toml below the root describes.\n\nIn handoffd.toml, `agent = \
                  \"claude\"` in a specialist is short for this command. By hand:\n  handoffd agent claude -- \
                  --model opus < record.json"
)]
pub struct Options {
    /// Which agent
    #[arg(value_name = "NAME")]
    name: String,
    /// The program, if it is not the agent's usual one
    #[arg(long, value_name = "PATH")]
    program: Option<String>,
    /// A template for the prompt, relative to the root
    #[arg(long, value_name = "FILE")]
    prompt: Option<PathBuf>,
    /// Ask a human to look if the agent leaves no report
    #[arg(long)]
    require_report: bool,
    /// The most that one attempt may cost, if the agent supports a limit
    #[arg(long, value_name = "USD")]
    max_usd: Option<f64>,
    /// Flags for the agent
    #[arg(last = true, value_name = "ARG")]
    args: Vec<String>,
}

pub fn agent(options: &Options) -> Outcome {
    if options
        .max_usd
        .is_some_and(|most| !(most > 0.0 && most.is_finite()))
    {
        let error = anyhow::anyhow!("--max-usd must be a number greater than 0");
        return Err(Failed::usage("USAGE", error));
    }
    let mut record = Vec::new();
    std::io::stdin()
        .read_to_end(&mut record)
        .context("can't read the record from stdin")?;
    if !matches!(serde_json::from_slice(&record), Ok(Value::Object(_))) {
        let error =
            anyhow::anyhow!("stdin is not a record; pipe one in, such as {{\"task\": \"…\"}}");
        return Err(Failed::usage("USAGE", error));
    }
    let settings = Settings {
        agent: options.name.clone(),
        program: options.program.clone(),
        args: options.args.clone(),
        prompt: options.prompt.clone(),
        require_report: options.require_report,
        max_usd: options.max_usd,
        mcp: None,
        find_report,
    };
    let result = run(&settings, &record);
    out::put(format!("{}\n", Value::Object(result)))?;
    Ok(0)
}

/// The report at the end of an agent's text, by the rule for what specialists print.
fn find_report(text: &str) -> Option<Map<String, Value>> {
    match Output::read(text.as_bytes()) {
        Output::Result { result, .. } => Some(result),
        _ => None,
    }
}
