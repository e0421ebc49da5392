//! A daemon that is not root, played by root: what its specialists see of it, and what happens when
//! the system has no more processes for it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;

use crate::common::{Daemon, Root, ask, keeper, outcomes, skip, wait_until};

/// Users that nothing else runs as.
const SECRETIVE: u32 = 65_531;
const POOR: u32 = 65_532;

fn can_play() -> bool {
    let can = rustix::process::geteuid().is_root();
    if !can {
        skip("only root can play another user");
    }
    can
}

fn start(root: &Root, user: u32) -> Daemon {
    Daemon::start_as(root, user, |command| {
        command.env("A_SECRET", "of-the-daemon");
    })
}

/// It runs as the daemon's user and without a sandbox.
#[test]
fn a_specialist_does_not_read_the_daemons_environment_nor_the_keepers_memory() {
    if !can_play() {
        return;
    }
    let spies = "read daemon <\"$HANDOFF_ROOT/marks/daemon\"\n\
                 cat /proc/self/environ | tr '\\0' '\\n' | grep -c ^HANDOFF_ID= >&2\n\
                 for pid in $daemon $PPID; do\n\
                 cat /proc/$pid/environ /proc/$pid/maps; ls -l /proc/$pid/fd; done >&2 2>/dev/null\n\
                 echo tried >&2; mark tried; await leave";
    let root = Root::team("", &[("x", spies)]);
    let daemon = start(&root, SECRETIVE);
    fs::write(root.path("marks/daemon"), format!("{}\n", daemon.pid())).unwrap();
    root.drop_request("a", &ask("x"));
    root.mark("a.tried");
    daemon.kill();
    let next = start(&root, SECRETIVE);
    root.allow("leave");
    let record = root.completed("a");
    assert_eq!(outcomes(&record), ["completed"], "it was adopted");
    let said = fs::read_to_string(root.path(".handoffd/logs/a.1.log")).unwrap();
    assert_eq!(said, "1\ntried\n");
    assert_eq!(next.terminate(), Some(0));
}

#[test]
fn a_start_that_the_system_has_no_process_for_costs_no_retry() {
    if !can_play() {
        return;
    }
    let root = Root::team("defaults.retry.max_retries = 0", &[("x", "exit 0")]);
    let _daemon = start(&root, POOR);
    root.drop_request("before", &ask("x"));
    root.completed("before");
    let keeper = keeper(root.dir()).to_string();
    let limit = |most: &str| {
        let limited = Command::new("prlimit")
            .args(["--pid", &keeper, &format!("--nproc={most}:")])
            .uid(POOR)
            .gid(POOR)
            .status();
        assert!(limited.unwrap().success());
    };
    let usual = Command::new("prlimit")
        .args(["--pid", &keeper, "--nproc", "--noheadings", "--output=HARD"])
        .uid(POOR)
        .gid(POOR)
        .output()
        .unwrap();
    let usual = String::from_utf8(usual.stdout).unwrap().trim().to_owned();
    limit("1");
    root.drop_request("a", &ask("x"));
    let waits = |record: &Value| record["waiting"]["on"] == "retry";
    let record = root.record_that("waiting", "a", waits);
    let reason = record["waiting"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("Resource temporarily unavailable"),
        "{reason}"
    );
    wait_until("the problem", || {
        root.problems().contains("could not start").then_some(())
    });
    limit(&usual);
    let record = root.completed("a");
    assert_eq!(record["retry_count"].as_u64().unwrap_or(0), 0, "{record:#}");
    let outcomes = outcomes(&record);
    let (last, before) = outcomes.split_last().unwrap();
    assert_eq!(last, "completed");
    assert!(!before.is_empty() && before.iter().all(|it| it == "interrupted"));
    wait_until("the problem's end", || {
        (!root.problems().contains("could not start")).then_some(())
    });
}
