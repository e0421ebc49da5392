//! One example with its outcome; many are dropped at once, and each is checked.

use std::fs;

use serde_json::Value;

use crate::common::{Daemon, Root, outcomes, wait_until};
use crate::{copied, drop_file, is_here, names, read, repository};

pub struct Example {
    /// In the folder of examples.
    file: &'static str,
    /// What its specialist is written in.
    runs_on: &'static str,
    state: &'static str,
    outcomes: &'static [&'static str],
    /// What the record must hold, by JSON pointer; `null` for what must not be there.
    record: Value,
    /// A file that it must leave, and what is in it.
    leaves: Option<(&'static str, &'static str)>,
}

pub const SH: &str = "sh";
pub const PYTHON: &str = "python3";
const DONE: &[&str] = &["completed"];

/// One that is completed by its first attempt.
pub fn done(file: &'static str, runs_on: &'static str, record: Value) -> Example {
    Example {
        file,
        runs_on,
        state: "completed",
        outcomes: DONE,
        record,
        leaves: None,
    }
}

impl Example {
    pub fn leaves(self, file: &'static str, content: &'static str) -> Self {
        Self {
            leaves: Some((file, content)),
            ..self
        }
    }

    pub fn ends(self, state: &'static str, outcomes: &'static [&'static str]) -> Self {
        Self {
            state,
            outcomes,
            ..self
        }
    }

    /// As `cp returns/* handoffs/pending/` would name them; the dialects share their stems.
    fn id(&self) -> String {
        match self.file.strip_prefix("returns/") {
            Some(name) => name.trim_end_matches(".json").to_owned(),
            None => self.file.replace('.', "-"),
        }
    }

    fn check(&self, root: &Root) {
        let id = self.id();
        let record = match self.state {
            "waiting" => root.record_that("waiting", &id, |it| it["waiting"]["on"] == "human"),
            state => root.record(state, &id),
        };
        assert_eq!(outcomes(&record), self.outcomes, "{record:#}");
        for (pointer, expected) in self.record.as_object().unwrap() {
            let found = record.pointer(pointer).unwrap_or(&Value::Null);
            assert_eq!(found, expected, "{id}{pointer}");
        }
        if let Some((file, content)) = self.leaves {
            assert_eq!(read(root, file), content, "{file}");
        }
    }
}

/// Drops all of them at once and checks each.
pub fn run(examples: &[Example]) {
    let root = copied();
    let _daemon = Daemon::start(&root);
    let python = is_here(PYTHON, "every example whose specialist is in Python");
    let runs = || {
        examples
            .iter()
            .filter(|example| python || example.runs_on != PYTHON)
    };
    for example in runs() {
        drop_file(&root, example.file, &example.id());
    }
    for example in runs() {
        example.check(&root);
    }
    let verified = root.cli(&["artifacts", "verify"]);
    assert!(verified.status.success(), "{verified:?}");
    if python {
        check_board(&root);
    }
}

/// Both sets of examples have a package or a request of the project `pages`.
fn check_board(root: &Root) {
    wait_until("a phase that is completed, on the board", || {
        let bytes = fs::read(root.path("context/phase-status.json")).ok()?;
        let board: Value = serde_json::from_slice(&bytes).ok()?;
        let phases = board["projects"]["pages"]["phases"].as_object()?;
        phases
            .values()
            .any(|phase| phase["status"] == "completed")
            .then_some(())
    });
}

pub fn assert_all_are_listed(folder: &str, examples: &[Example]) {
    let mut here = names(&repository().join("examples").join(folder));
    here.retain(|name| name != "README.md" && name != "handoffd.toml");
    let mut listed: Vec<&str> = examples
        .iter()
        .map(|example| example.file.strip_prefix(folder).unwrap())
        .collect();
    listed.sort_unstable();
    assert_eq!(here, listed);
}
