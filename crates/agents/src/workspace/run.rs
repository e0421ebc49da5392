//! A command in a worktree: made ready before, committed after, whatever came of the command.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use serde_json::{Map, Value, json};

use super::commit::Standing;
use super::git::{Repository, WorkspaceError};
use super::tree::{Plan, Tree, ready};
use crate::changes::Snapshot;
use crate::process::outlive_signals;

/// The most that is read of what the command prints, to add to its result.
const MOST_RESULT: u64 = 64 * 1024 * 1024;

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

/// What a command printed.
#[derive(Debug, Clone, PartialEq)]
pub enum Printed {
    Result(Map<String, Value>),
    /// Something else, which stays as it is.
    Other,
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
pub fn run(order: &Order, record: &[u8], out: &mut dyn std::io::Write) -> std::io::Result<Ended> {
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

fn in_tree(
    order: &Order,
    record: &[u8],
    out: &mut dyn std::io::Write,
) -> Result<Ended, WorkspaceError> {
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
    let tree = ready(&repository, &plan)?;
    let mut warnings: Vec<String> = Vec::new();
    warnings.extend(tree.back_on_branch(&repository)?);
    if tree.commit_all(&format!("{}: interrupted work", handoff.id))? {
        eprintln!("(committed the work of an interrupted attempt)");
    }
    let base = tree.begin(&handoff.id)?;
    let before = Snapshot::take(&repository.top);
    outlive_signals();
    let (status, printed) = execute(order, record, &tree)?;
    if let (Some(before), Some(after)) = (&before, Snapshot::take(&repository.top)) {
        warnings.extend(outside(before, &after, &repository.top));
    }
    warnings.extend(tree.back_on_branch(&repository)?);
    let message = format!("{}: attempt {}", handoff.id, handoff.attempt);
    tree.commit_all(&message)?;
    let standing = tree.standing(&base)?;
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
    if !order.plain {
        hand_out(order, &printed, &standing, warnings, out)?;
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

/// Runs the command in the tree. What it prints is kept, unless nobody asks for it.
fn execute(
    order: &Order,
    record: &[u8],
    tree: &Tree,
) -> Result<(ExitStatus, Vec<u8>), WorkspaceError> {
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
    let feeder = thread::spawn(move || {
        if let Some(mut stdin) = stdin {
            // A command that does not read its record is free to.
            drop(stdin.write_all(&record));
        }
    });
    let mut printed = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let read = stdout.take(MOST_RESULT).read_to_end(&mut printed);
        read.map_err(|error| WorkspaceError::passing(format!("its output: {error}")))?;
    }
    let status = child
        .wait()
        .map_err(|error| WorkspaceError::passing(format!("its end: {error}")))?;
    drop(feeder.join());
    Ok((status, printed))
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
fn outside(before: &Snapshot, after: &Snapshot, top: &Path) -> Option<String> {
    let changed = before.changed_until(after, top);
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

/// Adds branch, base, commit and what changed to the result, wherever the command left it.
fn hand_out(
    order: &Order,
    printed: &[u8],
    standing: &Standing,
    warnings: Vec<String>,
    out: &mut dyn std::io::Write,
) -> Result<(), WorkspaceError> {
    let failed =
        |error: std::io::Error| WorkspaceError::passing(format!("can't write the result: {error}"));
    let file = std::env::var_os("HANDOFF_RESULT").map(PathBuf::from);
    let in_file = file.as_ref().and_then(|file| fs::read(file).ok());
    if let (Some(path), Some(bytes)) = (&file, &in_file)
        && let Printed::Result(mut result) = (order.read_result)(bytes)
    {
        add(&mut result, standing, warnings);
        let temporary = path.with_extension("workspace.tmp");
        fs::write(&temporary, format!("{}\n", Value::Object(result))).map_err(failed)?;
        crate::session::replace(&temporary, path).map_err(failed)?;
        return out.write_all(printed).map_err(failed);
    }
    let mut result = match (order.read_result)(printed) {
        Printed::Result(result) => result,
        // A text stays a text: the branch is named where a reader of the record finds it.
        Printed::Other => Map::from_iter([(
            "output".to_owned(),
            json!({ "text": String::from_utf8_lossy(printed) }),
        )]),
        Printed::Nothing => Map::new(),
    };
    add(&mut result, standing, warnings);
    writeln!(out, "{}", Value::Object(result)).map_err(failed)
}

fn add(result: &mut Map<String, Value>, standing: &Standing, warnings: Vec<String>) {
    let mut output = match result.shift_remove("output") {
        Some(Value::Object(output)) => output,
        Some(Value::Null) | None => Map::new(),
        Some(other) => Map::from_iter([("value".to_owned(), other)]),
    };
    for (key, value) in [
        ("branch", &standing.branch),
        ("base", &standing.base),
        ("commit", &standing.commit),
        ("diffstat", &standing.diffstat),
    ] {
        output.insert(key.to_owned(), value.clone().into());
    }
    result.insert("output".to_owned(), Value::Object(output));
    if !warnings.is_empty() {
        let mut all = match result.shift_remove("warnings") {
            Some(Value::Array(theirs)) => theirs,
            Some(Value::Null) | None => Vec::new(),
            Some(other) => vec![other],
        };
        all.extend(warnings.into_iter().map(Value::String));
        result.insert("warnings".to_owned(), Value::Array(all));
    }
}
