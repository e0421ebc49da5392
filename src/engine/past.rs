//! What a start knows from before: the keeper's attempts, claims that were under way, and the
//! last lines of the audit log.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::PathBuf;

use serde_json::Value;

use crate::clock::Wall;
use crate::durable;
use crate::engine::commands::WholeCommand;
use crate::engine::story::{REFUSED, transition};
use crate::engine::world::World;
use crate::keeper::wire::{Held, Key};
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::spool::claim::{Origin, parse_claim_name};
use crate::spool::look::Identity;
use crate::store::audit::{self, Line};

/// The number of the first line of all.
const FIRST_SEQ: u64 = 1;

/// A claim that was under way.
#[derive(Debug)]
pub struct Claim {
    pub origin: Origin,
    pub inode: u64,
    pub path: PathBuf,
}

/// What is known from before: the keeper's attempts, claims under way, audit lines.
#[derive(Default)]
pub struct Past {
    pub attempts: HashMap<Key, Held>,
    pub claims: HashMap<String, Claim>,
    /// Claims that a later one of the same handoff has followed.
    pub former: Vec<(String, Claim)>,
    pub told: HashSet<(String, u64)>,
    /// Ids that the log or the keeper speaks of.
    pub known: HashSet<String>,
    /// The last refusal of bytes under each id.
    pub refusals: HashMap<String, Wall>,
    /// What happened before this moment may be told further back than was read.
    pub told_since: Option<Wall>,
    /// The last lines of the log by what they are about, in order.
    pub recent: HashMap<String, Vec<Line>>,
    /// This is a start: a decided record may not have been moved yet. Later on, one that says
    /// where it goes and stands elsewhere was put there by hand.
    pub at_start: bool,
    /// The cancels in `control/`, once somebody asked for them.
    pub cancels: Option<Vec<WholeCommand>>,
}

