//! Configuration and programs that somebody else can rewrite: refused at the start, by `check`, at a
//! reload and before an attempt.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Output;

use rustix::process::Signal;
use serde_json::json;

use crate::common::{Daemon, Root, orders, skip, text, wait_until};

/// A user that owns nothing on this machine.
const STRANGER: u32 = 64_321;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A root with a specialist `@own` whose script is `specialists/own.sh`.
fn with_script(keys: &str) -> Root {
    let root = Root::with(&format!(
        "daemon.rescan = '200ms'\nspecialists.'@own'.command = ['sh', 'specialists/own.sh']\n{keys}"
    ));
    fs::create_dir(root.path("specialists")).unwrap();
    chmod(&root.path("specialists"), 0o755);
    fs::write(root.path("specialists/own.sh"), "#!/bin/sh\nexit 0\n").unwrap();
    chmod(&root.path("specialists/own.sh"), 0o755);
    root
}

fn said(output: &Output) -> String {
    let bytes = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Both `run` and `check` refuse this root, and say all of these words.
fn assert_refused(root: &Root, words: &[&str]) {
    for command in [&["run", "--drain"][..], &["check"]] {
        let output = root.cli(command);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{command:?}: no {word:?} in {said}");
        }
    }
}

fn drop_for_own(root: &Root, id: &str) {
    root.drop_request(id, &json!({ "target": { "agent_id": "@own" } }));
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("only root can give files to another user");
    }
    is_root
}

#[test]
fn what_everybody_may_rewrite_is_refused_at_the_start() {
    for (path, mode) in [
        ("handoffd.toml", 0o666),
        ("handoffd.toml", 0o602),
        ("specialists", 0o777),
        // In a sticky folder nobody replaces the script, but may put files beside it that the
        // script loads.
        ("specialists", 0o1777),
        ("specialists/own.sh", 0o777),
    ] {
        // The configuration that everybody may rewrite is not asked whether that is fine.
        let root = with_script("daemon.allow_shared = true");
        let before = root.path(path).metadata().unwrap().permissions();
        chmod(&root.path(path), mode);
        let full = root.path(path).display().to_string();
        let shown = format!("{mode:04o}");
        assert_refused(&root, &[&full, &shown, &format!("chmod o-w {full}")]);
        fs::set_permissions(root.path(path), before).unwrap();
        let daemon = Daemon::start(&root);
        drop_for_own(&root, "x");
        root.completed("x");
        daemon.terminate();
    }
}

#[test]
fn a_group_may_write_to_what_is_configured() {
    let root = with_script("");
    for path in ["handoffd.toml", "specialists", "specialists/own.sh"] {
        chmod(&root.path(path), 0o775);
    }
    let _daemon = Daemon::start(&root);
    drop_for_own(&root, "x");
    root.completed("x");
}

#[test]
fn every_command_of_the_configuration_is_looked_at() {
    let commands = [
        "specialists.'@b'.command = ['open/tool']",
        "specialists.'@b'.command = ['env', 'open/tool']",
        "specialists.'@b'.command = ['env', '--file=open/tool']",
        "specialists.'@b'.command = ['sh', '../open/tool']\nspecialists.'@b'.working_dir = 'sub'",
        "specialists.'@b'.command = ['true']\nspecialists.'@b'.verify = ['open/tool']",
        "notify.failed = ['open/tool']",
        "notify.completed = ['sh', 'open/tool']",
        "gates = [{ name = 'g', phases = ['p'], command = ['sh', 'open/tool'] }]",
        "specialists.'@b'.command = ['link']",
        "specialists.'@b'.command = ['sh', './link']",
    ];
    for command in commands {
        let root = with_script(command);
        for folder in ["open", "sub"] {
            fs::create_dir(root.path(folder)).unwrap();
        }
        fs::write(root.path("open/tool"), "#!/bin/sh\n").unwrap();
        chmod(&root.path("open/tool"), 0o777);
        symlink("open/tool", root.path("link")).unwrap();
        let path = std::env::var("PATH").unwrap();
        let cli = |verb: &[&str]| {
            std::process::Command::new(env!("CARGO_BIN_EXE_handoffd"))
                .args(verb)
                .arg("--root")
                .arg(root.dir())
                .env("PATH", format!("{}:{path}", root.dir().display()))
                .output()
                .unwrap()
        };
        for verb in [&["run", "--drain"][..], &["check"]] {
            let output = cli(verb);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(2), "{verb:?}, {command}: {said}");
            assert!(said.contains("open/tool"), "{verb:?}, {command}: {said}");
        }
    }
}

