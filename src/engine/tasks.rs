//! Tasks: what an outcome does to the state of the task that its handoff belongs to.
//!
//! Before an outcome is decided its gates are asked; what they said stands in the record. The
//! state itself is changed as an effect of the decided record, and knows which outcomes it has
//! taken in, so that a crash in between neither loses one nor applies it twice.

mod answered;
mod brought;
mod given;

use std::io;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::clock::Wall;
use crate::engine::reading::up_to_the_limit;
use crate::engine::rights;
use crate::engine::story::state_unwritten;
use crate::engine::world::World;
use crate::policy::complete::warn;
use crate::policy::judge::{Failure, MEND, failure};
use crate::policy::task::{
    Draft, Found, GateResult, Limits, Refusal, Step, draft, settle, summary,
};
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::record::Record;
use crate::protocol::task::{TaskId, TaskState};
use crate::runner::gate;
use crate::spool::change::Change;
use crate::store::artifacts::{Presence, RelPath, Unread};
use crate::store::tasks::{Store, StoreError};

pub use crate::policy::task::task_of;
pub use answered::{hold_against_gates, report_against_gates};
use brought::{Brought, brought};
pub use given::give_command;

/// How long one try waits for a task's lock; it is tried again as long as it takes.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Where a record keeps what its gates said.
const GATES: &str = "gates";

fn store(world: &World) -> Store {
    Store::new(world.layout.root(), world.config().daemon.durability).waiting(LOCK_WAIT)
}

/// What an attempt is told of its task.
pub fn told(world: &World, task: &str) -> Option<String> {
    let task = TaskId::parse(task).ok()?;
    let state = store(world).load(&task).ok()??;
    Some(summary(&state, Limits::of(&world.config().context)))
}

/// Whether a decided record has something for its task.
pub fn concerns(record: &Record) -> bool {
    brought(record, "", Wall(0)).is_some()
}

/// The state that an outcome is laid on: the stored one, or a new one. What every handoff knows and a
/// stored one lacks is filled in, so that nobody is held up for what somebody else has left out.
fn before(world: &World, stored: Option<TaskState>, brought: &Brought) -> TaskState {
    let now = world.now().wall;
    let mut state =
        stored.unwrap_or_else(|| TaskState::begin(brought.task.clone(), &brought.title, now));
    if state.title().trim().is_empty() {
        state.set("task_title", brought.title.as_str());
    }
    if state.phase().is_none() {
        let phase = brought.phase.as_ref().map(|phase| phase.value().clone());
        state.set("phase", phase.unwrap_or_else(|| first_phase(world)));
    }
    let mut given = brought.given.clone().unknown_to(&state);
    given
        .artifacts
        .retain_mut(|artifact| measure(world, artifact));
    given.bring(&mut state);
    state
}

/// Where a task begins of which nobody says more.
fn first_phase(world: &World) -> Value {
    let config = world.config();
    let first = config.phases.order.first();
    first.map_or_else(|| "started".into(), |phase| phase.as_str().into())
}

/// Adds hash and size to the entry of a file that has no hash; a folder has none, and a file above
/// the limit gets none. False if nothing is there.
fn measure(world: &World, artifact: &mut Map<String, Value>) -> bool {
    let text = |key: &str| artifact.get(key).and_then(Value::as_str);
    let Some(Ok(path)) = text("path").map(RelPath::parse) else {
        return true;
    };
    if text("content_hash").is_none() {
        let bounds = up_to_the_limit(&world.config());
        if let Ok(measured) = world.artifacts.measure_within(&path, bounds) {
            artifact.insert("content_hash".to_owned(), measured.sha256.into());
            artifact.insert("size_bytes".to_owned(), measured.size_bytes.into());
        }
    }
    world.artifacts.presence(&path) != Presence::Missing
}

/// Adds its size to the entry of a file that has none. False if nothing is there.
fn weigh(world: &World, artifact: &mut Map<String, Value>) -> bool {
    let path = artifact.get("path").and_then(Value::as_str);
    let Some(Ok(path)) = path.map(RelPath::parse) else {
        return true;
    };
    let presence = world.artifacts.presence(&path);
    if let Presence::File { size_bytes } = presence {
        artifact
            .entry("size_bytes")
            .or_insert_with(|| size_bytes.into());
    }
    presence != Presence::Missing
}

