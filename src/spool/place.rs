//! Placing: what a change writes and moves on disk, one change at a time.
//!
//! New content is written beside the folders first. When it is synced, it is put in the place of
//! the old one, which makes it decided, and the record is moved to where it goes.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::durable::{self, Durability};
use crate::mutant;
use crate::protocol::lifecycle::State;
use crate::spool::batch::{Job, Step};
use crate::spool::change::Change;
use crate::spool::layout::Layout;
use crate::spool::look::{Identity, open_quietly};
use crate::spool::spare::Spares;

pub(super) struct Placer {
    pub(super) layout: Layout,
    durability: Durability,
    spares: Spares,
    /// How many files were set aside, to give each a name of its own.
    aside: u64,
}

impl Placer {
    pub(super) fn new(layout: Layout, durability: Durability, spares: Spares) -> Self {
        Self {
            layout,
            durability,
            spares,
            aside: 0,
        }
    }

    /// Writes what must be on disk before anything is put in place.
    pub(super) fn prepare(&mut self, job: &mut Job) -> io::Result<Option<File>> {
        if job.step >= Step::Moved {
            return Ok(None);
        }
        let file = match &mut job.change {
            Change::Advance { bytes, .. } => {
                // An earlier try's, which is not believed.
                if let Some(temp) = job.temp.take() {
                    let _ = std::fs::remove_file(temp);
                }
                Some(self.spares.write(bytes).map(|(temp, file)| {
                    job.temp = Some(temp);
                    file
                }))
            }
            Change::Settle { id, at, .. } => {
                match open_quietly(&self.layout.record(*at, id)) {
                    // It has gone on meanwhile, or a person took it: nothing is left to settle.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        job.step = Step::Moved;
                        return Ok(None);
                    }
                    opened => Some(opened),
                }
            }
            Change::Reject(rejection) => match rejection.set_apart(&self.layout) {
                Ok(None) => {
                    job.step = Step::Skipped;
                    return Ok(None);
                }
                set => {
                    for event in &mut job.events {
                        event.handoff_id = Some(rejection.id.clone());
                    }
                    set.transpose()
                }
            },
            Change::Note | Change::Move { .. } => None,
        };
        let file = file.transpose().map_err(|error| self.mend_folders(error))?;
        if let Some(file) = &file
            && self.durability == Durability::Full
        {
            durable::start_writeback(file);
        }
        Ok(file)
    }

    /// Puts the new content in its place and moves the record on.
    pub(super) fn place(&mut self, job: &mut Job) -> io::Result<Step> {
        match &job.change {
            Change::Advance {
                id,
                from,
                to,
                bytes,
            } => {
                let mut record = self.layout.record(*from, id);
                if mutant::is("move-before-content") {
                    self.travel(id, *from, *to)?;
                    record = self.layout.record(*to, id);
                }
                if mutant::is("overwrite-in-place") {
                    std::fs::write(&record, bytes)?;
                } else if let Some(temp) = &job.temp {
                    match durable::exchange(temp, &record) {
                        Ok(()) => {}
                        // Somebody took it away.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {
                            durable::replace(temp, &record)?;
                            job.temp = None;
                        }
                        Err(error) => return Err(error),
                    }
                }
                self.travel(id, *from, *to)?;
            }
            Change::Settle {
                id, at: from, to, ..
            }
            | Change::Move { id, from, to } => {
                self.travel(id, *from, *to)?;
            }
            Change::Reject(rejection) => rejection.place(&self.layout)?,
            Change::Note => {}
        }
        Ok(Step::Moved)
    }

    /// Moves a record. A file in the way is somebody else's or older: it is set aside, never
    /// deleted, and never the other way round.
    fn travel(&mut self, id: &str, from: State, to: State) -> io::Result<()> {
        if from == to {
            return Ok(());
        }
        debug_assert!(from.may_become(to), "{from} to {to}");
        let (source, target) = (self.layout.record(from, id), self.layout.record(to, id));
        match durable::move_no_replace(&source, &target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.aside += 1;
                let name = format!("{id}.{}.{}.json", to.folder(), unique(&target, self.aside));
                tracing::warn!(
                    handoff_id = id,
                    "set aside a file that blocked the record in {to}, as {name}"
                );
                durable::move_no_replace(&target, &self.layout.aside().join(name))?;
                durable::move_no_replace(&source, &target)
            }
            // A retry of a round that had moved it already.
            Err(error) if error.kind() == io::ErrorKind::NotFound && target.exists() => Ok(()),
            moved => moved,
        }
    }

    /// A state folder that somebody deleted is made again; the change is tried again after.
    pub(super) fn mend_folders(&self, error: io::Error) -> io::Error {
        if error.kind() == io::ErrorKind::NotFound {
            let _ = self.layout.ensure();
        }
        error
    }

    /// The synced record no longer needs the bytes it was made from. What stays behind after a
    /// crash here is swept by the next start.
    pub(super) fn let_go(&self, leftover: &Path, keep: Option<&Path>) {
        let gone = match keep {
            Some(keep) => durable::replace(leftover, keep),
            None => self.spares.let_go(leftover),
        };
        if let Err(error) = gone
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("{}: {error}", leftover.display());
        }
    }
}

fn unique(path: &Path, count: u64) -> String {
    let inode = Identity::at(path).map_or(0, |identity| identity.inode);
    format!("{inode}-{count}")
}