#[test]
fn a_configuration_elsewhere_is_looked_at_too() {
    let root = with_script("");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("other.toml");
    fs::copy(root.path("handoffd.toml"), &config).unwrap();
    for (path, mode, back) in [(&*config, 0o666, 0o644), (folder.path(), 0o777, 0o755)] {
        chmod(path, mode);
        let output = root.cli(&["run", "--drain", "--config", &config.to_string_lossy()]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("chmod o-w"), "{}", said(&output));
        chmod(path, back);
    }
}

#[test]
fn a_folder_above_the_root_that_everybody_may_write_to_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("root");
    fs::create_dir(&inside).unwrap();
    chmod(&inside, 0o755);
    let root = Root::at(&inside, "");
    chmod(folder.path(), 0o777);
    let wanted = format!("chmod o-w {}", folder.path().display());
    let checked = root.cli(&["check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", said(&checked));
    assert!(said(&checked).contains(&wanted), "{}", said(&checked));
    let drained = root.cli(&["run", "--drain"]);
    assert_eq!(drained.status.code(), Some(0), "{}", said(&drained));
    assert!(said(&drained).contains(&wanted), "{}", said(&drained));
    chmod(folder.path(), 0o1777);
    let checked = root.cli(&["check"]);
    assert!(!said(&checked).contains("chmod"), "{}", said(&checked));
}

#[test]
fn a_configuration_that_was_opened_to_everybody_is_not_read_again() {
    let root = with_script("");
    let daemon = Daemon::start(&root);
    root.configure("specialists.'@evil'.command = ['sh', '-c', 'echo x > marks/evil']");
    chmod(&root.path("handoffd.toml"), 0o666);
    daemon.signal(Signal::HUP);
    wait_until("the problem", || {
        root.problems().contains("chmod o-w").then_some(())
    });
    drop_for_own(&root, "x");
    root.completed("x");
    root.drop_request("evil", &json!({ "target": { "agent_id": "@evil" } }));
    assert_eq!(root.failed("evil").1, "UNKNOWN_AGENT");
    chmod(&root.path("handoffd.toml"), 0o644);
    daemon.signal(Signal::HUP);
    wait_until("no problem", || (root.problems() == "[]").then_some(()));
}

#[test]
fn a_script_that_was_opened_to_everybody_does_not_run_until_it_is_closed() {
    for keys in ["", "specialists.'@own'.verify = ['sh', 'specialists/v.sh']"] {
        let root = with_script(keys);
        fs::write(root.path("specialists/v.sh"), "exit 0\n").unwrap();
        let _daemon = Daemon::start(&root);
        drop_for_own(&root, "before");
        root.completed("before");
        let script = root.path("specialists").join(match keys {
            "" => "own.sh",
            _ => "v.sh",
        });
        chmod(&script, 0o777);
        fs::write(&script, "echo x > \"$HANDOFF_ROOT/marks/stolen\"\n").unwrap();
        for id in ["x", "y"] {
            drop_for_own(&root, id);
        }
        wait_until("the problem", || {
            let problems = root.problems();
            (problems.contains("@own") && problems.contains("chmod o-w")).then_some(())
        });
        // Everybody else's work goes on.
        root.assert_works("other");
        assert_eq!(root.states_of("x"), ["pending"]);
        assert_eq!(root.names("marks"), [""; 0]);
        fs::write(&script, "exit 0\n").unwrap();
        chmod(&script, 0o755);
        for id in ["x", "y"] {
            let record = root.completed(id);
            assert_eq!(record["handoffd"]["attempts"].as_array().unwrap().len(), 1);
        }
        wait_until("no problem", || (root.problems() == "[]").then_some(()));
    }
}

#[test]
fn a_problem_with_a_script_ends_also_when_nothing_waits_for_it_any_longer() {
    let root = with_script("");
    let _daemon = Daemon::start(&root);
    chmod(&root.path("specialists/own.sh"), 0o777);
    drop_for_own(&root, "x");
    wait_until("the problem", || {
        root.problems().contains("chmod o-w").then_some(())
    });
    root.command("c.json", &json!({ "action": "cancel", "handoff_id": "x" }));
    assert_eq!(root.failed("x").1, "CANCELLED");
    chmod(&root.path("specialists/own.sh"), 0o755);
    wait_until("no problem", || (root.problems() == "[]").then_some(()));
}

