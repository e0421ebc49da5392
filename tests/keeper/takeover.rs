//! A keeper that is killed or told to leave, and what the next one knows and goes on with.

use std::fs::File;
use std::io::Write;

use handoffd::clock::boot_ms;
use handoffd::keeper::wire::{Exit, Key, State, Why};
use handoffd::keeper::{alive_outside, journal};
use rustix::process::Signal;

use crate::bench::{Bench, FAR, UNTIL_GO, is_alive, key, kill, wait_until};
use crate::needs::skip;

pub fn a_killed_keeper_is_followed_by_one_that_takes_over(bench: &Bench) {
    let daemon = bench.connect();
    daemon.client.start(bench.script("runs", UNTIL_GO)).unwrap();
    let stubborn = "trap '' TERM; echo $$ > stubborn; while :; do sleep 0.05; done";
    let mut launch = bench.script("ends", stubborn);
    launch.grace_ms = 500;
    daemon.client.start(launch).unwrap();
    daemon
        .client
        .start(bench.script("ended", "exit 4"))
        .unwrap();
    daemon.ended("ended");
    let (runs, stubborn) = (bench.pid_in("ready"), bench.pid_in("stubborn"));
    let has_cgroup = bench.has_cgroup(runs);
    daemon.client.end(&key("ends"), Why::Linger, FAR).unwrap();
    wait_until("the reason on disk", || {
        let entries = journal::read(&bench.setup.run_dir).unwrap();
        entries
            .iter()
            .find(|entry| entry.why == Some(Why::Linger))
            .map(|_| ())
    });
    bench.kill_keeper();
    wait_until("the loss", || daemon.lost.lock().unwrap().then_some(()));
    assert!(is_alive(runs) && is_alive(stubborn));

    let next = bench.connect();
    let held = next.held("runs").unwrap();
    assert_eq!((held.state, held.pid), (State::Running, Some(runs)));
    assert_eq!(held.note, serde_json::json!({ "of": "runs" }));
    let held = next.held("ended").unwrap();
    assert_eq!(held.state, State::Ended(Exit::Code(4)));
    let ended = wait_until("the end it had begun", || {
        next.held("ends").filter(|held| held.state != State::Ending)
    });
    assert_eq!(ended.why, Some(Why::Linger));
    assert!(matches!(ended.state, State::Ended(_)) && !is_alive(stubborn));
    File::create(bench.path("go")).unwrap();
    let ended = wait_until("its own end", || {
        next.held("runs")
            .filter(|held| held.state != State::Running)
            .filter(|held| held.state != State::Ending)
    });
    assert!(!is_alive(runs));
    if !has_cgroup {
        assert_eq!(ended.state, State::Ended(Exit::Code(7)), "its minder knew");
    }
    assert_eq!(ended.why, None);
}

pub fn one_that_nobody_asked_about_is_written_down_when_it_has_run_for_a_moment(bench: &Bench) {
    let daemon = bench.connect();
    daemon
        .client
        .start_quietly(bench.script("x", UNTIL_GO))
        .unwrap();
    let written = || {
        let entries = journal::read(&bench.setup.run_dir).unwrap();
        entries.into_iter().find(|entry| entry.key == key("x"))?.pid
    };
    let pid = wait_until("its process on disk", written);
    assert_eq!(pid, bench.pid_in("ready"));
    bench.kill_keeper();
    let next = bench.connect();
    let held = next.held("x").unwrap();
    assert_eq!((held.state, held.pid), (State::Running, Some(pid)));
}

pub fn an_end_whose_last_line_was_not_written_is_known(bench: &Bench) {
    let daemon = bench.connect();
    daemon.client.start(bench.script("x", "exit 4")).unwrap();
    assert_eq!(daemon.ended("x"), (Exit::Code(4), None));
    let known = journal::read(&bench.setup.run_dir).unwrap();
    assert_eq!(known[0].exit, Some(Exit::Code(4)));
    if let journal::Held::Cgroup(dir) = &known[0].held {
        assert!(!known[0].gone, "it waits for the next line");
        wait_until("its cgroup's removal", || (!dir.exists()).then_some(()));
    }
    bench.kill_keeper();
    let next = bench.connect();
    assert_eq!(next.held("x").unwrap().state, State::Ended(Exit::Code(4)));
    next.client.forget(&key("x")).unwrap();
    assert_eq!(next.inventory(), []);
}

pub fn an_exit_with_no_keeper_is_known_as_far_as_can_be(bench: &Bench) {
    let daemon = bench.connect();
    daemon.client.start(bench.script("x", UNTIL_GO)).unwrap();
    let pid = bench.pid_in("ready");
    let has_cgroup = bench.has_cgroup(pid);
    daemon.started("x");
    bench.kill_keeper();
    File::create(bench.path("go")).unwrap();
    wait_until("its end", || (!is_alive(pid)).then_some(()));
    let held = bench.connect().held("x").unwrap();
    let exit = if has_cgroup {
        Exit::Unknown
    } else {
        Exit::Code(7)
    };
    let known = wait_until("what the journal knows", || {
        let held = bench.connect().held("x")?;
        (held.state != State::Ending).then_some(held.state)
    });
    assert_eq!(known, State::Ended(exit));
    assert_eq!((held.pid, held.why), (Some(pid), None));
}

