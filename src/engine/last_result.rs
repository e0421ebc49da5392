//! The result that the next attempt of a handoff finds: `handoffd.last_result`.
//!
//! An attempt that did not complete its handoff may have left a result, with a session in it that
//! the next attempt goes on with. A small result stands in the record; a large one in a file, which
//! is written before the record is decided and lives as long as the record. There are two places
//! for that file, so the one that the record refers to is never written over.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::durable;
use crate::engine::window;
use crate::engine::world::World;
use crate::policy::judge::Verdict;
use crate::policy::next::human_issue;
use crate::protocol::json;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::result::Output;
use crate::runner::collect::Collected;
use crate::spool::look::{Looked, look};

/// Larger results stand in a file.
const MOST_INLINE: usize = 256 * 1024;

/// The result of an attempt, where the next one finds it.
#[derive(Debug)]
pub enum Kept {
    Here(Map<String, Value>),
    /// A path relative to the root.
    At(String),
}

/// The result that an attempt left, whatever is made of it.
pub fn left(collected: &Collected) -> Option<Map<String, Value>> {
    let places = [&collected.result_file, &collected.stdout];
    places.into_iter().find_map(|output| match output {
        Output::Result { result, .. } => Some(result.clone()),
        _ => None,
    })
}

/// Puts a result where the next attempt finds it. None if the attempt left nothing, or there is no
/// next one.
pub fn keep(
    world: &World,
    record: &Record,
    id: &str,
    verdict: &Verdict,
    left: Option<Map<String, Value>>,
) -> io::Result<Option<Kept>> {
    let Some(mut result) = left else {
        return Ok(None);
    };
    match verdict {
        Verdict::Completed(success) => {
            let needs_person = success.result.as_ref().and_then(human_issue);
            if needs_person.is_none() {
                return Ok(None);
            }
        }
        // What a pause does not mention stays as it was.
        Verdict::Held { .. } => {
            let mut all = before(world, record, id).unwrap_or_default();
            all.extend(result);
            result = all;
        }
        _ => {}
    }
    let mut bytes = serde_json::to_vec(&result).map_err(io::Error::other)?;
    if bytes.len() <= MOST_INLINE {
        return Ok(Some(Kept::Here(result)));
    }
    bytes.push(b'\n');
    let used = file(world, record, id);
    let places = world.layout.results_of(id);
    let Some(path) = places.into_iter().find(|path| Some(path) != used.as_ref()) else {
        return Ok(None);
    };
    let folder = world.layout.results();
    let temp = folder.join(format!(".{id}.tmp"));
    let durability = world.config().daemon.durability;
    durable::write_whole(&path, &temp, &bytes, durability)
        .map_err(|error| durable::at(&path, &error))?;
    Ok(Some(Kept::At(world.layout.relative(&path))))
}

/// Writes into a decided record what its last attempt left.
pub fn note(record: &mut Record, to: State, kept: Option<Kept>) {
    let (Some(kept), Some(attempt)) = (kept, record.meta.attempts.last()) else {
        return;
    };
    if to == State::Completed {
        return;
    }
    let outcome = serde_json::to_value(attempt.outcome).unwrap_or_default();
    let (key, value) = match kept {
        Kept::Here(result) => ("result", Value::Object(result)),
        Kept::At(path) => ("ref", path.into()),
    };
    record.meta.last_result = Map::from_iter([
        ("attempt".to_owned(), attempt.number.into()),
        ("outcome".to_owned(), outcome),
        (key.to_owned(), value),
    ]);
}

/// The file that holds the last result of a record. A record may have been edited: only the two
/// places of its own handoff count.
pub fn file(world: &World, record: &Record, id: &str) -> Option<PathBuf> {
    let named = record.meta.last_result.get("ref")?.as_str()?;
    let path = world.layout.root().join(Path::new(named));
    world
        .layout
        .results_of(id)
        .into_iter()
        .find(|it| *it == path)
}

/// The result that the record has from an earlier attempt.
fn before(world: &World, record: &Record, id: &str) -> Option<Map<String, Value>> {
    if let Some(Value::Object(result)) = record.meta.last_result.get("result") {
        return Some(result.clone());
    }
    let Some(path) = file(world, record, id) else {
        return window::last_result(world, record, id);
    };
    let most = world.config().daemon.max_output_size.saturating_mul(2);
    let Looked::Bytes { bytes, .. } = look(&path, most) else {
        return None;
    };
    match json::parse_own(std::str::from_utf8(&bytes).ok()?) {
        Ok(Value::Object(result)) => Some(result),
        _ => None,
    }
}

/// Whether a file holds the result of this attempt, or of the one before.
pub fn is_large(record: &Record, kept: Option<&Kept>) -> bool {
    record.meta.last_result.contains_key("ref") || matches!(kept, Some(Kept::At(_)))
}

/// Files of a handoff that its record does not refer to.
pub struct Unused(Vec<PathBuf>);

impl Unused {
    pub fn of(world: &World, record: &Record, id: &str) -> Self {
        let used = file(world, record, id);
        let places = world.layout.results_of(id).into_iter();
        Self(places.filter(|path| Some(path) != used.as_ref()).collect())
    }

    /// To be called when the record is on disk.
    pub fn remove(self) {
        for path in self.0 {
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!("can't remove {}: {error}", path.display());
            }
        }
    }
}
