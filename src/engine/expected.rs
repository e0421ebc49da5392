//! Children that are expected in `pending/`: which file is the daemon's own, and which a stranger's
//! that has only its name.
//!
//! This is memory of the running daemon, so that a stranger's file is refused as a duplicate. That
//! nobody is believed who is no child does not depend on it: see [`crate::policy::kin::is_made`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};

use crate::engine::Engine;
use crate::engine::admit::claims;
use crate::engine::intake::Submission;
use crate::policy::kin::{digest, mark};
use crate::protocol::digest::Key;
use crate::protocol::links::{Links, Spawn};
use crate::protocol::record::Record;

/// Digests of the requests of children, by their ids.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    digests: Arc<Mutex<HashMap<String, String>>>,
    made: Arc<Mutex<HashMap<String, u32>>>,
}

/// Of so many chains it is remembered how many handoffs they have set in motion. The records of a
/// chain that is forgotten still know what it was when they were made.
const MOST_CHAINS: usize = 10_000;

/// What a submission that names a parent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kin {
    digest: String,
    /// The root's key has signed it.
    is_marked: bool,
}

impl Kin {
    /// Absent for a submission that names no parent.
    pub fn of(doc: &Map<String, Value>, id: &str, key: &Key) -> Option<Self> {
        let parent = claims(doc, "parent")?;
        Some(Self {
            digest: digest(doc),
            is_marked: claims(doc, "mark").is_some_and(|it| it == mark(key, id, parent)),
        })
    }
}

/// The chain that a record counts for. One that the daemon did not make may name any.
fn chain_of<'a>(links: &'a Links, id: &'a str) -> &'a str {
    if links.mark.is_some() {
        links.chain_of(id)
    } else {
        id
    }
}

impl Expected {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chains(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, only the daemon's own files are taken under these ids.
    pub fn await_from(&self, record: &Record, id: &str) {
        let links = &record.meta.links;
        let spawns = &links.spawns;
        if spawns.is_empty() {
            return;
        }
        let entries: Vec<_> = spawns
            .iter()
            .filter(|spawn| spawn.refused.is_none())
            .map(|spawn| (spawn, digest(&spawn.request)))
            .collect();
        let mut known = self.lock();
        for (spawn, digest) in entries {
            if known.insert(spawn.id.clone(), digest).is_none() {
                self.count(chain_of(links, id), spawn);
            }
        }
    }

    /// One more handoff of its chain.
    fn count(&self, chain: &str, spawn: &Spawn) {
        let own = spawn.request.get("handoffd");
        let own = own.and_then(|own| own.get("made")?.as_u64());
        let own = own.map_or(0, |made| u32::try_from(made).unwrap_or(u32::MAX));
        let mut chains = self.chains();
        if chains.len() >= MOST_CHAINS && !chains.contains_key(chain) {
            // Those of a few handoffs are no danger.
            let mut sizes: Vec<u32> = chains.values().copied().collect();
            sizes.sort_unstable();
            let middle = sizes[MOST_CHAINS / 2];
            chains.retain(|_, made| *made > middle);
        }
        let made = chains.entry(chain.to_owned()).or_default();
        *made = made.saturating_add(1).max(own);
    }

    /// Writes into a record how many handoffs its chain has set in motion by now.
    pub fn tell_made(&self, record: &mut Record, id: &str) {
        let links = &mut record.meta.links;
        let made = self.chains().get(chain_of(links, id)).copied();
        links.made = links.made.max(made.unwrap_or(0));
    }

    /// An id that has its record, or is not needed any more.
    pub fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Whether a submission has the name of a child, and is not that child.
    pub fn is_stranger(&self, id: &str, kin: Option<&Kin>) -> bool {
        let expected = self.lock();
        let Some(digest) = expected.get(id) else {
            return false;
        };
        !kin.is_some_and(|kin| kin.is_marked || kin.digest == *digest)
    }
}

impl Engine {
    /// Whether it has the id of a child of another handoff, and the daemon did not make it. Then
    /// nothing of the same file stays in the queue.
    pub(super) fn is_stranger(&mut self, submission: &Submission) -> bool {
        let Submission { id, ext, kin, .. } = submission;
        let is_stranger = self.world.expected.is_stranger(id, kin.as_ref());
        if is_stranger && self.pending.get(id) == Some(*ext) {
            self.pending.remove(id);
            self.kept.take(id);
        }
        is_stranger
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_child_itself_is_no_stranger() {
        let own = json!({ "n": 1, "handoffd": { "parent": "x" } });
        let map = |value: &Value| value.as_object().unwrap().clone();
        let spawn = Spawn {
            id: "a".to_owned(),
            request: map(&own),
            refused: None,
        };
        let key = Key::new([1; Key::BYTES]);
        let expected = Expected::default();
        let stranger = |doc: &Value, id: &str| {
            let kin = Kin::of(&map(doc), id, &key);
            expected.is_stranger(id, kin.as_ref())
        };
        assert!(!stranger(&own, "a"), "nobody is expected");
        let mut parent = Record::admit(map(&json!({})), "x", None);
        parent.meta.links.spawns.push(spawn);
        expected.await_from(&parent, "x");
        assert!(!stranger(&own, "a"));
        assert!(!stranger(&json!({ "n": 1 }), "b"));
        let mut other = own.clone();
        other["n"] = 2.into();
        assert!(stranger(&other, "a") && stranger(&json!({}), "a"));
        other["handoffd"]["mark"] = mark(&key, "a", "x").into();
        assert!(!stranger(&other, "a"), "an edited record of the daemon");
        other["handoffd"]["mark"] = mark(&key, "b", "x").into();
        assert!(stranger(&other, "a"));
        expected.forget("a");
        assert!(!stranger(&other, "a"));
    }

    #[test]
    fn a_chain_counts_what_the_daemon_made_and_nothing_that_a_stranger_claims() {
        let expected = Expected::default();
        let spawn = |id: String, made: u64| Spawn {
            id,
            request: map_of(&json!({ "handoffd": { "parent": "p", "made": made } })),
            refused: None,
        };
        let record = |mark: Option<&str>, chain: &str| {
            let mut record = Record::admit(Map::new(), "p", None);
            record.meta.links.chain = Some(chain.to_owned());
            record.meta.links.mark = mark.map(str::to_owned);
            record
        };
        let made = |mark: Option<&str>| {
            let mut asked = record(mark, "c");
            expected.tell_made(&mut asked, "p");
            asked.meta.links.made
        };
        let mut own = record(Some("m"), "c");
        own.meta.links.spawns = vec![spawn("a".into(), 1), spawn("b".into(), 2)];
        expected.await_from(&own, "p");
        expected.await_from(&own, "p");
        assert_eq!(made(Some("m")), 2, "each once");
        let mut forged = record(None, "c");
        forged.meta.links.spawns = vec![spawn("z".into(), u64::MAX)];
        expected.await_from(&forged, "p");
        assert_eq!((made(Some("m")), made(None)), (2, u32::MAX));
        // After a restart, the records know it.
        own.meta.links.spawns = vec![spawn("d".into(), 40)];
        expected.await_from(&own, "p");
        assert_eq!(made(Some("m")), 40);
        for n in 0..=MOST_CHAINS {
            let mut other = record(Some("m"), &format!("c{n}"));
            other.meta.links.spawns = vec![spawn(format!("x{n}"), 1)];
            expected.await_from(&other, "p");
        }
        assert_eq!(made(Some("m")), 40, "large ones are not forgotten");
        assert!(expected.chains().len() < MOST_CHAINS);
    }

    fn map_of(value: &serde_json::Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }
}
