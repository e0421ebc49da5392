//! One attempt, seen from the daemon: what it is given, what it leaves, and whether it lives.
//!
//! The process itself belongs to the keeper. This room prepares command and environment, reads
//! what came out, and turns what can be seen of a running attempt into a reason to end it.

pub mod agents;
pub mod collect;
pub mod command;
pub mod gate;
pub mod launch;
pub mod report;
pub mod resident;
pub mod rubbish;
pub mod slots;
pub mod vitals;
