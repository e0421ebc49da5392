//! Looking at the worktrees of a root, removing those that nobody needs, and showing what changed.

use std::fs;
use std::path::{Path, PathBuf};

use super::git::{Repository, WorkspaceError, ask, call};
use super::names::{branch, decode};
use super::tree::{discard, existing};

/// A worktree in the folder of a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub line: String,
    pub path: PathBuf,
    pub branch: String,
    /// The work tree of the repository that it belongs to; none where git does not know it.
    pub repository: Option<PathBuf>,
    pub commit: Option<String>,
    /// Files that are not committed.
    pub uncommitted: usize,
}

/// What became of a worktree that was to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pruned {
    /// The branch has no commit that another one lacks, so it is gone too.
    WithBranch,
    /// The branch has commits of its own and stays.
    KeptBranch,
}

/// All worktrees in a folder, by line.
pub fn all(folder: &Path) -> Vec<Found> {
    let mut found: Vec<Found> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let line = decode(entry.file_name().to_str()?)?;
            let is_tree = entry.path().join(".git").symlink_metadata().is_ok();
            is_tree.then(|| look(line, entry.path()))
        })
        .collect();
    found.sort_by(|one, other| one.line.cmp(&other.line));
    found
}

fn look(line: String, path: PathBuf) -> Found {
    let common = ask(
        &path,
        &["rev-parse", "--path-format=absolute", "--git-common-dir"],
    );
    let listed = common.as_ref().and_then(|common| {
        // The first one that git lists is the repository's own work tree.
        let list = ["worktree", "list", "--porcelain"];
        let listed = call(Path::new(common), &list).ok()?;
        let first = listed.lines().next()?.strip_prefix("worktree ")?;
        Some(PathBuf::from(first))
    });
    let status = ask(
        &path,
        &["status", "--porcelain=v1", "-z", "--untracked-files=all"],
    );
    Found {
        branch: branch(&line),
        commit: ask(&path, &["rev-parse", "--verify", "--quiet", "HEAD"]),
        uncommitted: status.map_or(0, |status| {
            status.split('\0').filter(|entry| !entry.is_empty()).count()
        }),
        repository: listed,
        line,
        path,
    }
}

/// Removes a worktree. What is uncommitted is committed first; a branch with commits that no other
/// branch has stays, unless `force` says otherwise.
pub fn prune(folder: &Path, found: &Found, force: bool) -> Result<Pruned, WorkspaceError> {
    let Some(top) = &found.repository else {
        return Err(WorkspaceError::lasting(format!(
            "the repository of {} no longer exists; delete the folder by hand",
            found.path.display()
        )));
    };
    let repository = Repository::open(top)?;
    if let Some(tree) = existing(&repository, folder, &found.line)? {
        drop(tree.back_on_branch(&repository)?);
        tree.commit_all(&format!("{}: work in progress", found.line))?;
        tree.remove(&repository)?;
    } else {
        // Never finished: nobody has worked in it.
        discard(&repository, folder, &found.line)?;
    }
    let _hold = repository.hold()?;
    if force || !has_own_commits(&repository, &found.branch) {
        call(&repository.top, &["branch", "--quiet", "-D", &found.branch])?;
        return Ok(Pruned::WithBranch);
    }
    Ok(Pruned::KeptBranch)
}

/// Whether a branch has commits that no other branch has, local or remote, nor a tag.
fn has_own_commits(repository: &Repository, branch: &str) -> bool {
    let own = format!("--exclude={branch}");
    let count = ask(
        &repository.top,
        &[
            "rev-list",
            "--count",
            "--max-count=1",
            branch,
            "--not",
            &own,
            "--branches",
            "--tags",
            "--remotes",
        ],
    );
    // What can't be counted is kept.
    count.as_deref() != Some("0")
}

/// What a handoff changed, as a diff.
pub fn diff(
    repository: &Path,
    base: &str,
    commit: &str,
    stat: bool,
) -> Result<String, WorkspaceError> {
    let is_hash = |text: &str| text.len() >= 7 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hash(base) || !is_hash(commit) {
        return Err(WorkspaceError::lasting("the record has no commits"));
    }
    let how = if stat { "--stat" } else { "--patch" };
    call(
        repository,
        &["diff", "--no-color", "--no-ext-diff", how, base, commit],
    )
}
