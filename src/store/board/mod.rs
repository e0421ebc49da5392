//! Boards: small files that show where everything stands, for people and agents that look.
//!
//! `context/phase-status.json` shows each phase of each project, `context/state/current.json`
//! the handoffs of late. Both are derived from the records and never read by the daemon except
//! to go on from where it was; they are written in batches, without syncs, and made anew from
//! the records when they are lost. A daemon that dies forgets the last batch, so a start is told
//! which handoffs moved since.

mod handoffs;
mod phases;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};

use crate::clock::Wall;
use crate::durable::Durability;
use crate::protocol::json;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::store::artifacts::beneath::Beneath;
use crate::store::artifacts::write::place_open;
use crate::store::artifacts::{RelPath, WriteError};
use handoffs::Handoffs;
use phases::Phases;

const PHASES: &str = "context/phase-status.json";
const HANDOFFS: &str = "context/state/current.json";

/// The version of both files.
const FORMAT: u64 = 1;

/// Where both files stand, and what goes into them next.
#[derive(Debug)]
pub struct Board {
    root: PathBuf,
    state: Mutex<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    phases: Phases,
    handoffs: Handoffs,
    phases_dirty: bool,
    handoffs_dirty: bool,
    /// Both files as they were last written or read.
    known: [Option<Stamp>; 2],
}

/// What tells a file from any other that takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    modified: (i64, i64),
    size: u64,
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path).ok().map(|it| Self::new(&it))
    }

    fn new(metadata: &fs::Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            size: metadata.size(),
        }
    }
}

