//! Committing what is left uncommitted, and what a handoff changed since it began.

use std::fs;
use std::path::{Path, PathBuf};

use super::git::{Repository, WorkspaceError, ask, attempt, call};
use super::tree::{Tree, write_whole};

/// Where the first commits of handoffs are noted, in the folder that git keeps for the tree.
const NOTES: &str = "handoffd-begun";

/// Who commits where the repository names nobody.
const NAME: &str = "handoffd";
const EMAIL: &str = "handoffd@localhost";

/// What stands on a branch after an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub branch: String,
    /// The commit at which the handoff began.
    pub base: String,
    pub commit: String,
    pub diffstat: String,
}

impl Tree {
    /// Commits everything that git does not ignore, on our branch. What can't be committed goes to
    /// `warnings`. `false` if there was nothing.
    pub fn commit_all(
        &self,
        repository: &Repository,
        message: &str,
        warnings: &mut Vec<String>,
    ) -> Result<bool, WorkspaceError> {
        self.intact(repository)?;
        let mut add = vec![
            "add".to_owned(),
            "--all".to_owned(),
            // One file that can't be read keeps no other out.
            "--ignore-errors".to_owned(),
            "--".to_owned(),
            ".".to_owned(),
        ];
        // Git takes no ignored file, and refuses to be told so twice.
        let is_ignored =
            |file: &&String| ask(&self.path, &["check-ignore", "--quiet", "--", file]).is_some();
        for file in self.copied.iter().filter(|file| !is_ignored(file)) {
            add.push(format!(":(exclude,top,literal){file}"));
        }
        if let Some(said) = attempt(&self.path, &add)? {
            let errors: Vec<&str> = said
                .lines()
                .filter_map(|line| line.strip_prefix("error: "))
                .collect();
            if errors.is_empty() {
                return Err(WorkspaceError::passing(format!(
                    "can't commit the work in {}: {said}",
                    self.path.display()
                )));
            }
            warnings.push(format!("not committed: {}", errors.join("; ")));
        }
        let clean = ask(&self.path, &["diff", "--cached", "--quiet"]).is_some();
        if clean && !self.is_merging() {
            return Ok(false);
        }
        let mut commit = Vec::new();
        for (key, value) in [("user.name", NAME), ("user.email", EMAIL)] {
            if ask(&self.path, &["config", "--get", key]).is_none() {
                commit.extend(["-c".to_owned(), format!("{key}={value}")]);
            }
        }
        commit.extend(
            [
                "commit",
                "--quiet",
                "--no-verify",
                "--no-gpg-sign",
                "--allow-empty",
                "-m",
                message,
            ]
            .map(str::to_owned),
        );
        call(&self.path, &commit)?;
        Ok(true)
    }

    fn is_merging(&self) -> bool {
        self.git.join("MERGE_HEAD").exists()
    }

    /// Brings the branch to where the work is: an agent may have left it, with or without a branch of
    /// its own. What can't be brought there is said.
    pub fn back_on_branch(
        &self,
        repository: &Repository,
    ) -> Result<Option<String>, WorkspaceError> {
        self.intact(repository)?;
        let on = ask(&self.path, &["symbolic-ref", "--quiet", "--short", "HEAD"]);
        if on.as_deref() == Some(&self.branch) {
            return Ok(None);
        }
        let where_it_is = on.map_or_else(
            || "no branch".to_owned(),
            |name| format!("the branch {name}"),
        );
        let ours = format!("refs/heads/{}", self.branch);
        let ahead = ask(&self.path, &["merge-base", "--is-ancestor", &ours, "HEAD"]).is_some()
            || ask(&self.path, &["rev-parse", "--verify", "--quiet", &ours]).is_none();
        if !ahead {
            return Ok(Some(format!(
                "the work is on {where_it_is}, which does not follow {}; merge it by hand",
                self.branch
            )));
        }
        let _hold = repository.hold()?;
        call(&self.path, &["branch", "--force", &self.branch, "HEAD"])?;
        call(&self.path, &["checkout", "--quiet", &self.branch])?;
        Ok(Some(format!(
            "the work is on {where_it_is}; moved {} there",
            self.branch
        )))
    }

    /// Gives commits that no branch has a branch of their own, before the tree goes that keeps them.
    pub fn keep_detached(&self, repository: &Repository) -> Result<Option<String>, WorkspaceError> {
        let head = call(&self.path, &["rev-parse", "HEAD"])?;
        let left = ask(
            &self.path,
            &[
                "rev-list",
                "--count",
                "--max-count=1",
                &head,
                "--not",
                "--branches",
                "--tags",
                "--remotes",
            ],
        );
        if left.as_deref() == Some("0") {
            return Ok(None);
        }
        let name = format!("{}%{}", self.branch, &head[..12]);
        let _hold = repository.hold()?;
        call(
            &repository.top,
            &["branch", "--force", "--no-track", &name, &head],
        )?;
        Ok(Some(name))
    }

    fn note(&self, id: &str) -> PathBuf {
        self.git.join(NOTES).join(super::names::encode(id))
    }

    /// Whether no handoff has begun in this tree yet.
    pub fn is_unused(&self) -> bool {
        fs::read_dir(self.git.join(NOTES)).map_or(true, |mut notes| notes.next().is_none())
    }

    /// Notes the commit at which a handoff begins, once; a later attempt finds the first one's.
    pub fn begin(&self, repository: &Repository, id: &str) -> Result<String, WorkspaceError> {
        if let Some(known) = begun(&self.git, &self.path, id) {
            return Ok(known);
        }
        let head = call(&self.path, &["rev-parse", "HEAD"])?;
        let notes = self.git.join(NOTES);
        fs::create_dir_all(&notes)
            .map_err(|error| WorkspaceError::passing(format!("{}: {error}", notes.display())))?;
        write_whole(repository, &self.note(id), &head)?;
        Ok(head)
    }

    /// What stands on the branch since `base`.
    pub fn standing(&self, base: &str) -> Result<Standing, WorkspaceError> {
        Ok(Standing {
            branch: self.branch.clone(),
            base: base.to_owned(),
            commit: call(&self.path, &["rev-parse", "HEAD"])?,
            diffstat: call(&self.path, &["diff", "--shortstat", base, "HEAD"])?
                .trim()
                .to_owned(),
        })
    }
}

/// The commit at which a handoff began in a tree, as far as it is noted.
pub fn begun(git: &Path, tree: &Path, id: &str) -> Option<String> {
    let note = git.join(NOTES).join(super::names::encode(id));
    let known = fs::read_to_string(note).ok()?.trim().to_owned();
    let is_commit = format!("{known}^{{commit}}");
    ask(tree, &["rev-parse", "--verify", "--quiet", &is_commit])?;
    Some(known)
}
