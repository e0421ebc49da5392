//! What `show` says of the work itself: what came in, and what a person is asked about it.

use serde_json::Value;

use crate::cli::style::{Ink, columns_within, ink, safe};
use crate::inspect::material::Material;
use crate::inspect::question::Question;

/// How many lines of the input are shown.
const MOST_LINES: usize = 60;

/// What came in, as far as a page has room for it.
pub fn input(id: &str, input: &Value) -> String {
    let text = match input {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    };
    let text = safe(text.trim_end(), true);
    let count = text.lines().count();
    let mut told = format!("\n{}\n", ink("INPUT", Ink::Bold));
    for line in text.lines().take(MOST_LINES) {
        told.push_str(line);
        told.push('\n');
    }
    if count > MOST_LINES {
        let more = count - MOST_LINES;
        let id = safe(id, false);
        let hint = format!("… {more} more lines; to see all: handoffd show {id} --json");
        told.push_str(&ink(&hint, Ink::Dim));
    }
    told
}

/// What a person is asked, and how to answer.
pub fn question(id: &str, asked: &Question) -> String {
    let mut told = String::new();
    let mut say = |text: String| {
        told.push_str(&text);
        told.push('\n');
    };
    let name = asked.gate.as_deref().unwrap_or_default();
    let title = format!("QUESTION ({} {name}", asked.kind);
    let title = safe(title.trim_end(), false) + ")";
    say(format!("\n{}", ink(&title, Ink::Bold)));
    say(format!("  {}", indented(&asked.headline())));
    if let Some(to) = &asked.escalated_to {
        say(format!("  escalated to {}", safe(to, false)));
    }
    let done = asked.done.as_ref();
    if let Some(done) = done.filter(|done| done.trim() != asked.headline().trim()) {
        say(format!("  {} {}", ink("done:", Ink::Dim), indented(done)));
    }
    if !asked.items.is_empty() {
        say(format!("  {}", ink("to look at:", Ink::Dim)));
        for item in &asked.items {
            say(format!("    - {}", indented(item)));
        }
    }
    say_material(&asked.material, &asked.headline(), &mut say);
    if asked.own_options {
        say(format!("  {}", ink("options:", Ink::Dim)));
        for (option, meaning) in &asked.options {
            let meaning = if meaning.is_empty() {
                String::new()
            } else {
                format!(": {}", safe(meaning, false))
            };
            say(format!("    {}{meaning}", safe(option, false)));
        }
    }
    if asked.until.is_some() {
        let then = safe(&asked.on_expiry, false);
        say(format!("  {} {then}", ink("without an answer:", Ink::Dim)));
    }
    say(format!("  {}", ink("to answer:", Ink::Dim)));
    let id = safe(id, false);
    let choice = if asked.own_options {
        " --choice OPTION"
    } else {
        ""
    };
    let [approving, rejecting] = &asked.meanings;
    let words = |own: &Option<String>, else_: &str| {
        own.as_ref()
            .map_or_else(|| else_.to_owned(), |own| safe(own, false))
    };
    let mut rows = vec![
        (
            format!("approve {id}{choice}"),
            words(approving, asked.approving()),
        ),
        (
            format!("reject {id} --comment WHY"),
            words(rejecting, asked.rejecting()),
        ),
    ];
    if asked.may_ask() {
        let what = match asked.kind.as_str() {
            "task" => "asks its sender a question",
            _ => "runs it again with your question",
        };
        rows.push((format!("ask {id} --comment WHAT"), what.to_owned()));
    }
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(command, what)| vec![format!("    handoffd {command}"), ink(&what, Ink::Dim)])
        .collect();
    // Not cut: they are there to be copied.
    say(columns_within(&rows, None).trim_end().to_owned());
    told
}

/// Text of several lines, the later ones moved in.
fn indented(text: &str) -> String {
    safe(text.trim(), true).replace('\n', "\n      ")
}

/// What is still open, what is to come out, and what is there.
fn say_material(material: &Material, headline: &str, say: &mut impl FnMut(String)) {
    if let Some(why) = &material.sent_because
        && why != headline
    {
        say(format!(
            "  {} {}",
            ink("sent because:", Ink::Dim),
            indented(why)
        ));
    }
    for (name, entries) in [
        ("open questions:", &material.open_questions),
        ("pending decisions:", &material.pending_decisions),
    ] {
        if !entries.is_empty() {
            say(format!("  {}", ink(name, Ink::Dim)));
        }
        for entry in entries {
            say(format!("    - {}", indented(entry)));
        }
    }
    if let Some(deliverable) = &material.deliverable {
        let name = ink("deliverable:", Ink::Dim);
        say(format!("  {name} {}", indented(deliverable)));
    }
    if !material.artifacts.is_empty() {
        say(format!("  {}", ink("artifacts:", Ink::Dim)));
    }
    for artifact in &material.artifacts {
        say(format!("    - {}", safe(artifact, false)));
    }
}
