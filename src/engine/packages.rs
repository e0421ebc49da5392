//! Keeping ended handoffs as packages, where the configuration asks for it.
//!
//! A package is written after the outcome is on disk, and nobody waits for it. What a crash
//! takes away is written at the next start, by what the audit log tells.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::config::KeptPackages;
use crate::engine::moves::load;
use crate::engine::world::World;
use crate::protocol::dialect::Dialect;
use crate::protocol::export::as_package;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::view::View;
use crate::protocol::yaml_write;
use crate::store::audit::Line;
use crate::store::packages::{self, Packages};

/// Packages whose end is decided and not yet known to the loop. So no record has to be read only to
/// see that it did not come as a package.
#[derive(Debug, Default)]
pub struct Ending(Mutex<HashSet<String>>);

/// Notes the end of a handoff that came as a package.
pub fn note(world: &World, record: &Record, id: &str, to: State) {
    if to.is_final() && came_as_package(record) {
        let mut ending = world
            .ending
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        ending.insert(id.to_owned());
    }
}

/// Whether a handoff that has ended is to be kept.
pub fn is_kept(world: &World, id: &str) -> bool {
    let mut ending = world
        .ending
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let came_as_package = ending.remove(id);
    match world.config().audit.packages {
        KeptPackages::Dropped => came_as_package,
        KeptPackages::All => true,
        KeptPackages::None => false,
    }
}

fn came_as_package(record: &Record) -> bool {
    View::of_record(record).dialect == Dialect::Package
}

/// Keeps a handoff that has ended, and whatever it could not set in motion.
pub fn keep(world: &World, id: &str) {
    let Some((_, record)) = ended(world, id) else {
        return;
    };
    for refused in refused(&record) {
        if let Some((_, record)) = ended(world, refused) {
            write(world, refused, &record);
        }
    }
    write(world, id, &record);
}

/// The record of a handoff that has ended.
pub fn ended(world: &World, id: &str) -> Option<(State, Record)> {
    [State::Completed, State::Failed]
        .into_iter()
        .find_map(|state| Some((state, load(world, state, id)?)))
}

/// Follow-ups that were written straight to `failed/`, of which the loop hears nothing.
pub fn refused(record: &Record) -> Vec<&str> {
    let spawns = record.meta.links.spawns.iter();
    let refused = spawns.filter(|spawn| spawn.refused.is_some());
    refused.map(|spawn| spawn.id.as_str()).collect()
}

fn names(record: &Record, id: &str) -> Option<(HandoffId, HandoffId)> {
    let id = HandoffId::parse_made(id).ok()?;
    // A submission may say anything of its chain.
    let chain = record.meta.links.chain_of(id.as_str());
    let chain = HandoffId::parse_made(chain).unwrap_or_else(|_| id.clone());
    Some((chain, id))
}

fn write(world: &World, id: &str, record: &Record) {
    // Bytes that were never a request are no handoff.
    if record.meta.rejected.is_some() || !is_wanted(world, record) {
        return;
    }
    let Some((chain, id)) = names(record, id) else {
        return;
    };
    let yaml = yaml_write::write(&Value::Object(as_package(record)));
    let kept = Packages::new(&world.layout.audit(), world.config().daemon.durability);
    if let Err(error) = kept.keep(&chain, &id, &yaml) {
        tracing::warn!(
            handoff_id = id.as_str(),
            "can't keep it as a package: {error}"
        );
    }
}

fn is_wanted(world: &World, record: &Record) -> bool {
    match world.config().audit.packages {
        KeptPackages::Dropped => came_as_package(record),
        KeptPackages::All => true,
        KeptPackages::None => false,
    }
}

/// Those whose end the log tells of, newest last and each once.
pub fn ended_lately(recent: &[Line]) -> Vec<String> {
    let mut seen = HashSet::new();
    let ends = |line: &&Line| {
        let to = line.detail.get("to").and_then(Value::as_str);
        matches!(to, Some("completed" | "failed"))
    };
    let ended = recent.iter().filter(ends);
    ended
        .filter_map(|line| line.handoff_id.clone())
        .filter(|id| seen.insert(id.clone()))
        .collect()
}

/// Writes what is missing of them.
pub fn catch_up(world: &World, ids: &[String]) {
    for id in ids {
        let Some((_, record)) = ended(world, id) else {
            continue;
        };
        let missing = names(&record, id).is_some_and(|(chain, id)| {
            let path = packages::path(&chain, &id);
            !world.layout.audit().join(path).exists()
        });
        if missing {
            write(world, id, &record);
        }
    }
}
