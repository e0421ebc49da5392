//! An attempt as the loop remembers it, and the words its jobs report back with.

use std::ffi::OsStr;
use std::time::Duration;

use serde_json::json;

use crate::engine::intake::Submission;
use crate::engine::outcome::End;
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
    /// Its file can't be moved, for this reason; nothing else is in trouble.
    Fixed(&'static str),
    Io(String),
}

/// An attempt that runs, as the loop remembers it.
#[derive(Debug, Clone)]
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
    /// The work is done, and is being verified.
    pub verify: Option<Verifying>,
}

/// A verify command that runs, after the work it is about.
#[derive(Debug, Clone)]
pub struct Verifying {
    /// How the work ended.
    pub work: End,
    pub slot: u32,
}

/// What tells a verify command's key from its attempt's.
const VERIFY: &str = "~verify";

/// The key under which the keeper knows the verify command of an attempt.
pub fn verify_key(key: &Key) -> Key {
    Key::new(format!("{}{VERIFY}", key.id), key.attempt)
}

/// The handoff that a key of the keeper's is about.
pub fn handoff_of(key: &Key) -> &str {
    key.id.strip_suffix(VERIFY).unwrap_or(&key.id)
}

impl Running {
    /// What the keeper runs of it now.
    pub fn live_key(&self) -> Key {
        match self.verify {
            Some(_) => verify_key(&self.key),
            None => self.key.clone(),
        }
    }

    pub fn live_slot(&self) -> u32 {
        self.verify.as_ref().map_or(self.slot, |verify| verify.slot)
    }

    pub fn limits(&self, max_output: u64) -> VitalLimits {
        VitalLimits {
            max_output,
            linger: self.terms.linger,
            stall: self.terms.stall_timeout,
        }
    }

    /// What is journalled with the attempt, so that another daemon can take it over.
    pub fn note(&self, slot: u32) -> serde_json::Value {
        json!({ "slot": slot, "started_boot_ms": self.started_boot_ms })
    }
}

/// A file name for people and logs: whatever is in it, it stays on its line.
pub fn shown(name: &OsStr) -> String {
    name.to_string_lossy().escape_debug().to_string()
}

pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
