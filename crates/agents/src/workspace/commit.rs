//! Committing what is left uncommitted, and what a handoff changed since it began.

use std::fs;
use std::path::PathBuf;

use super::git::{Repository, WorkspaceError, ask, call};
use super::tree::Tree;

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
    /// Commits everything that git does not ignore, on our branch. `false` if there was nothing.
    pub fn commit_all(&self, message: &str) -> Result<bool, WorkspaceError> {
        let mut add = vec![
            "add".to_owned(),
            "--all".to_owned(),
            "--".to_owned(),
            ".".to_owned(),
        ];
        for file in &self.copied {
            add.push(format!(":(exclude,top,literal){file}"));
        }
        call(&self.path, &add)?;
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

    fn note(&self, id: &str) -> PathBuf {
        self.git.join(NOTES).join(super::names::encode(id))
    }

    /// Notes the commit at which a handoff begins, once; a later attempt finds the first one's.
    pub fn begin(&self, id: &str) -> Result<String, WorkspaceError> {
        let head = call(&self.path, &["rev-parse", "HEAD"])?;
        let note = self.note(id);
        if let Ok(known) = fs::read_to_string(&note)
            && ask(
                &self.path,
                &["rev-parse", "--verify", "--quiet", known.trim()],
            )
            .is_some()
        {
            return Ok(known.trim().to_owned());
        }
        let written =
            fs::create_dir_all(self.git.join(NOTES)).and_then(|()| fs::write(&note, &head));
        written.map_err(|error| WorkspaceError::passing(format!("{}: {error}", note.display())))?;
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
