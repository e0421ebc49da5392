//! Where stdout takes nothing, a command says so, ends with 1, and has done what it was asked.

use std::fs::{self, File};
use std::process::{Output, Stdio};

use serde_json::json;

use super::{Root, completed, failed};

/// Runs it on a device that is always full, or into a pipe that nobody reads.
fn unheard(root: &Root, args: &[&str], stdout: Stdio) -> Output {
    let mut command = root.command(args);
    let child = command.stdout(stdout).stderr(Stdio::piped());
    child.spawn().unwrap().wait_with_output().unwrap()
}

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn root() -> Root {
    let root = Root::new();
    root.put("failed", "broken-build", 5, &failed());
    root.put("completed", "done", 3, &completed());
    let request = json!({"target": {"agent_id": "coder"}}).to_string();
    fs::write(root.path("handoffs/pending/queued.json"), &request).unwrap();
    for name in ["a.json", "b.json", "c.json"] {
        fs::write(root.path(name), &request).unwrap();
    }
    fs::write(root.path(".handoffd/logs/broken-build.2.log"), "words").unwrap();
    root
}

#[test]
fn what_can_not_be_told_is_an_error_and_no_panic() {
    let root = root();
    let file = root.path("a.json");
    let (file, fresh) = (file.to_str().unwrap(), root.path("fresh"));
    for args in [
        &["show", "done"][..],
        &["show", "done", "--json"],
        &["show", "queued", "--json"],
        &["show", "nothing", "--json"],
        &["explain", "done"],
        &["explain", "done", "--json"],
        &["logs", "broken-build"],
        &["chain", "done"],
        &["chain", "done", "--json"],
        &["export", "done"],
        &["list"],
        &["list", "--json"],
        &["status"],
        &["status", "--json"],
        &["audit", "--verify"],
        &["audit", "--verify", "--json"],
        &["artifacts", "verify"],
        &["artifacts", "verify", "--json"],
        &["metrics"],
        &["check"],
        &["check", "--deep", "--json"],
        &["validate", file],
        &["validate", file, "--json"],
        &["wait", "done"],
        &["wait", "done", "broken-build"],
        &["cancel", "queued", "--json"],
        &["retry", "broken-build", "--json"],
        &["schema"],
        &["schema", "request"],
        &["service", "systemd"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["--version"],
        &["init", fresh.to_str().unwrap(), "--json"],
    ] {
        let output = unheard(&root, args, full());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{args:?}: {said}");
        let about_it = said.contains("write to stdout") || said.contains("nothing");
        assert!(about_it || args[0].starts_with('-'), "{args:?}: {said}");
    }
}

#[test]
fn all_is_dropped_and_an_id_that_stdout_does_not_take_is_said() {
    let files = ["a.json", "b.json", "c.json"];
    for (stdout, exit) in [(full(), 1), (unread(), 0)] {
        let root = root();
        let paths = files.map(|name| root.path(name).display().to_string());
        let mut args = vec!["submit"];
        args.extend(paths.iter().map(String::as_str));
        let output = unheard(&root, &args, stdout);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{said}");
        let pending = fs::read_dir(root.path("handoffs/pending")).unwrap();
        let names = pending.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let dropped: Vec<String> = names.filter(|name| name != "queued.json").collect();
        assert_eq!(dropped.len(), 3, "{said}");
        for name in dropped {
            let id = name.strip_suffix(".json").unwrap();
            assert!(said.contains(id), "{id}: {said}");
        }
    }
}

#[test]
fn all_kinds_are_pruned_and_packed_also_where_nobody_is_told() {
    for args in [
        &["prune", "--completed", "1d", "--failed", "1d"][..],
        &["archive"],
    ] {
        for (stdout, exit) in [(full(), 1), (unread(), 0)] {
            let root = root();
            let output = unheard(&root, args, stdout);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(exit), "{args:?}: {said}");
            for path in ["completed/done.json", "failed/broken-build.json"] {
                let path = root.path("handoffs").join(path);
                assert!(!path.exists(), "{args:?}: {}", path.display());
            }
        }
    }
}

#[test]
fn what_can_not_be_said_on_stderr_stops_nothing() {
    let root = root();
    let output = root
        .command(&["cancel", "queued"])
        .stderr(full())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
}
