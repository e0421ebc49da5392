//! What another user of the machine may do, and what they are told where they may not.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Output;

use serde_json::json;

use super::{Root, completed, failed};

const GROUP: u32 = 5000;
const USER: u32 = 5001;

fn open(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A root as the daemon makes it: for its user and group only.
fn closed() -> Option<Root> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("nothing was tried: this needs root");
        return None;
    }
    let root = Root::new();
    root.put("failed", "broken-build", 5, &failed());
    root.put("completed", "done", 3, &completed());
    fs::create_dir(root.path("audit")).unwrap();
    let request = json!({"target": {"agent_id": "coder"}}).to_string();
    fs::write(root.path("a.json"), request).unwrap();
    for folder in ["handoffs", ".handoffd"] {
        for entry in fs::read_dir(root.path(folder)).unwrap() {
            open(&entry.unwrap().path(), 0o750);
        }
        open(&root.path(folder), 0o750);
    }
    for folder in ["audit", ""] {
        open(&root.path(folder), 0o750);
    }
    Some(root)
}

/// Runs it as a user who has nothing to do with the root.
fn foreign(root: &Root, args: &[&str]) -> Option<Output> {
    let mut command = root.command(args);
    match command.uid(USER).gid(GROUP).current_dir("/").output() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            eprintln!("nothing was tried: another user can't run this program");
            None
        }
        output => Some(output.unwrap()),
    }
}

#[test]
fn who_may_only_write_to_pending_can_submit() {
    let Some(root) = closed() else { return };
    let file = root.path("a.json").display().to_string();
    // As docs/configuration.md has it.
    let pending = root.path("handoffs/pending");
    chown(&pending, None, Some(GROUP)).unwrap();
    open(&pending, 0o2770);
    open(&root.path(""), 0o751);
    open(&root.path("handoffs"), 0o751);
    fs::remove_dir(root.path("handoffs/waiting")).unwrap();
    for args in [&["submit", "--to", "coder"][..], &["submit", &file]] {
        let Some(output) = foreign(&root, args) else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let id = String::from_utf8(output.stdout).unwrap();
        let dropped = pending.join(format!("{}.json", id.trim()));
        let mode = dropped.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o444, 0o444, "the daemon must read it: {mode:o}");
    }
    // Outcomes are not theirs to see, which is said before anything is dropped.
    let before = fs::read_dir(&pending).unwrap().count();
    let output = foreign(&root, &["submit", "--to", "coder", "--wait"]).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("handoffs/completed may not be read"),
        "{said}"
    );
    assert_eq!(fs::read_dir(&pending).unwrap().count(), before);
}

#[test]
fn what_may_not_be_read_is_named_and_not_said_to_be_missing() {
    let Some(root) = closed() else { return };
    let file = root.path("a.json").display().to_string();
    let path = |name: &str| root.path(name).display().to_string();
    // Closed at the top, then below, then at the records themselves.
    for level in 0..3 {
        match level {
            0 => {}
            1 => {
                open(&root.path(""), 0o751);
                open(&root.path("handoffs"), 0o751);
            }
            _ => {
                for state in ["pending", "in-progress", "waiting", "completed", "failed"] {
                    open(&root.path("handoffs").join(state), 0o755);
                }
                open(&root.path("handoffs/failed/broken-build.json"), 0o600);
            }
        }
        let mut commands: Vec<Vec<&str>> = vec![
            vec!["show", "broken-build"],
            vec!["explain", "broken-build"],
            vec!["logs", "broken-build"],
            vec!["chain", "broken-build"],
            vec!["export", "broken-build"],
            vec!["wait", "broken-build"],
            vec!["approve", "broken-build"],
            vec!["audit", "broken-build"],
            vec!["audit", "--verify"],
            vec!["check", "--deep"],
            vec!["prune", "--failed", "1d"],
            vec!["archive"],
        ];
        if level < 2 {
            commands.extend([vec!["list"], vec!["status"], vec!["metrics"]]);
            commands.extend([vec!["cancel", "done"], vec!["retry", "broken-build"]]);
            commands.push(vec!["submit", &file]);
        }
        for args in commands {
            let Some(output) = foreign(&root, &args) else {
                return;
            };
            let mut said = String::from_utf8(output.stderr).unwrap();
            if args[0] == "check" {
                said.push_str(&String::from_utf8(output.stdout).unwrap());
            }
            assert_ne!(output.status.code(), Some(0), "{level} {args:?}: {said}");
            assert!(said.contains(&path("")), "{level} {args:?}: {said}");
            assert!(!said.contains("no handoff"), "{level} {args:?}: {said}");
            if args[0] != "check" {
                assert!(
                    said.contains("run this as root"),
                    "{level} {args:?}: {said}"
                );
            }
        }
    }
}
