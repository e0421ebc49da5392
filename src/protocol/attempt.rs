//! One attempt as the record lists it: its number, its times and how it ended.
//!
//! Which process runs an attempt is not here: that stands in the run folder, for as long as it runs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::Wall;
use crate::protocol::field::FieldError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    Completed,
    Failed,
    Timeout,
    Stalled,
    Interrupted,
    Cancelled,
    Blocked,
    NeedsReview,
    Delegated,
    Held,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    pub number: u32,
    pub started_at: Wall,
    #[serde(default)]
    pub ended_at: Option<Wall>,
    #[serde(default)]
    pub outcome: Option<AttemptOutcome>,
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub signal: Option<i32>,
    #[serde(default)]
    pub error: Option<AttemptError>,
    /// The attempt's log, relative to the root; absent where it said nothing.
    #[serde(default)]
    pub log: Option<String>,
    /// How long it ran, by the clock that does not jump.
    #[serde(default)]
    pub milliseconds: Option<u64>,
    /// What it cost, by its own count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Map<String, Value>>,
}

impl Attempt {
    /// One that begins now; how it ends is not known yet.
    pub fn begun(number: u32, started_at: Wall) -> Self {
        Self {
            number,
            started_at,
            ended_at: None,
            outcome: None,
            exit_code: None,
            signal: None,
            error: None,
            log: None,
            milliseconds: None,
            usage: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptError {
    pub code: String,
    pub message: String,
    /// The fields that were wrong, for the next attempt to fix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldError>,
}
