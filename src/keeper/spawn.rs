//! From a description to a running process.
//!
//! Here the command is put into the form in which the system takes it; [`super::clone`] makes
//! the process. With a cgroup the child is born inside it, which leaves no moment in which it,
//! or a child of its own, could be outside.
//!
//! Nobody waits for the exec. If it fails, the child leaves a word why and exits; whoever reaps
//! it looks there.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;

use super::clone::{self, Plan, Word};
use super::confine::{Prepared, stage};
use super::wire::{Failure, Start};

const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// Everything the child needs, in the form in which the system takes it.
#[derive(Debug)]
pub struct Command {
    /// The files to try, in this order.
    tried: Strings,
    argv: Strings,
    envp: Strings,
    cwd: CString,
    /// For telling what failed.
    program: OsString,
    /// The limit on open descriptors that attempts get, which is not the keeper's own.
    nofile: Option<libc::rlimit>,
    /// The limit on the size of files.
    fsize: Option<libc::rlimit>,
    /// Boxed, because a child has a pointer to it.
    confine: Option<Box<Prepared>>,
}

impl Command {
    pub fn prepare(start: &Start, nofile: Option<libc::rlimit>) -> Result<Self, Failure> {
        let text =
            |text: &OsStr| CString::new(text.as_bytes()).map_err(|_| zero_in(text.as_bytes()));
        let program = start.argv.first().ok_or_else(|| Failure {
            errno: libc::EINVAL,
            what: "an empty command".to_owned(),
        })?;
        let args = start.argv.iter().map(|arg| [arg.0.as_bytes(), b"", b""]);
        let vars = start
            .env
            .iter()
            .map(|(name, value)| [name.0.as_bytes(), b"=", value.0.as_bytes()]);
        let path = start.env.iter().find(|(name, _)| name.0 == "PATH");
        let path = path.map_or(DEFAULT_PATH, |(_, value)| value.0.as_bytes());
        let candidates = look_up(program.0.as_bytes(), path);
        let candidates = candidates.iter().map(|file| [&**file, b"", b""]);
        Ok(Self {
            tried: Strings::of(candidates)?,
            argv: Strings::of(args)?,
            envp: Strings::of(vars)?,
            cwd: text(&start.cwd.0)?,
            program: program.0.clone(),
            nofile,
            fsize: start.fsize.map(|bytes| libc::rlimit {
                rlim_cur: bytes,
                rlim_max: bytes,
            }),
            confine: match &start.confine {
                Some(confine) => Some(Box::new(Prepared::of((**confine).clone())?)),
                None => None,
            },
        })
    }

    /// What a child does, with pointers into this command: they hold for as long as it lives,
    /// wherever it is moved to.
    fn plan(&self, stdio: [RawFd; 3]) -> Plan {
        Plan {
            candidates: self.tried.pointers.as_ptr(),
            argv: self.argv.pointers.as_ptr(),
            envp: self.envp.pointers.as_ptr(),
            cwd: self.cwd.as_ptr(),
            limits: [
                (libc::RLIMIT_NOFILE, self.nofile),
                (libc::RLIMIT_FSIZE, self.fsize),
            ],
            stdio,
            ignored: *IGNORED,
            errors: None,
            failed: AtomicU64::new(0),
            confine: self
                .confine
                .as_deref()
                .map_or(std::ptr::null(), std::ptr::from_ref),
        }
    }

    /// What the child said about its failure, if it did. To be asked when it has exited.
    pub fn failure(&self, word: Word) -> Option<Failure> {
        let (stage, errno) = word.failure()?;
        let what = match (stage, &self.confine) {
            (stage::FOLDER, _) => format!("working folder {}", self.cwd.to_string_lossy()),
            (stage::EXEC, _) => format!("exec {}", self.program.to_string_lossy()),
            (stage::PREPARE, _) | (_, None) => "setting up its descriptors".to_owned(),
            (stage, Some(confine)) => confine.describe(stage),
        };
        Some(Failure { errno, what })
    }
}

/// Texts, each with a zero behind it, one after the other in one piece of memory.
#[derive(Debug)]
struct Strings {
    _text: Box<[u8]>,
    /// Into the text, which stays where it is; ends with a null.
    pointers: Vec<*const libc::c_char>,
}

impl Strings {
    /// Puts each text together from its parts.
    fn of<'a>(texts: impl Iterator<Item = [&'a [u8]; 3]> + Clone) -> Result<Self, Failure> {
        let length = |text: [&[u8]; 3]| text.iter().map(|part| part.len()).sum::<usize>() + 1;
        let mut text = Vec::with_capacity(texts.clone().map(length).sum());
        let mut begins = Vec::new();
        for parts in texts {
            let begin = text.len();
            for part in parts {
                text.extend_from_slice(part);
            }
            if text[begin..].contains(&0) {
                return Err(zero_in(&text[begin..]));
            }
            text.push(0);
            begins.push(begin);
        }
        let text = text.into_boxed_slice();
        let pointers = begins
            .into_iter()
            .map(|begin| text[begin..].as_ptr().cast());
        Ok(Self {
            pointers: pointers.chain([std::ptr::null()]).collect(),
            _text: text,
        })
    }
}

