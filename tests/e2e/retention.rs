//! Retention: the daemon deletes what is old, spares what is needed, and says so.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::common::{Daemon, Root, orders, wait_until, with};

const RETENTION: &str =
    "retention.completed = '1h'\nretention.failed = '1h'\nretention.logs = '1h'\n";

/// Makes a file look as if it had not changed for a day.
fn make_old(root: &Root, path: &str) {
    let day_ago = SystemTime::now() - Duration::from_secs(86_400);
    let file = File::options().write(true).open(root.path(path)).unwrap();
    file.set_modified(day_ago).unwrap();
}

fn until_gone(root: &Root, path: &str) {
    wait_until(&format!("the end of {path}"), || {
        (!root.path(path).exists()).then_some(())
    });
}

/// Has some handoffs ended, and stops the daemon again.
fn ended(root: &Root) {
    let daemon = Daemon::start(root);
    for id in ["old", "young", "needed"] {
        root.drop_request(id, &orders("exit 0"));
        root.completed(id);
    }
    root.drop_request("bad", &orders("echo no >&2; exit 64"));
    root.failed("bad");
    fs::write(root.pending("bytes.json"), "{").unwrap();
    root.failed("bytes");
    let waits = with(
        orders("exit 0"),
        json!({"depends_on": ["needed", "nobody"]}),
    );
    root.drop_request("waits", &waits);
    root.record("waiting", "waits");
    assert_eq!(daemon.terminate(), Some(0));
    for path in [
        "handoffs/completed/old.json",
        "handoffs/completed/needed.json",
        "handoffs/failed/bad.json",
        "handoffs/failed/bytes.json",
        ".handoffd/logs/bad.1.log",
    ] {
        make_old(root, path);
    }
}

#[test]
fn what_is_old_goes_and_what_is_young_or_needed_stays() {
    let root = Root::new();
    ended(&root);
    root.configure("retention.completed = '6s'\nretention.failed = '6s'\nretention.logs = '6s'");
    // So that nothing young grows old while the test runs.
    let later = SystemTime::now() + Duration::from_secs(86_400);
    let young = File::options()
        .write(true)
        .open(root.path("handoffs/completed/young.json"))
        .unwrap();
    young.set_modified(later).unwrap();
    let _daemon = Daemon::start(&root);
    for path in [
        "handoffs/completed/old.json",
        "handoffs/failed/bad.json",
        "handoffs/failed/bytes.json",
        "handoffs/failed/bytes.rejected",
        ".handoffd/logs/bad.1.log",
    ] {
        until_gone(&root, path);
    }
    assert_eq!(root.states_of("needed"), ["completed"], "`waits` names it");
    assert_eq!(root.states_of("young"), ["completed"]);
    assert_eq!(root.states_of("waits"), ["waiting"]);
    let told = root.cli(&["audit", "old", "--json"]);
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains(r#""event":"pruned""#), "{told}");
    root.assert_audit_is_sound();
    root.drop_request("old", &orders("exit 0"));
    root.completed("old");
}

#[test]
fn nothing_goes_by_default_and_a_reload_is_enough_to_begin() {
    let root = Root::new();
    ended(&root);
    let daemon = Daemon::start(&root);
    root.assert_works("one");
    assert_eq!(root.states_of("old"), ["completed"]);
    root.configure("retention.completed = '5s'");
    daemon.signal(rustix::process::Signal::HUP);
    until_gone(&root, "handoffs/completed/old.json");
    assert_eq!(root.states_of("bad"), ["failed"]);
}

#[test]
fn row_38_a_record_on_its_way_out_is_back_after_a_start() {
    let root = Root::with(RETENTION);
    ended(&root);
    fs::rename(
        root.path("handoffs/completed/young.json"),
        root.path(".handoffd/leaving/completed.young.json"),
    )
    .unwrap();
    let _daemon = Daemon::start(&root);
    assert_eq!(root.states_of("young"), ["completed"]);
}
