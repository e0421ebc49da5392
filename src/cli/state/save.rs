//! `handoffd state save`: a document that an agent changed takes the stored one's place.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::{Desk, invalid, read_document, store_failed};
use crate::cli::{Failed, Outcome, out};
use crate::protocol::field::FieldError;
use crate::protocol::task::{StateError, TaskState};

#[derive(Debug, Args)]
#[command(
    after_help = "Load the state, raise `version` by one, change it, save it. Exit code 1 with both versions: somebody else was faster; load again.\n\nExample:\n  \
                        handoffd state show T --json | jq '.version += 1 | .warnings += [\"slow\"]' \
                        | handoffd state save T -"
)]
pub struct Options {
    /// The task (optional, to check it) and the document: a file, or `-` for stdin
    #[arg(value_name = "[TASK] FILE", required = true, num_args = 1..=2)]
    words: Vec<PathBuf>,
}

pub(super) fn save(desk: &Desk, options: &Options) -> Outcome {
    let (task, file) = match options.words.as_slice() {
        [task, file] => (Some(task.to_string_lossy()), file.as_path()),
        [file] => (None, file.as_path()),
        _ => (None, Path::new("-")),
    };
    let task = task.map(|task| Desk::task(&task)).transpose()?;
    let document = read_document(file)?;
    let state = TaskState::from_document(document).map_err(|error| match error {
        StateError::Invalid(errors) => invalid(&errors),
        newer @ StateError::NewerFormat { .. } => Failed::thing("NEWER_FORMAT", newer),
    })?;
    if let Some(task) = task
        && task != *state.task()
    {
        let text = format!("this is the state of {}, not of {task}", state.task());
        return Err(invalid(&[FieldError::new("task_id", text)]));
    }
    let saved = desk.store.save(&state).map_err(store_failed)?;
    if desk.json {
        let said = json!({ "task_id": saved.task().as_str(), "version": saved.version() });
        out::tell(said)?;
    } else {
        out::talk!("{} is at version {}", saved.task(), saved.version());
    }
    Ok(0)
}
