//! A tracer of our own: runs a daemon call by call, and does something at one of them.
//!
//! It sees every system call of every thread of the daemon, counts those that a fault may fall
//! on, and at the chosen one kills the daemon before the call is made or right after it, lets
//! the call fail, or makes a write short. The keeper and the specialists are not followed and
//! go on as they would.
//!
//! There is no filter (seccomp) in front of it. It would be faster, but children inherit one,
//! and the keeper outlives its daemon.

mod calls;
mod sys;

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::Signal;

pub use calls::{Call, Kind};

use crate::common::kill;

/// How long a traced daemon may take. What is killed for this is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// What happens at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Nothing: the points are only counted.
    Count,
    KillBefore,
    KillAfter,
    /// The call is not made, and says this.
    Fail(i32),
    /// Half of it is written.
    Shorten,
}

/// What happens, where, and for how many points.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub deed: Deed,
    /// The first point that it falls on, from 1.
    pub at: usize,
    /// How many in a row.
    pub stretch: usize,
    /// What counts as a point.
    pub falls_on: fn(&Call) -> bool,
}

/// A daemon that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// How many points it passed.
    pub points: usize,
    /// The call that the fault fell on first, if it came that far.
    pub struck: Option<Call>,
    /// It would not end by itself.
    pub hung: bool,
}

/// What a thread is to find when it comes back from its call.
#[derive(Debug, Clone, Copy)]
enum Due {
    Kill,
    Fail(i32),
}

/// Whether this machine lets us trace.
pub fn is_possible() -> io::Result<()> {
    let mut command = Command::new("true");
    let fault = Fault {
        deed: Deed::Count,
        at: 0,
        stretch: 0,
        falls_on: |_| true,
    };
    run(&mut command, Path::new("/"), fault).map(drop)
}

/// Runs the command to its end, or to the fault's.
pub fn run(command: &mut Command, root: &Path, fault: Fault) -> io::Result<Ended> {
    run_watched(command, root, fault, |_| {})
}

/// Like [`run`]; `begun` is told the process when there is one.
pub fn run_watched(
    command: &mut Command,
    root: &Path,
    fault: Fault,
    begun: impl FnOnce(i32),
) -> io::Result<Ended> {
    // SAFETY: only a system call between fork and exec.
    unsafe { command.pre_exec(sys::let_be_traced) };
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    begun(pid);
    let (done, ended) = channel::<()>();
    let watch = std::thread::spawn(move || {
        let hung = ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
        if hung {
            kill(pid, Signal::KILL);
        }
        hung
    });
    let mut tracing = Tracing {
        pid,
        root,
        fault,
        points: 0,
        struck: None,
        due: Vec::new(),
    };
    let status = tracing.follow();
    drop(done);
    let hung = watch.join().unwrap_or(true);
    Ok(Ended {
        status: status?,
        points: tracing.points,
        struck: tracing.struck,
        hung,
    })
}

struct Tracing<'a> {
    pid: i32,
    root: &'a Path,
    fault: Fault,
    points: usize,
    struck: Option<Call>,
    due: Vec<(i32, Due)>,
}

impl Tracing<'_> {
    fn follow(&mut self) -> io::Result<ExitStatus> {
        let mut begun = false;
        loop {
            match sys::wait()? {
                sys::News::Gone(tid, status) if tid == self.pid => {
                    return Ok(ExitStatus::from_raw(status));
                }
                sys::News::Gone(..) => {}
                sys::News::Signal(tid, _) if !begun => {
                    // The stop at its exec.
                    begun = true;
                    sys::follow_threads(tid)?;
                    sys::go_on(tid, 0);
                }
                sys::News::Signal(tid, signal) => sys::go_on(tid, signal),
                sys::News::Call(tid) => {
                    match sys::stop(tid) {
                        sys::Stop::Entry { number, args } => self.enter(tid, number, &args),
                        sys::Stop::Exit => self.leave(tid),
                        sys::Stop::Other => {}
                    }
                    sys::go_on(tid, 0);
                }
            }
        }
    }

    fn enter(&mut self, tid: i32, number: u64, args: &[u64; 6]) {
        let Some(call) = calls::recognise(tid, number, args, self.root) else {
            return;
        };
        if !(self.fault.falls_on)(&call) {
            return;
        }
        self.points += 1;
        let range = self.fault.at..self.fault.at + self.fault.stretch;
        if self.fault.deed == Deed::Count || !range.contains(&self.points) {
            return;
        }
        let skip = |registers: &mut libc::user_regs_struct| registers.orig_rax = u64::MAX;
        match self.fault.deed {
            Deed::Count => {}
            Deed::KillBefore => {
                let _ = sys::change(tid, skip);
                kill(self.pid, Signal::KILL);
            }
            Deed::KillAfter => self.due.push((tid, Due::Kill)),
            Deed::Fail(errno) => {
                let _ = sys::change(tid, skip);
                self.due.push((tid, Due::Fail(errno)));
            }
            Deed::Shorten => {
                let _ = sys::change(tid, |registers| registers.rdx = registers.rdx.div_ceil(2));
            }
        }
        self.struck.get_or_insert(call);
    }

    fn leave(&mut self, tid: i32) {
        let Some(at) = self.due.iter().position(|(who, _)| *who == tid) else {
            return;
        };
        match self.due.swap_remove(at).1 {
            Due::Kill => kill(self.pid, Signal::KILL),
            Due::Fail(errno) => {
                let _ = sys::change(tid, |registers| {
                    registers.rax = i64::from(-errno).cast_unsigned();
                });
            }
        }
    }
}
