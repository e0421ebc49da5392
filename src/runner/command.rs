//! One helper command, run to its end beside the keeper: command gates and notifications.
//!
//! It gets its input on stdin, as a file, so that one that never reads it blocks nobody. It runs
//! in the root, in a process group of its own, without a shell, with the few variables that a
//! specialist also gets. When it takes too long, or ends and leaves others behind, its group is
//! ended. What it printed is read by a thread that keeps the end only and is not waited for: a
//! grandchild that got away may hold the pipe open for ever.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::protocol::error::QUOTED;
use crate::runner::launch::{PASSED, command_line};

/// How much of what it printed is kept.
const TAIL: usize = 2000;

/// How long to wait for the last of its output once its group is gone.
const LAST_WORDS: Duration = Duration::from_millis(200);

const GLANCE: Duration = Duration::from_millis(5);

/// What is run, and how.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    pub command: &'a [String],
    pub root: &'a Path,
    /// What it finds in its environment besides the usual.
    pub env: &'a [(&'a str, &'a str)],
    pub input: &'a [u8],
    pub timeout: Duration,
    pub kill_grace: Duration,
    /// Set when nobody will wait any longer: it is ended as if its time were over.
    pub give_up: Option<&'a AtomicBool>,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub passed: bool,
    /// How, with its last words where it did not pass.
    pub reason: String,
}

/// Runs a command to its end. Its process group is gone afterwards.
pub fn run(call: &Call<'_>) -> io::Result<Ended> {
    let words = command_line(call.command, call.root);
    let Some((program, rest)) = words.split_first() else {
        return Err(io::Error::other("it has no command"));
    };
    let passed = PASSED
        .iter()
        .filter_map(|name| Some((OsStr::new(name), std::env::var_os(name)?)));
    let own = call
        .env
        .iter()
        .map(|(name, value)| (OsStr::new(name), OsString::from(value)));
    let (printed, pipe) = io::pipe()?;
    let mut command = Command::new(program);
    command
        .args(rest)
        .current_dir(call.root)
        .env_clear()
        .envs(passed)
        .env("HANDOFF_ROOT", call.root)
        .envs(own)
        .stdin(as_file(call.input)?)
        .stdout(pipe.try_clone()?)
        .stderr(pipe)
        .process_group(0);
    let mut child = command.spawn()?;
    // The command keeps the writing ends of the pipe open for as long as it lives.
    drop(command);
    let (tail, done) = listen(printed);
    let ended = wait(&mut child, call);
    let _ = done.recv_timeout(LAST_WORDS);
    let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
    let tail = String::from_utf8_lossy(&tail);
    Ok(verdict(ended?, tail.trim(), call.timeout))
}

/// Bytes as a file without a name.
fn as_file(input: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(input)?;
    file.rewind()?;
    Ok(file)
}

type Tail = Arc<Mutex<Vec<u8>>>;

fn listen(mut printed: impl Read + Send + 'static) -> (Tail, Receiver<()>) {
    let tail = Tail::default();
    let (tell, done) = channel();
    let keep = Arc::clone(&tail);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(got @ 1..) = printed.read(&mut buffer) {
            let mut kept = keep.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(&buffer[..got]);
            let over = kept.len().saturating_sub(TAIL);
            kept.drain(..over);
        }
        let _ = tell.send(());
    });
    (tail, done)
}

/// Its exit status, or none if it had to be ended. Its group is gone afterwards.
fn wait(child: &mut Child, call: &Call<'_>) -> io::Result<Option<ExitStatus>> {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return Err(io::Error::other("it has no process id"));
    };
    let in_time = has_ended(pid, call.timeout, call.give_up);
    if !in_time {
        let _ = kill_process_group(pid, Signal::TERM);
        has_ended(pid, call.kill_grace, None);
    }
    // It is not buried yet, so its group's number can't be another's by now.
    let _ = kill_process_group(pid, Signal::KILL);
    let status = child.wait()?;
    Ok(in_time.then_some(status))
}

/// Whether it ends within `most`. It is left to be buried.
fn has_ended(pid: Pid, most: Duration, give_up: Option<&AtomicBool>) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let begun = Instant::now();
    loop {
        if !matches!(
            waitid(WaitId::Pid(pid), options),
            Ok(None) | Err(Errno::INTR)
        ) {
            return true;
        }
        let over = give_up.is_some_and(|flag| flag.load(Ordering::SeqCst));
        if over || begun.elapsed() >= most {
            return false;
        }
        std::thread::sleep(GLANCE);
    }
}

fn verdict(ended: Option<ExitStatus>, tail: &str, timeout: Duration) -> Ended {
    let passed = ended.is_some_and(|status| status.success());
    let mut reason = match ended {
        None => format!("took longer than {}", humantime::format_duration(timeout)),
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exited with {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "ended".to_owned(),
        },
    };
    if !passed && !tail.is_empty() {
        reason = format!("{reason}{QUOTED}{tail}");
    }
    Ended { passed, reason }
}
