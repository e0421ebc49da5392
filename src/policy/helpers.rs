//! Helpers: who is asked when a specialist is blocked, or asks for sub-tasks itself.

use serde_json::{Map, Value};

use crate::policy::complete::merge_acknowledgment;
use crate::policy::follow::{
    Asked, MAX_CHILDREN, Questions, Said, carried, delegates, gather, handed_beside,
    handed_to_helper, said_to_next, why_refused, work_in,
};
use crate::policy::human::{Kind, ask_person, wait_for_children};
use crate::policy::judge::failure;
use crate::policy::next::{Decision, Facts, close, decided, fail, failed, human_issue, refusal};
use crate::policy::reports::{blocked, blocked_reason};
use crate::protocol::agent::AgentName;
use crate::protocol::attempt::AttemptOutcome;
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::view::View;

/// Blocked: whoever the routes name helps, or nobody.
pub fn stuck(record: &mut Record, result: Map<String, Value>, facts: &Facts<'_>) -> Decision {
    let reason = blocked_reason(&result).to_owned();
    merge_acknowledgment(record, &result);
    if let Some(issue) = human_issue(&result) {
        close(record, AttemptOutcome::Blocked, None, facts);
        record.set("result", Value::Object(result));
        let reason = format!("blocked ({reason}); a human must decide: {issue}");
        ask_person(record, Kind::Blocked, &reason, facts.now, facts.boot);
        return decided(State::Waiting, "blocked");
    }
    let Some(helper) = facts.config.routes_blocked.get(&reason) else {
        return failed(record, &blocked(result), facts);
    };
    close(record, AttemptOutcome::Blocked, None, facts);
    let told = blocked(result.clone());
    record.set("result", Value::Object(result.clone()));
    if helper.is_human() {
        ask_person(record, Kind::Blocked, &told.message, facts.now, facts.boot);
        return decided(State::Waiting, "blocked");
    }
    let view = View::of_record(record);
    let mut handed = handed_to_helper(record, facts.id, &result);
    for key in ["blocked_reason", "attempted"] {
        if let Some(value) = result.get(key) {
            handed.data.insert(key.to_owned(), value.clone());
        }
    }
    let blockers = result
        .get("handoff")
        .and_then(|handoff| handoff.get("blockers"));
    if let Some(blockers) = blockers {
        handed.data.insert("blockers".to_owned(), blockers.clone());
    }
    if let Some(own) = view.inner("input", "data") {
        let work = work_in(own, &record.meta.links).map(Value::Object);
        let work = work.unwrap_or_else(|| own.clone());
        handed.data.insert("blocked_input".to_owned(), work);
    }
    let asked = Asked {
        agent: helper.clone(),
        phase: None,
        handed,
        said: said_to_next(&result),
        context: carried(&view),
        workflow_state: None,
        by_result: true,
    };
    remember(record, &result, facts);
    let waits = format!("blocked ({reason}); asked {helper} for help");
    await_helpers(record, vec![asked], &waits, "blocked", facts)
}

/// A specialist that asks for sub-tasks waits until they have ended.
pub fn delegated(record: &mut Record, result: Map<String, Value>, facts: &Facts<'_>) -> Decision {
    let asked = match children(record, &result, facts.id) {
        Ok(asked) => asked,
        Err(wrong) => {
            let mut told = failure(
                ErrorCode::ValidationFailed,
                format!("the result has status delegate, but {wrong}"),
                vec![
                    "Make the specialist name an agent for each entry of \
                handoff.children"
                        .to_owned(),
                ],
            );
            told.fields = vec![wrong];
            told.result = Some(result);
            return failed(record, &told, facts);
        }
    };
    close(record, AttemptOutcome::Delegated, None, facts);
    remember(record, &result, facts);
    record.set("result", Value::Object(result));
    let names: Vec<String> = asked
        .iter()
        .take(5)
        .map(|it| it.agent.to_string())
        .collect();
    let more = asked.len().saturating_sub(names.len());
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let reason = format!("delegated to {}{more}", names.join(", "));
    await_helpers(record, asked, &reason, "delegated", facts)
}

/// The next result takes the place of this one, so what it said for the chain is noted.
fn remember(record: &mut Record, result: &Map<String, Value>, facts: &Facts<'_>) {
    let said = Said::of_result(result);
    gather(record, facts.id, facts.id, said, Questions::Replace);
}

fn children(
    record: &Record,
    result: &Map<String, Value>,
    id: &str,
) -> Result<Vec<Asked>, FieldError> {
    const FIELD: &str = "handoff.children";
    let view = View::of_record(record);
    let listed = result
        .get("handoff")
        .and_then(|handoff| handoff.get("children")?.as_array())
        .filter(|listed| !listed.is_empty())
        .ok_or_else(|| {
            FieldError::new(
                FIELD,
                "missing: a list with an agent and its input for \
        each child",
            )
        })?;
    if listed.len() > MAX_CHILDREN {
        let error = format!(
            "{} children; at most {MAX_CHILDREN} are allowed",
            listed.len()
        );
        return Err(FieldError::new(FIELD, error));
    }
    let one = |(at, child): (usize, &Value)| {
        let named = child.get("agent").and_then(Value::as_str).unwrap_or("");
        let agent = AgentName::parse(named)
            .map_err(|error| FieldError::new(format!("{FIELD}[{at}].agent"), error))?;
        let mut context = carried(&view);
        let mut input = match child.get("input") {
            Some(Value::Object(input)) => input.clone(),
            Some(Value::Null) | None => Map::new(),
            Some(other) => Map::from_iter([("value".to_owned(), other.clone())]),
        };
        match child.get("context") {
            Some(Value::Object(own)) => context.extend(own.clone()),
            Some(Value::Null) | None => {}
            Some(other) => {
                input.insert("context".to_owned(), other.clone());
            }
        }
        Ok(Asked {
            agent,
            phase: child.get("phase").filter(|phase| !phase.is_null()).cloned(),
            said: Value::Object(input.clone()),
            handed: handed_beside(record, id, input, result),
            context,
            workflow_state: None,
            by_result: true,
        })
    };
    listed.iter().enumerate().map(one).collect()
}

/// Sets helpers in motion and waits for them; where they may not be, the handoff ends loudly.
fn await_helpers(
    record: &mut Record,
    asked: Vec<Asked>,
    reason: &str,
    event: &'static str,
    facts: &Facts<'_>,
) -> Decision {
    match delegates(record, facts.id, asked, facts.config, facts.now.wall) {
        Ok(spawns) => {
            wait_for_children(record, spawns, reason, facts.now, facts.boot);
            decided(State::Waiting, event)
        }
        Err(refused) => {
            let told = refusal(
                ErrorCode::Blocked,
                why_refused(&refused),
                vec![
                    "See the chain with handoffd chain; make the specialists end it, or raise \
                     the limit that the message names and send the daemon SIGHUP"
                        .to_owned(),
                ],
            );
            fail(record, &told, facts.retry.max_retries, facts.now.wall);
            let ids = refused.iter().map(|spawn| spawn.id.clone());
            record.meta.links.children.extend(ids);
            record.meta.links.spawns = refused;
            decided(State::Failed, "failed")
        }
    }
}
