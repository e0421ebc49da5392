//! Admission: a document becomes a record, and what it says of its kin is held against what they
//! say. A producer may write there what it likes; only a parent knows its children, and only a
//! child its parent.

use serde_json::{Map, Value};

use crate::engine::moves::load;
use crate::engine::world::World;
use crate::policy::kin::{digest, mark};
use crate::protocol::links::Links;
use crate::protocol::record::Record;

/// A record on its way from one folder to the next may be missed by as many looks.
const LOOKS: usize = 3;

/// The record that a submission is admitted as.
pub fn admit(world: &World, doc: Map<String, Value>, id: &str, sha256: String) -> Record {
    let document = claims(&doc, "parent").map(|_| digest(&doc));
    let mut record = Record::admit(doc, id, Some(sha256));
    confirm(world, &mut record.meta.links, id, document.as_deref());
    if record.meta.links.mark.is_some() {
        world.expected.forget(id);
    }
    record
}

/// How a submission stands in its chain, as far as its kin confirm it.
pub fn links_of(world: &World, doc: &Map<String, Value>, id: &str) -> Links {
    let Some(claimed) = doc.get("handoffd") else {
        return Links::default();
    };
    let only = Map::from_iter([("handoffd".to_owned(), claimed.clone())]);
    let mut links = Record::admit(only, id, None).meta.links;
    let document = claims(doc, "parent").map(|_| digest(doc));
    confirm(world, &mut links, id, document.as_deref());
    links
}

/// Takes from what a submission claims whatever its kin deny, and marks a child that the daemon
/// made: `document` is the digest of the whole submission.
fn confirm(world: &World, links: &mut Links, id: &str, document: Option<&str>) {
    links.children.retain(|child| {
        find(world, child).is_none_or(|theirs| theirs.parent.as_deref() == Some(id))
    });
    let Some(parent) = links.parent.clone() else {
        return links.forget_the_way_here();
    };
    let signed = mark(&world.config().key, id, &parent);
    let theirs = find(world, &parent);
    let is_spawn = theirs.as_ref().is_some_and(|theirs| {
        let mut spawns = theirs.spawns.iter();
        spawns.any(|spawn| spawn.id == id && document == Some(&*digest(&spawn.request)))
    });
    let is_made = is_spawn || links.mark.as_ref() == Some(&signed);
    // A parent that is gone can't deny its child.
    let agrees = theirs.is_none_or(|theirs| theirs.children.iter().any(|child| child == id));
    if !agrees {
        links.forget_the_way_here();
    }
    links.mark = (agrees && is_made).then_some(signed);
    if links.mark.is_none() {
        links.made = 0;
    }
}

/// What a submission says of itself in the daemon's own block.
pub fn claims<'a>(doc: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    doc.get("handoffd")?.get(key)?.as_str()
}

/// The links of another handoff, if it is there.
fn find(world: &World, id: &str) -> Option<Links> {
    (0..LOOKS).find_map(|_| {
        let states = world.layout.states_of(id);
        let found = states.into_iter().find_map(|state| load(world, state, id));
        found.map(|record| record.meta.links)
    })
}
