//! The commands, one by one.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::Root;

const WHOLE: &str = r#"{
  "format": 1,
  "task_id": "T",
  "task_title": "Log in",
  "phase": "testing",
  "previous_phase": 2,
  "phase_started_at": "2026-01-09T10:00:00.000Z",
  "artifacts": [
    {
      "path": "src/a.rs",
      "artifact_type": "source",
      "content_hash": "ab",
      "size_bytes": 12,
      "lines": 1.50
    }
  ],
  "context_summary": "so far",
  "estimate": 1e400,
  "decisions_made": [
    {
      "decision": "JWT",
      "rationale": "stateless",
      "timestamp": "2026-01-09T10:00:00Z",
      "agent": "coder",
      "alternatives": [
        "sessions"
      ],
      "cost": 12345678901234567890123
    }
  ],
  "blocking_issues": [
    {
      "issue": "slow",
      "severity": "low",
      "suggested_action": "wait",
      "requires_human": false,
      "ticket": {
        "n": 1.0
      }
    }
  ],
  "warnings": [
    "w"
  ],
  "quality_gates_passed": [
    "p"
  ],
  "quality_gates_failed": [
    "f"
  ],
  "quality_gate_results": {
    "f": {
      "reason": "no"
    }
  },
  "source_agent": "coder",
  "target_agent": "tester",
  "handoff_timestamp": "2026-01-09T10:00:00.000Z",
  "version": 1,
  "mine": [
    1,
    {
      "b": 2E+3
    }
  ]
}
"#;

#[test]
fn all_fields_come_back_as_they_went_in() {
    let root = Root::new();
    root.ok(&["save", "-"], WHOLE);
    assert_eq!(root.ok(&["show", "T", "--json"], ""), WHOLE);
    let stored = fs::read_to_string(root.path("context/state/T.json")).unwrap();
    assert_eq!(stored, WHOLE);
    let page = root.ok(&["show", "T"], "");
    for word in [
        "Log in",
        "testing (from 2)",
        "src/a.rs",
        "JWT: stateless",
        "[low] slow",
    ] {
        assert!(page.contains(word), "{page}");
    }
}