/// Asks the gates of a success that is not decided yet: `preview` is the record as it would be.
/// What they said, or why the work can't be accepted.
pub fn ask_gates(world: &World, preview: &Record, id: &str) -> Result<Vec<Value>, Box<Failure>> {
    let config = world.config();
    let now = world.now().wall;
    let Some(brought) = brought(preview, id, now) else {
        return Ok(Vec::new());
    };
    let store = store(world);
    let Ok(stored) = store.load(&brought.task) else {
        // The record says what is wrong with it.
        return Ok(Vec::new());
    };
    let before = before(world, stored, &brought);
    let drafted = draft(
        &before,
        &brought.delta,
        Some(&brought.key),
        &config.phases,
        now,
    );
    let new = match drafted {
        Ok(Draft::New(new)) => new,
        Ok(Draft::Already { .. }) => return Ok(Vec::new()),
        Err(refusal) => {
            let field = FieldError::new("handoff.next_phase", &refusal);
            return Err(refused(
                preview,
                format!("the task can't enter that phase: {refusal}"),
                field,
            ));
        }
    };
    let asked = new.asked(&config.phases, &config.gates);
    let bytes = serde_json::to_vec_pretty(new.after().document()).unwrap_or_default();
    let terms = gate::Terms {
        root: world.layout.root(),
        task_id: brought.task.as_str(),
        timeout: config.defaults.timeout,
        kill_grace: config.defaults.kill_grace,
    };
    let said: Vec<GateResult> = asked
        .commands
        .iter()
        .map(|gate| {
            let answer = match rights::command(terms.root, &gate.command) {
                Some(wrong) => gate::Said {
                    passed: false,
                    reason: format!("did not run: {wrong}"),
                },
                None => gate::run(gate, &bytes, &terms),
            };
            GateResult::new(&gate.name, answer.passed, answer.reason)
        })
        .collect();
    let found = look_up(world, asked.paths);
    let step = settle(
        &new,
        &found,
        said.clone(),
        &config.phases,
        &config.gates,
        now,
    );
    if let Step::Failed { state, gates } = step {
        if let Err(error) = store.save(&state) {
            tracing::warn!(
                handoff_id = id,
                "can't save the results of the gates: {error}"
            );
        }
        let list = listed(&gates);
        let field = FieldError::new("quality_gates", &list);
        let message = format!("a quality gate failed: {list}");
        return Err(refused(preview, message, field));
    }
    Ok(said
        .into_iter()
        .map(|gate| json!({"name": gate.name, "passed": gate.passed, "reason": gate.reason}))
        .collect())
}

fn refused(preview: &Record, message: String, field: FieldError) -> Box<Failure> {
    let mut told = failure(ErrorCode::ValidationFailed, message, vec![MEND.to_owned()]);
    told.fields = vec![field];
    told.result = preview
        .doc
        .get("result")
        .and_then(Value::as_object)
        .cloned();
    Box::new(told)
}

fn look_up(world: &World, paths: Vec<String>) -> Found {
    let config = world.config();
    let bounds = up_to_the_limit(&config);
    let measure = |path: &str| {
        let path = RelPath::parse(path)?;
        match world.artifacts.measure_within(&path, bounds) {
            Ok(measured) => Ok(measured.sha256),
            Err(Unread::Refused(why)) => Err(why),
            Err(_) => Err("is larger than daemon.max_artifact_size allows".to_owned()),
        }
    };
    paths
        .into_iter()
        .map(|path| (path.clone(), measure(&path)))
        .collect()
}

/// Keeps in the record what its gates said, for the effect.
pub fn keep_gates(record: &mut Record, said: Vec<Value>) {
    // What gates said of an earlier attempt's work is past.
    record.meta.extra.shift_remove(GATES);
    if !said.is_empty() {
        record
            .meta
            .extra
            .insert(GATES.to_owned(), Value::Array(said));
    }
}

fn kept_gates(record: &Record) -> Vec<GateResult> {
    let kept = record.meta.extra.get(GATES).and_then(Value::as_array);
    kept.into_iter()
        .flatten()
        .filter_map(|gate| {
            let text = |key: &str| gate.get(key).and_then(Value::as_str);
            let passed = gate.get("passed")?.as_bool()?;
            Some(GateResult::new(
                text("name")?,
                passed,
                text("reason").unwrap_or(""),
            ))
        })
        .collect()
}

/// An outcome as it will be in the state of its task.
struct Taken {
    step: Step,
    /// Why the task does not go where the result says.
    stays: Option<Refusal>,
    /// What it decided without a reason.
    bare: Option<String>,
}