fn zero_in(text: &[u8]) -> Failure {
    Failure {
        errno: libc::EINVAL,
        what: format!("a zero byte in {}", String::from_utf8_lossy(text)),
    }
}

/// The files that a command may be, as the shell would look for them.
fn look_up(program: &[u8], path: &[u8]) -> Vec<Vec<u8>> {
    if program.contains(&b'/') {
        return vec![program.to_vec()];
    }
    path.split(|&byte| byte == b':')
        .map(|dir| {
            let dir = if dir.is_empty() { b"." } else { dir };
            [dir, b"/", program].concat()
        })
        .collect()
}

/// A child of ours that will be, or could not become, its command.
#[derive(Debug)]
pub struct Child {
    pub pid: i32,
    /// To be kept for as long as it lives.
    pub word: Word,
}

/// Starts the command as a child of this process, inside `cgroup` if there is one.
pub fn spawn(
    command: &Command,
    stdio: &[OwnedFd; 3],
    cgroup: Option<BorrowedFd<'_>>,
) -> io::Result<Child> {
    let stdio = [&stdio[0], &stdio[1], &stdio[2]].map(AsRawFd::as_raw_fd);
    let mut plan = command.plan(stdio);
    if let Some(cgroup) = cgroup {
        let (pid, word) = clone::into_cgroup(cgroup, plan)?;
        return Ok(Child { pid, word });
    }
    let (read, write) = clone::pipe()?;
    plan.errors = Some(write.as_raw_fd());
    match fork()? {
        // SAFETY: this process is a copy of its own, in which `command` stays where it is.
        0 => unsafe { plan.carry_out() },
        pid => Ok(Child {
            pid,
            word: Word::Pipe(read),
        }),
    }
}

/// Forks; 0 in the child. Only for processes with one thread.
pub fn fork() -> io::Result<i32> {
    // SAFETY: no other thread can hold a lock that the child would miss.
    match unsafe { libc::fork() } {
        pid if pid < 0 => Err(io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

/// Blocks every signal, and gives a descriptor on which SIGCHLDs can be waited for.
///
/// Blocked, and not only ignored, because children inherit it: a SIGTERM that comes to one
/// before it became its command then waits until it can be heard, instead of being lost.
pub fn block_signals() -> io::Result<OwnedFd> {
    // SAFETY: the sets are ours; the descriptor that comes back is nobody else's.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Puts these in the places of stdin, stdout and stderr, for good.
pub fn replace_stdio(files: [BorrowedFd<'_>; 3]) -> io::Result<()> {
    for (target, file) in (0..).zip(files) {
        // SAFETY: nothing owns these three, and what they were is closed by the system.
        if unsafe { libc::dup2(file.as_raw_fd(), target) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The signals that this process ignores, one bit each; found out when the first child is made,
/// and never changed after.
static IGNORED: LazyLock<u64> = LazyLock::new(|| {
    let is_ignored = |signal: i32| {
        // SAFETY: the structure is ours, and only asked for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
        }
    };
    // The C library keeps a few real-time signals to itself, and says nothing about them; they
    // are reset in any case.
    (1..=64)
        .filter(|&signal| (32..=34).contains(&signal) || is_ignored(signal))
        .fold(0, |bits, signal| bits | 1 << (signal - 1))
});

/// Ignores what a service manager or a terminal may send to everyone.
pub fn ignore_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGPIPE] {
        // SAFETY: no handler of ours is involved.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn texts_stand_one_after_the_other_and_none_holds_a_zero() {
        let of = |texts: &[[&'static [u8]; 3]]| Strings::of(texts.iter().copied());
        let strings = of(&[[b"A", b"=", b"1"], [b"", b"", b""], [b"last", b"", b""]]).unwrap();
        let shown: Vec<&CStr> = strings.pointers[..3]
            .iter()
            // SAFETY: each points to a text that ends with a zero.
            .map(|text| unsafe { CStr::from_ptr(*text) })
            .collect();
        assert_eq!(shown, [c"A=1", c"", c"last"]);
        assert!(strings.pointers[3].is_null());
        assert!(of(&[]).unwrap().pointers[0].is_null());
        let refused = of(&[[b"a", b"", b""], [b"B", b"=", b"x\0y"]]).unwrap_err();
        assert_eq!(refused.errno, libc::EINVAL);
    }

    #[test]
    fn a_command_is_looked_up_like_a_shell_does() {
        let files = |program: &str, path: &str| -> Vec<String> {
            look_up(program.as_bytes(), path.as_bytes())
                .into_iter()
                .map(|file| String::from_utf8(file).unwrap())
                .collect()
        };
        assert_eq!(files("/bin/x", "/a:/b"), ["/bin/x"]);
        assert_eq!(files("x", "/a::/b"), ["/a/x", "./x", "/b/x"]);
    }
}
