//! Listing the folders that producers and people write to, in pieces, on a thread that may wait.

use std::sync::{Mutex, PoisonError};

use crate::engine::event::{Event, Folder, Listing};
use crate::engine::folders;
use crate::engine::world::World;
use crate::protocol::lifecycle::State;
use crate::spool::scan::{self, Scanner};

/// How many names one listing event carries.
const CHUNK: usize = 4096;

/// Lists one folder, if it changed since it was last listed or `anyway`.
pub(super) fn list_one(world: &World, scanner: &Mutex<Scanner>, folder: Folder, anyway: bool) {
    let scanner = || scanner.lock().unwrap_or_else(PoisonError::into_inner);
    if folder == Folder::Pending {
        let shared = folders::shared(&world.layout, &world.config());
        world.tell(Event::Shared(shared));
    }
    let path = match folder {
        Folder::Pending => world.layout.pending().to_owned(),
        Folder::InProgress => world.layout.state(State::InProgress).to_owned(),
        Folder::Waiting => world.layout.state(State::Waiting).to_owned(),
        Folder::Control => world.layout.control(),
    };
    let needed = scanner().needs_listing(&path, world.now().wall.0);
    let listed = match needed {
        Ok(needed) if needed || anyway => list_names(world, folder, &path).map(|()| Listing::Whole),
        Ok(_) => Ok(Listing::Unchanged),
        Err(error) => Err(error),
    };
    let listed = listed.unwrap_or_else(|error| {
        scanner().forget(&path);
        let _ = world.layout.ensure();
        let path = world.layout.relative(&path);
        Listing::Failed(format!(
            "can't list {path} ({error}); trying again soon, and at every rescan"
        ))
    });
    world.tell(Event::ListingDone { folder, listed });
}

fn list_names(world: &World, folder: Folder, path: &std::path::Path) -> std::io::Result<()> {
    let mut chunk = Vec::new();
    scan::names(path, |name| {
        chunk.push(name);
        if chunk.len() >= CHUNK {
            world.tell(Event::Listed {
                folder,
                names: std::mem::take(&mut chunk),
            });
        }
    })?;
    world.tell(Event::Listed {
        folder,
        names: chunk,
    });
    Ok(())
}
