//! What an attempt is given of its task: `handoff_command` in its record.
//!
//! It is made when the record is claimed, for each attempt anew. It is a copy for the agent: the
//! daemon never reads it.

use serde_json::Value;

use super::brought::{given, title_of};
use super::{first_phase, store, weigh};
use crate::engine::world::World;
use crate::policy::task::{Limits, command_for, summary, task_of};
use crate::protocol::agent::AgentName;
use crate::protocol::record::{COMMAND, Record};
use crate::protocol::task::{Counts, Phase, TaskState};
use crate::protocol::view::View;

/// Writes the command for its next attempt into a record that names a task.
pub fn give_command(world: &World, record: &mut Record, agent: &AgentName) {
    let Some(task) = task_of(record) else {
        return;
    };
    let now = world.now().wall;
    let store = store(world);
    let loaded = store.load(&task);
    let error = loaded.as_ref().err().map(ToString::to_string);
    let stored = loaded.ok().flatten();
    let last = stored.as_ref().and_then(|state| store.last_handoff(state));
    let mut state =
        stored.unwrap_or_else(|| TaskState::begin(task.clone(), &title_of(record, &task), now));
    if state.phase().is_none() {
        let own = View::of_record(record).phase().map(Value::String);
        let own = own.as_ref().and_then(Phase::asked);
        let phase = own.map_or_else(|| first_phase(world), |phase| phase.value().clone());
        state.set("phase", phase);
    }
    let (mut given, _) = given(record, now);
    given
        .artifacts
        .retain_mut(|artifact| weigh(world, artifact));
    let mut came = if given.is_empty() {
        last.map_or_else(Counts::default, |change| change.delta)
    } else {
        Counts {
            artifacts_added: given.artifacts.len(),
            decisions_made: given.decisions.len(),
            blocking_issues: 0,
        }
    };
    given.unknown_to(&state).bring(&mut state);
    came.blocking_issues = state.issues().len();
    let told = match error {
        None => summary(&state, Limits::of(&world.config().context)),
        Some(error) => format!("The task state is unusable: {error}"),
    };
    let command = command_for(&agent.to_string(), &state, came, &told);
    record.lift(COMMAND, command);
}
