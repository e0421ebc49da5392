//! `handoffd state receive`: the state as its next agent finds it, checked before it begins.

use clap::Args;
use serde_json::json;

use super::Desk;
use crate::cli::style::safe;
use crate::cli::{Outcome, complete, out};
use crate::policy::task::{Limits, problems, summary, to_check};

#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 the agent can start, 1 something is wrong.")]
pub struct Options {
    #[arg(value_name = "TASK", add = complete::tasks())]
    task: String,
    /// Check that the task is for this agent
    #[arg(long = "as", value_name = "AGENT")]
    agent: Option<String>,
}

pub(super) fn receive(desk: &Desk, options: &Options) -> Outcome {
    let state = desk.load(&options.task)?;
    let found = desk.look_at(to_check(&state));
    let problems = problems(&state, options.agent.as_deref(), &found);
    let summary = summary(&state, Limits::of(&desk.config.context));
    if desk.json {
        let said = json!({
            "valid": problems.is_empty(), "problems": problems, "context_summary": summary,
            "state_file": state.task().state_file(),
        });
        // The state is put in as it is: a conversion would rewrite its numbers.
        let mut said = said.as_object().cloned().unwrap_or_default();
        let valid = problems.is_empty();
        said.insert("state".to_owned(), state.into_document().into());
        out::tell(serde_json::to_string(&said)?)?;
        return Ok(u8::from(!valid));
    }
    out::tell(safe(&summary, true))?;
    for problem in &problems {
        out::talk!("handoffd: {}", safe(problem, false));
    }
    Ok(u8::from(!problems.is_empty()))
}
