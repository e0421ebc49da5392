//! Workspaces: a git worktree for a line of handoffs, and a command that runs in it.
//!
//! Handoffs that follow each other share one worktree on the branch `handoffd/<chain>`; those that
//! run beside each other get one each. [`run()`] makes or repairs the tree, runs the command there and
//! commits what is left uncommitted, whether the command failed or not.
//!
//! A kill at any point leaves one of three things, and the next process that touches the tree deals with
//! each: no tree, a tree without its mark (nobody has worked in it yet: it is made anew), or a tree with
//! uncommitted work (it is committed first). [`tree`] has the details.

pub mod commit;
pub mod git;
pub mod handed;
pub mod hold;
pub mod list;
pub mod lock;
pub mod loose;
pub mod names;
pub mod prepare;
pub mod run;
pub mod state;
pub mod tree;

pub use run::{Order, run};
