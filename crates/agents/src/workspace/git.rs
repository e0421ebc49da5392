//! Calls of git: without hooks, pagers, questions or signing, and with errors that say what to do.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// What is wrong with a repository, a worktree, or the settings that name them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WorkspaceError {
    pub message: String,
    /// Whether it may be over by itself when the attempt is repeated.
    pub passing: bool,
}

impl WorkspaceError {
    pub fn lasting(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            passing: false,
        }
    }

    pub fn passing(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            passing: true,
        }
    }
}

/// Options of every call: what the repository's owner has set up for a person is not for us.
const QUIET: [&str; 14] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.quotepath=off",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "gc.auto=0",
    // How many milliseconds git waits for a reference that another process writes.
    "-c",
    "core.filesRefLockTimeout=10000",
    "-c",
    "core.packedRefsTimeout=10000",
];

/// What git says when another process changes the list of worktrees, or the settings, at this moment.
const RACED: [&str; 4] = [
    "commondir",
    "gitdir",
    "could not lock config file",
    "packed-refs.lock",
];

/// How often such a call is made, with a wait before each but the first that doubles from [`FIRST_WAIT`].
const TRIES: u32 = 8;
const FIRST_WAIT: Duration = Duration::from_millis(20);

/// How often a lock of somebody's git command is looked at before it counts as left behind.
const LOOKS_AT_LOCK: u32 = 50;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Variables by which another git points to its own repository. The process that started us may itself
/// work in one.
const FOREIGN: [&str; 6] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_NAMESPACE",
];

fn command(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(folder)
        .args(QUIET)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_EDITOR", "true")
        .env("LC_ALL", "C")
        // Looking at a tree changes nothing in it.
        .env("GIT_OPTIONAL_LOCKS", "0")
        .stdin(Stdio::null());
    for name in FOREIGN {
        command.env_remove(name);
    }
    command
}

/// A call whose failure is an answer.
pub fn ask(folder: &Path, args: &[&str]) -> Option<String> {
    let output = command(folder)
        .args(args)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.trim_end_matches('\n').to_owned())
}

/// A call that may do a part of its work: what it complained about.
pub fn attempt(folder: &Path, args: &[String]) -> Result<Option<String>, WorkspaceError> {
    let output = command(folder).args(args).output().map_err(|error| {
        WorkspaceError::passing(format!("can't run git in {}: {error}", folder.display()))
    })?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok((!output.status.success()).then_some(said))
}

/// A call that has to succeed: its text, without the line ends after it.
pub fn call<A: AsRef<OsStr>>(folder: &Path, args: &[A]) -> Result<String, WorkspaceError> {
    let bytes = call_for_bytes(folder, args)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim_end_matches('\n').to_owned())
}

/// The same, with every byte that git printed.
pub fn call_for_bytes<A: AsRef<OsStr>>(
    folder: &Path,
    args: &[A],
) -> Result<Vec<u8>, WorkspaceError> {
    let failed = |why: String| {
        let words: Vec<String> = args
            .iter()
            .map(|word| word.as_ref().to_string_lossy().into_owned())
            .collect();
        WorkspaceError::passing(format!(
            "`git {}` failed in {}: {why}",
            words.join(" "),
            folder.display()
        ))
    };
    let mut tries = 0;
    loop {
        let output: Output = command(folder)
            .args(args)
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        tries += 1;
        if tries == TRIES || !RACED.iter().any(|mark| said.contains(mark)) {
            return Err(failed(said.trim().to_owned()));
        }
        thread::sleep(FIRST_WAIT * 2_u32.pow(tries - 1));
    }
}

/// A repository that worktrees can be made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// Its own work tree.
    pub top: PathBuf,
    /// Where its objects, branches and worktrees are kept.
    pub common: PathBuf,
}

impl Repository {
    /// Opens a repository and makes sure that work can begin from it. Waits a moment for a git command
    /// that somebody runs there.
    pub fn open(path: &Path) -> Result<Self, WorkspaceError> {
        let repository = Self::find(path)?;
        let mut looks = 0;
        while let Err(error) = repository.at_rest() {
            looks += 1;
            if !error.passing || looks == LOOKS_AT_LOCK {
                // Nothing was tried, so trying again by itself would only use up the budget.
                return Err(WorkspaceError::lasting(error.message));
            }
            thread::sleep(BETWEEN_LOOKS);
        }
        Ok(repository)
    }

