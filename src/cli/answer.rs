//! `handoffd approve`, `reject` and `ask`: a person's answer, by way of `control/`.
//!
//! What can be known beforehand is checked here, so that a slip of the pen is told at once. The
//! daemon checks it all again: it alone knows whether somebody was faster.

use clap::Args;

use crate::cli::act::{Words, send};
use crate::cli::list::Filters;
use crate::cli::{Failed, Global, Outcome, bulk, complete, find, whole_ids};
use crate::inspect::list::rows;
use crate::inspect::newest;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;

#[derive(Debug, Args)]
#[command(
    after_help = "The effect of an approval depends on the question; handoffd show ID prints it.\n\n\
                  Examples:\n  handoffd list --waiting human\n  handoffd approve release-7 --comment \
                  'fine, ship it'\n  handoffd approve release-7 --choice staged"
)]
pub struct ApproveOptions {
    #[command(flatten)]
    answer: Answer,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The handoff fails with REJECTED. If its gate says on_reject: rerun, it runs again with the comment.\n\nExample:\n  handoffd reject release-7 --comment 'the tests are missing'"
)]
pub struct RejectOptions {
    #[command(flatten)]
    answer: Answer,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The agent runs again with the question; then the handoff waits for an answer again.\n\nExample:\n  \
                  handoffd ask release-7 --comment 'why two tables?'"
)]
pub struct AskOptions {
    #[command(flatten)]
    answer: Answer,
}

#[derive(Debug, Args)]
struct Answer {
    #[arg(value_name = "ID", add = complete::asked_ids())]
    ids: Vec<String>,
    /// Instead of ids: every handoff that waits for a human and matches these filters
    #[command(flatten)]
    filters: Filters,
    /// Don't ask before answering many
    #[arg(long, short = 'y')]
    yes: bool,
    /// One of the listed options
    #[arg(long, value_name = "OPTION")]
    choice: Option<String>,
    #[command(flatten)]
    words: Words,
}

pub fn approve(global: &Global, options: &ApproveOptions) -> Outcome {
    answer(global, "approve", &options.answer)
}

pub fn reject(global: &Global, options: &RejectOptions) -> Outcome {
    answer(global, "reject", &options.answer)
}

pub fn ask(global: &Global, options: &AskOptions) -> Outcome {
    let said = options.answer.words.comment.as_deref().unwrap_or_default();
    if said.trim().is_empty() {
        let text = "the question is missing: add --comment 'TEXT'";
        return Err(Failed::usage("USAGE", anyhow::anyhow!(text)));
    }
    answer(global, "ask", &options.answer)
}

/// All of them are looked at before anything is answered.
fn answer(global: &Global, action: &str, answer: &Answer) -> Outcome {
    let layout = global.existing_layout()?;
    let choice = answer.choice.as_deref();
    let send = |ids: &[String]| {
        for id in ids {
            check(&layout, action, id, choice)?;
        }
        send(global, &layout, action, ids, &answer.words, choice)
    };
    if !bulk::is_meant(&answer.ids, &answer.filters)? {
        return send(&whole_ids(&layout, &answer.ids)?);
    }
    let mut filter = answer.filters.to_filter()?;
    if filter.states.is_empty() {
        filter.states.push(State::Waiting);
    }
    let places = newest::all(&layout, &filter)?;
    let matching = rows(&layout, places, &filter).map(|(_, row)| row);
    let found = matching.filter(|row| row.question.is_some()).collect();
    bulk::act(found, action, answer.yes, send)
}

fn check(layout: &Layout, action: &str, id: &str, choice: Option<&str>) -> Result<(), Failed> {
    let place = find(layout, id)?;
    let row = place.row();
    let Some(question) = row.question else {
        let stands = match row.waiting_on.as_deref() {
            Some(on) => format!("it waits for a {on}, not for a human"),
            None if place.state.is_final() => format!("already {}", place.state),
            None => format!("it is {}", place.state.to_string().replace('_', " ")),
        };
        let text = format!(
            "can't {action} {id}: {stands}; there is nothing to {action} (see: handoffd explain {id})"
        );
        return Err(Failed::thing("NOT_WAITING", anyhow::anyhow!(text)));
    };
    if action == "ask"
        && let Some(why) = question.nobody_to_ask()
    {
        let text = format!("can't ask about {id}: {why}; approve or reject it");
        return Err(Failed::thing("NOBODY_TO_ASK", anyhow::anyhow!(text)));
    }
    match choice.and_then(|choice| question.refuses(choice)) {
        Some(wrong) => Err(Failed::usage(
            "USAGE",
            anyhow::anyhow!("can't {action} {id}: {wrong}"),
        )),
        None => Ok(()),
    }
}
