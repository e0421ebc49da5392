//! The command line: one file for each subcommand, one place for exit codes and errors.
//!
//! Data goes to stdout, talk to stderr. Exit codes: 0 fine, 1 the thing asked about failed,
//! 2 wrong usage or configuration, 3 another daemon holds the root, 124 timed out.
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic where nothing can be written"
)]

mod access;
mod act;
mod again;
mod agent;
mod answer;
mod archive;
mod artifacts;
mod audit;
mod bulk;
mod chain;
mod check;
mod complete;
mod compose;
mod diff;
mod explain;
mod export;
mod init;
mod list;
mod logs;
mod man;
mod metrics;
mod out;
mod person;
mod prune;
mod root;
mod run;
mod schema;
mod service;
mod show;
mod state;
mod status;
mod style;
mod submit;
mod validate;
mod wait;
mod wake;
mod workspace;
mod worktrees;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use serde_json::{Map, Value, json};

use crate::cli::access::{find, known, unknown_id, whole_ids};
use crate::config::ConfigError;
use crate::durable;

#[derive(Debug, Parser)]
#[command(
    name = "handoffd",
    version,
    about = "A folder as a crash-safe queue for agents",
    after_help = "Without a command, `handoffd` runs the daemon in the foreground.\n\nTry it:\n  \
                  handoffd init demo\n  handoffd run --root demo &\n  handoffd submit --root demo \
                  --to echo --input '{\"text\": \"hello\"}' --wait"
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Option<Command>,
}

/// The heading in help for what every command takes.
const GLOBAL: &str = "Global options";

#[derive(Debug, Args)]
pub struct Global {
    /// The folder that holds handoffs/, artifacts/ and context/ [default: the nearest from here upward;
    /// for run and init this folder]
    #[arg(
        long,
        global = true,
        help_heading = GLOBAL,
        env = "HANDOFFD_ROOT",
        hide_env_values = true,
        value_name = "DIR"
    )]
    root: Option<PathBuf>,
    /// A configuration file other than handoffd.toml in the root
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write data and errors as JSON
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon in the foreground
    Run(run::Options),
    /// Create a root with a commented configuration, an example specialist and a request
    Init(init::Options),
    /// Check requests and drop them into pending/; prints one id per line
    Submit(submit::Options),
    /// Wait until handoffs have ended, and print their records
    Wait(wait::Options),
    /// Show running and waiting handoffs, recent failures and problems
    Status(status::Options),
    /// List handoffs, newest first
    List(list::Options),
    /// Show one handoff
    Show(show::Options),
    /// Explain why a handoff is where it is, and what moves it next
    Explain(explain::Options),
    /// Print the log of an attempt, also while it runs
    Logs(logs::Options),
    /// Print events as they happen
    Tail(audit::TailOptions),
    /// Show a chain of handoffs as a tree
    Chain(chain::Options),
    /// Print the history of a handoff and its chain, or verify the audit log
    Audit(audit::Options),
    /// List, show or verify artifacts
    Artifacts(artifacts::Options),
    /// Print one handoff as a package, in YAML or JSON
    Export(export::Options),
    /// Stop a handoff, wherever it is
    Cancel(act::CancelOptions),
    /// Run failed handoffs again, or run a waiting handoff now
    Retry(act::RetryOptions),
    /// Approve a handoff that waits for a human
    Approve(answer::ApproveOptions),
    /// Reject a handoff that waits for a human
    Reject(answer::RejectOptions),
    /// Ask a question back before approving or rejecting
    Ask(answer::AskOptions),
    /// Read and change task states: artifacts, decisions, issues
    State(state::Options),
    /// Check a request without running it
    Validate(validate::Options),
    /// Delete old ended handoffs
    Prune(prune::Options),
    /// Pack old ended handoffs into the archive
    Archive(archive::Options),
    /// Print metrics for monitoring
    Metrics(metrics::Options),
    /// Run a coding agent as a specialist: record on stdin, result on stdout
    Agent(agent::Options),
    /// Run a command in a git worktree of its own, and commit its changes
    Workspace(workspace::Options),
    /// List or remove the git worktrees of this root
    Worktrees(worktrees::TreesOptions),
    /// Show what a handoff changed in its worktree
    Diff(diff::Options),
    /// Check the configuration and the root
    Check(check::Options),
    /// Print a published format as a JSON Schema
    Schema(schema::Options),
    /// Print a service unit that runs this binary on this root
    Service(service::Options),
    /// Print a completion script for a shell
    Completions(complete::Options),
    /// Print the manual
    Man(man::Options),
}

