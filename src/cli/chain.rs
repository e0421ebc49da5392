//! `handoffd chain`: a chain of handoffs as a tree.

use std::io::Write;
use std::time::Duration;

use clap::Args;

use crate::cli::style::{Ink, columns, ink, line, local, safe, span, state};
use crate::cli::{Global, Outcome, complete, find, out};
use crate::clock::{Clock, Wall};
use crate::inspect::chain::{Chain, Node, gather};

/// How much is said of one handoff.
const NOTE: usize = 80;

#[derive(Debug, Args)]
#[command(
    after_help = "Takes any handoff of the chain. Steps are listed in order, helpers below the step that they help."
)]
pub struct Options {
    #[arg(value_name = "ID", add = complete::ids())]
    id: String,
}

pub fn chain(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    let id = find(&layout, &options.id)?.id;
    let chain = gather(&layout, &id);
    let mut out = out::lock();
    if global.json {
        writeln!(out, "{}", chain.to_json())?;
        return Ok(0);
    }
    out.write_all(draw(&chain, Clock::System.now().wall).as_bytes())?;
    Ok(0)
}

fn draw(chain: &Chain, now: Wall) -> String {
    let nodes = chain.nodes();
    let starts = nodes.iter().filter_map(|node| node.started).min();
    let ends = nodes.iter().filter_map(|node| node.ended).max();
    let over = matches!(chain.state(), "completed" | "failed");
    let took = match (starts, ends) {
        (Some(from), Some(to)) if over => format!(", {}", length(from, to)),
        (Some(from), _) => format!(", {} so far", length(from, now)),
        _ => String::new(),
    };
    let count = match nodes.len() {
        1 => "1 handoff".to_owned(),
        n => format!("{n} handoffs"),
    };
    let mut page = format!(
        "{}  {}, {count}{took}\n",
        ink(&safe(&chain.name, false), Ink::Bold),
        chain.state().replace('_', " "),
    );
    let mut rows = Vec::new();
    below(&chain.steps, "", now, &mut rows);
    page.push_str(&columns(&rows));
    if chain.cut {
        page.push_str("… and more\n");
    }
    page
}

fn length(from: Wall, to: Wall) -> String {
    let ms = u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0);
    span(Duration::from_millis(ms))
}

/// One row for each node, with the lines that lead to it. As deep as helpers of helpers are.
fn below(nodes: &[Node], lead: &str, now: Wall, rows: &mut Vec<Vec<String>>) {
    for (at, node) in nodes.iter().enumerate() {
        let last = at + 1 == nodes.len();
        let (branch, under) = if last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        rows.push(row(node, &format!("{lead}{branch}"), now));
        below(&node.helpers, &format!("{lead}{under}"), now, rows);
    }
}

fn row(node: &Node, lead: &str, now: Wall) -> Vec<String> {
    let took = node
        .took_ms(now)
        .map(|ms| span(Duration::from_millis(ms)))
        .unwrap_or_default();
    vec![
        format!("{lead}{}", safe(&node.id, false)),
        safe(node.agent.as_deref().unwrap_or("?"), false),
        node.state.map_or_else(|| ink("not there", Ink::Bad), state),
        node.started.map(local).unwrap_or_default(),
        took,
        note(node),
    ]
}

fn note(node: &Node) -> String {
    let until = node
        .until
        .map(|until| format!(" (until {})", local(until)))
        .unwrap_or_default();
    match (&node.waits_for, &node.error, &node.summary) {
        (Some(what), ..) => line(&format!("for {what}"), NOTE) + &until,
        (_, Some((code, message)), _) => line(&format!("{code}: {message}"), NOTE),
        (.., Some(summary)) => ink(&line(summary, NOTE), Ink::Dim),
        _ => String::new(),
    }
}
