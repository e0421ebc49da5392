//! What follows from a decided outcome, between the decision and the move that shows it.
//!
//! A record with such effects is written where it stands first: it is then decided, and says
//! by itself what is to be done. Each effect is such that doing it twice is doing it once, so a
//! daemon that dies in between does all of them again and moves the record then.

use std::borrow::Cow;
use std::io;

use serde_json::{Map, Value};

use crate::clock::Wall;
use crate::engine::children;
use crate::engine::event::Event;
use crate::engine::packages;
use crate::engine::parked::Parked;
use crate::engine::tasks;
use crate::engine::world::World;
use crate::policy::follow::return_of;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::spool::change::Change;
use crate::store::artifacts::Entry;
use crate::store::audit;

/// How often the loop is given the time to refuse a stranger's file.
const TRIES: u32 = 3;

/// A record that is decided and stands where it was, and what is to be told once it has moved.
pub struct Decided {
    pub id: String,
    pub record: Record,
    pub from: State,
    pub to: State,
    pub after: Box<dyn FnOnce() + Send>,
    /// How often a stranger's file was in the way of a child.
    pub tries: u32,
    /// A child got another id since `after` was made.
    pub renamed: bool,
}

impl std::fmt::Debug for Decided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decided")
            .field("id", &self.id)
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

/// Why effects can't be applied yet.
#[derive(Debug)]
pub enum Unapplied {
    Io(io::Error),
    /// Something that the daemon did not make has the id of a child.
    Taken(String),
}

impl From<io::Error> for Unapplied {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Whether anything is to be done before the record may be moved.
pub fn has_effects(record: &Record) -> bool {
    !record.meta.links.spawns.is_empty()
        || !entries(record, "").is_empty()
        || tasks::concerns(record)
}

/// Writes a decided record and moves it, with what follows from it applied in between. `after`
/// is called once all of that is on disk.
pub fn settle(
    world: &World,
    id: &str,
    record: &Record,
    from: State,
    lines: Vec<audit::Event>,
    after: impl FnOnce() + Send + 'static,
) {
    let to = record.meta.to.unwrap_or(from);
    packages::note(world, record, id, to);
    let mut record = Cow::Borrowed(record);
    let back = return_of(&record, id, &world.config(), world.now().wall);
    if let Some(back) = back {
        back.put_into(record.to_mut());
    }
    world.board.note(&record, id, to, world.now().wall);
    let effects = has_effects(&record);
    world.expected.await_from(&record, id);
    if effects && tasks::concerns(&record) {
        tasks::forewarn(world, record.to_mut(), id);
    }
    let lines = said_again(world, id, record.meta.revision, lines);
    let change = Change::Advance {
        id: id.to_owned(),
        from,
        to: if effects { from } else { to },
        bytes: record.to_bytes(),
    };
    if !effects {
        return world.committer.submit(change, lines, move |_| after());
    }
    let events = world.events.clone();
    let decided = Box::new(Decided {
        id: id.to_owned(),
        record: record.into_owned(),
        from,
        to,
        after: Box::new(after),
        tries: 0,
        renamed: false,
    });
    world.committer.submit(change, lines, move |_| {
        let _ = events.send(Event::Decided(decided));
    });
}

/// Marks lines about a revision that the log knows from before this start: the daemon ended
/// between the line and the record, and the last line is the one that came true.
pub fn said_again(
    world: &World,
    id: &str,
    revision: u64,
    lines: Vec<audit::Event>,
) -> Vec<audit::Event> {
    let before = world.told_before.get();
    if !before.is_some_and(|told| told.contains(&(id.to_owned(), revision))) {
        return lines;
    }
    let mark = |line: audit::Event| line.with("again", true);
    lines.into_iter().map(mark).collect()
}

/// Does all that follows, then has the record moved.
pub fn apply(world: &World, mut decided: Box<Decided>) {
    match apply_all(world, &decided) {
        Ok(()) => {}
        Err(Unapplied::Io(error)) => {
            let error = error.to_string();
            return world.tell(Event::Unapplied { decided, error });
        }
        Err(Unapplied::Taken(id)) if decided.tries < TRIES => {
            decided.tries += 1;
            let error = format!("a file that the daemon did not write has the id {id}");
            return world.tell(Event::Unapplied { decided, error });
        }
        Err(Unapplied::Taken(id)) => return children::give_another_id(world, decided, &id),
    }
    // The registry knows by now whose file it is.
    world.reservations().release(&decided.id);
    if decided.to != State::Waiting {
        // Nobody waits for an answer of theirs.
        children::forget(world, &decided.record);
    }
    let parked = (decided.renamed && decided.to == State::Waiting)
        .then(|| Parked::of(&decided.record, world.now(), world.boot))
        .flatten();
    let Decided {
        id,
        from,
        to,
        after,
        ..
    } = *decided;
    let (events, waiting) = (world.events.clone(), id.clone());
    let after = move || {
        after();
        if let Some(parked) = parked {
            let _ = events.send(Event::Reparked {
                id: waiting,
                parked,
            });
        }
    };
    if from == to {
        return after();
    }
    let change = Change::Move { id, from, to };
    world.committer.submit(change, Vec::new(), move |_| after());
}

fn apply_all(world: &World, decided: &Decided) -> Result<(), Unapplied> {
    world
        .artifacts
        .register(&entries(&decided.record, &decided.id))?;
    tasks::apply(world, &decided.record, &decided.id)?;
    for spawn in &decided.record.meta.links.spawns {
        children::set_in_motion(world, spawn, &decided.id)?;
    }
    Ok(())
}

/// The registry's lines for a record that is decided as completed.
fn entries(record: &Record, id: &str) -> Vec<Entry> {
    let ours = record.meta.to == Some(State::Completed)
        && record.meta.lifted.iter().any(|key| key == "output");
    let output = record.doc.get("output").filter(|_| ours);
    let listed = output.and_then(|output| output.get("artifacts")?.as_array());
    let at = record
        .doc
        .get("completed_at")
        .and_then(Value::as_str)
        .and_then(Wall::parse)
        .unwrap_or(Wall(0));
    let listed = listed.into_iter().flatten();
    listed.filter_map(|item| registered(item, id, at)).collect()
}

/// The registry's line for one of the artifacts that `output.artifacts` lists.
pub fn registered(item: &Value, id: &str, at: Wall) -> Option<Entry> {
    let text = |key: &str| item.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(Entry {
        artifact_id: text("artifact_id")?,
        path: text("path")?,
        artifact_type: text("artifact_type"),
        sha256: text("sha256")?,
        size_bytes: item.get("size_bytes")?.as_u64()?,
        handoff_id: id.to_owned(),
        created_at: at,
        extra: Map::new(),
    })
}