#[test]
fn version_1_twice_is_a_conflict_that_names_both() {
    let root = Root::new();
    root.begin("T");
    let before = fs::read(root.path("context/state/T.json")).unwrap();
    for (version, what) in [(1, "version 1"), (3, "version 3"), (7, "version 7")] {
        let doc = format!(r#"{{"task_id": "T", "version": {version}}}"#);
        let error = root.error(&["save", "-"], &doc, 1);
        assert_eq!(error["code"], "CONFLICT");
        assert_eq!(
            (&error["stored"], &error["brought"]),
            (&json!(1), &json!(version))
        );
        let plain = root.state(&["save", "T", "-"], &doc);
        let said = String::from_utf8(plain.stderr).unwrap();
        assert!(
            said.contains("version 1 of T is stored") && said.contains(what),
            "{said}"
        );
    }
    let new = root.error(&["save", "-"], r#"{"task_id": "N", "version": 2}"#, 1);
    assert_eq!((&new["stored"], &new["brought"]), (&Value::Null, &json!(2)));
    assert_eq!(fs::read(root.path("context/state/T.json")).unwrap(), before);
}

#[test]
fn what_is_wrong_with_a_document_is_said() {
    let root = Root::new();
    let error = root.error(&["save", "-"], "{\"task_id\": \"T\",\n}", 1);
    assert_eq!((&error["line"], &error["column"]), (&json!(2), &json!(1)));
    let error = root.error(&["save", "-"], r#"{"task_id": "T", "version": "1"}"#, 1);
    assert_eq!(error["field"], "version");
    let error = root.error(&["save", "U", "-"], r#"{"task_id": "T", "version": 1}"#, 1);
    assert_eq!(error["field"], "task_id");
    let newer = r#"{"format": 2, "task_id": "T", "version": 1}"#;
    assert_eq!(root.error(&["save", "-"], newer, 1)["code"], "NEWER_FORMAT");
    for bad in ["current", "../x", ".x", "a b"] {
        assert_eq!(root.error(&["show", bad], "", 2)["code"], "USAGE");
    }
    assert!(!root.path("context/state/T.json").exists());
}

#[test]
fn a_newer_or_strange_file_is_refused_and_left() {
    let root = Root::new();
    root.begin("good");
    let folder = root.path("context/state");
    let newer = r#"{"format": 2, "task_id": "newer", "version": {"major": 3}}"#;
    fs::write(folder.join("newer.json"), newer).unwrap();
    symlink("good.json", folder.join("link.json")).unwrap();
    fs::create_dir(folder.join("folder.json")).unwrap();
    let mode = 0o600.into();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, folder.join("pipe.json"), fifo, mode, 0).unwrap();
    for (task, code) in [
        ("newer", "NEWER_FORMAT"),
        ("link", "BROKEN_STATE"),
        ("folder", "BROKEN_STATE"),
        ("pipe", "BROKEN_STATE"),
        ("none", "UNKNOWN_TASK"),
    ] {
        for verb in ["show", "summary", "receive", "history"] {
            assert_eq!(
                root.error(&[verb, task], "", 1)["code"],
                code,
                "{verb} {task}"
            );
        }
        let handoff = root.error(&["handoff", task, "--to", "x"], "", 1);
        assert_eq!(handoff["code"], code);
        if task != "none" {
            let doc = format!(r#"{{"task_id": "{task}", "version": 1}}"#);
            assert_eq!(root.error(&["save", "-"], &doc, 1)["code"], code);
        }
    }
    assert_eq!(
        fs::read_to_string(folder.join("newer.json")).unwrap(),
        newer
    );
    assert!(!folder.join("none.json").exists());
}

#[test]
fn a_handoff_by_flags_gives_the_command_for_the_next_agent() {
    let root = Root::new();
    root.begin("T");
    fs::create_dir(root.path("src")).unwrap();
    fs::write(root.path("src/a.rs"), "abc").unwrap();
    let said = root.ok(
        &[
            "handoff",
            "T",
            "--to",
            "tester",
            "--phase",
            "testing",
            "--artifact",
            "source=src/a.rs",
            "--decision",
            "JWT",
            "--because",
            "stateless",
            "--decision-json",
            r#"{"decision": "TDD", "rationale": "safer", "weight": 1.50}"#,
            "--blocking",
            "slow CI",
        ],
        "",
    );
    let command: Value = serde_json::from_str(&said).unwrap();
    let stored = root.stored("T");
    assert_eq!(command["target_agent"], "tester");
    assert_eq!(command["phase"], "testing");
    assert_eq!(
        command["state_delta"],
        json!({"artifacts_added": 1, "decisions_made": 2, "blocking_issues": 1})
    );
    assert_eq!(command["state_file"], "context/state/T.json");
    assert_eq!(
        command["context_summary"],
        root.ok(&["summary", "T"], "").trim_end()
    );
    assert_eq!(
        (&stored["version"], &stored["previous_phase"]),
        (&json!(2), &json!("implementing"))
    );
    assert_eq!(
        stored["source_agent"], "coder",
        "whoever had it hands it on"
    );
    assert_eq!(stored["decisions_made"][0]["agent"], "coder");
    assert_eq!(stored["artifacts"][0]["size_bytes"], 3);
    assert!(
        fs::read_to_string(root.path("context/state/T.json"))
            .unwrap()
            .contains("1.50")
    );
    // Blocking issues are replaced, by nothing if nothing is said, unless they are to be kept.
    root.ok(&["handoff", "T", "--to", "x", "--keep-blocking"], "");
    assert_eq!(root.stored("T")["blocking_issues"][0]["issue"], "slow CI");
    root.ok(&["handoff", "T", "--to", "x"], "");
    assert_eq!(root.stored("T")["blocking_issues"], json!([]));
}

#[test]
fn a_handoff_by_document_is_applied_once_under_one_name() {
    let root = Root::new();
    root.begin("T");
    let doc =
        r#"{"to": "tester", "decisions": [{"decision": "d", "reason": "r"}], "phase": "complete"}"#;
    for _ in 0..2 {
        let said = root.ok(&["handoff", "T", "-", "--once", "h#1", "--json"], doc);
        assert_eq!(said.lines().count(), 1);
    }
    let stored = root.stored("T");
    assert_eq!(
        (&stored["version"], &stored["phase"]),
        (&json!(2), &json!("completed"))
    );
    assert_eq!(stored["decisions_made"].as_array().unwrap().len(), 1);
    let wrong = root.error(
        &["handoff", "T", "-"],
        r#"{"decisions": [{"reason": "r"}]}"#,
        1,
    );
    assert_eq!(wrong["field"], "decisions[0].decision");
    let usage = root.error(&["handoff", "T", "--decision", "d"], "", 2);
    assert!(usage["message"].as_str().unwrap().contains("--because"));
    let gone = root.error(&["handoff", "T", "--artifact", "doc=none"], "", 1);
    assert_eq!(gone["code"], "ARTIFACT");
    assert_eq!(root.stored("T")["version"], 2);
}

#[test]
fn receiving_checks_what_the_agent_would() {
    let root = Root::new();
    root.begin("T");
    fs::write(root.path("a"), "abc").unwrap();
    root.ok(
        &["handoff", "T", "--to", "@tester", "--artifact", "doc=a"],
        "",
    );
    let fine = root.ok(&["receive", "T", "--as", "tester"], "");
    assert_eq!(fine, root.ok(&["summary", "T"], ""));
    let output = root.state(&["receive", "T", "--as", "coder", "--json"], "");
    assert_eq!(output.status.code(), Some(1));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        said["problems"],
        json!(["the task is for @tester, not for coder"])
    );
    assert_eq!(said["state"], root.stored("T"));
    fs::write(root.path("a"), "changed").unwrap();
    let output = root.state(&["receive", "T"], "");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("a does not match its content_hash"), "{said}");
}

#[test]
fn history_has_a_line_for_each_version() {
    let root = Root::new();
    root.begin("T");
    root.ok(
        &["handoff", "T", "--to", "tester", "--phase", "testing"],
        "",
    );
    let next = root.ok(&["show", "T", "--json"], "");
    let next = next.replace("\"version\": 2", "\"version\": 3, \"mine\": true");
    root.ok(&["save", "T", "-"], &next);
    let lines = root.ok(&["history", "T", "--json"], "");
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1]["version"], 2);
    assert_eq!(
        (&lines[1]["from_phase"], &lines[1]["phase"]),
        (&json!("implementing"), &json!("testing"))
    );
    assert_eq!(lines[2]["changed"], json!(["mine"]));
    let page = root.ok(&["history", "T"], "");
    assert!(page.contains("implementing → testing"), "{page}");
    assert!(
        !root.path("audit").exists(),
        "the audit log is the daemon's"
    );
}

