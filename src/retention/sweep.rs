//! One pass over a folder: finds what is old and not spared, a few at a time.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::clock::Wall;
use crate::durable;
use crate::inspect::newest;
use crate::inspect::summary::id_of;
use crate::protocol::lifecycle::State;
use crate::retention::leave;
use crate::retention::spared::Spared;
use crate::spool::layout::Layout;
use crate::spool::look::Identity;
use crate::spool::scan;

/// How many files are looked at between two pauses.
const STEP: usize = 1000;
/// How many are removed together.
const TOGETHER: usize = 200;

/// What has an age of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Completed,
    Failed,
    Logs,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Completed, Self::Failed, Self::Logs];

    pub fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Logs => "logs",
        }
    }

    pub fn state(self) -> Option<State> {
        match self {
            Self::Completed => Some(State::Completed),
            Self::Failed => Some(State::Failed),
            Self::Logs => None,
        }
    }
}

/// A handoff that is old enough, or a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Old {
    /// The record's; absent for a log.
    pub record: Option<(State, String, Identity)>,
    /// What goes besides: bytes that were refused, the request as it was dropped; or the log.
    pub files: Vec<PathBuf>,
}

impl Old {
    /// How many files it has.
    pub fn count(&self) -> usize {
        self.files.len() + usize::from(self.record.is_some())
    }

    /// All of its files.
    pub fn paths(&self, layout: &Layout) -> impl Iterator<Item = PathBuf> {
        let record = self.record.as_ref();
        let record = record.map(|(state, id, _)| layout.record(*state, id));
        record.into_iter().chain(self.files.iter().cloned())
    }

    /// Deletes it; how many files went. A record that has changed meanwhile stays, with all
    /// that belongs to it.
    pub fn remove(&self, layout: &Layout) -> io::Result<usize> {
        let mut count = 0;
        if let Some((state, id, identity)) = &self.record {
            if !leave::remove(layout, *state, id, *identity)? {
                return Ok(0);
            }
            count += 1;
        }
        for file in &self.files {
            match fs::remove_file(file) {
                // Somebody else prunes beside us.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => {
                    removed.map_err(|error| durable::at(file, &error))?;
                    count += 1;
                }
            }
        }
        Ok(count)
    }
}

/// A pass, and what its owner does between and with what it finds.
pub struct Sweep<'a> {
    pub layout: &'a Layout,
    pub kind: Kind,
    /// Only what changed before this.
    pub before: Wall,
    /// Called now and then, so that the disk has time for others.
    pub pause: &'a dyn Fn(),
}

impl Sweep<'_> {
    /// Hands what is old to `take`, a few at a time. Gives back when the oldest one changed that
    /// stays, which is who will be old next.
    pub fn run(
        &self,
        spared: &mut Spared,
        mut take: impl FnMut(Vec<Old>) -> io::Result<()>,
    ) -> io::Result<Option<Wall>> {
        let mut pass = Passing {
            oldest: None,
            looked: 0,
            old: Vec::new(),
            failed: None,
        };
        match self.kind.state() {
            Some(state) => newest::walk(self.layout.state(state), state, |name, modified| {
                let Some(id) = id_of(state, name) else { return };
                if self.is_old(&mut pass, modified) {
                    pass.old.extend(self.record(state, id));
                }
                self.step(&mut pass, spared, &mut take);
            })?,
            // Without a folder there are no logs yet.
            None if !self.layout.logs().is_dir() => {}
            None => scan::names(self.layout.logs(), |name| {
                let path = self.layout.logs().join(name);
                if let Ok(metadata) = fs::symlink_metadata(&path)
                    && metadata.is_file()
                    && self.is_old(&mut pass, Wall(metadata.mtime() * 1000))
                {
                    let files = vec![path];
                    pass.old.push(Old {
                        record: None,
                        files,
                    });
                }
                self.step(&mut pass, spared, &mut take);
            })?,
        }
        self.hand_over(&mut pass, spared, &mut take);
        pass.failed.map_or(Ok(pass.oldest), Err)
    }

    fn is_old(&self, pass: &mut Passing, modified: Wall) -> bool {
        if modified >= self.before {
            pass.oldest = pass.oldest.min(Some(modified)).or(Some(modified));
        }
        modified < self.before
    }

    fn record(&self, state: State, id: String) -> Option<Old> {
        let path = self.layout.record(state, &id);
        let identity = Identity::at(&path).ok()?;
        let rejected = path.with_file_name(format!("{id}.rejected"));
        let mut files: Vec<PathBuf> = ["yaml", "yml", "md"]
            .iter()
            .map(|ext| self.layout.originals().join(format!("{id}.{ext}")))
            .chain(self.layout.results_of(&id))
            .chain([self.layout.compacted_of(&id)])
            .filter(|path| path.exists())
            .collect();
        if state == State::Failed && fs::symlink_metadata(&rejected).is_ok() {
            files.push(rejected);
        }
        Some(Old {
            record: Some((state, id, identity)),
            files,
        })
    }

    fn step(
        &self,
        pass: &mut Passing,
        spared: &mut Spared,
        take: &mut impl FnMut(Vec<Old>) -> io::Result<()>,
    ) {
        pass.looked += 1;
        if pass.old.len() >= TOGETHER {
            self.hand_over(pass, spared, take);
        }
        if pass.looked.is_multiple_of(STEP) {
            (self.pause)();
        }
    }

    fn hand_over(
        &self,
        pass: &mut Passing,
        spared: &mut Spared,
        take: &mut impl FnMut(Vec<Old>) -> io::Result<()>,
    ) {
        let mut old = std::mem::take(&mut pass.old);
        if old.is_empty() || pass.failed.is_some() {
            return;
        }
        if self.kind.state().is_some() {
            match spared.now(self.layout, self.pause) {
                Ok(spared) => old.retain(|old| {
                    let record = old.record.as_ref();
                    record.is_some_and(|(_, id, _)| !spared.contains(id))
                }),
                Err(error) => {
                    pass.failed = Some(error);
                    return;
                }
            }
        }
        if !old.is_empty() {
            pass.failed = take(old).err();
            (self.pause)();
        }
    }
}

struct Passing {
    oldest: Option<Wall>,
    looked: usize,
    old: Vec<Old>,
    failed: Option<io::Error>,
}
