//! What a handoff does to the state of its task, and what the next agent is told of it.
//!
//! The way of one: [`Delta`] is what an agent brings; [`draft`] lays it on the stored state;
//! [`Asked`] says which gates that has to pass, and what must be looked up for them; [`settle`]
//! takes what was found and gives the version to save. [`command`] is what the next agent gets,
//! with a [`summary`] that fits. Whoever calls these does the reading, hashing and running in
//! between, and may do all of it again: the same outcome is applied once.

mod compact;
mod delta;
mod gates;
mod given;
mod handoff;
mod outcome;
mod receive;
mod summary;
mod tokens;
mod words;

#[cfg(test)]
mod gates_tests;
#[cfg(test)]
mod handoff_tests;
#[cfg(test)]
mod summary_tests;

pub use compact::{MAX_CONTEXT_CHARS, context_summary};
pub use delta::Delta;
pub use gates::{Asked, Found, GateResult, HUMAN, PHASE, PRE_HANDOFF, claimed};
pub use given::Given;
pub use handoff::{Draft, Refusal, Step, command, command_for, draft, settle};
pub use outcome::{Completed, contradiction, key_of, task_of};
pub use receive::{problems, to_check};
pub use summary::{Limits, MAX_SUMMARY_CHARS, MAX_SUMMARY_TOKENS, summary};
pub use tokens::{count as count_tokens, up_to as count_up_to};
pub use words::one_line;
