//! Looks at `pending/`: which names are due for one, and how many are on their way.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::engine::Engine;
use crate::engine::event::Event;
use crate::protocol::name::{Name, classify};

/// How many looks may be on their way at once; the rest waits as names.
const LOOKS_IN_FLIGHT: usize = 64;

impl Engine {
    pub(super) fn is_known(&self, name: &OsStr) -> bool {
        self.looking.contains_key(name)
            || self.unsettled.contains_key(name)
            || matches!(classify(name.as_bytes()), Name::Submission { id, ext }
                if self.pending.get(id.as_str()) == Some(ext))
    }

    pub(super) fn queue_look(&mut self, name: OsString) {
        if self.shared || matches!(classify(name.as_bytes()), Name::Temporary) {
            return;
        }
        if let Some(changed) = self.looking.get_mut(&name) {
            *changed = true;
            return;
        }
        self.looking.insert(name.clone(), false);
        self.to_look.push(name);
    }

    /// Looks again at a name whose time has come.
    pub(super) fn look(&mut self, name: OsString) {
        if self.unsettled.contains_key(&name) {
            self.queue_look(name);
        }
    }

    /// Keeps the readers busy, but not buried.
    pub(super) fn feed_looks(&mut self) {
        while self.looking.len() - self.to_look.len() < LOOKS_IN_FLIGHT {
            let Some(name) = self.to_look.take() else {
                return self.after_a_flood();
            };
            self.readers.run(move |world| {
                let seen = Box::new(crate::engine::intake::look_at(world, &name));
                world.tell(Event::Seen { name, seen });
            });
        }
    }

    /// What a flood of names needed is given back when all were looked at.
    fn after_a_flood(&mut self) {
        if self.looking.is_empty() && self.to_look.shrink() {
            self.looking.shrink_to_fit();
            // What the names and documents took lies between what stays.
            self.readers.run(|_| crate::engine::start::trim());
        }
    }
}
