//! Tasks: what an outcome does to the state of the task that its handoff belongs to.
//!
//! Before an outcome is decided its gates are asked; what they said stands in the record. The
//! state itself is changed as an effect of the decided record, and knows which outcomes it has
//! taken in, so that a crash in between neither loses one nor applies it twice.

use std::io;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::clock::Wall;
use crate::engine::world::World;
use crate::policy::judge::{Failure, failure};
use crate::policy::next::human_issue;
use crate::policy::task::{
    Delta, Draft, Found, GateResult, MAX_SUMMARY_TOKENS, Step, draft, settle, summary,
};
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::lifecycle::State;
use crate::protocol::record::{Attempt, AttemptOutcome, Record};
use crate::protocol::task::{Phase, TaskId, TaskState};
use crate::protocol::view::View;
use crate::runner::gate;
use crate::store::artifacts::RelPath;
use crate::store::tasks::{Store, StoreError};

/// How long one try waits for a task's lock; it is tried again as long as it takes.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Where a record keeps what its gates said.
const GATES: &str = "gates";

/// What an outcome brings to its task.
struct Brought {
    task: TaskId,
    /// Names the outcome, so that it is taken in once.
    key: String,
    delta: Delta,
    title: String,
    phase: Option<Phase>,
}

fn store(world: &World) -> Store {
    Store::new(world.layout.root(), world.config().daemon.durability).waiting(LOCK_WAIT)
}

/// The task of a record, if it names one.
pub fn task_of(record: &Record) -> Option<TaskId> {
    let named = View::of_record(record).context("task_id")?.as_str()?;
    TaskId::parse(named).ok()
}

/// What an attempt is told of its task.
pub fn told(world: &World, task: &str) -> Option<String> {
    let task = TaskId::parse(task).ok()?;
    let state = store(world).load(&task).ok()??;
    Some(summary(&state, MAX_SUMMARY_TOKENS))
}

/// Whether a decided record has something for its task.
pub fn concerns(record: &Record) -> bool {
    brought(record, "", Wall(0)).is_some()
}

fn brought(record: &Record, id: &str, now: Wall) -> Option<Brought> {
    let task = task_of(record)?;
    let result = record.doc.get("result")?.as_object()?;
    let attempt = record.meta.attempts.last();
    let completed = record.meta.to == Some(State::Completed);
    let helped = record.meta.to == Some(State::Waiting)
        && matches!(
            attempt.and_then(|attempt| attempt.outcome),
            Some(AttemptOutcome::Blocked | AttemptOutcome::Delegated)
        );
    let held = record.meta.to == Some(State::Waiting)
        && record
            .doc
            .get("waiting")
            .and_then(|it| it.get("on")?.as_str())
            == Some("human")
        && human_issue(result).is_some();
    if !(completed || helped || held) {
        return None;
    }
    let view = View::of_record(record);
    let source = view.agent_written().unwrap_or("unknown").to_owned();
    let (mut delta, wrong) = Delta::of_result(result, &source, now);
    for error in wrong {
        tracing::warn!(handoff_id = id, "not taken into the task's state: {error}");
    }
    if let Some(artifacts) = delivered(record) {
        delta.artifacts = artifacts;
    }
    if helped {
        (delta.phase, delta.target) = (None, None);
    }
    if let Some(next) = record.meta.links.spawns.first().filter(|_| completed) {
        let target = next.request.get("target");
        let agent = target.and_then(|target| target.get("agent_id")?.as_str());
        delta.target = agent.map(str::to_owned).or(delta.target);
        let phase = target
            .and_then(|target| target.get("phase"))
            .and_then(Phase::asked);
        delta.phase = delta.phase.or(phase);
    }
    let answer = record.doc.get("answer");
    if answer.and_then(|answer| answer.get("action")?.as_str()) == Some("approve") {
        let by = answer.and_then(|answer| answer.get("by")?.as_str());
        delta.approved_by = Some(by.unwrap_or("a person").to_owned());
    }
    let title = view
        .context("task_title")
        .or_else(|| {
            record
                .doc
                .get("acknowledgment")?
                .get("understood")?
                .get("task")
        })
        .and_then(Value::as_str)
        .map_or_else(
            || task.as_str().to_owned(),
            |title| title.chars().take(200).collect(),
        );
    let own = view.phase().map(Value::String);
    let worked = result
        .get("phase")
        .filter(|phase| !phase.is_null())
        .cloned();
    Some(Brought {
        key: key_of(id, attempt, record),
        task,
        delta,
        title,
        phase: worked.or(own).as_ref().and_then(Phase::asked),
    })
}

