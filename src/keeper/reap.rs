//! The one place that reaps.
//!
//! In two steps, because a process that was reaped has no exit code any more: look at who has
//! ended, write it down, and only then let it go. A kill between the steps loses nothing.

use std::io;

use super::wire::Exit;

/// What waiting found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// This child has ended, and stays until it is buried.
    Dead(i32, Exit),
    /// There are children, and all are alive.
    AllAlive,
    NoChildren,
}

/// Looks for a child that has ended, waiting for one if `block`.
pub fn look(block: bool) -> Wait {
    loop {
        let flags = libc::WEXITED | libc::WNOWAIT | if block { 0 } else { libc::WNOHANG };
        // SAFETY: the structure is ours, all zeroes are valid for it, and its fields are read
        // only where waitid has filled them.
        let (result, pid, code, status) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let result = libc::waitid(libc::P_ALL, 0, &raw mut info, flags);
            (result, info.si_pid(), info.si_code, info.si_status())
        };
        if result < 0 {
            if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Wait::NoChildren;
        }
        return match (pid, code) {
            (0, _) => Wait::AllAlive,
            (pid, libc::CLD_EXITED) => Wait::Dead(pid, Exit::Code(status)),
            (pid, _) => Wait::Dead(pid, Exit::Signal(status)),
        };
    }
}

/// Lets a child go that [`look`] has shown.
pub fn bury(pid: i32) {
    // SAFETY: no memory of ours is involved.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
}
