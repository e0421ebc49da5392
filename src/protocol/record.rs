//! The record: a producer's document, and what the daemon adds to it.
//!
//! What a producer wrote stays where it wrote it. Where the daemon needs a key that the
//! producer used, the producer's value moves to `handoffd.submitted`. All that is the daemon's
//! alone sits under the one key `handoffd`, parsed here into [`Meta`]; keys in it that this
//! version does not know are kept.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::json_text;
use crate::mutant;
use crate::protocol::attempt::{Attempt, AttemptOutcome};
use crate::protocol::block::{put, take, take_list, take_map};
use crate::protocol::field::find;
use crate::protocol::json;
use crate::protocol::lifecycle::State;
use crate::protocol::links::Links;
use crate::protocol::timer::Timer;

/// The version of the stored format.
pub const FORMAT: u64 = 1;

/// Attempt numbers above this in a submission are not history but an attack on the counter.
const MAX_BELIEVED_ATTEMPT: u32 = 1_000_000;

/// Keys that the daemon writes in the course of every handoff. A producer's values under them
/// move to `submitted` at admission.
pub const OWNED: [&str; 17] = [
    "status",
    "started_at",
    "completed_at",
    "timestamp_completed",
    "failed_at",
    "timestamp_failed",
    "execution_time_seconds",
    "result",
    "error",
    "waiting",
    "retry_available",
    "retry_count",
    "max_retries",
    "recovery_actions",
    "answer",
    "acknowledgment",
    COMMAND,
];

/// What an attempt is given of its task. It is made anew for each attempt and no part of an outcome.
pub const COMMAND: &str = "handoff_command";

/// Keys that are written only where a result has them; until then they are the producer's.
pub const LIFTED: [&str; 6] = [
    "output",
    "validation",
    "metadata",
    "next_steps",
    "warnings",
    "errors",
];

/// The daemon's own part of a record, the value of its `handoffd` key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Meta {
    pub revision: u64,
    pub attempts: Vec<Attempt>,
    /// How many of `attempts` belong to earlier budgets (before a resubmission or a `retry`).
    pub spent: usize,
    /// Automatic retries made in this budget.
    pub retries: u32,
    /// Attempts lost in this budget.
    pub interruptions: u32,
    pub request_sha256: Option<String>,
    pub submitted: Map<String, Value>,
    /// Keys of [`LIFTED`] that hold the daemon's value at the top of the record.
    pub lifted: Vec<String>,
    pub previous: Vec<Value>,
    /// Where a decided move leads. Equal to the folder it stands in once it has arrived.
    pub to: Option<State>,
    pub timer: Option<Timer>,
    /// The boot in which the present attempt was claimed.
    pub boot: Option<String>,
    /// A hold that this handoff's specialist asked for: all of its handoffs wait.
    pub holds_agent: bool,
    /// Control files that were carried out on this record, newest last.
    pub applied: Vec<String>,
    /// Inode and size of rejected bytes, to know them again after a crash.
    pub rejected: Option<String>,
    /// Where the artifact goes, resolved at the first claim.
    pub destination: Option<String>,
    /// The result of the last attempt that left one and did not complete the handoff.
    pub last_result: Map<String, Value>,
    /// What was taken out of the record and stands in a file beside it, so that an agent can be
    /// handed the rest: which part, how many entries, and the path.
    pub compacted: Vec<Value>,
    pub links: Links,
    /// What a newer daemon of the same format wrote, or a later feature.
    pub extra: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The document without `handoffd`.
    pub doc: Map<String, Value>,
    pub meta: Meta,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RecordError {
    #[error("is not a complete JSON object")]
    NotADocument,
    #[error("has no `handoffd` block")]
    NoMeta,
    #[error("has an invalid `handoffd` block: {0}")]
    BadMeta(String),
    #[error("has format {0}; this version reads format {FORMAT}")]
    Newer(u64),
}

impl Meta {
    fn from_value(value: Value) -> Result<Self, RecordError> {
        let Value::Object(mut map) = value else {
            return Err(RecordError::BadMeta("not an object".to_owned()));
        };
        let format: u64 = take(&mut map, "format")?;
        if format > FORMAT {
            return Err(RecordError::Newer(format));
        }
        if format == 0 {
            return Err(RecordError::BadMeta("format is missing".to_owned()));
        }
        Ok(Self {
            revision: take(&mut map, "revision")?,
            attempts: take(&mut map, "attempts")?,
            spent: take(&mut map, "spent")?,
            retries: take(&mut map, "retries")?,
            interruptions: take(&mut map, "interruptions")?,
            request_sha256: take(&mut map, "request_sha256")?,
            submitted: take_map(&mut map, "submitted")?,
            lifted: take(&mut map, "lifted")?,
            previous: take_list(&mut map, "previous")?,
            to: take(&mut map, "to")?,
            timer: take(&mut map, "timer")?,
            boot: take(&mut map, "boot")?,
            holds_agent: take(&mut map, "holds_agent")?,
            applied: take(&mut map, "applied")?,
            rejected: take(&mut map, "rejected")?,
            destination: take(&mut map, "destination")?,
            last_result: take_map(&mut map, "last_result")?,
            compacted: take_list(&mut map, "compacted")?,
            links: Links::take_from(&mut map)?,
            extra: map,
        })
    }

