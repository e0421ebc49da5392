//! What a result sets in motion: the next step, or helpers that are asked first.
//!
//! Everything is decided here and written into the record; the handoffs themselves are made
//! afterwards, from what the record says.

mod bound;
mod child_id;
mod entries;
mod handed;
mod position;
mod request;
mod returns;
mod work;

use serde_json::{Map, Value};

use self::position::{Position, mistaken, position};
use self::request::spawn;
use crate::clock::Wall;
use crate::config::Config;
use crate::protocol::agent::AgentName;
use crate::protocol::dialect::Dialect;
use crate::protocol::links::Spawn;
use crate::protocol::record::Record;
use crate::protocol::view::View;

pub use self::entries::{Questions, Said, gather};
pub use self::handed::{Handed, carried, handed_beside, handed_on, handed_to_helper, said_to_next};
pub use self::request::{delegates, why_refused};
pub use self::returns::return_of;
pub use self::work::{as_written, work_in};

/// How many sub-tasks one result may ask for.
pub const MAX_CHILDREN: usize = 1000;

/// What follows from a success.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Followed {
    pub spawn: Option<Spawn>,
    pub warnings: Vec<String>,
}

/// Who wrote a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// The agent that the handoff is for.
    Specialist,
    /// The result is the dropped report itself.
    Reporter,
    /// A person, who was asked to decide about somebody else's work.
    Person,
}

impl Author {
    /// Who wrote the result of a record that no person has answered for.
    pub fn of(record: &Record) -> Self {
        let is_report = View::of_record(record).dialect == Dialect::Report;
        if is_report && record.meta.attempts.is_empty() {
            Self::Reporter
        } else {
            Self::Specialist
        }
    }
}

/// One handoff that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub agent: AgentName,
    pub phase: Option<Value>,
    pub handed: Handed,
    /// What whoever asks says to the agent, to know a circle.
    pub said: Value,
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
    author: Author,
    config: &Config,
    now: Wall,
) -> Followed {
    let mut followed = Followed::default();
    let named = next_agent(result);
    let view = View::of_record(record);
    let (agent, phase, workflow_state, by_result) = match position(&view, author, config) {
        Position::Before(step, workflow_state) => {
            if let Some(named) = named.filter(|named| *named != step.agent) {
                followed.warnings.push(format!(
                    "the result names {named} as the next agent; the workflow continues with {}",
                    step.agent
                ));
            }
            let phase = Value::from(step.phase.clone());
            (step.agent.clone(), Some(phase), Some(workflow_state), false)
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
            let phase = result
                .get("handoff")
                .and_then(|handoff| handoff.get("next_phase"))
                .filter(|phase| !phase.is_null())
                .cloned();
            (agent, phase, view.get("workflow_state").cloned(), true)
        }
    };
    let asked = Asked {
        agent,
        phase,
        handed: handed_on(record, id, result, author),
        said: said_to_next(result),
        context: carried(&view),
        workflow_state,
        by_result,
    };
    followed.spawn = Some(spawn(record, id, asked, author, 0, config, now));
    followed
}

/// Whom a result names to go on.
pub fn next_agent(result: &Map<String, Value>) -> Option<AgentName> {
    let named = result.get("handoff")?.get("next_agent")?.as_str()?;
    AgentName::parse(named).ok()
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
