//! Looking at the worktrees of a root, removing those that nobody needs, and showing what changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::commit::begun;
use super::git::{Repository, WorkspaceError, ask, call, call_for_bytes};
use super::loose::loose;
use super::names::{branch, decode, encode};
use super::state::{MARK, TreeState, entry_of, look};
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
    /// Files that are not committed, copied ones left out.
    pub uncommitted: usize,
    /// Whether it has the mark of a finished tree.
    pub finished: bool,
    /// When something last happened in it.
    pub touched: Option<SystemTime>,
}

/// What became of a worktree that was to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pruned {
    /// The branch has no commit that another one lacks, so it is gone too.
    WithBranch,
    /// These branches have commits of their own and stay.
    KeptBranches(Vec<String>),
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
            is_tree.then(|| inspect(line, entry.path()))
        })
        .collect();
    found.sort_by(|one, other| one.line.cmp(&other.line));
    found
}

/// Looks at one worktree.
pub fn inspect(line: String, path: PathBuf) -> Found {
    let absolute = ["rev-parse", "--path-format=absolute"];
    let place = |what: &str| ask(&path, &[absolute[0], absolute[1], what]).map(PathBuf::from);
    let listed = place("--git-common-dir").and_then(|common| {
        // The first one that git lists is the repository's own work tree.
        let list = ["worktree", "list", "--porcelain"];
        let listed = call(&common, &list).ok()?;
        let first = listed.lines().next()?.strip_prefix("worktree ")?;
        Some(PathBuf::from(first))
    });
    let git = place("--git-dir");
    let mark = git
        .as_ref()
        .and_then(|git| fs::read_to_string(git.join(MARK)).ok());
    let is_copied = |entry: &str| {
        let name = entry.get(3..).unwrap_or_default();
        mark.iter()
            .flat_map(|mark| mark.lines())
            .any(|file| file == name)
    };
    let status = ask(
        &path,
        &["status", "--porcelain=v1", "-z", "--untracked-files=all"],
    );
    let uncommitted = status.map_or(0, |status| {
        let entries = status.split('\0').filter(|entry| !entry.is_empty());
        entries.filter(|entry| !is_copied(entry)).count()
    });
    Found {
        branch: branch(&line),
        commit: ask(&path, &["rev-parse", "--verify", "--quiet", "HEAD"]),
        uncommitted,
        finished: mark.is_some(),
        repository: listed,
        touched: git.and_then(|git| newest(&git)),
        line,
        path,
    }
}

/// When a file of git's entry for a tree last changed: every attempt and every commit writes there.
fn newest(git: &Path) -> Option<SystemTime> {
    let names = ["index", "HEAD", "logs/HEAD", "handoffd-begun"];
    let times = names
        .iter()
        .filter_map(|name| fs::metadata(git.join(name)).ok()?.modified().ok());
    times.max()
}

/// What is known of a tree after its uncommitted work was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    AtRest,
    /// A kill left it half-made. The next attempt makes it anew, or a prune removes it.
    HalfMade,
    /// Why it was left alone: an attempt works in it, or its repository can't be used.
    LeftAlone(String),
}

/// Commits what an interrupted attempt left uncommitted in a tree.
pub fn settle(folder: &Path, found: &Found, warnings: &mut Vec<String>) -> Settled {
    let settled = repository_of(found).and_then(|repository| {
        let Some(tree) = existing(&repository, folder, &found.line)? else {
            return Ok(Settled::HalfMade);
        };
        warnings.extend(tree.back_on_branch(&repository)?);
        tree.commit_all(
            &repository,
            &format!("{}: interrupted work", found.line),
            warnings,
        )?;
        repository.sync()?;
        Ok(Settled::AtRest)
    });
    settled.unwrap_or_else(|error| Settled::LeftAlone(error.message))
}

fn repository_of(found: &Found) -> Result<Repository, WorkspaceError> {
    match &found.repository {
        Some(top) => Repository::find(top),
        None => Err(WorkspaceError::lasting(format!(
            "the repository of {} no longer exists; delete the folder by hand",
            found.path.display()
        ))),
    }
}

/// Removes a worktree. What is uncommitted is committed first; a branch with commits that no other
/// branch has stays, unless `force` says otherwise.
pub fn prune(folder: &Path, found: &Found, force: bool) -> Result<Pruned, WorkspaceError> {
    let repository = repository_of(found)?;
    let mut kept = Vec::new();
    if let Some(tree) = existing(&repository, folder, &found.line)? {
        drop(tree.back_on_branch(&repository)?);
        let mut uncommitted = Vec::new();
        let message = format!("{}: work in progress", found.line);
        tree.commit_all(&repository, &message, &mut uncommitted)?;
        uncommitted.extend(loose(&tree.path).into_iter().map(|name| {
            format!("{name} is a repository with work that is nowhere else; push it from there")
        }));
        if let Some(first) = uncommitted.first().filter(|_| !force) {
            return Err(WorkspaceError::lasting(format!(
                "kept the worktree: {first}. --force removes it all the same"
            )));
        }
        kept.extend(tree.keep_detached(&repository)?.filter(|_| !force));
        tree.remove(&repository)?;
    } else {
        // Never finished: nobody has worked in it.
        discard(&repository, folder, &found.line)?;
    }
    let _hold = repository.hold()?;
    if repository
        .commit(&format!("refs/heads/{}", found.branch))
        .is_none()
    {
        // Somebody deleted the branch.
    } else if force || !has_own_commits(&repository, &found.branch) {
        call(&repository.top, &["branch", "--quiet", "-D", &found.branch])?;
    } else {
        kept.insert(0, found.branch.clone());
    }
    if kept.is_empty() {
        return Ok(Pruned::WithBranch);
    }
    Ok(Pruned::KeptBranches(kept))
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

/// What a handoff changed in a tree so far: where it began, and the tree to look at.
pub fn unfinished_work(
    folder: &Path,
    line: &str,
    repository: &Path,
    id: &str,
) -> Option<(String, PathBuf)> {
    let path = folder.join(encode(line));
    let repository = Repository::find(repository).ok()?;
    let entry = entry_of(&repository, &path)?;
    if !matches!(look(&repository, &path), Ok(TreeState::Finished(_))) {
        return None;
    }
    Some((begun(&entry, &path, id)?, path))
}

/// What changed between two commits, or since one of them and in the files of the tree.
pub fn diff(
    repository: &Path,
    base: &str,
    commit: Option<&str>,
    stat: bool,
) -> Result<Vec<u8>, WorkspaceError> {
    let is_hash = |text: &str| text.len() >= 7 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hash(base) || !commit.is_none_or(is_hash) {
        return Err(WorkspaceError::lasting("the record has no commits"));
    }
    let how = if stat { "--stat" } else { "--patch" };
    let mut args = vec!["diff", "--no-color", "--no-ext-diff", how, base];
    args.extend(commit);
    args.push("--");
    call_for_bytes(repository, &args)
}
