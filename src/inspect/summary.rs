//! One handoff in one row.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::clock::Wall;
use crate::inspect::question::Question;
use crate::protocol::attempt::starts;
use crate::protocol::document;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::name::{Ext, Name, classify};
use crate::protocol::record::{Record, RecordError};
use crate::protocol::request::Priority;
use crate::protocol::view::View;
use crate::spool::foreign::{own_states, why_no_record, why_not_believed};
use crate::spool::layout::Layout;
use crate::store::archive::Archive;
use crate::store::archive::packed::Packed;

/// What a list shows of a handoff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub id: String,
    pub state: State,
    pub agent: Option<String>,
    pub priority: Priority,
    pub attempts: usize,
    pub updated_at: Wall,
    /// The error's code and message.
    pub error: Option<(String, String)>,
    /// Bytes that were no request; there is nothing to run.
    pub refused: bool,
    /// What it waits for, in one word.
    pub waiting_on: Option<String>,
    /// Until when at the latest.
    pub until: Option<Wall>,
    /// Why it waits.
    pub reason: Option<String>,
    /// What a person is asked.
    pub question: Option<Question>,
}

impl Row {
    pub fn to_json(&self) -> Value {
        let mut row = json!({
            "id": self.id,
            "state": self.state.status(),
            "agent": self.agent,
            "priority": self.priority.as_str(),
            "attempts": self.attempts,
            "updated_at": self.updated_at.to_string(),
            "error": self.error.as_ref().map(|(code, message)| {
                json!({ "code": code, "message": message })
            }),
        });
        if let (State::Waiting, Some(on)) = (self.state, &self.waiting_on) {
            row["waiting"] = json!({
                "on": on,
                "reason": self.reason,
                "until": self.until.map(|until| until.to_string()),
                "question": self.question.as_ref().map(Question::to_json),
            });
        }
        row
    }
}

/// The id that a file name in a state folder stands for, if it is one.
pub fn id_of(state: State, name: &OsStr) -> Option<String> {
    let id = match state {
        State::Pending => match classify(name.as_bytes()) {
            Name::Submission { id, .. } => id.to_string(),
            Name::Temporary | Name::Bad { .. } => return None,
        },
        _ => name.to_str()?.strip_suffix(".json")?.to_owned(),
    };
    (!id.starts_with('.')).then_some(id)
}

/// Whether a file name in a state folder stands for a handoff.
pub fn is_handoff(state: State, name: &OsStr) -> bool {
    if state == State::Pending {
        return id_of(state, name).is_some();
    }
    let bytes = name.as_bytes();
    bytes.ends_with(b".json") && !bytes.starts_with(b".") && name.to_str().is_some()
}

/// A file of a state folder that stands for a handoff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub id: String,
    pub state: State,
    pub path: PathBuf,
    pub modified: Wall,
    /// The record of one that is packed; it stands in no folder.
    pub packed: Option<Box<Packed>>,
}

impl Place {
    /// The handoff that a file name in a state folder stands for, if it is one.
    pub fn of(folder: &Path, state: State, name: &OsStr) -> Option<Self> {
        let id = id_of(state, name)?;
        let path = folder.join(name);
        let metadata = fs::symlink_metadata(&path).ok()?;
        if !metadata.is_file() {
            return None;
        }
        // A drop is a rename: its own time is when the name came, not when the bytes did.
        let (seconds, nanoseconds) = match state {
            State::Pending => (metadata.ctime(), metadata.ctime_nsec()),
            _ => (metadata.mtime(), metadata.mtime_nsec()),
        };
        Some(Self {
            id,
            state,
            path,
            modified: Wall(seconds * 1000 + nanoseconds / 1_000_000),
            packed: None,
        })
    }

    /// One that was packed.
    pub fn archived(layout: &Layout, packed: Packed) -> Self {
        Self {
            id: packed.id.clone(),
            state: packed.state,
            path: layout.archive(),
            modified: packed.modified,
            packed: Some(Box::new(packed)),
        }
    }

    /// The bytes of its file.
    pub fn bytes(&self) -> std::io::Result<Vec<u8>> {
        match &self.packed {
            Some(packed) => Ok(packed.record.clone()),
            None => fs::read(&self.path),
        }
    }

