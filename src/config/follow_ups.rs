//! What follows from a result: `routes`, `workflows`, `phases`, `gates`.

use std::collections::{BTreeMap, BTreeSet};

use super::reader::Section;
use super::types::{Gate, Phases, Step};
use super::value::{COMMAND_HINT, Value};
use crate::protocol::agent::AgentName;
use crate::protocol::fields::BLOCKED_REASONS;

pub(super) fn routes(top: &Section<'_>, blocked: &mut BTreeMap<String, AgentName>) {
    top.section("routes", |routes| {
        routes.section("blocked", |s| {
            for reason in BLOCKED_REASONS {
                if let Some(agent) = s.get(reason).and_then(|value| value.agent()) {
                    blocked.insert((*reason).to_owned(), agent);
                }
            }
        });
    });
}

pub(super) fn workflows(top: &Section<'_>, workflows: &mut BTreeMap<String, Vec<Step>>) {
    let hint = r#"use steps like [{ phase = "testing", agent = "@tester" }]"#;
    let Some(entries) = top.get("workflows").and_then(|value| value.entries()) else {
        return;
    };
    for (name, value) in entries {
        let steps = value.table(|s| s.require("steps", hint, |v| steps(v, hint)));
        if let Some(Some(steps)) = steps {
            workflows.insert(name.to_owned(), steps);
        }
    }
}

fn steps(value: &Value<'_>, hint: &str) -> Option<Vec<Step>> {
    let items = value.items(hint)?;
    if items.is_empty() {
        return value.refuse(hint);
    }
    let step = |item: &Value<'_>| {
        item.table(|s| {
            let phase = s.require("phase", r#"use phase = "testing""#, Value::nonempty);
            let agent = s.require("agent", r#"use agent = "@tester""#, Value::agent);
            Some(Step {
                phase: phase?,
                agent: agent?,
            })
        })?
    };
    // Every step is read before any is missed, so that all problems are found.
    let steps: Vec<_> = items.iter().map(step).collect();
    steps.into_iter().collect()
}

pub(super) fn phases(top: &Section<'_>, phases: &mut Phases) {
    top.section("phases", |s| {
        s.set("order", &mut phases.order, distinct);
        s.set("requires", &mut phases.requires, |value| {
            let entries = value.entries()?.into_iter();
            let types =
                |(phase, value): (&str, Value<'_>)| Some((phase.to_owned(), value.words()?));
            Some(entries.filter_map(types).collect())
        });
    });
}

/// An order in which something comes twice is no order.
fn distinct(value: &Value<'_>) -> Option<Vec<String>> {
    let words = value.words()?;
    let mut seen = BTreeSet::new();
    match words.iter().find(|word| !seen.insert(*word)) {
        Some(twice) => value.refuse(&format!("lists {twice:?} twice; keep one")),
        None => Some(words),
    }
}

pub(super) fn gates(top: &Section<'_>, gates: &mut Vec<Gate>) {
    let Some(items) = top
        .get("gates")
        .and_then(|value| value.items("use one [[gates]] table per gate"))
    else {
        return;
    };
    for item in items {
        let gate = item.table(|s| {
            let name = s.require("name", r#"use name = "unit-tests""#, |v| {
                let name = v.nonempty()?;
                if gates.iter().any(|gate| gate.name == name) {
                    return v.refuse("another gate has this name; use a different one");
                }
                Some(name)
            });
            let hint = r#"use phases = ["reviewing"]"#;
            let phases = s.require("phases", hint, |v| {
                let phases = v.words()?;
                if phases.is_empty() {
                    return v.refuse(hint);
                }
                Some(phases)
            });
            let command = s.require("command", COMMAND_HINT, Value::command);
            Some(Gate {
                name: name?,
                phases: phases?,
                command: command?,
            })
        });
        gates.extend(gate.flatten());
    }
}
