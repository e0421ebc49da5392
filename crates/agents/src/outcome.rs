//! The result of an attempt, made from how the agent's stream ended.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Map, Value, json};

use crate::adapter::{Denied, Ended, Ending, one_line};
use crate::changes::MOST;
use crate::quota::wait_seconds;
use crate::report::result_of;
use crate::usage::{Usage, shown};

/// How many files a warning names.
const NAMED: usize = 10;

/// The most of an agent's last words that goes into a result.
const MOST_TEXT: usize = 4 * 1024 * 1024;

/// What is known beside the ending itself.
#[derive(Debug)]
pub struct Facts<'a> {
    pub agent: &'a str,
    pub program: &'a str,
    pub session: Option<&'a str>,
    pub folder: &'a Path,
    pub takeover: Option<String>,
    /// What this attempt cost.
    pub usage: Usage,
    pub changed: Vec<String>,
    /// The phase that a report is of, where the agent names none.
    pub phase: &'a str,
    /// Whether a permission can be passed on to the agent.
    pub permits: bool,
    /// Rules that a person refused before.
    pub refused: &'a [String],
    pub holds_before: u32,
    pub now: SystemTime,
    pub require_report: bool,
    /// The report at the end of a text, by the rules of the queue.
    pub find_report: fn(&str) -> Option<Map<String, Value>>,
    pub warnings: Vec<String>,
}

/// Makes the result.
pub fn result(ending: &Ending, facts: &Facts<'_>) -> Map<String, Value> {
    let mut warnings = facts.warnings.clone();
    warnings.extend(ending.warnings.iter().cloned());
    let mut result = match &ending.ended {
        Ended::Through => through(ending, facts, &mut warnings),
        Ended::Quota { until, said } => held(*until, said, facts),
        Ended::Trouble(trouble) => trouble.result(facts.agent, facts.program),
        Ended::NoSession | Ended::SessionExists => {
            let words = "can't resume its session or start a new one";
            crate::trouble::Trouble::new(crate::trouble::Kind::Other, words)
                .result(facts.agent, facts.program)
        }
    };
    if !matches!(ending.ended, Ended::Quota { .. }) {
        list_changes(&mut result, facts, &mut warnings);
    }
    if !warnings.is_empty() {
        let mut all = match result.get("warnings") {
            Some(Value::Array(theirs)) => theirs.clone(),
            _ => Vec::new(),
        };
        all.extend(warnings.into_iter().map(Value::String));
        result.insert("warnings".to_owned(), Value::Array(all));
    }
    if result.contains_key("handoff") {
        result.entry("phase").or_insert_with(|| facts.phase.into());
    }
    let mut metadata = metadata(ending, facts);
    match result.get_mut("metadata") {
        Some(Value::Object(theirs)) => {
            // Where the stream had no figures, those that the agent itself reports are all there are.
            if facts.usage == Usage::default() && theirs.contains_key("usage") {
                metadata.shift_remove("usage");
            }
            theirs.extend(metadata);
        }
        _ => _ = result.insert("metadata".to_owned(), Value::Object(metadata)),
    }
    result
}

/// The end of the warning of a result that was made of a text.
pub const NO_REPORT: &str = "ended with text and no report";

/// The agent says that it is through. It is not, where it was refused a permission.
fn through(ending: &Ending, facts: &Facts<'_>, warnings: &mut Vec<String>) -> Map<String, Value> {
    let text = ending.text.as_deref().map(str::trim).unwrap_or_default();
    let is_report = |map: &&Map<String, Value>| map.get("status").is_some_and(Value::is_string);
    let made = ending.report.as_ref().filter(is_report).map(result_of);
    let reported = made.or_else(|| (facts.find_report)(text).as_ref().map(result_of));
    let open: Vec<&Denied> = ending
        .denied
        .iter()
        .filter(|denied| !facts.refused.contains(&denied.rule))
        .collect();
    if !open.is_empty() {
        return permission(&open, reported, text, facts);
    }
    if !ending.denied.is_empty() {
        let what: Vec<&str> = ending.denied.iter().map(|it| it.what.as_str()).collect();
        warnings.push(format!(
            "{}: a human refused permission: {}",
            facts.agent,
            what.join("; ")
        ));
    }
    if let Some(reported) = reported {
        return reported;
    }
    let mut result = unreported(ending, text, facts, warnings);
    // Who knows of a report elsewhere can tell that this is none.
    result.insert("metadata".to_owned(), json!({ "reported": false }));
    result
}

/// What is made of an end without a report.
fn unreported(
    ending: &Ending,
    text: &str,
    facts: &Facts<'_>,
    warnings: &mut Vec<String>,
) -> Map<String, Value> {
    if text.is_empty() && ending.report.is_none() {
        let words = "it ended without any output";
        return crate::trouble::Trouble::new(crate::trouble::Kind::Other, words)
            .result(facts.agent, facts.program);
    }
    let mut result = Map::new();
    let summary = first_words(text, facts.agent);
    if facts.require_report {
        warnings.push(format!("{} {NO_REPORT}", facts.agent));
        result.insert("status".to_owned(), "needs_review".into());
        result.insert(
            "question".to_owned(),
            json!({
                "text": format!("{} ended without a report. Is the work done?", facts.agent),
                "options": {"approve": "it is done", "reject": "it is not: the handoff fails"},
            }),
        );
    } else {
        result.insert("status".to_owned(), "complete".into());
    }
    result.insert("summary".to_owned(), summary.into());
    let output = match &ending.report {
        Some(object) => Value::Object(object.clone()),
        None => json!({ "text": cut(text, warnings) }),
    };
    result.insert("output".to_owned(), output);
    result
}

