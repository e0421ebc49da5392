//! What an outcome brings to the state of its task, read from the decided record.

use serde_json::{Map, Value};

use crate::clock::Wall;
use crate::policy::next::human_issue;
use crate::policy::task::{Delta, Given, key_of, task_of};
use crate::protocol::attempt::AttemptOutcome;
use crate::protocol::dialect::Dialect;
use crate::protocol::field::FieldError;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::task::{Phase, TaskId};
use crate::protocol::view::View;

/// What an outcome brings to its task.
pub(super) struct Brought {
    pub task: TaskId,
    /// Names the outcome, so that it is taken in once.
    pub key: String,
    pub delta: Delta,
    /// What can't be brought into the state's form, and is left out.
    pub wrong: Vec<FieldError>,
    pub title: String,
    pub phase: Option<Phase>,
    pub given: Given,
}

/// What a decided record has for its task, if it has something.
pub(super) fn brought(record: &Record, id: &str, now: Wall) -> Option<Brought> {
    let task = task_of(record)?;
    let result = record.doc.get("result")?.as_object()?;
    let attempt = record.meta.attempts.last();
    let completed = record.meta.to == Some(State::Completed);
    // What a specialist found out before it was blocked is known, whoever helps it, or nobody.
    let helped = matches!(
        (record.meta.to, attempt.and_then(|attempt| attempt.outcome)),
        (
            Some(State::Waiting),
            Some(AttemptOutcome::Blocked | AttemptOutcome::Delegated)
        ) | (Some(State::Failed), Some(AttemptOutcome::Blocked))
    );
    let held = record.meta.to == Some(State::Waiting)
        && record
            .doc
            .get("waiting")
            .and_then(|it| it.get("on")?.as_str())
            == Some("human")
        && human_issue(result).is_some();
    let view = View::of_record(record);
    // So is what a blocked report says that somebody dropped.
    let dropped = is_dropped_block(&view, record) && !completed;
    let helped = helped || dropped;
    if !(completed || helped || held) {
        return None;
    }
    let source = view.agent_written().unwrap_or("unknown").to_owned();
    let (mut delta, wrong) = Delta::of_result(result, &source, now);
    if let Some(artifacts) = delivered(record) {
        delta.artifacts = artifacts;
    }
    if helped {
        (delta.phase, delta.target) = (None, None);
    }
    if dropped {
        // The report comes with them again, whatever becomes of it.
        (delta.artifacts, delta.decisions) = (Vec::new(), Vec::new());
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
        delta.approved_by = Some(by.unwrap_or("a human").to_owned());
    }
    let (given, mut wrong_in_package) = given(record, now);
    wrong_in_package.extend(wrong);
    let title = title_of(record, &task);
    Some(Brought {
        key: key_of(id, attempt, record),
        task,
        delta,
        wrong: wrong_in_package,
        title,
        phase: worked_in(record, result),
        given,
    })
}

/// Whether a record is a blocked report that nobody has worked on.
fn is_dropped_block(view: &View<'_>, record: &Record) -> bool {
    let is_blocked = view.dialect == Dialect::Report && view.status == Some("blocked");
    is_blocked && record.meta.attempts.is_empty()
}

/// What a task is called that has no state yet.
pub(super) fn title_of(record: &Record, task: &TaskId) -> String {
    let acknowledged = record.doc.get("acknowledgment");
    let understood = acknowledged.and_then(|said| said.get("understood")?.get("task"));
    let title = View::of_record(record).context("task_title").or(understood);
    title.and_then(Value::as_str).map_or_else(
        || task.as_str().to_owned(),
        |title| title.chars().take(200).collect(),
    )
}

/// The phase of the work itself.
fn worked_in(record: &Record, result: &Map<String, Value>) -> Option<Phase> {
    let own = View::of_record(record).phase().map(Value::String);
    let worked = result.get("phase").filter(|phase| !phase.is_null());
    worked.cloned().or(own).as_ref().and_then(Phase::asked)
}

/// The decisions and artifacts that a package itself brings, or a report that another agent goes on
/// with, and what of them can't be brought into the state's form.
pub(super) fn given(record: &Record, now: Wall) -> (Given, Vec<FieldError>) {
    let view = View::of_record(record);
    let (brought, path) = match view.dialect {
        Dialect::Package => {
            let inside = view.handoff().and_then(|handoff| handoff.get("context"));
            (inside.and_then(Value::as_object), "handoff.context.")
        }
        // Without an attempt the report itself is the result, unless it is blocked.
        Dialect::Report if !record.meta.attempts.is_empty() || is_dropped_block(&view, record) => {
            (Some(view.doc), "")
        }
        _ => (None, ""),
    };
    let Some(mut lists) = brought.cloned() else {
        return (Given::default(), Vec::new());
    };
    lists.retain(|key, _| ["decisions", "artifacts"].contains(&key.as_str()));
    let at = view.get("timestamp").and_then(Value::as_str);
    let at = at.and_then(Wall::parse).unwrap_or(now);
    let (delta, mut wrong) = Delta::read(&lists, view.source(), at);
    for error in &mut wrong {
        error.field = format!("{path}{}", error.field);
    }
    let given = Given {
        artifacts: delta.artifacts,
        decisions: delta.decisions,
    };
    (given, wrong)
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
