//! The minder: where there is no cgroup, one tiny process per attempt holds its tree together.
//!
//! It is the attempt's parent and a subreaper, so whatever the attempt starts stays its
//! descendant, also after setsid and a double fork. It ends when it has no child left, and
//! that is what tells that the tree is gone. It writes the exit code to the journal itself,
//! through a descriptor that it inherits: so the code survives even the keeper's death.
//!
//! Its line in the journal comes before a look at whether the keeper still lives, and that
//! comes before the attempt. So a keeper that starts later, and finds no such line, knows that
//! this attempt will not start any more.
//!
//! It tells the keeper what it writes, line by line, through a pipe.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::pipe::PipeFlags;
use rustix::process::Pid;

use super::journal::{self, Line};
use super::proc::Stat;
use super::reap::{self, Wait};
use super::spawn::{self, Child, Command};
use super::wire::{Failure, Key};

/// A minder that was started, and the pipe on which its lines come.
#[derive(Debug)]
pub struct Minder {
    pub pid: i32,
    pub words: OwnedFd,
}

/// Starts a minder, which starts the command.
pub fn start(
    key: &Key,
    command: &Command,
    stdio: [OwnedFd; 3],
    journal: &File,
) -> io::Result<Minder> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&read, rustix::fs::OFlags::NONBLOCK)?;
    let keeper = rustix::process::getpid();
    let pid = spawn::fork()?;
    if pid == 0 {
        let told = Told {
            key,
            journal,
            words: File::from(write),
        };
        tend(&told, command, stdio, keeper);
        // SAFETY: ends this process without what its parent, whose copy it is, does at exit.
        unsafe { libc::_exit(0) }
    }
    Ok(Minder { pid, words: read })
}

/// Where a minder says what it knows.
struct Told<'a> {
    key: &'a Key,
    journal: &'a File,
    words: File,
}

impl Told<'_> {
    fn note(&self, line: &Line) {
        // On a full disk the keeper still hears of it.
        let _ = journal::append(self.journal, line);
    }

    /// Tells the keeper, if there still is one; several lines come to it as one.
    fn tell(&self, lines: &[Line]) {
        let mut text = Vec::new();
        for line in lines {
            // What can't be told is on paper all the same.
            let _ = journal::encode(line, &mut text);
        }
        let _ = (&self.words).write_all(&text);
    }

    fn note_and_tell(&self, lines: &[Line]) {
        for line in lines {
            self.note(line);
        }
        self.tell(lines);
    }

    fn gone(&self) -> Line {
        let key = self.key.clone();
        Line::Gone { key }
    }

    fn failed(&self, failure: Failure) -> Line {
        let key = self.key.clone();
        Line::Failed { key, failure }
    }
}

/// The minder's whole life.
fn tend(told: &Told<'_>, command: &Command, stdio: [OwnedFd; 3], keeper: Pid) {
    // The keeper's socket and lock must not live on in here.
    let [a, b, c] = [&stdio[0], &stdio[1], &stdio[2]].map(AsRawFd::as_raw_fd);
    close_all_but([told.journal.as_raw_fd(), told.words.as_raw_fd(), a, b, c]);
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"handoffd-minder");
    match begin(told, command, &stdio, keeper) {
        Ok(Some(main)) => {
            drop(stdio);
            wait_for_all(told, command, main);
        }
        Ok(None) => told.note(&told.gone()),
        Err(error) => {
            let failure = Failure {
                errno: error.raw_os_error().unwrap_or(libc::EIO),
                what: "starting it from its minder".to_owned(),
            };
            told.note_and_tell(&[told.failed(failure), told.gone()]);
        }
    }
}

/// Starts the attempt, unless the keeper is gone already.
fn begin(
    told: &Told<'_>,
    command: &Command,
    stdio: &[OwnedFd; 3],
    keeper: Pid,
) -> io::Result<Option<Child>> {
    let me = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(me))?;
    let starttime = |pid| Stat::read(pid).map_or(0, |stat| stat.starttime);
    let pid = me.as_raw_pid();
    let key = told.key.clone();
    let line = Line::Minder {
        key,
        pid,
        starttime: starttime(pid),
    };
    journal::append(told.journal, &line)?;
    if rustix::process::getppid() != Some(keeper) {
        return Ok(None);
    }
    let main = spawn::spawn(command, stdio, None)?;
    let line = Line::Pid {
        key: told.key.clone(),
        pid: main.pid,
        starttime: starttime(main.pid),
    };
    told.note_and_tell(&[line]);
    Ok(Some(main))
}

/// Waits for the attempt and for all that it leaves behind.
fn wait_for_all(told: &Told<'_>, command: &Command, main: Child) {
    let mut main = Some(main);
    loop {
        match reap::look(true) {
            Wait::Dead(pid, exit) => {
                let Some(child) = main.take_if(|main| main.pid == pid) else {
                    reap::bury(pid);
                    continue;
                };
                let line = match command.failure(child.word) {
                    Some(failure) => told.failed(failure),
                    None => Line::Exit {
                        key: told.key.clone(),
                        exit,
                    },
                };
                told.note(&line);
                reap::bury(pid);
                if reap::look(false) == Wait::NoChildren {
                    told.note(&told.gone());
                    return told.tell(&[line, told.gone()]);
                }
                told.tell(&[line]);
            }
            Wait::AllAlive => {}
            Wait::NoChildren => return told.note_and_tell(&[told.gone()]),
        }
    }
}

/// Closes every descriptor above 2 that is not in the list.
fn close_all_but(mut keep: [RawFd; 5]) {
    keep.sort_unstable();
    let mut from = 3;
    for end in keep.into_iter().chain([RawFd::MAX]) {
        if from < end {
            close_range(from, end - 1);
        }
        from = end.saturating_add(1).max(from);
    }
}

fn close_range(first: RawFd, last: RawFd) {
    // SAFETY: this process is a copy that will never use the objects that own these.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, 0) == 0 {
            return;
        }
        // Before Linux 5.9. The table of descriptors ends at the limit.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.map_or(1 << 16, |limit| RawFd::try_from(limit).unwrap_or(1 << 16));
        for fd in first..=last.min(limit) {
            libc::close(fd);
        }
    }
}
