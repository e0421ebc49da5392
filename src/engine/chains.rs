//! Chains: taking in what helpers gave back, deadlines of questions, and cancelling all below.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::durable;
use crate::engine::commands::MAX_BYTES;
use crate::engine::event::{Event, Folder};
use crate::engine::intake::dependency_state;
use crate::engine::moves::{load, max_retries, write};
use crate::engine::parked::Parked;
use crate::engine::tasks::hold_against_gates;
use crate::engine::world::World;
use crate::policy::follow::{Questions, Said, gather};
use crate::policy::human::{Facts, answer, ask_person, asked_by};
use crate::policy::intake::Dependency;
use crate::policy::kin::is_made;
use crate::policy::next::wait;
use crate::policy::window::refer_to_helpers;
use crate::protocol::control::{Action, Command};
use crate::protocol::error::ErrorCode;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::links::Spawn;
use crate::protocol::record::Record;
use crate::protocol::view::View;
use crate::spool::foreign::own_states;
use crate::spool::look::{Looked, look};

/// How many descendants one cancel may reach.
const MOST_DESCENDANTS: usize = 10_000;

/// The status of a helper whose record is nowhere.
const LOST: &str = "lost";

/// How often to look for a handoff that may be on its way between two folders.
const LOOKS: usize = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// All helpers have ended: what they gave back goes into the record, which runs again, or goes
/// back to the person who had asked.
pub fn take_returns(world: &World, id: &str) {
    let Some(mut record) = load(world, State::Waiting, id) else {
        return world.tell(Event::Unmoved { id: id.to_owned() });
    };
    let waits_for = record
        .doc
        .get("waiting")
        .and_then(|it| it.get("ids")?.as_array());
    let ids: Vec<String> = waits_for
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let lives = |it: &String| dependency_state(&world.layout, it) == Dependency::Live;
    if ids.iter().any(lives) {
        // What ended was not what it waits for.
        return world.tell(Event::Moved {
            id: id.to_owned(),
            to: State::Waiting,
            parked: Parked::of(&record, world.now(), world.boot),
        });
    }
    let returned: Vec<Value> = ids
        .iter()
        .map(|it| returned(world, &record, id, it))
        .collect();
    let lost: Vec<String> = ids
        .iter()
        .zip(&returned)
        .filter(|(_, it)| it["status"] == LOST)
        .map(|(id, _)| id.clone())
        .collect();
    for one in &returned {
        let result = one["result"].as_object();
        if let (Some(helper), Some(result)) = (one["id"].as_str(), result) {
            gather(
                &mut record,
                id,
                helper,
                Said::of_result(result),
                Questions::Add,
            );
        }
    }
    let returns = &mut record.meta.links.returns;
    returns.extend(returned);
    refer_to_helpers(returns);
    let now = world.now();
    let event = if let Some(kind) = asked_by(&record) {
        let how = if lost.is_empty() {
            format!("{} answered", ids.join(", "))
        } else {
            how_returned(&ids, &lost)
        };
        let reason = format!("{how}; see handoffd.returns");
        ask_person(&mut record, kind, &reason, now, world.boot);
        "waiting_human"
    } else {
        let reason = format!("{}; it runs when a slot is free", how_returned(&ids, &lost));
        wait(&mut record, "retry", Some(0), &reason, now, world.boot);
        "returned"
    };
    write(world, id, &record, State::Waiting, event, || {});
}

/// Who came back, and whose record is gone.
fn how_returned(ids: &[String], lost: &[String]) -> String {
    let gone = match (lost, ids) {
        ([], [one]) => return format!("{one} returned"),
        ([], many) => return format!("all {} helpers returned", many.len()),
        ([one], _) => format!("{one} was deleted or moved away"),
        ([first, ..], _) => format!(
            "{} helpers were deleted or moved away, {first} among them",
            lost.len()
        ),
    };
    if lost.len() < ids.len() {
        format!("{gone}; the others returned")
    } else {
        gone
    }
}

