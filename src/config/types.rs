//! The checked configuration and its defaults.
//!
//! Plain data with public fields: what a value may be is decided where it is read, so that
//! the rule stands next to the message that explains it.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use super::agents::{CodingAgent, Workspace};
use crate::durable::Durability;
use crate::protocol::agent::AgentName;
use crate::protocol::digest::Key;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    pub daemon: Daemon,
    pub defaults: Defaults,
    pub intake: Intake,
    /// By bare name, `*` included. Use [`Config::specialist`] to look one up.
    pub specialists: BTreeMap<AgentName, Specialist>,
    /// Who helps with a blocked handoff, by `blocked_reason`.
    pub routes_blocked: BTreeMap<String, AgentName>,
    pub workflows: BTreeMap<String, Vec<Step>>,
    pub phases: Phases,
    pub gates: Vec<Gate>,
    pub notify: Notify,
    pub audit: Audit,
    pub retention: Retention,
    pub context: Context,
    pub metrics: Metrics,
    /// The secret of the root. It is read at the start, from a file of its own.
    pub key: Key,
}

impl Config {
    /// The settings in which `new` differs and that only a start takes up.
    pub fn needs_a_start(&self, new: &Self) -> Vec<&'static str> {
        let (old, daemon) = (&self.daemon, &new.daemon);
        let settings = [
            ("daemon.watch", old.watch != daemon.watch),
            ("daemon.durability", old.durability != daemon.durability),
            (
                "daemon.allow_network_fs",
                old.allow_network_fs != daemon.allow_network_fs,
            ),
            ("metrics.listen", self.metrics != new.metrics),
        ];
        let changed = settings.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(name, _)| name).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Attempts at once, over all specialists.
    pub max_concurrent: usize,
    /// How long a file that does not parse must be still before it counts as broken.
    pub settle: Duration,
    /// How often to look even if no event came.
    pub rescan: Duration,
    pub watch: Watch,
    pub durability: Durability,
    pub max_request_size: u64,
    pub max_output_size: u64,
    /// The largest file that counts as an artifact.
    pub max_artifact_size: u64,
    pub shutdown_grace: Duration,
    pub on_stop: OnStop,
    /// After this many lost attempts a handoff is given up.
    pub max_interruptions: u32,
    /// Bounds what results ask for in one chain.
    pub max_hops: u32,
    /// The most handoffs that one chain sets in motion.
    pub max_chain: u32,
    pub allow_network_fs: bool,
    /// Folders of handoffs may be written by everybody.
    pub allow_shared: bool,
}

impl Default for Daemon {
    fn default() -> Self {
        Self {
            max_concurrent: 4,
            settle: Duration::from_millis(250),
            rescan: Duration::from_secs(30),
            watch: Watch::Auto,
            durability: Durability::Full,
            max_request_size: 8 << 20,
            max_output_size: 16 << 20,
            max_artifact_size: 1 << 30,
            shutdown_grace: Duration::from_secs(30),
            on_stop: OnStop::Finish,
            max_interruptions: 5,
            max_hops: 16,
            max_chain: 10_000,
            allow_network_fs: false,
            allow_shared: false,
        }
    }
}

/// Where hints about changed folders come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    Auto,
    Inotify,
    Poll,
}

/// What a stop of the daemon means for attempts that are running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStop {
    /// Let them end within `shutdown_grace`, then terminate them.
    Finish,
    /// Leave them running, for the next start to adopt.
    Detach,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Defaults {
    pub timeout: Duration,
    /// No attempt may ask for more.
    pub max_timeout: Duration,
    /// Between SIGTERM and SIGKILL.
    pub kill_grace: Duration,
    /// How long an attempt may stay after leaving a whole result.
    pub linger: Duration,
    /// The longest hold that a result may ask for.
    pub max_hold: Duration,
    pub dependency_wait: Duration,
    pub retry: Retry,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5 * 60),
            max_timeout: Duration::from_secs(24 * 60 * 60),
            kill_grace: Duration::from_secs(10),
            linger: Duration::from_secs(30),
            max_hold: Duration::from_secs(24 * 60 * 60),
            dependency_wait: Duration::from_secs(60 * 60),
            retry: Retry::default(),
        }
    }
}

/// How failures are tried again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    pub max_retries: u32,
    pub delay: Duration,
    pub multiplier: f64,
    pub max_delay: Duration,
    /// Up to this share of a wait is added to it.
    pub jitter: f64,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_retries: 3,
            delay: Duration::from_secs(30),
            multiplier: 2.0,
            max_delay: Duration::from_secs(60 * 60),
            jitter: 0.0,
        }
    }
}

/// The retry values that a specialist sets for itself.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RetryOverride {
    pub max_retries: Option<u32>,
    pub delay: Option<Duration>,
    pub multiplier: Option<f64>,
    pub max_delay: Option<Duration>,
    pub jitter: Option<f64>,
}

impl RetryOverride {
    /// These values where they are set, those of `base` elsewhere.
    pub fn over(&self, base: &Retry) -> Retry {
        Retry {
            max_retries: self.max_retries.unwrap_or(base.max_retries),
            delay: self.delay.unwrap_or(base.delay),
            multiplier: self.multiplier.unwrap_or(base.multiplier),
            max_delay: self.max_delay.unwrap_or(base.max_delay),
            jitter: self.jitter.unwrap_or(base.jitter),
        }
    }
}

/// How much one agent is handed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Context {
    /// The context window of an agent, in tokens.
    pub window_tokens: u64,
    /// The share of the window that a record may take before it is compacted.
    pub compact_at: f64,
}

