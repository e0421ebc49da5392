//! Admission: a document becomes a record, and what it says of its kin is held against what they
//! say. A producer may write there what it likes; only a parent knows its children, and only a
//! child its parent.

use serde_json::{Map, Value};

use crate::engine::moves::load;
use crate::engine::world::World;
use crate::protocol::links::Links;
use crate::protocol::record::Record;

/// A record on its way from one folder to the next may be missed by as many looks.
const LOOKS: usize = 3;

/// The record that a submission is admitted as.
pub fn admit(world: &World, doc: Map<String, Value>, id: &str, sha256: String) -> Record {
    let mut record = Record::admit(doc, id, Some(sha256));
    let links = &mut record.meta.links;
    let is_child = |parent: &String| {
        agrees(world, parent, |theirs| {
            theirs.children.iter().any(|child| child == id)
        })
    };
    if !links.parent.as_ref().is_some_and(is_child) {
        links.forget_the_way_here();
    }
    links
        .children
        .retain(|child| agrees(world, child, |theirs| theirs.parent.as_deref() == Some(id)));
    record
}

/// How a submission stands in its chain, as far as its kin confirm it.
pub fn links_of(world: &World, doc: &Map<String, Value>, id: &str) -> Links {
    let Some(claimed) = doc.get("handoffd") else {
        return Links::default();
    };
    let only = Map::from_iter([("handoffd".to_owned(), claimed.clone())]);
    admit(world, only, id, String::new()).meta.links
}

/// Whether another handoff says so too. One that is not there any more can't deny it.
fn agrees(world: &World, id: &str, says_so: impl Fn(&Links) -> bool) -> bool {
    let found = (0..LOOKS).find_map(|_| {
        let states = world.layout.states_of(id);
        states.into_iter().find_map(|state| load(world, state, id))
    });
    found.is_none_or(|other| says_so(&other.meta.links))
}
