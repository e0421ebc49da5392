//! Files in `completed/` and `failed/` that the daemon did not put there: how they are known.
//!
//! A genuine outcome is a record of its folder, it stands in no other folder, and the audit log has
//! its line. The log is asked only for one id at a time: a list does without, unless an id stands in
//! two folders.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::protocol::lifecycle::State;
use crate::protocol::name::{Name, classify};
use crate::protocol::record::{Record, RecordError};
use crate::spool::layout::Layout;
use crate::spool::look::{Looked, look};
use crate::spool::scan::record_id;
use crate::store::audit::{self, Word};

/// How often a record is looked for that moves on meanwhile.
const LOOKS: usize = 3;

const NO_LINE: &str = "the audit log has no line for this outcome";

/// A file in a final folder, as far as that can be told without the audit log.
#[derive(Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nothing that needs a word: gone, temporary, refused bytes, or of a newer format.
    Nothing,
    Foreign(String),
    /// An outcome, if the audit log has its line.
    Outcome(audit::Outcome),
}

/// Looks at what stands under this name.
pub fn sight(layout: &Layout, state: State, name: &OsStr) -> Sight {
    let foreign = |why: String| Sight::Foreign(why);
    if classify(name.as_bytes()) == Name::Temporary {
        return Sight::Nothing;
    }
    if state == State::Failed && has_notice(layout, name) {
        return Sight::Nothing;
    }
    let bytes = match look(&layout.state(state).join(name), u64::MAX - 1) {
        Looked::Gone | Looked::TooLarge { .. } => return Sight::Nothing,
        Looked::Bytes { bytes, .. } => bytes,
        Looked::Folder => return foreign("it is a folder".to_owned()),
        Looked::NotAFile { what, .. } => return foreign(format!("it is {what}")),
        Looked::Changing => return foreign("it is still being written".to_owned()),
        Looked::Unreadable { error, .. } => return foreign(format!("can't read it: {error}")),
    };
    let Some(id) = record_id(name) else {
        return foreign("its name is not <id>.json".to_owned());
    };
    match why_not_own(layout, state, id, &bytes) {
        Some(why) => foreign(why),
        None => outcome_in(state, id, &bytes).map_or(Sight::Nothing, Sight::Outcome),
    }
}

/// Which of these outcomes the audit log does not know, and why they are foreign then.
pub fn without_line(layout: &Layout, told: &[audit::Outcome]) -> Vec<Option<String>> {
    let words = audit::outcomes(&layout.audit(), told).unwrap_or_default();
    let mut words = words.into_iter();
    told.iter()
        .map(|_| (words.next() == Some(Word::Never)).then(|| NO_LINE.to_owned()))
        .collect()
}

/// Whether these are refused bytes, which stand beside their notice.
fn has_notice(layout: &Layout, name: &OsStr) -> bool {
    let id = name
        .to_str()
        .and_then(|name| name.strip_suffix(".rejected"));
    id.is_some_and(|id| fs::symlink_metadata(layout.record(State::Failed, id)).is_ok())
}

/// Why these bytes are no record of an outcome that belongs there, if they are none. One of a newer
/// format may be.
pub fn why_no_outcome(bytes: &[u8], state: State, id: &str) -> Option<String> {
    let record = match Record::read(bytes) {
        Ok(record) => record,
        Err(RecordError::Newer(_)) => return None,
        Err(error) => return Some(format!("the record {error}")),
    };
    why_no_record(&record, state, id)
}

/// Why this record is not one of an outcome that belongs there, if it is not.
pub fn why_no_record(record: &Record, state: State, id: &str) -> Option<String> {
    let of = |key: &str| record.doc.get(key).and_then(|value| value.as_str());
    // On its way to another folder.
    if record.meta.to.is_some_and(|to| state.may_become(to)) {
        return None;
    }
    if of("status") != Some(state.status()) {
        return Some(format!(
            "its status is {}",
            of("status").unwrap_or("missing")
        ));
    }
    (of("handoff_id") != Some(id)).then(|| "its handoff_id differs from its name".to_owned())
}

/// Why a file in a final folder is not the outcome of its handoff, if it is not: it is no outcome at
/// all, the handoff's own record stands elsewhere, or the audit log does not know it.
pub fn why_not_believed(layout: &Layout, state: State, id: &str, bytes: &[u8]) -> Option<String> {
    why_not_own(layout, state, id, bytes)
        .or_else(|| (word_on(layout, state, id, bytes) == Word::Never).then(|| NO_LINE.to_owned()))
}

