//! Slips of the pen: misnamed fields, folders that are no root, configurations that are half right.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, text, wait_until, with};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Runs `handoffd` in this folder without naming a root.
fn within(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .args(args)
        .env_remove("HANDOFFD_ROOT")
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn a_misnamed_field_is_reported_everywhere_and_refused_to_the_letter() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let request = with(
        orders("exit 0"),
        json!({ "priorty": "high", "timeout": 5, "labels": ["own"] }),
    );
    let warnings = [
        "priorty: unknown field; did you mean `priority`?",
        "timeout: unknown field; did you mean `timeout_seconds`?",
    ];
    root.drop_request("x", &request);
    let record = root.completed("x");
    assert_eq!(record["acknowledgment"]["warnings"], json!(warnings));
    assert_eq!(
        (&record["priorty"], &record["timeout"]),
        (&json!("high"), &json!(5))
    );
    let file = root.path("y.json");
    fs::write(&file, request.to_string()).unwrap();
    for verb in ["validate", "submit"] {
        let output = root.cli(&[verb, file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{verb}: {}", said(&output));
        for warning in warnings {
            assert!(said(&output).contains(warning), "{verb}: {}", said(&output));
        }
    }
    daemon.terminate();
    root.configure("intake.strict = true");
    let _daemon = Daemon::start(&root);
    root.drop_request("z", &request);
    let (record, code) = root.failed("z");
    assert_eq!(code, "SCHEMA_VALIDATION_FAILED");
    let message = text(&record["error"]["message"]);
    assert!(warnings.iter().all(|it| message.contains(it)), "{message}");
    for verb in ["validate", "submit"] {
        let output = root.cli(&[verb, file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{verb}: {}", said(&output));
    }
    // A record of an earlier run has the daemon's own keys; none of them is a slip.
    root.drop_request("fine", &orders("exit 64"));
    root.failed("fine");
    fs::rename(root.state("failed", "fine"), root.pending("fine.json")).unwrap();
    let record = root.record_that("failed", "fine", |it| {
        it["handoffd"]["attempts"][1].is_object()
    });
    assert_eq!(record["error"]["code"], "PROCESSING_ERROR", "{record:#}");
}

#[test]
fn a_folder_that_is_no_root_is_made_none_by_accident() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&[][..], &["run", "--drain"]] {
        let output = within(dir.path(), args);
        let told = said(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        assert!(told.contains("is not a root"), "{told}");
        assert!(told.contains("handoffd init"), "{told}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{args:?}");
    }
    let named = dir.path().join("named");
    let output = within(
        dir.path(),
        &["run", "--drain", "--root", named.to_str().unwrap()],
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(named.join("handoffs/pending").is_dir());
    for made in ["handoffs", "handoffd.toml"] {
        let folder = dir.path().join(format!("with-{made}"));
        fs::create_dir(&folder).unwrap();
        match made {
            "handoffs" => fs::create_dir(folder.join(made)).unwrap(),
            _ => fs::write(folder.join(made), "").unwrap(),
        }
        let output = within(&folder, &["run", "--drain"]);
        assert_eq!(output.status.code(), Some(0), "{made}: {}", said(&output));
    }
}

#[test]
fn a_root_is_found_from_a_folder_below_it() {
    let root = Root::new();
    let below = root.path("src/deep");
    fs::create_dir_all(&below).unwrap();
    let submitted = within(&below, &["submit", "--to", "fake", "--id", "x"]);
    assert_eq!(submitted.status.code(), Some(0), "{}", said(&submitted));
    assert_eq!(root.names("handoffs/pending"), ["x.json"]);
    for args in [&["list"][..], &["show", "x"], &["status"], &["check"]] {
        let output = within(&below, args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", said(&output));
    }
    // A daemon is not started by accident on a root that is somewhere above.
    let output = within(&below, &["run", "--drain"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let dir = root.dir().canonicalize().unwrap();
    assert!(
        said(&output).contains(dir.to_str().unwrap()),
        "{}",
        said(&output)
    );
    let nowhere = within(Path::new("/"), &["list"]);
    assert_eq!(nowhere.status.code(), Some(2), "{}", said(&nowhere));
}

#[test]
fn init_refuses_what_run_would_refuse() {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let output = within(&open, &["init"]);
    let told = said(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("created nothing"), "{told}");
    assert!(told.contains("chmod o-w"), "{told}");
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    let output = within(dir.path(), &["init", "fine"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let fine = dir.path().join("fine");
    fs::copy(
        fine.join("examples/hello.json"),
        fine.join("handoffs/pending/hello.json"),
    )
    .unwrap();
    assert_eq!(within(&fine, &["run", "--drain"]).status.code(), Some(0));
    let shown = within(&fine, &["wait", "hello"]);
    let record: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let echoed = &record["output"]["received"]["input"]["data"];
    assert_eq!(echoed, &json!({"text": "hello"}), "{record:#}");
}

#[test]
fn a_reload_says_what_check_would_and_a_broken_one_is_readable() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    root.configure("specialists.gone.command = ['no-such-program']");
    daemon.signal(Signal::HUP);
    wait_until("what check says is logged", || {
        let log = root.log();
        (log.contains("configuration read again")
            && log.contains("can't run the command of @gone: no-such-program"))
        .then_some(())
    });
    assert!(said(&root.cli(&["check"])).contains("can't run the command of @gone"));
    fs::write(root.path("handoffd.toml"), "[daemon]\nsettel = '1s'\n").unwrap();
    daemon.signal(Signal::HUP);
    let log = wait_until("the broken configuration is logged", || {
        let log = root.log();
        log.contains("^^^^^^").then_some(log)
    });
    assert!(!log.contains("\\n"), "{log}");
    let line = |part: &str| {
        let at = log.lines().position(|line| line.contains(part));
        at.unwrap_or_else(|| panic!("{part}: {log}"))
    };
    let first = line("the new configuration is broken; keeping the old one:");
    assert_eq!(line("did you mean `settle`?"), first + 1);
    assert_eq!(line("    settel = '1s'"), first + 2);
    assert_eq!(line("^^^^^^"), first + 3);
    wait_until("status has it over several lines", || {
        let told = said(&root.cli(&["status"]));
        let shown = told.lines().any(|line| line.trim() == "settel = '1s'");
        shown.then_some(())
    });
}
