//! Stores beside the queue: the audit log, what specialists produced, schemas, boards.
//! Stores beside the queue: the audit log, and the states of tasks.

pub mod artifacts;
pub mod audit;
pub mod board;
pub mod schemas;
pub mod tasks;
