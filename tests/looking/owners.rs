//! Commands that root runs on somebody's root, and that others run who don't own it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::json;

use super::needs::skip;
use super::{Root, completed, failed};

const OWNER: u32 = 5011;
const GROUP: u32 = 5012;
const OTHER: u32 = 5013;

fn every(folder: &Path, each: &mut impl FnMut(&Path)) {
    each(folder);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            every(&path, each);
        } else {
            each(&path);
        }
    }
}

/// A root with work in it that belongs to a user without rights; none where we are not root.
fn owned() -> Option<Root> {
    if !rustix::process::geteuid().is_root() {
        skip("only root can act on the root of another user");
        return None;
    }
    let root = Root::new();
    root.put("failed", "broken-build", 5, &failed());
    root.put("completed", "done", 3, &completed());
    give(&root);
    Some(root)
}

fn give(root: &Root) {
    every(root.dir.path(), &mut |path| {
        lchown(path, Some(OWNER), Some(GROUP)).unwrap();
    });
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8(text).unwrap()
}

/// Everything below the root that is not its owner's.
fn of_others(root: &Root) -> Vec<(PathBuf, u32, u32)> {
    let mut found = Vec::new();
    every(root.dir.path(), &mut |path| {
        let it = path.symlink_metadata().unwrap();
        if (it.uid(), it.gid()) != (OWNER, GROUP) {
            found.push((path.to_owned(), it.uid(), it.gid()));
        }
    });
    found
}

#[test]
fn what_root_makes_on_the_root_of_another_belongs_to_its_owner() {
    let Some(root) = owned() else { return };
    let path = |name: &str| root.path(name).display().to_string();
    fs::write(
        root.path("a.json"),
        json!({"target": {"agent_id": "coder"}}).to_string(),
    )
    .unwrap();
    let state = json!({ "task_id": "T", "task_title": "t", "phase": "planning", "version": 1 });
    fs::write(root.path("state.json"), state.to_string()).unwrap();
    give(&root);
    let (request, state) = (path("a.json"), path("state.json"));
    let inside = path("inside/deep");
    let commands: [&[&str]; 14] = [
        &["submit", "--to", "coder"],
        &["submit", &request],
        &["cancel", "done"],
        &["retry", "broken-build"],
        &["state", "save", &state],
        &["state", "handoff", "T", "--to", "coder"],
        &["state", "show", "T"],
        &["check"],
        &["check", "--deep"],
        &["archive", "--older-than", "1d"],
        &["archive", "--restore", "done"],
        &["archive", "--older-than", "1d", "--state", "completed"],
        &[
            "prune",
            "--failed",
            "1d",
            "--completed",
            "1d",
            "--logs",
            "1d",
        ],
        &["init", &inside],
    ];
    for args in commands {
        let output = root.command(args).stdin(Stdio::null()).output().unwrap();
        let told = said(&output);
        if !matches!(args[0], "check" | "state") {
            assert_eq!(output.status.code(), Some(0), "{args:?}: {told}");
        }
        assert_eq!(of_others(&root), [], "{args:?}: {told}");
    }
    // Each has left something that its owner can use.
    for name in [
        "context/state/T.lock",
        "archive/lock",
        "inside/deep/handoffd.toml",
    ] {
        assert!(root.path(name).exists(), "{name}");
    }
    let mut as_owner = root.command(&["state", "show", "T"]);
    let output = as_owner.uid(OWNER).gid(GROUP).current_dir("/").output();
    if let Ok(output) = output {
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    }
}

