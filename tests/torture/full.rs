//! A disk that has no room at the start, and one that an attempt fills: a command still finds the daemon
//! and what is wrong, and the attempt's outcome is written.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, ask, kill_keeper, program_for, skip, wait_until};
use crate::disk::{self, Mounted};

/// A user that nothing else runs as.
const ANYBODY: u32 = 65_529;

/// Tries it on a small disk in memory that nobody else sees.
fn on_a_small_disk(test: impl FnOnce(&Path) + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can mount a small disk");
    }
    // The mounts go with the thread.
    let name = std::thread::current().name().map(str::to_owned);
    let thread = std::thread::Builder::new().name(name.unwrap_or_default());
    let tried = thread.spawn(move || {
        disk::private_mounts().unwrap();
        let folder = disk::scratch();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open).unwrap();
        let at = folder.path().join("disk");
        let _mounted = Mounted::memory(&at, "size=16m,nr_inodes=4000,mode=0755").unwrap();
        let work = at.join("work");
        fs::create_dir_all(&work).unwrap();
        test(&work);
    });
    if let Err(panic) = tried.unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

/// Writes until there is no byte left.
fn fill(path: &Path) {
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    for size in [1 << 16, 1 << 12, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
}

fn status(root: &Root) -> Value {
    serde_json::from_slice(&root.cli(&["status", "--json"]).stdout).unwrap()
}

#[test]
fn a_daemon_that_began_on_a_full_disk_is_seen_and_says_so() {
    on_a_small_disk(|work| {
        let root = Root::team_at(work, "", &[("x", "exit 0")]);
        Daemon::start(&root).terminate();
        root.drop_request("a", &ask("x"));
        let full = root.path("full");
        fill(&full);
        let daemon = Daemon::spawn(&root, |_| {});
        let shown = wait_until("the problem", || {
            let shown = status(&root);
            let problems = shown["problems"].to_string();
            problems.contains("No space left").then_some(shown)
        });
        assert_eq!(shown["daemon"]["running"], true, "{shown:#}");
        assert_eq!(shown["daemon"]["pid"], daemon.pid(), "{shown:#}");
        fs::remove_file(full).unwrap();
        root.completed("a");
        assert_eq!(daemon.terminate(), Some(0));
        kill_keeper(&root);
    });
}

#[test]
fn a_daemon_that_is_not_root_tells_of_a_full_disk_too() {
    on_a_small_disk(|work| {
        let root = Root::team_at(work, "", &[("x", "await leave")]);
        // Not on this disk: a copy may be larger.
        let outside = tempfile::tempdir().unwrap();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(outside.path(), open).unwrap();
        let program = program_for(outside.path(), ANYBODY);
        let daemon = Daemon::start_program_as(&program, &root, ANYBODY, |_| {});
        root.drop_request("a", &ask("x"));
        root.record("in-progress", "a");
        let full = root.path("full");
        fill(&full);
        root.allow("leave");
        // Asked by the same user, who may not look into the daemon's process.
        wait_until("the problem", || {
            let said = Command::new(&program)
                .args(["status", "--json", "--root"])
                .arg(root.dir())
                .uid(ANYBODY)
                .gid(ANYBODY)
                .output()
                .unwrap();
            let shown: Value = serde_json::from_slice(&said.stdout).unwrap();
            let problems = shown["problems"].to_string();
            problems.contains("No space left").then_some(())
        });
        fs::remove_file(full).unwrap();
        root.completed("a");
        wait_until("the end of the problem", || {
            (status(&root)["problems"] == json!([])).then_some(())
        });
        assert_eq!(daemon.terminate(), Some(0));
        kill_keeper(&root);
    });
}

#[test]
fn an_attempt_that_fills_the_disk_ends_and_nothing_starts_until_there_is_room() {
    on_a_small_disk(|work| {
        let script = "dd if=/dev/zero of=\"$HANDOFF_ROOT/marks/full\" bs=4k 2>/dev/null; exit 1";
        let config = "defaults.retry.max_retries = 0\ndaemon.max_concurrent = 1";
        let root = Root::team_at(work, config, &[("x", script), ("y", "exit 0")]);
        let daemon = Daemon::start(&root);
        root.drop_request("a", &ask("x"));
        let (_, code) = root.failed("a");
        assert_eq!(code, "PROCESSING_ERROR");
        wait_until("the problem", || {
            let problems = status(&root)["problems"].to_string();
            problems.contains("no new attempts").then_some(())
        });
        fs::remove_file(root.path("marks/full")).unwrap();
        wait_until("the end of the problem", || {
            (status(&root)["problems"] == json!([])).then_some(())
        });
        root.drop_request("b", &ask("y"));
        root.completed("b");
        assert_eq!(daemon.terminate(), Some(0));
        kill_keeper(&root);
    });
}
