//! A handoff as a change of its task's state.
//!
//! Three ends. All gates pass: the delta is in, the phase moves, the target is the next agent.
//! A human has to decide: the delta is in, so that the question can be read, but phase and
//! target stay until somebody approves. Another gate fails: nothing of the delta is in, because
//! the next attempt brings its own; only what the gates said is recorded.
//!
//! An outcome has a key. One that was applied is remembered in the state itself, in the same
//! write, so it can't be applied twice whatever crashes in between.

use serde_json::{Map, Value, json};

use super::compact::context_summary;
use super::delta::Delta;
use super::gates::{self, Asked, Found, GateResult};
use super::summary::{Limits, summary};
use crate::clock::Wall;
use crate::config::{Gate, Phases};
use crate::protocol::task::{Counts, MAX_APPLIED, Phase, TaskState, change};

/// Behind a key: its delta is in, and a human has to say whether the rest follows.
pub(super) const HELD: &str = "=human";

/// Why a handoff can't be made at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the phase {phase:?} is not in phases.order: {}", order.join(", "))]
    UnknownPhase { phase: String, order: Vec<String> },
    #[error(
        "phases.order does not allow {from:?} → {to:?}: allowed are {next:?} and every earlier \
         phase"
    )]
    Skipped {
        from: String,
        to: String,
        next: String,
    },
}

/// A delta laid on a state, before any gate has spoken.
#[derive(Debug, Clone, PartialEq)]
pub enum Draft {
    /// This outcome is in the state already.
    Already {
        /// It waits for a human.
        held: bool,
    },
    New(Box<New>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct New {
    before: TaskState,
    /// With the delta, but where it was.
    held: TaskState,
    /// With the delta, and handed on.
    after: TaskState,
    entered: Option<Phase>,
    hands_on: bool,
    /// Whether a next agent must be known: a result may move the phase and leave that open.
    to_somebody: bool,
    needs_rationale: bool,
    claims: Vec<GateResult>,
    human: Option<GateResult>,
    key: Option<String>,
}

/// What became of a handoff, and the version to save.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    HandedOn(TaskState),
    WaitsForHuman {
        state: TaskState,
        reason: String,
    },
    Failed {
        state: TaskState,
        gates: Vec<GateResult>,
    },
}

impl Step {
    pub fn state(&self) -> &TaskState {
        match self {
            Self::HandedOn(state)
            | Self::WaitsForHuman { state, .. }
            | Self::Failed { state, .. } => state,
        }
    }
}

/// Lays `delta` on a state. `key` names the outcome, such as `<handoff id>#<attempt>`; without
/// one, the same delta may come twice.
pub fn draft(
    before: &TaskState,
    delta: &Delta,
    key: Option<&str>,
    phases: &Phases,
    now: Wall,
) -> Result<Draft, Refusal> {
    let waits = key.map(|key| format!("{key}{HELD}"));
    let is_held = before
        .applied()
        .any(|known| Some(known) == waits.as_deref());
    if before.applied().any(|known| Some(known) == key) {
        return Ok(Draft::Already { held: false });
    }
    if is_held && delta.approved_by.is_none() {
        return Ok(Draft::Already { held: true });
    }
    let entered = delta
        .phase
        .as_ref()
        .filter(|to| before.phase().as_ref() != Some(*to));
    if let Some(to) = entered {
        check_move(before.phase().as_ref(), to, phases)?;
    }
    let mut held = before.clone();
    if !is_held {
        bring(&mut held, delta);
    }
    if let Some(source) = &delta.source {
        held.set("source_agent", source.as_str());
    }
    held.set("handoff_timestamp", now.to_string());
    held.raise_version();
    let mut after = held.clone();
    if let Some(target) = &delta.target {
        after.set("target_agent", target.as_str());
    } else if delta.phase.as_ref().is_some_and(Phase::is_completed) {
        after.set("target_agent", "");
    }
    if let Some(to) = entered {
        let from = before.document().get("phase").cloned();
        after.set("previous_phase", from.unwrap_or_default());
        after.set("phase", to.value().clone());
        after.set("phase_started_at", now.to_string());
    }
    let human = gates::human_gate(&after, delta.approved_by.as_deref());
    for state in [&mut held, &mut after] {
        let context = context_summary(state);
        state.set("context_summary", context);
    }
    Ok(Draft::New(Box::new(New {
        before: before.clone(),
        held,
        after,
        entered: entered.cloned(),
        hands_on: delta.hands_on || delta.target.is_some() || delta.phase.is_some(),
        to_somebody: delta.hands_on,
        needs_rationale: delta.needs_rationale,
        claims: delta.claims.clone(),
        human,
        key: key.map(str::to_owned),
    })))
}

/// Adds the lists of a delta, and puts its issues in the place of the old ones.
fn bring(state: &mut TaskState, delta: &Delta) {
    let entries = |list: &[Map<String, Value>]| -> Vec<Value> {
        list.iter().cloned().map(Value::Object).collect()
    };
    for (key, list) in [
        ("artifacts", &delta.artifacts),
        ("decisions_made", &delta.decisions),
    ] {
        if !list.is_empty() {
            state.append(key, entries(list));
        }
    }
    if let Some(issues) = &delta.blocking {
        state.set("blocking_issues", entries(issues));
    }
    if !delta.warnings.is_empty() {
        state.append("warnings", delta.warnings.iter().map(|w| w.as_str().into()));
    }
}

/// Whether the configured order allows a move: one step on, or back as far as one likes. Into
/// the order one may come from anywhere.
fn check_move(from: Option<&Phase>, to: &Phase, phases: &Phases) -> Result<(), Refusal> {
    let order = &phases.order;
    if order.is_empty() {
        return Ok(());
    }
    let place = |phase: &Phase| order.iter().position(|name| phase == name.as_str());
    let Some(there) = place(to) else {
        return Err(Refusal::UnknownPhase {
            phase: to.name(),
            order: order.clone(),
        });
    };
    match from.and_then(|from| Some((from, place(from)?))) {
        Some((from, here)) if there > here + 1 => Err(Refusal::Skipped {
            from: from.name(),
            to: to.name(),
            next: order[here + 1].clone(),
        }),
        _ => Ok(()),
    }
}

impl New {
    /// The state as it will be if every gate passes; command gates get it on stdin.
    pub fn after(&self) -> &TaskState {
        &self.after
    }

