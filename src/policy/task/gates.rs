//! Quality gates: what must hold before a task is handed on.
//!
//! Four kinds. `pre-handoff` asks whether the state says enough. `phase` asks for the artifacts
//! that a phase requires, as they are on disk. `human` holds back what requires a person. The
//! rest are commands that guard phases, under their own names. What has to be looked up for them
//! is named by [`Asked`] and answered by the caller, as [`Found`] and results.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use super::words::one_line;
use crate::config::{Gate, Phases};
use crate::protocol::task::{Issue, Phase, TaskState, digest};

pub const PRE_HANDOFF: &str = "pre-handoff";
pub const PHASE: &str = "phase";
pub const HUMAN: &str = "human";

const SHOWN: usize = 80;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateResult {
    pub name: String,
    pub passed: bool,
    pub reason: String,
    /// The agent's word, which nobody checked.
    pub claimed: bool,
}

impl GateResult {
    pub fn new(name: &str, passed: bool, reason: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            passed,
            reason: reason.into(),
            claimed: false,
        }
    }
}

/// What is on disk under an artifact's path: its SHA-256 in hex, or why it has none.
pub type Found = BTreeMap<String, Result<String, String>>;

/// What a handoff has to show before it passes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asked {
    /// Paths whose content must be known.
    pub paths: Vec<String>,
    /// Commands that must be run.
    pub commands: Vec<Gate>,
}

impl Asked {
    /// What entering `phase` takes; nothing where the phase stays.
    pub fn of(after: &TaskState, phase: Option<&Phase>, phases: &Phases, gates: &[Gate]) -> Self {
        let Some(name) = phase.map(Phase::name) else {
            return Self::default();
        };
        let wanted: Vec<&str> = kinds(phases, &name).collect();
        let mut paths: Vec<String> = newest(after)
            .into_iter()
            .filter(|(_, (kind, _))| wanted.contains(kind))
            .map(|(path, _)| path.to_owned())
            .collect();
        paths.sort();
        Self {
            paths,
            commands: gates
                .iter()
                .filter(|gate| gate.phases.contains(&name))
                .cloned()
                .collect(),
        }
    }
}

/// The artifact types that a phase requires.
fn kinds<'p>(phases: &'p Phases, phase: &str) -> impl Iterator<Item = &'p str> {
    let kinds = phases.requires.get(phase).into_iter().flatten();
    kinds.map(|kind| match kind.as_str() {
        "code" => "source",
        other => other,
    })
}

/// Type and hash of the last entry for each path: what was said of it before is past.
pub(super) fn newest(state: &TaskState) -> HashMap<&str, (&str, &str)> {
    state
        .artifacts()
        .map(|artifact| {
            let said = (artifact.kind(), artifact.content_hash());
            (artifact.path(), said)
        })
        .collect()
}

/// Whether the state says what the next agent needs. Of its decisions only those after the first
/// `known` are asked for their reasons: nobody can mend what another brought. `to_somebody` is
/// whether there has to be a next agent at all.
pub(super) fn pre_handoff(after: &TaskState, known: usize, to_somebody: bool) -> GateResult {
    let mut missing: Vec<String> = Vec::new();
    let phase = after.phase();
    for (name, absent) in [
        ("task_title", after.title().trim().is_empty()),
        ("phase", phase.is_none()),
        ("source_agent", after.source_agent().trim().is_empty()),
        (
            "target_agent",
            // After the end there is nobody left to hand on to.
            to_somebody
                && after.target_agent().trim().is_empty()
                && !phase.as_ref().is_some_and(Phase::is_completed),
        ),
    ] {
        if absent {
            missing.push(format!("{name} is not set"));
        }
    }
    missing.extend(without_reason(after, known));
    if missing.is_empty() {
        GateResult::new(PRE_HANDOFF, true, "the task state has every required field")
    } else {
        GateResult::new(PRE_HANDOFF, false, missing.join("; "))
    }
}

/// The first decision after the first `known` that does not say why, and whose it is.
pub(super) fn without_reason(state: &TaskState, known: usize) -> Option<String> {
    let mut bare = state
        .decisions()
        .skip(known)
        .filter(|decision| decision.why().trim().is_empty());
    let first = bare.next()?;
    let of = match first.agent() {
        "" => String::new(),
        agent => format!(" of {}", one_line(agent, SHOWN)),
    };
    let more = match bare.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let what = one_line(first.what(), SHOWN);
    Some(format!("the decision {what:?}{of} has no rationale{more}"))
}