pub fn a_deadline_survives_the_keeper(bench: &Bench) {
    let daemon = bench.connect();
    let mut launch = bench.script("x", "echo $$ > ready; exec sleep 1000");
    launch.deadline_boot_ms = boot_ms() + 1500;
    daemon.client.start(launch).unwrap();
    let pid = bench.pid_in("ready");
    daemon.started("x");
    bench.kill_keeper();
    let next = bench.connect();
    assert!(is_alive(pid));
    assert_eq!(next.ended("x").1, Some(Why::Timeout));
    assert!(!is_alive(pid));
}

pub fn a_stray_is_ended_before_anything_else(bench: &Bench) {
    let daemon = bench.connect();
    daemon
        .client
        .start(bench.script("known", UNTIL_GO))
        .unwrap();
    let known = bench.pid_in("ready");
    bench.kill_keeper();
    let mut stray = std::process::Command::new("sh");
    let mut stray = stray
        .args([
            "-c",
            "trap '' TERM; echo $$ > stray; while :; do sleep 0.05; done",
        ])
        .current_dir(bench.dir.path())
        .env("HANDOFF_ROOT", bench.dir.path())
        .env("HANDOFF_ID", "stray")
        .env("HANDOFF_ATTEMPT", "4")
        .spawn()
        .unwrap();
    let pid = bench.pid_in("stray");
    let found = alive_outside(bench.dir.path(), &bench.users(), Some("stray")).unwrap();
    assert!(
        found
            .iter()
            .any(|it| it.pid == pid && it.key == Key::new("stray", 4))
    );
    let next = bench.connect();
    assert!(!is_alive(pid));
    stray.wait().unwrap();
    assert!(is_alive(known));
    assert_eq!(next.held("known").unwrap().state, State::Running);
    next.client.end(&key("known"), Why::Stop, 100).unwrap();
    next.ended("known");
}

/// A process of another user that has the variables of an attempt, for whatever reason.
#[test]
fn a_process_of_another_user_is_no_stray() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        skip("only root can play another user");
        return;
    }
    for no_cgroup in [false, true] {
        let bench = Bench::new(no_cgroup);
        let mut other = std::process::Command::new("sleep");
        let other = other
            .arg("600")
            .uid(65533)
            .env("HANDOFF_ROOT", bench.dir.path())
            .env("HANDOFF_ID", "stray")
            .env("HANDOFF_ATTEMPT", "4");
        let mut other = other.spawn().unwrap();
        let pid = i32::try_from(other.id()).unwrap();
        let _daemon = bench.connect();
        let lives = is_alive(pid);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(lives, "the keeper ended it");
    }
}

/// Only its variables tell whose it is: it left its session, and its minder was killed.
#[test]
fn what_an_attempt_of_another_user_leaves_is_found_without_its_minder() {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        skip("only root can start attempts as another user");
        return;
    }
    let bench = Bench::new(true);
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(bench.dir.path(), everybody).unwrap();
    let daemon = bench.connect();
    let mut launch = bench.script("x", "setsid sleep 600 & echo $!; exec sleep 600");
    let owner = handoffd::keeper::confine::Owner {
        name: "another".to_owned(),
        uid: 65533,
        gid: 65533,
        groups: Vec::new(),
    };
    launch.confine = Some(Box::new(handoffd::keeper::confine::Confine {
        owner: Some(owner),
        ..Default::default()
    }));
    daemon.client.start(launch).unwrap();
    let far = bench.pid_in("x.out");
    for pid in bench.named("handoffd-minder") {
        kill(pid, Signal::KILL);
    }
    bench.kill_keeper();
    let next = bench.connect();
    assert_eq!(next.held("x").unwrap().state, State::Running);
    assert!(is_alive(far));
    next.client.end(&key("x"), Why::Stop, 100).unwrap();
    next.ended("x");
    assert!(!is_alive(far));
}

pub fn it_does_not_mind_sigterm(bench: &Bench) {
    let daemon = bench.connect();
    daemon.client.start(bench.script("x", UNTIL_GO)).unwrap();
    bench.pid_in("ready");
    for name in ["handoffd-keeper", "handoffd-minder"] {
        for pid in bench.named(name) {
            for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
                kill(pid, signal);
            }
        }
    }
    File::create(bench.path("go")).unwrap();
    assert_eq!(daemon.ended("x"), (Exit::Code(7), None));
}

pub fn a_torn_journal_is_no_obstacle(bench: &Bench) {
    let daemon = bench.connect();
    daemon.client.start(bench.script("x", UNTIL_GO)).unwrap();
    let pid = bench.pid_in("ready");
    daemon.started("x");
    bench.kill_keeper();
    let path = bench.setup.run_dir.join("attempts.0.jsonl");
    let mut file = File::options().append(true).open(path).unwrap();
    file.write_all(br#"{"gone":{"key":{"id":"x","#).unwrap();
    let next = bench.connect();
    assert_eq!(next.held("x").unwrap().state, State::Running);
    next.client.end(&key("x"), Why::Cancelled, 1000).unwrap();
    assert_eq!(next.ended("x").1, Some(Why::Cancelled));
    assert!(!is_alive(pid));
}
