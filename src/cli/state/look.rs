//! `handoffd state show`, `summary` and `history`: looking at a task, changing nothing.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::Args;
use serde_json::{Value, json};

use super::{Desk, store_failed};
use crate::cli::style::{Ink, columns, facts, ink, line, local, safe};
use crate::cli::{Outcome, complete, out};
use crate::policy::task::{Limits, MAX_SUMMARY_TOKENS, summary as summarize};
use crate::protocol::task::{Change, Severity, TaskState};

#[derive(Debug, Args)]
pub struct SummaryOptions {
    #[arg(value_name = "TASK", add = complete::tasks())]
    task: String,
    /// The most tokens, below 500
    #[arg(long, value_name = "N", default_value_t = MAX_SUMMARY_TOKENS)]
    max_tokens: usize,
}

pub(super) fn summary(desk: &Desk, options: &SummaryOptions) -> Outcome {
    let state = desk.load(&options.task)?;
    let limits = Limits {
        tokens: options.max_tokens,
        ..Limits::of(&desk.config.context)
    };
    let text = summarize(&state, limits);
    if desk.json {
        let said = json!({
            "task_id": state.task().as_str(), "version": state.version(), "context_summary": text,
            "state_file": state.task().state_file(),
        });
        out::tell(said)?;
    } else {
        out::tell(safe(&text, true))?;
    }
    Ok(0)
}

pub(super) fn show(desk: &Desk, task: &str) -> Outcome {
    let state = desk.load(task)?;
    let mut out = out::lock();
    if desk.json {
        serde_json::to_writer_pretty(&mut out, state.document())?;
        writeln!(out)?;
    } else {
        out.write_all(page(&state).as_bytes())?;
    }
    Ok(0)
}

const WIDTH: usize = 160;

fn page(state: &TaskState) -> String {
    let mut page = format!(
        "{}  {}\n\n",
        ink(state.task().as_str(), Ink::Bold),
        line(state.title(), WIDTH)
    );
    let phase = |phase: Option<_>| phase.unwrap_or_else(|| "none".to_owned());
    let now = phase(state.phase().map(|phase| phase.name()));
    let from = phase(state.previous_phase().map(|phase| phase.name()));
    let rows: Vec<Vec<String>> = [
        ("phase", format!("{now} (from {from})")),
        ("from", state.source_agent().to_owned()),
        ("to", state.target_agent().to_owned()),
        ("version", state.version().to_string()),
    ]
    .into_iter()
    .map(|(name, text)| vec![ink(name, Ink::Dim), line(&text, WIDTH)])
    .collect();
    page.push_str(&facts(&rows));
    let artifacts = state.artifacts().map(|artifact| {
        let size = artifact.size_bytes();
        let size = size.map_or(String::new(), |size| format!(", {size} bytes"));
        format!("{} ({}{size})", artifact.path(), artifact.kind())
    });
    list(&mut page, "artifacts", artifacts);
    let decisions = state.decisions().map(|decision| match decision.why() {
        "" => decision.what().to_owned(),
        why => format!("{}: {why}", decision.what()),
    });
    list(&mut page, "decisions", decisions);
    let issues = state.issues().map(|issue| {
        let human = if issue.requires_human() {
            ", human"
        } else {
            ""
        };
        let text = format!("[{}{human}] {}", issue.severity().as_str(), issue.what());
        let text = line(&text, WIDTH);
        match issue.severity() {
            Severity::Blocker => ink(&text, Ink::Bad),
            _ => text,
        }
    });
    raw_list(&mut page, "blocking", issues);
    list(&mut page, "warnings", state.warnings().map(str::to_owned));
    let gate = |name: &str, mark: &str| {
        let reason = state.gate_reason(name).unwrap_or("");
        format!("{mark} {name}: {reason}")
    };
    let passed = state.gates_passed().map(|name| gate(name, "passed"));
    let failed = state.gates_failed().map(|name| gate(name, "failed"));
    list(&mut page, "gates", passed.chain(failed));
    page
}

/// The last entries of a list, under their heading; nothing for an empty one.
fn list(page: &mut String, heading: &str, entries: impl Iterator<Item = String>) {
    raw_list(page, heading, entries.map(|entry| line(&entry, WIDTH)));
}

/// Entries that are safe to print already.
fn raw_list(page: &mut String, heading: &str, entries: impl Iterator<Item = String>) {
    const SHOWN: usize = 20;
    let entries: Vec<String> = entries.collect();
    if entries.is_empty() {
        return;
    }
    let hidden = entries.len().saturating_sub(SHOWN);
    let _ = writeln!(page, "\n{} ({})", ink(heading, Ink::Bold), entries.len());
    if hidden > 0 {
        let _ = writeln!(page, "  … {hidden} earlier ones");
    }
    for entry in entries.iter().skip(hidden) {
        let _ = writeln!(page, "  {entry}");
    }
}

pub(super) fn history(desk: &Desk, task: &str) -> Outcome {
    let state = desk.load(task)?;
    let lines = desk.store.history(state.task()).map_err(store_failed)?;
    let mut out = out::lock();
    if desk.json {
        for line in &lines {
            writeln!(out, "{}", serde_json::to_string(line)?)?;
        }
    } else {
        let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
        out.write_all(columns(&rows).as_bytes())?;
    }
    Ok(0)
}

fn row(change: &Change) -> Vec<String> {
    let name = |value: &Value| match value {
        Value::String(text) => line(text, 40),
        Value::Null => "-".to_owned(),
        other => line(&other.to_string(), 40),
    };
    let phase = match &change.from_phase {
        Some(from) => format!("{} → {}", name(from), name(&change.phase)),
        None => name(&change.phase),
    };
    let delta = change.delta;
    vec![
        ink(&format!("v{}", change.version), Ink::Bold),
        ink(&local(change.at), Ink::Dim),
        phase,
        format!(
            "{} → {}",
            line(&change.source_agent, 40),
            line(&change.target_agent, 40)
        ),
        format!(
            "+{} artifacts, +{} decisions, {} blocking",
            delta.artifacts_added, delta.decisions_made, delta.blocking_issues
        ),
        line(&change.changed.join(" "), WIDTH),
    ]
}