#[test]
fn a_summary_can_be_made_smaller() {
    let root = Root::new();
    let long = "many words of a long title ".repeat(40);
    let doc = json!({"task_id": "T", "task_title": long, "version": 1,
        "decisions_made": vec![json!({"decision": long, "rationale": long}); 9]});
    root.ok(&["save", "-"], &doc.to_string());
    let whole = root.ok(&["summary", "T"], "");
    let small = root.ok(&["summary", "T", "--max-tokens", "90"], "");
    assert!(small.len() < whole.len() && small.contains("State file: context/state/T.json"));
    assert!(handoffd::policy::task::count_tokens(&small) < 90);
    let said: Value = serde_json::from_str(&root.ok(&["summary", "T", "--json"], "")).unwrap();
    assert_eq!(said["context_summary"], whole.trim_end());
}

/// How much memory `state summary` takes at most, in KiB.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it and tells more")]
fn peak(root: &Root, task: &str) -> i64 {
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .args(["state", "summary", task])
        .env("HANDOFFD_ROOT", root.dir())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: zeros are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    // SAFETY: both pointers are to locals, and nobody else waits for this child.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    assert_eq!((waited, status), (pid, 0));
    usage.ru_maxrss
}

#[test]
fn a_short_summary_loads_no_table_of_tokens() {
    let root = Root::new();
    root.begin("short");
    let title = "a title of many words ".repeat(9);
    let decision = json!({"decision": title, "rationale": title});
    let long = json!({"task_id": "long", "task_title": title, "version": 1, "decisions_made": [decision, decision]});
    root.ok(&["save", "-"], &long.to_string());
    let (short, long) = (peak(&root, "short"), peak(&root, "long"));
    assert!(short + 15_000 < long, "{short} and {long} KiB");
}
