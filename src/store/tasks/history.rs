//! A task's history: one line for each version, with what it changed.
//!
//! A line is written under the task's lock and before its version takes its place. So of several
//! lines for one version only the last one came true, and one for a version that is not stored
//! yet is a writer's who died. A line that a crash tore is closed by the next one and skipped.
//!
//! It is not the audit log: only the daemon writes that, and agents save states while no daemon
//! runs. The daemon's own events about a task are in both.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::Deserialize;

use super::error::StoreError;
use super::file::open_plain;
use crate::durable::{self, Durability};
use crate::protocol::task::{Change, FORMAT};

/// No line of ours is longer; what is, is not read into memory.
const MAX_LINE: u64 = 1 << 20;

pub(super) fn append(path: &Path, line: &Change, durability: Durability) -> Result<(), StoreError> {
    let failed = |source| StoreError::io(path, source);
    durable::owner::make_missing(path).map_err(failed)?;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    let Some(mut file) = open_plain(path, &mut options)? else {
        return Err(failed(std::io::ErrorKind::NotFound.into()));
    };
    let size = file.metadata().map_err(failed)?.len();
    let mut bytes = Vec::new();
    let mut last = [b'\n'];
    if size > 0 {
        file.read_exact_at(&mut last, size - 1).map_err(failed)?;
    }
    if last != [b'\n'] {
        bytes.push(b'\n');
    }
    serde_json::to_writer(&mut bytes, line).map_err(|error| failed(error.into()))?;
    bytes.push(b'\n');
    file.write_all(&bytes).map_err(failed)?;
    durable::sync_file(&file, durability).map_err(failed)
}

/// How much of a history is read for its last lines.
const TAIL: u64 = 256 << 10;

/// The last version up to `newest` that a handoff made, as far as the end of the file tells: a
/// version that only says what gates said is none.
pub(super) fn last_handoff(path: &Path, newest: u64) -> Option<Change> {
    let file = open_plain(path, OpenOptions::new().read(true)).ok()??;
    let from = file.metadata().ok()?.len().saturating_sub(TAIL);
    let mut bytes = Vec::new();
    (&file).seek(SeekFrom::Start(from)).ok()?;
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    let lines = bytes.rsplit(|byte| *byte == b'\n');
    let mut known = newest.saturating_add(1);
    for line in lines {
        let Ok(change) = serde_json::from_slice::<Change>(line) else {
            continue;
        };
        // Of several lines for one version the last one came true.
        if change.format > FORMAT || change.version >= known {
            continue;
        }
        known = change.version;
        if change.changed.iter().any(|key| key == "handoff_timestamp") {
            return Some(change);
        }
    }
    None
}

/// What every line of every format has.
#[derive(Deserialize)]
struct Format {
    format: u64,
}

/// The lines of versions up to `newest`, each version once.
pub(super) fn read(path: &Path, newest: u64) -> Result<Vec<Change>, StoreError> {
    let Some(file) = open_plain(path, OpenOptions::new().read(true))? else {
        return Ok(Vec::new());
    };
    let mut reader = BufReader::new(file);
    let mut lines: Vec<Change> = Vec::new();
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let got = (&mut reader)
            .take(MAX_LINE)
            .read_until(b'\n', &mut bytes)
            .map_err(|source| StoreError::io(path, source))?;
        if got == 0 {
            break;
        }
        let Ok(Format { format }) = serde_json::from_slice(&bytes) else {
            continue;
        };
        if format > FORMAT {
            return Err(StoreError::NewerFormat {
                path: path.to_owned(),
                found: format.to_string(),
            });
        }
        let Ok(line) = serde_json::from_slice::<Change>(&bytes) else {
            continue;
        };
        if line.version > newest {
            continue;
        }
        match lines.binary_search_by_key(&line.version, |line| line.version) {
            Ok(at) => lines[at] = line,
            Err(at) => lines.insert(at, line),
        }
    }
    Ok(lines)
}
