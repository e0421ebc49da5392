//! Whether a process that connects belongs to an attempt.
//!
//! The proof that a connection has to give (`proof.rs`) keeps sandboxed attempts from giving orders.
//! An attempt without a sandbox could give that proof, so the keeper hangs up on all that belongs to
//! an attempt it knows: its own descendants, and the attempts that it took over from a keeper that
//! was killed, which the journal and the cgroups name.

use super::attempt::Attempt;
use super::books::Books;
use super::cgroup;
use super::proc::{self, Stat};
use super::tree::Tree;

impl Books {
    /// Whether a process belongs to an attempt. A process that is gone may have.
    pub fn is_an_attempts(&self, pid: i32) -> bool {
        let Some(line) = proc::lineage(pid) else {
            return true;
        };
        let us = rustix::process::getpid().as_raw_pid();
        line.iter().skip(1).any(|stat| stat.pid == us)
            || self.is_in_their_cgroups(pid)
            || self
                .attempts
                .values()
                .any(|attempt| has_begun(attempt, &line))
            || proc::attempt_of(pid, &self.root, &self.users())
                .is_some_and(|key| self.attempts.contains_key(&key))
    }

    /// The users that its attempts run as.
    pub fn users(&self) -> proc::Users {
        proc::Users::with(self.attempts.values().filter_map(|it| it.user))
    }

    fn is_in_their_cgroups(&self, pid: i32) -> bool {
        let Some(dir) = cgroup::of(pid) else {
            return false;
        };
        let of_attempts = self
            .attempts
            .values()
            .filter_map(|attempt| match &attempt.tree {
                Tree::Cgroup(dir) => Some(dir),
                Tree::Minder { .. } | Tree::Loose => None,
            });
        of_attempts
            .chain(&self.base)
            .any(|fence| dir.starts_with(fence))
    }
}

/// Whether the main process or the minder of an attempt is in this line of descent, or the main
/// process leads the session of its youngest.
fn has_begun(attempt: &Attempt, line: &[Stat]) -> bool {
    let minder = match attempt.tree {
        Tree::Minder { pid, starttime } => Some((pid, starttime)),
        Tree::Cgroup(_) | Tree::Loose => None,
    };
    let is_above = |known: (i32, u64)| line.iter().any(|it| (it.pid, it.starttime) == known);
    // The number of a session is not used again while any process is in it, so a leader that
    // started at another time leads another session.
    let leads = |(main, starttime): (i32, u64)| {
        line.first()
            .is_some_and(|youngest| youngest.session == main)
            && Stat::read(main).is_none_or(|leader| leader.starttime == starttime)
    };
    minder.is_some_and(is_above)
        || attempt
            .main
            .is_some_and(|main| is_above(main) || leads(main))
}