/// What one helper gave back.
fn returned(world: &World, record: &Record, parent: &str, child: &str) -> Value {
    let state = own_states(&world.layout, child).first().copied();
    let found = state.and_then(|state| load(world, state, child));
    let (Some(state), Some(found)) = (state, found) else {
        tracing::warn!(
            handoff_id = parent,
            "its helper {child} was deleted or moved away: continuing without it"
        );
        return lost(child, &gone(child));
    };
    if !is_child(world, record, (parent, child), &found) {
        tracing::warn!(
            handoff_id = parent,
            "{child} is not the helper that it asked: continuing without it"
        );
        return lost(child, &forged(child, parent));
    }
    let record = found;
    let result = match state {
        State::Failed => json!({ "error": record.doc.get("error") }),
        _ => with_text(
            record.doc.get("result").cloned().unwrap_or_default(),
            &record,
        ),
    };
    json!({
        "id": child,
        "agent": View::of_record(&record).agent_written(),
        "status": state.status(),
        "result": result,
    })
}

/// A result that is only a text stands in the output of the record.
fn with_text(mut result: Value, record: &Record) -> Value {
    let text = record.doc.get("output").and_then(|it| it.get("text"));
    if let (Value::Object(result), Some(text)) = (&mut result, text)
        && !result.contains_key("output")
    {
        result.insert("output".to_owned(), json!({ "text": text }));
    }
    result
}

/// Whether the daemon made this record for this parent.
fn is_child(world: &World, parent: &Record, (id, child): (&str, &str), found: &Record) -> bool {
    let mut spawns = parent.meta.links.spawns.iter();
    let spawn = spawns.find(|spawn| spawn.id == child);
    is_made(&world.config().key, child, id, spawn, found)
}

/// What comes back for a helper that has no answer, in the place of one that failed.
fn lost(child: &str, message: &str) -> Value {
    let code = ErrorCode::DependencyMissing.as_str();
    json!({
        "id": child, "status": LOST, "result": { "error": { "code": code, "message": message } },
    })
}

fn gone(child: &str) -> String {
    format!(
        "the record of helper {child} was deleted or moved away before its result was taken. \
         Continue without it, or ask for help again"
    )
}

fn forged(child: &str, parent: &str) -> String {
    format!(
        "the record {child} is not the helper that {parent} asked: another request took its \
         place. Continue without it, or ask for help again"
    )
}

/// Nobody answered in time.
pub fn expire(world: &World, id: &str) {
    let Some(mut record) = load(world, State::Waiting, id) else {
        return world.tell(Event::Unmoved { id: id.to_owned() });
    };
    let view = View::of_record(&record);
    let escalate_to = view.text("gate", "escalate_to").map(str::to_owned);
    let on_expiry = view.text("gate", "on_expiry").map(str::to_owned);
    let action = match on_expiry.as_deref() {
        Some("approve") => Action::Approve,
        Some("escalate") => {
            let to = escalate_to.unwrap_or_else(|| "somebody else".to_owned());
            let reason = format!("no answer in time; escalated to {to}");
            escalate(&mut record, &to, &reason, world);
            return write(world, id, &record, State::Waiting, "escalated", || {});
        }
        _ => Action::Reject,
    };
    let Ok(handoff_id) = HandoffId::parse_made(id) else {
        return world.tell(Event::Unmoved { id: id.to_owned() });
    };
    let command = Command {
        action,
        handoff_id,
        by: Some("the deadline".to_owned()),
        comment: Some("no answer in time".to_owned()),
        choice: None,
        revision: None,
    };
    match answer_as(world, &mut record, id, &command, true) {
        Ok(event) => write(world, id, &record, State::Waiting, event, || {}),
        Err(why) => {
            tracing::warn!(handoff_id = id, "can't apply its deadline: {why}");
            world.tell(Event::Unmoved { id: id.to_owned() });
        }
    }
}

/// The question stays, without a deadline, for somebody else.
fn escalate(record: &mut Record, to: &str, reason: &str, world: &World) {
    let mut waiting = record.doc.get("waiting").cloned().unwrap_or_default();
    wait(record, "human", None, reason, world.now(), world.boot);
    if let Some(waiting) = waiting.as_object_mut() {
        waiting.shift_remove("until");
        waiting.insert("reason".to_owned(), reason.into());
        waiting.insert("escalated_to".to_owned(), to.into());
    }
    record.set("waiting", waiting);
}

