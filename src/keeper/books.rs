//! The keeper's books: every attempt it knows, and what each event does to it.
//!
//! No sockets here and no waiting: [`super::serve`] says what has happened and when, and takes
//! away the reports. An attempt goes from running to ending to over. Ending begins when someone
//! asks for it, when its deadline passes, or when its main process has ended and left something
//! behind; it is over when nothing of its tree is alive, and only then is that reported.
//!
//! Reasons are collected and synced together before the first signal goes out: a hundred
//! attempts that are cancelled at once cost one sync.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Write};
use std::path::PathBuf;

use super::attempt::{Attempt, Watch};
use super::cgroup;
use super::journal::{self, Journal, Line};
use super::pool::Pool;
use super::proc::{self, Stat};
use super::reap::{self, Wait};
use super::tree::Tree;
use super::turn::Waiting;
use super::wire::{Exit, Held, Key, Report, Why};
use crate::clock;

/// How often to look whether a tree has gone that can't tell.
const LOOK_MS: u64 = 10;
/// The same, where each look reads all of /proc.
const LOOK_LOOSE_MS: u64 = 50;

pub struct Books {
    pub root: PathBuf,
    pub run_dir: PathBuf,
    /// Where attempts get their cgroups, if they do.
    pub base: Option<PathBuf>,
    pub journal: Journal,
    /// All that may have something alive.
    pub attempts: BTreeMap<Key, Attempt>,
    /// Those that are over, until they are forgotten.
    pub over: BTreeMap<Key, Held>,
    /// The children of ours that matter, and whose they are.
    pub children: HashMap<i32, Key>,
    /// Children that no other keeper would know yet, and when they are to be written down.
    pub unidentified: VecDeque<(u64, i32)>,
    /// Those that were given ahead, in their order.
    pub waiting: VecDeque<Waiting>,
    /// The limit on open descriptors that attempts get.
    pub nofile: Option<libc::rlimit>,
    /// Said and not sent yet.
    pub reports: Vec<Report>,
    /// Emptied cgroups that were still busy.
    pub leftover: Vec<PathBuf>,
    /// Emptied cgroups for the next attempts.
    pub pool: Pool,
}

/// Writes to the keeper's log. There is nobody to tell if that fails.
pub fn log(what: std::fmt::Arguments<'_>) {
    let now = clock::Clock::System.now().wall;
    let _ = writeln!(io::stderr(), "{now} {what}");
}

impl Books {
    /// Ends an attempt for a reason. The first one sticks, and one that comes when the main
    /// process has ended by itself is none.
    pub fn end(&mut self, key: &Key, why: Why, grace: u64, now: u64) {
        let Some(attempt) = self.attempts.get_mut(key) else {
            return;
        };
        attempt.end_within(grace, now);
        if attempt.why.is_none() && !attempt.main_ended() {
            attempt.why = Some(why);
            let key = key.clone();
            self.note(&Line::Ending { key, why });
        }
    }

    pub fn forget(&mut self, key: &Key) {
        if self.over.remove(key).is_some() {
            self.note_later(&Line::Forget { key: key.clone() });
        }
    }

    /// Tells all that is known, and the journal says the same by then.
    pub fn inventory(&mut self) {
        self.identify_until(u64::MAX);
        self.flush();
        let alive = self.attempts.values().map(Attempt::held);
        let entries = alive.chain(self.over.values().cloned()).collect();
        self.reports.push(Report::Inventory { entries });
    }

    pub fn usage(&mut self, key: Key) {
        let attempt = self.attempts.get(&key);
        let cpu_ms = attempt.and_then(|it| it.tree.cpu_ms(it.whose(&self.root)));
        self.reports.push(Report::Usage { key, cpu_ms });
    }

    /// Whether nothing is alive.
    pub fn is_idle(&self) -> bool {
        self.attempts.is_empty()
    }

    /// Whether it was started before, and not forgotten.
    pub fn has(&self, key: &Key) -> bool {
        self.attempts.contains_key(key) || self.over.contains_key(key)
    }

    pub fn next_due(&self) -> Option<u64> {
        let attempts = self.attempts.values().map(Attempt::due);
        let unidentified = self.unidentified.front().map(|(at, _)| *at);
        let others = [self.pool.due(), unidentified, self.patience_ends()];
        attempts.chain(others.into_iter().flatten()).min()
    }