impl Command {
    /// Whether it goes on when nobody reads what it tells: it would be cut off halfway.
    fn acts_on_many(&self) -> bool {
        matches!(
            self,
            Self::Run(_)
                | Self::Submit(_)
                | Self::Prune(_)
                | Self::Archive(_)
                // The program that they start may end before it has read its record.
                | Self::Agent(_)
                | Self::Workspace(_)
        )
    }
}

/// An error with the exit code that belongs to it.
#[derive(Debug)]
pub struct Failed {
    pub exit: u8,
    pub code: &'static str,
    pub error: anyhow::Error,
    pub place: Option<(usize, usize)>,
    pub field: Option<String>,
    /// What else a machine may want to know.
    pub detail: Vec<(&'static str, Value)>,
}

impl Failed {
    /// The thing that was asked about failed.
    pub fn thing(code: &'static str, error: impl Into<anyhow::Error>) -> Self {
        Self {
            exit: 1,
            code,
            error: error.into(),
            place: None,
            field: None,
            detail: Vec::new(),
        }
    }

    /// The command was used wrongly, or the configuration is wrong.
    pub fn usage(code: &'static str, error: impl Into<anyhow::Error>) -> Self {
        Self {
            exit: 2,
            ..Self::thing(code, error)
        }
    }

    /// The exit code says it too, where this can't be written.
    fn print(&self, as_json: bool) {
        if as_json && out::tell(self.to_json()).is_ok() {
            return;
        }
        // It may quote a file's name or what a record says.
        let text = format!("{:#}", self.error);
        out::talk!("handoffd: {}", style::safe(&text, true));
    }