/// Whether the phase has the artifacts that it requires. No result where it requires none.
pub(super) fn phase_gate(
    after: &TaskState,
    phase: &Phase,
    phases: &Phases,
    found: &Found,
) -> Option<GateResult> {
    let name = phase.name();
    let mut required = kinds(phases, &name).peekable();
    required.peek()?;
    let newest = newest(after);
    let mut missing = Vec::new();
    for kind in required {
        let mut of_kind: Vec<(&str, &str)> = newest
            .iter()
            .filter(|(_, said)| said.0 == kind)
            .map(|(path, said)| (*path, said.1))
            .collect();
        of_kind.sort_unstable();
        let flaws: Vec<String> = of_kind
            .iter()
            .map_while(|(path, hash)| flaw(path, hash, found))
            .collect();
        if flaws.len() < of_kind.len() {
            continue;
        }
        missing.push(match flaws.first() {
            None => format!("no {kind} artifact exists"),
            Some(first) if flaws.len() == 1 => format!("no usable {kind} artifact: {first}"),
            Some(first) => format!(
                "no usable {kind} artifact: {first}, and {} more",
                flaws.len() - 1
            ),
        });
    }
    let name = one_line(&name, SHOWN);
    Some(if missing.is_empty() {
        GateResult::new(
            PHASE,
            true,
            format!("{name} has every artifact that it requires"),
        )
    } else {
        let reason = format!("can't enter {name}: {}", missing.join("; "));
        GateResult::new(PHASE, false, reason)
    })
}

/// What is wrong with an artifact, if anything is.
fn flaw(path: &str, hash: &str, found: &Found) -> Option<String> {
    let shown = one_line(path, SHOWN);
    let Some(said) = digest(hash) else {
        return Some(format!("the content_hash of {shown} is not a SHA-256 hash"));
    };
    match found.get(path) {
        Some(Ok(real)) if *real == said => None,
        Some(Ok(_)) => Some(format!("{shown} does not match its content_hash")),
        Some(Err(why)) => Some(format!("{shown}: {why}")),
        None => Some(format!("{shown} was not checked")),
    }
}

/// Whether a person has to say something first. No result where nothing requires one.
pub(super) fn human_gate(after: &TaskState, approved_by: Option<&str>) -> Option<GateResult> {
    let mut open = after.issues().filter(Issue::requires_human);
    let first = open.next()?;
    if let Some(by) = approved_by {
        let reason = format!("approved by {}", one_line(by, SHOWN));
        return Some(GateResult::new(HUMAN, true, reason));
    }
    let more = match open.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let what = one_line(first.what(), 2 * SHOWN);
    let reason = format!("a human must decide: {what}{more}");
    Some(GateResult::new(HUMAN, false, reason))
}

/// What an agent says of gates: `{"passed": [..], "failed": [..]}`, a list of objects with a
/// name and a status, or an object from name to status.
pub fn claimed(value: &Value) -> Vec<GateResult> {
    let mut claims = Vec::new();
    let mut claim = |name: &str, passed: bool, reason: &str| {
        if !name.trim().is_empty() {
            claims.push(GateResult {
                claimed: true,
                ..GateResult::new(name, passed, reason)
            });
        }
    };
    match value {
        Value::Array(items) => {
            for item in items {
                let text = |key: &str| item.get(key).and_then(Value::as_str);
                let name = text("name").or_else(|| text("gate")).unwrap_or("");
                let verdict = ["passed", "status", "result"]
                    .iter()
                    .find_map(|key| passed(item.get(*key)?));
                if let Some(passed) = verdict {
                    claim(name, passed, text("reason").unwrap_or(""));
                }
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                if let ("passed" | "failed", Value::Array(names)) = (key.as_str(), value) {
                    for name in names.iter().filter_map(Value::as_str) {
                        claim(name, key == "passed", "");
                    }
                    continue;
                }
                let verdict = passed(value).or_else(|| passed(value.get("status")?));
                let reason = value.get("reason").and_then(Value::as_str);
                if let Some(passed) = verdict {
                    claim(key, passed, reason.unwrap_or(""));
                }
            }
        }
        _ => {}
    }
    claims
}

fn passed(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(passed) => Some(*passed),
        Value::String(text) => match text.as_str() {
            "passed" | "pass" | "ok" => Some(true),
            "failed" | "fail" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Enters results into a state: each gate's last one counts.
pub(super) fn record(state: &mut TaskState, results: &[GateResult], at: &str) {
    if results.is_empty() {
        return;
    }
    let mut passed: Vec<String> = state.gates_passed().map(str::to_owned).collect();
    let mut failed: Vec<String> = state.gates_failed().map(str::to_owned).collect();
    let reasons = state.document().get("quality_gate_results");
    let mut reasons = reasons
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    for result in results {
        passed.retain(|name| *name != result.name);
        failed.retain(|name| *name != result.name);
        let list = if result.passed {
            &mut passed
        } else {
            &mut failed
        };
        list.push(result.name.clone());
        let mut entry = Map::new();
        let status = if result.passed { "passed" } else { "failed" };
        entry.insert("status".to_owned(), status.into());
        entry.insert("reason".to_owned(), result.reason.as_str().into());
        entry.insert("at".to_owned(), at.into());
        if result.claimed {
            entry.insert("claimed".to_owned(), true.into());
        }
        reasons.insert(result.name.clone(), Value::Object(entry));
    }
    state.set("quality_gates_passed", passed);
    state.set("quality_gates_failed", failed);
    state.set("quality_gate_results", reasons);
}
