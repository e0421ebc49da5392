//! One event and the line that it becomes.
//!
//! The bytes of a line are what the chain is made of, so they are written once, here, and never
//! produced again from a parsed line.

use std::borrow::Cow;
use std::io;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::clock::Wall;

/// What closes a line that was torn: `file`, `bytes` and `lines` say what lies before it.
pub const TORN_LINE: &str = "torn_line";

const RESERVED: [&str; 5] = ["seq", "at", "event", "handoff_id", "prev"];

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
    pub(super) fn encode(&self, seq: u64, prev: &str) -> io::Result<Vec<u8>> {
        let mut line = Map::with_capacity(self.detail.len() + RESERVED.len());
        line.insert("seq".to_owned(), seq.into());
        line.insert("at".to_owned(), self.at.to_string().into());
        line.insert("event".to_owned(), self.event.as_ref().into());
        if let Some(id) = &self.handoff_id {
            line.insert("handoff_id".to_owned(), id.as_str().into());
        }
        for (key, value) in &self.detail {
            let mut key = key.clone();
            while RESERVED.contains(&key.as_str()) || line.contains_key(&key) {
                key.push('_');
            }
            line.insert(key, value.clone());
        }
        line.insert("prev".to_owned(), prev.into());
        Ok(serde_json::to_vec(&line)?)
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
