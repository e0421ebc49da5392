//! A repository to work on, a root, and the program under test as the daemon would start it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A repository with one commit, and a root beside it.
pub struct Shop {
    _folder: TempDir,
    pub repository: PathBuf,
    pub root: PathBuf,
}

/// Runs git as a person would, whose settings are none.
pub fn git(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.org"])
        .args(["-c", "protocol.file.allow=always"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {said}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// What of a record a worktree depends on.
pub fn record(id: &str, chain: &str) -> Value {
    json!({"handoff_id": id, "target": {"agent_id": "@coder"}, "handoffd": {"chain": chain}})
}

impl Shop {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let shop = Self {
            repository: path.join("shop"),
            root: path.join("root"),
            _folder: folder,
        };
        fs::create_dir(&shop.repository).unwrap();
        fs::create_dir_all(shop.root.join("handoffs")).unwrap();
        shop.git(&["init", "-q", "-b", "main"]);
        shop.write("README", "a shop\n");
        shop.git(&["add", "."]);
        shop.git(&["commit", "-q", "-m", "first"]);
        shop
    }

    pub fn git(&self, args: &[&str]) -> String {
        git(&self.repository, args)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.repository.join(name), text).unwrap();
    }

    pub fn tree(&self, line: &str) -> PathBuf {
        self.root.join("worktrees").join(line)
    }

    pub fn handoffd(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handoffd"));
        command
            .env_remove("HANDOFF_RESULT")
            .env_remove("HANDOFF_ATTEMPT")
            .env("HANDOFFD_ROOT", &self.root)
            .env("GIT_CONFIG_GLOBAL", "/dev/null");
        command
    }

    /// The command for `handoffd workspace` that runs a shell script in the tree.
    pub fn workspace(&self, flags: &[&str], script: &str) -> Command {
        let mut command = self.handoffd();
        command
            .arg("workspace")
            .arg("--repository")
            .arg(&self.repository)
            .args(flags)
            .args(["--", "sh", "-c", script]);
        command
    }

    /// Puts the record of an ended handoff into its folder.
    pub fn ended(&self, id: &str, output: &Value) {
        let folder = self.root.join("handoffs/completed");
        fs::create_dir_all(&folder).unwrap();
        let ended = json!({"handoff_id": id, "status": "completed", "output": output, "handoffd": {
            "format": 1, "revision": 2, "attempts": [], "to": "completed"}});
        fs::write(folder.join(format!("{id}.json")), ended.to_string()).unwrap();
    }

    /// Runs `handoffd` with these words.
    pub fn cli(&self, args: &[&str]) -> Output {
        self.handoffd().args(args).output().unwrap()
    }

    /// Runs a script in the tree of a record and returns the result.
    pub fn run(&self, record: &Value, flags: &[&str], script: &str) -> Value {
        let output = feed(&mut self.workspace(flags, script), record);
        result(&output)
    }
}

/// Starts a command with a record on its stdin and waits for its end.
pub fn feed(command: &mut Command, record: &Value) -> Output {
    use std::io::Write as _;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that ends early does not read it.
    drop(stdin.write_all(record.to_string().as_bytes()));
    drop(stdin);
    child.wait_with_output().unwrap()
}

pub fn result(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        panic!("{error}: {out}\n{err}")
    })
}
