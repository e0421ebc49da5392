//! Attempts that are ended: by order, with their main process, or at their deadline, and always the
//! whole tree.

use std::fs;
use std::time::Instant;

use handoffd::clock::boot_ms;
use handoffd::keeper::wire::{Exit, State, Why};
use handoffd::keeper::{alive_outside, journal};

use crate::bench::{Bench, FAR, drop_daemon, is_alive, key, stat, wait_until};

pub fn one_that_ignores_sigterm_is_killed_after_its_grace(bench: &Bench) {
    let daemon = bench.connect();
    let script = "trap '' TERM; echo $$ > ready; while :; do sleep 0.05; done";
    daemon.client.start(bench.script("x", script)).unwrap();
    let pid = bench.pid_in("ready");
    assert_eq!(pid, daemon.started("x"));
    let begun = Instant::now();
    daemon.client.end(&key("x"), Why::Cancelled, 300).unwrap();
    let (exit, why) = daemon.ended("x");
    let took = begun.elapsed().as_millis();
    assert_eq!((exit, why), (Exit::Signal(9), Some(Why::Cancelled)));
    assert!((300..1300).contains(&took), "{took} ms");
    assert!(!is_alive(pid));
}

pub fn a_second_end_shortens_the_grace_and_keeps_the_reason(bench: &Bench) {
    let daemon = bench.connect();
    let script = "trap '' TERM; echo $$ > ready; while :; do sleep 0.05; done";
    daemon.client.start(bench.script("x", script)).unwrap();
    bench.pid_in("ready");
    daemon.client.end(&key("x"), Why::Stalled, FAR).unwrap();
    wait_until("its ending", || {
        (daemon.held("x")?.state == State::Ending).then_some(())
    });
    let on_disk = journal::read(&bench.setup.run_dir).unwrap();
    assert_eq!(on_disk[0].why, Some(Why::Stalled));
    daemon.client.end(&key("x"), Why::Stop, 10).unwrap();
    assert_eq!(daemon.ended("x"), (Exit::Signal(9), Some(Why::Stalled)));
}

pub fn an_end_right_after_the_start_is_not_lost(bench: &Bench) {
    let daemon = bench.connect();
    for at in 0..20 {
        let id = format!("x{at}");
        let launch = bench.launch(&id, &["sleep", "1000"]);
        daemon.client.start(launch).unwrap();
        daemon.client.end(&key(&id), Why::Cancelled, FAR).unwrap();
    }
    for at in 0..20 {
        let ended = daemon.ended(&format!("x{at}"));
        assert_eq!(ended, (Exit::Signal(15), Some(Why::Cancelled)));
    }
}

pub fn what_left_its_session_ends_too(bench: &Bench) {
    let daemon = bench.connect();
    let stubborn = "trap '' TERM HUP; echo $$ > deep; while :; do sleep 0.05; done";
    fs::write(bench.path("stubborn.sh"), stubborn).unwrap();
    let script = "(setsid env -i PATH=$PATH setsid sh stubborn.sh &) ; exec sleep 1000";
    daemon.client.start(bench.script("x", script)).unwrap();
    let deep = bench.pid_in("deep");
    wait_until("a double fork", || {
        let ppid: i32 = stat(deep)?[1].parse().ok()?;
        (ppid != daemon.started("x")).then_some(())
    });
    daemon.client.end(&key("x"), Why::Cancelled, 100).unwrap();
    let (exit, why) = daemon.ended("x");
    assert_eq!((exit, why), (Exit::Signal(15), Some(Why::Cancelled)));
    assert!(!is_alive(deep));
}

pub fn one_that_keeps_forking_away_ends(bench: &Bench) {
    let daemon = bench.connect();
    let hop = "trap '' TERM; echo $$ >> hops; sleep 0.01; setsid sh hop.sh &";
    fs::write(bench.path("hop.sh"), hop).unwrap();
    let script = "for i in 1 2 3; do sh hop.sh & done; sleep 1000";
    daemon.client.start(bench.script("x", script)).unwrap();
    let hops = || fs::read_to_string(bench.path("hops")).unwrap_or_default();
    wait_until("some hops", || (hops().lines().count() > 20).then_some(()));
    daemon.client.end(&key("x"), Why::Timeout, 50).unwrap();
    daemon.ended("x");
    let count = hops().lines().count();
    for pid in hops().lines() {
        assert!(!is_alive(pid.parse().unwrap()));
    }
    assert_eq!(
        alive_outside(bench.dir.path(), &bench.users(), None).unwrap(),
        []
    );
    assert_eq!(hops().lines().count(), count);
}

pub fn leftovers_end_when_the_main_process_does(bench: &Bench) {
    let daemon = bench.connect();
    let stubborn = "trap '' TERM; echo $$ > left; while :; do sleep 0.05; done";
    fs::write(bench.path("stubborn.sh"), stubborn).unwrap();
    let script = "setsid sh stubborn.sh & while ! [ -s left ]; do sleep 0.01; done; exit 5";
    let mut launch = bench.script("x", script);
    launch.grace_ms = 200;
    daemon.client.start(launch).unwrap();
    let left = bench.pid_in("left");
    assert_eq!(daemon.ended("x"), (Exit::Code(5), None));
    assert!(!is_alive(left));
}

pub fn a_deadline_holds_with_no_daemon(bench: &Bench) {
    let daemon = bench.connect();
    let mut launch = bench.script("x", "echo $$ > ready; exec sleep 1000");
    launch.deadline_boot_ms = boot_ms() + 700;
    let due = launch.deadline_boot_ms;
    daemon.client.start(launch).unwrap();
    let pid = bench.pid_in("ready");
    drop_daemon(daemon);
    wait_until("its end", || (!is_alive(pid)).then_some(()));
    assert!(boot_ms() >= due);
    let next = bench.connect();
    let held = wait_until("its being over", || {
        next.held("x").filter(|held| held.state != State::Ending)
    });
    assert_eq!(held.why, Some(Why::Timeout));
    assert_eq!(held.state, State::Ended(Exit::Signal(15)));
}
