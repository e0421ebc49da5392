//! Stores beside the queue: the audit log, what specialists produced, the states of tasks,
//! schemas, boards, packages.

pub mod archive;
pub mod artifacts;
pub mod audit;
pub mod board;
pub mod packages;
pub mod schemas;
pub mod tasks;
