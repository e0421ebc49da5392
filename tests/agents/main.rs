//! Coding agents and their worktrees, with the real git.

#![expect(
    clippy::disallowed_methods,
    reason = "these tests move files as a person does"
)]

#[allow(
    dead_code,
    unused_imports,
    reason = "every kind of test uses its own part of it"
)]
#[path = "../common/mod.rs"]
mod common;
mod queue;
mod shop;
mod worktree_faults;
mod worktree_losses;
mod worktree_results;
mod worktrees;