impl Past {
    /// Reads the temporary folder and what the keeper holds. Half-written contents that nothing
    /// refers to are deleted; they were never in place.
    pub fn gather(world: &World, held: Vec<Held>, recent: &[Line]) -> io::Result<Self> {
        let mut claims: HashMap<String, Claim> = HashMap::new();
        let mut former = Vec::new();
        for entry in fs::read_dir(world.layout.tmp())? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            // An exchange without the system's help keeps one of the two under a spare name.
            let base = name.strip_suffix(".spare");
            if base.is_some_and(|base| world.layout.tmp().join(base).exists()) {
                fs::remove_file(&path)?;
                continue;
            }
            match parse_claim_name(base.unwrap_or(&name)) {
                Some((origin, inode, id)) => {
                    let claim = Claim {
                        origin,
                        inode,
                        path: path.clone(),
                    };
                    if put_back(world, id, &claim)? {
                        continue;
                    }
                    // What is claimed out of waiting/ was claimed out of pending/ before.
                    let (later, earlier) = match claims.remove(id) {
                        Some(other) if claim.origin == Origin::Pending => (other, Some(claim)),
                        other => (claim, other),
                    };
                    claims.insert(id.to_owned(), later);
                    former.extend(earlier.map(|earlier| (id.to_owned(), earlier)));
                }
                None if path.is_dir() => tracing::warn!("{} is a folder", path.display()),
                None => fs::remove_file(&path)?,
            }
        }
        let told: HashSet<(String, u64)> = recent
            .iter()
            .filter_map(|line| {
                let revision = line.detail.get("revision")?.as_u64()?;
                Some((line.handoff_id.clone()?, revision))
            })
            .collect();
        let is_open = |id: &str| {
            let open = [State::InProgress, State::Waiting];
            open.iter()
                .any(|state| world.layout.record(*state, id).exists())
        };
        let unended = told.iter().filter(|(id, _)| is_open(id)).cloned().collect();
        let _ = world.told_before.set(unended);
        let mut by_id: HashMap<String, Vec<Line>> = HashMap::new();
        for line in recent {
            if let Some(id) = &line.handoff_id {
                by_id.entry(id.clone()).or_default().push(line.clone());
            }
        }
        let refusals = recent
            .iter()
            .filter(|line| line.event == REFUSED)
            .filter_map(|line| Some((line.handoff_id.clone()?, line.at)))
            .collect();
        let attempts: HashMap<Key, Held> = held
            .into_iter()
            .map(|held| (held.key.clone(), held))
            .collect();
        let of_log = told.iter().map(|(id, _)| id.clone());
        let known = of_log
            .chain(attempts.keys().map(|key| key.id.clone()))
            .collect();
        Ok(Self {
            attempts,
            claims,
            former,
            told,
            known,
            refusals,
            told_since: read_since(recent),
            recent: by_id,
            at_start: true,
            cancels: None,
        })
    }

    /// The line of a wait that was begun, and of which the log knows nothing: it is written when
    /// the claim is settled, and that was cut off.
    pub fn untold_wait(&self, id: &str, record: &Record, at: Wall) -> Option<audit::Event> {
        if self.told.contains(&(id.to_owned(), record.meta.revision)) {
            return None;
        }
        let on = record.doc.get("waiting").and_then(|it| it.get("on"));
        let event = match on.and_then(Value::as_str) {
            Some("human") => "waiting_human",
            _ => "waiting",
        };
        let line = transition(record, id, event, State::Pending, State::Waiting, at);
        Some(line.with("recovered", true))
    }

    /// Whether the log tells of this very refusal, and not of an earlier one under that id.
    pub fn has_told_refusal(&self, id: &str, notice: &Record) -> bool {
        let failed_at = notice.doc.get("failed_at").and_then(Value::as_str);
        let failed_at = failed_at.and_then(Wall::parse);
        let told_at = self.refusals.get(id);
        told_at.is_some_and(|told_at| failed_at.is_none_or(|failed_at| *told_at >= failed_at))
    }

    /// Attempts that no record in `in-progress/` has claimed.
    pub fn unclaimed(&self) -> Vec<Held> {
        self.attempts.values().cloned().collect()
    }
}

/// From when on all that the log tells is among these lines. Before the first line of all there is
/// nothing to be read.
fn read_since(recent: &[Line]) -> Option<Wall> {
    let first = recent.first().filter(|line| line.seq > FIRST_SEQ);
    first.map(|line| line.at)
}

/// A claim's file holds the bytes from before, and the record that they became stands nowhere: a
/// power cut took one of the two moves and kept the other, as some file systems do. Then those
/// bytes are all there is of the handoff, and they go back to where they came from.
fn put_back(world: &World, id: &str, claim: &Claim) -> io::Result<bool> {
    let layout = &world.layout;
    // Only a duplicate is taken out of pending/ under a numbered id.
    let wanted = id.split_once('~').map_or(id, |(wanted, _)| wanted);
    let is_all = Identity::at(&claim.path)?.inode == claim.inode
        && !layout.is_taken(id)
        && layout.submission(wanted).is_none();
    if !is_all {
        return Ok(false);
    }
    let place = match claim.origin {
        Origin::Pending => layout.pending().join(format!("{wanted}.json")),
        Origin::Waiting => layout.record(State::Waiting, id),
    };
    durable::move_no_replace(&claim.path, &place)?;
    tracing::warn!(
        handoff_id = id,
        "its claim was lost; restored as {}",
        layout.relative(&place)
    );
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_was_read_from_its_beginning_tells_all() {
        let line = |seq| Line {
            seq,
            at: Wall(7),
            event: String::new(),
            handoff_id: None,
            detail: serde_json::Map::new(),
            prev: String::new(),
        };
        assert_eq!(read_since(&[]), None);
        assert_eq!(read_since(&[line(1), line(2)]), None);
        assert_eq!(read_since(&[line(2), line(3)]), Some(Wall(7)));
    }
}
