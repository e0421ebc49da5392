//! Stores beside the queue: the audit log.

pub mod audit;
