//! Watching: hints that a folder may have changed, never the truth.
//!
//! A hint says where to look; what is there is for the one who looks to see. Hints may come
//! twice, late or not at all (a full queue, a network file system), so the daemon rescans from
//! time to time whatever happens here, and calls [`Watcher::rearm`] when it does.
//!
//! Where the file system tells of changes this is inotify: the folders and, because a folder
//! that is made again loses its watch without a word, their parents. An idle watcher sleeps.
//! Elsewhere it is a clock that says "look again".
//!
//! Deliberately absent: debouncing and any knowledge of names. Both need to know what a
//! handoff is. Periodic rescans beside inotify are the daemon's as well.

mod armed;
pub mod came;
mod filesystem;
mod rest;
mod translate;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use notify::RecommendedWatcher;

use armed::Armed;
pub use filesystem::{FsKind, filesystem};
use rest::Rest;
use translate::{Meaning, Watched, translate};

/// The caller's name for a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FolderKey(pub u8);

/// How to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// inotify where the file system tells of changes and the system has a watch to give.
    #[default]
    Auto,
    Inotify,
    Poll,
}

/// Where to look, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// Something happened to this name.
    Seen {
        folder: FolderKey,
        name: OsString,
        how: How,
    },
    /// Anything may have happened, in this folder or in all.
    Rescan { folder: Option<FolderKey> },
    /// The folder itself vanished, or another stands in its place. Once there is one to watch,
    /// a `Rescan` of it follows.
    Replaced(FolderKey),
}

/// What happened to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It came by rename: whole, if its producer follows the advice.
    Renamed,
    /// Someone who could write to it closed it.
    Closed,
    /// It was created or hard-linked. No `Closed` follows a hard link.
    Created,
    /// Its data or its attributes changed.
    Changed,
    /// It was removed or renamed away.
    Gone,
}

/// What the watcher's own thread is asked to do.
enum Job {
    FolderTouched(PathBuf),
    EventsLost,
    Stop,
}

type Sink = Arc<Mutex<Box<dyn Fn(Hint) + Send>>>;

/// Watches from when it is made until it is dropped. A last hint may come during the drop.
pub struct Watcher {
    jobs: Sender<Job>,
    armed: Option<Arc<Mutex<Armed>>>,
    description: String,
}

impl Watcher {
    /// Watches these folders, which must exist. `poll_every` counts only where it polls.
    ///
    /// `sink` is called from the watcher's threads, one call at a time. While it blocks, events
    /// queue up in the kernel until it drops them all and a `Rescan` of everything comes
    /// instead. It must not wait for a thread that calls [`rearm`](Self::rearm) or
    /// [`describe`](Self::describe).
    pub fn new(
        folders: &[(FolderKey, PathBuf)],
        mode: Mode,
        poll_every: Duration,
        sink: impl Fn(Hint) + Send + 'static,
    ) -> io::Result<Self> {
        let sink: Sink = Arc::new(Mutex::new(Box::new(sink)));
        let every = humantime::format_duration(poll_every);
        let polling = |why: &str| format!("polling every {every}: {why}");
        let (why, kind) = match mode {
            Mode::Poll => return Self::poll(polling("as configured"), poll_every, sink),
            Mode::Inotify => (None, None),
            Mode::Auto => silent_folder(folders)?,
        };
        if let Some(why) = why {
            return Self::poll(polling(&why), poll_every, sink);
        }
        match Self::inotify(folders, kind, &sink) {
            Err(error) if mode == Mode::Auto && error.kind() == io::ErrorKind::QuotaExceeded => {
                Self::poll(polling(&error.to_string()), poll_every, sink)
            }
            done => done,
        }
    }

    /// How it watches, and if it polls, why; for the log and for `status`.
    pub fn describe(&self) -> String {
        let mut text = self.description.clone();
        if let Some(armed) = &self.armed {
            for path in lock(armed).missing() {
                text = format!("{text}; missing: {}", path.display());
            }
        }
        text
    }

    /// Whether hints come at all between two rescans.
    pub fn is_polling(&self) -> bool {
        self.armed.is_none()
    }

    /// Makes sure that every watch stands on the folder that is at its path now, and returns
    /// the folders where it did not: they must be scanned.
    pub fn rearm(&self) -> Vec<FolderKey> {
        let armed = self.armed.as_ref();
        armed.map_or_else(Vec::new, |armed| lock(armed).check())
    }

