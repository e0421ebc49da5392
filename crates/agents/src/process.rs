//! The agent's process: it gets the prompt on stdin, and each line of its stdout is passed on.

use std::collections::VecDeque;
use std::io::{BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::adapter::{Call, Exit};
use crate::lines::{Line, next_line};
use crate::trouble::{Kind, Trouble};

/// The longest line of a stream that is read. A longer one is passed over, with a word in the log.
const MOST_LINE: usize = 16 * 1024 * 1024;

/// How many lines may be read before they are looked at.
const LINES_AHEAD: usize = 4;

/// How long an agent that has ended may still be read. What it left running may hold its pipes open.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How many lines of stderr are kept for a message.
const STDERR_LINES: usize = 20;

/// Runs a call to its end. `on_line` gets each line of stdout; none stands for one that was too
/// long.
pub fn run(
    call: &Call,
    prompt: &str,
    on_line: &mut dyn FnMut(Option<&str>),
) -> Result<Exit, Trouble> {
    let mut child = Command::new(&call.program)
        .args(&call.args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Trouble::new(Kind::NotFound, error.to_string()))?;
    outlive_signals();
    feed(&mut child, prompt);
    let tail = Arc::new(Mutex::new(VecDeque::new()));
    let stderr = follow_stderr(&mut child, Arc::clone(&tail));
    if let Some(stdout) = child.stdout.take() {
        let (lines, heard) = mpsc::sync_channel(LINES_AHEAD);
        thread::spawn(move || follow(BufReader::new(stdout), &lines));
        let mut ended = false;
        loop {
            match heard.recv_timeout(LAST_WORDS) {
                Ok(line) => on_line(line.as_deref()),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if ended => break,
                Err(RecvTimeoutError::Timeout) => ended = matches!(child.try_wait(), Ok(Some(_))),
            }
        }
    }
    let status = child
        .wait()
        .map_err(|error| Trouble::new(Kind::Other, error.to_string()))?;
    // It answers once all of stderr is read.
    _ = stderr.recv_timeout(LAST_WORDS);
    let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
    let lines: Vec<String> = tail.iter().cloned().collect();
    Ok(Exit {
        code: status.code(),
        stderr: lines.join("\n"),
    })
}

/// The whole tree gets SIGTERM when an attempt is ended. The agent ends by it; the adapter stays to read
/// what the agent still says.
pub fn outlive_signals() {
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // Without the handler the adapter ends with the agent, and its last words are lost.
        drop(signal_hook::flag::register(signal, Arc::default()));
    }
}

fn follow(mut stdout: BufReader<ChildStdout>, lines: &SyncSender<Option<String>>) {
    loop {
        let line = match next_line(&mut stdout, MOST_LINE) {
            Ok(Some(Line::Text(line))) => Some(line),
            Ok(Some(Line::TooLong(length))) => {
                eprintln!("{}", too_long(length));
                None
            }
            Ok(None) => return,
            Err(error) => {
                eprintln!("(can't read the agent's output: {error})");
                return;
            }
        };
        if lines.send(line).is_err() {
            return;
        }
    }
}

fn too_long(length: u64) -> String {
    format!("(skipped a line of {length} bytes)")
}

/// Gives the agent its prompt. One that does not read it all is not waited for.
fn feed(child: &mut Child, prompt: &str) {
    let Some(mut stdin) = child.stdin.take() else {
        return;
    };
    let prompt = prompt.to_owned();
    thread::spawn(move || {
        // An agent that ended early closed its stdin; how it ended says why.
        drop(stdin.write_all(prompt.as_bytes()));
    });
}

/// Passes stderr on to the log and keeps its end for messages. What it returns is closed at the end.
fn follow_stderr(child: &mut Child, tail: Arc<Mutex<VecDeque<String>>>) -> Receiver<()> {
    let (open, closed) = mpsc::channel();
    let Some(stderr) = child.stderr.take() else {
        return closed;
    };
    thread::spawn(move || {
        let _open: mpsc::Sender<()> = open;
        let mut reader = BufReader::new(stderr);
        while let Ok(Some(line)) = next_line(&mut reader, MOST_LINE) {
            let line = match line {
                Line::Text(line) => line,
                Line::TooLong(length) => too_long(length),
            };
            eprintln!("{line}");
            let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
            if tail.len() == STDERR_LINES {
                tail.pop_front();
            }
            tail.push_back(line);
        }
    });
    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Call {
        Call {
            program: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
        }
    }

    #[test]
    fn what_an_agent_left_running_does_not_keep_its_answer() {
        // The one that is left has all three pipes, and lasts longer than any test.
        let call = shell("cat; echo why >&2; sleep 600 & echo $!; exit 3");
        let mut lines = Vec::new();
        let exit = run(&call, "prompt\n", &mut |line| {
            lines.push(line.unwrap_or_default().to_owned());
        })
        .unwrap();
        assert_eq!((exit.code, exit.stderr.as_str()), (Some(3), "why"));
        assert_eq!(lines[0], "prompt");
        let left = Command::new("kill").arg(&lines[1]).status().unwrap();
        assert!(left.success(), "it still ran");
    }

    #[test]
    fn an_agent_that_does_not_read_its_prompt_is_not_waited_for() {
        let prompt = "x".repeat(1_000_000);
        let exit = run(&shell("echo done"), &prompt, &mut |_| {}).unwrap();
        assert_eq!(exit.code, Some(0));
    }
}
