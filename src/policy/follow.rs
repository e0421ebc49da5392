//! What a result sets in motion: the next step, or helpers that are asked first.
//!
//! Everything is decided here and written into the record; the handoffs themselves are made
//! afterwards, from what the record says.

use serde_json::{Map, Value, json};

use crate::clock::Wall;
use crate::config::{Config, Step};
use crate::protocol::agent::AgentName;
use crate::protocol::dialect::Dialect;
use crate::protocol::digest::sha256;
use crate::protocol::links::Spawn;
use crate::protocol::record::{Attempt, AttemptOutcome, Record};
use crate::protocol::view::View;

/// How many sub-tasks one result may ask for.
pub const MAX_CHILDREN: usize = 1000;

/// The longest id of the first handoff that its followers carry whole.
const MAX_CHAIN: usize = 150;

/// What follows from a success.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Followed {
    pub spawn: Option<Spawn>,
    pub warnings: Vec<String>,
}

/// One handoff that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub agent: AgentName,
    pub phase: Option<Value>,
    pub input: Map<String, Value>,
    pub context: Map<String, Value>,
    pub workflow_state: Option<Value>,
    /// A result asked for it, so it counts against `max_hops`.
    pub by_result: bool,
}

/// Where in a configured workflow a handoff stands.
enum Position<'c> {
    Outside,
    Last,
    Before(&'c Step, Value),
}

/// The step after a success: the workflow's, else whom the result names.
pub fn after_success(
    record: &Record,
    id: &str,
    result: &Map<String, Value>,
    config: &Config,
    now: Wall,
) -> Followed {
    let mut followed = Followed::default();
    let named = result
        .get("handoff")
        .and_then(|handoff| handoff.get("next_agent")?.as_str())
        .and_then(|agent| AgentName::parse(agent).ok());
    let view = View::of_record(record);
    let asked = match position(record, &view, config) {
        Position::Before(step, workflow_state) => {
            if let Some(named) = named.filter(|named| *named != step.agent) {
                followed.warnings.push(format!(
                    "the result names {named} as the next agent; the workflow goes on with {}",
                    step.agent
                ));
            }
            Asked {
                agent: step.agent.clone(),
                phase: Some(step.phase.clone().into()),
                input: handed_on(record, result),
                context: carried(&view),
                workflow_state: Some(workflow_state),
                by_result: false,
            }
        }
        Position::Last => {
            if let Some(named) = named {
                followed.warnings.push(format!(
                    "the result names {named} as the next agent, but the workflow ends here"
                ));
            }
            return followed;
        }
        Position::Outside => {
            let Some(agent) = named else {
                followed.warnings.extend(mistaken(&view, config));
                return followed;
            };
            Asked {
                agent,
                phase: result
                    .get("handoff")
                    .and_then(|handoff| handoff.get("next_phase"))
                    .filter(|phase| !phase.is_null())
                    .cloned(),
                input: handed_on(record, result),
                context: carried(&view),
                workflow_state: view.get("workflow_state").cloned(),
                by_result: true,
            }
        }
    };
    followed.spawn = Some(spawn(record, id, asked, 0, config, now));
    followed
}

/// A workflow that is not configured is carried, not acted on. Where others are, that may be a
/// mistake.
fn mistaken(view: &View<'_>, config: &Config) -> Option<String> {
    let name = view.get("workflow_state")?.get("name")?.as_str()?;
    let known: Vec<&str> = config.workflows.keys().map(AsRef::as_ref).collect();
    (!known.is_empty() && !known.contains(&name)).then(|| {
        format!(
            "workflow_state names {name:?}, which is not configured ({} is): no step follows",
            known.join(", ")
        )
    })
}

