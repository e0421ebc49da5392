//! Links: how a handoff stands in its chain, and what its outcome sets in motion.
//!
//! They are part of the daemon's own block in a record. Of a submission they are history to
//! show: a handoff is woken and cancelled by what those who wait for it say, never by what it
//! says of itself.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::block::{put, take, take_list, take_map};
use super::digest::sha256;
use super::id::HandoffId;
use super::record::RecordError;

/// How a handoff is linked with others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Links {
    /// The first handoff of the chain; absent where it is that one itself.
    pub chain: Option<String>,
    /// How far from the first.
    pub hop: u32,
    /// How many of the hops were asked for by results, steps of workflows left out.
    pub asked: u32,
    /// How many handoffs the chain had set in motion, this one included, as far as that was known.
    pub made: u32,
    pub parent: Option<String>,
    /// Those that it has set in motion, in order.
    pub children: Vec<String>,
    /// What those that it delegated to gave back.
    pub returns: Vec<Value>,
    /// What the decided outcome sets in motion: written before it is done, so that it can be
    /// done again.
    pub spawns: Vec<Spawn>,
    /// Who was asked for what on the way to here, to know a circle.
    pub trail: Vec<String>,
    /// Whom it has asked for help itself, in this budget.
    pub asks: Vec<String>,
    /// Of its `input.data`: what the result wrote that asked for it. The number of entries at the
    /// end of a list, or `true` for the whole value of a key.
    pub written: Map<String, Value>,
    /// What the chain carries and could not stand in `input.data`, because the result that asked
    /// for it uses those names for its own.
    pub carried: Map<String, Value>,
    /// Decisions, artifacts and open questions of its own earlier results and of its helpers.
    pub gathered: Map<String, Value>,
    /// The outcome with which a package has returned to the agent that sent it.
    pub returned: Option<String>,
    /// Proof that the daemon made it for `parent`.
    pub mark: Option<String>,
    /// Which worktree it works in, where that is not the chain's own.
    pub worktree: Option<Worktree>,
}

/// The worktree of a handoff that runs beside others, and of those that follow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worktree {
    /// The id that names its branch.
    pub line: String,
    /// The line at whose tip it begins.
    pub from: String,
}

/// One handoff that is to be set in motion.
#[derive(Debug, Clone, PartialEq)]
pub struct Spawn {
    pub id: String,
    /// The request, as it goes into `pending/`.
    pub request: Map<String, Value>,
    /// Why it is written straight to `failed/` instead.
    pub refused: Option<String>,
}

impl Spawn {
    /// The request as it is written into `pending/`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(&self.request).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// The digest of that file, as its record has it.
    pub fn sha256(&self) -> String {
        sha256(&self.to_bytes())
    }

    fn from_value(value: Value) -> Result<Self, RecordError> {
        let Value::Object(mut map) = value else {
            return Err(RecordError::BadMeta("spawns: not an object".to_owned()));
        };
        for needed in ["id", "request"] {
            if !map.contains_key(needed) {
                let why = format!("spawns: {needed} is missing");
                return Err(RecordError::BadMeta(why));
            }
        }
        Ok(Self {
            id: take(&mut map, "id")?,
            request: take_map(&mut map, "request")?,
            refused: take(&mut map, "refused")?,
        })
    }
}

impl Serialize for Spawn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        put(&mut map, "id", &self.id)?;
        map.serialize_entry("request", &self.request)?;
        put(&mut map, "refused", &self.refused)?;
        map.end()
    }
}

impl Links {
    pub(super) fn take_from(map: &mut Map<String, Value>) -> Result<Self, RecordError> {
        Ok(Self {
            chain: take(map, "chain")?,
            hop: take(map, "hop")?,
            asked: take(map, "asked")?,
            made: take(map, "made")?,
            parent: take(map, "parent")?,
            children: take(map, "children")?,
            returns: take_list(map, "returns")?,
            spawns: take_list(map, "spawns")?
                .into_iter()
                .map(Spawn::from_value)
                .collect::<Result<_, _>>()?,
            trail: take(map, "trail")?,
            asks: take(map, "asks")?,
            written: take_map(map, "written")?,
            carried: take_map(map, "carried")?,
            gathered: take_map(map, "gathered")?,
            returned: take(map, "returned")?,
            mark: take(map, "mark")?,
            worktree: take(map, "worktree")?,
        })
    }

    pub(super) fn put_into<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        put(map, "chain", &self.chain)?;
        put(map, "hop", &self.hop)?;
        put(map, "asked", &self.asked)?;
        put(map, "made", &self.made)?;
        put(map, "parent", &self.parent)?;
        put(map, "children", &self.children)?;
        put(map, "returns", &self.returns)?;
        put(map, "spawns", &self.spawns)?;
        put(map, "trail", &self.trail)?;
        put(map, "asks", &self.asks)?;
        put(map, "written", &self.written)?;
        put(map, "carried", &self.carried)?;
        put(map, "gathered", &self.gathered)?;
        put(map, "returned", &self.returned)?;
        put(map, "mark", &self.mark)?;
        put(map, "worktree", &self.worktree)
    }

    /// Names become parts of file names: what can't be an id is not believed.
    pub(super) fn forget_what_is_no_id(&mut self) {
        let is_id = |text: &String| HandoffId::parse_made(text).is_ok();
        self.chain = self.chain.take().filter(is_id);
        self.parent = self.parent.take().filter(is_id);
        self.children.retain(is_id);
        let are_ids = |tree: &Worktree| is_id(&tree.line) && is_id(&tree.from);
        self.worktree = self.worktree.take().filter(are_ids);
    }

    /// It is the first of a chain of its own.
    pub fn forget_the_way_here(&mut self) {
        self.chain = None;
        self.hop = 0;
        self.asked = 0;
        self.made = 0;
        self.parent = None;
        self.mark = None;
        self.worktree = None;
        self.trail.clear();
        self.written.clear();
        self.carried.clear();
    }

    /// The chain's name: its first handoff's id.
    pub fn chain_of<'a>(&'a self, id: &'a str) -> &'a str {
        self.chain.as_deref().unwrap_or(id)
    }

    /// The line of handoffs that share a worktree with this one: the chain's, or that of a helper.
    pub fn line_of<'a>(&'a self, id: &'a str) -> &'a str {
        let own = self.worktree.as_ref().map(|tree| tree.line.as_str());
        own.unwrap_or_else(|| self.chain_of(id))
    }
}
