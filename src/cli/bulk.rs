//! Acting on all handoffs that some filters match: they are shown first, and a person says yes.
//!
//! A script has nobody to ask, so without `--yes` it only hears what would be done.

use std::io::{BufRead, IsTerminal, Write};

use crate::cli::list::Filters;
use crate::cli::style::{columns, line, safe, state};
use crate::cli::{Failed, Outcome, out};
use crate::inspect::summary::Row;

/// How many of them are shown.
const SHOWN: usize = 20;

/// Whether filters choose the handoffs, and no ids do.
pub fn is_meant(ids: &[String], filters: &Filters) -> Result<bool, Failed> {
    if ids.is_empty() == filters.is_empty() {
        let text = "give ids, or filters like --agent coder --since 1h, but not both";
        return Err(Failed::usage("USAGE", anyhow::anyhow!(text)));
    }
    Ok(ids.is_empty())
}

/// Shows what was found, and does it after a yes.
pub fn act(
    found: Vec<Row>,
    verb: &str,
    yes: bool,
    act: impl FnOnce(&[String]) -> Outcome,
) -> Outcome {
    if found.is_empty() {
        out::talk!("no handoff matches; nothing to {verb}");
        return Ok(0);
    }
    if !yes && !confirmed(&found, verb)? {
        return Ok(0);
    }
    let ids: Vec<String> = found.into_iter().map(|row| row.id).collect();
    act(&ids)
}

/// Shows what would be done, and asks where there is somebody to ask.
fn confirmed(found: &[Row], verb: &str) -> Result<bool, Failed> {
    let table: Vec<Vec<String>> = found.iter().take(SHOWN).map(shown).collect();
    let mut stderr = std::io::stderr().lock();
    stderr.write_all(columns(&table).as_bytes())?;
    let count = found.len();
    if count > SHOWN {
        writeln!(stderr, "  and {} more", count - SHOWN)?;
    }
    if !std::io::stdin().is_terminal() {
        writeln!(stderr, "would {verb} {count}; to do it, add --yes")?;
        return Ok(false);
    }
    let (first, rest) = verb.split_at(1);
    write!(
        stderr,
        "{}{rest} these {count}? [y/N] ",
        first.to_uppercase()
    )?;
    drop(stderr);
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// A failure with its error, what waits for a person with its question, anything else with its state.
fn shown(row: &Row) -> Vec<String> {
    let id = format!("  {}", safe(&row.id, false));
    let agent = safe(row.agent.as_deref().unwrap_or("?"), false);
    match (&row.error, &row.question) {
        (Some((code, message)), _) => vec![id, safe(code, false), line(message, 60)],
        (None, Some(question)) => vec![id, agent, line(&question.headline(), 60)],
        (None, None) => vec![id, state(row.state), agent],
    }
}
