//! Files in which adapters keep what they know of a coding agent's session: deleted when they are old and
//! their handoff has ended.
//!
//! Specialists write that folder, so it is opened once, never through a link, and files are deleted by their
//! name in it.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::clock::Wall;
use crate::inspect::summary::Place;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;

/// How many files are looked at between two pauses.
const STEP: usize = 200;

/// What a pass found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Swept {
    /// How many files are old and of no handoff on its way.
    pub count: usize,
    /// When the oldest one changed that is not old yet.
    pub oldest: Option<Wall>,
}

/// Deletes the files that changed before an instant, or only counts them.
pub fn sweep(layout: &Layout, before: Wall, dry: bool, pause: &dyn Fn()) -> io::Result<Swept> {
    let mut swept = Swept::default();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match openat(CWD, layout.sessions(), flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(swept),
        opened => opened?,
    };
    for (at, entry) in Dir::read_from(&folder)?.enumerate() {
        if at % STEP == STEP - 1 {
            pause();
        }
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type().is_dir() {
            continue;
        }
        let Ok(stat) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        let changed = Wall(stat.st_mtime.saturating_mul(1000));
        if changed >= before {
            swept.oldest = swept.oldest.min(Some(changed)).or(Some(changed));
        } else if !is_needed(layout, &name.to_string_lossy()) {
            if !dry {
                match unlinkat(&folder, name, AtFlags::empty()) {
                    Err(Errno::NOENT) => {}
                    deleted => deleted?,
                }
            }
            swept.count += 1;
        }
    }
    Ok(swept)
}

/// Whether the handoff of a file is on its way.
fn is_needed(layout: &Layout, name: &str) -> bool {
    let id = Path::new(name).file_stem().unwrap_or_default();
    let place = Place::find(layout, &id.to_string_lossy());
    place.is_some_and(|place| !matches!(place.state, State::Completed | State::Failed))
}
