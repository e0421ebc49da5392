//! What a result sets in motion: the next step, or helpers that are asked first.
//!
//! Everything is decided here and written into the record; the handoffs themselves are made
//! afterwards, from what the record says.

mod child_id;
mod handed;
mod position;
mod request;

use serde_json::{Map, Value};

use self::position::{Position, mistaken, position};
use self::request::spawn;
use crate::clock::Wall;
use crate::config::Config;
use crate::protocol::agent::AgentName;
use crate::protocol::links::Spawn;
use crate::protocol::record::Record;
use crate::protocol::view::View;

pub use self::handed::{carried, handed_on};
pub use self::request::{delegates, why_refused};

/// How many sub-tasks one result may ask for.
pub const MAX_CHILDREN: usize = 1000;

/// What follows from a success.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Followed {
    pub spawn: Option<Spawn>,
    pub warnings: Vec<String>,
}

/// One handoff that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub agent: AgentName,
    pub phase: Option<Value>,
    pub input: Map<String, Value>,
    pub context: Map<String, Value>,
    pub workflow_state: Option<Value>,
    /// A result asked for it, so it counts against `max_hops`.
    pub by_result: bool,
}

/// The step after a success: the workflow's, else whom the result names.
pub fn after_success(
    record: &Record,
    id: &str,
    result: &Map<String, Value>,
    config: &Config,
    now: Wall,
) -> Followed {
    let mut followed = Followed::default();
    let named = result
        .get("handoff")
        .and_then(|handoff| handoff.get("next_agent")?.as_str())
        .and_then(|agent| AgentName::parse(agent).ok());
    let view = View::of_record(record);
    let asked = match position(record, &view, config) {
        Position::Before(step, workflow_state) => {
            if let Some(named) = named.filter(|named| *named != step.agent) {
                followed.warnings.push(format!(
                    "the result names {named} as the next agent; the workflow goes on with {}",
                    step.agent
                ));
            }
            Asked {
                agent: step.agent.clone(),
                phase: Some(step.phase.clone().into()),
                input: handed_on(record, result),
                context: carried(&view),
                workflow_state: Some(workflow_state),
                by_result: false,
            }
        }
        Position::Last => {
            if let Some(named) = named {
                followed.warnings.push(format!(
                    "the result names {named} as the next agent, but the workflow ends here"
                ));
            }
            return followed;
        }
        Position::Outside => {
            let Some(agent) = named else {
                followed.warnings.extend(mistaken(&view, config));
                return followed;
            };
            Asked {
                agent,
                phase: result
                    .get("handoff")
                    .and_then(|handoff| handoff.get("next_phase"))
                    .filter(|phase| !phase.is_null())
                    .cloned(),
                input: handed_on(record, result),
                context: carried(&view),
                workflow_state: view.get("workflow_state").cloned(),
                by_result: true,
            }
        }
    };
    followed.spawn = Some(spawn(record, id, asked, 0, config, now));
    followed
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
