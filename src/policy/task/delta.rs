//! What an agent brings to a handoff, from a result or from a command, in one form.
//!
//! Agents write lists in several ways: a decision as a sentence, `type` for `artifact_type`. They
//! are brought into the state's form here, with every other field kept. What can't be, is left
//! out and named; whether that is an error is the caller's to say.

use serde_json::{Map, Value};

use super::gates::{GateResult, claimed};
use crate::clock::Wall;
use crate::protocol::field::FieldError;
use crate::protocol::task::{Phase, Severity, check_entry};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    pub source: Option<String>,
    pub target: Option<String>,
    /// Where the task goes; stays where it is if this is none.
    pub phase: Option<Phase>,
    pub artifacts: Vec<Map<String, Value>>,
    pub decisions: Vec<Map<String, Value>>,
    /// Replaces what stood in the way so far; none leaves it.
    pub blocking: Option<Vec<Map<String, Value>>>,
    pub warnings: Vec<String>,
    /// What the agent says of gates of its own.
    pub claims: Vec<GateResult>,
    /// Whether it is a handoff although neither target nor phase is named. What isn't one only
    /// adds to the state, and need not be complete.
    pub hands_on: bool,
    /// Whether a decision without a rationale stops the handoff. The work of a specialist is paid for, and
    /// gets a warning instead.
    pub needs_rationale: bool,
    /// Who lets it pass although something in it requires a human.
    pub approved_by: Option<String>,
}

impl Delta {
    /// Reads a document that was made for a handoff: its lists, and `phase` (or `new_phase`), `from` and
    /// `to`.
    ///
    /// `source` stands for the agent where nobody is named, `now` for the time of a decision.
    /// Who approves is never taken from a document.
    pub fn read(
        document: &Map<String, Value>,
        source: Option<&str>,
        now: Wall,
    ) -> (Self, Vec<FieldError>) {
        let from = text(document, &["source_agent", "from"]);
        let (mut delta, mut wrong) = lists(document, from.or(source), now);
        delta.needs_rationale = true;
        delta.target = text(document, &["target_agent", "to"]).map(str::to_owned);
        let key = if document.contains_key("phase") {
            "phase"
        } else {
            "new_phase"
        };
        delta.phase = next_phase(document, key, &mut wrong);
        let warnings = document.get("warnings").and_then(Value::as_array);
        let warnings = warnings.into_iter().flatten().filter_map(Value::as_str);
        delta.warnings = warnings.map(str::to_owned).collect();
        delta.hands_on = true;
        (delta, wrong)
    }

    /// Reads a specialist's result: its lists, and what its `handoff` says of what is next. Its
    /// issues replace those of the state, also where it names none. Its own `phase` is the one it
    /// worked in, and its warnings belong to the record.
    pub fn of_result(
        result: &Map<String, Value>,
        source: &str,
        now: Wall,
    ) -> (Self, Vec<FieldError>) {
        let (mut delta, mut wrong) = lists(result, Some(source), now);
        // A result that names no issue says that none is left.
        delta.blocking.get_or_insert_default();
        if let Some(handoff) = result.get("handoff").and_then(Value::as_object) {
            delta.target = text(handoff, &["next_agent"]).map(str::to_owned);
            delta.phase = next_phase(handoff, "next_phase", &mut wrong);
        }
        (delta, wrong)
    }
}

fn text<'m>(map: &'m Map<String, Value>, keys: &[&str]) -> Option<&'m str> {
    let found = keys.iter().find_map(|key| map.get(*key)?.as_str());
    found.filter(|text| !text.is_empty())
}

fn next_phase(map: &Map<String, Value>, key: &str, wrong: &mut Vec<FieldError>) -> Option<Phase> {
    let said = map.get(key).filter(|said| !said.is_null())?;
    let asked = Phase::asked(said);
    if asked.is_none() {
        wrong.push(FieldError::new(key, "expected a word or an integer"));
    }
    asked
}

