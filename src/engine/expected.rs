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
use crate::protocol::links::Spawn;

/// Digests of the requests of children, by their ids.
#[derive(Debug, Clone, Default)]
pub struct Expected(Arc<Mutex<HashMap<String, String>>>);

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

impl Expected {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, only the daemon's own files are taken under these ids.
    pub fn await_from(&self, spawns: &[Spawn]) {
        if spawns.is_empty() {
            return;
        }
        let entries = spawns
            .iter()
            .filter(|spawn| spawn.refused.is_none())
            .map(|spawn| (spawn.id.clone(), digest(&spawn.request)));
        self.lock().extend(entries.collect::<Vec<_>>());
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
        expected.await_from(&[spawn]);
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
}
