//! Handoffs, newest first, without a look at each of a million files.
//!
//! Where few have ended, every file's time is read and sorted: exact, and quick enough. Where many
//! have, and only the first of them are wanted, the audit log is read from its end instead, because
//! it is in the order of time already: a page costs as many lines and files as it shows. What the
//! log does not know of, as files that somebody put there by hand, comes after all that it knows.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::vec::IntoIter;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, open, statat};
use rustix::io::Errno;

use crate::clock::Wall;
use crate::inspect::list::Filter;
use crate::inspect::met::{Meeting, Met};
use crate::inspect::summary::{Place, id_of, is_handoff};
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;
use crate::spool::look::at;
use crate::spool::reject::numbered;
use crate::store::audit::{self, Line};

/// From so many ended handoffs on, the log is asked.
pub const MANY: usize = 20_000;

/// A file, as small as it can be remembered: a list may have a million.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    modified: Wall,
    state: State,
    name: Box<str>,
}

impl Entry {
    fn place(self, layout: &Layout) -> Option<Place> {
        Some(Place {
            id: id_of(self.state, OsStr::new(&*self.name))?,
            state: self.state,
            path: layout.state(self.state).join(&*self.name),
            modified: self.modified,
            packed: None,
        })
    }
}

/// `None` where there is no such folder: a daemon makes it when it starts, and it is empty then.
fn open_folder(folder: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match open(folder, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(at(folder, &error.into())),
        Ok(opened) => Ok(Some(opened)),
    }
}

/// Hands every handoff in a folder to `each`: its file's name, and its time.
pub fn walk(folder: &Path, state: State, mut each: impl FnMut(&OsStr, Wall)) -> io::Result<()> {
    let Some(fd) = open_folder(folder)? else {
        return Ok(());
    };
    for entry in Dir::read_from(&fd)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if !is_plain(entry.file_type()) || !is_handoff(state, name) {
            continue;
        }
        // It may have moved on since it was listed.
        let Ok(stat) = statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            continue;
        }
        // A drop is a rename: its own time is when the name came, not when the bytes did.
        let (seconds, nanoseconds) = match state {
            State::Pending => (stat.st_ctime, stat.st_ctime_nsec),
            _ => (stat.st_mtime, stat.st_mtime_nsec),
        };
        #[allow(
            clippy::unnecessary_cast,
            clippy::cast_possible_wrap,
            reason = "its type differs between systems"
        )]
        let ms = seconds as i64 * 1000 + nanoseconds as i64 / 1_000_000;
        each(name, Wall(ms));
    }
    Ok(())
}

/// Hands the name of every handoff in a folder to `each`, until it says that it has enough. Looks
/// at no file.
pub(super) fn names(
    folder: &Path,
    state: State,
    mut each: impl FnMut(&OsStr) -> ControlFlow<()>,
) -> io::Result<()> {
    let Some(fd) = open_folder(folder)? else {
        return Ok(());
    };
    for entry in Dir::read_from(&fd)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if is_plain(entry.file_type()) && is_handoff(state, name) && each(name).is_break() {
            break;
        }
    }
    Ok(())
}

