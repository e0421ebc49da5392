//! The states of tasks from outside: the commands that agents use, and many writers at once.

mod cli;
mod document;
mod gates;
mod race;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A root without a daemon: none of this needs one.
struct Root {
    dir: tempfile::TempDir,
}

impl Root {
    fn new() -> Self {
        Self::with("")
    }

    fn with(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("handoffs/pending")).unwrap();
        fs::write(dir.path().join("handoffd.toml"), config).unwrap();
        Self { dir }
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// Runs `handoffd state` with these words and this on stdin.
    fn state(&self, words: &[&str], stdin: &str) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_handoffd"))
            .arg("state")
            .args(words)
            .env("HANDOFFD_ROOT", self.dir())
            .env_remove("COMPLETE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It may end without reading.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// What it printed, where it must end well.
    fn ok(&self, words: &[&str], stdin: &str) -> String {
        let output = self.state(words, stdin);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error as machines see it, where it must end with this code.
    fn error(&self, words: &[&str], stdin: &str, exit: i32) -> Value {
        let words = [words, &["--json"]].concat();
        let output = self.state(&words, stdin);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{words:?}: {said}");
        serde_json::from_str::<Value>(&said).unwrap()["error"].take()
    }

    fn stored(&self, task: &str) -> Value {
        let bytes = fs::read(self.path(&format!("context/state/{task}.json"))).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Saves a small state that is ready to be handed on.
    fn begin(&self, task: &str) {
        let doc = format!(
            r#"{{"task_id": "{task}", "task_title": "Log in", "phase": "implementing",
                "source_agent": "planner", "target_agent": "coder", "version": 1}}"#
        );
        self.ok(&["save", task, "-"], &doc);
    }
}
