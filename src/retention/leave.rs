//! Taking a record out of its folder for good, if it is still the one that was looked at.
//!
//! Between the look and the deletion a record may be retried, or moved by hand and replaced. So it
//! is moved out of the way first, which is one step, and looked at again there: what has changed
//! goes back to where it was. What a crash leaves in `leaving/` goes back too; it is old, and will
//! be found again.

use std::fs;
use std::io;

use crate::durable;
use crate::protocol::lifecycle::State;
use crate::spool::layout::{Layout, make_folder};
use crate::spool::look::Identity;
use crate::spool::scan;

/// Deletes a record that has ended. `false` if it is gone or not the same any more.
pub fn remove(layout: &Layout, state: State, id: &str, known: Identity) -> io::Result<bool> {
    let path = layout.record(state, id);
    let out = layout
        .leaving()
        .join(format!("{}.{id}.json", state.folder()));
    let mut moved = durable::move_no_replace(&path, &out);
    if is(&moved, io::ErrorKind::AlreadyExists) || is(&moved, io::ErrorKind::NotFound) {
        // Left by a crash, or the folder is not there yet.
        make_folder(&layout.leaving())?;
        put_back(layout)?;
        moved = durable::move_no_replace(&path, &out);
    }
    if is(&moved, io::ErrorKind::NotFound) {
        return Ok(false);
    }
    moved?;
    match Identity::at(&out) {
        Ok(found) if found == known => match fs::remove_file(&out) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        },
        // Somebody else has put it back already.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        _ => put_back(layout).map(|()| false),
    }
}

fn is(result: &io::Result<()>, kind: io::ErrorKind) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == kind)
}

/// Puts back what was on its way out when the power went.
pub fn put_back(layout: &Layout) -> io::Result<()> {
    let mut names = Vec::new();
    match scan::names(&layout.leaving(), |name| names.push(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(|error| durable::at(&layout.leaving(), &error))?,
    }
    for name in names {
        let known = name.to_str().and_then(|name| {
            let (folder, file) = name.split_once('.')?;
            let ended = [State::Completed, State::Failed].into_iter();
            let state = ended.clone().find(|state| state.folder() == folder)?;
            Some((layout.state(state).join(file), file.to_owned()))
        });
        let from = layout.leaving().join(&name);
        let Some((to, file)) = known else { continue };
        let taken = file
            .strip_suffix(".json")
            .is_some_and(|id| !layout.states_of(id).is_empty());
        let moved = if taken {
            durable::move_no_replace(&from, &layout.aside().join(format!("{file}.left")))
        } else {
            durable::move_no_replace(&from, &to)
        };
        match moved {
            // Another one does the same at the same time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            moved => moved?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        (dir, layout)
    }

    #[test]
    fn what_is_the_same_goes_and_what_has_changed_stays() {
        let (_dir, layout) = root();
        let path = layout.record(State::Failed, "x");
        fs::write(&path, "old").unwrap();
        let known = Identity::at(&path).unwrap();
        fs::write(&path, "retried").unwrap();
        assert!(!remove(&layout, State::Failed, "x", known).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "retried");
        let known = Identity::at(&path).unwrap();
        assert!(remove(&layout, State::Failed, "x", known).unwrap());
        assert!(!remove(&layout, State::Failed, "x", known).unwrap(), "gone");
        assert_eq!(fs::read_dir(layout.leaving()).unwrap().count(), 0);
    }

    #[test]
    fn row_38_what_was_on_its_way_out_goes_back_unless_the_id_stands_elsewhere() {
        let (_dir, layout) = root();
        let out = |id: &str| layout.leaving().join(format!("completed.{id}.json"));
        fs::write(out("x"), "x").unwrap();
        fs::write(out("y"), "old y").unwrap();
        fs::write(layout.record(State::Waiting, "y"), "new y").unwrap();
        for _ in 0..2 {
            put_back(&layout).unwrap();
            assert_eq!(layout.states_of("x"), [State::Completed]);
            assert_eq!(layout.states_of("y"), [State::Waiting]);
            assert_eq!(fs::read_dir(layout.leaving()).unwrap().count(), 0);
            assert_eq!(fs::read_dir(layout.aside()).unwrap().count(), 1);
        }
    }
}
