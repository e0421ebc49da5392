//! Who may be able to rewrite what the daemon runs.
//!
//! A world-writable configuration, script or folder lets every user of the machine name commands, so
//! nothing of it is used. What a group may write to is accepted: its members were chosen, and several
//! people keep one root that way. A sticky folder is accepted outside of the root, as `/tmp` is, since
//! nobody can replace a file there that belongs to another user; below the root it is not, because a
//! script also loads what lies beside it.
//!
//! A daemon that is root does more than those who can write to its root: it also asks who owns a file.

use std::path::Path;

use crate::protocol::shown;

/// One file or folder, as the system describes it.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    pub path: &'a Path,
    pub is_folder: bool,
    /// Permissions, sticky and set-id bits.
    pub mode: u32,
    pub owner: u32,
    /// It is the root or lies below it, or it is the configuration.
    pub is_ours: bool,
}

/// Whom the daemon and the command run as.
#[derive(Debug, Clone, Copy)]
pub struct Runs {
    pub daemon: u32,
    /// The user of the specialist, where it has one of its own.
    pub command: Option<u32>,
}

/// Why something is not to be used, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    pub what: String,
    pub advice: String,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.what, self.advice)
    }
}

/// What is wrong with it, if anything. `name` gives a user's name.
pub fn refuse(found: Found<'_>, runs: Runs, name: impl Fn(u32) -> String) -> Option<Wrong> {
    let word = shown::path(found.path);
    let path = shown::safe(&found.path.to_string_lossy(), false);
    let is_sticky = found.is_folder && found.mode & 0o1000 != 0;
    if found.mode & 0o002 != 0 && (found.is_ours || !is_sticky) {
        return Some(Wrong {
            what: format!(
                "{path} is writable by everybody (mode {:04o})",
                found.mode & 0o7777
            ),
            advice: format!("chmod o-w {word}"),
        });
    }
    let owners = [Some(0), runs.command];
    if runs.daemon == 0 && found.is_ours && !owners.contains(&Some(found.owner)) {
        let owner = name(found.owner);
        return Some(Wrong {
            what: format!(
                "{path} belongs to {owner}, who could change it and run anything as root through \
                 this daemon"
            ),
            advice: format!("chown root {word}, or run the daemon as {owner}"),
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn world_writable_and_other_owners_are_refused() {
        let (root, me, builder) = (0, 1000, 1001);
        // folder, mode, owner, below the root, daemon, the command's user: refused for what.
        for (is_folder, mode, owner, is_ours, daemon, command, refused) in [
            (false, 0o644, me, true, me, None, None),
            (false, 0o664, me, true, me, None, None),
            (false, 0o666, me, true, me, None, Some("writable by")),
            (false, 0o646, root, false, me, None, Some("writable by")),
            (true, 0o777, me, true, me, None, Some("writable by")),
            (true, 0o1777, me, true, me, None, Some("writable by")),
            (true, 0o1777, root, false, me, None, None),
            (false, 0o1777, root, false, me, None, Some("writable by")),
            (true, 0o2775, me, true, me, None, None),
            (false, 0o644, builder, true, me, None, None),
            (false, 0o644, builder, true, root, None, Some("belongs to")),
            (false, 0o644, builder, true, root, Some(builder), None),
            (
                false,
                0o644,
                me,
                true,
                root,
                Some(builder),
                Some("belongs to"),
            ),
            (false, 0o755, builder, false, root, None, None),
            (false, 0o644, root, true, root, Some(builder), None),
        ] {
            let found = Found {
                path: Path::new("/r/a file"),
                is_folder,
                mode,
                owner,
                is_ours,
            };
            let runs = Runs { daemon, command };
            let wrong = refuse(found, runs, |uid| format!("#{uid}"));
            let case = format!("{found:?} {runs:?}: {wrong:?}");
            let Some(refused) = refused else {
                assert_eq!(wrong, None, "{case}");
                continue;
            };
            let wrong = wrong.expect(&case);
            assert!(wrong.what.contains(refused), "{case}");
            assert!(wrong.advice.contains("'/r/a file'"), "{case}");
        }
    }
}