/// How many handoffs a folder has, at most `most`.
fn count(folder: &Path, state: State, most: usize) -> io::Result<usize> {
    let mut count = 0;
    names(folder, state, |_| {
        count += 1;
        if count < most {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    Ok(count)
}

/// Some file systems do not say.
fn is_plain(kind: FileType) -> bool {
    matches!(kind, FileType::RegularFile | FileType::Unknown)
}

/// All of these states, sorted by their files' times.
fn sorted(layout: &Layout, filter: &Filter, states: &[State]) -> io::Result<IntoIter<Entry>> {
    let mut entries = Vec::new();
    let mut met = Met::new(layout);
    let mut left = HashSet::new();
    for state in states.iter().copied().filter(|it| filter.has_state(*it)) {
        walk(layout.state(state), state, |name, modified| {
            let wanted = name.to_str().filter(|_| filter.has_time(modified));
            let at = wanted.map(|_| entries.len());
            match met.meet(state, name, at) {
                Meeting::Foreign => return,
                Meeting::Moved(at) => left.extend(at),
                Meeting::First => {}
            }
            if let Some(name) = wanted {
                let name = name.into();
                entries.push(Entry {
                    modified,
                    state,
                    name,
                });
            }
        })?;
    }
    let mut at = 0..;
    entries.retain(|_| at.next().is_none_or(|at| !left.contains(&at)));
    entries.sort_unstable_by(|a, b| {
        let by_time = b.modified.cmp(&a.modified);
        by_time.then_with(|| a.name.cmp(&b.name))
    });
    Ok(entries.into_iter())
}

const LIVE: [State; 3] = [State::Pending, State::InProgress, State::Waiting];
const ENDED: [State; 2] = [State::Completed, State::Failed];

/// Every handoff that the filter's cheap half lets through, newest first.
pub fn all(layout: &Layout, filter: &Filter) -> io::Result<Newest> {
    let sorted = sorted(layout, filter, &State::ALL)?;
    Ok(Newest {
        layout: layout.clone(),
        filter: filter.clone(),
        live: sorted.peekable(),
        log: None,
        seen: HashSet::new(),
        rest: None,
        rest_done: true,
    })
}

/// The same for somebody who wants only the first of them. `many` is from where on the log is
/// asked.
pub fn first(layout: &Layout, filter: &Filter, many: usize) -> io::Result<Newest> {
    let mut ended = 0;
    for state in ENDED.into_iter().filter(|state| filter.has_state(*state)) {
        ended += count(layout.state(state), state, many - ended)?;
        if ended >= many {
            break;
        }
    }
    if ended < many {
        return all(layout, filter);
    }
    let log: Log = Box::new(audit::newest_first(&layout.audit())?.map_while(Result::ok));
    Ok(Newest {
        layout: layout.clone(),
        filter: filter.clone(),
        live: sorted(layout, filter, &LIVE)?.peekable(),
        log: Some(log.peekable()),
        seen: HashSet::new(),
        rest: None,
        rest_done: false,
    })
}

type Log = Box<dyn Iterator<Item = Line>>;

/// Handoffs in the order of their changes, the last one first.
pub struct Newest {
    layout: Layout,
    filter: Filter,
    /// Sorted by their files. Those on their way, or simply all.
    live: Peekable<IntoIter<Entry>>,
    log: Option<Peekable<Log>>,
    /// Of whom the log has told already.
    seen: HashSet<Box<str>>,
    /// What the log does not know of.
    rest: Option<IntoIter<Entry>>,
    rest_done: bool,
}

impl Newest {
    /// The next one that has ended, as far as the log goes back; `None` where one
    /// that is on its way is newer.
    fn logged(&mut self) -> Option<Place> {
        loop {
            let newer = self.live.peek().map(|entry| entry.modified);
            let log = self.log.as_mut()?;
            let Some(line) = log.peek() else {
                self.log = None;
                return None;
            };
            if newer.is_some_and(|newer| newer >= line.at) {
                return None;
            }
            let line = log.next()?;
            if let Some(place) = self.told_of(&line) {
                return Some(place);
            }
        }
    }

    fn told_of(&mut self, line: &Line) -> Option<Place> {
        let id = line.handoff_id.as_deref()?;
        // Bytes that were refused stand under a numbered id where their own was taken.
        let refused = line.event == "refused" && line.detail.contains_key("file");
        let mut found = None;
        for n in 1.. {
            let id = if n == 1 {
                id.to_owned()
            } else {
                numbered(id, n)
            };
            if !self.seen.contains(&*id) {
                found = self.standing(&id);
                let may_match = self.filter.may_match(line);
                self.seen.insert(id.into());
                return found.filter(|_| may_match);
            }
            if !refused || n > 1000 {
                break;
            }
        }
        found
    }

    fn standing(&self, id: &str) -> Option<Place> {
        let ended = ENDED.into_iter().filter(|it| self.filter.has_state(*it));
        let mut places = ended.filter_map(|state| {
            let folder = self.layout.state(state);
            Place::of(folder, state, OsStr::new(&format!("{id}.json")))
        });
        places.find(|place| self.filter.has_time(place.modified))
    }

    fn unknown_to_the_log(&mut self) -> Option<Place> {
        if self.rest.is_none() && !self.rest_done {
            self.rest_done = true;
            self.rest = sorted(&self.layout, &self.filter, &ENDED).ok();
        }
        for entry in self.rest.as_mut()? {
            let id = id_of(entry.state, OsStr::new(&*entry.name));
            if id.is_some_and(|id| !self.seen.contains(&*id)) {
                return entry.place(&self.layout);
            }
        }
        None
    }
}

impl Iterator for Newest {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        if let Some(place) = self.logged() {
            return Some(place);
        }
        for entry in self.live.by_ref() {
            if let Some(place) = entry.place(&self.layout) {
                return Some(place);
            }
        }
        self.unknown_to_the_log()
    }
}

#[cfg(test)]
#[path = "newest_tests.rs"]
mod tests;
