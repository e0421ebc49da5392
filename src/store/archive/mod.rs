//! The archive: ended handoffs, packed and still found by their ids.
//!
//! `archive/packed-<day>-<n>.jsonl.gz` holds one line for each handoff: its record as it was, the
//! request as it was dropped, the logs of its attempts. Each is an ordinary gzip file, of many small
//! members, so that `zcat` reads all of it and we read one handoff without unpacking the rest.
//! `archive/index` says in which member an id stands, sorted for a binary search ([`index`]). It can
//! be made anew from the packed files at any time, and is where it is missing or behind.
//!
//! A packed file is never changed. If an id is in several, the newest counts; if it also stands in a
//! state folder, the folder counts. What was put back into its folder is not in the archive any more
//! ([`restored`]).

pub mod index;
pub mod packed;
mod restored;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::durable::{self, Durability, owner};
use crate::protocol::lifecycle::State;
use index::{Entry, Index};
use packed::{Packed, Writer};

/// The archive of one root.
#[derive(Debug, Clone)]
pub struct Archive {
    dir: PathBuf,
}

impl Archive {
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    fn index_path(&self) -> PathBuf {
        self.dir.join("index")
    }

    fn restored_path(&self) -> PathBuf {
        self.dir.join("restored")
    }

    /// The state in which this id was packed. What can't be read is as if it were not there.
    pub fn state_of(&self, id: &str) -> Option<State> {
        Some(self.entry_of(id).ok()??.state)
    }

    /// Where an id is packed, unless it was put back since.
    fn entry_of(&self, id: &str) -> io::Result<Option<Entry>> {
        let Some(index) = Index::open(&self.index_path())? else {
            return Ok(None);
        };
        let entry = index.find(id)?;
        Ok(entry.filter(|entry| !restored::has(&self.restored_path(), entry.file, id)))
    }

    /// Lets an id go that stands in its folder again. Only to be called under [`Self::lock`].
    pub fn let_go(&self, id: &str) -> io::Result<()> {
        match self.entry_of(id)? {
            Some(entry) => restored::add(&self.restored_path(), entry.file, id),
            None => Ok(()),
        }
    }

    /// What is packed of an id.
    pub fn find(&self, id: &str) -> io::Result<Option<Packed>> {
        let Some(entry) = self.entry_of(id)? else {
            return Ok(None);
        };
        let Some(path) = self.path_of(entry.file)? else {
            return Err(missing(entry.file));
        };
        let block = packed::block(&path, entry.offset)?;
        Ok(block.into_iter().rfind(|packed| packed.id == id))
    }

    /// Everything that is packed, file by file, the newest file first.
    pub fn each(&self, mut each: impl FnMut(Packed) -> io::Result<()>) -> io::Result<()> {
        for (_, path) in self.files()?.into_iter().rev() {
            packed::read(&path, |_, packed| each(packed))?;
        }
        Ok(())
    }

    fn path_of(&self, file: u32) -> io::Result<Option<PathBuf>> {
        let files = self.files()?.into_iter();
        Ok(files
            .rev()
            .find_map(|(number, path)| (number == file).then_some(path)))
    }

    /// The packed files by their numbers, in order.
    fn files(&self) -> io::Result<Vec<(u32, PathBuf)>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| durable::at(&self.dir, &error))?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let number = name
                .to_str()
                .and_then(|name| name.strip_prefix("packed-"))
                .and_then(|name| name.strip_suffix(".jsonl.gz"))
                .and_then(|name| name.rsplit_once('-'))
                .and_then(|(_, number)| number.parse().ok());
            files.extend(number.map(|number| (number, self.dir.join(&name))));
        }
        files.sort();
        Ok(files)
    }

    /// Holds off others that want to pack, until it is dropped.
    pub fn lock(&self) -> io::Result<File> {
        let file = self.lock_file()?;
        file.lock()?;
        Ok(file)
    }

    /// The same without waiting; `None` if somebody packs now.
    pub fn try_lock(&self) -> io::Result<Option<File>> {
        let file = self.lock_file()?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn lock_file(&self) -> io::Result<File> {
        let named = |error: io::Error| durable::at(&self.dir, &error);
        let path = self.dir.join("lock");
        owner::make_folders(&self.dir)?;
        owner::may_make_in(&self.dir)?;
        owner::make_missing(&path).map_err(named)?;
        File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(named)
    }

    /// Packs these handoffs into a file of their own. On return they are on disk, were read back
    /// from there, and are found by their ids. Only to be called under [`Self::lock`].
    pub fn pack(&self, day: &str, handoffs: &[Packed]) -> io::Result<()> {
        let number = self.files()?.last().map_or(1, |(number, _)| number + 1);
        let path = self.dir.join(format!("packed-{day}-{number:06}.jsonl.gz"));
        let temp = self.dir.join("packing.tmp");
        let written = (|| {
            let mut writer = Writer::create(&temp)?;
            for handoff in handoffs {
                writer.add(handoff)?;
            }
            durable::sync_file(&writer.finish()?, Durability::Full)?;
            verify(&temp, handoffs)
        })();
        if let Err(error) = written {
            let _ = fs::remove_file(&temp);
            return Err(error);
        }
        durable::move_no_replace(&temp, &path)?;
        durable::sync_dir(&File::open(&self.dir)?, Durability::Full)?;
        self.mend()
    }

    /// Brings the index up to date with the packed files. Cheap where it is. Only to be called
    /// under [`Self::lock`].
    pub fn mend(&self) -> io::Result<()> {
        let files = self.files()?;
        let Some((last, _)) = files.last() else {
            return Ok(());
        };
        // One that is damaged is made anew; one of a newer format is not ours to touch.
        let known = match Index::open(&self.index_path()) {
            Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
            opened => opened.ok().flatten(),
        };
        let covered = known.as_ref().map_or(0, Index::last_file);
        if covered >= *last {
            return Ok(());
        }
        let mut fresh = Vec::new();
        for (number, path) in files.iter().filter(|(number, _)| *number > covered) {
            packed::read(path, |offset, packed| {
                fresh.push(Entry::new(&packed.id, packed.state, *number, offset));
                Ok(())
            })?;
        }
        let bytes = index::merged(known.as_ref(), fresh, *last)?;
        let temp = self.dir.join("index.tmp");
        durable::write_whole(&self.index_path(), &temp, &bytes, Durability::Full)
    }
}

fn missing(file: u32) -> io::Error {
    let text = format!("archive/packed-…-{file:06}.jsonl.gz no longer exists");
    io::Error::new(io::ErrorKind::NotFound, text)
}

/// Reads back what was written, all of it.
fn verify(path: &Path, handoffs: &[Packed]) -> io::Result<()> {
    let mut expected = handoffs.iter();
    packed::read(path, |_, packed| match expected.next() {
        Some(wanted) if *wanted == packed => Ok(()),
        _ => Err(io::Error::other(format!(
            "{} differs from what was written",
            packed.id
        ))),
    })?;
    match expected.next() {
        None => Ok(()),
        Some(lost) => Err(io::Error::other(format!("{} was not written", lost.id))),
    }
}

#[cfg(test)]
mod tests;
