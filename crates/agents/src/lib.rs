//! Coding agents as specialists.
//!
//! A specialist is a command that reads a record on stdin and answers with a result. This crate is
//! such a command for coding agents. It knows the formats of records and results, and nothing of
//! the queue that starts it.
//!
//! One run goes top to bottom through these modules:
//!
//! - [`record`] reads what the agent needs to know out of the record and the environment;
//! - [`session`] decides whether the agent begins anew or goes on where an earlier attempt stopped;
//! - [`prompt`] turns the record into the text that the agent gets on stdin;
//! - [`adapter`] is what differs from agent to agent: command line, stream, ending. [`claude`] and
//!   [`codex`] are in code, all others are a page of TOML for [`generic`];
//! - [`run`] is one attempt; [`process`] starts the program and reads its stream, line by line, with bounds
//!   ([`lines`]);
//! - [`claude_permission`] and [`codex_permission`] know what was refused, and [`permit`] carries a person's
//!   permission to the agent;
//! - [`changes`] asks git what the agent changed;
//! - [`outcome`] makes the result: success, a question to a person, a hold for a quota ([`quota`], [`until`]), or a
//!   failure that says what to do ([`trouble`]), with what this attempt cost ([`usage`]).
//!
//! Beside it, [`workspace`] runs any command in a git worktree of its own.

pub mod adapter;
pub mod changes;
pub mod claude;
pub mod claude_permission;
pub mod clock;
pub mod codex;
pub mod codex_permission;
pub mod generic;
pub mod lines;
pub mod outcome;
pub mod permit;
pub mod process;
pub mod prompt;
pub mod quota;
pub mod record;
pub mod report;
pub mod reserved;
pub mod run;
pub mod scratch;
pub mod session;
pub mod trouble;
pub mod until;
pub mod usage;
pub mod workspace;

pub use run::{Settings, run};
