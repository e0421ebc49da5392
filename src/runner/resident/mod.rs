//! Resident processes, seen from the daemon: the lines that are spoken with them, and the wires
//! that the lines go over.
//!
//! A resident process belongs to the keeper like any other. Its stdin and stdout are pipes whose
//! other ends are the daemon's, so it sees the end of file when the daemon is gone; its stderr is
//! a file, of which the part that was written during a handoff is that attempt's log.

pub mod line;
pub mod reading;
pub mod wires;
