//! Whom a keeper talks to: one daemon after the other, the newest of several, those of its own
//! version, and no attempt.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};

use handoffd::keeper::wire::{Exit, Held, State};

use crate::bench::{Bench, UNTIL_GO, drop_daemon, key, wait_until};

pub fn a_new_daemon_learns_of_a_hundred_attempts(bench: &Bench) {
    let daemon = bench.connect();
    for at in 0..100 {
        let script = match at % 2 {
            0 => format!("exit {at}"),
            _ => format!("while ! [ -e go ]; do sleep 0.05; done; exit {at}"),
        };
        let launch = bench.script(&format!("x{at}"), &script);
        daemon.client.start(launch).unwrap();
    }
    daemon.started("x99");
    drop_daemon(daemon);
    let second = bench.connect();
    let seen = wait_until("the quick ones", || {
        let seen = second.inventory();
        let ended = |held: &&Held| matches!(held.state, State::Ended(_));
        (seen.iter().filter(ended).count() == 50).then_some(seen)
    });
    assert_eq!(seen.len(), 100);
    drop_daemon(second);
    File::create(bench.path("go")).unwrap();
    let third = bench.connect();
    let seen = wait_until("all of them", || {
        let seen = third.inventory();
        let ended = |held: &Held| matches!(held.state, State::Ended(_));
        seen.iter().all(ended).then_some(seen)
    });
    for held in seen {
        let code = held.key.id[1..].parse().unwrap();
        assert_eq!(held.state, State::Ended(Exit::Code(code)), "{}", held.key);
        assert_eq!(held.note, serde_json::json!({ "of": held.key.id }));
        assert!(held.pid.is_some() && held.why.is_none());
    }
}

pub fn a_newer_daemon_replaces_an_older(bench: &Bench) {
    let old = bench.connect();
    let new = bench.connect();
    wait_until("the older one's loss", || {
        old.lost.lock().unwrap().then_some(())
    });
    new.client.start(bench.script("x", "exit 0")).unwrap();
    assert_eq!(new.ended("x").0, Exit::Code(0));
}

pub fn what_is_forgotten_is_gone_and_the_keeper_leaves(bench: &Bench) {
    let daemon = bench.connect();
    daemon.client.start(bench.script("kept", "exit 1")).unwrap();
    daemon
        .client
        .start(bench.script("forgotten", "exit 2"))
        .unwrap();
    daemon.client.start(bench.script("runs", UNTIL_GO)).unwrap();
    daemon.ended("kept");
    daemon.ended("forgotten");
    daemon.client.forget(&key("forgotten")).unwrap();
    daemon.client.forget(&key("runs")).unwrap();
    let ids = |held: Vec<Held>| {
        held.into_iter()
            .map(|held| held.key.id)
            .collect::<BTreeSet<_>>()
    };
    let both = ["kept", "runs"].map(str::to_owned).into();
    assert_eq!(ids(daemon.inventory()), both, "what runs is not forgotten");
    bench.pid_in("ready");
    drop_daemon(daemon);
    File::create(bench.path("go")).unwrap();
    wait_until("the keeper's leaving", || {
        bench.named("handoffd-keeper").is_empty().then_some(())
    });
    assert_eq!(bench.named("handoffd-minder"), Vec::<i32>::new());
    let next = bench.connect();
    assert_eq!(ids(next.inventory()), both);
    assert_eq!(
        next.held("kept").unwrap().state,
        State::Ended(Exit::Code(1))
    );
    assert_eq!(
        next.held("runs").unwrap().state,
        State::Ended(Exit::Code(7))
    );
}

pub fn many_that_connect_at_once_meet_one_keeper(bench: &Bench) {
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| bench.setup.connect_or_start().unwrap()))
            .collect();
        let held: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(bench.named("handoffd-keeper").len(), 1);
        drop(held);
    });
}

pub fn another_version_is_refused(bench: &Bench) {
    let _daemon = bench.connect();
    let path = bench.setup.run_dir.join("keeper.v1.sock");
    let mut socket = std::os::unix::net::UnixStream::connect(path).unwrap();
    let hello = br#"{"hello":{"version":2}}"#;
    let length = u32::try_from(hello.len()).unwrap();
    socket.write_all(&length.to_be_bytes()).unwrap();
    socket.write_all(hello).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert_eq!(
        &answer[4..],
        br#"{"hello":{"version":1,"can":["confine","turns"],"prove":2}}"#
    );
}

