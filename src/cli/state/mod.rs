//! `handoffd state`: the states of tasks, for agents and scripts.
//!
//! These commands need no daemon: the store works between processes, and whoever loses a race
//! is told both versions. Nothing here writes to the audit log, which is the daemon's; what each
//! version changed stands in the task's own history.

mod handoff;
mod look;
mod receive;
mod save;

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::cli::{Failed, Global, Outcome, complete};
use crate::config::Config;
use crate::policy::task::Found;
use crate::protocol::document::{self, DocumentError};
use crate::protocol::field::FieldError;
use crate::protocol::name::Ext;
use crate::protocol::task::{TaskId, TaskState};
use crate::spool::layout::Layout;
use crate::store::artifacts::{Artifacts, Measured, RelPath};
use crate::store::tasks::{Store, StoreError};

#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the whole state; with --json as it is stored
    Show(Task),
    /// Print a summary for the next agent, in fewer than 500 tokens
    Summary(look::SummaryOptions),
    /// Store a document; its version must be the stored version + 1 (a new state: 1)
    Save(save::Options),
    /// Hand the task on, and print the command for the next agent
    Handoff(Box<handoff::Options>),
    /// Load the state as its next agent would, and check it
    Receive(receive::Options),
    /// List what each version changed
    History(Task),
}

#[derive(Debug, Args)]
struct Task {
    #[arg(value_name = "TASK", add = complete::tasks())]
    task: String,
}

pub fn state(global: &Global, options: &Options) -> Outcome {
    let desk = Desk::new(global)?;
    match &options.verb {
        Verb::Show(task) => look::show(&desk, &task.task),
        Verb::Summary(options) => look::summary(&desk, options),
        Verb::Save(options) => save::save(&desk, options),
        Verb::Handoff(options) => handoff::handoff(&desk, options),
        Verb::Receive(options) => receive::receive(&desk, options),
        Verb::History(task) => look::history(&desk, &task.task),
    }
}

/// What all of these commands use.
struct Desk {
    json: bool,
    layout: Layout,
    config: Config,
    store: Store,
}

impl Desk {
    fn new(global: &Global) -> Result<Self, Failed> {
        let layout = global.existing_layout()?;
        let config = global.load_config()?;
        Ok(Self {
            json: global.json,
            store: Store::new(layout.root(), config.daemon.durability),
            layout,
            config,
        })
    }

    fn task(name: &str) -> Result<TaskId, Failed> {
        TaskId::parse(name).map_err(|error| Failed {
            field: Some("task_id".to_owned()),
            ..Failed::usage("USAGE", error)
        })
    }

    fn load(&self, name: &str) -> Result<TaskState, Failed> {
        let task = Self::task(name)?;
        let state = self.store.load(&task).map_err(store_failed)?;
        state.ok_or_else(|| self.unknown(&task))
    }

    fn unknown(&self, task: &TaskId) -> Failed {
        let root = self.layout.root().display();
        let text = format!("no state of the task {task} in {root}");
        Failed::thing("UNKNOWN_TASK", anyhow::anyhow!(text))
    }

    /// What is on disk under these paths.
    fn look_at(&self, paths: Vec<String>) -> Found {
        paths
            .into_iter()
            .map(|path| {
                let found = self.measure(&path).map(|measured| measured.sha256);
                (path, found)
            })
            .collect()
    }

    /// What is there below the root, or why it can't be read.
    fn measure(&self, path: &str) -> Result<Measured, String> {
        let artifacts = Artifacts::for_reading(self.layout.root());
        artifacts.measure(&RelPath::parse(path)?)
    }
}

fn store_failed(error: StoreError) -> Failed {
    let code = match &error {
        StoreError::Conflict { .. } => "CONFLICT",
        StoreError::Locked { .. } => "LOCKED",
        StoreError::NewerFormat { .. } => "NEWER_FORMAT",
        StoreError::NotAFile { .. } | StoreError::NotAFolder { .. } | StoreError::Broken { .. } => {
            "BROKEN_STATE"
        }
        StoreError::TooLarge { .. } => "TOO_LARGE",
        StoreError::Io { .. } => "ERROR",
    };
    let (exit, detail) = match &error {
        StoreError::Conflict {
            stored, brought, ..
        } => (
            1,
            vec![("stored", json!(stored)), ("brought", json!(brought))],
        ),
        StoreError::Locked {
            holder: Some(holder),
            ..
        } => (124, vec![("holder", holder.to_json())]),
        StoreError::Locked { holder: None, .. } => (124, Vec::new()),
        _ => (1, Vec::new()),
    };
    Failed {
        exit,
        detail,
        ..Failed::thing(code, error)
    }
}

/// Reads a document from a file, or from stdin for `-`.
fn read_document(file: &Path) -> Result<Map<String, Value>, Failed> {
    let (bytes, ext) = crate::cli::submit::read(file)?;
    // What begins like JSON was meant to be JSON, and its mistakes are told as such.
    let braced = bytes.trim_ascii_start().starts_with(b"{");
    let ext = if braced { Ext::Json } else { ext };
    let document = document::parse(&bytes, ext).map_err(|error| broken(file, &error))?;
    Ok(document.map)
}

fn broken(file: &Path, error: &DocumentError) -> Failed {
    Failed {
        place: error.line.zip(error.column),
        ..Failed::thing(
            "SCHEMA_VALIDATION_FAILED",
            anyhow::anyhow!("{}: {error}", file.display()),
        )
    }
}

fn invalid(errors: &[FieldError]) -> Failed {
    let list: Vec<String> = errors.iter().take(10).map(ToString::to_string).collect();
    Failed {
        field: errors.first().map(|error| error.field.clone()),
        ..Failed::thing("SCHEMA_VALIDATION_FAILED", anyhow::anyhow!(list.join("; ")))
    }
}