impl Context {
    /// The most tokens that a record has when an agent gets it.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "both factors are small and not negative"
    )]
    pub fn most_tokens(&self) -> usize {
        (self.window_tokens as f64 * self.compact_at) as usize
    }

    /// The most bytes that a file may have for an agent to read it whole: a token of usual text has
    /// four.
    pub fn most_bytes(&self) -> u64 {
        (self.most_tokens() as u64).saturating_mul(4)
    }
}

impl Default for Context {
    fn default() -> Self {
        Self {
            window_tokens: 200_000,
            compact_at: 0.25,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Intake {
    /// Poor quality is an error rather than a warning.
    pub strict: bool,
    pub missing_schema: MissingSchema,
}

/// What to do with a request that names a schema which is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingSchema {
    #[default]
    Fail,
    Warn,
}

/// A command that does the work for one agent, and how it is run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Specialist {
    /// Empty where a coding agent does the work; else its first word is not empty.
    pub command: Vec<String>,
    pub agent: Option<CodingAgent>,
    pub workspace: Option<Workspace>,
    /// A hold of one specialist is a hold of all that share its account.
    pub account: Option<String>,
    /// Relative to the root, which is also the default.
    pub working_dir: Option<PathBuf>,
    pub env: BTreeMap<String, String>,
    pub pass_env: Vec<String>,
    pub timeout: Option<Duration>,
    pub stall_timeout: Option<Duration>,
    pub kill_grace: Option<Duration>,
    pub linger: Option<Duration>,
    pub max_concurrent: Option<usize>,
    pub mode: Mode,
    /// A resident process is let go after this many handoffs.
    pub max_handoffs: Option<u32>,
    /// A resident process is let go at this age.
    pub max_age: Option<Duration>,
    pub rate: Option<Rate>,
    pub retry: RetryOverride,
    pub input_schema: Option<String>,
    pub output_schema: Option<String>,
    pub verify: Option<Vec<String>>,
    /// Which files may be the report of an attempt, relative to its working folder.
    pub report: Option<String>,
    /// What it creates files with, if not with the keeper's.
    pub umask: Option<u32>,
    /// Who it runs as, if not as the daemon's user.
    pub user: Option<UserName>,
    pub rlimits: Rlimits,
    pub sandbox: Option<Sandbox>,
}

impl Specialist {
    /// Whether its attempts get a folder of their own, because they can't use the daemon's.
    pub fn has_home(&self) -> bool {
        self.user.is_some() || self.sandbox.is_some()
    }
}

/// `user` or `user:group`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserName {
    pub user: String,
    pub group: Option<String>,
}

impl std::fmt::Display for UserName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.user)?;
        self.group
            .iter()
            .try_for_each(|group| write!(f, ":{group}"))
    }
}

/// Limits of the system's for each process of an attempt. What is not set is as the daemon has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rlimits {
    pub nofile: Option<u64>,
    pub nproc: Option<u64>,
    pub address_space: Option<u64>,
    pub cpu: Option<Duration>,
    pub fsize: Option<u64>,
    pub core: Option<u64>,
}

/// What an attempt may reach of the file system, besides what every program needs. Relative
/// paths are below the root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sandbox {
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    /// Run it without one where the kernel can't hold it.
    pub best_effort: bool,
}

/// Whether a process does one handoff or many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// One process for each attempt.
    #[default]
    Spawn,
    /// A process stays, and gets one handoff after the other.
    Resident,
}

impl Specialist {
    pub fn is_resident(&self) -> bool {
        self.mode == Mode::Resident
    }

    /// How many handoffs at once, where that is bounded. A resident command is started once
    /// unless more is asked for.
    pub fn at_once(&self) -> Option<usize> {
        self.max_concurrent.or(self.is_resident().then_some(1))
    }
}

/// At most `starts` starts in any `per`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub starts: u32,
    pub per: Duration,
}

/// One step of a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub phase: String,
    pub agent: AgentName,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Phases {
    pub order: Vec<String>,
    /// Artifact types that must be there to enter a phase.
    pub requires: BTreeMap<String, Vec<String>>,
}

/// A command that must pass before a phase is entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    pub name: String,
    pub phases: Vec<String>,
    pub command: Vec<String>,
}

/// Commands that are told of a transition, with the record on stdin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notify {
    pub failed: Option<Vec<String>>,
    pub waiting_human: Option<Vec<String>>,
    pub completed: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    pub packages: KeptPackages,
    /// Where number and hash of the log's last line go now and then.
    pub anchor: Option<AnchorTo>,
    /// After so many lines at the latest.
    pub anchor_lines: u64,
    /// After this time at the latest, where there is a new line.
    pub anchor_interval: Duration,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            packages: KeptPackages::default(),
            anchor: None,
            anchor_lines: 1000,
            anchor_interval: Duration::from_secs(10 * 60),
        }
    }
}

/// A place for anchors that an attacker with the daemon's rights can't change afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnchorTo {
    Journal,
    Syslog,
    /// A file or FIFO that the daemon may only append to.
    File(PathBuf),
}

/// Which handoffs that ended are also kept as packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeptPackages {
    /// Those that came as packages.
    #[default]
    Dropped,
    All,
    None,
}

/// Figures for monitoring. Nothing listens unless an address is set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    /// On this machine only; port 0 is any that is free.
    pub listen: Option<SocketAddrV4>,
}

/// How long things are kept. What is not set is kept for ever.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retention {
    pub completed: Option<Duration>,
    pub failed: Option<Duration>,
    pub logs: Option<Duration>,
    /// Of chains that have ended.
    pub worktrees: Option<Duration>,
    /// What adapters keep of coding agents' sessions.
    pub sessions: Option<Duration>,
}
