//! Coding agents and their worktrees, with the real git.

mod shop;
mod worktree_faults;
mod worktrees;
