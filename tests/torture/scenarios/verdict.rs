//! What is wrong with a root on which a scenario has ended: its records, what the specialists saw,
//! the log, the artifacts, and what is left over.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{ARTIFACT, Expected, REFUSED, Scenario};
use crate::common::{Root, attempts};

/// How exact the end has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strict {
    /// Nothing but the daemon was disturbed: what came out is what would have anyway.
    Exactly,
    /// An error may have cost an attempt, or even the handoff; but it says so.
    Honestly,
}

/// Everything that is wrong with a root on which a scenario has ended.
pub fn breaches(root: &Root, scenario: Scenario, strict: Strict) -> Vec<String> {
    let mut found = Vec::new();
    let mut ids: Vec<String> = Vec::new();
    for expected in scenario.expected() {
        ids.push(expected.id.to_owned());
        match record_of(root, expected.id) {
            Ok((folder, record)) => {
                found.extend(unlike(expected, folder, &record, strict));
                let children = record["handoffd"]["children"].as_array();
                let children = children.into_iter().flatten().filter_map(Value::as_str);
                for child in children {
                    ids.push(child.to_owned());
                    match record_of(root, child) {
                        Ok(("completed", _)) => {}
                        Ok((folder, record)) if strict == Strict::Exactly => {
                            found.push(format!("the helper {child} is in {folder}: {record}"));
                        }
                        Ok(_) => {}
                        Err(what) => found.push(what),
                    }
                }
            }
            Err(what) => found.push(what),
        }
        found.extend(notes(root, expected, strict));
    }
    found.extend(leftovers(root));
    found.extend(endings(root, &ids));
    found.extend(artifacts(root, scenario, strict));
    match handoffd::inspect::deep::examine_root(root.dir()) {
        Ok(report) => found.extend(report.breaches.iter().map(|breach| format!("{breach:?}"))),
        Err(error) => found.push(format!("check --deep: {error}")),
    }
    let alive = attempts(root.dir());
    if !alive.is_empty() {
        found.push(format!("processes of attempts are alive: {alive:?}"));
    }
    let panicked = root.names("daemon-log").iter().any(|name| {
        let log = fs::read_to_string(root.path("daemon-log").join(name));
        log.is_ok_and(|log| log.contains("panicked"))
    });
    if panicked {
        found.push("a thread of a daemon panicked".to_owned());
    }
    found
}

fn record_of(root: &Root, id: &str) -> Result<(&'static str, Value), String> {
    let states = root.states_of(id);
    let [state] = states[..] else {
        return Err(format!("{id} stands in {states:?}"));
    };
    let bytes = fs::read(root.state(state, id)).map_err(|error| format!("{id}: {error}"))?;
    match serde_json::from_slice(&bytes) {
        Ok(record) => Ok((state, record)),
        Err(error) => Err(format!("{state}/{id}.json is not whole: {error}")),
    }
}

fn unlike(expected: &Expected, folder: &str, record: &Value, strict: Strict) -> Vec<String> {
    let mut found = Vec::new();
    let id = expected.id;
    let outcomes = begun(record);
    let is_exact = folder == expected.folder && outcomes == expected.outcomes;
    let is_honest = match folder {
        "completed" => expected.folder == "completed",
        "failed" => {
            let message = record["error"]["message"].as_str();
            message.is_some_and(|message| !message.is_empty())
        }
        _ => false,
    };
    if !(is_exact || is_honest && strict == Strict::Honestly) {
        let error = &record["error"];
        found.push(format!("{id} is in {folder} after {outcomes:?}: {error}"));
    }
    let error = &record["error"];
    if strict == Strict::Exactly
        && let Some(code) = expected.code
        && error["code"] != code
    {
        found.push(format!("{id} failed otherwise: {error}"));
    }
    // Also where a refusal was cut in half, its notice has the place of the mistake.
    let reason = error["message"].as_str().unwrap_or_default();
    if strict == Strict::Exactly && id == REFUSED.id && !reason.contains("line 1, column") {
        found.push(format!("{id} has lost its reason: {error}"));
    }
    found
}

/// The outcomes of the attempts that began.
fn begun(record: &Value) -> Vec<&str> {
    let listed = record["handoffd"]["attempts"].as_array();
    let outcomes = listed
        .into_iter()
        .flatten()
        .map(|attempt| attempt["outcome"].as_str().unwrap_or("none"));
    outcomes
        .filter(|outcome| *outcome != "interrupted")
        .collect()
}

