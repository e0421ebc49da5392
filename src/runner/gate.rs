//! Command gates: a program that looks at a task's state and says yes or no by its exit code.
//!
//! It gets the state on stdin, as a file, so that one that never reads it blocks nobody. It runs
//! in the root, in a process group of its own, without a shell, with the few variables that a
//! specialist also gets. When it takes too long, or ends and leaves others behind, its group is
//! ended. What it printed is read by a thread that keeps the end only and is not waited for: a
//! grandchild that got away may hold the pipe open for ever.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::config::Gate;
use crate::runner::launch::PASSED;

/// How much of what it printed is kept.
const TAIL: usize = 2000;

/// How long to wait for the last of its output once its group is gone.
const LAST_WORDS: Duration = Duration::from_millis(200);

const GLANCE: Duration = Duration::from_millis(5);

/// How a gate is run.
#[derive(Debug, Clone)]
pub struct Terms<'a> {
    pub root: &'a Path,
    pub task_id: &'a str,
    pub timeout: Duration,
    pub kill_grace: Duration,
}

/// What a gate said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub passed: bool,
    pub reason: String,
}

/// Runs a gate on a state. That it can't be run is a no, with the reason.
pub fn run(gate: &Gate, state: &[u8], terms: &Terms<'_>) -> Said {
    match try_run(gate, state, terms) {
        Ok(said) => said,
        Err(error) => {
            let program = gate.command.first().map_or("", String::as_str);
            let reason = format!("{program:?} could not be run: {error}");
            let passed = false;
            Said { passed, reason }
        }
    }
}

fn try_run(gate: &Gate, state: &[u8], terms: &Terms<'_>) -> io::Result<Said> {
    let mut words = gate.command.iter();
    let program = match words.next() {
        Some(word) if word.contains('/') => terms.root.join(word).into_os_string(),
        Some(word) => OsString::from(word),
        None => return Err(io::Error::other("it has no command")),
    };
    let (printed, pipe) = io::pipe()?;
    let mut command = Command::new(program);
    command
        .args(words)
        .current_dir(terms.root)
        .env_clear()
        .envs(
            PASSED
                .iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        )
        .env("HANDOFF_ROOT", terms.root)
        .env("HANDOFF_TASK_ID", terms.task_id)
        .env("HANDOFF_GATE", &gate.name)
        .stdin(as_file(state)?)
        .stdout(pipe.try_clone()?)
        .stderr(pipe)
        .process_group(0);
    let mut child = command.spawn()?;
    // The command keeps the writing ends of the pipe open for as long as it lives.
    drop(command);
    let (tail, done) = listen(printed);
    let ended = wait(&mut child, terms);
    let _ = done.recv_timeout(LAST_WORDS);
    let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
    let tail = String::from_utf8_lossy(&tail);
    Ok(verdict(ended?, tail.trim(), terms.timeout))
}

/// The state as a file without a name.
fn as_file(state: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("state", MemfdFlags::CLOEXEC)?);
    file.write_all(state)?;
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
fn wait(child: &mut Child, terms: &Terms<'_>) -> io::Result<Option<ExitStatus>> {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return Err(io::Error::other("it has no process id"));
    };
    let in_time = has_ended(pid, terms.timeout);
    if !in_time {
        let _ = kill_process_group(pid, Signal::TERM);
        has_ended(pid, terms.kill_grace);
    }
    // It is not buried yet, so its group's number can't be another's by now.
    let _ = kill_process_group(pid, Signal::KILL);
    let status = child.wait()?;
    Ok(in_time.then_some(status))
}

/// Whether it ends within `most`. It is left to be buried.
fn has_ended(pid: Pid, most: Duration) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let begun = Instant::now();
    loop {
        if !matches!(
            waitid(WaitId::Pid(pid), options),
            Ok(None) | Err(Errno::INTR)
        ) {
            return true;
        }
        if begun.elapsed() >= most {
            return false;
        }
        std::thread::sleep(GLANCE);
    }
}

fn verdict(ended: Option<ExitStatus>, tail: &str, timeout: Duration) -> Said {
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
        reason = format!("{reason}; its last words: {tail}");
    }
    Said { passed, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(words: &[&str]) -> Gate {
        Gate {
            name: "g".to_owned(),
            phases: vec!["p".to_owned()],
            command: words.iter().map(ToString::to_string).collect(),
        }
    }

    fn said(words: &[&str], state: &[u8], timeout_ms: u64) -> Said {
        let dir = tempfile::tempdir().unwrap();
        let terms = Terms {
            root: dir.path(),
            task_id: "t",
            timeout: Duration::from_millis(timeout_ms),
            kill_grace: Duration::from_millis(200),
        };
        run(&gate(words), state, &terms)
    }

    #[test]
    fn the_exit_code_decides() {
        assert!(said(&["true"], b"{}", 20_000).passed);
        let no = said(
            &["sh", "-c", "echo out; echo why >&2; exit 3"],
            b"{}",
            20_000,
        );
        assert!(!no.passed);
        assert_eq!(no.reason, "exited with 3; its last words: out\nwhy");
        let none = said(&["./none"], b"{}", 20_000);
        assert!(
            !none.passed && none.reason.contains("./none"),
            "{}",
            none.reason
        );
    }

    #[test]
    fn it_reads_the_state_and_may_leave_it() {
        let check = ["sh", "-c", "test \"$(wc -c)\" -eq 1000000"];
        assert!(said(&check, &vec![b' '; 1_000_000], 20_000).passed);
        assert!(said(&["true"], &vec![b' '; 1_000_000], 20_000).passed);
    }

    #[test]
    fn one_that_hangs_is_ended_with_its_group() {
        let begun = Instant::now();
        let no = said(
            &["sh", "-c", "trap '' TERM; sleep 60 & wait; sleep 60"],
            b"",
            50,
        );
        assert!(
            !no.passed && no.reason.contains("took longer than 50ms"),
            "{}",
            no.reason
        );
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn one_that_leaves_a_child_behind_is_not_waited_for() {
        let begun = Instant::now();
        assert!(said(&["sh", "-c", "setsid sleep 5 & exit 0"], b"", 20_000).passed);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn much_talk_is_cut_to_its_end() {
        let script = "yes word | head -c 100000; echo last; exit 1";
        let no = said(&["sh", "-c", script], b"", 20_000);
        assert!(no.reason.ends_with("last") && no.reason.len() < 2100);
    }
}
