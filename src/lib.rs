//! handoffd: a folder as a queue for agents.

pub mod cli;
pub mod clock;
pub mod config;
pub mod durable;
pub mod engine;
pub mod inspect;
pub mod keeper;
pub mod policy;
pub mod protocol;
pub mod runner;
pub mod spool;
pub mod store;
pub mod watch;
