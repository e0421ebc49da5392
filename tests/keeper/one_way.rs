//! What only one of the two ways has: a minder that is killed, and cgroups that are removed or used
//! again.

use std::fs::File;
use std::path::Path;

use handoffd::keeper::journal;
use handoffd::keeper::wire::{Exit, State, Why};
use rustix::process::Signal;

use crate::bench::{Bench, UNTIL_GO, drop_daemon, is_alive, key, kill, stat, wait_until};

#[test]
fn a_killed_minder_does_not_free_its_attempt() {
    let bench = Bench::new(true);
    let daemon = bench.connect();
    let script = "setsid sh -c 'echo $$ > other; sleep 1000' & echo $$ > ready; exec sleep 1000";
    daemon.client.start(bench.script("x", script)).unwrap();
    let (main, other) = (bench.pid_in("ready"), bench.pid_in("other"));
    kill(bench.named("handoffd-minder")[0], Signal::KILL);
    let keeper = bench.named("handoffd-keeper")[0].to_string();
    wait_until("the keeper's taking them", || {
        (stat(main)?[1] == keeper).then_some(())
    });
    assert_eq!(daemon.held("x").unwrap().state, State::Running);
    daemon.client.end(&key("x"), Why::Cancelled, 1000).unwrap();
    let ended = daemon.ended("x");
    assert_eq!(ended, (Exit::Signal(15), Some(Why::Cancelled)));
    assert!(!is_alive(main) && !is_alive(other));
}

#[test]
fn cgroups_are_removed_with_their_attempts() {
    let bench = Bench::new(false);
    let daemon = bench.connect();
    daemon.client.start(bench.script("x", UNTIL_GO)).unwrap();
    let pid = bench.pid_in("ready");
    daemon.started("x");
    let entries = journal::read(&bench.setup.run_dir).unwrap();
    let journal::Held::Cgroup(dir) = &entries[0].held else {
        return; // not on this machine
    };
    assert!(bench.has_cgroup(pid) && dir.is_dir());
    File::create(bench.path("go")).unwrap();
    daemon.ended("x");
    wait_until("its removal", || (!dir.exists()).then_some(()));
    drop_daemon(daemon);
    let base: &Path = dir.parent().unwrap();
    wait_until("the removal of all", || (!base.exists()).then_some(()));
}

#[test]
fn a_cgroup_is_used_again_unless_it_was_killed() {
    let bench = Bench::new(false);
    let daemon = bench.connect();
    let code = |id: &str| {
        daemon.client.start(bench.script(id, "exit 3")).unwrap();
        assert_eq!(daemon.ended(id), (Exit::Code(3), None), "{id}");
    };
    code("first");
    daemon
        .client
        .start(bench.script("second", UNTIL_GO))
        .unwrap();
    bench.pid_in("ready");
    daemon
        .client
        .end(&key("second"), Why::Cancelled, 0)
        .unwrap();
    daemon.ended("second");
    code("third");
    let entries = journal::read(&bench.setup.run_dir).unwrap();
    let held = |id: &str| {
        entries
            .iter()
            .find(|it| it.key == key(id))
            .unwrap()
            .held
            .clone()
    };
    if matches!(held("first"), journal::Held::Cgroup(_)) {
        assert_eq!(held("first"), held("second"));
        assert_ne!(held("second"), held("third"));
    }
}