/// Names an outcome for good. An id whose record was deleted is free again, and counts its attempts
/// anew, so when it began is part of it; a report, which has no attempt, knows when it ended.
fn key_of(id: &str, attempt: Option<&Attempt>, record: &Record) -> String {
    let number = attempt.map_or(0, |attempt| attempt.number);
    let at = match attempt {
        Some(attempt) => attempt.started_at.to_string(),
        None => record
            .doc
            .get("completed_at")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
    };
    format!("{id}#{number} {at}")
}

/// The artifacts that the daemon took delivery of, in the state's words.
fn delivered(record: &Record) -> Option<Vec<Map<String, Value>>> {
    let list = record.doc.get("output")?.get("artifacts")?.as_array()?;
    let entry = |item: &Value| {
        let mut entry = Map::new();
        for (name, from) in [
            ("path", "path"),
            ("artifact_type", "artifact_type"),
            ("content_hash", "sha256"),
            ("size_bytes", "size_bytes"),
        ] {
            if let Some(value) = item.get(from).filter(|value| !value.is_null()) {
                entry.insert(name.to_owned(), value.clone());
            }
        }
        entry
    };
    Some(list.iter().map(entry).collect())
}

/// The state that an outcome is laid on: the stored one, or a new one.
fn before(
    stored: Option<TaskState>,
    brought: &Brought,
    config: &crate::config::Config,
    now: Wall,
) -> TaskState {
    stored.unwrap_or_else(|| {
        let mut state = TaskState::begin(brought.task.clone(), &brought.title, now);
        let first = config
            .phases
            .order
            .first()
            .map(|phase| Value::from(phase.as_str()));
        let phase = brought.phase.as_ref().map(|phase| phase.value().clone());
        state.set("phase", phase.or(first).unwrap_or_else(|| "started".into()));
        state
    })
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
        // The effect says what is wrong with it.
        return Ok(Vec::new());
    };
    let before = before(stored, &brought, &config, now);
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
                format!("the task can't go there: {refusal}"),
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
            let answer = gate::run(gate, &bytes, &terms);
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
                "what the gates said could not be kept: {error}"
            );
        }
        let list: Vec<String> = gates
            .iter()
            .map(|gate| format!("{}: {}", gate.name, gate.reason))
            .collect();
        let field = FieldError::new("quality_gates", list.join("; "));
        let message = format!("a quality gate failed: {}", list.join("; "));
        return Err(refused(preview, message, field));
    }
    Ok(said
        .into_iter()
        .map(|gate| json!({"name": gate.name, "passed": gate.passed, "reason": gate.reason}))
        .collect())
}

fn refused(preview: &Record, message: String, field: FieldError) -> Box<Failure> {
    let mut told = failure(
        ErrorCode::ValidationFailed,
        message,
        vec!["Let the specialist mend it; its next attempt is told".to_owned()],
    );
    told.fields = vec![field];
    told.result = preview
        .doc
        .get("result")
        .and_then(Value::as_object)
        .cloned();
    Box::new(told)
}

fn look_up(world: &World, paths: Vec<String>) -> Found {
    let measure = |path: &str| {
        let path = RelPath::parse(path)?;
        world
            .artifacts
            .measure(&path)
            .map(|measured| measured.sha256)
    };
    paths
        .into_iter()
        .map(|path| (path.clone(), measure(&path)))
        .collect()
}

/// Keeps in the record what its gates said, for the effect.
pub fn keep_gates(record: &mut Record, said: Vec<Value>) {
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

/// Takes a decided outcome into the state of its task, once. Only trouble that passes is an
/// error: what can't be written ever is told, and does not hold up the handoff.
pub fn apply(world: &World, record: &Record, id: &str) -> io::Result<()> {
    let config = world.config();
    let now = world.now().wall;
    let Some(brought) = brought(record, id, now) else {
        return Ok(());
    };
    let updated = store(world).update(&brought.task, |stored| {
        let before = before(stored, &brought, &config, now);
        let mut delta = brought.delta.clone();
        let mut drafted = draft(&before, &delta, Some(&brought.key), &config.phases, now);
        if drafted.is_err() {
            // The order was changed meanwhile: what was done is kept, where it stands stays.
            delta.phase = None;
            drafted = draft(&before, &delta, Some(&brought.key), &config.phases, now);
        }
        let Ok(Draft::New(new)) = drafted else {
            return Ok::<_, StoreError>(None);
        };
        let asked = new.asked(&config.phases, &config.gates);
        let named = |gate: &GateResult| asked.commands.iter().any(|known| known.name == gate.name);
        let commands = kept_gates(record).into_iter().filter(named).collect();
        let found = look_up(world, asked.paths.clone());
        let step = settle(&new, &found, commands, &config.phases, &config.gates, now);
        Ok(Some(step.state().clone()))
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
                "its outcome is not in the task's state: {error}"
            );
            Ok(())
        }
    }
}
