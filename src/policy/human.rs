//! People in the loop: what they are asked, and what their answers mean.

use serde_json::{Map, Value, json};

use crate::clock::{Now, Wall};
use crate::config::Config;
use crate::policy::complete::{complete, finish};
use crate::policy::follow::{
    Asked, Author, after_success, carried, delegates, handed_beside, why_refused,
};
use crate::policy::judge::{Failure, Success};
use crate::policy::next::{fail, link, refusal, wait};
use crate::protocol::agent::AgentName;
use crate::protocol::control::{Action, Command};
use crate::protocol::dialect::Dialect;
use crate::protocol::error::ErrorCode;
use crate::protocol::question::Inquiry;
use crate::protocol::record::Record;
use crate::protocol::view::View;

/// What a person's yes means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The work is done and delivered: yes completes it.
    Review,
    /// It has not begun: yes lets it run.
    Gate,
    /// The person is the one who does it: the answer is the result.
    Task,
    /// The specialist can't go on: yes lets it try again.
    Blocked,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Review => "review",
            Self::Gate => "gate",
            Self::Task => "task",
            Self::Blocked => "blocked",
        }
    }

    fn of(record: &Record) -> Option<Self> {
        let waiting = record.doc.get("waiting")?;
        match waiting.get("kind").and_then(Value::as_str) {
            Some("gate") => Some(Self::Gate),
            Some("task") => Some(Self::Task),
            Some("blocked") => Some(Self::Blocked),
            _ => Some(Self::Review),
        }
    }
}

/// Parks a record for a person, with a question that can be read without anything else.
pub fn ask_person(record: &mut Record, kind: Kind, reason: &str, now: Now, boot: &str) {
    let view = View::of_record(record);
    let length = view.text("gate", "deadline").and_then(|deadline| {
        let until = Wall::parse(deadline).map(|at| at.0.saturating_sub(now.wall.0));
        match until {
            Some(ms) => Some(u64::try_from(ms).unwrap_or(0)),
            None => humantime::parse_duration(deadline)
                .ok()
                .and_then(|length| u64::try_from(length.as_millis()).ok()),
        }
    });
    let name = view.text("gate", "name").map(str::to_owned);
    let done = done(record, &view);
    let items = view.inner("validation_request", "items").cloned();
    let asked = (kind == Kind::Review)
        .then(|| Inquiry::of_result(record.doc.get("result")?.as_object()?))
        .flatten()
        .unwrap_or_default();
    let options = if asked.options.is_empty() {
        view.options().unwrap_or_else(|| answers(&view, kind))
    } else {
        asked.options
    };
    wait(record, "human", length, reason, now, boot);
    if let Some(Value::Object(waiting)) = record.doc.get_mut("waiting") {
        waiting.insert("kind".to_owned(), kind.as_str().into());
        if let Some(name) = name {
            waiting.insert("gate".to_owned(), name.into());
        }
        if let Some(done) = done {
            waiting.insert("done".to_owned(), done.into());
        }
        if let Some(items) = items {
            waiting.insert("items".to_owned(), items);
        }
        waiting.insert("options".to_owned(), Value::Object(options));
    }
}

/// What was done so far, in the words of whoever did it.
fn done(record: &Record, view: &View<'_>) -> Option<String> {
    let said = record
        .doc
        .get("result")
        .and_then(|result| {
            result
                .get("summary")
                .or_else(|| result.get("handoff")?.get("context"))
        })
        .or_else(|| view.context("summary"))
        .or_else(|| match view.dialect {
            Dialect::Report => view.doc.get("summary"),
            _ => None,
        });
    said.and_then(Value::as_str).map(str::to_owned)
}

/// What a person can say where nothing else is listed, with what each means. What is certain to be
/// refused is not said.
fn answers(view: &View<'_>, kind: Kind) -> Map<String, Value> {
    let could_answer = match kind {
        Kind::Gate => false,
        Kind::Task => view.source().is_some(),
        Kind::Review | Kind::Blocked => true,
    };
    [
        ("approve", "go on"),
        ("reject", "stop here"),
        ("ask", "ask for more first"),
    ]
    .into_iter()
    .filter(|(option, _)| *option != "ask" || could_answer)
    .map(|(option, meaning)| (option.to_owned(), meaning.into()))
    .collect()
}

/// What is known when an answer comes.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub id: &'a str,
    pub config: &'a Config,
    pub now: Now,
    pub boot: &'a str,
    pub max_retries: u32,
    /// Nobody answered in time. What runs again then would do so for ever.
    pub expired: bool,
}

