//! One event and the line that it becomes.
//!
//! The bytes of a line are what the chain is made of, so they are written once, here, and never
//! produced again from a parsed line.

use std::borrow::Cow;
use std::io;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::clock::Wall;
use crate::json_text;

/// What closes a line that was torn: `file`, `bytes` and `lines` say what lies before it. With
/// `first`, `last` and `seal` it tells of lines that are missing further up.
pub const TORN_LINE: &str = "torn_line";

/// Somebody else changed the end of the log while a daemon had it open. `expected` and `found`, each
/// with its hash, say which line the daemon left there and which one it met.
pub const ALTERED: &str = "audit_altered";

/// How many of the lines before this one were not on disk when it was written; left out if all
/// were, or if nobody syncs.
const UNSYNCED: &str = "unsynced";

const RESERVED: [&str; 6] = ["seq", "at", "event", "handoff_id", UNSYNCED, "prev"];

/// What is to be said; the log adds number and hash.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub at: Wall,
    pub event: Cow<'static, str>,
    pub handoff_id: Option<String>,
    /// Further fields, in this order. A name that the line itself uses gets a `_` behind it.
    pub detail: Map<String, Value>,
}

impl Event {
    pub fn new(at: Wall, event: impl Into<Cow<'static, str>>) -> Self {
        Self {
            at,
            event: event.into(),
            handoff_id: None,
            detail: Map::new(),
        }
    }

    /// The same event, about this handoff.
    #[must_use]
    pub fn about(mut self, handoff_id: impl Into<String>) -> Self {
        self.handoff_id = Some(handoff_id.into());
        self
    }

    /// The same event with one more field.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.detail.insert(key.into(), value.into());
        self
    }

    /// The line's bytes, without newline.
    pub(super) fn encode(&self, seq: u64, unsynced: u64, prev: &str) -> io::Result<Vec<u8>> {
        // Every transition writes one: nothing is copied that needs no other name.
        let numbered = Numbered {
            event: self,
            seq,
            unsynced,
            prev,
        };
        let mut bytes = Vec::with_capacity(384);
        if !self.detail.keys().any(|key| is_reserved(key)) {
            json_text::append(&mut bytes, &numbered)?;
            return Ok(bytes);
        }
        let mut renamed = Self {
            detail: Map::with_capacity(self.detail.len()),
            ..self.clone()
        };
        for (key, value) in &self.detail {
            let mut key = key.clone();
            while is_reserved(&key) || renamed.detail.contains_key(&key) {
                key.push('_');
            }
            renamed.detail.insert(key, value.clone());
        }
        renamed.encode(seq, unsynced, prev)
    }
}

fn is_reserved(key: &str) -> bool {
    RESERVED.contains(&key)
}

/// An event as it stands in the log; none of its own names is a reserved one.
struct Numbered<'a> {
    event: &'a Event,
    seq: u64,
    unsynced: u64,
    prev: &'a str,
}

impl Serialize for Numbered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("seq", &self.seq)?;
        line.serialize_entry("at", &self.event.at)?;
        line.serialize_entry("event", &self.event.event)?;
        if let Some(id) = &self.event.handoff_id {
            line.serialize_entry("handoff_id", id)?;
        }
        for (key, value) in &self.event.detail {
            line.serialize_entry(key, value)?;
        }
        if self.unsynced > 0 {
            line.serialize_entry(UNSYNCED, &self.unsynced)?;
        }
        line.serialize_entry("prev", self.prev)?;
        line.end()
    }
}

/// A line that was read back.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub seq: u64,
    pub at: Wall,
    pub event: String,
    pub handoff_id: Option<String>,
    pub detail: Map<String, Value>,
    /// Hex SHA-256 of the line before; zeros in the first line of all.
    pub prev: String,
}

impl Line {
    /// `None` for whatever is not a whole line of this log.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut detail: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
        let mut text = |key: &str| match detail.shift_remove(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let at = Wall::parse(&text("at")?)?;
        let event = text("event")?;
        let prev = text("prev").filter(|prev| prev.len() == 64)?;
        let handoff_id = text("handoff_id");
        let seq = detail.shift_remove("seq")?.as_u64()?;
        Some(Self {
            seq,
            at,
            event,
            handoff_id,
            detail,
            prev,
        })
    }

    /// How many of the lines before this one were not on disk when it was written.
    pub(super) fn unsynced(&self) -> u64 {
        let said = self.detail.get(UNSYNCED).and_then(Value::as_u64);
        said.unwrap_or(0)
    }

    /// The first line that a power cut may have taken while this one was kept; its own number
    /// if there was none.
    pub(super) fn reach(&self) -> u64 {
        self.seq.saturating_sub(self.unsynced())
    }
}

/// The `prev` of the first line of all.
pub(super) fn no_line() -> String {
    "0".repeat(64)
}

/// Hex SHA-256 of a line's bytes, without newline.
pub(super) fn hash(line: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(line) {
        hex.push(DIGITS[usize::from(byte >> 4)].into());
        hex.push(DIGITS[usize::from(byte & 15)].into());
    }
    hex
}
