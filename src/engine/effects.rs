//! What follows from a decided outcome, between the decision and the move that shows it.
//!
//! A record with such effects is written where it stands first: it is then decided, and says
//! by itself what is to be done. Each effect is such that doing it twice is doing it once, so a
//! daemon that dies in between does all of them again and moves the record then.

use std::borrow::Cow;
use std::fs;
use std::io;

use serde_json::{Map, Value};

use crate::clock::Wall;
use crate::durable;
use crate::engine::event::{Event, Folder};
use crate::engine::packages;
use crate::engine::tasks;
use crate::engine::world::World;
use crate::policy::follow::return_of;
use crate::policy::next::{fail, refusal};
use crate::protocol::error::ErrorCode;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::links::Spawn;
use crate::protocol::record::Record;
use crate::spool::change::Change;
use crate::spool::layout::Layout;
use crate::store::artifacts::Entry;
use crate::store::audit;

/// A record that is decided and stands where it was, and what is to be told once it has moved.
pub struct Decided {
    pub id: String,
    pub record: Record,
    pub from: State,
    pub to: State,
    pub after: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for Decided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decided")
            .field("id", &self.id)
            .field("to", &self.to)
            .finish_non_exhaustive()
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
pub fn apply(world: &World, decided: Box<Decided>) {
    if let Err(error) = apply_all(world, &decided) {
        let error = error.to_string();
        return world.tell(Event::Unapplied { decided, error });
    }
    // The registry knows by now whose file it is.
    world.reservations().release(&decided.id);
    let Decided {
        id,
        from,
        to,
        after,
        ..
    } = *decided;
    if from == to {
        return after();
    }
    let change = Change::Move { id, from, to };
    world.committer.submit(change, Vec::new(), move |_| after());
}

fn apply_all(world: &World, decided: &Decided) -> io::Result<()> {
    world
        .artifacts
        .register(&entries(&decided.record, &decided.id))?;
    tasks::apply(world, &decided.record, &decided.id)?;
    for spawn in &decided.record.meta.links.spawns {
        set_in_motion(world, spawn)?;
    }
    Ok(())
}

/// Whether something is still to be made that the last decision sets in motion.
pub fn has_unmade(world: &World, record: &Record) -> bool {
    let mut spawns = record.meta.links.spawns.iter();
    spawns.any(|spawn| !is_made(&world.layout, spawn))
}

/// It may be on its way from one folder to the next, so where it comes from is asked first, and
/// where it may turn back twice.
fn is_made(layout: &Layout, spawn: &Spawn) -> bool {
    layout.submission(&spawn.id).is_some()
        || layout.is_taken(&spawn.id)
        || layout.is_taken(&spawn.id)
}

/// Makes a handoff that an outcome asks for, unless it is there already: in any folder, so that
/// one that has long ended is not made again.
fn set_in_motion(world: &World, spawn: &Spawn) -> io::Result<()> {
    let layout = &world.layout;
    if HandoffId::parse_made(&spawn.id).is_err() {
        tracing::warn!("{:?} can't be an id: not set in motion", spawn.id);
        return Ok(());
    }
    if is_made(layout, spawn) {
        return Ok(());
    }
    let durability = world.config().daemon.durability;
    let (folder, bytes) = match &spawn.refused {
        None => {
            let mut bytes = serde_json::to_vec_pretty(&spawn.request).unwrap_or_default();
            bytes.push(b'\n');
            (State::Pending, bytes)
        }
        Some(why) => {
            let mut record = Record::admit(spawn.request.clone(), &spawn.id, None);
            let actions = vec![
                "See the whole way with handoffd chain; let the specialists end it, or raise \
                 daemon.max_hops and send the daemon SIGHUP"
                    .to_owned(),
            ];
            let told = refusal(ErrorCode::Blocked, why.clone(), actions);
            fail(&mut record, &told, 0, world.now().wall);
            (State::Failed, record.to_bytes())
        }
    };
    let temp = layout.tmp().join(format!("follow-{}.json", spawn.id));
    let file = durable::create_anew(&temp, &bytes)?;
    let moved = durable::sync_file(&file, durability)
        .and_then(|()| durable::move_no_replace(&temp, &layout.record(folder, &spawn.id)));
    if let Err(error) = moved {
        let _ = fs::remove_file(&temp);
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
    }
    durable::sync_dir(&Layout::open_dir(layout.state(folder))?, durability)?;
    if folder == State::Pending {
        // A daemon that drains must know of it before it can believe that nothing is left.
        world.tell(Event::Listed {
            folder: Folder::Pending,
            names: vec![format!("{}.json", spawn.id).into()],
        });
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
    let entry = |item: &Value| {
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
    };
    listed.into_iter().flatten().filter_map(entry).collect()
}
