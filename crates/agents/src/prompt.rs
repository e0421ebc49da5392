//! The prompt: a template, filled with what the record says.
//!
//! A template is Markdown with placeholders such as `{{task}}`. A paragraph whose placeholders are
//! all empty is left out, and so is a heading with nothing left under it. Values are inserted as
//! they are: a placeholder in a value is text.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::record::{Answer, Record, Surroundings};

/// The template for an attempt that begins a session.
pub const NEW: &str = include_str!("../prompts/new.md");

/// The template for one that goes on with it.
pub const RESUME: &str = include_str!("../prompts/resume.md");

/// All placeholders, for messages and documentation.
pub const PLACEHOLDERS: [&str; 19] = [
    "agent",
    "answer",
    "artifacts",
    "attempt",
    "context",
    "decisions",
    "expectations",
    "files_modified",
    "id",
    "input",
    "last_error",
    "open_questions",
    "origin",
    "phase",
    "record",
    "returns",
    "summary",
    "task",
    "task_summary",
];

/// Keys of `input.data` that have placeholders of their own.
const SHOWN_ELSEWHERE: [&str; 15] = [
    "answer",
    "artifacts",
    "context",
    "decisions",
    "description",
    "expectations",
    "files_modified",
    "instructions",
    "open_questions",
    "origin",
    "phase",
    "prompt",
    "summary",
    "task",
    "text",
];

/// Where a request may say in words what is to be done, in this order.
const TASK_KEYS: [&str; 5] = ["task", "prompt", "instructions", "text", "description"];

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("unknown placeholder {{{{{name}}}}} in line {line}; {hint}")]
    Unknown {
        name: String,
        line: usize,
        hint: String,
    },
    #[error("the placeholder that begins in line {line} is not closed: write {{{{name}}}}")]
    Unclosed { line: usize },
}

/// A template in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Placeholder(String),
}