    /// What must be looked up and run. Nothing while a human has to decide.
    pub fn asked(&self, phases: &Phases, gates: &[Gate]) -> Asked {
        if self.waits() {
            return Asked::default();
        }
        Asked::of(&self.after, self.entered.as_ref(), phases, gates)
    }

    /// What was decided without a reason, of what it brings.
    pub fn without_reason(&self) -> Option<String> {
        gates::without_reason(&self.after, self.known())
    }

    /// How many decisions others have brought.
    fn known(&self) -> usize {
        self.before.decisions().len()
    }

    fn waits(&self) -> bool {
        self.human.as_ref().is_some_and(|human| !human.passed)
    }

    fn remember(&self, state: &mut TaskState, mark: &str) {
        let Some(key) = &self.key else {
            return;
        };
        let mut keys: Vec<Value> = state
            .applied()
            .filter(|known| known.strip_suffix(HELD) != Some(key))
            .map(Value::from)
            .collect();
        keys.push(format!("{key}{mark}").into());
        let over = keys.len().saturating_sub(MAX_APPLIED);
        keys.drain(..over);
        state.set("applied", keys);
    }
}

/// Decides a handoff: `found` is what the paths of [`New::asked`] hold, `commands` what its
/// commands said, `reserved` the gates that no agent may speak for.
pub fn settle(
    new: &New,
    found: &Found,
    commands: Vec<GateResult>,
    phases: &Phases,
    reserved: &[Gate],
    now: Wall,
) -> Step {
    let at = now.to_string();
    let own = [gates::PRE_HANDOFF, gates::PHASE, gates::HUMAN];
    let mut claims = new.claims.clone();
    claims.retain(|claim| {
        let name = claim.name.as_str();
        !own.contains(&name) && !reserved.iter().any(|gate| gate.name == name)
    });
    if new.waits() {
        let mut state = new.held.clone();
        new.remember(&mut state, HELD);
        let human = new.human.clone();
        let reason = human
            .as_ref()
            .map_or(String::new(), |human| human.reason.clone());
        claims.extend(human);
        gates::record(&mut state, &claims, &at);
        return Step::WaitsForHuman { state, reason };
    }
    let mut results = Vec::new();
    if new.hands_on {
        let known = if new.needs_rationale {
            new.known()
        } else {
            usize::MAX
        };
        results.push(gates::pre_handoff(&new.after, known, new.to_somebody));
    }
    if let Some(phase) = &new.entered {
        results.extend(gates::phase_gate(&new.after, phase, phases, found));
    }
    results.extend(commands);
    results.extend(new.human.clone());
    let failed: Vec<GateResult> = results.iter().filter(|r| !r.passed).cloned().collect();
    if !failed.is_empty() {
        let mut state = new.before.clone();
        state.raise_version();
        gates::record(&mut state, &results, &at);
        return Step::Failed {
            state,
            gates: failed,
        };
    }
    let mut state = new.after.clone();
    new.remember(&mut state, "");
    claims.extend(results);
    gates::record(&mut state, &claims, &at);
    Step::HandedOn(state)
}

/// What the next agent gets: who it is for, what came, what to know, and where the rest stands.
pub fn command(before: Option<&TaskState>, after: &TaskState, limits: Limits) -> Value {
    let came = change(before, after, Wall(0)).delta;
    command_for(after.target_agent(), after, came, &summary(after, limits))
}

/// The same for an agent that the daemon runs, with what came to the task before it.
pub fn command_for(target: &str, state: &TaskState, came: Counts, told: &str) -> Value {
    json!({
        "task_id": state.task().as_str(),
        "target_agent": target,
        "phase": state.document().get("phase"),
        "state_delta": came,
        "context_summary": told,
        "state_file": state.task().state_file(),
    })
}
