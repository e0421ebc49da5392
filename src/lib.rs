//! handoffd: a folder as a queue for agents.
//!
//! The folders are the truth: events are hints, memory is a cache, and a killed daemon goes on
//! from what it finds. What decides is pure ([`policy`], on the formats of [`protocol`], with
//! the time of [`clock`] passed in). What moves files is [`spool`], by way of [`durable`], which
//! alone may rename and sync; what was decided is said in [`store`]'s audit log first. [`watch`]
//! gives hints. Attempts belong to the [`keeper`], a process that outlives the daemon; [`runner`]
//! is the daemon's view of one. One loop, the [`engine`], owns all that changes and sequences the
//! rest under a checked [`config`]; [`service`] speaks to the service manager, [`inspect`] reads a
//! root from outside, and [`cli`] is the way in. `ARCHITECTURE.md` is the map, and
//! `tests/tidy.rs` keeps the rooms apart.

pub mod cli;
pub mod clock;
pub mod config;
pub mod durable;
pub mod engine;
pub mod figures;
pub mod inspect;
pub mod json_text;
pub mod keeper;
pub mod mutant;
pub mod policy;
pub mod protocol;
pub mod retention;
pub mod runner;
pub mod service;
pub mod spool;
pub mod store;
pub mod watch;
