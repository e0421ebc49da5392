//! Repositories inside of a worktree: submodules, and what a command cloned or created there.
//!
//! The branch has no more than the commit that such a repository is at. Work in it would go with the tree, so
//! the result warns of it, and the tree stays.

use std::path::Path;

use super::git::ask;

/// Repositories in the tree with work that is nowhere else: uncommitted, or in commits that no remote has.
pub fn loose(tree: &Path) -> Vec<String> {
    let mut found: Vec<String> = gitlinks(tree).into_iter().chain(untracked(tree)).collect();
    found.sort();
    found.dedup();
    found.retain(|name| has_loose_work(&tree.join(name)));
    found
}

/// What the index has as the commit of another repository.
fn gitlinks(tree: &Path) -> Vec<String> {
    let listed = ask(tree, &["ls-files", "--stage", "-z"]).unwrap_or_default();
    let links = listed
        .split('\0')
        .filter(|entry| entry.starts_with("160000 "));
    links
        .filter_map(|entry| Some(entry.split_once('\t')?.1.to_owned()))
        .collect()
}

/// Folders that git does not take: repositories without a commit.
fn untracked(tree: &Path) -> Vec<String> {
    let listed = ask(tree, &["status", "--porcelain=v1", "-z"]).unwrap_or_default();
    let folders = listed
        .split('\0')
        .filter_map(|entry| entry.strip_prefix("?? "));
    folders
        .filter_map(|name| name.strip_suffix('/'))
        .map(str::to_owned)
        .collect()
}

fn has_loose_work(repository: &Path) -> bool {
    // A submodule that is not checked out has no `.git`.
    if repository.join(".git").symlink_metadata().is_err() {
        return false;
    }
    let status = ask(repository, &["status", "--porcelain=v1"]);
    let commits = ask(
        repository,
        &[
            "rev-list",
            "--count",
            "--max-count=1",
            "HEAD",
            "--branches",
            "--not",
            "--remotes",
        ],
    );
    // Without a commit there is no count.
    status.is_none_or(|status| !status.is_empty()) || commits.is_some_and(|count| count != "0")
}
