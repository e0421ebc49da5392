//! Children: making the handoffs that an outcome sets in motion, each once and under its own id.
//!
//! A file with a child's id counts as the child only if the daemon made it. A stranger's file in
//! `pending/` is refused by the loop as a duplicate, and the child is made after. Where that can't
//! be, because a stranger's record has the id already, the child gets another one.

use std::fs;
use std::io;
use std::path::Path;

use crate::durable;
use crate::engine::arrivals::PENDING;
use crate::engine::effects::{Decided, Unapplied};
use crate::engine::event::{Event, Folder};
use crate::engine::world::World;
use crate::policy::kin::{another_id, digest, is_made, rename};
use crate::policy::next::{fail, refusal};
use crate::protocol::document;
use crate::protocol::error::ErrorCode;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::links::Spawn;
use crate::protocol::name::Ext;
use crate::protocol::record::Record;
use crate::spool::change::Change;
use crate::spool::layout::Layout;
use crate::spool::look::{Looked, look};
use crate::watch::{Hint, How};

/// How often a record is looked for that may be on its way between two folders.
const LOOKS: usize = 3;

/// What stands under a child's id.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Nothing,
    Child,
    /// A file in `pending/` that is not the child's.
    Submission,
    /// A record that is not the child's.
    Record,
}

/// Whether something is still to be made that the last decision sets in motion.
pub fn has_unmade(world: &World, record: &Record, id: &str) -> bool {
    let mut spawns = record.meta.links.spawns.iter();
    spawns.any(|spawn| standing(world, spawn, id) != Standing::Child)
}

/// Of children that nobody waits for, only the first file matters.
pub fn forget(world: &World, parent: &Record) {
    for spawn in &parent.meta.links.spawns {
        world.expected.forget(&spawn.id);
    }
}

/// It may be on its way from one folder to the next, so where it comes from is asked first, and
/// where it may turn back once more.
fn standing(world: &World, spawn: &Spawn, parent: &str) -> Standing {
    let layout = &world.layout;
    if let Some(path) = layout.submission(&spawn.id) {
        return if is_request(&path, spawn) {
            Standing::Child
        } else {
            Standing::Submission
        };
    }
    let key = world.config().key;
    let mut is_taken = false;
    for _ in 0..LOOKS {
        is_taken = layout.is_taken(&spawn.id) || layout.is_taken(&spawn.id);
        if !is_taken {
            return Standing::Nothing;
        }
        for state in layout.states_of(&spawn.id) {
            let path = layout.record(state, &spawn.id);
            let Looked::Bytes { bytes, .. } = look(&path, u64::MAX - 1) else {
                continue;
            };
            // Just out of pending/, the record still has the bytes of the request.
            let is_child = Record::document(&bytes).is_some_and(|doc| {
                let raw = digest(&doc) == digest(&spawn.request);
                let made = |record| is_made(&key, &spawn.id, parent, Some(spawn), &record);
                raw || Record::from_document(doc).is_ok_and(made)
            });
            return if is_child {
                Standing::Child
            } else {
                Standing::Record
            };
        }
    }
    if is_taken {
        Standing::Record
    } else {
        Standing::Nothing
    }
}

/// Whether a file is the request of this child.
fn is_request(path: &Path, spawn: &Spawn) -> bool {
    let Looked::Bytes { bytes, .. } = look(path, u64::MAX - 1) else {
        return false;
    };
    let is_json = path.extension().is_some_and(|ext| ext == "json");
    let parsed = document::parse(&bytes, Ext::Json).ok();
    is_json && parsed.is_some_and(|parsed| digest(&parsed.map) == digest(&spawn.request))
}

/// Makes a handoff that an outcome asks for, unless it is there already: in any folder, so that
/// one that has long ended is not made again.
pub fn set_in_motion(world: &World, spawn: &Spawn, parent: &str) -> Result<(), Unapplied> {
    let layout = &world.layout;
    if HandoffId::parse_made(&spawn.id).is_err() {
        tracing::warn!("{:?} is not a valid id: no child was created", spawn.id);
        return Ok(());
    }
    match standing(world, spawn, parent) {
        Standing::Nothing => {}
        Standing::Child => return Ok(()),
        Standing::Submission => {
            have_it_looked_at(world, &spawn.id);
            return Err(Unapplied::Taken(spawn.id.clone()));
        }
        Standing::Record => return Err(Unapplied::Taken(spawn.id.clone())),
    }
    let durability = world.config().daemon.durability;
    let (folder, bytes) = match &spawn.refused {
        None => (State::Pending, spawn.to_bytes()),
        Some(why) => (State::Failed, refused(world, spawn, why)),
    };
    let temp = layout.tmp().join(format!("follow-{}.json", spawn.id));
    let file = durable::create_anew(&temp, &bytes)?;
    let moved = durable::sync_file(&file, durability)
        .and_then(|()| durable::move_no_replace(&temp, &layout.record(folder, &spawn.id)));
    if let Err(error) = moved {
        let _ = fs::remove_file(&temp);
        return Err(match error.kind() {
            io::ErrorKind::AlreadyExists => Unapplied::Taken(spawn.id.clone()),
            _ => Unapplied::Io(error),
        });
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

fn refused(world: &World, spawn: &Spawn, why: &str) -> Vec<u8> {
    let mut record = Record::admit(spawn.request.clone(), &spawn.id, None);
    let actions = vec![
        "See the chain with handoffd chain; make the specialists end it, or raise \
         the limit that the message names and send the daemon SIGHUP"
            .to_owned(),
    ];
    let told = refusal(ErrorCode::Blocked, why.to_owned(), actions);
    fail(&mut record, &told, 0, world.now().wall);
    record.to_bytes()
}

/// A file that was read before the child was expected is read once more, and refused.
fn have_it_looked_at(world: &World, id: &str) {
    let path = world.layout.submission(id);
    if let Some(name) = path.as_deref().and_then(Path::file_name) {
        world.tell(Event::Hint(Hint::Seen {
            folder: PENDING,
            name: name.to_owned(),
            how: How::Changed,
        }));
    }
}

/// Gives a child another id, because a stranger has its own, and tries again. The decided record
/// names the new id before anything is made under it.
pub fn give_another_id(world: &World, mut decided: Box<Decided>, old: &str) {
    let layout = &world.layout;
    let key = world.config().key;
    let mut new = another_id(&key, old);
    while layout.is_taken(&new) || layout.submission(&new).is_some() {
        new = another_id(&key, &new);
    }
    tracing::warn!(
        handoff_id = decided.id,
        "{old} is another handoff's id; the follow-up has the id {new}"
    );
    rename(&mut decided.record, old, &new);
    world.expected.forget(old);
    world.expected.await_from(&decided.record, &decided.id);
    (decided.tries, decided.renamed) = (0, true);
    let change = Change::Advance {
        id: decided.id.clone(),
        from: decided.from,
        to: decided.from,
        bytes: decided.record.to_bytes(),
    };
    let events = world.events.clone();
    world.committer.submit(change, Vec::new(), move |_| {
        let _ = events.send(Event::Decided(decided));
    });
}
