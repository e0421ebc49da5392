//! Files in `completed/` and `failed/` that the daemon did not put there: how they are known.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::protocol::lifecycle::State;
use crate::protocol::name::{Name, classify};
use crate::protocol::record::{Record, RecordError};
use crate::spool::layout::Layout;
use crate::spool::look::{Looked, look};
use crate::spool::scan::record_id;

/// Why what stands under this name is somebody else's, if it is.
pub fn why_foreign(layout: &Layout, state: State, name: &OsStr) -> Option<String> {
    if classify(name.as_bytes()) == Name::Temporary {
        return None;
    }
    if state == State::Failed && has_notice(layout, name) {
        return None;
    }
    let bytes = match look(&layout.state(state).join(name), u64::MAX - 1) {
        Looked::Gone | Looked::TooLarge { .. } => return None,
        Looked::Bytes { bytes, .. } => bytes,
        Looked::Folder => return Some("it is a folder".to_owned()),
        Looked::NotAFile { what, .. } => return Some(format!("it is {what}")),
        Looked::Changing => return Some("it is being written".to_owned()),
        Looked::Unreadable { error, .. } => return Some(format!("it can't be read: {error}")),
    };
    match record_id(name) {
        Some(id) => why_no_outcome(&bytes, state, id),
        None => Some("its name is no record's: <id>.json".to_owned()),
    }
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
    (of("handoff_id") != Some(id)).then(|| "its handoff_id is another".to_owned())
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
