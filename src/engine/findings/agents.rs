//! What coding agents and worktrees need: the program, templates that can be filled, a repository to
//! work on, and a unit that lets Node run and reach the network.

use std::fs;
use std::path::{Path, PathBuf};

use handoffd_agents::prompt;
use handoffd_agents::workspace::git::Repository;

use super::Finding;
use super::named::program;
use crate::config::{CodingAgent, Config, Workspace};
use crate::runner::agents;
use crate::spool::layout::Layout;

pub(super) fn check(
    layout: &Layout,
    config: &Config,
    findings: &mut Vec<Finding>,
    notes: &mut Vec<String>,
) {
    let root = layout.root();
    let mut with_agent = Vec::new();
    for (name, specialist) in &config.specialists {
        if let Some(agent) = &specialist.agent {
            findings.extend(agent_program(root, &name.to_string(), agent));
            for template in agents::templates(agent, root) {
                findings.extend(unusable(&name.to_string(), &template));
            }
            with_agent.push(name.to_string());
        }
        if let Some(workspace) = &specialist.workspace {
            findings.extend(repository(root, &name.to_string(), workspace));
        }
    }
    if let Some(first) = with_agent.first() {
        notes.extend(units(root).iter().filter_map(|unit| unit.against(first)));
    }
}

fn agent_program(root: &Path, name: &str, agent: &CodingAgent) -> Option<Finding> {
    let word = match agents::program(agent, root) {
        Ok(word) => word,
        Err(why) => {
            return Some(Finding {
                what: format!("the agent of {name} can't be used: {why}"),
                do_this: "correct the file, or `agent` in handoffd.toml".to_owned(),
            });
        }
    };
    let whose = format!("the agent {} of {name}", agent.name);
    let found = program(root, &[word], &whose, "agent")?;
    let install = match agent.name.as_str() {
        "claude" => "npm install -g @anthropic-ai/claude-code",
        "codex" => "npm install -g @openai/codex",
        "gemini" => "npm install -g @google/gemini-cli",
        "opencode" => "npm install -g opencode-ai",
        _ => return Some(found),
    };
    Some(Finding {
        do_this: format!(
            "install it ({install}), or set its folder in env = {{ PATH = \"…\" }} of {name}"
        ),
        ..found
    })
}

fn unusable(name: &str, template: &Path) -> Option<Finding> {
    let wrong = match fs::read_to_string(template) {
        Ok(text) => prompt::check(&text).err()?.to_string(),
        Err(error) => error.to_string(),
    };
    Some(Finding {
        what: format!("the prompt of {name}, {}: {wrong}", template.display()),
        do_this: "correct the template, or `prompt` in handoffd.toml".to_owned(),
    })
}

fn repository(root: &Path, name: &str, workspace: &Workspace) -> Option<Finding> {
    let path = root.join(&workspace.repository);
    let finding = |what: String, do_this: &str| Finding {
        what: format!("the repository of {name}: {what}"),
        do_this: do_this.to_owned(),
    };
    let found = Repository::find(&path);
    let at_rest = found.and_then(|repository| repository.at_rest().map(|()| repository));
    let repository = match at_rest {
        Ok(repository) => repository,
        Err(error) => {
            let advice = "correct it, or `repository` in handoffd.toml";
            return Some(finding(error.to_string(), advice));
        }
    };
    let base = workspace.base.as_deref().unwrap_or("HEAD");
    if repository.commit(base).is_none() {
        let what = match &workspace.base {
            Some(base) => format!("it has no branch or commit {base}"),
            None => format!("{} has no commit yet", path.display()),
        };
        return Some(finding(
            what,
            "commit something, or correct `base` in handoffd.toml",
        ));
    }
    let missing = workspace
        .copy
        .iter()
        .find(|file| !repository.top.join(file).exists())?;
    Some(finding(
        format!("{missing} is to be copied and is not there"),
        "make it, or take it out of `copy` in handoffd.toml",
    ))
}

/// A unit of systemd that starts the daemon on this root, with the files beside it that change it.
struct Unit {
    path: PathBuf,
    settings: String,
}

impl Unit {
    /// The last value counts.
    fn is_on(&self, key: &str) -> bool {
        let mut values = self.settings.lines().filter_map(|line| {
            let (name, value) = line.trim().split_once('=')?;
            (name.trim() == key).then(|| value.trim())
        });
        matches!(values.next_back(), Some("yes" | "true" | "on" | "1"))
    }

    /// Why a coding agent can't work in it.
    fn against(&self, agent: &str) -> Option<String> {
        let why = if self.is_on("PrivateNetwork") {
            "gives it no network"
        } else if self.is_on("MemoryDenyWriteExecute") {
            "forbids the JIT compiler that Node needs"
        } else {
            return None;
        };
        Some(format!(
            "{agent} is a coding agent, and {} {why}; install the profile for agents: handoffd service \
             systemd --profile agents",
            self.path.display()
        ))
    }
}

/// The units that are installed for a root.
fn units(root: &Path) -> Vec<Unit> {
    let mut folders: Vec<PathBuf> = ["/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"]
        .iter()
        .map(|above| Path::new(above).join("systemd/system"))
        .collect();
    let own = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    folders.extend(own.or(home).map(|folder| folder.join("systemd/user")));
    let mut found: Vec<Unit> = Vec::new();
    for path in folders.iter().flat_map(|folder| names(folder, ".service")) {
        let name = path.file_name().unwrap_or_default();
        let is_known = |unit: &Unit| unit.path.file_name() == Some(name);
        let Ok(mut settings) = fs::read_to_string(&path) else {
            continue;
        };
        if !name.to_string_lossy().starts_with("handoffd")
            || !starts_on(&settings, root)
            || found.iter().any(is_known)
        {
            continue;
        }
        let beside = format!("{}.d", name.to_string_lossy());
        for more in folders
            .iter()
            .flat_map(|folder| names(&folder.join(&beside), ".conf"))
        {
            settings.push('\n');
            settings.push_str(&fs::read_to_string(more).unwrap_or_default());
        }
        found.push(Unit { path, settings });
    }
    found
}

fn starts_on(unit: &str, root: &Path) -> bool {
    let root = root.display().to_string();
    unit.lines().any(|line| {
        let started = line.strip_prefix("ExecStart=");
        started.is_some_and(|line| {
            let mut words = line.split(' ').map(|word| word.trim_matches('"'));
            words.any(|word| word == root)
        })
    })
}

fn names(folder: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(end))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_without_network_or_jit_is_no_place_for_an_agent() {
        let offline = include_str!("../../../systemd/profiles/offline.conf");
        let agents = include_str!("../../../systemd/profiles/agents.conf");
        let system = include_str!("../../../systemd/handoffd.service");
        let user = include_str!("../../../systemd/user/handoffd.service");
        for (settings, why) in [
            (format!("{system}{offline}"), Some("no network")),
            (system.to_owned(), Some("JIT compiler")),
            (format!("{system}{agents}"), None),
            (user.to_owned(), None),
        ] {
            let unit = Unit {
                path: PathBuf::from("u"),
                settings,
            };
            let said = unit.against("@coder");
            assert_eq!(said.is_some(), why.is_some(), "{said:?}");
            assert!(said.unwrap_or_default().contains(why.unwrap_or_default()));
        }
        assert!(starts_on(system, Path::new("/var/lib/handoffd")));
        assert!(starts_on(
            "ExecStart=\"/h\" run --root \"/r\"",
            Path::new("/r")
        ));
        assert!(!starts_on(
            "ExecStart=\"/h\" run --root \"/r2\"",
            Path::new("/r")
        ));
    }
}
