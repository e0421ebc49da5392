//! The formats: what stands in files, and nothing that touches them.

pub mod agent;
pub mod error;
