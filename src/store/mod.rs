//! Stores beside the queue: the audit log, what specialists produced, and the schemas.

pub mod artifacts;
pub mod audit;
pub mod schemas;