/// Applies an answer to a record that waits for a person. `Err` with why it can't be.
pub fn answer(
    record: &mut Record,
    command: &Command,
    facts: &Facts<'_>,
) -> Result<&'static str, String> {
    let id = facts.id;
    let Some(kind) = Kind::of(record).filter(|_| on(record) == Some("human")) else {
        return Err(format!(
            "can't {} {id}: it waits for a {}, not for a human",
            command.action,
            on(record).unwrap_or("something else")
        ));
    };
    let asked = Inquiry::of_record(&record.doc).unwrap_or_default();
    check_choice(record, command, &asked)?;
    let said = json!({
        "action": command.action.as_str(), "choice": command.choice,
        "comment": command.comment, "by": command.by, "at": facts.now.wall.to_string(),
    });
    let again = match kind {
        Kind::Gate | Kind::Task => false,
        Kind::Review | Kind::Blocked => !is_foreign_work(record, facts.config),
    };
    let rerun = |record: &mut Record, why: &str| {
        let who = command.by.as_deref().unwrap_or("a human");
        let reason = format!("{who} {why}; it runs when a slot is free");
        wait(record, "retry", Some(0), &reason, facts.now, facts.boot);
    };
    match command.action {
        Action::Approve => {
            // The next agent is given it.
            record.set("answer", said);
            match kind {
                Kind::Review if asked.approve_reruns && again => {
                    if facts.expired {
                        let told = unanswered(command);
                        fail(record, &told, facts.max_retries, facts.now.wall);
                    } else {
                        rerun(record, "approves");
                    }
                }
                Kind::Review => approve_review(record, facts),
                Kind::Task => approve_task(record, command, facts),
                // Nobody here can go on, so the person's answer is what comes of it.
                Kind::Blocked if !again => approve_task(record, command, facts),
                Kind::Gate => rerun(record, "let it run"),
                Kind::Blocked => rerun(record, "let it continue"),
            }
            Ok("approved")
        }
        Action::Reject => {
            let of_gate = || View::of_record(record).text("gate", "on_reject") == Some("rerun");
            let wants_rerun = asked.reject_reruns.unwrap_or_else(of_gate);
            if wants_rerun && again && !facts.expired {
                rerun(record, "asked for another attempt");
            } else {
                let mut told = rejected(command);
                if facts.expired {
                    told.actions = vec![LATER.to_owned()];
                }
                fail(record, &told, facts.max_retries, facts.now.wall);
            }
            record.set("answer", said);
            Ok("rejected")
        }
        Action::Ask if again => {
            rerun(record, "asks");
            record.set("answer", said);
            Ok("asked")
        }
        Action::Ask if kind == Kind::Gate => Err(format!(
            "can't ask about {id}: no attempt has run that could answer; approve or reject it"
        )),
        Action::Ask => {
            ask_source(record, command, facts)?;
            record.set("answer", said);
            Ok("asked")
        }
        Action::Cancel | Action::Retry => Err(format!(
            "{} is not an answer: use approve, reject \
        or ask",
            command.action
        )),
    }
}

/// What helps where nobody answered in time.
const LATER: &str = "Set gate.deadline in the record to a later time, or take it out, and move the \
                     file back to handoffs/pending/";

/// Nobody answered a question whose approval runs it again: it would ask again, and so on.
fn unanswered(command: &Command) -> Failure {
    Failure {
        actions: vec![LATER.to_owned()],
        ..rejected(command)
    }
}

/// Whether the work in question is a dropped report's, whose author can't be run again as this
/// handoff: it names somebody else to go on, or is no configured specialist.
fn is_foreign_work(record: &Record, config: &Config) -> bool {
    let view = View::of_record(record);
    let dropped = view.dialect == Dialect::Report && record.meta.attempts.is_empty();
    let runs = view.target().0.is_none()
        && view
            .agent()
            .is_some_and(|agent| config.specialist(&agent).is_some());
    dropped && !runs
}

/// Whom a record goes back to when a question about it was answered: a person, and in which
/// role, or nobody but its own specialist.
pub fn asked_by(record: &Record) -> Option<Kind> {
    let view = View::of_record(record);
    let is_human = view.agent().is_none_or(|agent| agent.is_human());
    let dropped = view.dialect == Dialect::Report && record.meta.attempts.is_empty();
    if dropped && view.status == Some("needs_review") {
        Some(Kind::Review)
    } else {
        is_human.then_some(Kind::Task)
    }
}

fn on(record: &Record) -> Option<&str> {
    record.doc.get("waiting")?.get("on")?.as_str()
}

