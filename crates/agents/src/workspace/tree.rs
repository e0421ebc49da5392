//! Making a worktree, finding it again, and bringing it to rest after a kill.
//!
//! A tree is finished when its mark exists, a file in the entry that git keeps for the tree. The
//! mark is the last thing that is made, after checkout, copied files and set-up, and the first thing that
//! goes when the tree is removed. So a tree without it holds nobody's work, and is removed and made anew.

use std::fs;
use std::path::{Path, PathBuf};

use super::git::{Repository, WorkspaceError, call};
use super::hold::Hold;
use super::lock::{Busy, LineLock, lock};
use super::names::{PREFIX, branch, encode};
use super::prepare::{copy, exclude, set_up};
use super::state::{MARK, TreeState, clear, look};

/// What a new tree is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The folder of all worktrees of a root.
    pub folder: PathBuf,
    /// The line of handoffs that it belongs to.
    pub line: String,
    /// The line that it begins from, for one that runs beside others.
    pub from: Option<String>,
    /// The commit or branch at which a first line begins.
    pub base: Option<String>,
    /// Files that are copied from the repository into a new tree.
    pub copy: Vec<String>,
    /// The command that prepares a new tree.
    pub setup: Vec<String>,
}

/// A finished tree, held by a lock for as long as this value lives.
#[derive(Debug)]
pub struct Tree {
    pub line: String,
    pub path: PathBuf,
    pub branch: String,
    /// Git's entry for it.
    pub git: PathBuf,
    /// Files that were copied and are no work of anybody's.
    pub copied: Vec<String>,
    lock: LineLock,
}

impl Plan {
    pub fn path(&self) -> PathBuf {
        self.folder.join(encode(&self.line))
    }
}

/// Makes the tree of a line, or takes the one that is there. Uncommitted work is left as it is. What
/// somebody should know of a new tree goes to `warnings`.
pub fn ready(
    repository: &Repository,
    plan: &Plan,
    warnings: &mut Vec<String>,
) -> Result<Tree, WorkspaceError> {
    let lock = lock(&plan.folder, &plan.line, Busy::Wait)?;
    let path = plan.path();
    let branch = branch(&plan.line);
    let state = look(repository, &path)?;
    let tree = |git: PathBuf| Tree {
        line: plan.line.clone(),
        path: path.clone(),
        branch: branch.clone(),
        copied: copied(&git),
        git,
        lock,
    };
    if let TreeState::Finished(git) = state {
        at_rest(repository, &git, &branch);
        return Ok(tree(git));
    }
    {
        let hold = repository.hold()?;
        repository.drop_unfinished(&hold, &plan.folder)?;
        clear(repository, &hold, &path)?;
        warnings.extend(add(repository, &hold, plan, &path, &branch)?);
    }
    // The files, which may be many, are written beside others.
    call(
        &path,
        &["reset", "--quiet", "--hard", "--no-recurse-submodules"],
    )?;
    for file in &plan.copy {
        copy(&repository.top, &path, file)?;
    }
    if !plan.copy.is_empty() {
        exclude(repository, &repository.hold()?, &path, &plan.copy)?;
    }
    set_up(plan, &path)?;
    let git = call(&path, &["rev-parse", "--path-format=absolute", "--git-dir"])?;
    let git = PathBuf::from(git);
    write_whole(repository, &git.join(MARK), &plan.copy.join("\n"))?;
    Ok(tree(git))
}

/// Takes the tree of a line that is there, to look after it. `None` where there is none, or one that was
/// never finished.
pub fn existing(
    repository: &Repository,
    folder: &Path,
    line: &str,
) -> Result<Option<Tree>, WorkspaceError> {
    let path = folder.join(encode(line));
    let lock = lock(folder, line, Busy::Refuse)?;
    let TreeState::Finished(git) = look(repository, &path)? else {
        return Ok(None);
    };
    let branch = branch(line);
    at_rest(repository, &git, &branch);
    Ok(Some(Tree {
        line: line.to_owned(),
        path,
        branch,
        copied: copied(&git),
        git,
        lock,
    }))
}

impl Tree {
    /// Removes the tree, whose work is committed, and its lock. A kill anywhere leaves a tree without its
    /// mark.
    pub fn remove(self, repository: &Repository) -> Result<(), WorkspaceError> {
        let mark = self.git.join(MARK);
        fs::remove_file(&mark)
            .map_err(|error| WorkspaceError::passing(format!("{}: {error}", mark.display())))?;
        repository.sync()?;
        clear(repository, &repository.hold()?, &self.path)?;
        self.lock.remove();
        Ok(())
    }

