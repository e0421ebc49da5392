//! Profiles of a unit: what the shipped drop-ins say, as part of a unit that is printed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const AGENTS: &str = include_str!("../../systemd/profiles/agents.conf");
const OFFLINE: &str = include_str!("../../systemd/profiles/offline.conf");

/// Where a service manager looks for programs by itself.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the specialists of a unit are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Coding agents: the network, and JIT compilers.
    Agents,
    /// Programs that need no network and that nobody trusts.
    Offline,
}

impl Profile {
    /// The settings of the drop-in, without its words on how to install it.
    pub fn settings(self) -> String {
        let text = match self {
            Self::Agents => AGENTS,
            Self::Offline => OFFLINE,
        };
        let lines = text.lines().skip_while(|line| !line.starts_with('['));
        lines.fold(String::new(), |text, line| text + line + "\n")
    }
}

/// A PATH in which a service finds the programs that are found now: a service manager knows nothing of
/// the folders that a shell adds. `None` where its own is enough.
pub fn path_for(programs: &BTreeSet<String>, path: &OsStr) -> Option<String> {
    let known: Vec<PathBuf> = std::env::split_paths(DEFAULT_PATH).collect();
    let mut more: Vec<PathBuf> = Vec::new();
    for program in programs.iter().filter(|name| !name.contains('/')) {
        let is_there = |folder: &PathBuf| folder.is_absolute() && runs(&folder.join(program));
        let found = std::env::split_paths(path).find(is_there);
        if let Some(folder) = found.filter(|it| !known.contains(it) && !more.contains(it)) {
            more.push(folder);
        }
    }
    let more: Vec<&str> = more.iter().filter_map(|folder| folder.to_str()).collect();
    (!more.is_empty()).then(|| format!("{}:{DEFAULT_PATH}", more.join(":")))
}

fn runs(program: &Path) -> bool {
    rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok() && program.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_a_service_would_not_search_are_added() {
        let programs = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let folder = tempfile::tempdir().unwrap();
        let agent = folder.path().join("my-agent");
        std::fs::write(&agent, "").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&agent, mode).unwrap();
        let path = format!("/usr/bin:{}", folder.path().display());
        let found = path_for(&programs(&["my-agent", "sh", "./here"]), path.as_ref());
        let expected = format!("{}:{DEFAULT_PATH}", folder.path().display());
        assert_eq!(found, Some(expected));
        assert_eq!(path_for(&programs(&["sh", "none"]), path.as_ref()), None);
    }

    #[test]
    fn a_profile_begins_with_its_first_section() {
        assert!(Profile::Agents.settings().starts_with("[Unit]\n"));
        assert!(Profile::Offline.settings().starts_with("[Service]\n"));
    }
}
