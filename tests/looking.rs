//! What a person sees: the words of the looking commands, held by snapshots.
//!
//! `INSTA_UPDATE=always cargo test --test looking` writes them anew; read the difference before
//! you commit it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

#[path = "looking/answers.rs"]
mod answers;
#[path = "looking/asked.rs"]
mod asked;
#[path = "looking/bare.rs"]
mod bare;
#[path = "looking/chains.rs"]
mod chains;
#[path = "looking/named.rs"]
mod named;
#[path = "common/needs.rs"]
mod needs;
#[path = "looking/others.rs"]
mod others;
#[path = "looking/owners.rs"]
mod owners;
#[path = "common/pty.rs"]
mod pty;
#[path = "looking/terminal.rs"]
mod terminal;
#[path = "looking/untold.rs"]
mod untold;
#[path = "looking/validating.rs"]
mod validating;

struct Root {
    dir: tempfile::TempDir,
}

const CONFIG: &str = "[specialists.coder]\ncommand = [\"true\"]\nmax_concurrent = 1\n";

impl Root {
    fn new() -> Self {
        let root = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let folders = [
            "pending",
            "in-progress",
            "waiting",
            "completed",
            "failed",
            "control",
        ];
        for folder in folders {
            fs::create_dir_all(root.path("handoffs").join(folder)).unwrap();
        }
        for folder in ["tmp", "run", "logs", "originals", "rejecting", "aside"] {
            fs::create_dir_all(root.path(".handoffd").join(folder)).unwrap();
        }
        fs::write(root.path("handoffd.toml"), CONFIG).unwrap();
        root
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts a record into a state folder, changed at this minute of an old day.
    fn put(&self, folder: &str, id: &str, minute: u64, record: &Value) {
        let path = self
            .path("handoffs")
            .join(folder)
            .join(format!("{id}.json"));
        fs::write(&path, record.to_string()).unwrap();
        let at = UNIX_EPOCH + Duration::from_secs(1_760_000_000 + 60 * minute);
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(at)
            .unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handoffd"));
        command
            .args(args)
            .env("HANDOFFD_ROOT", self.dir.path())
            .env("TZ", "UTC")
            .env("USER", "tester")
            .env_remove("COMPLETE");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// stdout and stderr, with what differs from run to run masked.
    fn see(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = format!(
            "{}{}exit {}\n",
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
            output.status.code().unwrap()
        );
        mask(&text, self.dir.path())
    }
}

fn mask(text: &str, root: &Path) -> String {
    text.replace(root.to_str().unwrap(), "ROOT")
}

fn base(id: &str) -> Value {
    json!({
        "handoff_id": id,
        "target": {"agent_id": "@coder"},
        "handoffd": {"format": 1, "revision": 2, "attempts": []},
    })
}

fn attempt(number: u32, outcome: &str, exit: i32, message: &str) -> Value {
    json!({
        "number": number, "started_at": "2025-10-09T08:00:00.000Z",
        "ended_at": "2025-10-09T08:01:30.000Z", "outcome": outcome, "exit_code": exit,
        "error": {"code": "PROCESSING_ERROR", "message": message}, "milliseconds": 90_000,
    })
}

fn failed() -> Value {
    let mut record = base("broken-build");
    record["status"] = "failed".into();
    record["failed_at"] = "2025-10-09T08:05:00.000Z".into();
    record["execution_time_seconds"] = json!(180.0);
    record["error"] = json!({
        "code": "PROCESSING_ERROR",
        "message": "the specialist exited with 2; its last words: \u{1b}[31mno such table",
    });
    record["retry_available"] = true.into();
    record["recovery_actions"] = json!(["Read the attempt's log, fix the cause and retry"]);
    record["handoffd"]["attempts"] = json!([
        attempt(1, "failed", 2, "the specialist exited with 2"),
        attempt(2, "failed", 2, "the specialist exited with 2"),
    ]);
    record
}

fn completed() -> Value {
    let mut record = base("done");
    record["status"] = "completed".into();
    record["started_at"] = "2025-10-09T08:00:00.000Z".into();
    record["completed_at"] = "2025-10-09T08:01:30.000Z".into();
    record["execution_time_seconds"] = json!(90.5);
    record["output"] = json!({"files": 3});
    record["result"] = json!({"status": "complete", "summary": "three files written"});
    record
}

fn waiting(id: &str, on: &str, reason: &str) -> Value {
    let mut record = base(id);
    record["status"] = "waiting".into();
    record["waiting"] = json!({"on": on, "reason": reason});
    if on == "dependency" {
        record["depends_on"] = json!(["first", "second"]);
    }
    record
}

fn filled() -> Root {
    let root = Root::new();
    root.put("failed", "broken-build", 5, &failed());
    root.put("completed", "done", 4, &completed());
    root.put(
        "waiting",
        "later",
        3,
        &waiting("later", "dependency", "waits for first, second"),
    );
    root.put(
        "waiting",
        "asked",
        2,
        &waiting("asked", "human", "two ways are open"),
    );
    root
}

/// How long something waits differs from run to run.
fn without_ages(told: &str) -> String {
    let masked = |line: &str| {
        let cut = |from: &str, to: &str| {
            let (before, after) = line.split_once(from)?;
            let (_, rest) = after.split_once(to)?;
            Some(format!("{before}{from}AGE{to}{rest}"))
        };
        cut(", for ", " now")
            .or_else(|| cut("handoffs, ", " so far"))
            .unwrap_or_else(|| line.to_owned())
    };
    let lines: Vec<String> = told.lines().map(masked).collect();
    lines.join("\n") + "\n"
}

#[test]
fn list() {
    insta::assert_snapshot!(filled().see(&["list"]));
}

#[test]
fn list_filtered() {
    let root = Root::new();
    // From the future, so that its age is always the same.
    let asked = waiting("asked", "human", "two ways are open");
    root.put("waiting", "asked", 60_000_000, &asked);
    insta::assert_snapshot!(root.see(&["list", "--waiting", "human"]));
}

#[test]
fn list_as_json() {
    insta::assert_snapshot!(filled().see(&["list", "--json"]));
}

#[test]
fn an_empty_list_says_so() {
    insta::assert_snapshot!(Root::new().see(&["list"]));
}

#[test]
fn a_page_beyond_the_last_says_how_many_there_are() {
    let root = filled();
    let page = |args: &[&str]| root.see(&[&["list", "-n", "2", "--page"][..], args].concat());
    assert!(page(&["2"]).contains("asked"));
    assert_eq!(page(&["99"]), "there are only 2 pages\nexit 0\n");
    let matching = page(&["99", "--text", "done"]);
    assert_eq!(matching, "there is only one page\nexit 0\n");
    let none = page(&["99", "--text", "no such thing"]);
    assert_eq!(none, "no handoff matches\nexit 0\n");
}

#[test]
fn show_a_failure() {
    insta::assert_snapshot!(filled().see(&["show", "broken-build"]));
}

#[test]
fn show_a_success() {
    insta::assert_snapshot!(filled().see(&["show", "done"]));
}

#[test]
fn explain_each_state() {
    let root = filled();
    let told: Vec<String> = ["broken-build", "done", "later", "asked", "nobody"]
        .iter()
        .map(|id| root.see(&["explain", id]))
        .collect();
    insta::assert_snapshot!(without_ages(&told.join("\n")));
}

#[test]
fn status_without_a_daemon() {
    insta::assert_snapshot!(filled().see(&["status"]));
}

#[test]
fn status_as_json_has_what_scripts_rely_on() {
    let output = filled().run(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["daemon"]["running"], false);
    assert_eq!(
        status["counts"],
        json!({"pending": 0, "in_progress": 0, "waiting": 2, "completed": 1, "failed": 1})
    );
    assert_eq!(status["waiting_on"], json!({"dependency": 1, "human": 1}));
    assert_eq!(status["problems"], json!([]));
}

#[test]
fn acting_without_a_daemon_is_carried_out_later_and_says_so() {
    let root = filled();
    insta::assert_snapshot!(root.see(&[
        "retry",
        "broken-build",
        "--comment",
        "table is there now"
    ]));
    let control = fs::read_dir(root.path("handoffs/control")).unwrap();
    let files: Vec<_> = control.map(|entry| entry.unwrap().path()).collect();
    let command: Value = serde_json::from_slice(&fs::read(&files[0]).unwrap()).unwrap();
    assert_eq!(command["action"], "retry");
    assert_eq!(command["by"], "tester");
    assert_eq!(command["comment"], "table is there now");
}

#[test]
fn a_bulk_retry_shows_what_it_would_do_and_does_nothing() {
    let root = filled();
    insta::assert_snapshot!(root.see(&["retry", "--code", "PROCESSING_ERROR"]));
    assert_eq!(
        fs::read_dir(root.path("handoffs/control")).unwrap().count(),
        0
    );
}

#[test]
fn prune_deletes_only_what_it_was_told_and_spares_what_is_waited_for() {
    let root = filled();
    let mut first = completed();
    first["handoff_id"] = "first".into();
    root.put("completed", "first", 1, &first);
    insta::assert_snapshot!(root.see(&["prune", "--completed", "1d", "--dry-run"]));
    assert!(root.path("handoffs/completed/done.json").exists());
    root.run(&["prune", "--completed", "1d"]);
    assert!(!root.path("handoffs/completed/done.json").exists());
    assert!(
        root.path("handoffs/completed/first.json").exists(),
        "`later` waits for it"
    );
    assert!(root.path("handoffs/failed/broken-build.json").exists());
}

/// One artifact that is as its newest line says, one that changed and one that is missing; a
/// line that was torn and closed, one that is broken, and one that is being written.
fn with_artifacts() -> Root {
    let root = Root::new();
    fs::create_dir_all(root.path("artifacts/src")).unwrap();
    fs::write(root.path("artifacts/report.md"), "hello").unwrap();
    fs::write(root.path("artifacts/src/lib.rs"), "fn main() {}").unwrap();
    let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let line = |id: &str, path: &str, kind: &str, sha256: &str, minute: u32| {
        let line = json!({
            "artifact_id": id, "path": path, "artifact_type": kind, "sha256": sha256,
            "size_bytes": 5, "handoff_id": "done", "by\u{1b}[31m": "somebody",
            "created_at": format!("2025-10-09T08:{minute:02}:00.000Z"),
        });
        format!("{line}\n")
    };
    let lines = [
        line("report", "artifacts/report.md", "document", "00", 1),
        line("lib", "artifacts/src/lib.rs", "code", hello, 2),
        "{\"artifact_id\":\"to\n".to_owned(),
        "not a line\n".to_owned(),
        line("gone\u{1b}[2K", "artifacts/gone.txt", "document", hello, 3),
        line("report", "artifacts/report.md", "document", hello, 4),
        "{\"artifact_id\":\"being writ".to_owned(),
    ];
    fs::write(root.path("artifacts/registry.jsonl"), lines.concat()).unwrap();
    root
}

#[test]
fn artifacts_are_listed_shown_and_verified() {
    let root = with_artifacts();
    let told: Vec<String> = [
        &["artifacts", "list"][..],
        &["artifacts", "list", "--type", "source", "--json"],
        &["artifacts", "list", "--handoff", "done", "-n", "1"],
        &["artifacts", "list", "--handoff", "other"],
        &["artifacts", "show", "report"],
        &["artifacts", "show", "./artifacts/src/lib.rs", "--json"],
        &["artifacts", "show", "nothing"],
        &["artifacts", "verify"],
        &["artifacts", "verify", "--json"],
        &["artifacts", "verify", "report"],
        &["artifacts", "verify", "report", "nothing"],
    ]
    .iter()
    .map(|args| format!("$ handoffd {}\n{}", args.join(" "), root.see(args)))
    .collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn mistakes_say_what_would_be_right() {
    let root = filled();
    let told: Vec<String> = [
        &["statsu"][..],
        &["show"],
        &["show", "nobody"],
        &["list", "--code", "TIMEOT"],
        &["wait", "done", "--timeout", "soon"],
        &["retry"],
        &["prune"],
        &["bogus", "--json"],
    ]
    .iter()
    .map(|args| format!("$ handoffd {}\n{}", args.join(" "), root.see(args)))
    .collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn help() {
    insta::assert_snapshot!(Root::new().see(&["--help"]));
}

#[test]
fn every_shell_gets_a_script_and_the_manual_has_pages() {
    let root = Root::new();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = root.run(&["completions", shell]);
        assert!(
            script.status.success() && !script.stdout.is_empty(),
            "{shell}"
        );
    }
    let pages = root.path("man");
    assert!(
        root.run(&["man", "--out", pages.to_str().unwrap()])
            .status
            .success()
    );
    assert!(pages.join("handoffd-retry.1").exists());
}

#[test]
fn a_shell_is_offered_agents_codes_and_states() {
    let root = filled();
    for (words, wanted) in [
        (&["list", "--agent", ""][..], &["coder", "human"][..]),
        (&["submit", "--to", "co"], &["coder"]),
        (&["list", "--code", "T"], &["TIMEOUT"]),
        (&["retry", "--code", ""], &["PROCESSING_ERROR", "BLOCKED"]),
        (
            &["list", "--state", ""],
            &["pending", "in_progress", "failed"],
        ),
        (&["list", "--state", "failed,w"], &["failed,waiting"]),
    ] {
        let output = root
            .command(&[&["--", "handoffd"], words].concat())
            .env("COMPLETE", "fish")
            .output()
            .unwrap();
        let offered = String::from_utf8(output.stdout).unwrap();
        for wanted in wanted {
            let is_it = |line: &str| line.split('\t').next() == Some(*wanted);
            assert!(offered.lines().any(is_it), "{words:?}: {offered}");
        }
    }
}

#[test]
fn a_text_is_looked_for_in_codes_too() {
    let told = filled().see(&["list", "--text", "processing_e"]);
    assert!(told.contains("broken-build"), "{told}");
    assert_eq!(told.lines().count(), 3, "{told}");
}

#[test]
fn a_shell_is_offered_live_ids() {
    let root = filled();
    let other = Root::new();
    let own = root.dir.path().to_str().unwrap();
    for (words, environment) in [
        (&["handoffd", "retry", ""][..], &root),
        (&["handoffd", "--root", own, "retry", ""], &other),
    ] {
        let output = environment
            .command(&[&["--"], words].concat())
            .env("COMPLETE", "fish")
            .output()
            .unwrap();
        let offered = String::from_utf8(output.stdout).unwrap();
        assert!(offered.contains("broken-build"), "{words:?}: {offered}");
        assert!(
            !offered.contains("done\t"),
            "what completed can't be retried: {offered}"
        );
    }
}
