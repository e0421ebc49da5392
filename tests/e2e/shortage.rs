//! A daemon that is short of descriptors for a moment.

use std::fs;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;

use crate::common::{Daemon, Root, orders, wait_until, with};

fn logged(root: &Root, words: &str) -> bool {
    let logs = root.names("daemon-log");
    let read = |name: &String| fs::read_to_string(root.path("daemon-log").join(name)).unwrap();
    logs.iter().any(|name| read(name).contains(words))
}

/// Whether all threads of a process sleep.
fn rests(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .all(|stat| stat.rsplit(')').next().unwrap().starts_with(" S"))
}

/// No event tells of the command, and no rescan comes to help.
#[test]
fn a_folder_that_could_not_be_listed_once_is_listed_again_soon() {
    let root = Root::with("daemon.rescan = '1h'");
    let daemon = Daemon::start(&root);
    let later = json!({ "not_before": "2999-01-01T00:00:00Z" });
    root.drop_request("x", &with(orders("exit 0"), later));
    root.record("waiting", "x");
    let pid = Pid::from_raw(daemon.pid());
    let least = Rlimit {
        current: Some(3),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    let usual = prlimit(pid, Resource::Nofile, least).unwrap();
    let (control, aside) = (root.path("handoffs/control"), root.path("handoffs/aside"));
    fs::rename(&control, &aside).unwrap();
    let command = json!({ "action": "cancel", "handoff_id": "x" });
    fs::write(aside.join("c.json"), command.to_string()).unwrap();
    // The daemon may have made a new one.
    wait_until("the folder is back", || {
        let _ = fs::remove_dir(control.join("rejected"));
        fs::rename(&aside, &control).ok()
    });
    wait_until("it can't be listed", || {
        logged(&root, "can't list handoffs/control").then_some(())
    });
    // What the events have asked for is tried before there are descriptors again.
    let mut quiet = 0;
    wait_until("it rests", || {
        quiet = if rests(daemon.pid()) { quiet + 1 } else { 0 };
        (quiet >= 30).then_some(())
    });
    prlimit(pid, Resource::Nofile, usual).unwrap();
    assert_eq!(root.failed("x").1, "CANCELLED");
}
