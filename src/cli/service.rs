//! `handoffd service`: a unit for this binary and this root, to be installed by whoever asked.
//!
//! The unit goes to stdout and nothing is installed; three lines on stderr say how to.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::{Failed, Global, Outcome, out, person};
use crate::config::Config;
use crate::protocol::shown;
use crate::runner::agents;
use crate::service::profile::{Profile, path_for};
use crate::service::units::{Plan, UnitError};

#[derive(Debug, Args)]
#[command(
    after_help = "Prints the unit and installs nothing. The daemon runs as the owner of the root."
)]
pub struct Options {
    /// The service manager
    #[arg(value_enum)]
    manager: Manager,
    /// For your own service manager, without root
    #[arg(long)]
    user: bool,
    /// What the specialists are
    #[arg(long, value_enum)]
    profile: Option<Choice>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// Coding agents: network, JIT compilers, repositories and their owner's home
    Agents,
    /// Programs that need no network
    Offline,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Manager {
    Systemd,
    Launchd,
}

/// What a stop takes besides the two graces: the engine's own margin, and writing outcomes.
const MARGIN: Duration = Duration::from_secs(35);

pub fn service(global: &Global, options: &Options) -> Outcome {
    let layout = global.layout()?;
    let config = global.load_config()?;
    let program = std::env::current_exe()?;
    if !program.exists() {
        let text = format!(
            "{} no longer exists; run the installed binary",
            program.display()
        );
        return Err(Failed::thing("PROGRAM", anyhow::anyhow!(text)));
    }
    let owner = (!options.user).then(|| owner_of(layout.root()));
    if owner.as_deref() == Some("root") && !switches_users(&config, owner.as_deref()) {
        out::talk!(
            "! the root belongs to root, so every agent will run as root; chown the folder to another user"
        );
    }
    let switches_users = switches_users(&config, owner.as_deref());
    if switches_users && options.user {
        let text = "a specialist has a user of its own, which only a system service can use; leave out --user";
        return Err(Failed::usage("USER", anyhow::anyhow!(text)));
    }
    if switches_users && owner.as_deref() != Some("root") {
        out::talk!(
            "! specialists have users of their own, so the daemon runs as root and the folder must belong to root: sudo chown -R root {}",
            shown::path(layout.root())
        );
    }
    let profile = match (options.profile, options.manager) {
        (None, _) => None,
        (Some(_), Manager::Launchd) => {
            let text = "profiles are for systemd; leave out --profile";
            return Err(Failed::usage("PROFILE", anyhow::anyhow!(text)));
        }
        (Some(Choice::Offline), _) if options.user => {
            let text = "the offline profile needs a system unit; leave out --user";
            return Err(Failed::usage("PROFILE", anyhow::anyhow!(text)));
        }
        (Some(Choice::Offline), _) => Some(Profile::Offline),
        (Some(Choice::Agents), _) => Some(Profile::Agents),
    };
    if profile == Some(Profile::Offline)
        && let Some((name, _)) = config.specialists.iter().find(|(_, it)| it.agent.is_some())
    {
        out::talk!(
            "! {name} is a coding agent and has no network in this profile; use --profile agents"
        );
    }
    let for_agents = profile == Some(Profile::Agents);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let plan = Plan {
        profile,
        writable: if for_agents {
            writable(&config, layout.root())
        } else {
            Vec::new()
        },
        path: path_for(&programs(&config, layout.root()), &path).filter(|_| for_agents),
        switches_users,
        program,
        root: layout.root().to_owned(),
        config: global
            .config
            .as_deref()
            .map(std::path::absolute)
            .transpose()?,
        owner,
        stop: patience(&config),
    };
    let unit = match options.manager {
        Manager::Systemd => plan.systemd(),
        Manager::Launchd => plan.launchd(),
    };
    out::put(unit.map_err(unwritable)?)?;
    tell(&plan, options);
    Ok(0)
}

/// What coding agents write besides the root: the repositories of their worktrees, and the home of the
/// person whose login they use.
fn writable(config: &Config, root: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = config
        .specialists
        .values()
        .filter_map(|it| it.workspace.as_ref())
        .map(|workspace| root.join(&workspace.repository))
        .map(|path| path.canonicalize().unwrap_or(path))
        .filter(|path| !path.starts_with(root))
        .collect();
    let uid = std::fs::metadata(root).map(|metadata| metadata.uid()).ok();
    paths.extend(uid.and_then(person::home_of).filter(|home| home.is_dir()));
    paths.sort();
    paths.dedup();
    paths
}

/// The programs that the specialists need.
fn programs(config: &Config, root: &Path) -> BTreeSet<String> {
    let agents = config
        .specialists
        .values()
        .filter_map(|it| it.agent.as_ref());
    let agents = agents.filter_map(|agent| agents::program(agent, root).ok());
    agents.chain(["git", "node"].map(str::to_owned)).collect()
}

/// Whether a specialist runs as somebody else than the daemon would.
fn switches_users(config: &Config, owner: Option<&str>) -> bool {
    let mut users = config
        .specialists
        .values()
        .filter_map(|it| it.user.as_ref());
    users.any(|name| Some(name.user.as_str()) != owner || name.group.is_some())
}

fn unwritable(error: UnitError) -> Failed {
    Failed::usage("PATH", error)
}

/// How long a stop may take, as this configuration has it.
fn patience(config: &Config) -> Duration {
    let longest = config
        .specialists
        .values()
        .filter_map(|specialist| specialist.kill_grace)
        .chain([config.defaults.kill_grace])
        .max();
    config
        .daemon
        .shutdown_grace
        .saturating_add(longest.unwrap_or_default())
        .saturating_add(MARGIN)
}

/// Whom the root belongs to, or will if it is yet to be made: by name where there is one.
fn owner_of(root: &Path) -> String {
    let uid = std::fs::metadata(root).map_or_else(
        |_| rustix::process::getuid().as_raw(),
        |metadata| metadata.uid(),
    );
    person::name_of(uid).unwrap_or_else(|| uid.to_string())
}

/// The three lines that install it.
fn tell(plan: &Plan, options: &Options) {
    let mut again = format!(
        "{} service {}{}{} --root {}",
        shown::path(&plan.program),
        match options.manager {
            Manager::Systemd => "systemd",
            Manager::Launchd => "launchd",
        },
        if options.user { " --user" } else { "" },
        match options.profile {
            Some(Choice::Agents) => " --profile agents",
            Some(Choice::Offline) => " --profile offline",
            None => "",
        },
        shown::path(&plan.root),
    );
    if let Some(config) = &plan.config {
        again.push_str(" --config ");
        again.push_str(&shown::path(config));
    }
    out::talk!("Install it:");
    match (options.manager, options.user) {
        (Manager::Systemd, false) => {
            out::talk!("  {again} | sudo tee /etc/systemd/system/handoffd.service");
            out::talk!("  sudo systemctl daemon-reload");
            out::talk!("  sudo systemctl enable --now handoffd");
        }
        (Manager::Systemd, true) => {
            let units = "~/.config/systemd/user";
            out::talk!("  mkdir -p {units} && {again} > {units}/handoffd.service");
            out::talk!("  systemctl --user daemon-reload && loginctl enable-linger");
            out::talk!("  systemctl --user enable --now handoffd");
        }
        (Manager::Launchd, false) => {
            let file = "/Library/LaunchDaemons/com.handoffd.plist";
            out::talk!("  {again} | sudo tee {file}");
            out::talk!("  sudo plutil -lint {file}");
            out::talk!("  sudo launchctl bootstrap system {file}");
        }
        (Manager::Launchd, true) => {
            let file = "~/Library/LaunchAgents/com.handoffd.plist";
            out::talk!("  {again} > {file}");
            out::talk!("  plutil -lint {file}");
            out::talk!("  launchctl bootstrap gui/$(id -u) {file}");
        }
    }
    if options.manager == Manager::Launchd {
        out::talk!("! handoffd is not built or tested on macOS yet");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_covers_the_longest_grace() {
        let config = Config::default();
        let least = config.daemon.shutdown_grace + config.defaults.kill_grace;
        assert!(patience(&config) > least + Duration::from_secs(15));
    }
}
