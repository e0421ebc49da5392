//! The agent's process: it gets the prompt on stdin, and each line of its stdout is passed on.

use std::collections::VecDeque;
use std::io::{BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::adapter::{Call, Exit};
use crate::lines::{Line, next_line};
use crate::trouble::{Kind, Trouble};

/// The longest line of a stream that is read. A longer one is passed over, with a word in the log.
const MOST_LINE: usize = 16 * 1024 * 1024;

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
    let writer = feed(&mut child, prompt);
    let tail = Arc::new(Mutex::new(VecDeque::new()));
    let stderr = follow_stderr(&mut child, Arc::clone(&tail));
    if let Some(stdout) = child.stdout.take() {
        follow(BufReader::new(stdout), on_line);
    }
    let status = child
        .wait()
        .map_err(|error| Trouble::new(Kind::Other, error.to_string()))?;
    for thread in [writer, stderr].into_iter().flatten() {
        drop(thread.join());
    }
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

fn follow(mut stdout: BufReader<ChildStdout>, on_line: &mut dyn FnMut(Option<&str>)) {
    loop {
        match next_line(&mut stdout, MOST_LINE) {
            Ok(Some(Line::Text(line))) => on_line(Some(&line)),
            Ok(Some(Line::TooLong(length))) => {
                eprintln!("{}", too_long(length));
                on_line(None);
            }
            Ok(None) => return,
            Err(error) => {
                eprintln!("(can't read the agent's output: {error})");
                return;
            }
        }
    }
}

fn too_long(length: u64) -> String {
    format!("(skipped a line of {length} bytes)")
}

type Thread = Option<thread::JoinHandle<()>>;

/// Gives the agent its prompt. One that does not read it all is not waited for.
fn feed(child: &mut Child, prompt: &str) -> Thread {
    let mut stdin = child.stdin.take()?;
    let prompt = prompt.to_owned();
    Some(thread::spawn(move || {
        // An agent that ended early closed its stdin; how it ended says why.
        drop(stdin.write_all(prompt.as_bytes()));
    }))
}

/// Passes stderr on to the log and keeps its end for messages.
fn follow_stderr(child: &mut Child, tail: Arc<Mutex<VecDeque<String>>>) -> Thread {
    let stderr = child.stderr.take()?;
    Some(thread::spawn(move || {
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
    }))
}