/// Where options are listed, a choice must be one of them.
fn check_choice(record: &Record, command: &Command, asked: &Inquiry) -> Result<(), String> {
    let own = asked.choices().cloned();
    let listed = own.or_else(|| View::of_record(record).options());
    let Some((choice, options)) = command.choice.as_ref().zip(listed) else {
        return Ok(());
    };
    if options.contains_key(choice) {
        return Ok(());
    }
    let listed: Vec<&str> = options.keys().map(String::as_str).collect();
    Err(format!(
        "{choice:?} is not one of the options: {}",
        listed.join(", ")
    ))
}

fn approve_review(record: &mut Record, facts: &Facts<'_>) {
    let (result, author) = match record.doc.get("result") {
        Some(Value::Object(result)) => (result.clone(), Author::Specialist),
        // A dropped report is its own result.
        _ => (record.submitted_document(), Author::Reporter),
    };
    finish(record, facts.now.wall);
    record.set("result", Value::Object(result.clone()));
    let (id, at) = (facts.id, facts.now.wall);
    let followed = after_success(record, id, &result, author, facts.config, at);
    link(record, followed);
}

/// A person's answer is the result of what a person was asked to do.
fn approve_task(record: &mut Record, command: &Command, facts: &Facts<'_>) {
    let mut result = Map::new();
    result.insert("status".to_owned(), "complete".into());
    for (key, value) in [
        ("summary", &command.comment),
        ("choice", &command.choice),
        ("decided_by", &command.by),
    ] {
        if let Some(value) = value {
            result.insert(key.to_owned(), value.clone().into());
        }
    }
    let success = Success {
        result: Some(result.clone()),
        ..Success::default()
    };
    let (id, at) = (facts.id, facts.now.wall);
    complete(record, success, at);
    let followed = after_success(record, id, &result, Author::Person, facts.config, at);
    link(record, followed);
}

fn rejected(command: &Command) -> Failure {
    let who = command.by.as_deref().unwrap_or("a human");
    let why = command
        .comment
        .as_deref()
        .map(|comment| format!(": {comment}"))
        .unwrap_or_default();
    refusal(
        ErrorCode::Rejected,
        format!("rejected by {who}{why}"),
        vec![
            "Fix what the comment objects to".to_owned(),
            "Then move the file back to handoffs/pending/".to_owned(),
        ],
    )
}

/// A question about what a person was asked goes back to who asked.
fn ask_source(record: &mut Record, command: &Command, facts: &Facts<'_>) -> Result<(), String> {
    let view = View::of_record(record);
    let id = facts.id;
    let instead = "approve or reject it, and write in the comment what was unclear";
    let Some(source) = view.source() else {
        return Err(format!("can't ask about {id}: no agent sent it; {instead}"));
    };
    let agent = AgentName::parse(source)
        .ok()
        .filter(|agent| facts.config.specialist(agent).is_some());
    let Some(agent) = agent else {
        return Err(format!(
            "can't ask about {id}: its sender {source} is not a configured specialist; {instead}"
        ));
    };
    let mut input = Map::new();
    input.insert("question".to_owned(), json!(command.comment));
    input.insert("about".to_owned(), id.into());
    if let Some(summary) = view.context("summary") {
        input.insert("summary".to_owned(), summary.clone());
    }
    let asked = Asked {
        agent: agent.clone(),
        phase: None,
        said: Value::Object(input.clone()),
        handed: handed_beside(record, id, input, &Map::new()),
        context: carried(&view),
        workflow_state: None,
        by_result: true,
    };
    let spawns = delegates(record, id, vec![asked], facts.config, facts.now.wall)
        .map_err(|refused| why_refused(&refused))?;
    let reason = format!("asked {agent} a question");
    wait_for_children(record, spawns, &reason, facts.now, facts.boot);
    Ok(())
}

/// Parks a record until those that it has set in motion have ended.
pub fn wait_for_children(
    record: &mut Record,
    spawns: Vec<crate::protocol::links::Spawn>,
    reason: &str,
    now: Now,
    boot: &str,
) {
    let ids: Vec<String> = spawns.iter().map(|spawn| spawn.id.clone()).collect();
    wait(record, "handoff", None, reason, now, boot);
    if let Some(Value::Object(waiting)) = record.doc.get_mut("waiting") {
        waiting.insert("ids".to_owned(), json!(ids));
    }
    record.meta.links.children.extend(ids);
    for spawn in &spawns {
        let trail = spawn
            .request
            .get("handoffd")
            .and_then(|own| own.get("trail")?.as_array());
        let entry = trail.and_then(|trail| trail.last()?.as_str());
        if let Some(entry) = entry {
            record.meta.links.asks.push(entry.to_owned());
        }
    }
    record.meta.links.spawns = spawns;
}

#[cfg(test)]
#[path = "human_tests.rs"]
mod tests;
