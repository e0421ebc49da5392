//! Compaction: what a record loses before an agent is handed it, kept in a file beside it.
//!
//! The file is on disk before the record is claimed without those parts, and it only ever gains
//! what the record refers to. So a crash in between loses nothing: the record still has the parts,
//! and the file has some that nobody refers to, which the next compaction drops.

use std::io;

use serde_json::{Map, Value, json};

use crate::durable;
use crate::engine::world::World;
use crate::policy::window::{COUNT, Cut, LastEntries, fit};
use crate::protocol::json;
use crate::protocol::record::Record;
use crate::spool::look::{Looked, look};

/// The bytes of a record as an agent is handed it, after what it lost was written down.
pub fn fitted(world: &World, record: &mut Record, id: &str) -> io::Result<Vec<u8>> {
    let config = world.config();
    let path = world.layout.compacted_of(id);
    let had = record.meta.compacted.clone();
    let fitted = fit(
        record,
        config.context.most_tokens(),
        &world.layout.relative(&path),
        LastEntries::Go,
    );
    if !fitted.cut.is_empty() {
        let kept = extended(earlier(world, id, &had), id, &fitted.cut);
        let mut bytes = serde_json::to_vec_pretty(&kept).map_err(io::Error::other)?;
        bytes.push(b'\n');
        let temp = world.layout.tmp().join(format!("context-{id}.json"));
        durable::write_whole(&path, &temp, &bytes, config.daemon.durability)
            .map_err(|error| durable::at(&path, &error))?;
    }
    if fitted.is_over && warn(record, config.context.most_tokens()) {
        tracing::warn!(
            handoff_id = id,
            "the record is larger than [context] allows: what producers and results wrote is handed over whole"
        );
        return Ok(record.to_bytes());
    }
    Ok(fitted.bytes)
}

/// The result that was taken out of this record's `last_result`.
pub fn last_result(world: &World, record: &Record, id: &str) -> Option<Map<String, Value>> {
    let part = earlier(world, id, &record.meta.compacted).shift_remove("handoffd.last_result")?;
    match part {
        Value::Array(list) => list.into_iter().next()?.as_object().cloned(),
        _ => None,
    }
}

/// The parts in the file that the record refers to.
fn earlier(world: &World, id: &str, compacted: &[Value]) -> Map<String, Value> {
    if compacted.is_empty() {
        return Map::new();
    }
    let Looked::Bytes { bytes, .. } = look(&world.layout.compacted_of(id), u64::MAX - 1) else {
        return Map::new();
    };
    let parsed = std::str::from_utf8(&bytes).ok().map(json::parse_own);
    let Some(Ok(Value::Object(mut file))) = parsed else {
        tracing::warn!(
            handoff_id = id,
            "{}: not a JSON object",
            world.layout.compacted_of(id).display()
        );
        return Map::new();
    };
    let mut parts = Map::new();
    for note in compacted {
        let named = note.get("part").and_then(Value::as_str).unwrap_or_default();
        let count = note.get(COUNT).and_then(Value::as_u64).unwrap_or(0);
        if let Some(Value::Array(mut entries)) = file.shift_remove(named) {
            entries.truncate(usize::try_from(count).unwrap_or(usize::MAX));
            parts.insert(named.to_owned(), Value::Array(entries));
        }
    }
    parts
}

/// The content of the file with what was cut now.
fn extended(earlier: Map<String, Value>, id: &str, cut: &[Cut]) -> Map<String, Value> {
    let mut file = Map::from_iter([("handoff_id".to_owned(), Value::from(id))]);
    file.extend(earlier);
    for Cut {
        part,
        entries,
        before,
    } in cut
    {
        let list = file.entry(*part).or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.truncate(*before);
            list.extend(entries.iter().cloned());
        }
    }
    file
}

/// Says in the record that it is too large, once.
fn warn(record: &mut Record, most: usize) -> bool {
    let warning = format!(
        "the record has more than {most} tokens ([context] window_tokens × compact_at): what its \
         producer and results wrote is handed over whole"
    );
    let acknowledgment = record
        .doc
        .entry("acknowledgment")
        .or_insert_with(|| json!({}));
    let Some(said) = acknowledgment.as_object_mut() else {
        return false;
    };
    let warnings = said.entry("warnings").or_insert_with(|| json!([]));
    let Some(warnings) = warnings.as_array_mut() else {
        return false;
    };
    let is_new = !warnings.iter().any(|it| it == warning.as_str());
    if is_new {
        warnings.push(warning.into());
    }
    is_new
}
