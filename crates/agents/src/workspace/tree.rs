//! Making a worktree, finding it again, and bringing it to rest after a kill.
//!
//! A tree is finished when its mark exists, a file in the folder that git keeps for the tree. The
//! mark is the last thing that is made, after checkout, copied files and set-up, so a tree without it
//! holds nobody's work and is removed and made anew.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use super::git::{Repository, WorkspaceError, ask, call};
use super::hold::Hold;
use super::names::{branch, encode};

/// The mark of a finished tree, in the folder that git keeps for it. It lists the copied files, one a
/// line.
const MARK: &str = "handoffd-ready";

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
    pub path: PathBuf,
    pub branch: String,
    /// Git's own folder for it.
    pub git: PathBuf,
    /// Files that were copied and are no work of anybody's.
    pub copied: Vec<String>,
    lock_path: PathBuf,
    _lock: File,
}

impl Plan {
    pub fn path(&self) -> PathBuf {
        self.folder.join(encode(&self.line))
    }
}

/// Takes the lock of a line: only one process works on a tree at a time.
fn lock(folder: &Path, line: &str) -> Result<File, WorkspaceError> {
    let failed = |error: std::io::Error| {
        WorkspaceError::passing(format!("can't use {}: {error}", folder.display()))
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(folder)
        .map_err(failed)?;
    let path = lock_path(folder, line);
    loop {
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            // Whoever removes a tree removes its lock too: a lock without a name keeps nobody out.
            Ok(()) if is_at(&file, &path) => return Ok(file),
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(WorkspaceError::passing(format!(
                    "another process works in the worktree of {line}: it holds {}",
                    path.display()
                )));
            }
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}

fn lock_path(folder: &Path, line: &str) -> PathBuf {
    folder.join(format!(".{}.lock", encode(line)))
}

/// Whether an open file is the one that has this name now.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// Makes the tree of a line, or takes the one that is there. Uncommitted work is left as it is.
pub fn ready(repository: &Repository, plan: &Plan) -> Result<Tree, WorkspaceError> {
    let lock = lock(&plan.folder, &plan.line)?;
    let path = plan.path();
    let branch = branch(&plan.line);
    let tree = |git: PathBuf| Tree {
        path: path.clone(),
        branch: branch.clone(),
        copied: copied(&git),
        git,
        lock_path: lock_path(&plan.folder, &plan.line),
        _lock: lock,
    };
    if let Some(git) = finished(repository, &path) {
        at_rest(&git);
        return Ok(tree(git));
    }
    clear(repository, &path)?;
    {
        let hold = repository.hold()?;
        repository.drop_unfinished(&hold, &plan.folder)?;
        forget(repository, &hold, &path)?;
        add(repository, &hold, plan, &path, &branch)?;
    }
    // The files, which may be many, are written beside others.
    call(
        &path,
        &["reset", "--quiet", "--hard", "--no-recurse-submodules"],
    )?;
    let git = git_folder(&path)
        .ok_or_else(|| WorkspaceError::passing(format!("{} is not a worktree", path.display())))?;
    for file in &plan.copy {
        copy(&repository.top, &path, file)?;
    }
    set_up(plan, &path)?;
    let mark = git.join(MARK);
    fs::write(&mark, plan.copy.join("\n"))
        .map_err(|error| WorkspaceError::passing(format!("{}: {error}", mark.display())))?;
    Ok(tree(git))
}

/// Takes the tree of a line that is there, to look after it. `None` where there is none.
pub fn existing(
    repository: &Repository,
    folder: &Path,
    line: &str,
) -> Result<Option<Tree>, WorkspaceError> {
    let path = folder.join(encode(line));
    if finished(repository, &path).is_none() {
        return Ok(None);
    }
    let lock = lock(folder, line)?;
    Ok(finished(repository, &path).map(|git| {
        at_rest(&git);
        Tree {
            path,
            branch: branch(line),
            copied: copied(&git),
            git,
            lock_path: lock_path(folder, line),
            _lock: lock,
        }
    }))
}

impl Tree {
    /// Removes the tree, whose work is committed, and its lock.
    pub fn remove(self, repository: &Repository) -> Result<(), WorkspaceError> {
        let _hold = repository.hold()?;
        let shown = self.path.display().to_string();
        call(&repository.top, &["worktree", "remove", "--force", &shown])?;
        // Where it can't be removed, an empty file is left.
        drop(fs::remove_file(&self.lock_path));
        Ok(())
    }
}

/// Removes a tree that was never finished.
pub fn discard(repository: &Repository, folder: &Path, line: &str) -> Result<(), WorkspaceError> {
    let _lock = lock(folder, line)?;
    let path = folder.join(encode(line));
    clear(repository, &path)?;
    forget(repository, &repository.hold()?, &path)?;
    drop(fs::remove_file(lock_path(folder, line)));
    Ok(())
}

fn git_folder(path: &Path) -> Option<PathBuf> {
    // A folder inside of a repository answers for that one: ours has a `.git` of its own.
    path.join(".git").symlink_metadata().ok()?;
    ask(path, &["rev-parse", "--path-format=absolute", "--git-dir"]).map(PathBuf::from)
}

/// Git's folder of a tree that is finished and belongs to the repository.
fn finished(repository: &Repository, path: &Path) -> Option<PathBuf> {
    let git = git_folder(path)?;
    let common = ask(
        path,
        &["rev-parse", "--path-format=absolute", "--git-common-dir"],
    )?;
    (Path::new(&common) == repository.common && git.join(MARK).exists()).then_some(git)
}

/// The files that were copied into a finished tree.
fn copied(git: &Path) -> Vec<String> {
    let listed = fs::read_to_string(git.join(MARK)).unwrap_or_default();
    listed.lines().map(str::to_owned).collect()
}

/// A command that was killed leaves its locks. Nothing of an earlier attempt is alive, and the tree
/// is locked for us.
fn at_rest(git: &Path) {
    for name in ["index.lock", "HEAD.lock"] {
        // It is not there, or the next call of git says why it can't go on.
        drop(fs::remove_file(git.join(name)));
    }
}

/// Removes the files that a kill left of a tree that was never finished.
fn clear(repository: &Repository, path: &Path) -> Result<(), WorkspaceError> {
    let failed = |error: std::io::Error| {
        WorkspaceError::passing(format!("can't remove {}: {error}", path.display()))
    };
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => {
            // Somebody's folder, or one of another repository, is not ours to delete.
            let begun = git_folder(path).is_some_and(|git| !git.join(MARK).exists());
            // A folder of another repository has a folder `.git`, and files.
            let empty = fs::read_dir(path).is_ok_and(|entries| {
                entries.flatten().all(|entry| {
                    entry.file_name() == ".git" && entry.file_type().is_ok_and(|it| it.is_file())
                })
            });
            let ours = registered(repository, path);
            if !(begun || empty || ours) {
                return Err(WorkspaceError::lasting(format!(
                    "{} is not a worktree of {}; move it away, or correct `repository`",
                    path.display(),
                    repository.top.display()
                )));
            }
            fs::remove_dir_all(path).map_err(failed)?;
        }
        Ok(_) => {
            return Err(WorkspaceError::lasting(format!(
                "{} blocks a worktree; move it away",
                path.display()
            )));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    Ok(())
}

/// Takes a tree whose files are gone out of the repository's list.
fn forget(repository: &Repository, _: &Hold, path: &Path) -> Result<(), WorkspaceError> {
    if registered(repository, path) {
        // Forced twice: a tree that was killed while git made it is locked by git.
        let shown = path.display().to_string();
        let remove = ["worktree", "remove", "--force", "--force", &shown];
        call(&repository.top, &remove)?;
    }
    Ok(())
}

/// Whether git lists a tree at this path.
fn registered(repository: &Repository, path: &Path) -> bool {
    let listed = ask(&repository.top, &["worktree", "list", "--porcelain"]);
    let wanted = format!("worktree {}", path.display());
    listed.is_some_and(|listed| listed.lines().any(|line| line == wanted))
}

/// Makes branch and tree, without files yet.
fn add(
    repository: &Repository,
    _: &Hold,
    plan: &Plan,
    path: &Path,
    branch: &str,
) -> Result<(), WorkspaceError> {
    let shown = path.display().to_string();
    if repository.commit(&format!("refs/heads/{branch}")).is_none() {
        let start = start(repository, plan)?;
        let make = ["branch", "--quiet", "--no-track", branch, &start];
        call(&repository.top, &make)?;
    }
    let add = [
        "worktree",
        "add",
        "--quiet",
        "--no-checkout",
        &shown,
        branch,
    ];
    call(&repository.top, &add)?;
    Ok(())
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

fn copy(from: &Path, to: &Path, file: &str) -> Result<(), WorkspaceError> {
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

fn set_up(plan: &Plan, path: &Path) -> Result<(), WorkspaceError> {
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
