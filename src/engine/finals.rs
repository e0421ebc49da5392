//! Files that another hand puts into `completed/` or `failed/`: told while they are there, and left
//! alone.
//!
//! These folders are never listed, and every handoff that ends comes there. So the system keeps the
//! names that came, and they are asked for with the rescan: nobody is woken for them. Those that the
//! daemon has told of itself are passed over, and only the others are looked at. A file with the name
//! of a handoff that runs is seen sooner, with the signs of life of its attempt. What lay there before
//! the start is for `check --deep` to find.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::engine::Engine;
use crate::engine::attempt::shown;
use crate::engine::event::Event;
use crate::engine::world::World;
use crate::protocol::lifecycle::State;
use crate::protocol::shown::word;
use crate::spool::foreign::{Sight, sight, without_line};
use crate::store::audit::are_at_their_times;
use crate::watch::came::Came;

pub const FOLDERS: [State; 2] = [State::Completed, State::Failed];

/// After so many ends it is asked before the next rescan: the system keeps no more than some
/// thousand names.
const MANY: usize = 4096;

/// How many files are told of, and looked at again. There may be any number of them.
const MOST: usize = 256;

/// After how long what seems to be somebody else's is looked at again.
const SECOND_LOOK: Duration = Duration::from_millis(100);

/// How many names a problem lists.
const NAMED: usize = 3;

/// Files that are somebody else's, and why.
pub type Foreign = BTreeMap<(State, OsString), String>;

/// What came to the final folders. Shared with the thread that looks.
#[derive(Debug)]
pub struct Finals {
    came: Option<Came>,
    /// Hashes of the ids that ended since it was last asked.
    ended: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

impl Finals {
    pub fn open(world: &World) -> Self {
        let came = Came::new().inspect_err(|error| {
            tracing::warn!(
                "can't watch completed/ and failed/ for files that others put there: {error}"
            );
        });
        let finals = Self {
            came: came.ok(),
            ended: Mutex::default(),
            hasher: RandomState::new(),
        };
        finals.take(world);
        finals
    }

    fn hash(&self, state: State, id: &str) -> u64 {
        self.hasher.hash_one((state as u8, id))
    }

    /// The daemon has put it there itself. `true` if there are many of them by now.
    fn note(&self, state: State, id: &str) -> bool {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        self.came.is_some() && ended.insert(self.hash(state, id)) && ended.len() == MANY
    }

