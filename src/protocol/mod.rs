//! The formats: what stands in files, and nothing that touches them.

pub mod agent;
pub mod control;
pub mod destination;
pub mod dialect;
pub mod document;
pub mod error;
pub mod export;
pub mod field;
pub mod fields;
pub mod id;
pub mod json;
pub mod lifecycle;
pub mod links;
pub mod markdown;
pub mod name;
pub mod record;
pub mod report;
pub mod request;
pub mod result;
pub mod shape;
pub mod task;
pub mod timer;
pub mod view;
pub mod yaml;
pub mod yaml_write;
