//! One attempt, as its keeper sees it.

use std::os::fd::OwnedFd;
use std::path::Path;

use super::clone::Word;
use super::journal::{Entry, Line};
use super::pool::Group;
use super::proc::{self, Stat};
use super::spawn::Command;
use super::tree::{Tree, Whose};
use super::wire::{Exit, Failure, Held, Key, Report, State, Why};
use crate::mutant;

/// How its keeper learns what becomes of it.
#[derive(Debug)]
pub enum Watch {
    /// It is our child; SIGCHLD tells. Until then it may still be on its way to becoming its
    /// command, so what it needs for that is kept.
    Child { word: Word, command: Box<Command> },
    /// Its minder is our child and tells through a pipe; what has come of a line is kept.
    Minder { words: OwnedFd, text: Vec<u8> },
    /// It was another keeper's. Its end shows in a pidfd, its exit code maybe in the journal.
    Foreign {
        main: Option<OwnedFd>,
        minder: Option<OwnedFd>,
    },
    /// There is nothing more to hear.
    Nothing,
}

/// The end of a tree, on its way.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    pub kill_at: u64,
    pub look_at: u64,
    pub asked: bool,
}

#[derive(Debug)]
pub struct Attempt {
    pub key: Key,
    pub note: serde_json::Value,
    pub deadline: u64,
    pub grace: u64,
    /// Another user that it runs as.
    pub user: Option<u32>,
    pub tree: Tree,
    /// Its cgroup, where it was given one by this keeper.
    pub group: Option<Group>,
    pub watch: Watch,
    pub main: Option<(i32, u64)>,
    pub exit: Option<Exit>,
    pub failed: Option<Failure>,
    pub why: Option<Why>,
    pub ending: Option<Ending>,
}

impl Attempt {
    /// As a journal knows it, with nobody watching it yet.
    pub fn from_entry(entry: Entry) -> Self {
        Self {
            key: entry.key,
            note: entry.note,
            deadline: entry.deadline_boot_ms,
            grace: entry.grace_ms,
            user: entry.user,
            tree: Tree::Loose,
            group: None,
            watch: Watch::Nothing,
            main: entry.pid.zip(entry.starttime),
            exit: entry.exit,
            failed: entry.failed,
            why: entry.why,
            ending: None,
        }
    }

    pub fn whose<'a>(&'a self, root: &'a Path) -> Whose<'a> {
        Whose {
            root,
            key: &self.key,
            main: self.main,
            user: self.user,
        }
    }

    /// Whether nothing of its tree is alive.
    pub fn is_empty(&self, root: &Path) -> bool {
        if mutant::is("kill-of-the-group-only") {
            return !self
                .main
                .is_some_and(|(pid, start)| proc::is_alive(pid, start));
        }
        match &self.group {
            Some(group) => !group.is_populated(),
            None => self.tree.is_empty(self.whose(root)),
        }
    }

    /// Whether the main process is known to have ended, or never was.
    pub fn main_ended(&self) -> bool {
        self.exit.is_some() || self.failed.is_some()
    }

    /// Whether someone will tell of its end, and of its exit code, so that it can't be over
    /// before that.
    pub fn tells(&self) -> bool {
        match &self.watch {
            Watch::Child { .. } | Watch::Minder { .. } => true,
            Watch::Foreign { minder, .. } => minder.is_some(),
            // It came to us when its minder was killed: SIGCHLD tells.
            Watch::Nothing => self.main.is_some_and(|(pid, starttime)| {
                let us = rustix::process::getpid().as_raw_pid();
                let ours = |stat: Stat| (stat.starttime, stat.ppid) == (starttime, us);
                !self.main_ended() && Stat::read(pid).is_some_and(ours)
            }),
        }
    }

    /// Whether there is a process to send a signal to: a minder takes a moment to make it.
    pub fn is_born(&self) -> bool {
        !matches!(self.watch, Watch::Minder { .. }) || self.main.is_some() || self.main_ended()
    }

    /// Begins to end the tree, or brings its end nearer.
    pub fn end_within(&mut self, grace: u64, now: u64) {
        let kill_at = now.saturating_add(grace);
        match &mut self.ending {
            Some(ending) => {
                ending.kill_at = ending.kill_at.min(kill_at);
                ending.look_at = ending.look_at.min(ending.kill_at);
            }
            None => {
                self.ending = Some(Ending {
                    kill_at,
                    look_at: now,
                    asked: false,
                });
            }
        }
    }

    /// Ends what the main process has left behind. Where the end had begun before, the rest is
    /// asked once more: what was being forked just then has not heard it.
    pub fn end_rest(&mut self, now: u64) {
        self.end_within(self.grace, now);
        if let Some(ending) = &mut self.ending {
            ending.asked = false;
            ending.look_at = now;
        }
    }

    /// When something is to be done about it next.
    pub fn due(&self) -> u64 {
        self.ending.map_or(self.deadline, |ending| ending.look_at)
    }

    /// What its minder has told since the last time.
    pub fn hear(&mut self) -> Vec<Line> {
        let Watch::Minder { words, text } = &mut self.watch else {
            return Vec::new();
        };
        // Until it would block, or to the end.
        let mut piece = [0; 1024];
        while let Ok(count @ 1..) = rustix::io::read(&*words, &mut piece) {
            text.extend_from_slice(&piece[..count]);
        }
        let Some(end) = text.iter().rposition(|&byte| byte == b'\n') else {
            return Vec::new();
        };
        let whole: Vec<u8> = text.drain(..=end).collect();
        whole
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    /// As an inventory has it while it lives.
    pub fn held(&self) -> Held {
        let state = if self.ending.is_some() {
            State::Ending
        } else {
            State::Running
        };
        self.held_as(self.note.clone(), state)
    }

    /// What is kept of it when nothing of it is alive, until it is forgotten.
    pub fn over(mut self) -> Held {
        let state = match self.failed.take() {
            Some(failure) => State::Failed(failure),
            None => State::Ended(self.exit.unwrap_or(Exit::Unknown)),
        };
        let note = self.note.take();
        self.held_as(note, state)
    }

    fn held_as(&self, note: serde_json::Value, state: State) -> Held {
        Held {
            key: self.key.clone(),
            note,
            pid: self.main.map(|main| main.0),
            starttime: self.main.map(|main| main.1),
            why: self.why,
            state,
        }
    }

    /// What to say when it is over.
    pub fn outcome(&self) -> Report {
        let key = self.key.clone();
        match &self.failed {
            Some(failure) => Report::StartFailed {
                key,
                errno: failure.errno,
                what: failure.what.clone(),
            },
            None => Report::Ended {
                key,
                exit: self.exit.unwrap_or(Exit::Unknown),
                why: self.why,
            },
        }
    }
}
