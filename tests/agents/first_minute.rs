//! What a new user does: `init --agents`, a task, a service. The agent is a script that plays back a recorded
//! stream; the tests with real agents are elsewhere.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::common::wait_until;
use crate::shop::{Shop, git};

const STREAM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/crates/agents/tests/streams/claude-2.1.327-plain.jsonl"
);

/// A shop with a `claude` in PATH, and nothing else that an agent could be.
struct Newcomer {
    shop: Shop,
    tools: PathBuf,
}

impl Newcomer {
    fn new() -> Self {
        let shop = Shop::new();
        let tools = shop.repository.with_file_name("tools");
        fs::create_dir(&tools).unwrap();
        let claude = tools.join("claude");
        let script = format!("#!/bin/sh\ncat >prompt\necho done >made\ncat {STREAM}\n");
        fs::write(&claude, script).unwrap();
        fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
        for program in ["git", "sh", "cat", "env", "true"] {
            let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
                .map(|folder| folder.join(program))
                .find(|path| path.is_file());
            std::os::unix::fs::symlink(found.unwrap(), tools.join(program)).unwrap();
        }
        Self { shop, tools }
    }

    fn handoffd(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handoffd"));
        command
            .args(args)
            .current_dir(&self.shop.repository)
            .env("PATH", &self.tools)
            .env("HOME", &self.tools)
            .env("XDG_CONFIG_HOME", self.tools.join("config"))
            .env_remove("HANDOFFD_ROOT");
        command
    }

    fn see(&self, args: &[&str]) -> Output {
        self.handoffd(args).output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_new_user_has_an_agent_working_through_a_folder() {
    let newcomer = Newcomer::new();
    newcomer.shop.write("Makefile", "test:\n\ttrue\n");
    newcomer.shop.git(&["add", "."]);
    newcomer.shop.git(&["commit", "-q", "-m", "tests"]);
    std::os::unix::fs::symlink(newcomer.tools.join("true"), newcomer.tools.join("make")).unwrap();
    let made = newcomer.see(&["init", "--agents"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(
        text(&made.stderr).contains("Found: claude. Next:"),
        "{}",
        text(&made.stderr)
    );
    let checked = newcomer.see(&["check"]);
    assert!(checked.status.success(), "{}", text(&checked.stdout));
    let config = fs::read_to_string(newcomer.shop.repository.join("handoffd.toml")).unwrap();
    assert!(
        config.contains("command = [\"make\", \"test\"]"),
        "{config}"
    );
    assert!(!config.contains("codex"), "{config}");
    let mut daemon = newcomer.handoffd(&["run"]).spawn().unwrap();
    wait_until("the start", || {
        newcomer
            .shop
            .repository
            .join(".handoffd/daemon.json")
            .exists()
            .then_some(())
    });
    let task = "{\"task\": \"Say done in made\"}";
    let args = ["submit", "--to", "claude", "--input", task, "--wait"];
    let done = newcomer.see(&args);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let record: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    let branch = format!(
        "handoffd/{}",
        record["handoff_id"].as_str().unwrap_or_default()
    );
    assert_eq!(record["output"]["branch"], branch, "{}", text(&done.stderr));
    // Of the queue's own files beside the work, which change meanwhile, nothing is said.
    let unlisted = "claude changed files that it did not list: made, prompt";
    assert_eq!(record["warnings"], serde_json::json!([unlisted]));
    assert_eq!(
        newcomer.shop.git(&["show", &format!("{branch}:made")]),
        "done"
    );
    let prompt = newcomer.shop.git(&["show", &format!("{branch}:prompt")]);
    assert!(prompt.contains("Say done in made"), "{prompt}");
    let changed = newcomer.shop.git(&["status", "--porcelain"]);
    assert_eq!(
        changed, "?? examples/\n?? handoffd.toml\n?? prompts/",
        "the queue is ignored"
    );
}

#[test]
fn a_root_without_agents_or_repository_says_what_to_do() {
    let newcomer = Newcomer::new();
    fs::remove_file(newcomer.tools.join("claude")).unwrap();
    let made = newcomer.see(&["init", "--agents", "../q"]);
    let said = text(&made.stderr);
    assert!(
        said.contains("npm install -g @anthropic-ai/claude-code"),
        "{said}"
    );
    let refused = newcomer.see(&["init", "--agents", "../p", "--repository", "../nowhere"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("does not exist"),
        "{}",
        text(&refused.stderr)
    );
    assert!(!newcomer.shop.repository.with_file_name("p").exists());
    let empty = newcomer.shop.repository.with_file_name("empty");
    fs::create_dir(&empty).unwrap();
    git(&empty, &["init", "-q"]);
    let refused = newcomer.see(&["init", "--agents", "../p", "--repository", "../empty"]);
    assert!(
        text(&refused.stderr).contains("no commit yet"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn the_offline_profile_is_warned_of_and_the_one_for_agents_is_not() {
    let newcomer = Newcomer::new();
    newcomer.see(&["init", "--agents"]);
    let units = newcomer.tools.join("config/systemd/user");
    fs::create_dir_all(&units).unwrap();
    for (profile, fits) in [("offline", false), ("agents", true)] {
        let printed = newcomer.see(&["service", "systemd", "--profile", profile]);
        assert!(printed.status.success(), "{}", text(&printed.stderr));
        let warned = text(&printed.stderr).contains("use --profile agents");
        assert_eq!(warned, !fits, "{}", text(&printed.stderr));
        fs::write(units.join("handoffd.service"), &printed.stdout).unwrap();
        let checked = newcomer.see(&["check"]);
        let said = text(&checked.stderr) + &text(&checked.stdout);
        assert_eq!(said.contains("gives it no network"), !fits, "{said}");
    }
    let unit = fs::read_to_string(units.join("handoffd.service")).unwrap();
    let path = format!("Environment=\"PATH={}:", newcomer.tools.display());
    assert!(unit.contains(&path), "{unit}");
    assert!(unit.contains("MemoryDenyWriteExecute=no"), "{unit}");
    let refused = newcomer.see(&["service", "launchd", "--profile", "agents"]);
    assert_eq!(refused.status.code(), Some(2));
}
