//! Configuration: raw TOML in, a checked [`Config`] out.
//!
//! A [`Config`] that exists is right: every later room takes its values without a second look.
//! What is wrong is said at the start, with file, line, column, key and what would be right,
//! and all of it at once, because a start that fails five times for five typos is no help.
//!
//! The document is walked as TOML's own value tree rather than derived with serde: a derived
//! reader stops at its first error and forgets where values stood once they are read.
//!
//! Deliberately absent: defaults that depend on the machine, and look-ups in the file system, but
//! for the names of the files in `agents/`. Whether a command exists is asked when it is started.

mod agents;
#[cfg(test)]
mod broken;
mod confine;
mod error;
mod follow_ups;
pub mod published;
mod reader;
mod sections;
mod specialists;
#[cfg(test)]
mod tests;
mod types;
mod units;
mod value;

use std::io::ErrorKind;
use std::path::Path;

use toml::de::DeTable;

pub use agents::{CodingAgent, Workspace};
pub use error::{ConfigError, Problem};
pub use types::{
    AnchorTo, Audit, Config, Context, Daemon, Defaults, Gate, Intake, KeptPackages, Metrics,
    MissingSchema, Mode, Notify, OnStop, Phases, Rate, Retention, Retry, RetryOverride, Rlimits,
    Sandbox, Specialist, Step, UserName, Watch,
};

use crate::protocol::agent::AgentName;
use reader::{Findings, Section};

impl Config {
    /// Checks the text of a configuration. `file` is only what messages call it. Only the coding
    /// agents that are built in are known.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let known = handoffd_agents::run::known_agents();
        let known: Vec<String> = known.into_iter().map(str::to_owned).collect();
        Self::parse_knowing(text, file, &known)
    }

    fn parse_knowing(text: &str, file: &Path, agents: &[String]) -> Result<Self, ConfigError> {
        let document =
            DeTable::parse(text).map_err(|error| ConfigError::syntax(file, text, &error))?;
        let findings = Findings::default();
        let mut config = Self::default();
        Section::root(document.get_ref(), &findings).read(|top| {
            sections::daemon(top, &mut config.daemon);
            sections::defaults(top, &mut config.defaults);
            sections::intake(top, &mut config.intake);
            sections::notify(top, &mut config.notify);
            sections::audit(top, &mut config.audit);
            sections::retention(top, &mut config.retention);
            sections::context(top, &mut config.context);
            sections::metrics(top, &mut config.metrics);
            let most = config.defaults.max_timeout;
            specialists::read(top, &mut config.specialists, most, agents);
            follow_ups::routes(top, &mut config.routes_blocked);
            follow_ups::workflows(top, &mut config.workflows);
            follow_ups::phases(top, &mut config.phases);
            follow_ups::gates(top, &mut config.gates);
        });
        let problems = findings.into_problems(text);
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError::Invalid {
                file: file.to_path_buf(),
                problems,
            })
        }
    }

    /// Reads and checks a file. One that is not there gives the defaults, unless it was asked
    /// for by name (`required`). The files in `agents/` below the root describe more coding agents.
    pub fn load(path: &Path, required: bool, root: &Path) -> Result<Self, ConfigError> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            // A link that leads nowhere is not "no file": somebody meant something by it.
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    && !required
                    && std::fs::symlink_metadata(path).is_err() =>
            {
                return Ok(Self::default());
            }
            Err(source) => {
                return Err(ConfigError::Read {
                    file: path.to_path_buf(),
                    source,
                });
            }
        };
        match std::str::from_utf8(&bytes) {
            Ok(text) => Self::parse_knowing(text, path, &known_agents(root)),
            Err(error) => Err(ConfigError::not_utf8(path, &bytes, error)),
        }
    }

    /// Who does the work for this agent: its own entry, else `*`. Nobody stands in for a human.
    pub fn specialist(&self, agent: &AgentName) -> Option<&Specialist> {
        if agent.is_human() {
            return None;
        }
        self.specialists.get(agent).or_else(|| {
            self.specialists
                .iter()
                .find_map(|(name, specialist)| name.is_wildcard().then_some(specialist))
        })
    }
}

/// The coding agents that are built in, and those that `agents/NAME.toml` below the root describes.
fn known_agents(root: &Path) -> Vec<String> {
    let built_in = handoffd_agents::run::known_agents();
    let mut known: Vec<String> = built_in.into_iter().map(str::to_owned).collect();
    let described = std::fs::read_dir(root.join("agents"));
    let mut described: Vec<String> = described
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some(name.strip_suffix(".toml")?.to_owned())
        })
        .filter(|name| !known.contains(name))
        .collect();
    described.sort();
    known.append(&mut described);
    known
}