fn position<'c>(record: &Record, view: &View<'_>, config: &'c Config) -> Position<'c> {
    let Some(Value::Object(state)) = view.get("workflow_state") else {
        return Position::Outside;
    };
    let name = state.get("name").and_then(Value::as_str);
    let Some(steps) = name.and_then(|name| config.workflows.get(name)) else {
        return Position::Outside;
    };
    let own = view.agent();
    let current = state
        .get("current_step")
        .and_then(Value::as_u64)
        .and_then(|step| usize::try_from(step).ok())
        .or_else(|| {
            let at = steps
                .iter()
                .position(|step| Some(&step.agent) == own.as_ref());
            at.map(|at| at + 1)
        })
        .unwrap_or(1);
    // A report that was handed on names the step that it reports; the next agent's is the next.
    let handed_on = view.dialect == Dialect::Report && !record.meta.attempts.is_empty();
    let is_next = steps.get(current).map(|step| &step.agent) == own.as_ref();
    let current = current + usize::from(handed_on && is_next);
    let Some(next) = steps.get(current) else {
        return Position::Last;
    };
    let phases =
        |steps: &[Step]| -> Vec<String> { steps.iter().map(|step| step.phase.clone()).collect() };
    let mut state = state.clone();
    state.insert("current_step".to_owned(), (current + 1).into());
    state.insert(
        "completed_steps".to_owned(),
        json!(phases(&steps[..current])),
    );
    state.insert(
        "remaining_steps".to_owned(),
        json!(phases(&steps[current + 1..])),
    );
    Position::Before(next, Value::Object(state))
}

/// What the next agent is told, out of a result.
pub fn handed_on(record: &Record, result: &Map<String, Value>) -> Map<String, Value> {
    let mut data = Map::new();
    let handoff = result.get("handoff").and_then(Value::as_object);
    let mut put = |key: &str, value: Option<&Value>| {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            data.insert(key.to_owned(), value.clone());
        }
    };
    put(
        "context",
        handoff.and_then(|handoff| handoff.get("context")),
    );
    for key in [
        "summary",
        "phase",
        "files_modified",
        "verification",
        "decisions",
    ] {
        put(key, result.get(key));
    }
    let delivered = record
        .doc
        .get("output")
        .and_then(|output| output.get("artifacts"));
    put("artifacts", delivered.or_else(|| result.get("artifacts")));
    for key in ["open_questions", "expectations"] {
        let inside = handoff.and_then(|handoff| handoff.get(key));
        put(key, inside.or_else(|| result.get(key)));
    }
    data
}

/// The context that goes with a handoff wherever it goes.
pub fn carried(view: &View<'_>) -> Map<String, Value> {
    let inside = view
        .handoff()
        .and_then(|handoff| handoff.get("context")?.as_object());
    let top = view.doc.get("context").and_then(Value::as_object);
    let mut context = top.cloned().unwrap_or_default();
    for key in ["task_id", "project_id"] {
        if let Some(value) = inside.and_then(|inside| inside.get(key)) {
            context.insert(key.to_owned(), value.clone());
        }
    }
    context
}

/// Helpers that a result asks for. `Err` with those of them that may not be, at least one.
pub fn delegates(
    record: &Record,
    id: &str,
    asked: Vec<Asked>,
    config: &Config,
    now: Wall,
) -> Result<Vec<Spawn>, Vec<Spawn>> {
    let spawns: Vec<Spawn> = asked
        .into_iter()
        .enumerate()
        .map(|(index, asked)| spawn(record, id, asked, index, config, now))
        .collect();
    if spawns.iter().all(|spawn| spawn.refused.is_none()) {
        return Ok(spawns);
    }
    let refused = |spawn: &Spawn| spawn.refused.is_some();
    Err(spawns.into_iter().filter(refused).collect())
}

/// Why helpers may not be, in the words of the first.
pub fn why_refused(refused: &[Spawn]) -> String {
    let why = refused.iter().find_map(|spawn| spawn.refused.clone());
    why.unwrap_or_default()
}