/// Lays a decided outcome on a state; none if it is in it already.
fn take_in(
    world: &World,
    record: &Record,
    brought: &Brought,
    stored: Option<TaskState>,
) -> Option<Taken> {
    let config = world.config();
    let now = world.now().wall;
    let before = before(world, stored, brought);
    let key = Some(brought.key.as_str());
    let mut drafted = draft(&before, &brought.delta, key, &config.phases, now);
    let mut stays = None;
    if let Err(refusal) = drafted {
        // Nobody asked before, or the order was changed: what was done is kept, where it stands stays.
        stays = Some(refusal);
        let mut delta = brought.delta.clone();
        delta.phase = None;
        drafted = draft(&before, &delta, key, &config.phases, now);
    }
    let Ok(Draft::New(new)) = drafted else {
        return None;
    };
    let asked = new.asked(&config.phases, &config.gates);
    let named = |gate: &GateResult| asked.commands.iter().any(|known| known.name == gate.name);
    let commands = kept_gates(record).into_iter().filter(named).collect();
    let found = look_up(world, asked.paths.clone());
    Some(Taken {
        step: settle(&new, &found, commands, &config.phases, &config.gates, now),
        stays,
        bare: new.without_reason(),
    })
}

/// Says in a record that is about to be decided what of it will not be in its task's state, and why:
/// whoever looks at the record need not know the daemon's log.
pub fn forewarn(world: &World, record: &mut Record, id: &str) {
    let Some(brought) = brought(record, id, world.now().wall) else {
        return;
    };
    let task = &brought.task;
    let mut warnings: Vec<String> = brought
        .wrong
        .iter()
        .map(|error| format!("left out of the state of task {task}: {error}"))
        .collect();
    match store(world).load(task) {
        // It is tried again as long as it takes.
        Err(StoreError::Io { .. }) => {}
        Err(error) => warnings.push(unwritten(task, &error)),
        Ok(stored) => {
            if let Some(taken) = take_in(world, record, &brought, stored) {
                if let Err(error) = store(world).check_size(taken.step.state()) {
                    warnings.push(unwritten(task, &error));
                }
                warnings.extend(taken.warnings(task));
            }
        }
    }
    warn(record, warnings);
}

impl Taken {
    fn warnings(self, task: &TaskId) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(refusal) = self.stays {
            warnings.push(format!("task {task} stays in its phase: {refusal}"));
        }
        if let Some(bare) = self.bare {
            warnings.push(format!(
                "in the state of task {task}, {bare}: make the specialist give the reason for \
                 each decision"
            ));
        }
        if let Step::Failed { gates, .. } = self.step {
            let list = listed(&gates);
            warnings.push(format!(
                "the state of task {task} lacks this outcome, because a quality gate failed: \
                 {list}; the data is in result: fix the cause, then add it with handoffd state \
                 handoff {task}"
            ));
        }
        warnings
    }
}

fn listed(gates: &[GateResult]) -> String {
    let told = |gate: &GateResult| format!("{}: {}", gate.name, gate.reason);
    gates.iter().map(told).collect::<Vec<_>>().join("; ")
}

fn unwritten(task: &TaskId, error: &StoreError) -> String {
    format!(
        "the state of task {task} lacks this outcome: {error}; the data is in result: fix that \
         file, then add it with handoffd state handoff {task}"
    )
}

/// Takes a decided outcome into the state of its task, once. Only trouble that passes is an
/// error: what can't be written ever is told, and does not hold up the handoff.
pub fn apply(world: &World, record: &Record, id: &str) -> io::Result<()> {
    let now = world.now().wall;
    let Some(brought) = brought(record, id, now) else {
        return Ok(());
    };
    let updated = store(world).update(&brought.task, |stored| {
        let taken = take_in(world, record, &brought, stored);
        Ok::<_, StoreError>(taken.map(|taken| taken.step.state().clone()))
    });
    match updated {
        Ok(_) => Ok(()),
        Err(error @ (StoreError::Locked { .. } | StoreError::Conflict { .. })) => {
            Err(io::Error::other(error.to_string()))
        }
        Err(StoreError::Io { source, path }) => Err(io::Error::new(
            source.kind(),
            format!("{}: {source}", path.display()),
        )),
        Err(error) => {
            tracing::error!(
                handoff_id = id,
                "can't write its outcome to the task state: {error}"
            );
            let line = state_unwritten(id, &brought.task, &error.to_string(), now);
            world.committer.submit(Change::Note, vec![line], |_| {});
            Ok(())
        }
    }
}