    fn to_json(&self) -> Value {
        let mut error = Map::new();
        error.insert("code".to_owned(), self.code.into());
        error.insert("message".to_owned(), format!("{:#}", self.error).into());
        if let Some((line, column)) = self.place {
            error.insert("line".to_owned(), line.into());
            error.insert("column".to_owned(), column.into());
        }
        if let Some(field) = &self.field {
            error.insert("field".to_owned(), field.clone().into());
        }
        let detail = self.detail.iter().cloned();
        error.extend(detail.map(|(key, value)| (key.to_owned(), value)));
        json!({ "error": error })
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::thing("ERROR", error)
    }
}

type Outcome = Result<u8, Failed>;

pub fn main() -> ExitCode {
    complete::answer_shell();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage_error(&error),
    };
    let as_json = cli.global.json;
    if !cli.command.as_ref().is_none_or(Command::acts_on_many) {
        out::ends_with_its_reader();
    }
    if !matches!(cli.command, None | Some(Command::Run(_))) {
        durable::owner::belongs_to_its_folder();
    }
    let outcome = match &cli.command {
        None => run::run(&cli.global, &run::Options::default()),
        Some(Command::Run(options)) => run::run(&cli.global, options),
        Some(Command::Init(options)) => init::init(&cli.global, options),
        Some(Command::Submit(options)) => submit::submit(&cli.global, options),
        Some(Command::Wait(options)) => wait::wait(&cli.global, options),
        Some(Command::Status(options)) => status::status(&cli.global, options),
        Some(Command::List(options)) => list::list(&cli.global, options),
        Some(Command::Show(options)) => show::show(&cli.global, options),
        Some(Command::Explain(options)) => explain::explain(&cli.global, options),
        Some(Command::Logs(options)) => logs::logs(&cli.global, options),
        Some(Command::Tail(options)) => audit::tail(&cli.global, options),
        Some(Command::Chain(options)) => chain::chain(&cli.global, options),
        Some(Command::Audit(options)) => audit::audit(&cli.global, options),
        Some(Command::Artifacts(options)) => artifacts::artifacts(&cli.global, options),
        Some(Command::Export(options)) => export::export(&cli.global, options),
        Some(Command::Cancel(options)) => act::cancel(&cli.global, options),
        Some(Command::Retry(options)) => act::retry(&cli.global, options),
        Some(Command::Approve(options)) => answer::approve(&cli.global, options),
        Some(Command::Reject(options)) => answer::reject(&cli.global, options),
        Some(Command::Ask(options)) => answer::ask(&cli.global, options),
        Some(Command::State(options)) => state::state(&cli.global, options),
        Some(Command::Validate(options)) => validate::validate(&cli.global, options),
        Some(Command::Prune(options)) => prune::prune(&cli.global, options),
        Some(Command::Archive(options)) => archive::archive(&cli.global, options),
        Some(Command::Metrics(options)) => metrics::metrics(&cli.global, options),
        Some(Command::Agent(options)) => agent::agent(options),
        Some(Command::Workspace(options)) => workspace::workspace(&cli.global, options),
        Some(Command::Worktrees(options)) => worktrees::worktrees(&cli.global, options),
        Some(Command::Diff(options)) => diff::diff(&cli.global, options),
        Some(Command::Check(options)) => check::check(&cli.global, options),
        Some(Command::Schema(options)) => schema::schema(&cli.global, options),
        Some(Command::Service(options)) => service::service(&cli.global, options),
        Some(Command::Completions(options)) => complete::completions(&cli.global, options),
        Some(Command::Man(options)) => man::man(&cli.global, options),
    };
    match outcome.and_then(|code| out::end().map(|()| code)) {
        Ok(code) => ExitCode::from(code),
        Err(failed) => {
            let failed = match (&cli.command, cli.global.layout()) {
                // These write to a folder that is no root yet, or never will be.
                (Some(Command::Init(_) | Command::Man(_)), _) | (_, Err(_)) => failed,
                (_, Ok(layout)) => failed.with_advice(&layout),
            };
            failed.print(as_json);
            ExitCode::from(failed.exit)
        }
    }
}

/// What clap says of a wrong command line, as JSON where that was asked for. `--help` and
/// `--version` come this way too.
fn usage_error(error: &clap::Error) -> ExitCode {
    let as_json = std::env::args_os().any(|arg| arg == "--json");
    if as_json && error.use_stderr() {
        let message = error.to_string();
        let message = message
            .trim()
            .strip_prefix("error: ")
            .unwrap_or(message.trim());
        Failed::usage("USAGE", anyhow::anyhow!(message.to_owned())).print(true);
    } else if std::env::args_os().any(|arg| style::is_hostile(&arg.to_string_lossy())) {
        // It quotes what was written, which a script may have from somewhere.
        let _ = write!(
            std::io::stderr(),
            "{}",
            style::safe(&error.to_string(), true)
        );
    } else if error.print().is_err() && !error.use_stderr() {
        return ExitCode::FAILURE;
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// A configuration error, with its place for machines.
fn config_failed(error: ConfigError) -> Failed {
    let first = error
        .problems()
        .first()
        .map(|p| ((p.line, p.column), p.key.clone()));
    Failed {
        place: first.as_ref().map(|(place, _)| *place),
        field: first.map(|(_, key)| key).filter(|key| !key.is_empty()),
        ..Failed::usage("CONFIG", error)
    }
}

/// A duration as people write it: `30s`, `5m`, `1h 30m`.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it like 30s or 5m"))
}