#[test]
fn root_checks_the_root_of_another_as_its_owner_would_run_it() {
    let Some(root) = owned() else { return };
    let check = |args: &[&str]| {
        let output = root.command(args).output().unwrap();
        (output.status.code(), said(&output))
    };
    give(&root);
    let (code, told) = check(&["check"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("owns this root"), "{told}");
    let (_, told) = check(&["check", "--deep"]);
    assert!(
        told.contains("the configuration and the root are fine"),
        "{told}"
    );
    // A configuration of somebody else is another matter.
    lchown(root.path("handoffd.toml"), Some(OTHER), None).unwrap();
    let (code, told) = check(&["check"]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("run anything as root"), "{told}");
    give(&root);
    fs::create_dir_all(root.path(".handoffd/run")).unwrap();
    fs::create_dir_all(root.path("audit/sessions")).unwrap();
    fs::create_dir_all(root.path("context/state")).unwrap();
    give(&root);
    let files = [".handoffd/run/keeper.v1.lock", "context/state/T.lock"];
    for file in files {
        fs::write(root.path(file), "").unwrap();
    }
    lchown(root.path("audit/sessions"), Some(0), Some(0)).unwrap();
    let (code, told) = check(&["check", "--deep"]);
    assert_eq!(code, Some(2), "{told}");
    for path in [files[0], files[1], "audit/sessions"] {
        let advice = format!("chown {OWNER}:{GROUP} {}", root.path(path).display());
        assert!(told.contains(&advice), "{path}: {told}");
    }
}

#[test]
fn what_its_owner_may_not_read_is_named_with_who_can_change_that() {
    let Some(root) = owned() else { return };
    give(&root);
    let as_owner = |args: &[&str]| {
        let mut command = root.command(args);
        command.uid(OWNER).gid(GROUP).current_dir("/").output()
    };
    if as_owner(&["status"]).is_err() {
        eprintln!("nothing was tried: another user can't run this program");
        return;
    }
    fs::create_dir_all(root.path("audit")).unwrap();
    give(&root);
    let record = "handoffs/completed/done.json";
    for (path, args) in [
        ("handoffd.toml", &["check"][..]),
        (record, &["show", "done"]),
        (record, &["check", "--deep"]),
        ("audit", &["check", "--deep"]),
        ("handoffs/waiting", &["run", "--drain"]),
        ("audit", &["run", "--drain"]),
    ] {
        let path = root.path(path);
        let mode = path.metadata().unwrap().permissions();
        lchown(&path, Some(0), Some(0)).unwrap();
        let closed = if path.is_dir() { 0o700 } else { 0o600 };
        fs::set_permissions(&path, fs::Permissions::from_mode(closed)).unwrap();
        let told = said(&as_owner(args).unwrap());
        let advice = format!("chown {OWNER}:{GROUP} {}", path.display());
        assert!(told.contains(&advice), "{args:?}: {told}");
        assert!(!told.contains("chmod"), "{args:?}: {told}");
        fs::set_permissions(&path, mode).unwrap();
        give(&root);
    }
}

#[test]
fn who_does_not_own_a_folder_is_refused_before_anything_is_written() {
    let Some(root) = owned() else { return };
    let state = json!({ "task_id": "T", "task_title": "t", "phase": "planning", "version": 1 });
    fs::write(root.path("state.json"), state.to_string()).unwrap();
    fs::create_dir_all(root.path("context/state")).unwrap();
    fs::create_dir_all(root.path("archive")).unwrap();
    give(&root);
    // The group may write everywhere, and a lock that all may use is there.
    fs::write(root.path("context/state/T.lock"), "").unwrap();
    fs::write(root.path("archive/lock"), "").unwrap();
    give(&root);
    every(root.dir.path(), &mut |path| {
        let mode = if path.is_dir() { 0o770 } else { 0o660 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    });
    let listing = || {
        let mut names = Vec::new();
        every(root.dir.path(), &mut |path| {
            let it = path.symlink_metadata().unwrap();
            names.push((path.to_owned(), it.len(), it.uid()));
        });
        names.sort();
        names
    };
    let before = listing();
    let state = root.path("state.json").display().to_string();
    let commands: [&[&str]; 2] = [
        &["state", "save", &state],
        &["archive", "--older-than", "1d"],
    ];
    for args in commands {
        let mut command = root.command(args);
        let output = command.uid(OTHER).gid(GROUP).current_dir("/").output();
        let Ok(output) = output else {
            eprintln!("nothing was tried: another user can't run this program");
            return;
        };
        let told = said(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {told}");
        assert!(told.contains("did not write"), "{args:?}: {told}");
        assert!(told.contains("uid 5011"), "{args:?}: {told}");
        assert_eq!(listing(), before, "{args:?}");
    }
    // What is handed over to the daemon may stay its maker's.
    let mut command = root.command(&["submit", "--to", "coder"]);
    let output = command
        .uid(OTHER)
        .gid(GROUP)
        .current_dir("/")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn check_names_what_the_owner_of_a_root_can_not_write_and_who_can_change_that() {
    let Some(root) = owned() else { return };
    fs::create_dir_all(root.path("context/state")).unwrap();
    fs::create_dir_all(root.path("archive")).unwrap();
    give(&root);
    let as_owner = |args: &[&str]| {
        let mut command = root.command(args);
        command.uid(OWNER).gid(GROUP).current_dir("/").output()
    };
    let Ok(output) = as_owner(&["check"]) else {
        eprintln!("nothing was tried: another user can't run this program");
        return;
    };
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let lock = root.path("context/state/T.lock");
    fs::write(&lock, "").unwrap();
    fs::write(root.path("archive/lock"), "").unwrap();
    lchown(root.path("archive"), Some(0), Some(0)).unwrap();
    for args in [&["check"][..], &["check", "--deep"]] {
        let output = as_owner(args).unwrap();
        let told = said(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        for path in ["context/state/T.lock", "archive", "archive/lock"] {
            let advice = format!("chown {OWNER}:{GROUP} {}", root.path(path).display());
            assert!(told.contains(&advice), "{args:?} {path}: {told}");
        }
        assert!(!told.contains("chmod"), "{told}");
    }
    // The owner meets it, and is told what works.
    let state = json!({ "task_id": "T", "task_title": "t", "phase": "planning", "version": 1 });
    fs::write(root.path("state.json"), state.to_string()).unwrap();
    let state = root.path("state.json").display().to_string();
    let output = as_owner(&["state", "save", &state]).unwrap();
    let told = said(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let advice = format!("as root: chown {OWNER}:{GROUP} {}", lock.display());
    assert!(told.contains(&advice), "{told}");
}