    /// Makes sure that git calls in the tree reach its own repository: the command that worked here may
    /// have deleted or replaced the `.git` file.
    pub fn intact(&self, repository: &Repository) -> Result<(), WorkspaceError> {
        match look(repository, &self.path)? {
            TreeState::Finished(git) if git == self.git => Ok(()),
            _ => Err(WorkspaceError::passing(format!(
                "the worktree {} was deleted while a command worked in it",
                self.path.display()
            ))),
        }
    }
}

/// Removes a tree that was never finished.
pub fn discard(repository: &Repository, folder: &Path, line: &str) -> Result<(), WorkspaceError> {
    let lock = lock(folder, line, Busy::Refuse)?;
    let path = folder.join(encode(line));
    if let TreeState::Finished(_) = look(repository, &path)? {
        // An attempt finished it at this moment.
        return Ok(());
    }
    clear(repository, &repository.hold()?, &path)?;
    lock.remove();
    Ok(())
}

/// Writes a file that is there whole or not at all, after a power cut too.
pub fn write_whole(repository: &Repository, path: &Path, text: &str) -> Result<(), WorkspaceError> {
    let failed =
        |error: std::io::Error| WorkspaceError::passing(format!("{}: {error}", path.display()));
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    fs::write(&temporary, text).map_err(failed)?;
    repository.sync()?;
    crate::session::replace(&temporary, path).map_err(failed)
}

/// The files that were copied into a finished tree.
fn copied(git: &Path) -> Vec<String> {
    let listed = fs::read_to_string(git.join(MARK)).unwrap_or_default();
    listed.lines().map(str::to_owned).collect()
}

/// A git command that was killed leaves its locks. Nothing of an earlier attempt is alive, and the tree
/// is locked for us.
fn at_rest(repository: &Repository, git: &Path, branch: &str) {
    let of_branch = repository.common.join(format!("refs/heads/{branch}.lock"));
    for lock in [git.join("index.lock"), git.join("HEAD.lock"), of_branch] {
        // It is not there, or the next call of git says why it can't go on.
        drop(fs::remove_file(lock));
    }
}

/// Makes branch and tree, without files yet. Says so if the branch was there and has commits already.
fn add(
    repository: &Repository,
    _: &Hold,
    plan: &Plan,
    path: &Path,
    branch: &str,
) -> Result<Option<String>, WorkspaceError> {
    let tip = repository.commit(&format!("refs/heads/{branch}"));
    let start = start(repository, plan);
    let mut known = None;
    if tip.is_none() {
        let above = PREFIX.trim_end_matches('/');
        if repository.commit(&format!("refs/heads/{above}")).is_some() {
            return Err(WorkspaceError::lasting(format!(
                "{} has a branch named {above}, so it can't have {branch}; rename that one: git branch -m \
                 {above} NAME",
                repository.top.display()
            )));
        }
        let make = ["branch", "--quiet", "--no-track", branch, &start?];
        call(&repository.top, &make)?;
    } else if tip != start.ok() {
        known = Some(format!(
            "the branch {branch} existed before its worktree; the work continues at its tip"
        ));
    }
    if let Some((other, is_there)) = repository.checked_out(branch) {
        let shown = other.display().to_string();
        if is_there {
            return Err(WorkspaceError::lasting(format!(
                "{branch} is checked out in {shown}; switch that to another branch, then retry"
            )));
        }
        // Of a root that is not there any more.
        let remove = ["worktree", "remove", "--force", "--force", &shown];
        call(&repository.top, &remove)?;
    }
    let shown = path.display().to_string();
    let add = [
        "worktree",
        "add",
        "--quiet",
        "--no-checkout",
        &shown,
        branch,
    ];
    call(&repository.top, &add)?;
    Ok(known)
}

/// The commit that a new branch begins at.
fn start(repository: &Repository, plan: &Plan) -> Result<String, WorkspaceError> {
    let tip = plan
        .from
        .as_ref()
        .and_then(|line| repository.commit(&format!("refs/heads/{}", super::names::branch(line))));
    if let Some(tip) = tip {
        return Ok(tip);
    }
    let name = plan.base.as_deref().unwrap_or("HEAD");
    repository.commit(name).ok_or_else(|| {
        let shown = repository.top.display();
        WorkspaceError::lasting(if plan.base.is_some() {
            format!("{shown} has no branch or commit {name}; correct the specialist's `base`")
        } else {
            format!("the repository {shown} has no commit yet; create the first one")
        })
    })
}
