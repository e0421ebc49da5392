//! What a new worktree gets before anybody works in it: copied files, and the command that sets it up.

use std::fs;
use std::path::{Component, Path};
use std::process::{Command, Stdio};

use super::git::WorkspaceError;
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