    /// Finds a repository, whatever goes on in it.
    pub fn find(path: &Path) -> Result<Self, WorkspaceError> {
        let shown = path.display();
        if ask(Path::new("/"), &["--version"]).is_none() {
            return Err(WorkspaceError::lasting(
                "git is not installed, or not in PATH; install it, or add its folder to PATH in the unit",
            ));
        }
        if !path.is_dir() {
            return Err(WorkspaceError::lasting(format!(
                "the repository {shown} does not exist; correct the specialist's `repository`"
            )));
        }
        let Some(common) = ask(
            path,
            &["rev-parse", "--path-format=absolute", "--git-common-dir"],
        ) else {
            let why = call(path, &["rev-parse", "--git-dir"]).err();
            let why = why.map_or_else(String::new, |error| error.message);
            let owner = if why.contains("dubious ownership") {
                "; it belongs to another user: run the daemon as that user, or allow it with \
                 `git config --global --add safe.directory`"
            } else {
                "; create one with `git init`, or correct the specialist's `repository`"
            };
            return Err(WorkspaceError::lasting(format!(
                "{shown} is not a git repository{owner}"
            )));
        };
        if ask(path, &["rev-parse", "--is-bare-repository"]).as_deref() == Some("true") {
            return Err(WorkspaceError::lasting(format!(
                "the repository {shown} is bare; clone it to a folder with a work tree and set \
                 `repository` to that"
            )));
        }
        let top = call(
            path,
            &["rev-parse", "--path-format=absolute", "--show-toplevel"],
        )?;
        Ok(Self {
            top: PathBuf::from(top),
            common: PathBuf::from(common),
        })
    }

    /// In the middle of a merge, or while another git command holds a lock, nothing is begun. A lock may
    /// be gone in a moment.
    pub fn at_rest(&self) -> Result<(), WorkspaceError> {
        let shown = self.top.display();
        let own = ask(
            &self.top,
            &["rev-parse", "--path-format=absolute", "--git-dir"],
        );
        let own = own.map_or_else(|| self.common.clone(), PathBuf::from);
        for (name, what, end) in [
            ("MERGE_HEAD", "a merge", "git merge --continue or --abort"),
            (
                "rebase-merge",
                "a rebase",
                "git rebase --continue or --abort",
            ),
            (
                "rebase-apply",
                "a rebase",
                "git rebase --continue or --abort",
            ),
            (
                "CHERRY_PICK_HEAD",
                "a cherry-pick",
                "git cherry-pick --continue or --abort",
            ),
            (
                "REVERT_HEAD",
                "a revert",
                "git revert --continue or --abort",
            ),
        ] {
            if own.join(name).exists() {
                return Err(WorkspaceError::lasting(format!(
                    "the repository {shown} is in the middle of {what}; finish it with {end}, \
                     then retry"
                )));
            }
        }
        let locks = [
            own.join("index.lock"),
            own.join("HEAD.lock"),
            self.common.join("config.lock"),
            self.common.join("packed-refs.lock"),
        ];
        match locks.iter().find(|lock| lock.exists()) {
            Some(lock) => Err(WorkspaceError::passing(format!(
                "the repository {shown} is locked: {} exists; if no git command runs there, delete \
                 that file, then retry",
                lock.display()
            ))),
            None => Ok(()),
        }
    }

    /// Where a branch is checked out: the work tree, and whether its folder is there.
    pub fn checked_out(&self, branch: &str) -> Option<(PathBuf, bool)> {
        let listed = ask(&self.top, &["worktree", "list", "--porcelain"])?;
        let wanted = format!("branch refs/heads/{branch}");
        let entry = listed
            .split("\n\n")
            .find(|entry| entry.lines().any(|line| line == wanted))?;
        let path = PathBuf::from(entry.lines().next()?.strip_prefix("worktree ")?);
        let is_there = path.exists();
        Some((path, is_there))
    }

    /// Puts on disk what git commands wrote here, the agent's own among them: git itself leaves that to
    /// the system.
    pub fn sync(&self) -> Result<(), WorkspaceError> {
        let synced = std::fs::File::open(&self.common).and_then(|folder| sync(&folder));
        synced.map_err(|error| {
            WorkspaceError::passing(format!(
                "{} can't be synced: {error}",
                self.common.display()
            ))
        })
    }

    /// The commit that a name stands for.
    pub fn commit(&self, name: &str) -> Option<String> {
        let name = format!("{name}^{{commit}}");
        ask(&self.top, &["rev-parse", "--verify", "--quiet", &name])
    }
}

#[cfg(target_os = "linux")]
fn sync(folder: &std::fs::File) -> std::io::Result<()> {
    Ok(rustix::fs::syncfs(folder)?)
}

/// Elsewhere there is no call for one file system.
#[cfg(not(target_os = "linux"))]
fn sync(_: &std::fs::File) -> std::io::Result<()> {
    rustix::fs::sync();
    Ok(())
}
