//! Starting attempts: the journal first, then the process.
//!
//! A cgroup is tried first, and minders are the fallback: for one attempt where no cgroup could
//! be made for it, for all from then on where the system refuses to clone into one.

use std::io;
use std::os::fd::OwnedFd;

use super::attempt::{Attempt, Watch};
use super::books::{Books, log};
use super::journal::{self, Line};
use super::pool::Group;
use super::proc::Stat;
use super::spawn::{self, Command};
use super::tree::Tree;
use super::wire::{Failure, Key, Report, Start};
use super::{cgroup, minder};
use crate::clock;

/// How long an attempt runs before it is written down by what another keeper would know it. For a
/// short one that would be a tenth of all that is done here. Of one that is younger when its keeper
/// is killed, only its cgroup is known, and it is ended there.
const UNKNOWN_MS: u64 = 10;

/// A child of ours, which has its pid until it is reaped, as pid and start time.
fn identify(pid: i32) -> (i32, u64) {
    (pid, Stat::read(pid).map_or(0, |stat| stat.starttime))
}

impl Books {
    pub fn start(&mut self, start: Start, stdio: [OwnedFd; 3]) {
        let key = start.key.clone();
        let launched = if self.has(&key) {
            Err(Failure {
                errno: libc::EEXIST,
                what: "this attempt was started before".to_owned(),
            })
        } else {
            Command::prepare(&start, self.nofile)
                .and_then(|command| self.launch(start, command, stdio))
        };
        // Of what failed here nothing is kept: to the next daemon it was never started.
        if let Err(Failure { errno, what }) = launched {
            self.reports.push(Report::StartFailed { key, errno, what });
        }
    }

    fn launch(
        &mut self,
        start: Start,
        command: Command,
        stdio: [OwnedFd; 3],
    ) -> Result<(), Failure> {
        let mut attempt = Attempt {
            key: start.key,
            note: start.note,
            deadline: start.deadline_boot_ms,
            grace: start.grace_ms,
            user: start
                .confine
                .as_ref()
                .and_then(|it| Some(it.owner.as_ref()?.uid)),
            tree: Tree::Loose,
            group: None,
            watch: Watch::Nothing,
            main: None,
            exit: None,
            failed: None,
            why: None,
            ending: None,
        };
        let quiet = start.quiet;
        if let Some(group) = self.take_cgroup(&attempt.key) {
            if let Err(failure) = self.begin(&attempt, journal::Held::Cgroup(group.dir.clone())) {
                self.leftover.extend(self.pool.give(group));
                return Err(failure);
            }
            match spawn::spawn(&command, &stdio, Some(group.as_fd())) {
                Ok(child) => {
                    attempt.tree = Tree::Cgroup(group.dir.clone());
                    attempt.group = Some(group);
                    self.keep_child(attempt, child, command, quiet);
                    return Ok(());
                }
                Err(error) => {
                    let _ = cgroup::remove(&group.dir);
                    if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM)) {
                        return Err(self.stillborn(&attempt.key, &error));
                    }
                    log(format_args!(
                        "can't clone into a cgroup; using minders from now on: {error}"
                    ));
                    self.base = None;
                }
            }
        }
        self.begin(&attempt, journal::Held::Minder)?;
        let minder = minder::start(&attempt.key, &command, stdio, self.journal.file())
            .map_err(|error| self.stillborn(&attempt.key, &error))?;
        let (pid, starttime) = identify(minder.pid);
        attempt.tree = Tree::Minder { pid, starttime };
        attempt.watch = Watch::Minder {
            words: minder.words,
            text: Vec::new(),
        };
        self.children.insert(pid, attempt.key.clone());
        self.attempts.insert(attempt.key.clone(), attempt);
        Ok(())
    }

    /// Writes down that it is about to be started.
    fn begin(&mut self, attempt: &Attempt, held: journal::Held) -> Result<(), Failure> {
        let line = Line::Start {
            key: attempt.key.clone(),
            note: attempt.note.clone(),
            deadline_boot_ms: attempt.deadline,
            grace_ms: attempt.grace,
            boot: clock::boot_id().to_owned(),
            held,
            user: attempt.user,
        };
        self.journal.append(&line).map_err(|error| Failure {
            errno: error.raw_os_error().unwrap_or(libc::ENOSPC),
            what: "writing the keeper's journal".to_owned(),
        })
    }

    /// Takes back that it was about to be started.
    fn stillborn(&mut self, key: &Key, error: &io::Error) -> Failure {
        self.note(&Line::Forget { key: key.clone() });
        Failure {
            errno: error.raw_os_error().unwrap_or(libc::EIO),
            what: "creating a process for it".to_owned(),
        }
    }

    fn keep_child(
        &mut self,
        mut attempt: Attempt,
        child: spawn::Child,
        command: Command,
        quiet: bool,
    ) {
        let key = attempt.key.clone();
        attempt.watch = Watch::Child {
            word: child.word,
            command: Box::new(command),
        };
        self.children.insert(child.pid, key.clone());
        self.attempts.insert(key.clone(), attempt);
        if quiet {
            let at = clock::boot_ms() + UNKNOWN_MS;
            self.unidentified.push_back((at, child.pid));
        } else if let Some((pid, starttime)) = self.note_main(child.pid) {
            self.reports.push(Report::Started {
                key,
                pid,
                starttime,
            });
        }
    }

    /// Writes down by what another keeper would know a child of ours. It can't be taken for another
    /// process, because it is not reaped yet.
    fn note_main(&mut self, pid: i32) -> Option<(i32, u64)> {
        let key = self.children.get(&pid)?.clone();
        let main = identify(pid);
        self.attempts.get_mut(&key)?.main = Some(main);
        let (pid, starttime) = main;
        self.note(&Line::Pid {
            key,
            pid,
            starttime,
        });
        Some(main)
    }

    /// Identifies those that have lived long enough by `now`.
    pub fn identify_until(&mut self, now: u64) {
        while let Some(&(at, pid)) = self.unidentified.front()
            && at <= now
        {
            self.unidentified.pop_front();
            self.note_main(pid);
        }
    }

    fn take_cgroup(&mut self, key: &Key) -> Option<Group> {
        let base = self.base.as_deref()?;
        self.pool
            .take(base, &mut self.leftover)
            .inspect_err(|error| log(format_args!("no cgroup for {key}: {error}")))
            .ok()
    }
}