/// Applies an answer to a record that waits for a person.
pub fn answer_record(
    world: &World,
    record: &mut Record,
    id: &str,
    command: &Command,
) -> Result<&'static str, String> {
    answer_as(world, record, id, command, false)
}

fn answer_as(
    world: &World,
    record: &mut Record,
    id: &str,
    command: &Command,
    expired: bool,
) -> Result<&'static str, String> {
    let config = world.config();
    let facts = Facts {
        id,
        config: &config,
        now: world.now(),
        boot: world.boot,
        max_retries: max_retries(world, record, id),
        expired,
    };
    let before = record.clone();
    let event = answer(record, command, &facts)?;
    Ok(hold_against_gates(world, before, record, id).unwrap_or(event))
}

/// Has everything cancelled that a handoff has set in motion and that has not ended. The
/// commands are files like any other's, so a crash in between loses none of them. Only what
/// names it as its parent too is its own: the list may be a submission's.
pub fn cancel_below(world: &World, record: &Record, id: &str, by: Option<&str>) -> usize {
    let mut seen: HashSet<String> = HashSet::new();
    let below = |record: &Record, id: &str| -> Vec<(String, String, Option<Spawn>)> {
        let links = &record.meta.links;
        let spawn = |child: &String| links.spawns.iter().find(|it| it.id == *child).cloned();
        let children = links.children.iter();
        children
            .map(|child| (id.to_owned(), child.clone(), spawn(child)))
            .collect()
    };
    let mut open = below(record, id);
    let mut cancelled = 0;
    while let Some((parent, child, spawn)) = open.pop() {
        if seen.len() >= MOST_DESCENDANTS || !seen.insert(child.clone()) {
            continue;
        }
        let Some((state, found)) = find(world, &child) else {
            continue;
        };
        // What lies in pending/ is not admitted yet: it names its parent, or is a stranger's.
        let is_own = found.meta.links.parent.as_ref() == Some(&parent)
            && (state == State::Pending
                || is_made(&world.config().key, &child, &parent, spawn.as_ref(), &found));
        if !is_own {
            continue;
        }
        if matches!(state, State::Completed | State::Failed) {
            open.extend(below(&found, &child));
            continue;
        }
        match cancel_by_file(world, &child, id, by) {
            Ok(()) => cancelled += 1,
            Err(error) => tracing::warn!(handoff_id = child, "not cancelled: {error}"),
        }
    }
    cancelled
}

/// Where a handoff stands, and its record. It may move from one folder to the next while they
/// are looked at in turn, so only one that stays away is not there.
fn find(world: &World, id: &str) -> Option<(State, Record)> {
    for _ in 0..LOOKS {
        let state = world.layout.states_of(id).first().copied();
        let state = state.unwrap_or(State::Pending);
        if let Some(record) = load(world, state, id) {
            return Some((state, record));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    None
}

fn cancel_by_file(world: &World, child: &str, above: &str, by: Option<&str>) -> io::Result<()> {
    let command = json!({
        "action": "cancel", "handoff_id": child, "by": by,
        "comment": format!("{above} was cancelled"),
    });
    let name = format!("cancel-{child}.json");
    let temp = world.layout.tmp().join(format!("control-{name}"));
    let bytes = command.to_string().into_bytes();
    let durability = world.config().daemon.durability;
    let path = world.layout.control().join(&name);
    if is_ordered(&path, child) {
        return Ok(());
    }
    durable::write_whole(&path, &temp, &bytes, durability)?;
    world.tell(Event::Listed {
        folder: Folder::Control,
        names: vec![name.into()],
    });
    Ok(())
}

/// Whether the cancel of a child is on its way already. Its file stays until an attempt has ended,
/// and the same words in a new one would be another order.
fn is_ordered(path: &Path, child: &str) -> bool {
    let Looked::Bytes { bytes, .. } = look(path, MAX_BYTES) else {
        return false;
    };
    serde_json::from_slice::<Value>(&bytes).is_ok_and(|it| {
        it["action"] == "cancel" && it["handoff_id"] == child && it.get("revision").is_none()
    })
}
