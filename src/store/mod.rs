//! Stores beside the queue: the audit log, what specialists produced, the states of tasks,
//! schemas, boards.

pub mod artifacts;
pub mod audit;
pub mod board;
pub mod schemas;
pub mod tasks;
