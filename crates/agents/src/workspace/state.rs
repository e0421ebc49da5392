//! What is at the place of a worktree: nothing, a half-made tree, a finished one, or something that is
//! nobody's to touch.
//!
//! Git keeps an entry for each tree in the repository. The entry decides, and not the tree's `.git` file: a
//! command in the tree can delete or replace that file, and a repository that was moved leaves it pointing
//! nowhere.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::git::{Repository, WorkspaceError, call};
use super::hold::Hold;
use super::names::PREFIX;

/// The mark of a finished tree, in its entry. It lists the copied files, one a line.
pub const MARK: &str = "handoffd-ready";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeState {
    Absent,
    /// Killed before the mark was made, or while the tree was removed: nobody's work is in it.
    Unfinished,
    /// With its entry.
    Finished(PathBuf),
}

/// Looks at a place, and repairs the link between a finished tree and its entry.
pub fn look(repository: &Repository, path: &Path) -> Result<TreeState, WorkspaceError> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => {
            return Err(WorkspaceError::lasting(format!(
                "{shown} blocks a worktree; move it away"
            )));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(TreeState::Absent),
        Err(error) => return Err(failed(path, &error)),
    }
    let link = path.join(".git");
    if fs::symlink_metadata(&link).is_ok_and(|meta| meta.is_dir()) {
        return Err(WorkspaceError::lasting(format!(
            "{shown} has become a repository of its own; move it away, then retry"
        )));
    }
    if let Some(entry) = entry_of(repository, path) {
        if !entry.join(MARK).exists() {
            return half_made(&entry, path);
        }
        relink(&link, &entry)?;
        return Ok(TreeState::Finished(entry));
    }
    let entries = repository.common.join("worktrees");
    match pointed_to(&link) {
        Some(entry) if entry.starts_with(&entries) && entry.join(MARK).exists() => {
            let recorded = recorded_in(&entry);
            if let Some(other) = recorded.filter(|other| other.exists()) {
                return Err(WorkspaceError::lasting(format!(
                    "{shown} is a copy of the worktree {}; move it away, then retry",
                    other.display()
                )));
            }
            // The root was moved.
            call(path, &["worktree", "repair"])?;
            Ok(TreeState::Finished(entry))
        }
        // Of any repository: the setting may have changed since the kill.
        Some(entry) if entry.is_dir() && !entry.join(MARK).exists() => half_made(&entry, path),
        _ if is_bare_start(path) => Ok(TreeState::Unfinished),
        _ => Err(WorkspaceError::lasting(format!(
            "{shown} is not a worktree of {}; move it away, or correct `repository`",
            repository.top.display()
        ))),
    }
}

/// A tree without its mark, unless a person made it: then it is on another branch than ours.
fn half_made(entry: &Path, path: &Path) -> Result<TreeState, WorkspaceError> {
    let head = fs::read_to_string(entry.join("HEAD")).unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let ours = format!("ref: refs/heads/{PREFIX}{name}");
    if head.trim().is_empty() || head.trim() == ours {
        return Ok(TreeState::Unfinished);
    }
    Err(WorkspaceError::lasting(format!(
        "{} is a worktree that handoffd did not make; move it away",
        path.display()
    )))
}

/// The entry that the repository has for a tree at this place.
pub fn entry_of(repository: &Repository, path: &Path) -> Option<PathBuf> {
    let wanted = resolved(path)?;
    let entries = fs::read_dir(repository.common.join("worktrees")).ok()?;
    let mut entries = entries.flatten().map(|entry| entry.path());
    entries.find(|entry| recorded_in(entry).and_then(|at| resolved(&at)) == Some(wanted.clone()))
}

/// Where an entry says that its tree is.
fn recorded_in(entry: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(entry.join("gitdir")).ok()?;
    let link = entry.join(text.trim_end_matches('\n'));
    Some(link.parent()?.to_owned()).filter(|tree| tree != entry)
}

/// The path without links. Its last part need not be there.
fn resolved(path: &Path) -> Option<PathBuf> {
    Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
}

/// What the `.git` file of a tree points to.
fn pointed_to(link: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(link).ok()?;
    let entry = text.strip_prefix("gitdir: ")?.trim_end_matches('\n');
    Some(link.parent()?.join(entry))
}

/// Makes the `.git` file of a tree say where its entry is, if it does not.
fn relink(link: &Path, entry: &Path) -> Result<(), WorkspaceError> {
    if pointed_to(link).is_some_and(|it| it.canonicalize().ok() == entry.canonicalize().ok()) {
        return Ok(());
    }
    fs::write(link, format!("gitdir: {}\n", entry.display())).map_err(|error| failed(link, &error))
}

/// Whether there is nothing but a `.git` file: git had only begun.
fn is_bare_start(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|entries| {
        entries
            .flatten()
            .all(|entry| entry.file_name() == ".git" && entry.path().is_file())
    })
}

/// Removes what is left of a tree that nobody works in, and its entry.
pub fn clear(repository: &Repository, hold: &Hold, path: &Path) -> Result<(), WorkspaceError> {
    // The `.git` file goes last, with the folder: until then the place is known for what it is.
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_name() != ".git" {
            remove_all(&entry.path())?;
        }
    }
    if let Some(entry) = entry_of(repository, path) {
        let recorded = recorded_in(&entry).unwrap_or_else(|| path.to_owned());
        // Forced twice: a tree that was killed while git made it is locked by git.
        let shown = recorded.display().to_string();
        repository.drop_unfinished(hold, path.parent().unwrap_or(path))?;
        if entry.is_dir() {
            let remove = ["worktree", "remove", "--force", "--force", &shown];
            call(&repository.top, &remove)?;
        }
    }
    remove_all(path)
}

/// Deletes a file or a folder, read-only folders too: some package managers make those.
fn remove_all(path: &Path) -> Result<(), WorkspaceError> {
    let remove = || match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    let removed = remove().or_else(|error| {
        if error.kind() == ErrorKind::PermissionDenied {
            open_up(path);
            return remove();
        }
        Err(error)
    });
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(path, &error)),
        _ => Ok(()),
    }
}

/// Makes folders writable. The next deletion says what could not be opened.
fn open_up(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        drop(fs::set_permissions(path, fs::Permissions::from_mode(0o700)));
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            open_up(&entry.path());
        }
    }
}

fn failed(path: &Path, error: &std::io::Error) -> WorkspaceError {
    WorkspaceError::passing(format!("{}: {error}", path.display()))
}