    /// Takes note of children that have ended: first on paper, then for good.
    pub fn reap(&mut self, now: u64) {
        while let Wait::Dead(pid, exit) = reap::look(false) {
            let key = self.children.remove(&pid).or_else(|| self.orphan(pid));
            let Some(key) = key else {
                reap::bury(pid); // an orphan of an attempt's
                continue;
            };
            let is_minder = self.attempts.get(&key).is_some_and(
                |attempt| matches!(attempt.tree, Tree::Minder { pid: minder, .. } if minder == pid),
            );
            if is_minder {
                reap::bury(pid);
                self.minder_ended(&key, exit == Exit::Code(0), now);
            } else {
                self.main_ended(&key, exit);
                reap::bury(pid);
                self.settle(&key, now);
            }
        }
    }

    /// The attempt whose main process came to us because its minder was killed.
    fn orphan(&self, pid: i32) -> Option<Key> {
        let starttime = Stat::read(pid)?.starttime;
        self.attempts
            .values()
            .find(|it| it.tree == Tree::Loose && it.main == Some((pid, starttime)))
            .map(|it| it.key.clone())
    }

    fn main_ended(&mut self, key: &Key, exit: Exit) {
        let Some(attempt) = self.attempts.get_mut(key) else {
            return;
        };
        let key = key.clone();
        let failure = match std::mem::replace(&mut attempt.watch, Watch::Nothing) {
            Watch::Child { word, command } => command.failure(word),
            _ => None,
        };
        let line = if let Some(failure) = failure {
            attempt.failed = Some(failure.clone());
            Line::Failed { key, failure }
        } else {
            attempt.exit = Some(exit);
            Line::Exit { key, exit }
        };
        self.note(&line);
    }

    /// Takes in what a minder told.
    pub fn hear(&mut self, key: &Key, now: u64) {
        let Some(attempt) = self.attempts.get_mut(key) else {
            return;
        };
        let before = attempt.main_ended();
        let mut gone = false;
        for line in attempt.hear() {
            match line {
                Line::Pid { pid, starttime, .. } => {
                    attempt.main = Some((pid, starttime));
                    self.reports.push(Report::Started {
                        key: key.clone(),
                        pid,
                        starttime,
                    });
                }
                Line::Exit { exit, .. } => attempt.exit = Some(exit),
                Line::Failed { failure, .. } => attempt.failed = Some(failure),
                Line::Gone { .. } => gone = true,
                _ => {}
            }
        }
        // If there is nothing left the minder is about to end, and that is waited for.
        if attempt.main_ended() && !before && !gone {
            attempt.end_rest(now);
        }
    }

    fn minder_ended(&mut self, key: &Key, clean: bool, now: u64) {
        self.hear(key, now);
        let Some(attempt) = self.attempts.get_mut(key) else {
            return;
        };
        attempt.watch = Watch::Nothing;
        if clean {
            return self.finish(key);
        }
        log(format_args!("the minder of {key} was killed"));
        self.loosen(key, now);
    }

    /// Goes on with an attempt that lost its minder.
    fn loosen(&mut self, key: &Key, now: u64) {
        // The minder may have written what it could no longer tell.
        let gone = self.recall(key);
        let Some(attempt) = self.attempts.get_mut(key) else {
            return;
        };
        attempt.tree = Tree::Loose;
        // A zombie counts: it may be ours now, and its code still to be had.
        let main = attempt.main.filter(|(pid, starttime)| {
            Stat::read(*pid).is_some_and(|stat| stat.starttime == *starttime)
        });
        if gone {
            self.finish(key);
        } else if attempt.main_ended() || main.is_none() {
            self.settle(key, now);
        }
    }

    /// Looks up in the journal what someone else wrote there; true if the whole tree is gone.
    pub fn recall(&mut self, key: &Key) -> bool {
        let known = journal::read(&self.run_dir).unwrap_or_default();
        let entry = known.into_iter().find(|entry| entry.key == *key);
        let (Some(entry), Some(attempt)) = (entry, self.attempts.get_mut(key)) else {
            return false;
        };
        attempt.main = attempt.main.or(entry.pid.zip(entry.starttime));
        attempt.exit = attempt.exit.or(entry.exit);
        attempt.failed = attempt.failed.take().or(entry.failed);
        entry.gone
    }

    /// A pidfd of an attempt that another keeper started says that its process has ended.
    pub fn foreign_ended(&mut self, key: &Key, is_minder: bool, now: u64) {
        let Some(attempt) = self.attempts.get_mut(key) else {
            return;
        };
        if let Watch::Foreign { main, minder } = &mut attempt.watch {
            let ended = if is_minder { minder } else { main };
            *ended = None;
        }
        if is_minder {
            return self.loosen(key, now);
        }
        self.recall(key);
        self.settle(key, now);
    }

