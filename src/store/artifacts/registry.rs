//! The registry's file: adding lines, and finding them again.
//!
//! The file is the truth; memory holds an index of it, brought up to date by a look at the file
//! whenever something is asked. Where it only grew, the new lines are read; where it was
//! replaced, cut or edited, all of it is.
//!
//! An id that was asked for is kept for who asked until it is registered, so that two attempts
//! that end at once don't get the same.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::beneath::{Beneath, file_type, word_for};
use super::entry::Entry;
use super::index::By;
use super::known::{Known, Print};
use super::path::{FOLDER, RelPath};
use super::write::WriteError;
use crate::durable::{self, Durability};

/// The file's name in `artifacts/`.
pub(super) const REGISTRY: &str = "registry.jsonl";

/// Ids that are kept for artifacts which were not registered yet. More than attempts can end at
/// once; the oldest were given up.
const MOST_KEPT: usize = 1024;

#[derive(Default)]
pub(super) struct Registry {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Option<Known>,
    kept: VecDeque<Kept>,
}

struct Kept {
    id: String,
    path: String,
    handoff_id: String,
}

/// Opens the registry for reading; `None` where there is none yet.
pub(super) fn open(beneath: &Beneath) -> io::Result<Option<File>> {
    open_in(beneath, None, OFlags::RDONLY)
}