/// It reaches the socket, but never shows that it may write to the run folder.
pub fn without_a_proof_no_order_is_taken(bench: &Bench) {
    let daemon = bench.connect();
    let path = bench.setup.run_dir.join("keeper.v1.sock");
    let orders: [&[&str]; 4] = [
        &[r#""inventory""#],
        &[r#"{"hello":{"version":1}}"#, r#""inventory""#],
        &[r#"{"hello":{"version":1}}"#, r#""prove""#, r#""inventory""#],
        &[r#"{"hello":{"version":1}}"#, r#"{"hello":{"version":1}}"#],
    ];
    for words in orders {
        let mut socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
        for word in words {
            let length = u32::try_from(word.len()).unwrap().to_be_bytes();
            let _ = socket.write_all(&[&length[..], word.as_bytes()].concat());
        }
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let said = String::from_utf8_lossy(&answer);
        assert!(!said.contains("inventory"), "{words:?}: {said}");
    }
    // One that only talks is not listened to for ever.
    let mut socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let _ = socket.write_all(&1_000_000_u32.to_be_bytes());
    let _ = socket.write_all(&[b' '; 4096]);
    assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0, "it is hung up on");
    assert_eq!(daemon.inventory(), [], "the daemon is still connected");
    assert!(!*daemon.lost.lock().unwrap());
}

/// A daemon was killed between its proof and its order: the proof speaks for nobody else.
pub fn a_proof_that_a_killed_daemon_left_is_nobodys(bench: &Bench) {
    for number in 1..9 {
        File::create(bench.setup.run_dir.join(format!(".greeting-{number}"))).unwrap();
    }
    without_a_proof_no_order_is_taken(bench);
    let left = |name: &str| name.starts_with(".greeting-");
    let names = fs::read_dir(&bench.setup.run_dir).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| left(name)).count(), 0);
}

pub fn an_attempt_can_not_give_orders(bench: &Bench) {
    let daemon = bench.connect();
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let path = bench.setup.run_dir.join("keeper.v1.sock");
    let mut visit = bench.launch("x", &[own, "--exact", "a_visitor", "--nocapture"]);
    visit.env.push(("VISIT".into(), path.clone().into()));
    daemon.client.start(visit).unwrap();
    daemon.started("x");
    assert_eq!(daemon.ended("x"), (Exit::Code(0), None));
    let said = fs::read_to_string(bench.path("x.err")).unwrap();
    assert!(said.contains("answered 0"), "{said}");
    // The same from outside is heard.
    let outside = std::process::Command::new(own)
        .args(["--exact", "a_visitor", "--nocapture"])
        .env("VISIT", path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&outside.stderr);
    assert!(said.contains("answered 8"), "{said}");
}

/// The attempts of a keeper that was killed are no descendants of the next one.
pub fn an_adopted_attempt_can_not_give_orders(bench: &Bench) {
    let daemon = bench.connect();
    let own = std::env::current_exe().unwrap();
    let visit = format!("'{}' --exact a_visitor --nocapture", own.display());
    let script = format!(
        "echo $$ > ready; until [ -e go ]; do sleep 0.02; done; {visit}; \
         setsid sh -c \"({visit}; : > far) &\"; until [ -e far ]; do sleep 0.02; done"
    );
    let mut launch = bench.script("x", &script);
    let path = bench.setup.run_dir.join("keeper.v1.sock");
    launch.env.push(("VISIT".into(), path.into()));
    daemon.client.start(launch).unwrap();
    bench.pid_in("ready");
    daemon.started("x");
    bench.kill_keeper();
    let next = bench.connect();
    assert_eq!(next.held("x").unwrap().state, State::Running);
    File::create(bench.path("go")).unwrap();
    next.ended("x");
    let said = fs::read_to_string(bench.path("x.err")).unwrap();
    assert_eq!(said.matches("answered").count(), 2, "{said}");
    assert_eq!(said.matches("answered 0").count(), 2, "{said}");
}

/// One that was started before there was anything to hold attempts to.
#[test]
fn an_older_keeper_is_not_given_what_it_would_not_hold() {
    let bench = Bench::new(true);
    let path = bench.setup.run_dir.join("keeper.v1.sock");
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    let older = std::thread::spawn(move || {
        let mut socket = listener.accept().unwrap().0;
        let hello = br#"{"hello":{"version":1}}"#;
        let length = u32::try_from(hello.len()).unwrap();
        socket
            .write_all(&[&length.to_be_bytes()[..], hello].concat())
            .unwrap();
        let mut heard = Vec::new();
        socket.read_to_end(&mut heard).unwrap();
        heard
    });
    let (client, reader) = bench.setup.connect_or_start().unwrap();
    let mut launch = bench.script("x", "exit 0");
    launch.confine = Some(Box::default());
    let refused = client.start(launch).unwrap_err();
    assert!(refused.to_string().contains("older"), "{refused}");
    client.hang_up();
    drop((client, reader));
    let heard = older.join().unwrap();
    let heard = String::from_utf8_lossy(&heard);
    assert!(!heard.contains("start"), "{heard}");
    // An older keeper would hang up on a word that it does not know.
    assert!(!heard.contains("prove"), "{heard}");
}
