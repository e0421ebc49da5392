//! An attempt as the loop remembers it, and the words its jobs report back with.

use std::ffi::OsStr;
use std::time::Duration;

use serde_json::json;

use crate::engine::intake::Submission;
use crate::keeper::wire::{Key, Why};
use crate::policy::intake::Terms;
use crate::protocol::agent::AgentName;
use crate::protocol::name::Ext;
use crate::protocol::record::Record;
use crate::runner::vitals::{VitalLimits, Vitals};
use crate::spool::look::Identity;

/// Where the next attempt's record comes from.
#[derive(Debug)]
pub enum Source {
    Pending {
        ext: Ext,
        read: Option<Box<Submission>>,
    },
    Waiting,
}

#[derive(Debug)]
pub enum NotLaunched {
    /// It left, changed or is not what it was: look at it again.
    LookAgain,
    /// The record was refused instead (its specialist is gone, it was edited); it is on its way.
    Refused,
    Io(String),
}

/// An attempt that runs, as the loop remembers it.
#[derive(Debug)]
pub struct Running {
    pub key: Key,
    pub record: Record,
    /// The record's file, to notice if somebody touches it.
    pub identity: Option<Identity>,
    pub agent: AgentName,
    pub terms: Terms,
    pub slot: u32,
    pub started_boot_ms: u64,
    pub vitals: Vitals,
    pub cpu_ms: Option<u64>,
    /// Why the loop has asked for its end, and with what grace: asked again of a new keeper.
    pub ending: Option<(Why, u64)>,
    /// Who cancelled it and why, in words.
    pub cancelled: Option<String>,
    /// Which keeper it was given to, counted from the first.
    pub keeper: u64,
}

impl Running {
    pub fn limits(&self, max_output: u64) -> VitalLimits {
        VitalLimits {
            max_output,
            linger: self.terms.linger,
            stall: self.terms.stall_timeout,
        }
    }

    /// What is journalled with the attempt, so that another daemon can take it over.
    pub fn note(&self) -> serde_json::Value {
        json!({ "slot": self.slot, "started_boot_ms": self.started_boot_ms })
    }
}

/// A file name for people and logs: whatever is in it, it stays on its line.
pub fn shown(name: &OsStr) -> String {
    name.to_string_lossy().escape_debug().to_string()
}

pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
