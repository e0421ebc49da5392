//! The folders themselves: those that are gone, those that lead elsewhere, and those that everybody
//! may write to.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::config::Config;
use crate::engine::event::Event;
use crate::engine::lock;
use crate::engine::world::World;
use crate::protocol::lifecycle::State;
use crate::protocol::shown;
use crate::spool::layout::Layout;

/// The first folder that is a link out of the root: what is moved there would be written wherever
/// the link leads.
fn astray(layout: &Layout) -> Option<(String, String)> {
    let folder = layout
        .moved_between()
        .find(|folder| layout.leads_out(folder))?;
    let word = shown::path(&folder);
    let folder = folder.display();
    Some((
        format!("{folder} is a symlink that leads out of the root"),
        format!("replace it with a folder that has the same files: rm {word}"),
    ))
}

/// The first folder of handoffs that everybody may write to, or that leads elsewhere, with what to
/// do about it. A group may write: that is how producers of other users are let in.
pub fn shared(layout: &Layout, config: &Config) -> Option<(String, String)> {
    let astray = astray(layout);
    if astray.is_some() || config.daemon.allow_shared {
        return astray;
    }
    let states = State::ALL.map(|state| layout.state(state).to_owned());
    let above = [layout.root().to_owned(), layout.handoffs().to_owned()];
    let others = [
        layout.control(),
        layout.own().to_owned(),
        layout.run().to_path_buf(),
        layout.audit(),
        layout.context(),
    ];
    // Whatever stands there in its place is not used, and must not hold up the rest.
    let refused = Some(layout.refused_control())
        .filter(|folder| fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir()));
    above
        .into_iter()
        .chain(states)
        .chain(others)
        .chain(refused)
        .find_map(|folder| {
            let mode = fs::metadata(&folder).ok()?.permissions().mode() & 0o7777;
            (mode & 0o002 != 0).then(|| {
                let word = shown::path(&folder);
                let folder = folder.display();
                (
                    format!("{folder} is writable by everybody (mode {mode:04o})"),
                    format!("chmod o-w {word}, or set daemon.allow_shared = true"),
                )
            })
        })
}

/// Makes missing folders again, and holds `handoffs/` if it is another one than before. Where
/// somebody else holds that one, this daemon must go.
pub fn mend_folders(world: &World) {
    if let Err(error) = world.layout.ensure() {
        tracing::warn!("a folder is missing and the daemon can't create it: {error}");
    }
    let held = world.lock.lock().map(|held| held.metadata());
    let same = match (held, std::fs::metadata(world.layout.handoffs())) {
        (Ok(Ok(held)), Ok(now)) => (held.dev(), held.ino()) == (now.dev(), now.ino()),
        _ => false,
    };
    if same {
        return;
    }
    match lock::hold(&world.layout) {
        Ok(folder) => {
            tracing::warn!("handoffs/ was replaced; locked the new one");
            if let Ok(mut held) = world.lock.lock() {
                *held = folder;
            }
        }
        Err(error) => {
            tracing::error!("handoffs/ was replaced, and {error}");
            world.tell(Event::RootLost);
        }
    }
}
