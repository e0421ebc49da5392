//! Files that leave `pending/` because the daemon takes them.
//!
//! The system tells of every one that it is gone, and the loop, which has it taken, would be woken
//! for that. Names are kept here from the launch on, so that whoever hears of it lets it be. This
//! only saves work: what is forgotten here is told once more, and harms nobody.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::watch::{FolderKey, Hint, How};

/// Cheap to clone; clones share the names.
#[derive(Debug, Clone, Default)]
pub struct Leaving(Arc<Mutex<HashSet<OsString>>>);

impl Leaving {
    fn lock(&self) -> MutexGuard<'_, HashSet<OsString>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The daemon is about to take it.
    pub fn note(&self, name: OsString) {
        self.lock().insert(name);
    }

    /// It stays after all.
    pub fn stays(&self, name: &OsStr) {
        self.lock().remove(name);
    }

    /// Events may have been lost: nothing is expected of those that have left.
    pub fn forget(&self) {
        let mut names = self.lock();
        names.clear();
        names.shrink_to(64);
    }

    /// Whether this hint only says that one has left that was to.
    pub fn explains(&self, hint: &Hint, pending: FolderKey) -> bool {
        match hint {
            Hint::Seen {
                folder,
                name,
                how: How::Gone,
            } => *folder == pending && self.lock().remove(name),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_leave_of_one_that_was_to_leave_is_explained_and_only_once() {
        let (here, there) = (FolderKey(1), FolderKey(2));
        let hint = |folder, name: &str, how| Hint::Seen {
            folder,
            name: name.into(),
            how,
        };
        let leaving = Leaving::default();
        leaving.note("a".into());
        leaving.note("b".into());
        leaving.stays(OsStr::new("b"));
        for (hint, explained) in [
            (hint(here, "a", How::Renamed), false),
            (hint(there, "a", How::Gone), false),
            (hint(here, "b", How::Gone), false),
            (hint(here, "a", How::Gone), true),
            (hint(here, "a", How::Gone), false),
        ] {
            assert_eq!(leaving.explains(&hint, here), explained, "{hint:?}");
        }
        leaving.note("c".into());
        leaving.forget();
        assert!(!leaving.explains(&hint(here, "c", How::Gone), here));
    }
}