fn open_in(
    beneath: &Beneath,
    make: Option<Durability>,
    access: OFlags,
) -> io::Result<Option<File>> {
    let name = format!("{FOLDER}/{REGISTRY}");
    let wrong = |why: &str| io::Error::other(format!("{name} {why}"));
    let shut =
        |error: &io::Error| io::Error::new(error.kind(), format!("can't open {name}: {error}"));
    let path = RelPath::parse(&name).map_err(|why| wrong(&why))?;
    let folder = match beneath.folder_of(&path, make) {
        Ok(folder) => folder,
        Err(WriteError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(WriteError::Io(error)) => return Err(shut(&error)),
        Err(refused) => return Err(wrong(&refused.to_string())),
    };
    let odd = |kind: FileType| wrong(&format!("is {}, and must be a file", word_for(kind)));
    match rustix::fs::statat(&folder, REGISTRY, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if file_type(&stat) != FileType::RegularFile => return Err(odd(file_type(&stat))),
        Err(Errno::NOENT) if make.is_none() => return Ok(None),
        Ok(_) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(shut(&errno.into())),
    }
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(&folder, REGISTRY, flags, Mode::empty());
    let file: File = match (opened, make) {
        (Ok(file), _) => file.into(),
        (Err(Errno::NOENT), None) => return Ok(None),
        (Err(Errno::NOENT), Some(durability)) => {
            let flags = flags | OFlags::CREATE;
            let mode = Mode::from_raw_mode(0o666);
            let file = rustix::fs::openat(&folder, REGISTRY, flags, mode)?;
            durable::sync_dir(&folder, durability)?;
            file.into()
        }
        (Err(errno), _) => return Err(shut(&errno.into())),
    };
    match file_type(&rustix::fs::fstat(&file)?) {
        FileType::RegularFile => Ok(Some(file)),
        kind => Err(odd(kind)),
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn find(&self, beneath: &Beneath, id_or_path: &str) -> io::Result<Option<Entry>> {
        let mut state = self.lock();
        let Some(known) = state.look(beneath)? else {
            return Ok(None);
        };
        let found = match known.find(By::Id(id_or_path))? {
            Some(found) => Some(found),
            None => known.find(By::Path(id_or_path))?,
        };
        Ok(found.map(|(_, entry)| entry))
    }

    pub fn id_for(&self, beneath: &Beneath, path: &RelPath, of: &str) -> io::Result<String> {
        let mut state = self.lock();
        state.look(beneath)?;
        let (path, stem) = (path.as_str(), path.stem());
        let by = By::PathOf {
            path,
            handoff_id: of,
        };
        if let Some(known) = &state.known
            && let Some((_, entry)) = known.find(by)?
        {
            return Ok(entry.artifact_id);
        }
        let is_it = |kept: &&Kept| kept.path == path && kept.handoff_id == of;
        if let Some(kept) = state.kept.iter().find(is_it) {
            return Ok(kept.id.clone());
        }
        let id = state.free_id(stem)?;
        state.kept.push_back(Kept {
            id: id.clone(),
            path: path.to_owned(),
            handoff_id: of.to_owned(),
        });
        if state.kept.len() > MOST_KEPT {
            state.kept.pop_front();
        }
        Ok(id)
    }

    pub fn register(
        &self,
        beneath: &Beneath,
        durability: Durability,
        entries: &[Entry],
    ) -> io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut state = self.lock();
        let writer = open_in(beneath, Some(durability), OFlags::WRONLY)?
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let known = state
            .look(beneath)?
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        if !Print::of(&writer)?.is_same_file(&known.print) {
            return Err(io::Error::other(format!(
                "{FOLDER}/{REGISTRY} was replaced just now"
            )));
        }
        known.close_torn(&writer)?;
        let mut text = Vec::new();
        let mut unsynced = false;
        let mut newest: HashMap<&str, &Entry> = HashMap::new();
        for entry in entries {
            let same = |other: &Entry| {
                other.sha256 == entry.sha256 && other.handoff_id == entry.handoff_id
            };
            let is_said = match newest.get(entry.path.as_str()) {
                Some(before) => same(before),
                None => match known.find(By::Path(&entry.path))? {
                    Some((at, before)) if !known.doubted.contains(&at) => {
                        unsynced |= at >= known.synced;
                        same(&before)
                    }
                    _ => false,
                },
            };
            if !is_said {
                text.extend_from_slice(&entry.encode()?);
            }
            newest.insert(&entry.path, entry);
        }
        if unsynced || !text.is_empty() {
            known.append(&writer, &text, durability)?;
        }
        state.kept.retain(|kept| {
            !entries
                .iter()
                .any(|entry| entry.path == kept.path && entry.handoff_id == kept.handoff_id)
        });
        Ok(())
    }
}

impl State {
    /// Brings what is known up to date with the file.
    fn look(&mut self, beneath: &Beneath) -> io::Result<Option<&mut Known>> {
        let Some(file) = open(beneath)? else {
            self.known = None;
            return Ok(None);
        };
        let print = Print::of(&file)?;
        let mut known = match self.known.take() {
            Some(known) if known.print == print => known,
            Some(mut known) if known.has_only_grown(&print)? => {
                known.print = print;
                known.read_on()?;
                known
            }
            other => {
                let mut known = Known::new(file, print);
                if let Some(other) = other
                    && other.print.is_same_file(&print)
                {
                    known.doubted = other.doubted;
                }
                known.read_on()?;
                known
            }
        };
        known.synced = known.synced.min(known.end);
        Ok(Some(self.known.insert(known)))
    }

    fn is_taken(&self, id: &str) -> io::Result<bool> {
        if self.kept.iter().any(|kept| kept.id == id) {
            return Ok(true);
        }
        match &self.known {
            Some(known) => Ok(known.find(By::Id(id))?.is_some()),
            None => Ok(false),
        }
    }

    /// The stem, or the stem with a number that is free while the one before it is not. Numbers
    /// are given out in order, so it is looked for in strides and not one by one.
    fn free_id(&self, stem: &str) -> io::Result<String> {
        if !self.is_taken(stem)? {
            return Ok(stem.to_owned());
        }
        let numbered = |n: u64| format!("{stem}-{n}");
        let (mut taken, mut free) = (1, 2);
        while self.is_taken(&numbered(free))? {
            (taken, free) = (free, free * 2);
        }
        while free - taken > 1 {
            let middle = taken + (free - taken) / 2;
            if self.is_taken(&numbered(middle))? {
                taken = middle;
            } else {
                free = middle;
            }
        }
        Ok(numbered(free))
    }
}
