//! Coding agents and their worktrees, with the real git, and with the real agents against a model on
//! this machine.

#![expect(
    clippy::disallowed_methods,
    reason = "these tests play people and producers, who move files and read clocks as they like"
)]

#[allow(
    dead_code,
    unused_imports,
    reason = "every kind of test uses its own part of it"
)]
#[path = "../common/mod.rs"]
mod common;

mod claude;
mod codex;
mod desk;
mod first_minute;
mod others;
mod queue;
mod recipes;
mod sessions;
mod shop;
mod story;
mod streams;
mod stub;
mod worktree_faults;
mod worktree_losses;
mod worktree_results;
mod worktrees;
