//! Attempts that are given ahead: nothing of them happens before their turn.

use std::fs;

use handoffd::clock::{Wall, boot_ms};
use handoffd::durable::Identity;
use handoffd::keeper::Launch;
use handoffd::keeper::turn::{Claim, Turn, stamps};
use handoffd::keeper::wire::{Exit, Report};

use crate::bench::{Bench, Daemon, FAR, UNTIL_GO, drop_daemon, key, wait_until};

const WRITTEN_AT: &str = "2001-02-03T04:05:06.789Z";

/// A file that waits to be claimed, and an attempt that prints it, its deadline and a word.
fn ahead(bench: &Bench, id: &str, at_most: usize, patience_ms: u64) -> Launch {
    let path = |what: &str| bench.path(&format!("{id}.{what}"));
    fs::write(path("pending"), "as it came").unwrap();
    let content = format!("{{\"started_at\":\"{WRITTEN_AT}\"}}\n");
    fs::write(path("claim"), &content).unwrap();
    let identity = Identity::at(&path("pending")).unwrap();
    let claim = Claim {
        from: path("pending").into(),
        to: path("taken").into(),
        content: path("claim").into(),
        stamps: stamps(content.as_bytes(), WRITTEN_AT, 1).unwrap(),
        device: identity.device,
        inode: identity.inode,
        size: identity.size,
        modified_ns: i64::try_from(identity.modified_ns).unwrap(),
    };
    let turn = Turn {
        at_most,
        patience_ms,
        timeout_ms: FAR,
        deadline_var: "UNTIL".into(),
        claim,
    };
    let mut launch = bench.script(id, "cat; echo \"$UNTIL\"");
    launch.env.push(("UNTIL".into(), WRITTEN_AT.into()));
    launch.stdio[0] = fs::File::open(path("claim")).unwrap().into();
    let writable = fs::File::options().write(true).open(path("claim")).unwrap();
    launch.turn = Some((Box::new(turn), writable.into()));
    launch
}

/// A daemon whose only slot is taken by `first`, until the file `go` is there.
fn with_one_that_runs(bench: &Bench) -> Daemon {
    let daemon = bench.connect();
    let first = bench.script("first", UNTIL_GO);
    daemon.client.start(first).unwrap();
    daemon
}

fn begun(daemon: &Daemon, id: &str) -> (Wall, u64, i64) {
    daemon.find(&format!("the turn of {id}"), |report| match report {
        Report::Begun {
            key,
            wall_ms,
            boot_ms,
            modified_ns,
        } if key.id == id => Some((Wall(*wall_ms), *boot_ms, *modified_ns)),
        _ => None,
    })
}

fn returned(daemon: &Daemon, id: &str) -> String {
    daemon.find(&format!("the return of {id}"), |report| match report {
        Report::Returned { key, why } if key.id == id => Some(why.clone()),
        _ => None,
    })
}

/// Nothing was done to its files.
fn is_untouched(bench: &Bench, id: &str) -> bool {
    let read = |what: &str| fs::read_to_string(bench.path(&format!("{id}.{what}"))).ok();
    read("pending").as_deref() == Some("as it came")
        && read("taken").is_none()
        && read("out").as_deref() == Some("")
}

pub fn one_that_is_given_ahead_starts_when_another_ends(bench: &Bench) {
    let daemon = with_one_that_runs(bench);
    bench.pid_in("ready");
    daemon
        .client
        .start_quietly(ahead(bench, "x", 1, FAR))
        .unwrap();
    assert!(daemon.held("x").is_none() && is_untouched(bench, "x"));
    let before = boot_ms();
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(daemon.ended("first").0, Exit::Code(7));
    let (wall, at, modified_ns) = begun(&daemon, "x");
    assert!((before..=boot_ms()).contains(&at));
    assert_eq!(daemon.ended("x").0, Exit::Code(0));
    let read = |what: &str| fs::read_to_string(bench.path(&format!("x.{what}"))).unwrap();
    let record = format!("{{\"started_at\":\"{wall}\"}}\n");
    assert_eq!(read("taken"), record, "with the time of its start");
    assert_eq!(read("claim"), "as it came");
    assert!(!bench.path("x.pending").exists());
    let until = wall.plus_ms(i64::try_from(FAR).unwrap());
    assert_eq!(read("out"), format!("{record}{until}\n"));
    let identity = Identity::at(&bench.path("x.taken")).unwrap();
    assert_eq!(identity.modified_ns, i128::from(modified_ns));
}