#[test]
fn a_retry_and_a_resident_wait_for_a_closed_script_too() {
    let root = with_script(
        "specialists.'@stay'.command = ['sh', 'specialists/stay.sh']
         specialists.'@stay'.mode = 'resident'
         specialists.'@again'.command = ['sh', 'specialists/again.sh']
         specialists.'@again'.retry.delay = '1s'",
    );
    let resident = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/resident.sh");
    fs::copy(resident, root.path("specialists/stay.sh")).unwrap();
    fs::write(
        root.path("specialists/again.sh"),
        "[ $HANDOFF_ATTEMPT = 2 ]\n",
    )
    .unwrap();
    let _daemon = Daemon::start(&root);
    root.drop_request("again", &json!({ "target": { "agent_id": "@again" } }));
    root.record("waiting", "again");
    for name in ["stay.sh", "again.sh"] {
        chmod(&root.path("specialists").join(name), 0o666);
    }
    root.drop_request("stay", &with_agent("@stay"));
    wait_until("both problems", || {
        let problems = root.problems();
        (problems.contains("@stay") && problems.contains("@again")).then_some(())
    });
    assert_eq!(root.states_of("again"), ["waiting"]);
    assert_eq!(root.states_of("stay"), ["pending"]);
    for name in ["stay.sh", "again.sh"] {
        chmod(&root.path("specialists").join(name), 0o644);
    }
    root.completed("stay");
    root.completed("again");
}

fn with_agent(agent: &str) -> serde_json::Value {
    let mut request = orders("ok");
    request["target"]["agent_id"] = json!(agent);
    request
}

#[test]
fn a_daemon_that_is_root_takes_no_configuration_from_anybody_else() {
    if !is_root() {
        return;
    }
    for path in ["handoffd.toml", "specialists", "specialists/own.sh", ""] {
        let root = with_script("");
        chown(root.path(path), Some(STRANGER), Some(STRANGER)).unwrap();
        let full = root.path(path).display().to_string();
        assert_refused(&root, &[full.trim_end_matches('/'), "64321", "chown root"]);
    }
    // What a specialist runs as its own user may belong to that user.
    let root = with_script("specialists.'@own'.user = 'nobody'");
    chmod(root.dir(), 0o755);
    let nobody = 65_534;
    for path in ["specialists", "specialists/own.sh"] {
        chown(root.path(path), Some(nobody), None).unwrap();
    }
    let _daemon = Daemon::start(&root);
    drop_for_own(&root, "x");
    let record = root.completed("x");
    assert_eq!(text(&record["status"]), "completed");
}

/// A daemon on this root that may have this many open files, as its exit code; none if it works.
fn start_with_descriptors(root: &Root, most: u32) -> (Option<i32>, String) {
    let limited = format!("ulimit -n {most}; exec \"$0\" \"$@\"");
    let mut child = std::process::Command::new("sh")
        .args([
            "-c",
            &limited,
            env!("CARGO_BIN_EXE_handoffd"),
            "run",
            "--root",
        ])
        .arg(root.dir())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let code = wait_until("its end or its start", || {
        if let Some(ended) = child.try_wait().unwrap() {
            return Some(Some(ended.code().unwrap_or(-1)));
        }
        let shown = fs::read(root.path(".handoffd/daemon.json")).unwrap_or_default();
        let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap_or_default();
        (shown["pid"] == pid).then_some(None)
    });
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    (code, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_start_that_is_short_of_descriptors_can_be_tried_again() {
    let root = Root::new();
    let mut refused = 0;
    // With fewer, the program itself can't be loaded; with more, the start succeeds.
    for most in [4, 6, 8, 10, 12, 14] {
        let (code, said) = start_with_descriptors(&root, most);
        let Some(code) = code else { continue };
        assert_eq!(code, 75, "with {most}: {said}");
        refused += 1;
    }
    assert!(refused > 3, "only {refused} starts were short of anything");
    let _daemon = Daemon::start(&root);
    root.assert_works("x");
}