/// Makes the request, or says why it is refused.
fn spawn(
    record: &Record,
    id: &str,
    asked: Asked,
    index: usize,
    config: &Config,
    now: Wall,
) -> Spawn {
    let links = &record.meta.links;
    let view = View::of_record(record);
    let hop = links.hop.saturating_add(1);
    let count = if asked.by_result {
        asked_with_this(record)
    } else {
        links.asked
    };
    let chain = links.chain_of(id);
    let input = Value::Object(asked.input);
    let entry = format!(
        "{} {}",
        asked.agent,
        &sha256(input.to_string().as_bytes())[..16]
    );
    let refused = refusal(record, id, &asked.agent, &entry, asked.by_result, config);
    let attempts = &record.meta.attempts;
    let attempt = attempts
        .last()
        .map_or((0, now), |it| (it.number, it.started_at));
    // One attempt, or none at all, may set several in motion one after the other.
    let child = child_id(chain, hop, id, attempt, links.children.len() + index);
    let mut request = Map::new();
    request.insert("handoff_id".to_owned(), child.clone().into());
    request.insert("timestamp".to_owned(), now.to_string().into());
    let mut source = Map::new();
    // A dropped report is the work of whoever reported, not of whom it names next.
    let reported = view.dialect == Dialect::Report && record.meta.attempts.is_empty();
    let (agent, phase) = if reported {
        (view.source(), view.doc.get("phase").cloned())
    } else {
        (view.agent_written(), view.phase().map(Value::String))
    };
    if let Some(agent) = agent {
        source.insert("agent_id".to_owned(), agent.into());
    }
    if let Some(phase) = phase {
        source.insert("phase".to_owned(), phase);
    }
    request.insert("source".to_owned(), Value::Object(source));
    let mut target = Map::from_iter([("agent_id".to_owned(), asked.agent.to_string().into())]);
    if let Some(phase) = asked.phase {
        target.insert("phase".to_owned(), phase);
    }
    request.insert("target".to_owned(), Value::Object(target));
    if !asked.context.is_empty() {
        request.insert("context".to_owned(), Value::Object(asked.context));
    }
    request.insert("input".to_owned(), json!({ "data": input }));
    if let Some(priority) = view.get("priority") {
        request.insert("priority".to_owned(), priority.clone());
    }
    if let Some(state) = asked.workflow_state {
        request.insert("workflow_state".to_owned(), state);
    }
    let mut trail: Vec<String> = links.trail.iter().chain(&links.asks).cloned().collect();
    if asked.by_result {
        trail.push(entry);
    }
    request.insert(
        "handoffd".to_owned(),
        json!({
            "format": 1, "revision": 0, "attempts": [],
            "chain": chain, "hop": hop,
            "asked": count, "parent": id, "trail": trail,
        }),
    );
    Spawn {
        id: child,
        request,
        refused,
    }
}

/// How many times results have asked on the way to here, with the one that asks now. Every
/// delegation of one handoff counts, also if it comes back each time; all the helpers that one
/// result asks for are one.
fn asked_with_this(record: &Record) -> u32 {
    let attempts = record.meta.current_attempts();
    let earlier = attempts.split_last().map_or(0, |(_, earlier)| {
        let delegated = |attempt: &&Attempt| {
            let outcome = attempt.outcome;
            matches!(
                outcome,
                Some(AttemptOutcome::Blocked | AttemptOutcome::Delegated)
            )
        };
        earlier.iter().filter(delegated).count()
    });
    let earlier = u32::try_from(earlier).unwrap_or(u32::MAX);
    record
        .meta
        .links
        .asked
        .saturating_add(earlier)
        .saturating_add(1)
}

/// Why a result may not ask for this, in a sentence that names the chain.
fn refusal(
    record: &Record,
    id: &str,
    agent: &AgentName,
    entry: &str,
    by_result: bool,
    config: &Config,
) -> Option<String> {
    if !by_result {
        return None;
    }
    let links = &record.meta.links;
    let before = || links.trail.iter().chain(&links.asks);
    let way: Vec<&str> = before()
        .filter_map(|entry| entry.rsplit_once(' '))
        .map(|(agent, _)| agent)
        .collect();
    let way = way.join(" → ");
    let chain = links.chain_of(id);
    let asked = asked_with_this(record);
    if before().any(|known| known == entry) {
        return Some(format!(
            "chain {chain} goes in a circle: {agent} was asked for the very same before \
             ({way} → {agent})"
        ));
    }
    if asked > config.daemon.max_hops {
        return Some(format!(
            "chain {chain} is too long: {agent} would be hop {asked} that a result asks for, and \
             daemon.max_hops is {} ({way} → {agent})",
            config.daemon.max_hops
        ));
    }
    None
}

/// An id that the same outcome gives again, so that a crash can't make two of one. A parent's id
/// is free when its record is deleted, and its attempts are counted anew, so when the attempt began
/// is part of it: what follows today is not what followed then.
fn child_id(
    chain: &str,
    hop: u32,
    parent: &str,
    (attempt, begun): (u32, Wall),
    index: usize,
) -> String {
    let chain: String = chain.chars().take(MAX_CHAIN).collect();
    let made_from = format!("{parent}\0{attempt}\0{begun}\0{index}");
    let hash = &sha256(made_from.as_bytes())[..8];
    format!("{}.{hop}-{hash}", chain.replace('~', "-"))
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
