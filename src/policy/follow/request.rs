//! Requests that the daemon makes for an outcome, and the bounds of a chain.

use serde_json::{Map, Value, json};

use super::bound::bound;
use super::child_id::child_id;
use super::handed::Handed;
use super::{Asked, Author};
use crate::clock::Wall;
use crate::config::Config;
use crate::protocol::agent::AgentName;
use crate::protocol::attempt::{Attempt, AttemptOutcome};
use crate::protocol::digest::{Key, sha256};
use crate::protocol::links::{Spawn, Worktree};
use crate::protocol::record::Record;
use crate::protocol::view::View;

/// Helpers that a result asks for. `Err` with those of them that may not be, at least one.
pub fn delegates(
    record: &Record,
    id: &str,
    asked: Vec<Asked>,
    config: &Config,
    now: Wall,
) -> Result<Vec<Spawn>, Vec<Spawn>> {
    let author = Author::of(record);
    let spawns: Vec<Spawn> = asked
        .into_iter()
        .enumerate()
        .map(|(index, asked)| spawn(record, id, asked, author, index, config, now))
        .map(|spawn| beside(spawn, record, id, config))
        .collect();
    if spawns.iter().all(|spawn| spawn.refused.is_none()) {
        return Ok(spawns);
    }
    let refused = |spawn: &Spawn| spawn.refused.is_some();
    Err(spawns.into_iter().filter(refused).collect())
}

/// Gives a handoff that runs beside others a worktree of its own, which begins at its parent's tip.
fn beside(mut spawn: Spawn, record: &Record, id: &str, config: &Config) -> Spawn {
    let has_worktrees = config.specialists.values().any(|it| it.workspace.is_some());
    if has_worktrees && let Some(own) = spawn.request.get_mut("handoffd") {
        let from = record.meta.links.line_of(id);
        own["worktree"] = json!({ "line": spawn.id, "from": from });
    }
    spawn
}

/// Why helpers may not be, in the words of the first.
pub fn why_refused(refused: &[Spawn]) -> String {
    let why = refused.iter().find_map(|spawn| spawn.refused.clone());
    why.unwrap_or_default()
}

/// Makes the request, or says why it is refused.
pub(super) fn spawn(
    record: &Record,
    id: &str,
    asked: Asked,
    author: Author,
    index: usize,
    config: &Config,
    now: Wall,
) -> Spawn {
    let view = View::of_record(record);
    let link = Link::new(
        record,
        id,
        &asked.agent,
        &asked.said,
        asked.by_result,
        index,
        config,
    );
    let child = link.child_id(record, id, index, now);
    let mut request = Map::new();
    request.insert("handoff_id".to_owned(), child.clone().into());
    request.insert("timestamp".to_owned(), now.to_string().into());
    let mut source = Map::new();
    // A dropped report is the work of its author, not of the agent that it names next.
    let (agent, phase) = if author == Author::Reporter {
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
    let Handed {
        data,
        written,
        mut carried,
    } = asked.handed;
    request.insert("input".to_owned(), json!({ "data": data }));
    if let Some(priority) = view.get("priority") {
        request.insert("priority".to_owned(), priority.clone());
    }
    if let Some(state) = asked.workflow_state {
        request.insert("workflow_state".to_owned(), state);
    }
    bound(&mut request, &written, &mut carried, (record, id), config);
    let refused = link.refused.clone();
    request.insert("handoffd".to_owned(), link.block(id, written, carried));
    Spawn {
        id: child,
        request,
        refused,
    }
}

/// How a handoff that is made for an outcome stands in the chain.
pub(super) struct Link {
    key: Key,
    chain: String,
    hop: u32,
    asked: u32,
    made: u32,
    trail: Vec<String>,
    worktree: Option<Worktree>,
    /// Why it may not be.
    pub refused: Option<String>,
}

impl Link {
    pub fn new(
        record: &Record,
        id: &str,
        agent: &AgentName,
        said: &Value,
        by_result: bool,
        index: usize,
        config: &Config,
    ) -> Self {
        let links = &record.meta.links;
        let entry = format!("{agent} {}", &sha256(said.to_string().as_bytes())[..16]);
        let refused = refusal(record, id, agent, &entry, by_result, index, config);
        let mut trail: Vec<String> = links.trail.iter().chain(&links.asks).cloned().collect();
        if by_result {
            trail.push(entry);
        }
        Self {
            key: config.key,
            chain: links.chain_of(id).to_owned(),
            hop: links.hop.saturating_add(1),
            asked: if by_result {
                asked_with_this(record)
            } else {
                links.asked
            },
            made: made_with_this(record, index),
            trail,
            worktree: links.worktree.clone(),
            refused,
        }
    }

    /// The id of the handoff, which the same outcome gives again.
    pub fn child_id(&self, record: &Record, id: &str, index: usize, now: Wall) -> String {
        let attempts = &record.meta.attempts;
        let attempt = attempts
            .last()
            .map_or((0, now), |it| (it.number, it.started_at));
        // One attempt, or none at all, may set several in motion one after the other.
        let index = record.meta.links.children.len() + index;
        child_id(&self.key, (&self.chain, self.hop), id, attempt, index)
    }

    /// The daemon's own block of the request.
    pub fn block(
        self,
        id: &str,
        written: Map<String, Value>,
        carried: Map<String, Value>,
    ) -> Value {
        let mut block = json!({
            "format": 1, "revision": 0, "attempts": [],
            "chain": self.chain, "hop": self.hop,
            "asked": self.asked, "made": self.made, "parent": id, "trail": self.trail,
        });
        if let Some(tree) = &self.worktree {
            block["worktree"] = json!(tree);
        }
        for (key, value) in [("written", written), ("carried", carried)] {
            if !value.is_empty() {
                block[key] = Value::Object(value);
            }
        }
        block
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

/// How many handoffs the chain has set in motion with the one of this index.
fn made_with_this(record: &Record, index: usize) -> u32 {
    let more = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
    record.meta.links.made.saturating_add(more)
}

/// Why a result may not ask for this, in a sentence that names the chain.
fn refusal(
    record: &Record,
    id: &str,
    agent: &AgentName,
    entry: &str,
    by_result: bool,
    index: usize,
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
            "chain {chain} goes in a circle: {agent} already had the same request \
             ({way} → {agent})"
        ));
    }
    if asked > config.daemon.max_hops {
        return Some(format!(
            "chain {chain} is too long: {agent} would be hop {asked}, and daemon.max_hops is {} \
             ({way} → {agent})",
            config.daemon.max_hops
        ));
    }
    if made_with_this(record, index) > config.daemon.max_chain {
        return Some(format!(
            "chain {chain} is too large: it has set {} handoffs in motion, and daemon.max_chain \
             is {}",
            links.made, config.daemon.max_chain
        ));
    }
    None
}
