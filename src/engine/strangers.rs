//! What lies in a folder and is nothing that belongs there: told while it is there, and left alone.
//!
//! `in-progress/` and `waiting/` hold records, which end in `.json`; `control/` holds files. Whether a
//! stranger is still there is what the next whole listing shows.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::engine::Engine;
use crate::engine::attempt::shown;
use crate::engine::event::Folder;
use crate::protocol::lifecycle::State;
use crate::protocol::name::{Name, classify};
use crate::spool::scan::record_id;

/// How many names a problem lists.
const NAMED: usize = 3;

#[derive(Debug, Default)]
pub struct Strangers {
    known: HashMap<Folder, BTreeSet<OsString>>,
    /// Those that the listing under way has shown.
    seen: HashMap<Folder, HashSet<OsString>>,
    /// Records that nothing can be done with, each with a problem of its own.
    left: HashMap<Folder, HashSet<OsString>>,
}

impl Strangers {
    fn knows(&self, folder: Folder, name: &OsStr) -> bool {
        self.known.get(&folder).is_some_and(|it| it.contains(name))
            || self.left.get(&folder).is_some_and(|it| it.contains(name))
    }
}

fn folder_of(state: State) -> Folder {
    match state {
        State::InProgress => Folder::InProgress,
        _ => Folder::Waiting,
    }
}

impl Engine {
    /// A listing shows this name.
    pub(super) fn see(&mut self, folder: Folder, name: &OsStr) {
        // Names are told outside of a listing, too, and then nothing is known of the others.
        if !self.listing.contains(&folder) {
            return;
        }
        let holds_records = matches!(folder, Folder::InProgress | Folder::Waiting);
        if holds_records
            && record_id(name).is_none()
            && classify(name.as_bytes()) != Name::Temporary
        {
            let known = self.strangers.known.entry(folder).or_default();
            known.insert(name.to_owned());
        }
        if self.strangers.knows(folder, name) {
            let seen = self.strangers.seen.entry(folder).or_default();
            seen.insert(name.to_owned());
        }
    }

    /// A listing is over. What a whole one did not show is gone.
    pub(super) fn tell_strangers(&mut self, folder: Folder, whole: bool) {
        let seen = self.strangers.seen.remove(&folder).unwrap_or_default();
        if !whole {
            return;
        }
        if let Some(known) = self.strangers.known.get_mut(&folder) {
            known.retain(|name| seen.contains(name));
            self.tell_of(folder);
        }
        let left = self.strangers.left.get_mut(&folder);
        let gone = left.map(|left| {
            let gone = left.extract_if(|name| !seen.contains(name));
            gone.collect::<Vec<_>>()
        });
        for name in gone.unwrap_or_default() {
            self.problem(&left_key(record_id(&name).unwrap_or_default()), None);
        }
    }

    /// A folder in `control/`, or that it is gone.
    pub(super) fn on_folder_in_control(&mut self, name: &OsStr, is_there: bool) {
        let known = self.strangers.known.entry(Folder::Control).or_default();
        let changed = if is_there {
            known.insert(name.to_owned())
        } else {
            known.remove(name)
        };
        if changed {
            self.tell_of(Folder::Control);
        }
        // A listing that is not over may have shown it before it was known as one.
        if is_there {
            self.see(Folder::Control, name);
        }
    }

    fn tell_of(&mut self, folder: Folder) {
        let known = self.strangers.known.get(&folder);
        let known = known.filter(|known| !known.is_empty());
        let text = known.map(|known| {
            let names: Vec<String> = known.iter().take(NAMED).map(|name| shown(name)).collect();
            let more = match known.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let names = format!("{}{more}", names.join(", "));
            let place = match folder {
                Folder::Control => {
                    return format!(
                        "ignored folders in handoffs/control/: {names}; commands are files, so \
                         move the folders away"
                    );
                }
                Folder::InProgress => "handoffs/in-progress",
                Folder::Waiting => "handoffs/waiting",
                Folder::Pending => "handoffs/pending",
            };
            format!(
                "ignored entries of {place}/ that are not records: {names}; move requests to \
                 handoffs/pending/, and anything else out of {place}/"
            )
        });
        self.problem(&format!("strangers {folder:?}"), text);
    }

    /// A record that nothing can be done with is reported, and looked at again with every rescan.
    pub(super) fn leave(&mut self, state: State, id: &str, why: String) {
        let mut scanner = self
            .scanner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        scanner.forget(self.world.layout.state(state));
        drop(scanner);
        let left = self.strangers.left.entry(folder_of(state)).or_default();
        left.insert(format!("{id}.json").into());
        self.problem(&left_key(id), Some(why));
    }

    /// It was dealt with after all.
    pub(super) fn leave_no_more(&mut self, state: State, id: &str) {
        if let Some(left) = self.strangers.left.get_mut(&folder_of(state)) {
            left.remove(OsStr::new(&format!("{id}.json")));
        }
        self.problem(&left_key(id), None);
    }
}

fn left_key(id: &str) -> String {
    format!("left {id}")
}