fn pieces(block: &str, first_line: usize) -> Result<Vec<Piece>, TemplateError> {
    let mut pieces = Vec::new();
    let mut rest = block;
    let mut line = first_line;
    while let Some((before, after)) = rest.split_once("{{") {
        line += before.matches('\n').count();
        let Some((name, after)) = after.split_once("}}") else {
            return Err(TemplateError::Unclosed { line });
        };
        let name = name.trim();
        if !PLACEHOLDERS.contains(&name) {
            return Err(TemplateError::Unknown {
                name: name.to_owned(),
                line,
                hint: hint(name),
            });
        }
        pieces.push(Piece::Text(before.to_owned()));
        pieces.push(Piece::Placeholder(name.to_owned()));
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    Ok(pieces)
}

fn hint(name: &str) -> String {
    let close = PLACEHOLDERS
        .iter()
        .find(|known| known.contains(name) || name.contains(*known));
    match close {
        Some(known) if !name.is_empty() => format!("did you mean {{{{{known}}}}}?"),
        _ => format!("known are: {}", PLACEHOLDERS.join(", ")),
    }
}

/// Whether a template can be filled.
pub fn check(template: &str) -> Result<(), TemplateError> {
    fill(template, &|_| String::new()).map(|_| ())
}

/// Fills a template. `value` answers for each placeholder.
pub fn fill(template: &str, value: &dyn Fn(&str) -> String) -> Result<String, TemplateError> {
    // Sections with nothing in them are known only at the end, so headings wait for their text.
    let mut out = String::new();
    let mut headings: Vec<String> = Vec::new();
    let mut line = 1;
    for block in template.split("\n\n") {
        let block_line = line;
        line += block.matches('\n').count() + 2;
        let mut text = String::new();
        let (mut asked, mut filled) = (false, false);
        for piece in pieces(block, block_line)? {
            match piece {
                Piece::Text(plain) => text.push_str(&plain),
                Piece::Placeholder(name) => {
                    asked = true;
                    let value = value(&name);
                    filled |= !value.trim().is_empty();
                    text.push_str(value.trim_end());
                }
            }
        }
        let text = text.trim_matches('\n');
        if (asked && !filled) || text.trim().is_empty() {
            continue;
        }
        if let Some(level) = heading_level(text).filter(|_| !asked && !text.contains('\n')) {
            headings.retain(|waiting| heading_level(waiting).is_some_and(|it| it < level));
            headings.push(text.to_owned());
            continue;
        }
        for heading in headings.drain(..) {
            push_block(&mut out, &heading);
        }
        push_block(&mut out, text);
    }
    out.push('\n');
    Ok(out)
}

fn push_block(out: &mut String, block: &str) {
    if !out.is_empty() {
        out.push_str("\n\n");
    }
    out.push_str(block);
}

fn heading_level(text: &str) -> Option<usize> {
    let marks = text.bytes().take_while(|byte| *byte == b'#').count();
    (marks > 0 && text.as_bytes().get(marks) == Some(&b' ')).then_some(marks)
}

/// What stands for each placeholder.
pub fn value(name: &str, record: &Record, around: &Surroundings) -> String {
    match name {
        "agent" => agent(record).to_owned(),
        "answer" => record
            .answer()
            .map(|answer| asked(record) + &answer_words(&answer))
            .unwrap_or_default(),
        "attempt" => around.attempt.to_string(),
        "context" => words(
            record
                .at(&["input", "data", "context"])
                .or_else(|| context(record)),
        ),
        "expectations" => expectations(record),
        "id" => around.id.clone(),
        "input" => input(record),
        "last_error" => around.last_error.clone().unwrap_or_default(),
        "phase" => words(
            record
                .at(&["target", "phase"])
                .or_else(|| record.work("phase")),
        ),
        "record" => pretty(&Value::Object(record.doc.clone())),
        "returns" => returns(record),
        "task" => task(record),
        "task_summary" => around.summary.clone().unwrap_or_default(),
        "origin" => record
            .at(&["input", "data", "origin"])
            .map(pretty)
            .unwrap_or_default(),
        listed => words(record.work(listed)),
    }
}

fn agent(record: &Record) -> &str {
    [
        &["target", "agent_id"][..],
        &["handoff", "to", "agent"],
        &["handoff", "next_agent"],
    ]
    .iter()
    .find_map(|path| record.text(path))
    .unwrap_or("a specialist")
}

/// A report's context is a text, a package's an object whose parts have placeholders of their own.
fn context(record: &Record) -> Option<&Value> {
    record
        .at(&["handoff", "context"])
        .filter(|context| context.is_string())
}

/// What is to be done, in the words of the request.
fn task(record: &Record) -> String {
    let said = TASK_KEYS
        .iter()
        .find_map(|key| record.at(&["input", "data", key])?.as_str());
    let said = said
        .or_else(|| record.work("expectations")?.get("deliverable")?.as_str())
        .or_else(|| record.text(&["handoff", "to", "reason"]))
        .or_else(|| record.text(&["handoff", "context"]))
        .or_else(|| record.work("context")?.as_str());
    match said {
        Some(said) => said.to_owned(),
        None => match record.text(&["target", "phase"]) {
            Some(phase) => format!("Do the {phase} of the work described below."),
            None => "Do the work that the input below describes.".to_owned(),
        },
    }
}

/// What is left of the input when all that has a place of its own is taken out.
fn input(record: &Record) -> String {
    let Some(data) = record.at(&["input", "data"]) else {
        return String::new();
    };
    let Value::Object(data) = data else {
        return pretty(data);
    };
    let rest: Map<String, Value> = data
        .iter()
        .filter(|(key, value)| !SHOWN_ELSEWHERE.contains(&key.as_str()) && !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if rest.is_empty() {
        String::new()
    } else {
        pretty(&Value::Object(rest))
    }
}

fn expectations(record: &Record) -> String {
    let Some(Value::Object(expected)) = record.work("expectations") else {
        return words(record.work("expectations"));
    };
    let mut out = String::new();
    for (key, value) in expected {
        let name = key.replace('_', " ");
        match value {
            Value::String(text) => _ = writeln!(out, "- {name}: {text}"),
            Value::Array(list) => {
                _ = writeln!(out, "- {name}:");
                for item in list {
                    _ = writeln!(out, "  - {}", entry(item));
                }
            }
            other => _ = writeln!(out, "- {name}: {other}"),
        }
    }
    out
}

fn returns(record: &Record) -> String {
    let returns = record
        .at(&["handoffd", "returns"])
        .and_then(Value::as_array);
    let mut out = String::new();
    for returned in returns.into_iter().flatten() {
        // Some of them together, which a file has.
        if let (None, Some(cut)) = (returned.get("id"), elsewhere(returned)) {
            _ = writeln!(out, "- {cut}");
            continue;
        }
        let text = |key: &str| returned.get(key).and_then(Value::as_str);
        let who = text("agent").or(text("id")).unwrap_or("a helper");
        let result = returned.get("result");
        let said = result.and_then(|result| result.get("summary")?.as_str());
        let status = text("status").unwrap_or("ended");
        let said = match said {
            Some(said) => said.to_owned(),
            None if result.is_none() => elsewhere(returned).unwrap_or_default(),
            None => result.unwrap_or(&Value::Null).to_string(),
        };
        _ = writeln!(out, "- {who} ({status}): {said}");
    }
    out
}

/// The summary of what was too large for the record, and the file that has it.
fn elsewhere(item: &Value) -> Option<String> {
    let path = item.get("ref")?.as_str()?;
    let summary = item
        .get("summary")
        .and_then(Value::as_str)
        .unwrap_or("more");
    Some(format!("{summary} (in full: {path})"))
}

/// What the agent had asked and done, for a session that does not remember it.
fn asked(record: &Record) -> String {
    let Some(last) = record
        .last_result()
        .filter(|_| record.answers_last_result())
    else {
        return String::new();
    };
    let summary = last.get("summary");
    let question = last.get("question").and_then(|it| it.get("text"));
    let mut said = String::new();
    for (what, words) in [("You reported", summary), ("You asked", question)] {
        if let Some(words) = words.and_then(Value::as_str).filter(|it| !it.is_empty()) {
            _ = writeln!(said, "{what}: {words}");
        }
    }
    said
}

/// A person's answer in a sentence.
pub fn answer_words(answer: &Answer) -> String {
    let who = answer.by.as_deref().unwrap_or("A human");
    let did = match answer.action.as_str() {
        "approve" => "approved",
        "reject" => "rejected it",
        "ask" | "question" => "asks",
        other => other,
    };
    let mut said = format!("{who} {did}");
    if let Some(choice) = &answer.choice {
        _ = write!(said, ", and chose: {choice}");
    }
    match &answer.comment {
        Some(comment) => _ = write!(said, ". Comment: {comment}"),
        None => said.push('.'),
    }
    said
}

/// Text as it is, a list as lines, all else as JSON.
fn words(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(list)) => {
            let mut out = String::new();
            for item in list {
                _ = writeln!(out, "- {}", entry(item));
            }
            out
        }
        Some(Value::Object(map)) if map.is_empty() => String::new(),
        Some(other) => pretty(other),
    }
}

/// An entry of a list on one line: the words that it is about, and what belongs to them.
fn entry(item: &Value) -> String {
    let Value::Object(map) = item else {
        return item
            .as_str()
            .map_or_else(|| item.to_string(), str::to_owned);
    };
    if let Some(cut) = elsewhere(item).filter(|_| map.contains_key("count")) {
        return cut;
    }
    let heads = ["decision", "path", "question", "issue", "description"];
    let Some((head, text)) = heads
        .iter()
        .find_map(|head| Some((*head, map.get(*head)?.as_str()?)))
    else {
        return item.to_string();
    };
    let rest: Vec<String> = map
        .iter()
        .filter(|(key, value)| key.as_str() != head && !value.is_null())
        .map(|(key, value)| match value {
            Value::String(text) => format!("{key}: {text}"),
            other => format!("{key}: {other}"),
        })
        .collect();
    if rest.is_empty() {
        text.to_owned()
    } else {
        format!("{text} ({})", rest.join(", "))
    }
}

fn pretty(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    format!("```json\n{text}\n```")
}

#[cfg(test)]
#[path = "prompt_tests.rs"]
mod tests;