    /// Where the id stands now, in a folder or in the archive. A name that can't be an id, such as a
    /// path, is nowhere.
    pub fn find(layout: &Layout, id: &str) -> Option<Self> {
        HandoffId::parse_made(id).ok()?;
        Self::find_in_folders(layout, id).or_else(|| {
            let packed = Archive::new(&layout.archive()).find(id).ok()??;
            Some(Self::archived(layout, packed))
        })
    }

    fn find_in_folders(layout: &Layout, id: &str) -> Option<Self> {
        // It may move from one folder to the next while they are looked at in turn.
        (0..3).find_map(|_| {
            let submission = layout.submission(id);
            let of = |state, path: PathBuf| Self::of(path.parent()?, state, path.file_name()?);
            submission
                .and_then(|path| of(State::Pending, path))
                .or_else(|| {
                    let states = own_states(layout, id).into_iter();
                    states
                        .map(|state| (state, layout.record(state, id)))
                        .find_map(|(state, path)| of(state, path))
                })
        })
    }

    /// The document there, and the daemon's part of it where it is a record.
    pub fn read(&self) -> Option<(Map<String, Value>, Option<Record>)> {
        let bytes = self.bytes().ok()?;
        if self.state == State::Pending {
            let ext = self.path.extension()?.to_str().and_then(Ext::parse)?;
            return Some((document::parse(&bytes, ext).ok()?.map, None));
        }
        let doc = Record::document(&bytes)?;
        let record = Record::from_document(doc.clone()).ok();
        Some((doc, record))
    }

    /// Why the file is not the outcome of this handoff, if it stands among the outcomes and is
    /// not.
    pub fn why_foreign(&self, layout: &Layout) -> Option<String> {
        if !self.state.is_final() || self.packed.is_some() {
            return None;
        }
        match self.bytes() {
            Ok(bytes) => why_not_believed(layout, self.state, &self.id, &bytes),
            Err(_) => None,
        }
    }

    /// The row of a handoff. None for a file that somebody else put among the outcomes: it is no
    /// record of that folder, or the handoff stands elsewhere.
    pub fn own_row(&self, layout: &Layout) -> Option<Row> {
        if !self.state.is_final() || self.packed.is_some() {
            return Some(self.row());
        }
        let (doc, record) = self.read().unwrap_or_default();
        let is_newer = || {
            let read = Record::from_document(doc.clone());
            matches!(read, Err(RecordError::Newer(_)))
        };
        let is_outcome = record
            .as_ref()
            .is_some_and(|record| why_no_record(record, self.state, &self.id).is_none());
        let stands_here = || own_states(layout, &self.id).contains(&self.state);
        ((is_outcome || record.is_none() && is_newer()) && stands_here())
            .then(|| self.row_of(&doc, record))
    }

    pub fn row(&self) -> Row {
        let (doc, record) = self.read().unwrap_or_default();
        self.row_of(&doc, record)
    }

    fn row_of(&self, doc: &Map<String, Value>, record: Option<Record>) -> Row {
        let waiting = doc.get("waiting").filter(|_| self.state == State::Waiting);
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let view = View::of_document(doc);
        let error = doc.get("error").and_then(|error| {
            Some((
                text(error.get("code"))?,
                text(error.get("message")).unwrap_or_default(),
            ))
        });
        Row {
            id: self.id.clone(),
            state: self.state,
            agent: view.agent_shown(),
            priority: text(view.get("priority"))
                .and_then(|priority| Priority::parse(&priority))
                .unwrap_or_default(),
            refused: record
                .as_ref()
                .is_some_and(|record| record.meta.rejected.is_some()),
            attempts: record.map_or(0, |record| starts(&record.meta.attempts)),
            updated_at: self.modified,
            error: error.filter(|_| self.state == State::Failed),
            waiting_on: text(waiting.and_then(|waiting| waiting.get("on"))),
            until: text(waiting.and_then(|waiting| waiting.get("until")))
                .and_then(|until| Wall::parse(&until)),
            reason: text(waiting.and_then(|waiting| waiting.get("reason"))),
            question: Question::of(doc).filter(|_| waiting.is_some()),
        }
    }
}
