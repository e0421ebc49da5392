//! What specialists print, and what producers call their files: it stays out of logs that more people
//! read, and moves no cursor and runs nothing where it is shown.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::json;

use crate::common::{Daemon, Root, orders, skip, text, wait_until, with};

const SECRET: &str = "hunter2-correct-horse";

/// All text below a folder of the root.
fn read_all(root: &Root, folder: &str) -> String {
    let mut all = String::new();
    let mut folders = vec![root.path(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                all.push_str(&String::from_utf8_lossy(&fs::read(path).unwrap()));
            }
        }
    }
    all
}

#[test]
fn what_a_specialist_prints_stays_out_of_the_audit_log_the_log_and_packages() {
    let root = Root::with(
        "audit.packages = true\ndefaults.retry.max_retries = 1\n\
         specialists.'@fake'.verify = ['sh', '-c', '[ ! -e marks/no ] || { cat marks/no >&2; exit 1; }']",
    );
    let daemon = Daemon::start(&root);
    fs::write(root.path("marks/secret"), SECRET).unwrap();
    root.drop_request(
        "printed",
        &orders("cat \"$HANDOFF_ROOT/marks/secret\" >&2; exit 1"),
    );
    let (record, _) = root.failed("printed");
    // The record keeps it, for those who may read it.
    assert!(text(&record["error"]["message"]).contains(SECRET));
    fs::write(root.path("marks/no"), SECRET).unwrap();
    root.drop_request("verified", &orders("exit 0"));
    assert!(root.failed("verified").0.to_string().contains(SECRET));
    let package = |id: &str| root.path(&format!("audit/sessions/{id}/handoffs/{id}.yaml"));
    wait_until("the packages", || {
        (package("printed").exists() && package("verified").exists()).then_some(())
    });
    daemon.terminate();
    let audit = read_all(&root, "audit");
    assert!(audit.contains("the specialist exited with 1"), "{audit}");
    assert!(!audit.contains(SECRET), "{audit}");
    assert!(!root.log().contains(SECRET), "{}", root.log());
}

#[test]
fn records_and_logs_are_not_everybodys_whatever_the_umask() {
    let root = Root::new();
    let binary = env!("CARGO_BIN_EXE_handoffd");
    root.drop_request("x", &orders("echo hello >&2; exit 1"));
    root.drop_request("y", &orders("exit 0"));
    let drained = Command::new("sh")
        .args([
            "-c",
            "umask 0; exec \"$0\" run --drain --root \"$1\"",
            binary,
        ])
        .arg(root.dir())
        .output()
        .unwrap();
    assert!(drained.status.success(), "{drained:?}");
    let mut files = vec![root.state("failed", "x"), root.state("completed", "y")];
    for folder in [".handoffd/logs", "audit"] {
        let names = root.names(folder).into_iter();
        files.extend(names.map(|name| root.path(folder).join(name)));
    }
    let files: Vec<_> = files.into_iter().filter(|path| path.is_file()).collect();
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & 0o137, 0, "{}: {mode:o}", file.display());
    }
}

#[test]
fn a_key_in_the_configuration_is_warned_of() {
    let root = Root::with("specialists.'@fake'.env = { OPENAI_API_KEY = 'sk-0123456789' }");
    fs::create_dir_all(root.path("handoffs")).unwrap();
    let output = root.cli(&["check"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("pass_env") && said.contains("OPENAI_API_KEY"),
        "{said}"
    );
    assert!(!said.contains("sk-0123456789"), "{said}");
}

#[test]
fn a_request_forges_no_line_of_the_log() {
    let root = Root::with("defaults.dependency_wait = '50ms'");
    let daemon = Daemon::start(&root);
    let forged = "artifacts/x\n2026-01-01T00:00:00.000Z  INFO completed forged";
    root.drop_request(
        "x",
        &with(orders("exit 0"), json!({ "requires_artifacts": [forged] })),
    );
    root.failed("x");
    daemon.terminate();
    let log = root.log();
    let is_forged = |line: &str| line.starts_with("2026-01-01");
    assert!(!log.lines().any(is_forged), "{log}");
}

#[test]
fn a_result_can_not_say_what_the_daemon_verified() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let sh = r#"echo '{"validation": {"verify": {"exit_code": 0}, "tests": 3}}'"#;
    root.drop_request("x", &orders(sh));
    let record = root.completed("x");
    assert_eq!(record["validation"]["verify"], json!(null), "{record:#}");
    assert_eq!(record["validation"]["claimed_verify"]["exit_code"], 0);
    assert_eq!(record["validation"]["tests"], 3);
}

#[test]
fn names_of_files_are_harmless_where_they_are_shown() {
    let root = Root::new();
    Daemon::start(&root).terminate();
    let names = [
        "$(touch CANARY).json",
        "\u{1b}[2J\u{202e}x.json",
        "a b; touch CANARY",
    ];
    for folder in ["failed", "completed"] {
        for name in names {
            fs::write(root.path("handoffs").join(folder).join(name), "{}").unwrap();
        }
    }
    let output = root.cli(&["check", "--deep"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said}");
    // Whoever pastes a suggestion moves a file, and runs nothing.
    let mut pasted = 0;
    for line in said.lines().filter(|line| line.contains("mv ")) {
        let line = &line[line.find("mv ").unwrap()..];
        let shell = Command::new("bash")
            .args(["-c", line])
            .current_dir(root.dir())
            .output();
        assert!(shell.is_ok(), "{line}");
        pasted += 1;
    }
    assert!(pasted >= 2 * names.len(), "{said}");
    assert!(!root.path("CANARY").exists(), "{said}");
}

#[test]
fn a_user_is_refused_where_the_capabilities_are_gone() {
    let setpriv = Command::new("setpriv").arg("--version").output();
    if setpriv.is_err() || !rustix::process::geteuid().is_root() {
        return skip("it takes root and setpriv");
    }
    let root = Root::with("specialists.'@fake'.user = 'nobody'");
    for verb in [&["run", "--drain"][..], &["check"]] {
        let output = Command::new("setpriv")
            .args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"])
            .arg(env!("CARGO_BIN_EXE_handoffd"))
            .args(verb)
            .arg("--root")
            .arg(root.dir())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("CAP_SETUID"), "{said}");
        assert!(said.contains("handoffd service systemd"), "{said}");
    }
}
