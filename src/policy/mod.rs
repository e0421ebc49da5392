//! Decisions: pure functions of what is known and what time it is. No I/O in this room.

pub mod ahead;
pub mod complete;
pub mod follow;
pub mod gated;
pub mod helpers;
pub mod human;
pub mod intake;
pub mod judge;
pub mod kin;
pub mod lint;
pub mod looks;
pub mod misnamed;
pub mod next;
pub mod orders;
pub mod receive;
pub mod reports;
pub mod resident;
pub mod retry;
pub mod rights;
pub mod rules;
pub mod schedule;
pub mod starts;
pub mod task;
pub mod verify;
pub mod waits;
pub mod window;