impl Board {
    /// Takes up what the files show. `None` for the time of one that is lost or broken: it has
    /// to be made anew.
    pub fn open(root: &Path) -> (Self, Option<Wall>) {
        let read = |path: &str| -> Option<(Map<String, Value>, Wall)> {
            let text = fs::read_to_string(root.join(path)).ok()?;
            let Ok(Value::Object(map)) = json::parse_own(&text) else {
                return None;
            };
            let at = Wall::parse(map.get("updated_at")?.as_str()?)?;
            (map.get("format")?.as_u64()? == FORMAT).then_some((map, at))
        };
        let known = read(PHASES).zip(read(HANDOFFS));
        let mut shown = Shown::default();
        let since = known.and_then(|((phases, first), (handoffs, second))| {
            shown.phases = Phases::read(&phases)?;
            shown.handoffs = Handoffs::read(&handoffs)?;
            Some(first.min(second))
        });
        let board = Self {
            root: root.to_owned(),
            state: Mutex::new(shown),
        };
        board.lock().known = board.stamps();
        (board, since)
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of where a record goes.
    pub fn note(&self, record: &Record, id: &str, to: State, at: Wall) {
        let mut shown = self.lock();
        shown.phases_dirty |= shown.phases.note(record, id, to, at);
        shown.handoffs.note(record, id, to, at);
        shown.handoffs_dirty = true;
    }

    /// Shows a handoff no more whose record is gone before it ended.
    pub fn forget(&self, id: &str) {
        let mut shown = self.lock();
        shown.phases_dirty |= shown.phases.forget(id);
        shown.handoffs_dirty |= shown.handoffs.forget(id);
    }

    pub fn is_dirty(&self) -> bool {
        let shown = self.lock();
        shown.phases_dirty || shown.handoffs_dirty
    }

    /// Whether somebody deleted or changed a file since it was written.
    pub fn is_lost(&self) -> bool {
        let known = self.lock().known;
        let stamps = self.stamps();
        stamps != known || stamps.contains(&None)
    }

    fn stamps(&self) -> [Option<Stamp>; 2] {
        [PHASES, HANDOFFS].map(|path| Stamp::of(&self.root.join(path)))
    }

    /// Writes what has changed, or all of it.
    pub fn flush(&self, now: Wall, all: bool) -> io::Result<()> {
        let (phases, handoffs) = {
            let mut shown = self.lock();
            let phases = (all || shown.phases_dirty).then(|| shown.phases.to_value(now));
            let handoffs = (all || shown.handoffs_dirty).then(|| shown.handoffs.to_value(now));
            shown.phases_dirty = false;
            shown.handoffs_dirty = false;
            (phases, handoffs)
        };
        let written = [self.write(PHASES, phases), self.write(HANDOFFS, handoffs)];
        let mut shown = self.lock();
        if written.iter().any(Result::is_err) {
            shown.phases_dirty = true;
            shown.handoffs_dirty = true;
        }
        let mut first = Ok(());
        for (at, written) in written.into_iter().enumerate() {
            match written {
                Ok(Some(stamp)) => shown.known[at] = Some(stamp),
                Ok(None) => {}
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }

    /// Others may write below `context/`: a link that one of them put there is not followed. What is
    /// known of the file is asked of itself: under its name somebody may have put another by now.
    fn write(&self, path: &str, value: Option<Value>) -> io::Result<Option<Stamp>> {
        let Some(value) = value else {
            return Ok(None);
        };
        let mut bytes = serde_json::to_vec_pretty(&value).unwrap_or_default();
        bytes.push(b'\n');
        let path = RelPath::parse(path).map_err(io::Error::other)?;
        let root = Beneath::new(&self.root);
        match place_open(&root, Durability::Relaxed, &path, &bytes, true) {
            Ok((_, file)) => Ok(Some(Stamp::new(&file.metadata()?))),
            Err(WriteError::Io(error)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(document: &Value, id: &str) -> Record {
        Record::admit(document.as_object().unwrap().clone(), id, None)
    }

    #[test]
    fn both_files_show_what_was_noted_and_are_taken_up_again() {
        let dir = tempfile::tempdir().unwrap();
        let (board, since) = Board::open(dir.path());
        assert_eq!(since, None, "nothing was there");
        let mut request = record(
            &json!({"source": {"agent_id": "@s"}, "target": {"agent_id": "@react", "phase": 13},
                    "context": {"project_id": "proj-001"}}),
            "x",
        );
        request.set("started_at", "2026-01-13T10:00:00.000Z");
        board.note(&request, "x", State::InProgress, Wall(1000));
        assert!(board.is_dirty());
        board.flush(Wall(2000), false).unwrap();
        assert!(!board.is_dirty() && !board.is_lost());
        let read = |name: &str| -> Value {
            serde_json::from_slice(&fs::read(dir.path().join("context").join(name)).unwrap())
                .unwrap()
        };
        let phase = &read("phase-status.json")["projects"]["proj-001"]["phases"]["13"];
        assert_eq!(phase["status"], "in_progress");
        assert_eq!(phase["handoff_id"], "x");
        assert_eq!(phase["agent"], "@react");
        assert_eq!(phase["started_at"], "2026-01-13T10:00:00.000Z");
        let current = &read("state/current.json")["handoffs"][0];
        assert_eq!(current["from"], "@s");
        assert_eq!(current["status"], "in_progress");

        let (again, since) = Board::open(dir.path());
        assert_eq!(since, Some(Wall(2000)));
        request.set("completed_at", "2026-01-13T10:05:00.000Z");
        again.note(&request, "x", State::Completed, Wall(3000));
        again.flush(Wall(3000), false).unwrap();
        let phase = &read("phase-status.json")["projects"]["proj-001"]["phases"]["13"];
        assert_eq!(phase["status"], "completed");
        assert_eq!(phase["completed_at"], "2026-01-13T10:05:00.000Z");
        assert_eq!(
            read("state/current.json")["handoffs"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn a_broken_file_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let (board, _) = Board::open(dir.path());
        board.flush(Wall(1), true).unwrap();
        assert_eq!(Board::open(dir.path()).1, Some(Wall(1)));
        fs::write(dir.path().join(PHASES), "{").unwrap();
        assert_eq!(Board::open(dir.path()).1, None);
    }
}
