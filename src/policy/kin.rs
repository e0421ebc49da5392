//! Kin: the ids of handoffs that others set in motion, and how the daemon knows them again.
//!
//! An id is a name, and anybody who may write to `pending/` can use any name. So a record counts as
//! the child of another only if the daemon made it: its request is the one that the parent's
//! record has, byte for byte, or the root's key has signed it.

use serde_json::{Map, Value};

use crate::protocol::digest::{Key, sha256};
use crate::protocol::links::Spawn;
use crate::protocol::record::Record;

/// How much of a signature is in an id.
const ID_DIGITS: usize = 8;
/// How much of a signature is in a record.
const MARK_DIGITS: usize = 32;

/// The id of a child whose own id a stranger has.
pub fn another_id(key: &Key, taken: &str) -> String {
    let hash = key.sign(&["another", taken]);
    let kept = taken.len().saturating_sub(ID_DIGITS);
    let kept = taken.get(..kept).unwrap_or_default();
    format!("{kept}{}", &hash[..ID_DIGITS])
}

/// What a child's record carries from its admission on: proof that the daemon made it for this
/// parent.
pub fn mark(key: &Key, id: &str, parent: &str) -> String {
    let mut mark = key.sign(&["mark", id, parent]);
    mark.truncate(MARK_DIGITS);
    mark
}

/// What tells one document from any other, however it is spaced.
pub fn digest(document: &Map<String, Value>) -> String {
    sha256(&serde_json::to_vec(document).unwrap_or_default())
}

/// Whether the daemon made this record for `parent`, which set `spawn` in motion.
pub fn is_made(key: &Key, id: &str, parent: &str, spawn: Option<&Spawn>, record: &Record) -> bool {
    let meta = &record.meta;
    if meta.links.mark.as_ref() == Some(&mark(key, id, parent)) {
        return true;
    }
    let names_parent = meta.links.parent.as_deref() == Some(parent);
    match (spawn, &meta.request_sha256) {
        (Some(spawn), Some(sha256)) => spawn.sha256() == *sha256,
        // Admission always writes the digest, so this record was never a submission.
        (Some(_), None) => names_parent && meta.rejected.is_none() && meta.revision > 0,
        // A person wrote the wait into the parent's record, where no producer can write.
        (None, _) => names_parent,
    }
}

/// Gives a child another id, wherever its parent names it.
pub fn rename(parent: &mut Record, old: &str, new: &str) {
    let swap = |id: &mut String| {
        if id == old {
            new.clone_into(id);
        }
    };
    let links = &mut parent.meta.links;
    links.children.iter_mut().for_each(swap);
    for spawn in links.spawns.iter_mut().filter(|spawn| spawn.id == old) {
        new.clone_into(&mut spawn.id);
        let request = &mut spawn.request;
        request.insert("handoff_id".to_owned(), new.into());
        let own = request.get_mut("handoffd");
        let line = own.and_then(|own| own.get_mut("worktree")?.get_mut("line"));
        if let Some(line) = line.filter(|line| **line == old) {
            *line = new.into();
        }
    }
    let waiting = parent.doc.get_mut("waiting");
    let ids = waiting.and_then(|waiting| waiting.get_mut("ids")?.as_array_mut());
    for id in ids.into_iter().flatten().filter(|id| *id == old) {
        *id = new.into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn key() -> Key {
        Key::new(KEY)
    }

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn spawn() -> Spawn {
        Spawn {
            id: "x.1-aaaaaaaa".to_owned(),
            request: map(&json!({ "handoff_id": "x.1-aaaaaaaa", "n": 1 })),
            refused: None,
        }
    }

    #[test]
    fn another_id_differs_in_its_last_digits_only() {
        let (one, other) = ("x.1-aaaaaaaa", another_id(&key(), "x.1-aaaaaaaa"));
        assert_ne!(one, other);
        assert_eq!((&one[..4], one.len()), (&other[..4], other.len()));
        assert_ne!(another_id(&key(), &other), other);
    }

    #[test]
    fn only_what_the_daemon_made_counts_as_a_child() {
        let spawn = spawn();
        let made = |change: &dyn Fn(&mut Record)| {
            let doc = spawn.request.clone();
            let mut record = Record::admit(doc, &spawn.id, Some(spawn.sha256()));
            record.meta.revision = 1;
            change(&mut record);
            is_made(&key(), &spawn.id, "x", Some(&spawn), &record)
        };
        let sha = |record: &mut Record, sha: Option<&str>| {
            record.meta.request_sha256 = sha.map(str::to_owned);
        };
        let child = |record: &mut Record| record.meta.links.parent = Some("x".to_owned());
        let marked = |record: &mut Record, mark: String| record.meta.links.mark = Some(mark);
        let own = || mark(&key(), &spawn.id, "x");
        assert!(made(&|_| {}), "its own request");
        assert!(!made(&|it| sha(it, Some("other"))), "another request");
        assert!(!made(&|it| {
            sha(it, Some("other"));
            child(it);
        }));
        assert!(made(&|it| {
            sha(it, Some("other"));
            marked(it, own());
        }));
        for forged in [
            mark(&Key::default(), &spawn.id, "x"),
            mark(&key(), "y", "x"),
        ] {
            assert!(!made(&|it| {
                sha(it, Some("other"));
                marked(it, forged.clone());
            }));
        }
        let refused = |it: &mut Record| {
            sha(it, None);
            child(it);
        };
        assert!(made(&refused), "the daemon wrote it straight to failed/");
        assert!(!made(&|it| {
            refused(it);
            it.meta.rejected = Some("1:2".to_owned());
        }));
        assert!(!made(&|it| {
            refused(it);
            it.meta.revision = 0;
        }));
    }

    #[test]
    fn a_child_that_is_renamed_is_renamed_everywhere() {
        let doc = map(&json!({ "waiting": { "on": "handoff", "ids": ["x.1-aaaaaaaa", "b"] } }));
        let mut parent = Record {
            doc,
            meta: crate::protocol::record::Meta::default(),
        };
        parent.meta.links.children = vec!["b".to_owned(), "x.1-aaaaaaaa".to_owned()];
        parent.meta.links.spawns = vec![spawn()];
        rename(&mut parent, "x.1-aaaaaaaa", "x.1-bbbbbbbb");
        assert_eq!(parent.doc["waiting"]["ids"], json!(["x.1-bbbbbbbb", "b"]));
        assert_eq!(parent.meta.links.children, ["b", "x.1-bbbbbbbb"]);
        let spawn = &parent.meta.links.spawns[0];
        assert_eq!(spawn.id, "x.1-bbbbbbbb");
        assert_eq!(spawn.request["handoff_id"], "x.1-bbbbbbbb");
    }
}