/// What the specialist saw of its attempts.
fn notes(root: &Root, expected: &Expected, strict: Strict) -> Vec<String> {
    let id = expected.id;
    let path = root.path("marks").join(format!("{id}.notes"));
    let notes = fs::read_to_string(path).unwrap_or_default();
    let mut found = Vec::new();
    if notes.contains("overlap") {
        found.push(format!("two attempts of {id} at once: {notes:?}"));
    }
    let starts = notes.lines().filter(|line| line.starts_with("start"));
    let (starts, wanted) = (starts.count(), expected.outcomes.len());
    // One that is ended early may not have got as far as to take notes.
    let fits = starts == wanted || expected.code == Some("TIMEOUT") && starts < wanted;
    if !fits && strict == Strict::Exactly {
        found.push(format!("{id} was begun {starts} times, not {wanted}"));
    }
    found
}

fn leftovers(root: &Root) -> Vec<String> {
    let folders = [
        "handoffs/pending",
        "handoffs/in-progress",
        "handoffs/waiting",
        ".handoffd/tmp",
        ".handoffd/rejecting",
        ".handoffd/aside",
        ".handoffd/spares",
    ];
    let left = |folder: &&str| !root.names(folder).is_empty();
    let name = |folder: &str| format!("{folder} has {:?}", root.names(folder));
    folders.into_iter().filter(left).map(name).collect()
}

/// Each id has ended once, and the log of it has no gap.
fn endings(root: &Root, ids: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    match handoffd::store::audit::verify(&root.path("audit")) {
        Ok(verdict) if verdict.is_sound() => {}
        Ok(verdict) => found.push(format!("the audit log: {verdict:?}")),
        Err(error) => found.push(format!("the audit log: {error}")),
    }
    let mut lines: Vec<Value> = Vec::new();
    for name in root.names("audit") {
        let Ok(text) = fs::read_to_string(root.path("audit").join(name)) else {
            continue;
        };
        lines.extend(
            text.lines()
                .filter_map(|line| serde_json::from_str(line).ok()),
        );
    }
    for id in ids {
        let is_start =
            |line: &&Value| line["handoff_id"] == id.as_str() && line["event"] == "started";
        let starts = lines.iter().filter(is_start).count();
        let begun = record_of(root, id).map_or(0, |(_, record)| begun(&record).len());
        if starts < begun {
            found.push(format!(
                "{id} was begun {begun} times, and the log tells of {starts}"
            ));
        }
        let ends = lines.iter().filter(|line| {
            let to = line["to"].as_str();
            line["handoff_id"] == id.as_str() && matches!(to, Some("completed" | "failed"))
        });
        let ends: Vec<&Value> = ends.collect();
        if ends.len() != 1 {
            found.push(format!(
                "{id} ended {} times by the log: {ends:?}",
                ends.len()
            ));
        }
    }
    let ended: usize = ["completed", "failed"]
        .iter()
        .map(|end| root.names(&format!("handoffs/{end}")))
        .map(|names| {
            names
                .iter()
                .filter(|name| has_extension(name, "json"))
                .count()
        })
        .sum();
    if ended != ids.len() {
        found.push(format!("{ended} have ended, and {ids:?} were asked for"));
    }
    found
}

fn artifacts(root: &Root, scenario: Scenario, strict: Strict) -> Vec<String> {
    let has_one = scenario.expected().iter().any(|it| it.id == ARTIFACT.id);
    if !has_one || !root.state("completed", ARTIFACT.id).exists() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let registry = fs::read_to_string(root.path("artifacts/registry.jsonl")).unwrap_or_default();
    let whole = registry.lines().filter(|line| {
        serde_json::from_str::<Value>(line).is_ok_and(|line| line["path"].is_string())
    });
    if whole.count() != 1 {
        found.push(format!("the registry has {registry:?}"));
    }
    let bytes = fs::read(root.path("artifacts/a.json")).unwrap_or_default();
    let made: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if made != json!({ "made": "whole" }) {
        found.push(format!(
            "the artifact is {:?}",
            String::from_utf8_lossy(&bytes)
        ));
    }
    let mut names = root.names("artifacts");
    names.retain(|name| {
        name != "a.json" && name != "registry.jsonl" && !has_extension(name, "lock")
    });
    if !names.is_empty() && strict == Strict::Exactly {
        found.push(format!("artifacts/ has {names:?}"));
    }
    found
}

fn has_extension(name: &str, wanted: &str) -> bool {
    Path::new(name).extension().is_some_and(|ext| ext == wanted)
}
