//! Sessions: which conversation an attempt goes on with, and what is known of it.
//!
//! A session belongs to one handoff. Where the agent takes an id, it is derived from the handoff,
//! so that an attempt that was killed at any point is found again. Else the id is read from the
//! agent's stream and kept in a small file as soon as it is known.
//!
//! The file holds nothing that can't be lost: without it the last result is asked, and without that
//! the session begins anew.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::record::Record;
use crate::usage::Usage;

/// Below the context folder.
const FOLDER: &str = "sessions";

/// A file larger than this is not ours.
const MOST_BYTES: u64 = 256 * 1024;

/// What is kept of a session between attempts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The agent whose session it is: another agent can't go on with it.
    pub agent: String,
    /// When the first attempt of the handoff began: an id that is used again has other sessions.
    pub begun: String,
    #[serde(default)]
    pub id: Option<String>,
    /// The agent's folder: some agents find a session only from where it began.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// What the session had cost, as the agent sums it up.
    #[serde(default)]
    pub spent: Usage,
    /// Permissions that a person gave, as the agent's own rules.
    #[serde(default)]
    pub granted: Vec<String>,
    /// Permissions that a person refused.
    #[serde(default)]
    pub refused: Vec<String>,
}

/// How an attempt begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// A new session. The id is for agents that take one.
    New(String),
    Resume(String),
}

impl Start {
    pub fn id(&self) -> &str {
        match self {
            Self::New(id) | Self::Resume(id) => id,
        }
    }
}

/// An id for the session of a handoff, in the form of a UUID. `generation` is 0 for the first one,
/// and counts those that could not be resumed.
pub fn derived(id: &str, begun: &str, generation: u32) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("session\0{id}\0{begun}\0{generation}"));
    let mut bytes: [u8; 16] = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    // Version 8, "made by rules of one's own", and the variant of RFC 9562.
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

/// What an agent can do with sessions.
#[derive(Debug, Clone, Copy)]
pub struct Ways {
    /// It takes an id for a new one.
    pub takes_id: bool,
    /// It can go on with an old one.
    pub resumes: bool,
}

/// Decides how an attempt begins.
pub fn start(known: &Session, id: &str, attempt: u32, ways: Ways) -> Start {
    match &known.id {
        _ if !ways.resumes => Start::New(derived(id, &known.begun, attempt)),
        Some(session) => Start::Resume(session.clone()),
        // An attempt may have begun it and been killed before it could say so.
        None if ways.takes_id && attempt > 1 => Start::Resume(derived(id, &known.begun, 0)),
        None => Start::New(derived(id, &known.begun, 0)),
    }
}

fn path(folder: &Path, id: &str) -> PathBuf {
    folder.join(FOLDER).join(format!("{id}.json"))
}

/// What is known of the session of a handoff: its file, else its last result, else nothing.
pub fn load(folder: Option<&Path>, id: &str, agent: &str, record: &Record) -> Session {
    let begun = record.begun();
    let of_file = folder.and_then(|folder| read(&path(folder, id)));
    let of_file = of_file.filter(|session| session.agent == agent && session.begun == begun);
    of_file.unwrap_or_else(|| Session {
        agent: agent.to_owned(),
        begun,
        id: last_id(record, agent),
        ..Session::default()
    })
}

fn read(path: &Path) -> Option<Session> {
    let meta = fs::symlink_metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MOST_BYTES {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn last_id(record: &Record, agent: &str) -> Option<String> {
    let metadata = record.last_result()?.get("metadata")?;
    let same = metadata.get("agent").and_then(|it| it.as_str()) == Some(agent);
    let id = metadata.get("usage")?.get("session_id")?.as_str()?;
    same.then(|| id.to_owned())
}

/// Keeps what is known, by a rename: a reader finds the old file or the new one.
pub fn save(folder: &Path, id: &str, session: &Session) -> io::Result<()> {
    let path = path(folder, id);
    let parent = folder.join(FOLDER);
    fs::create_dir_all(&parent)?;
    let temporary = parent.join(format!(".{id}.{}.tmp", std::process::id()));
    fs::write(&temporary, serde_json::to_vec(session)?)?;
    replace(&temporary, &path).inspect_err(|_| {
        // Nobody reads it; the next attempt has a name of its own.
        drop(fs::remove_file(&temporary));
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a specialist's own file: nothing durable depends on it"
)]
pub(crate) fn replace(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn record(begun: &str, last: &Value) -> Record {
        let document = json!({"handoffd": {
            "attempts": [{"number": 1, "started_at": begun}],
            "last_result": {"attempt": 1, "outcome": "failed", "result": last},
        }});
        Record {
            doc: document.as_object().unwrap().clone(),
        }
    }

    #[test]
    fn a_derived_id_is_a_uuid_and_belongs_to_one_run_of_a_handoff() {
        let id = derived("x", "2026-01-01T00:00:00.000Z", 0);
        assert_eq!(id.len(), 36);
        assert_eq!(id.as_bytes()[14], b'8');
        assert_eq!(id, derived("x", "2026-01-01T00:00:00.000Z", 0));
        assert_ne!(id, derived("x", "2026-01-02T00:00:00.000Z", 0));
        assert_ne!(id, derived("x", "2026-01-01T00:00:00.000Z", 1));
    }

    #[test]
    fn a_killed_attempt_is_resumed_where_the_id_is_known() {
        let known = |id: Option<&str>| Session {
            id: id.map(str::to_owned),
            ..Session::default()
        };
        let fresh = derived("x", "", 0);
        let other = derived("x", "", 2);
        let (able, unable) = (true, false);
        for (session, attempt, takes_id, resumes, expected) in [
            (None, 1, true, able, Start::New(fresh.clone())),
            (None, 2, true, able, Start::Resume(fresh.clone())),
            (None, 2, false, able, Start::New(fresh.clone())),
            (Some("s"), 1, false, able, Start::Resume("s".to_owned())),
            (Some("s"), 2, true, unable, Start::New(other)),
        ] {
            let ways = Ways { takes_id, resumes };
            assert_eq!(start(&known(session), "x", attempt, ways), expected);
        }
    }

    #[test]
    fn a_session_is_known_by_its_file_and_else_by_the_last_result() {
        let folder = tempfile::tempdir().unwrap();
        let last = json!({"metadata": {"agent": "codex", "usage": {"session_id": "of-result"}}});
        let record = record("then", &last);
        let load = |agent: &str| load(Some(folder.path()), "x", agent, &record);
        assert_eq!(load("codex").id.as_deref(), Some("of-result"));
        assert_eq!(load("claude").id, None, "another agent's session");
        let session = Session {
            agent: "codex".to_owned(),
            begun: "then#0".to_owned(),
            id: Some("of-file".to_owned()),
            granted: vec!["Write".to_owned()],
            ..Session::default()
        };
        save(folder.path(), "x", &session).unwrap();
        assert_eq!(load("codex"), session);
        let earlier = Session {
            begun: "earlier".to_owned(),
            ..session
        };
        save(folder.path(), "x", &earlier).unwrap();
        assert_eq!(
            load("codex").id.as_deref(),
            Some("of-result"),
            "of a former record"
        );
        let left: Vec<_> = fs::read_dir(folder.path().join(FOLDER)).unwrap().collect();
        assert_eq!(left.len(), 1);
    }
}
