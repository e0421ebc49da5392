//! The audit log: one JSON line per transition, command and refusal, in order.
//!
//! Lines stand in `audit/events-YYYY-MM-DD.jsonl`. Each has a number, which never starts again,
//! and the hash of the line before, also from one day's file to the next; so a line that was
//! changed, removed or moved shows. The chain proves nothing against someone who rewrites all
//! that follows, and the very last line is vouched for by nobody until the next one is written.
//!
//! A line that a crash tore is never removed: it is closed, and a `torn_line` event after it
//! says so. What is torn is told from what was tampered with by exactly that event. Of lines that
//! were not synced, a power cut may take some and keep later ones; such an event then names the
//! numbers that are missing.
//!
//! A daemon that meets an end of the log which it did not write adds an `audit_altered` event and goes
//! on from its own last line ([`altered`]).
//!
//! Deliberately absent: rotation by size and deletion of old days (both would break the chain;
//! whoever wants them archives whole files), and any opinion on what the events mean.

mod altered;
mod anchor;
mod disk;
mod files;
mod holes;
mod line;
mod log;
mod near;
mod outcome;
mod verify;

#[cfg(test)]
mod tests;

pub use altered::{Altered, Head};
pub use anchor::{Anchor, Anchors};
pub use files::{has_line, newest_first, recent};
pub use holes::Hole;
pub use line::{ALTERED, Event, Line, TORN_LINE};
pub use log::{AuditLog, Opened, Torn};
pub use outcome::{Outcome, Word, are_at_their_times, outcome, outcomes};
pub use verify::{
    Fault, MAX_PROBLEMS, Problem, Verdict, verify, verify_against, verify_against_nothing,
    verify_each,
};
