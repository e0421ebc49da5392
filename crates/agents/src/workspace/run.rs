//! A command in a worktree: made ready before, committed after, whatever came of the command.

use std::fs;
use std::io::{ErrorKind, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Map, Value, json};

use super::git::{Repository, WorkspaceError};
use super::handed::hand_out;
use super::loose::loose;
use super::tree::{Plan, Tree, ready};
use crate::changes::Snapshot;
use crate::process::outlive_signals;

/// The most that is read of what the command prints, to add to its result.
const MOST_RESULT: usize = 64 * 1024 * 1024;
const PIECE: usize = 64 * 1024;

/// More than a pipe holds: what is read beyond that after the command's end is not the command's.
const MOST_IN_PIPE: usize = 1024 * 1024;

/// How long after a silence it is asked whether the command has ended.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// What a queue keeps in its root, which may be inside of the repository.
const QUEUE: [&str; 6] = [
    "handoffs",
    ".handoffd",
    "audit",
    "artifacts",
    "context",
    "worktrees",
];

/// How many files a warning names.
const NAMED: usize = 5;

/// What is to be run, and where.
#[derive(Debug, Clone)]
pub struct Order {
    pub root: PathBuf,
    pub repository: PathBuf,
    pub base: Option<String>,
    pub copy: Vec<String>,
    pub setup: Vec<String>,
    pub command: Vec<String>,
    /// What it prints is not a result, as of a command that verifies.
    pub plain: bool,
    /// Reads a result as the queue would.
    pub read_result: fn(&[u8]) -> Printed,
}

/// What a command left as its output.
#[derive(Debug, Clone, PartialEq)]
pub enum Printed {
    /// A result, with the text around it and what somebody should know of that.
    Result {
        result: Map<String, Value>,
        text: Option<String>,
        remark: Option<String>,
    },
    /// A text, with what somebody should know of it.
    Text {
        text: String,
        remark: Option<String>,
    },
    /// Began like a result and is none.
    Broken {
        why: String,
        text: String,
    },
    /// More than is read: it stays as it is, for the queue to refuse.
    Unusable,
    Nothing,
}

/// What of the record a workspace needs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Handoff {
    id: String,
    attempt: u32,
    line: String,
    from: Option<String>,
}

/// How it ended, for the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub code: u8,
}

/// Runs the command. The record comes in `record`; `out` gets the result.
pub fn run(order: &Order, record: &[u8], out: &mut dyn Write) -> std::io::Result<Ended> {
    match in_tree(order, record, out) {
        Ok(ended) => Ok(ended),
        Err(error) if order.plain => {
            eprintln!("{error}");
            // EX_TEMPFAIL and EX_CONFIG: whether trying again may help.
            let code = if error.passing { 75 } else { 78 };
            Ok(Ended { code })
        }
        Err(error) => {
            let result = json!({
                "status": "failed",
                "summary": error.message,
                "error": {
                    "code": "WORKSPACE", "message": error.message, "retryable": error.passing,
                },
            });
            writeln!(out, "{result}")?;
            Ok(Ended { code: 0 })
        }
    }
}

fn in_tree(order: &Order, record: &[u8], out: &mut dyn Write) -> Result<Ended, WorkspaceError> {
    let handoff = Handoff::of(record)?;
    let repository = Repository::open(&order.repository)?;
    let plan = Plan {
        folder: order.root.join("worktrees"),
        line: handoff.line.clone(),
        from: handoff.from.clone(),
        base: order.base.clone(),
        copy: order.copy.clone(),
        setup: order.setup.clone(),
    };
    let mut warnings: Vec<String> = Vec::new();
    let tree = ready(&repository, &plan, &mut warnings)?;
    warnings.extend(tree.back_on_branch(&repository)?);
    // In a tree that nobody has worked in, only the set-up can have changed a file: that belongs to this handoff.
    let (left, said) = if tree.is_unused() {
        tree.begin(&repository, &handoff.id)?;
        ("set-up", "what the set-up changed")
    } else {
        ("interrupted work", "the work of an interrupted attempt")
    };
    if tree.commit_all(
        &repository,
        &format!("{}: {left}", handoff.id),
        &mut warnings,
    )? {
        eprintln!("(committed {said})");
    }
    let base = tree.begin(&repository, &handoff.id)?;
    let before = Snapshot::take(&repository.top);
    outlive_signals();
    let (status, printed) = execute(order, record, &tree, out)?;
    if let (Some(before), Some(after)) = (&before, Snapshot::take(&repository.top)) {
        warnings.extend(outside(before, &after, &repository.top, &order.root));
    }
    warnings.extend(tree.back_on_branch(&repository)?);
    let message = format!("{}: attempt {}", handoff.id, handoff.attempt);
    tree.commit_all(&repository, &message, &mut warnings)?;
    warnings.extend(loose(&tree.path).into_iter().map(|name| {
        format!(
            "{name} in the worktree is a repository with work that is nowhere else: push it from there, or it \
             goes with the worktree"
        )
    }));
    let standing = tree.standing(&base)?;
    repository.sync()?;
    // Two looks at one thing say it twice.
    warnings.dedup();
    for warning in &warnings {
        eprintln!("(warning: {warning})");
    }
    // What verifies says no more than it found.
    if order.plain {
        return Ok(Ended {
            code: exit_code(status),
        });
    }
    // The last words of a command that failed are its own.
    if status.success() {
        eprintln!(
            "(on {} at {}:{})",
            standing.branch,
            standing.commit.get(..12).unwrap_or(&standing.commit),
            if standing.diffstat.is_empty() {
                " no change".to_owned()
            } else {
                format!(" {}", standing.diffstat)
            }
        );
    }
    if let Some(printed) = printed {
        hand_out(
            order.read_result,
            &printed,
            status.success(),
            &standing,
            warnings,
            out,
        )?;
    }
    Ok(Ended {
        code: exit_code(status),
    })
}