/// The lists of a document in the state's form, and what can't be brought into it.
fn lists(
    document: &Map<String, Value>,
    source: Option<&str>,
    now: Wall,
) -> (Delta, Vec<FieldError>) {
    let mut wrong = Vec::new();
    let mut list = |keys: &[&str], name: &str, mend: &dyn Fn(Value) -> Value| {
        let (key, value) = keys
            .iter()
            .find_map(|key| Some((*key, document.get(*key).filter(|v| !v.is_null())?)))?;
        let Value::Array(items) = value else {
            wrong.push(FieldError::new(key, "expected an array"));
            return None;
        };
        let mut entries = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{key}[{index}]");
            match mend(item.clone()) {
                Value::Object(entry) => match check_entry(name, &entry, &path) {
                    errors if errors.is_empty() => entries.push(entry),
                    errors => wrong.extend(errors),
                },
                _ => wrong.push(FieldError::new(path, "expected an object")),
            }
        }
        Some(entries)
    };
    let decide = |value| decision(value, source, now);
    let artifacts = list(&["artifacts"], "artifacts", &artifact);
    let decisions = list(&["decisions_made", "decisions"], "decisions_made", &decide);
    let blocking = list(&["blocking_issues", "blocking"], "blocking_issues", &issue);
    let delta = Delta {
        source: source.map(str::to_owned),
        artifacts: artifacts.unwrap_or_default(),
        decisions: decisions.unwrap_or_default(),
        blocking,
        claims: document
            .get("quality_gates")
            .map(claimed)
            .unwrap_or_default(),
        ..Delta::default()
    };
    (delta, wrong)
}

fn rename(entry: &mut Map<String, Value>, from: &str, to: &str) {
    if !entry.contains_key(to)
        && let Some(value) = entry.get(from).cloned()
    {
        entry.insert(to.to_owned(), value);
        entry.shift_remove(from);
    }
}

fn artifact(value: Value) -> Value {
    let mut entry = match value {
        Value::String(path) => Map::from_iter([("path".to_owned(), path.into())]),
        Value::Object(entry) => entry,
        other => return other,
    };
    rename(&mut entry, "artifact_path", "path");
    rename(&mut entry, "type", "artifact_type");
    rename(&mut entry, "sha256", "content_hash");
    if entry.get("artifact_type").and_then(Value::as_str) == Some("code") {
        entry.insert("artifact_type".to_owned(), "source".into());
    }
    Value::Object(entry)
}

fn decision(value: Value, agent: Option<&str>, now: Wall) -> Value {
    let mut entry = match value {
        Value::String(what) => Map::from_iter([
            ("decision".to_owned(), what.into()),
            ("rationale".to_owned(), "".into()),
        ]),
        Value::Object(entry) => entry,
        other => return other,
    };
    rename(&mut entry, "reason", "rationale");
    let missing = |entry: &Map<String, Value>, key: &str| entry.get(key).is_none_or(Value::is_null);
    if missing(&entry, "timestamp") {
        entry.insert("timestamp".to_owned(), now.to_string().into());
    }
    if let Some(agent) = agent
        && missing(&entry, "agent")
    {
        entry.insert("agent".to_owned(), agent.into());
    }
    if missing(&entry, "alternatives") {
        entry.insert("alternatives".to_owned(), Value::Array(Vec::new()));
    }
    Value::Object(entry)
}

fn issue(value: Value) -> Value {
    let mut entry = match value {
        Value::String(what) => Map::from_iter([("issue".to_owned(), what.into())]),
        Value::Object(entry) => entry,
        other => return other,
    };
    // An issue that does not say how bad it is, or in another's words, stands in the way.
    let known = |value: &Value| value.as_str().and_then(Severity::parse).is_some();
    if !entry.get("severity").is_some_and(known) {
        if let Some(said) = entry
            .get("severity")
            .filter(|said| !said.is_null())
            .cloned()
        {
            entry.insert("severity_given".to_owned(), said);
        }
        entry.insert("severity".to_owned(), Severity::Blocker.as_str().into());
    }
    for (key, default) in [
        ("suggested_action", Value::from("")),
        ("requires_human", false.into()),
    ] {
        if entry.get(key).is_none_or(Value::is_null) {
            entry.insert(key.to_owned(), default);
        }
    }
    Value::Object(entry)
}
