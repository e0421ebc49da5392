//! An attempt as the loop remembers it, and the words its jobs report back with.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::config::Specialist;
use crate::engine::intake::Submission;
use crate::engine::outcome::End;
use crate::keeper::wire::{Key, RESIDENT, VERIFY, Why};
use crate::policy::intake::Terms;
use crate::policy::judge::Exit;
use crate::policy::rights::Wrong;
use crate::protocol::agent::AgentName;
use crate::protocol::name::Ext;
use crate::protocol::record::Record;
use crate::protocol::request::{GateKind, Request};
use crate::runner::resident::wires::Wire;
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
    /// It is of a kind that can't be given ahead.
    NotAhead(AgentName),
    /// The record was refused instead (its specialist is gone, it was edited); it is on its way.
    Refused,
    /// Its file can't be moved, for this reason; nothing else is in trouble.
    Fixed(&'static str),
    /// Others may rewrite what its specialist runs.
    Unsafe(AgentName, Box<Wrong>),
    Io(String),
}

/// An attempt that runs, as the loop remembers it.
#[derive(Debug, Clone)]
pub struct Running {
    pub key: Key,
    pub record: Record,
    /// The record's file, to notice if somebody touches it.
    pub identity: Option<Identity>,
    /// What the record asks for.
    pub request: Arc<Request>,
    pub agent: AgentName,
    pub terms: Terms,
    /// Where it prints to; [`NO_SLOT`] for one that a resident process does.
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
    /// The resident process that works on it, until it has answered.
    pub post: Option<Post>,
}

/// A slot that no attempt has: it is as good as empty.
pub const NO_SLOT: u32 = u32::MAX;

/// A resident process, as one attempt knows it.
#[derive(Debug, Clone)]
pub struct Post {
    pub number: u32,
    /// None if it could not even be tried to start it.
    pub wire: Option<Arc<Wire>>,
    /// What to start, where it is not there yet.
    pub hire: Option<Arc<Specialist>>,
    /// Which keeper it was given to.
    pub keeper: u64,
    /// Heartbeats since it was given the handoff.
    pub beats: u64,
}

pub fn resident_key(number: u32) -> Key {
    Key::new(RESIDENT, number)
}

pub fn is_resident(key: &Key) -> bool {
    key.id == RESIDENT
}

/// A verify command that runs, after the work it is about.
#[derive(Debug, Clone)]
pub struct Verifying {
    /// How the work ended.
    pub work: End,
    pub slot: u32,
}

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
        match (&self.verify, &self.post) {
            (Some(_), _) => verify_key(&self.key),
            (None, Some(post)) => resident_key(post.number),
            (None, None) => self.key.clone(),
        }
    }

    /// Whether it passes an advisory gate, which is told once in a budget.
    pub fn advises(&self) -> bool {
        self.request.gate == Some(GateKind::Advisory)
            && self.record.meta.current_attempts().len() == 1
    }

    /// Whether its time is over, where that is not the keeper's to tell.
    pub fn is_overdue(&self, now_ms: u64) -> bool {
        self.post.is_some() && now_ms.saturating_sub(self.started_boot_ms) >= ms(self.terms.timeout)
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
        let mut note = json!({ "slot": slot, "started_boot_ms": self.started_boot_ms });
        if let Some(verify) = &self.verify
            && let End::Exited {
                exit: Exit::Lives, ..
            } = verify.work
        {
            note["answered"] = true.into();
        }
        note
    }
}

/// A file name for people and logs: whatever is in it, it stays on its line.
pub fn shown(name: &OsStr) -> String {
    name.to_string_lossy().escape_debug().to_string()
}

pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