    /// The number that the next attempt gets. Numbers are never used twice.
    pub fn next_attempt(&self) -> u32 {
        self.attempts
            .iter()
            .map(|attempt| attempt.number)
            .max()
            .unwrap_or(0)
            .saturating_add(1)
    }

    /// The attempts of the present budget.
    pub fn current_attempts(&self) -> &[Attempt] {
        &self.attempts[self.spent.min(self.attempts.len())..]
    }
}

impl Serialize for Meta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("format", &FORMAT)?;
        map.serialize_entry("revision", &self.revision)?;
        map.serialize_entry("attempts", &self.attempts)?;
        put(&mut map, "spent", &self.spent)?;
        put(&mut map, "retries", &self.retries)?;
        put(&mut map, "interruptions", &self.interruptions)?;
        put(&mut map, "request_sha256", &self.request_sha256)?;
        put(&mut map, "submitted", &self.submitted)?;
        put(&mut map, "lifted", &self.lifted)?;
        put(&mut map, "previous", &self.previous)?;
        put(&mut map, "to", &self.to)?;
        if !mutant::is("retry-time-not-stored") {
            put(&mut map, "timer", &self.timer)?;
        }
        put(&mut map, "boot", &self.boot)?;
        put(&mut map, "holds_agent", &self.holds_agent)?;
        put(&mut map, "applied", &self.applied)?;
        put(&mut map, "rejected", &self.rejected)?;
        put(&mut map, "destination", &self.destination)?;
        put(&mut map, "last_result", &self.last_result)?;
        put(&mut map, "compacted", &self.compacted)?;
        self.links.put_into(&mut map)?;
        for (name, value) in &self.extra {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Record {
    /// Reads the bytes of a record that the daemon wrote. `None` if they are no JSON object.
    pub fn document(bytes: &[u8]) -> Option<Map<String, Value>> {
        match json::parse_own(std::str::from_utf8(bytes).ok()?) {
            Ok(Value::Object(map)) => Some(map),
            _ => None,
        }
    }

    /// Reads a record that the daemon wrote, whole.
    pub fn read(bytes: &[u8]) -> Result<Self, RecordError> {
        Self::from_document(Self::document(bytes).ok_or(RecordError::NotADocument)?)
    }

    /// Makes a record of a document that the daemon wrote.
    pub fn from_document(mut doc: Map<String, Value>) -> Result<Self, RecordError> {
        let meta = doc.shift_remove("handoffd").ok_or(RecordError::NoMeta)?;
        Ok(Self {
            meta: Meta::from_value(meta)?,
            doc,
        })
    }

    /// Makes a record of a submission. Nothing in it is believed: what an earlier run left is
    /// history, and anything else under the daemon's keys is the producer's own.
    pub fn admit(mut doc: Map<String, Value>, id: &str, sha256: Option<String>) -> Self {
        let mut record = match doc.shift_remove("handoffd") {
            None => Self {
                doc,
                meta: Meta::default(),
            },
            Some(claimed) => Self::readmit(doc, claimed),
        };
        if record.doc.keys().any(|key| OWNED.contains(&key.as_str())) {
            for key in OWNED {
                if let Some(value) = record.doc.shift_remove(key) {
                    record.meta.submitted.insert(key.to_owned(), value);
                }
            }
        }
        record.meta.request_sha256 = sha256;
        if find(&record.doc, "handoff_id").and_then(Value::as_str) != Some(id) {
            let written = record.doc.shift_remove("handoff_id");
            record
                .doc
                .shift_insert(0, "handoff_id".to_owned(), id.into());
            if let Some(written) = written {
                record
                    .meta
                    .submitted
                    .insert("handoff_id".to_owned(), written);
            }
        }
        record
    }

    fn readmit(doc: Map<String, Value>, claimed: Value) -> Self {
        let believable = |meta: &Meta| {
            meta.revision < u64::MAX / 2
                && meta
                    .attempts
                    .iter()
                    .all(|attempt| attempt.number <= MAX_BELIEVED_ATTEMPT)
        };
        match Meta::from_value(claimed.clone()) {
            Ok(meta) if believable(&meta) => {
                let mut record = Self { doc, meta };
                let last_result = std::mem::take(&mut record.meta.last_result);
                record.new_budget();
                // A submission can't say what an attempt left.
                if !last_result.is_empty() {
                    let entry = json!({ "last_result": last_result });
                    record.meta.previous.push(entry);
                }
                record.meta.applied.clear();
                // A submission can't say which file is its own, nor what is to be done for it.
                record.meta.destination = None;
                record.meta.links.spawns.clear();
                record.meta.links.returns.clear();
                record.meta.links.gathered.clear();
                record.meta.links.returned = None;
                record.meta.links.forget_what_is_no_id();
                for attempt in &mut record.meta.attempts {
                    // Whatever it was, it is not running now.
                    attempt.outcome.get_or_insert(AttemptOutcome::Interrupted);
                }
                record
            }
            _ => {
                let mut meta = Meta::default();
                meta.submitted.insert("handoffd".to_owned(), claimed);
                Self { doc, meta }
            }
        }
    }

    /// Moves the last outcome to `previous`, gives the producer's own fields back their places
    /// and starts the retry budget anew. Attempts stay listed.
    pub fn new_budget(&mut self) {
        let mut outcome = Map::new();
        self.doc.shift_remove(COMMAND);
        for key in OWNED {
            if let Some(value) = self.doc.shift_remove(key) {
                outcome.insert(key.to_owned(), value);
            }
        }
        let lifted = std::mem::take(&mut self.meta.lifted);
        // The list may be a forger's: only what the daemon lifts can have been lifted.
        for key in lifted
            .into_iter()
            .filter(|key| LIFTED.contains(&key.as_str()))
        {
            if let Some(value) = self.doc.shift_remove(&key) {
                outcome.insert(key.clone(), value);
            }
            if let Some(own) = self.meta.submitted.shift_remove(&key) {
                self.doc.insert(key, own);
            }
        }
        if !outcome.is_empty() {
            self.meta.previous.push(Value::Object(outcome));
        }
        self.meta.spent = self.meta.attempts.len();
        self.meta.retries = 0;
        self.meta.interruptions = 0;
        self.meta.to = None;
        self.meta.timer = None;
        self.meta.boot = None;
        self.meta.holds_agent = false;
        self.meta.rejected = None;
        // Whoever runs it anew may have mended what the helpers could not.
        self.meta.links.asks.clear();
    }

    /// The request anew: the document without any outcome, and what its producer wrote under keys that
    /// are the daemon's, as a submission brings both.
    pub fn into_request(mut self) -> Map<String, Value> {
        self.new_budget();
        let mut submitted = self.meta.submitted;
        submitted.retain(|key, _| OWNED.contains(&key.as_str()));
        let mut block = Map::from_iter([("format".to_owned(), FORMAT.into())]);
        if !submitted.is_empty() {
            block.insert("submitted".to_owned(), submitted.into());
        }
        self.doc.insert("handoffd".to_owned(), block.into());
        self.doc
    }

    /// Sets one of the daemon's own keys.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.doc.insert(key.to_owned(), value.into());
    }

    /// Sets a key that comes from a result; a producer's value there moves to `submitted`.
    pub fn lift(&mut self, key: &str, value: Value) {
        if self.meta.lifted.iter().any(|lifted| lifted == key) {
            self.doc.insert(key.to_owned(), value);
            return;
        }
        if let Some(own) = self.doc.insert(key.to_owned(), value) {
            self.meta.submitted.insert(key.to_owned(), own);
        }
        self.meta.lifted.push(key.to_owned());
    }

    /// Marks the record as decided for `next`, with the status that goes with it.
    pub fn decide(&mut self, next: State) {
        // A record put here by hand may carry any number.
        self.meta.revision = self.meta.revision.saturating_add(1);
        // What the last decision set in motion is done.
        self.meta.links.spawns.clear();
        self.meta.to = Some(next);
        self.set("status", next.status());
        if next == State::Completed {
            self.meta.last_result.clear();
        }
        if next != State::Waiting {
            self.doc.shift_remove("waiting");
            self.meta.timer = None;
            self.meta.holds_agent = false;
        }
    }

    /// Whether the submission that it was made of was a record before, or said so.
    pub fn has_history(&self) -> bool {
        !self.meta.previous.is_empty()
            || !self.meta.attempts.is_empty()
            || self.meta.submitted.contains_key("handoffd")
    }

    pub fn running_attempt(&self) -> Option<&Attempt> {
        self.meta
            .attempts
            .last()
            .filter(|attempt| attempt.outcome.is_none())
    }

    /// All attempts of this budget together.
    pub fn execution_ms(&self) -> u64 {
        self.meta
            .current_attempts()
            .iter()
            .filter_map(|attempt| attempt.milliseconds)
            .fold(0, u64::saturating_add)
    }

    /// The bytes that go to disk: indented, so that `cat` is enough to read it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = json_text::indented(&Whole(self)).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// The same document, for whoever writes it in another form.
    pub fn as_document(&self) -> impl Serialize + '_ {
        Whole(self)
    }

    /// What the producer submitted: without what the daemon wrote, and with what that displaced.
    pub fn submitted_document(&self) -> Map<String, Value> {
        let is_lifted = |key: &str| self.meta.lifted.iter().any(|lifted| lifted == key);
        let mut doc = self.doc.clone();
        doc.retain(|key, _| !OWNED.contains(&key.as_str()) && !is_lifted(key));
        doc.extend(self.meta.submitted.clone());
        doc
    }
}

/// The document with what is ours in its place, without a copy of either.
struct Whole<'a>(&'a Record);

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Record { doc, meta, .. } = self.0;
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in doc.iter().filter(|(name, _)| *name != "handoffd") {
            map.serialize_entry(name, value)?;
        }
        map.serialize_entry("handoffd", meta)?;
        map.end()
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
