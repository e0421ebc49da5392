//! Commands on their way: which file is read next, and which one waits for what.
//!
//! A few commands are under way at a time, so that a flood of them holds up nobody else. One whose
//! handoff is busy waits for that handoff alone: what happens to others does not wake it. So each
//! step costs the same, however many commands there are.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};

/// How many commands may be under way at once.
const UNDER_WAY: usize = 32;

/// The commands in `control/` that the loop knows of, by their file names.
#[derive(Debug, Default)]
pub struct Orders {
    queue: VecDeque<OsString>,
    queued: HashSet<OsString>,
    reading: HashSet<OsString>,
    /// Those that a job carries out or sets aside.
    doing: HashSet<OsString>,
    /// Those that wait for a handoff, or for the job that is about it.
    held: HashMap<OsString, String>,
    by_id: HashMap<String, HashSet<OsString>>,
}

impl Orders {
    /// A file that is to be read, unless it is about to be.
    pub fn add(&mut self, name: OsString) {
        if !self.reading.contains(&name) && self.queued.insert(name.clone()) {
            self.queue.push_back(name);
        }
    }

    /// The next one to read, while there is room for it.
    pub fn take(&mut self) -> Option<OsString> {
        if self.reading.len() + self.doing.len() >= UNDER_WAY {
            return None;
        }
        let name = self.queue.pop_front()?;
        self.queued.remove(&name);
        self.reading.insert(name.clone());
        Some(name)
    }

    pub fn was_read(&mut self, name: &OsStr) {
        self.reading.remove(name);
    }

    /// It waits until something has happened to this handoff.
    pub fn hold(&mut self, name: OsString, id: &str) {
        self.let_go(&name);
        let waiting = self.by_id.entry(id.to_owned()).or_default();
        waiting.insert(name.clone());
        self.held.insert(name, id.to_owned());
    }

    /// A job carries it out, or sets it aside. If it is about a handoff, the file is read once more
    /// when that job is done.
    pub fn begin(&mut self, name: OsString, id: Option<&str>) {
        if let Some(id) = id {
            self.hold(name.clone(), id);
        }
        self.doing.insert(name);
    }

    /// Its file is gone, or is dealt with elsewhere.
    pub fn done(&mut self, name: &OsStr) {
        self.doing.remove(name);
        self.let_go(name);
    }

    fn let_go(&mut self, name: &OsStr) {
        let Some(id) = self.held.remove(name) else {
            return;
        };
        if let Entry::Occupied(mut waiting) = self.by_id.entry(id) {
            waiting.get_mut().remove(name);
            if waiting.get().is_empty() {
                waiting.remove();
            }
        }
    }

    /// Something has happened to this handoff: the commands that wait for it are read again, except
    /// those that `stays` says are to wait on.
    pub fn wake(&mut self, id: &str, stays: impl Fn(&OsStr) -> bool) {
        let Some(waiting) = self.by_id.get(id) else {
            return;
        };
        let due = waiting.iter().filter(|name| !stays(name));
        let mut due: Vec<OsString> = due.cloned().collect();
        // In an order that does not change from run to run.
        due.sort();
        for name in due {
            self.done(&name);
            self.add(name);
        }
    }

    /// Whether nothing is left to do.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
            && self.reading.is_empty()
            && self.doing.is_empty()
            && self.held.is_empty()
    }
}

#[cfg(test)]
#[path = "orders_tests.rs"]
mod tests;
