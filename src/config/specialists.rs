//! `[specialists."@name"]`: who does the work, and how it is run.

use std::collections::BTreeMap;
use std::time::Duration;

use super::reader::Section;
use super::sections::{SHORTEST, any_duration, limit, retry};
use super::types::{Mode, Specialist};
use super::value::Value;
use super::{agents, confine};
use crate::protocol::agent::AgentName;
use crate::protocol::report_pattern;

const WORK_HINT: &str = "use a program and its arguments like [\"python3\", \"work.py\"], or a coding \
                         agent like agent = \"claude\"";

pub(super) fn read(
    top: &Section<'_>,
    specialists: &mut BTreeMap<AgentName, Specialist>,
    max_timeout: Duration,
    known_agents: &[String],
) {
    let Some(entries) = top.get("specialists").and_then(|value| value.entries()) else {
        return;
    };
    let mut written = BTreeMap::new();
    for (key, value) in entries {
        let agent = match AgentName::parse(key) {
            Ok(agent) if agent.is_human() => {
                let message = "`human` is reserved for people; use another name";
                value.refuse_key(message.to_owned());
                continue;
            }
            Ok(agent) => agent,
            Err(reason) => {
                value.refuse_key(reason.to_owned());
                continue;
            }
        };
        if let Some(earlier) = written.insert(agent.clone(), key) {
            value.refuse_key(format!(
                "{earlier:?} and {key:?} are the same agent; keep one of them"
            ));
            continue;
        }
        if let Some(Some(specialist)) = value.table(|s| one(s, &agent, max_timeout, known_agents)) {
            specialists.insert(agent, specialist);
        }
    }
}

fn one(
    s: &Section<'_>,
    agent: &AgentName,
    max_timeout: Duration,
    known_agents: &[String],
) -> Option<Specialist> {
    let command = if s.has("agent") {
        s.get("command")
            .map_or(Some(Vec::new()), |value| value.command())
    } else {
        s.require("command", WORK_HINT, Value::command)
    };
    let mut it = Specialist::default();
    s.set_some("working_dir", &mut it.working_dir, |v| {
        v.nonempty().map(Into::into)
    });
    s.set("env", &mut it.env, environment);
    s.set("pass_env", &mut it.pass_env, pass_env);
    s.set_some("timeout", &mut it.timeout, |v| {
        v.duration(SHORTEST..=max_timeout)
    });
    s.set_some("stall_timeout", &mut it.stall_timeout, limit);
    s.set_some("kill_grace", &mut it.kill_grace, any_duration);
    s.set_some("linger", &mut it.linger, any_duration);
    s.set_some("max_concurrent", &mut it.max_concurrent, |v| {
        v.integer(1..=10_000)
    });
    resident(s, agent, &mut it);
    s.set_some("rate", &mut it.rate, Value::rate);
    retry(s, &mut it.retry);
    s.set_some("input_schema", &mut it.input_schema, Value::nonempty);
    s.set_some("output_schema", &mut it.output_schema, Value::nonempty);
    s.set_some("verify", &mut it.verify, Value::command);
    s.set_some("report", &mut it.report, report);
    confine::read(s, &mut it);
    agents::read(s, &mut it, known_agents, max_timeout);
    it.command = command?;
    Some(it)
}

/// `mode`, and the keys that only a resident specialist has.
fn resident(s: &Section<'_>, agent: &AgentName, it: &mut Specialist) {
    s.set("mode", &mut it.mode, |v| {
        let mode = v.one_of(&[("spawn", Mode::Spawn), ("resident", Mode::Resident)])?;
        if mode == Mode::Resident && agent.is_wildcard() {
            // Every name that somebody makes up would keep a process.
            return v.refuse("use \"spawn\" here, or give resident agents entries of their own");
        }
        Some(mode)
    });
    let (handoffs, age) = (s.get("max_handoffs"), s.get("max_age"));
    if !it.is_resident() {
        for value in [handoffs, age].into_iter().flatten() {
            value.refuse::<()>("only with mode = \"resident\"");
        }
        return;
    }
    it.max_handoffs = handoffs.and_then(|v| v.integer(1..=u64::from(u32::MAX)));
    it.max_age = age.as_ref().and_then(limit);
}

/// The pattern of a report file.
fn report(value: &Value<'_>) -> Option<String> {
    let pattern = value.nonempty()?;
    match report_pattern::check(&pattern) {
        Ok(()) => Some(pattern),
        Err(why) => value.refuse(&format!("the pattern {why}")),
    }
}

fn environment(value: &Value<'_>) -> Option<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    for (name, value) in value.entries()? {
        if let Some(reason) = unusable(name) {
            value.refuse_key(reason.to_owned());
        } else if let Some(text) = value.text() {
            variables.insert(name.to_owned(), text);
        }
    }
    Some(variables)
}

fn pass_env(value: &Value<'_>) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for item in value.items("use an array of names like [\"API_KEY\"]")? {
        let Some(name) = item.nonempty() else {
            continue;
        };
        match unusable(&name) {
            Some(reason) => {
                item.refuse::<()>(reason);
            }
            None => names.push(name),
        }
    }
    Some(names)
}

/// Why a name can't be an environment variable here.
fn unusable(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.contains(['=', '\0']) {
        Some("the name of a variable must not be empty and must not contain `=` or NUL")
    } else if name.starts_with("HANDOFF_") {
        Some("names starting with HANDOFF_ are reserved for the daemon; use another name")
    } else {
        None
    }
}
