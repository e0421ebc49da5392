//! Looking at a root from outside: what commands show, whether a daemon runs or not.
//!
//! Everything is read from the files that the daemon keeps anyway; nothing is asked of it and
//! nothing is changed. A file that moves between two looks is looked for again, not reported
//! as lost.

pub mod artifacts;
mod census;
pub mod chain;
pub mod daemon;
pub mod deep;
pub mod explain;
pub mod figures;
pub mod links;
pub mod list;
pub mod material;
mod met;
pub mod newest;
pub mod owners;
pub mod prefix;
pub mod question;
pub mod queue;
pub mod status;
pub mod summary;
pub mod waits;
