//! `handoffd validate`: what intake would say of a request, without running anything.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::cli::submit::{self, Verdict};
use crate::cli::{Global, Outcome};

#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 it would be accepted, 1 it would be refused.")]
pub struct Options {
    /// A request, or `-` for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub fn validate(global: &Global, options: &Options) -> Outcome {
    let config = global.load_config()?;
    let Verdict {
        id,
        agent,
        priority,
    } = submit::judge(&config, &options.file)?;
    if global.json {
        let text = json!({
            "valid": true, "id": id, "agent": agent.to_string(), "priority": priority.as_str(),
        });
        println!("{text}");
    } else {
        let id = id.unwrap_or_else(|| "it (its id will be its file name)".to_owned());
        println!(
            "fine: {id} would go to {agent}, priority {}",
            priority.as_str()
        );
    }
    Ok(0)
}
