//! Artifacts of any size: what is too large is refused with its size, what is large is read beside
//! the other outcomes, and never held in memory.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, skip, text, wait_until, with};

/// A root with `@held`, which runs this script as `nobody`.
fn held(script: &str, more: &str) -> Root {
    let root = Root::new();
    fs::write(root.path("held.sh"), script).unwrap();
    root.configure(&format!(
        "specialists.'@held'.command = ['sh', 'held.sh']\n\
         specialists.'@held'.retry.max_retries = 0\n\
         specialists.'@held'.user = 'nobody'\n{more}"
    ));
    fs::set_permissions(root.dir(), Permissions::from_mode(0o755)).unwrap();
    root
}

fn request(id: &str) -> Value {
    json!({
        "target": { "agent_id": "@held" },
        "expected_output": { "artifact_type": "text", "destination": format!("artifacts/{id}.bin") },
    })
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("only root can run attempts as another user");
    }
    is_root
}

/// The most memory that the daemon has had, in KiB.
fn most_memory(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let digits = line.unwrap().split_whitespace().nth(1).unwrap();
    digits.parse().unwrap()
}

#[test]
fn an_artifact_above_the_limit_fails_with_its_name_its_size_and_the_key() {
    if !is_root() {
        return;
    }
    for verify in ["", "specialists.'@held'.verify = ['true']"] {
        let root = held("truncate -s 3G \"$HANDOFF_ARTIFACT\"", verify);
        let daemon = Daemon::start(&root);
        root.drop_request("x", &request("x"));
        let (record, code) = root.failed("x");
        assert_eq!(code, "VALIDATION_FAILED", "{record:#}");
        let message = text(&record["error"]["message"]);
        for part in ["artifacts/x.bin", "3221225472", "daemon.max_artifact_size"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(most_memory(&daemon) < 500_000, "{}", most_memory(&daemon));
        root.assert_works("after");
    }
}

#[test]
fn a_listed_file_above_the_limit_fails_too_and_one_at_the_limit_does_not() {
    let root = Root::with("daemon.max_artifact_size = '64KiB'");
    let _daemon = Daemon::start(&root);
    let listing = |size: u32| {
        let sh = format!("truncate -s {size} big; echo '{{\"artifacts\": [\"big\"]}}'");
        with(orders(&sh), json!({ "retry": { "max_retries": 0 } }))
    };
    root.drop_request("above", &listing(65_537));
    let (record, code) = root.failed("above");
    assert_eq!(code, "VALIDATION_FAILED");
    let message = text(&record["error"]["message"]);
    assert!(
        message.contains("big") && message.contains("65537 bytes"),
        "{message}"
    );
    root.drop_request("at", &listing(65_536));
    let record = root.completed("at");
    assert_eq!(record["output"]["size_bytes"], 65_536);
}

#[test]
fn a_large_artifact_is_verified_without_being_held_in_memory() {
    if !is_root() {
        return;
    }
    let root = held(
        "truncate -s 100M \"$HANDOFF_ARTIFACT\"; printf end >>\"$HANDOFF_ARTIFACT\"",
        "specialists.'@held'.verify = ['sh', '-c', 'stat -c %s \"$HANDOFF_ARTIFACT\" >&2; \
         tail -c 3 \"$HANDOFF_ARTIFACT\" >&2']",
    );
    let daemon = Daemon::start(&root);
    root.drop_request("x", &request("x"));
    let record = root.completed("x");
    assert_eq!(record["validation"]["status"], "passed");
    let said = fs::read_to_string(root.path(".handoffd/logs/x~verify.1.log")).unwrap();
    assert_eq!(said, format!("{}\nend", 100 * 1024 * 1024 + 3));
    assert!(most_memory(&daemon) < 80_000, "{}", most_memory(&daemon));
}

/// Ways to run `@big`, as far as this machine has them.
fn ways() -> Vec<&'static str> {
    let mut ways = vec![""];
    if is_root() {
        ways.push("specialists.'@big'.user = 'nobody'\nspecialists.'@big'.verify = ['true']");
    }
    match handoffd::keeper::confine::can_sandbox() {
        Ok(()) => {
            ways.push("specialists.'@big'.sandbox = {}\nspecialists.'@big'.verify = ['true']");
        }
        Err(why) => eprintln!("skipped: this kernel can't hold a sandbox ({why})"),
    }
    ways
}

#[test]
fn artifacts_that_take_long_to_read_hold_up_nobody_and_can_be_cancelled() {
    for way in ways() {
        let root = Root::new();
        fs::write(root.path("big.sh"), "truncate -s 2T \"$HANDOFF_ARTIFACT\"").unwrap();
        root.configure(&format!(
            "daemon.max_artifact_size = '16384GiB'\ndaemon.max_concurrent = 10\n\
             defaults.retry.max_retries = 0\nspecialists.'@big'.command = ['sh', 'big.sh']\n{way}"
        ));
        fs::set_permissions(root.dir(), Permissions::from_mode(0o755)).unwrap();
        let _daemon = Daemon::start(&root);
        let sparse = |n: u32| {
            json!({ "target": { "agent_id": "@big" }, "expected_output": {
                "destination": format!("artifacts/{n}.bin"), "artifact_type": "text" } })
        };
        for n in 0..5 {
            root.drop_request(&format!("sparse-{n}"), &sparse(n));
        }
        let mut short = sparse(5);
        short["timeout_seconds"] = json!(2);
        root.drop_request("short", &short);
        wait_until("the problems", || {
            let problems = root.problems();
            let is_told = |n: u32| problems.contains(&format!("handoffd cancel sparse-{n}"));
            (0..5).all(is_told).then_some(())
        });
        // Others come through, also those with artifacts.
        root.assert_works("other");
        let small = json!({ "expected_output": {
            "destination": "artifacts/small.txt", "artifact_type": "text" } });
        root.drop_request(
            "small",
            &with(orders("echo x >\"$HANDOFF_ARTIFACT\""), small),
        );
        root.completed("small");
        // Reading counts in the attempt's time.
        let (_, code) = root.failed("short");
        assert_eq!(code, "TIMEOUT", "{way}");
        for n in 0..5 {
            let id = format!("sparse-{n}");
            root.command(
                &format!("{id}.json"),
                &json!({ "action": "cancel", "handoff_id": id }),
            );
            let (_, code) = root.failed(&id);
            assert_eq!(code, "CANCELLED", "{id} {way}");
        }
        wait_until("the commands to be done", || {
            (root.names("handoffs/control") == ["rejected"]).then_some(())
        });
        assert!(root.names("handoffs/control/rejected").is_empty());
        wait_until("no problem", || (root.problems() == "[]").then_some(()));
    }
}
