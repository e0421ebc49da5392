//! From notify's events to hints.
//!
//! Only a list of kinds is taken. Reading a file or listing a folder makes events too; to react
//! to those would let a rescan set off the next one.

use std::path::{Path, PathBuf};

use notify::event::{AccessKind, AccessMode, Event, EventKind, ModifyKind, RenameMode};

use super::{FolderKey, Hint, How};

/// What one event means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    Hint(Hint),
    /// A watched folder itself, or a parent of one, came or went.
    FolderTouched(PathBuf),
    /// Events were lost.
    Lost,
}

/// The watched folders, and the folders that they stand in.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    pub folders: Vec<(FolderKey, PathBuf)>,
    pub parents: Vec<PathBuf>,
}

impl Watched {
    pub fn key_of(&self, path: &Path) -> Option<FolderKey> {
        self.folders
            .iter()
            .find_map(|(key, folder)| (folder == path).then_some(*key))
    }

    /// Every watched path, parents first, so that nothing is missed while the rest is armed.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let folders = self.folders.iter().map(|(_, folder)| folder);
        self.parents.iter().chain(folders).map(PathBuf::as_path)
    }
}

/// What the event means, told to `tell`.
pub(super) fn translate(event: notify::Result<Event>, on: &Watched, tell: &mut dyn FnMut(Meaning)) {
    // An error here is one of reading the events, so there may be some that were not read.
    let Ok(event) = event else {
        return tell(Meaning::Lost);
    };
    if event.need_rescan() {
        return tell(Meaning::Lost);
    }
    let Some(how) = how(event.kind) else {
        return;
    };
    for path in event.paths {
        if how != How::Changed && on.paths().any(|watched| watched == path) {
            tell(Meaning::FolderTouched(path.clone()));
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            continue;
        };
        if let Some(folder) = on.key_of(parent) {
            let name = name.to_owned();
            tell(Meaning::Hint(Hint::Seen { folder, name, how }));
        }
    }
}

fn how(kind: EventKind) -> Option<How> {
    Some(match kind {
        EventKind::Create(_) => How::Created,
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => How::Gone,
        EventKind::Modify(ModifyKind::Name(RenameMode::To)) => How::Renamed,
        // Comes after a `From` and a `To` that said the same.
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => return None,
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => How::Closed,
        // Metadata too: a file that could not be read may just have been made readable, and
        // nothing else would ever tell.
        EventKind::Modify(_) | EventKind::Any => How::Changed,
        EventKind::Access(_) | EventKind::Other => return None,
    })
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, DataChange, Flag, MetadataKind, RemoveKind};

    use super::*;

    const PENDING: FolderKey = FolderKey(1);

    fn meanings(event: notify::Result<Event>) -> Vec<Meaning> {
        let on = Watched {
            folders: vec![(PENDING, "/r/handoffs/pending".into())],
            parents: vec!["/r/handoffs".into()],
        };
        let mut told = Vec::new();
        translate(event, &on, &mut |meaning| told.push(meaning));
        told
    }

    #[test]
    fn each_kind_has_its_meaning() {
        let file = "/r/handoffs/pending/x.json";
        for (kind, how) in [
            (EventKind::Create(CreateKind::File), Some(How::Created)),
            (EventKind::Remove(RemoveKind::File), Some(How::Gone)),
            (
                EventKind::Access(AccessKind::Close(AccessMode::Write)),
                Some(How::Closed),
            ),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), None),
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), None),
            (
                EventKind::Modify(ModifyKind::Name(RenameMode::To)),
                Some(How::Renamed),
            ),
            (
                EventKind::Modify(ModifyKind::Name(RenameMode::From)),
                Some(How::Gone),
            ),
            (EventKind::Modify(ModifyKind::Name(RenameMode::Both)), None),
            (
                EventKind::Modify(ModifyKind::Data(DataChange::Any)),
                Some(How::Changed),
            ),
            (
                EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any)),
                Some(How::Changed),
            ),
        ] {
            let told = meanings(Ok(Event::new(kind).add_path(file.into())));
            let expected = how.map(|how| {
                Meaning::Hint(Hint::Seen {
                    folder: PENDING,
                    name: "x.json".into(),
                    how,
                })
            });
            assert_eq!(told, Vec::from_iter(expected), "{kind:?}");
        }
    }

    #[test]
    fn folders_themselves_and_lost_events_are_told_apart() {
        let removed = EventKind::Remove(RemoveKind::Folder);
        let touched = |path: &str| meanings(Ok(Event::new(removed).add_path(path.into())));
        for path in ["/r/handoffs/pending", "/r/handoffs"] {
            assert_eq!(touched(path), [Meaning::FolderTouched(path.into())]);
        }
        assert_eq!(touched("/r/handoffs/other"), []);
        let overflow = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        assert_eq!(meanings(Ok(overflow)), [Meaning::Lost]);
        assert_eq!(
            meanings(Err(notify::Error::generic("read"))),
            [Meaning::Lost]
        );
    }
}