    /// The names that came, but for those that the daemon has told of.
    fn take(&self, world: &World) -> Vec<(State, OsString)> {
        let folders = FOLDERS.map(|state| world.layout.state(state));
        let paths: Vec<&Path> = folders.to_vec();
        let Some(Ok((came, lost))) = self.came.as_ref().map(|came| came.take(&paths)) else {
            return Vec::new();
        };
        if lost {
            tracing::debug!("completed/ and failed/ had more events than the system keeps");
        }
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = std::mem::take(&mut *ended);
        let is_ours = |state, name: &OsStr| {
            let id = name.to_str().and_then(|name| {
                name.strip_suffix(".json")
                    .or_else(|| name.strip_suffix(".rejected"))
            });
            id.is_some_and(|id| ended.contains(&self.hash(state, id)))
        };
        came.into_iter()
            .map(|it| (FOLDERS[it.folder], it.name, it.renamed))
            .filter(|(state, name, renamed)| !(*renamed && is_ours(*state, name)))
            .map(|(state, name, _)| (state, name))
            .collect()
    }
}

/// Looks at what came, and again at what is known to be somebody else's.
pub fn look(world: &World, finals: &Finals, known: &Foreign) {
    let came: HashSet<(State, OsString)> = finals.take(world).into_iter().collect();
    let mut found = judge(world, came.into_iter().collect());
    found.retain(|(_, why)| why.is_some());
    if !found.is_empty() {
        // A submission that is refused passes through here as its producer wrote it.
        std::thread::sleep(SECOND_LOOK);
        found.truncate(MOST);
        found = judge(world, found.into_iter().map(|(file, _)| file).collect());
    }
    // For what is known already the whole log is not read again: an outcome that the daemon has put
    // in its place since has a line where its time says.
    found.extend(judge_again(world, known));
    if !found.is_empty() {
        world.tell(Event::Foreign(found));
    }
}

/// Why what is known to be somebody else's still is, if it is.
fn judge_again(world: &World, known: &Foreign) -> Vec<((State, OsString), Option<String>)> {
    let mut judged = Vec::new();
    let (mut asked, mut told) = (Vec::new(), Vec::new());
    for (file, why) in known.iter().take(MOST) {
        match sight(&world.layout, file.0, &file.1) {
            Sight::Nothing => judged.push((file.clone(), None)),
            Sight::Foreign(why) => judged.push((file.clone(), Some(why))),
            Sight::Outcome(outcome) => {
                asked.push((file.clone(), why.clone()));
                told.push(outcome);
            }
        }
    }
    let decided = are_at_their_times(&world.layout.audit(), &told);
    let decided = decided.unwrap_or_else(|_| vec![false; told.len()]);
    judged.extend(
        asked
            .into_iter()
            .zip(decided)
            .map(|((file, why), is_decided)| (file, (!is_decided).then_some(why))),
    );
    judged
}

/// Looks at files that have the names of handoffs which run.
pub fn look_at(world: &World, files: Vec<(State, OsString)>) {
    let mut found = judge(world, files);
    // An attempt may have ended meanwhile.
    found.retain(|(_, why)| why.is_some());
    if !found.is_empty() {
        world.tell(Event::Foreign(found));
    }
}

/// Why each of these files is somebody else's, if it is. The audit log is read once at most.
fn judge(world: &World, files: Vec<(State, OsString)>) -> Vec<((State, OsString), Option<String>)> {
    let mut judged = Vec::new();
    let (mut asked, mut told) = (Vec::new(), Vec::new());
    for file in files {
        match sight(&world.layout, file.0, &file.1) {
            Sight::Nothing => judged.push((file, None)),
            Sight::Foreign(why) => judged.push((file, Some(why))),
            Sight::Outcome(outcome) => {
                asked.push(file);
                told.push(outcome);
            }
        }
    }
    if !asked.is_empty() {
        judged.extend(asked.into_iter().zip(without_line(&world.layout, &told)));
    }
    judged
}

impl Engine {
    /// It stands in a final folder now, put there by the daemon.
    pub(super) fn note_end(&mut self, state: State, id: &str) {
        let ours = (state, format!("{id}.json").into());
        if !self.foreign.is_empty() && self.foreign.remove(&ours).is_some() {
            self.tell_foreign();
        }
        if self.finals.note(state, id) {
            let (finals, known) = (Arc::clone(&self.finals), self.foreign.clone());
            self.readers.run(move |world| look(world, &finals, &known));
        }
    }

    /// Somebody put files among the outcomes of handoffs that run: these are not left to the rescan.
    pub(super) fn on_final_files(&self, mut files: Vec<(State, OsString)>) {
        files.retain(|file| !self.foreign.contains_key(file));
        if !files.is_empty() {
            self.readers.run(move |world| look_at(world, files));
        }
    }

    pub(super) fn on_foreign(&mut self, judged: Vec<((State, OsString), Option<String>)>) {
        for (file, why) in judged {
            match why {
                Some(why) => self.foreign.insert(file, why),
                None => self.foreign.remove(&file),
            };
        }
        while self.foreign.len() > MOST {
            self.foreign.pop_last();
        }
        self.tell_foreign();
    }

    fn tell_foreign(&mut self) {
        for state in FOLDERS {
            let text = self.words_for(state);
            self.problem(&format!("foreign {}", state.folder()), text);
        }
    }

    fn words_for(&self, state: State) -> Option<String> {
        let found = self.foreign.iter().filter(|((at, _), _)| *at == state);
        let found: Vec<_> = found.collect();
        let ((_, first), _) = found.first()?;
        let named = found.iter().take(NAMED);
        let named: Vec<String> = named
            .map(|((_, name), why)| format!("{} ({why})", shown(name)))
            .collect();
        let more = match found.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let folder = state.folder();
        Some(format!(
            "handoffs/{folder}/ has files that the daemon did not put there: {}{more}; the \
             daemon ignores them; move them away, like: mv {} .",
            named.join(", "),
            word(&format!("handoffs/{folder}/{}", first.to_string_lossy()))
        ))
    }
}