impl Handoff {
    fn of(record: &[u8]) -> Result<Self, WorkspaceError> {
        let doc: Value = serde_json::from_slice(record).map_err(|_| {
            WorkspaceError::lasting(
                "stdin is not a record: run this as a specialist, or pipe a record into it",
            )
        })?;
        let own = doc.get("handoffd");
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let id = text(doc.get("handoff_id"))
            .or_else(|| std::env::var("HANDOFF_ID").ok())
            .filter(|id| !id.is_empty())
            .ok_or_else(|| WorkspaceError::lasting("the record has no handoff_id"))?;
        let tree = own.and_then(|own| own.get("worktree"));
        let of_tree = |key: &str| text(tree.and_then(|tree| tree.get(key)));
        let attempt = std::env::var("HANDOFF_ATTEMPT").ok();
        Ok(Self {
            line: of_tree("line")
                .or_else(|| text(own.and_then(|own| own.get("chain"))))
                .unwrap_or_else(|| id.clone()),
            from: of_tree("from"),
            attempt: attempt.and_then(|it| it.parse().ok()).unwrap_or(1),
            id,
        })
    }
}

/// Runs the command in the tree. What it prints is kept to add to it, and none where that is not to be
/// done: more than fits goes on to `out` as it comes, for the queue to judge.
fn execute(
    order: &Order,
    record: &[u8],
    tree: &Tree,
    out: &mut dyn Write,
) -> Result<(ExitStatus, Option<Vec<u8>>), WorkspaceError> {
    let Some((program, args)) = order.command.split_first() else {
        return Err(WorkspaceError::lasting("the command is missing"));
    };
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(&tree.path)
        .env("HANDOFF_WORKSPACE", &tree.path)
        .stdin(Stdio::piped());
    if !order.plain {
        command.stdout(Stdio::piped());
    }
    let mut child = command.spawn().map_err(|error| {
        WorkspaceError::lasting(format!("can't start the command {program}: {error}"))
    })?;
    let stdin = child.stdin.take();
    let record = record.to_vec();
    // Nobody waits for it: a process in the background may hold the command's stdin and never read it.
    thread::spawn(move || {
        if let Some(mut stdin) = stdin {
            // A command that does not read its record is free to.
            drop(stdin.write_all(&record));
        }
    });
    let lost =
        |error: std::io::Error| WorkspaceError::passing(format!("its output or end: {error}"));
    let printed = match child.stdout.take() {
        Some(stdout) => keep(stdout, &mut child, out).map_err(lost)?,
        None => None,
    };
    let status = child.wait().map_err(lost)?;
    Ok((status, printed))
}

/// Reads what a command prints, until it has ended: a process that it left in the background may hold its
/// stdout for ever. Each piece is a sign of life, which the queue would otherwise see itself.
fn keep(
    mut stdout: ChildStdout,
    child: &mut Child,
    out: &mut dyn Write,
) -> std::io::Result<Option<Vec<u8>>> {
    let heartbeat = std::env::var_os("HANDOFF_HEARTBEAT").map(PathBuf::from);
    let mut printed = Vec::new();
    let mut passes = false;
    let mut piece = vec![0; PIECE];
    let mut after_end = 0;
    while after_end <= MOST_IN_PIPE {
        // Asked first: what it printed before its end is in the pipe by then.
        let has_ended = child.try_wait()?.is_some();
        if !is_ready(&stdout)? {
            if has_ended {
                break;
            }
            continue;
        }
        let length = match stdout.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        if length == 0 {
            break;
        }
        if has_ended {
            after_end += length;
        }
        if let Some(path) = &heartbeat {
            beat(path);
        }
        printed.extend_from_slice(&piece[..length]);
        passes |= printed.len() > MOST_RESULT;
        if passes {
            out.write_all(&printed)?;
            printed.clear();
        }
    }
    Ok((!passes).then_some(printed))
}

/// Waits a moment for something to read, or the end of it.
fn is_ready(stdout: &ChildStdout) -> std::io::Result<bool> {
    let mut wanted = [PollFd::new(stdout, PollFlags::IN)];
    match poll(&mut wanted, Some(&LOOK_AGAIN)) {
        Err(Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

/// Nothing depends on a single sign of life.
fn beat(path: &Path) {
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    if let Ok(file) = file {
        drop(file.set_modified(crate::clock::now()));
    }
}

/// A signal that ended the command counts as a shell counts it.
fn exit_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Files of the repository's own work tree that changed while the command ran.
/// The folders of the queue itself may be among them.
fn outside(before: &Snapshot, after: &Snapshot, top: &Path, root: &Path) -> Option<String> {
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let mut changed = before.changed_until(after, top);
    changed.retain(|file| {
        let file = top.join(file);
        !QUEUE.iter().any(|name| file.starts_with(root.join(name)))
    });
    let named = changed.iter().take(NAMED);
    let named: Vec<&str> = named.map(String::as_str).collect();
    let more = changed.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    (!changed.is_empty()).then(|| {
        format!(
            "files outside the worktree changed during the attempt, in {}: {}{more}",
            top.display(),
            named.join(", ")
        )
    })
}