    /// The main process has ended: either that was all, or the rest is ended, too.
    pub fn settle(&mut self, key: &Key, now: u64) {
        if self.is_over(key) {
            self.finish(key);
        } else if let Some(attempt) = self.attempts.get_mut(key) {
            attempt.end_rest(now);
        }
    }

    /// Does what is due: deadlines, then signals, then looks at what is left.
    pub fn tick(&mut self, now: u64) {
        self.identify_until(now);
        self.give_back_until(now);
        let due: Vec<Key> = self
            .attempts
            .values()
            .filter(|attempt| attempt.due() <= now)
            .map(|attempt| attempt.key.clone())
            .collect();
        let mut asking = false;
        for key in &due {
            if let Some(attempt) = self.attempts.get(key) {
                if attempt.ending.is_none() {
                    let grace = attempt.grace;
                    self.end(key, Why::Timeout, grace, now);
                }
                asking |= self.attempts[key].ending.is_some_and(|it| !it.asked);
            }
        }
        if asking && let Err(error) = self.journal.sync() {
            // Better ended for an unknown reason than not ended.
            log(format_args!("syncing the journal: {error}"));
        }
        for key in due {
            self.press(&key, now);
        }
        self.leftover.extend(self.pool.expire(now));
        self.leftover.retain(|dir| cgroup::remove(dir).is_err());
    }

    /// Brings the end of one tree a step further.
    fn press(&mut self, key: &Key, now: u64) {
        let Some(attempt) = self.attempts.get_mut(key) else {
            return;
        };
        let Some(mut ending) = attempt.ending else {
            return;
        };
        if !attempt.is_born() && now < ending.kill_at {
            // Its minder has not made it yet, and a signal now would be lost.
            ending.look_at = now + LOOK_MS;
            attempt.ending = Some(ending);
            return;
        }
        let (asks, kills) = (!ending.asked, ending.kill_at <= now);
        ending.asked = true;
        if asks {
            attempt.tree.terminate(attempt.whose(&self.root));
            self.terminate_outside(key);
        }
        if kills && let Some(attempt) = self.attempts.get(key) {
            attempt.tree.kill(attempt.whose(&self.root));
            self.kill_outside(key);
        }
        let over = self.is_over(key);
        let Some(attempt) = self.attempts.get_mut(key) else {
            return;
        };
        ending.look_at = match attempt.tree {
            Tree::Loose => now + LOOK_LOOSE_MS,
            // Its end shows by itself, so there is nothing to do before the kill.
            Tree::Minder { .. } => now.max(ending.kill_at) + LOOK_LOOSE_MS,
            Tree::Cgroup(_) => now + LOOK_MS,
        };
        if ending.kill_at > now {
            ending.look_at = ending.look_at.min(ending.kill_at);
        }
        attempt.ending = Some(ending);
        if over {
            self.finish(key);
        }
    }

    /// Nothing of it is alive.
    pub fn finish(&mut self, key: &Key) {
        let Some(mut attempt) = self.attempts.remove(key) else {
            return;
        };
        self.reports.push(attempt.outcome());
        let cgroup = match std::mem::replace(&mut attempt.tree, Tree::Loose) {
            Tree::Cgroup(dir) => Some(dir),
            _ => None,
        };
        let group = attempt.group.take();
        let unharmed = attempt.ending.is_none() && matches!(attempt.exit, Some(Exit::Code(_)));
        self.over.insert(key.clone(), attempt.over());
        // Its place may be the next one's, whose line comes after this one.
        self.note_later(&Line::Gone { key: key.clone() });
        let unwanted = match group {
            Some(group) if unharmed => self.pool.give(group),
            _ => cgroup,
        };
        if let Some(dir) = unwanted
            && cgroup::remove(&dir).is_err()
        {
            self.leftover.push(dir);
        }
    }

    /// Writes a line that nothing waits for.
    pub fn note(&mut self, line: &Line) {
        if let Err(error) = self.journal.append(line) {
            log(format_args!("the journal: {error}: {line:?}"));
        }
    }

    /// Writes what waits for the next line.
    pub fn flush(&mut self) {
        if let Err(error) = self.journal.flush() {
            log(format_args!("the journal: {error}"));
        }
    }

    /// Writes a line with the next one.
    fn note_later(&mut self, line: &Line) {
        if let Err(error) = self.journal.append_later(line) {
            log(format_args!("the journal: {error}: {line:?}"));
        }
    }

    /// Whether this very process is one of ours, so that it is no stray.
    pub fn knows(&self, stray: &proc::Stray) -> bool {
        self.attempts.contains_key(&stray.key)
    }
}