/// A person is asked for what the agent was not permitted to do.
fn permission(
    open: &[&Denied],
    reported: Option<Map<String, Value>>,
    text: &str,
    facts: &Facts<'_>,
) -> Map<String, Value> {
    let what: Vec<&str> = open.iter().map(|denied| denied.what.as_str()).collect();
    let asks = format!(
        "{} asks for permission to {}",
        facts.agent,
        what.join("; to ")
    );
    let approve = if facts.permits {
        "permit just that; the agent continues in the same session".to_owned()
    } else {
        let agent = facts.agent;
        format!("you permitted it in the settings of {agent}; it continues in the same session")
    };
    let mut result = reported.unwrap_or_default();
    // What it reported of work that it was kept from is no outcome, but a person may want to read it.
    let said = result
        .get("summary")
        .and_then(Value::as_str)
        .map_or_else(|| one_line(text), str::to_owned);
    result.insert("status".to_owned(), "needs_review".into());
    result.shift_remove("blocked_reason");
    result.insert("summary".to_owned(), asks.clone().into());
    result.insert("handoff".to_owned(), json!({ "context": said }));
    result.insert(
        "question".to_owned(),
        json!({
            "text": asks,
            "options": {
                "approve": approve,
                "reject": "refuse it; the agent continues without it",
            },
            "on_approve": "rerun",
            "on_reject": "rerun",
        }),
    );
    let rules: Vec<Value> = open
        .iter()
        .map(|denied| json!({"what": denied.what, "rule": denied.rule}))
        .collect();
    result.insert("permissions".to_owned(), Value::Array(rules));
    result
}

/// A used-up quota is a hold, never a failure.
fn held(until: Option<SystemTime>, said: &str, facts: &Facts<'_>) -> Map<String, Value> {
    let until = until.or_else(|| crate::until::until(said, facts.now));
    let wait = wait_seconds(until, facts.now, facts.holds_before);
    let said = one_line(said);
    let mut summary = format!("the quota of {} is used up", facts.agent);
    if !said.is_empty() {
        summary = format!("{summary}: {said}");
    }
    Map::from_iter([
        ("retry_after_seconds".to_owned(), wait.into()),
        ("summary".to_owned(), summary.into()),
    ])
}

/// Files that changed and are not in the agent's own list go into it: nothing that was made goes
/// unmentioned to the next agent.
fn list_changes(result: &mut Map<String, Value>, facts: &Facts<'_>, warnings: &mut Vec<String>) {
    let (agent, changed) = (facts.agent, &facts.changed);
    if changed.is_empty() {
        return;
    }
    let mut listed: Vec<String> = match result.get("files_modified") {
        Some(Value::Array(list)) => list
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    };
    let known: BTreeSet<String> = listed
        .iter()
        .map(|path| path.trim_start_matches("./").to_owned())
        .collect();
    let missing: Vec<&String> = changed
        .iter()
        .filter(|path| {
            let is_it = |known: &String| known == *path || known.ends_with(&format!("/{path}"));
            !known.iter().any(is_it)
        })
        .collect();
    if missing.is_empty() {
        return;
    }
    let named: Vec<&str> = missing
        .iter()
        .take(NAMED)
        .map(|path| path.as_str())
        .collect();
    let more = missing.len().saturating_sub(named.len());
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    warnings.push(format!(
        "{agent} changed files that it did not list: {}{more}",
        named.join(", ")
    ));
    if missing.len() > MOST {
        warnings.push(format!(
            "{} files changed; listed the first {MOST}",
            missing.len()
        ));
    }
    listed.extend(missing.into_iter().take(MOST).cloned());
    result.insert("files_modified".to_owned(), listed.into());
}

fn metadata(ending: &Ending, facts: &Facts<'_>) -> Map<String, Value> {
    let usage = shown(
        facts.usage,
        ending.turns,
        ending.model.as_deref(),
        facts.session,
    );
    let mut metadata = Map::from_iter([
        ("agent".to_owned(), facts.agent.into()),
        ("usage".to_owned(), usage),
    ]);
    if let Some(command) = &facts.takeover {
        let folder = quoted(&facts.folder.display().to_string());
        metadata.insert(
            "takeover".to_owned(),
            format!("cd {folder} && {command}").into(),
        );
    }
    metadata
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn first_words(text: &str, agent: &str) -> String {
    let first = text
        .lines()
        .map(|line| line.trim().trim_start_matches('#').trim())
        .find(|line| !line.is_empty());
    first.map_or_else(|| format!("{agent} answered"), one_line)
}

fn cut(text: &str, warnings: &mut Vec<String>) -> String {
    if text.len() <= MOST_TEXT {
        return text.to_owned();
    }
    warnings.push(format!(
        "the agent's answer has {} bytes; kept the first {MOST_TEXT}",
        text.len()
    ));
    let mut end = MOST_TEXT;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
#[path = "outcome_tests.rs"]
mod tests;
