//! What an agent changed in its folder, as git sees it: the agent's own list may have holes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How many files a result lists.
pub const MOST: usize = 1000;

/// Folders and files of a root in which the queue itself writes.
const OF_THE_QUEUE: [&str; 7] = [
    "handoffs",
    "context",
    "audit",
    "archive",
    "worktrees",
    ".handoffd",
    "artifacts/registry.jsonl",
];

/// A moment of a work tree. `None` where the folder is no work tree of git's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The top of the work tree.
    top: PathBuf,
    head: Option<String>,
    /// Each file that differs from the last commit, with its state and a hash of its content.
    dirty: BTreeSet<(String, String)>,
}

/// Runs git in a folder without locks, hooks, pagers or questions.
fn git(folder: &Path, args: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "core.quotepath=off", "-c", "core.fsmonitor=false"])
        .args(args)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then_some(output.stdout)
}

impl Snapshot {
    pub fn take(folder: &Path) -> Option<Self> {
        let status = git(
            folder,
            &["status", "--porcelain=v1", "-z", "--untracked-files=all"],
        )?;
        let head = git(folder, &["rev-parse", "--verify", "-q", "HEAD"]);
        let head = head.and_then(|head| String::from_utf8(head).ok());
        let top = git(folder, &["rev-parse", "--show-toplevel"])?;
        let top = PathBuf::from(String::from_utf8(top).ok()?.trim_end());
        let mut dirty = BTreeSet::new();
        let mut entries = status.split(|byte| *byte == 0);
        while let Some(entry) = entries.next() {
            let entry = String::from_utf8_lossy(entry);
            let Some((state, path)) = entry.split_at_checked(3) else {
                continue;
            };
            dirty.insert((path.to_owned(), stamp(&top, state, path)));
            if state.starts_with(['R', 'C']) {
                // The name that it had before.
                if let Some(before) = entries.next().filter(|_| state.starts_with('R')) {
                    let before = String::from_utf8_lossy(before).into_owned();
                    dirty.insert((before, state.to_owned()));
                }
            }
        }
        Some(Self {
            top,
            head: head.map(|head| head.trim().to_owned()),
            dirty,
        })
    }

    /// The files that changed since this moment, by commits too, as paths from the top of the work
    /// tree.
    pub fn changed_until(&self, later: &Self, folder: &Path) -> Vec<String> {
        let mut changed: BTreeSet<String> = self
            .dirty
            .symmetric_difference(&later.dirty)
            .map(|(path, _)| path.clone())
            .collect();
        if let (Some(before), Some(after)) = (&self.head, &later.head)
            && before != after
        {
            let names = git(folder, &["diff", "--name-only", "-z", before, after]);
            let names = names.unwrap_or_default();
            changed.extend(
                names
                    .split(|byte| *byte == 0)
                    .filter(|name| !name.is_empty())
                    .map(|name| String::from_utf8_lossy(name).into_owned()),
            );
        }
        changed.into_iter().collect()
    }

    /// Takes out what the queue writes into its root: that is no work of an agent.
    pub fn work_of_agents(&self, mut changed: Vec<String>, root: &Path) -> Vec<String> {
        // As git has it, without links.
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        if !root.starts_with(&self.top) {
            // A worktree lies below the root, and all in it is work.
            return changed;
        }
        changed.retain(|path| {
            let path = self.top.join(path);
            let below = path.strip_prefix(&root).ok();
            !below.is_some_and(|below| OF_THE_QUEUE.iter().any(|own| below.starts_with(own)))
        });
        changed
    }
}

/// The state of a file, so that a second change of a changed file is seen too.
fn stamp(top: &Path, state: &str, path: &str) -> String {
    let meta = std::fs::symlink_metadata(top.join(path)).ok();
    let (size, modified) = meta.map_or((0, None), |meta| (meta.len(), meta.modified().ok()));
    format!("{state}{size} {modified:?}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn run(folder: &Path, args: &[&str]) {
        let done = git(folder, args);
        assert!(done.is_some(), "git {args:?}");
    }

    #[test]
    fn changes_are_seen_whether_they_are_committed_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        assert_eq!(Snapshot::take(at), None);
        run(at, &["init", "-q", "-b", "main"]);
        run(at, &["config", "user.email", "a@example.org"]);
        run(at, &["config", "user.name", "a"]);
        fs::write(at.join("kept"), "1").unwrap();
        fs::write(at.join("was dirty"), "1").unwrap();
        run(at, &["add", "kept"]);
        run(at, &["commit", "-q", "-m", "first"]);
        let before = Snapshot::take(at).unwrap();
        assert_eq!(before.changed_until(&before, at), Vec::<String>::new());
        fs::write(at.join("was dirty"), "longer now").unwrap();
        fs::write(at.join("committed"), "1").unwrap();
        run(at, &["add", "committed"]);
        run(at, &["commit", "-q", "-m", "second"]);
        fs::create_dir(at.join("sub")).unwrap();
        fs::write(at.join("sub/new ü"), "1").unwrap();
        let after = Snapshot::take(at).unwrap();
        assert_eq!(
            before.changed_until(&after, at),
            ["committed", "sub/new ü", "was dirty"]
        );
    }

    #[test]
    fn what_the_queue_writes_is_no_work_of_an_agent() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        run(&at, &["init", "-q"]);
        let before = Snapshot::take(&at).unwrap();
        let root = at.join("queue");
        for file in [
            "handoffs/in-progress/x.json",
            "audit/e.jsonl",
            "artifacts/registry.jsonl",
            "artifacts/report.md",
            "context.md",
        ] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "1").unwrap();
        }
        let after = Snapshot::take(&at).unwrap();
        assert_eq!(
            before.work_of_agents(before.changed_until(&after, &at), &root),
            ["queue/artifacts/report.md", "queue/context.md"]
        );
        let tree = root.join("worktrees/x");
        fs::create_dir_all(&tree).unwrap();
        run(&tree, &["init", "-q"]);
        let before = Snapshot::take(&tree).unwrap();
        fs::write(tree.join("made"), "1").unwrap();
        let changed = before.changed_until(&Snapshot::take(&tree).unwrap(), &tree);
        assert_eq!(before.work_of_agents(changed, &root), ["made"]);
    }
}