pub fn no_more_are_alive_than_may_be(bench: &Bench) {
    let daemon = bench.connect();
    for n in 0..60 {
        let id = format!("x{n}");
        let mut launch = ahead(bench, &id, 3, FAR);
        let script = "mkdir alive.$HANDOFF_ID; ls -d alive.* | wc -l; rmdir alive.$HANDOFF_ID";
        launch.argv = bench.script(&id, script).argv;
        daemon.client.start_quietly(launch).unwrap();
    }
    for n in 0..60 {
        let id = format!("x{n}");
        assert_eq!(daemon.ended(&id).0, Exit::Code(0));
        let counted = fs::read_to_string(bench.path(&format!("{id}.out"))).unwrap();
        let counted: usize = counted.trim().parse().unwrap();
        assert!((1..=3).contains(&counted), "{counted} at once");
    }
}

pub fn one_whose_turn_does_not_come_is_given_back(bench: &Bench) {
    let daemon = with_one_that_runs(bench);
    daemon
        .client
        .start_quietly(ahead(bench, "x", 1, 30))
        .unwrap();
    assert_eq!(returned(&daemon, "x"), "its turn did not come");
    assert!(is_untouched(bench, "x"));
    fs::write(bench.path("go"), "").unwrap();
    daemon.ended("first");
    assert!(daemon.held("x").is_none() && is_untouched(bench, "x"));
}

pub fn all_are_given_back_when_that_is_asked_for(bench: &Bench) {
    let daemon = with_one_that_runs(bench);
    for id in ["x", "y"] {
        daemon
            .client
            .start_quietly(ahead(bench, id, 1, FAR))
            .unwrap();
    }
    daemon.client.give_back().unwrap();
    for id in ["x", "y"] {
        assert_eq!(returned(&daemon, id), "it was asked for");
    }
    fs::write(bench.path("go"), "").unwrap();
    daemon.ended("first");
    assert_eq!(daemon.inventory().len(), 1);
    assert!(is_untouched(bench, "x") && is_untouched(bench, "y"));
}

pub fn one_whose_file_is_another_by_then_is_given_back(bench: &Bench) {
    let daemon = with_one_that_runs(bench);
    for id in ["changed", "gone", "taken"] {
        daemon
            .client
            .start_quietly(ahead(bench, id, 1, FAR))
            .unwrap();
    }
    assert_eq!(daemon.inventory().len(), 1);
    fs::write(bench.path("changed.pending"), "and then edited").unwrap();
    fs::remove_file(bench.path("gone.pending")).unwrap();
    fs::write(bench.path("taken.taken"), "another").unwrap();
    fs::write(bench.path("go"), "").unwrap();
    assert!(returned(&daemon, "changed").contains("changed"));
    assert!(returned(&daemon, "gone").contains("no longer exists"));
    assert!(returned(&daemon, "taken").contains("taken"));
    let read = |name: &str| fs::read_to_string(bench.path(name)).unwrap();
    assert_eq!(read("changed.pending"), "and then edited");
    assert_eq!(read("taken.pending"), "as it came");
    assert_eq!(read("taken.taken"), "another");
    assert_eq!(daemon.inventory().len(), 1, "nothing was started");
}

pub fn those_of_a_daemon_that_is_gone_never_start(bench: &Bench) {
    let daemon = with_one_that_runs(bench);
    daemon
        .client
        .start_quietly(ahead(bench, "x", 1, FAR))
        .unwrap();
    assert_eq!(daemon.inventory().len(), 1);
    drop_daemon(daemon);
    fs::write(bench.path("go"), "").unwrap();
    let next = bench.connect();
    wait_until("the end of the first", || {
        let held = next.held("first")?;
        matches!(held.state, handoffd::keeper::wire::State::Ended(_)).then_some(())
    });
    assert!(next.held("x").is_none() && is_untouched(bench, "x"));
}

pub fn a_newer_daemon_does_not_get_what_an_older_gave_ahead(bench: &Bench) {
    let older = with_one_that_runs(bench);
    older
        .client
        .start_quietly(ahead(bench, "x", 1, FAR))
        .unwrap();
    assert_eq!(older.inventory().len(), 1);
    let newer = bench.connect();
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(newer.ended("first").0, Exit::Code(7));
    newer.client.forget(&key("first")).unwrap();
    assert_eq!(newer.inventory(), []);
    assert!(is_untouched(bench, "x"));
}
