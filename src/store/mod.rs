//! Stores beside the queue: the audit log, and the schemas.

pub mod audit;
pub mod schemas;