    fn inotify(
        folders: &[(FolderKey, PathBuf)],
        kind: Option<String>,
        sink: &Sink,
    ) -> io::Result<Self> {
        let watched = watched(folders)?;
        let (jobs, todo) = mpsc::channel();
        let handler = handler(watched.clone(), jobs.clone(), Arc::clone(sink));
        let notify =
            <RecommendedWatcher as notify::Watcher>::new(handler, notify::Config::default())
                .map_err(|error| armed::explain(&error))?;
        let armed = Arc::new(Mutex::new(Armed::new(notify, watched)?));
        let (on, sink) = (Arc::clone(&armed), Arc::clone(sink));
        spawn(move || repair(&todo, &on, &sink))?;
        let description =
            kind.map_or_else(|| "inotify".to_owned(), |kind| format!("inotify ({kind})"));
        Ok(Self {
            jobs,
            armed: Some(armed),
            description,
        })
    }

    fn poll(description: String, every: Duration, sink: Sink) -> io::Result<Self> {
        let (jobs, todo) = mpsc::channel::<Job>();
        spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = todo.recv_timeout(every) {
                lock(&sink)(Hint::Rescan { folder: None });
            }
        })?;
        Ok(Self {
            jobs,
            armed: None,
            description,
        })
    }
}

impl Drop for Watcher {
    /// Lets the threads end without waiting for them: the sink may be waiting for the caller.
    fn drop(&mut self) {
        let _ = self.jobs.send(Job::Stop);
    }
}

/// Runs on notify's thread, where a watch can't be set up (it would wait for itself).
fn handler(
    on: Watched,
    jobs: Sender<Job>,
    sink: Sink,
) -> impl FnMut(notify::Result<notify::Event>) + Send + 'static {
    let mut rest = Rest::new(Instant::now());
    move |event| {
        if let Ok(event) = &event
            && rest.is_due(event.kind, Instant::now())
        {
            std::thread::sleep(rest::GATHER);
        }
        translate(event, &on, &mut |meaning| {
            // Nobody takes jobs any more only once the watcher was dropped.
            let _ = match meaning {
                Meaning::Hint(hint) => {
                    lock(&sink)(hint);
                    Ok(())
                }
                Meaning::FolderTouched(path) => jobs.send(Job::FolderTouched(path)),
                Meaning::Lost => jobs.send(Job::EventsLost),
            };
        });
    }
}

/// The watcher's own thread: sets up watches again, then says what to scan, in that order, so
/// that nothing falls between the two.
fn repair(todo: &Receiver<Job>, armed: &Mutex<Armed>, sink: &Sink) {
    while let Ok(first) = todo.recv() {
        let mut touched = BTreeSet::new();
        let mut lost = false;
        for job in std::iter::once(first).chain(todo.try_iter()) {
            match job {
                Job::FolderTouched(path) => drop(touched.insert(path)),
                Job::EventsLost => lost = true,
                Job::Stop => return,
            }
        }
        for path in touched {
            let hints = lock(armed).touched(&path);
            for hint in hints {
                lock(sink)(hint);
            }
        }
        if lost {
            lock(armed).check();
            lock(sink)(Hint::Rescan { folder: None });
        }
    }
}

/// The first folder that would not be told of, as a reason to poll; else what they are on.
fn silent_folder(folders: &[(FolderKey, PathBuf)]) -> io::Result<(Option<String>, Option<String>)> {
    let mut kind = None;
    for (_, path) in folders {
        let found = filesystem(path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        if !found.events {
            let why = format!(
                "{} is on {}, which does not report changes",
                path.display(),
                found.name
            );
            return Ok((Some(why), None));
        }
        kind = Some(found.name);
    }
    Ok((None, kind))
}

/// Absolute, as notify reports them, and with the parents that have to be watched beside them.
fn watched(folders: &[(FolderKey, PathBuf)]) -> io::Result<Watched> {
    let folders: Vec<_> = folders
        .iter()
        .map(|(key, path)| Ok((*key, std::path::absolute(path)?)))
        .collect::<io::Result<_>>()?;
    let parents: BTreeSet<_> = folders
        .iter()
        .filter_map(|(_, path)| path.parent().map(Path::to_owned))
        .filter(|parent| folders.iter().all(|(_, folder)| folder != parent))
        .collect();
    let parents = parents.into_iter().collect();
    Ok(Watched { folders, parents })
}

fn spawn(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("handoffd-watch".to_owned());
    thread.spawn(body).map(drop)
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
