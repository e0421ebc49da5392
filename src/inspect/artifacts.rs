//! The registry of artifacts from outside: which there are, and whether they are as they were.
//!
//! Read from its end, so that the newest cost little however many there are; nothing is kept of
//! a line but a hash that says it was shown.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use crate::store::artifacts::{Artifacts, Entry, Measured, Presence, RelPath, Skipped, kind_of};

/// The artifacts of a root, for reading.
pub fn of(root: &Path) -> Artifacts {
    Artifacts::for_reading(root)
}

/// What to show. Empty fields let everything through.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub kind: Option<String>,
    pub handoff_id: Option<String>,
}

impl Filter {
    fn wants(&self, entry: &Entry) -> bool {
        let kind = self.kind.as_deref().map(kind_of);
        (kind.is_none() || entry.kind() == kind)
            && self
                .handoff_id
                .as_ref()
                .is_none_or(|id| *id == entry.handoff_id)
    }
}

/// Artifacts that the filter lets through, newest first. One that was registered several times
/// by its handoff is told once, as it was last.
pub fn newest(
    artifacts: &Artifacts,
    filter: &Filter,
    mut each: impl FnMut(Entry) -> ControlFlow<()>,
) -> io::Result<Skipped> {
    let hasher = RandomState::new();
    let mut told = HashSet::new();
    artifacts.newest_first(|entry| {
        if told.insert(hasher.hash_one((&entry.path, &entry.handoff_id))) && filter.wants(&entry) {
            each(entry)
        } else {
            ControlFlow::Continue(())
        }
    })
}

/// The newest line of each path, newest first.
pub fn newest_of_paths(artifacts: &Artifacts, mut each: impl FnMut(Entry)) -> io::Result<Skipped> {
    let hasher = RandomState::new();
    let mut told = HashSet::new();
    artifacts.newest_first(|entry| {
        if told.insert(hasher.hash_one(&entry.path)) {
            each(entry);
        }
        ControlFlow::Continue(())
    })
}

/// The newest line with each of these ids, or else with this path, in one pass.
pub fn find(artifacts: &Artifacts, names: &[String]) -> io::Result<Vec<Option<Entry>>> {
    let mut by_id: Vec<Option<Entry>> = vec![None; names.len()];
    let mut by_path = by_id.clone();
    artifacts.newest_first(|entry| {
        for (at, name) in names.iter().enumerate() {
            if by_id[at].is_none() && entry.artifact_id == *name {
                by_id[at] = Some(entry.clone());
            }
            let path = name.strip_prefix("./").unwrap_or(name);
            if by_path[at].is_none() && entry.path == path {
                by_path[at] = Some(entry.clone());
            }
        }
        if by_id.iter().all(Option::is_some) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    let found = by_id.into_iter().zip(by_path);
    Ok(found.map(|(id, path)| id.or(path)).collect())
}

/// How a file compares with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    Unchanged,
    Changed(Measured),
    Missing,
    /// Why it can't be compared, as the end of a sentence.
    Unreadable(String),
}

impl Status {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unchanged => "ok",
            Self::Changed(_) => "changed",
            Self::Missing => "missing",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

/// Reads the file through and compares.
pub fn check(artifacts: &Artifacts, entry: &Entry) -> Status {
    let path = match RelPath::parse(&entry.path) {
        Ok(path) => path,
        Err(why) => return Status::Unreadable(why),
    };
    if artifacts.presence(&path) == Presence::Missing {
        return Status::Missing;
    }
    match artifacts.measure(&path) {
        Ok(found) if found.sha256 == entry.sha256 && found.size_bytes == entry.size_bytes => {
            Status::Unchanged
        }
        Ok(found) => Status::Changed(found),
        Err(why) => Status::Unreadable(why),
    }
}
