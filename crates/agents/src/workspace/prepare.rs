//! What a new worktree gets before anybody works in it: copied files, and the command that sets it up.

use std::fs;
use std::path::{Component, Path};
use std::process::{Command, Stdio};

use super::git::{Repository, WorkspaceError, ask};
use super::hold::Hold;
use super::tree::Plan;

/// Copies a file of the repository that git does not keep.
pub fn copy(from: &Path, to: &Path, file: &str) -> Result<(), WorkspaceError> {
    let inside = Path::new(file)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if file.is_empty() || !inside {
        return Err(WorkspaceError::lasting(format!(
            "`copy` names {file:?}; it must be a file below the repository"
        )));
    }
    let (source, target) = (from.join(file), to.join(file));
    let copied = (|| {
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(&source, &target)
    })();
    copied.map(|_| ()).map_err(|error| {
        WorkspaceError::lasting(format!(
            "can't copy {file} (in `copy`) from {}: {error}",
            from.display()
        ))
    })
}

/// Keeps the copied files out of commits that the command in the tree makes itself: where git would take
/// one, the repository's own list of what to leave alone gets it. Nothing that is tracked is hidden.
pub fn exclude(
    repository: &Repository,
    _: &Hold,
    path: &Path,
    files: &[String],
) -> Result<(), WorkspaceError> {
    let known = |args: &[&str]| ask(path, args).is_some();
    let mut lines: Vec<String> = files
        .iter()
        .filter(|file| !known(&["check-ignore", "--quiet", "--", file]))
        .filter(|file| !known(&["ls-files", "--error-unmatch", "--", file]))
        .map(|file| format!("/{file}\n"))
        .collect();
    if lines.is_empty() {
        return Ok(());
    }
    let info = repository.common.join("info");
    let list = info.join("exclude");
    let text = fs::read_to_string(&list).unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        lines.insert(0, "\n".to_owned());
    }
    let written = fs::create_dir_all(&info).and_then(|()| fs::write(&list, text + &lines.concat()));
    written.map_err(|error| WorkspaceError::passing(format!("{}: {error}", list.display())))
}

/// Runs the set-up, with its output in the log of the attempt.
pub fn set_up(plan: &Plan, path: &Path) -> Result<(), WorkspaceError> {
    let Some((program, args)) = plan.setup.split_first() else {
        return Ok(());
    };
    let words = plan.setup.join(" ");
    eprintln!("(preparing the worktree: {words})");
    let status = Command::new(program)
        .args(args)
        .current_dir(path)
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .map_err(|error| {
            WorkspaceError::lasting(format!("can't start `setup` ({words}): {error}"))
        })?;
    if status.success() {
        return Ok(());
    }
    Err(WorkspaceError::passing(format!(
        "`setup` ({words}) failed with {status}; read its output in the attempt's log"
    )))
}