/// The same, without the log's word.
fn why_not_own(layout: &Layout, state: State, id: &str, bytes: &[u8]) -> Option<String> {
    if let Some(why) = why_no_outcome(bytes, state, id) {
        return Some(why);
    }
    let own = own_states(layout, id);
    let elsewhere = own.first().filter(|_| !own.contains(&state))?;
    Some(format!("{id} is in {}/", elsewhere.folder()))
}

/// The state folders that hold this id's own record: as [`Layout::states_of`], without files that
/// somebody else put among the outcomes of a handoff that stands elsewhere.
pub fn own_states(layout: &Layout, id: &str) -> Vec<State> {
    let mut states = layout.states_of(id);
    for _ in 1..LOOKS {
        let is_live = states.iter().any(|state| !state.is_final());
        if !is_live || states.iter().all(|state| !state.is_final()) {
            break;
        }
        // It may have moved from one folder to the other between the two looks.
        states = layout.states_of(id);
    }
    if states.len() < 2 {
        return states;
    }
    if states.iter().any(|state| !state.is_final()) {
        states.retain(|state| !state.is_final());
        return states;
    }
    let decided = |state: State| {
        let bytes = read_outcome(layout, state, id)?;
        match word_on(layout, state, id, &bytes) {
            Word::Decided(seq) => Some(seq),
            Word::Never | Word::Unknown => None,
        }
    };
    let newest = states
        .iter()
        .filter_map(|state| Some((decided(*state)?, *state)))
        .max();
    match newest {
        Some((_, state)) => vec![state],
        None => states,
    }
}

/// Whether a file among the outcomes is no outcome, or one that the audit log would know and does
/// not, wherever else its id stands.
pub fn is_forged(layout: &Layout, state: State, id: &str) -> bool {
    read_outcome(layout, state, id)
        .is_none_or(|bytes| word_on(layout, state, id, &bytes) == Word::Never)
}

/// The bytes of an outcome, if a record of that folder stands there.
fn read_outcome(layout: &Layout, state: State, id: &str) -> Option<Vec<u8>> {
    match look(&layout.record(state, id), u64::MAX - 1) {
        Looked::Bytes { bytes, .. } => why_no_outcome(&bytes, state, id).is_none().then_some(bytes),
        _ => None,
    }
}

/// What the audit log says of the outcome that this record tells.
fn word_on(layout: &Layout, state: State, id: &str, bytes: &[u8]) -> Word {
    outcome_in(state, id, bytes).map_or(Word::Unknown, |told| {
        audit::outcome(&layout.audit(), told).unwrap_or(Word::Unknown)
    })
}

/// The outcome that a record tells, if it has a line in the log.
fn outcome_in(state: State, id: &str, bytes: &[u8]) -> Option<audit::Outcome> {
    outcome_of(state, id, &Record::read(bytes).ok()?)
}

/// The same of a record that has been read.
pub fn outcome_of(state: State, id: &str, record: &Record) -> Option<audit::Outcome> {
    let links = &record.meta.links;
    // What is on its way to another folder has the line of that, and what its parent wrote
    // straight to failed/ never had one.
    if record.meta.to.is_some_and(|to| to != state)
        || (state == State::Failed && links.parent.is_some() && record.meta.attempts.is_empty())
    {
        return None;
    }
    let at = match state {
        State::Completed => "completed_at",
        _ => "failed_at",
    };
    let at = record.doc.get(at).and_then(|at| at.as_str());
    let is_notice = record.meta.rejected.is_some();
    let revision = (!is_notice).then_some(record.meta.revision);
    Some(audit::Outcome::told(id, state, revision, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_outcome_under_its_own_name_is_ours() {
        let record = |status: &str, to: &str| {
            format!(
                "{{\"handoff_id\": \"x\", \"status\": \"{status}\", \"handoffd\": {{\"format\": 1, \
                 \"revision\": 2, \"to\": {to}}}}}"
            )
        };
        for (text, id, ours) in [
            (record("failed", "null"), "x", true),
            (record("waiting", "\"waiting\""), "x", true),
            (record("failed", "null"), "y", false),
            (record("completed", "\"completed\""), "x", false),
            ("{\"status\": \"failed\"}".to_owned(), "x", false),
            ("[]".to_owned(), "x", false),
        ] {
            let why = why_no_outcome(text.as_bytes(), State::Failed, id);
            assert_eq!(why.is_none(), ours, "{text}: {why:?}");
        }
    }
}
