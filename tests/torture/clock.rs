//! The wall clock jumps, by an hour and a day, to 1970 and to 2038, also while no daemon runs.
//! Within one boot the clock that does not jump decides: nothing times out, is retried or
//! started early, and nothing waits for a day.
//!
//! The daemon's wall clock is shifted by a small library that is loaded before libc. Files keep
//! the times of the real clock, as those from before a jump do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use handoffd::clock::{Clock, Wall};
use serde_json::{Value, json};

use crate::common::{Daemon, Root, ask, orders, outcomes, text, wait_until, with};
use crate::report::{Row, times};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const AT_ONCE: usize = 4;

/// Where the clock goes, in seconds from now, or since 1970.
#[derive(Debug, Clone, Copy)]
enum Jump {
    By(i64),
    To(i64),
}

#[derive(Debug, Clone, Copy)]
struct Try {
    jump: Jump,
    /// The daemon is killed before, and the next one is started after it.
    across_a_restart: bool,
}

#[rustfmt::skip]
const TRIES: [Try; 12] = [
    Try { jump: Jump::By(DAY), across_a_restart: false },
    Try { jump: Jump::By(-DAY), across_a_restart: true },
    Try { jump: Jump::To(1000), across_a_restart: false },
    Try { jump: Jump::To((1 << 31) + 60), across_a_restart: true },
    Try { jump: Jump::By(HOUR), across_a_restart: false },
    Try { jump: Jump::By(-HOUR), across_a_restart: false },
    Try { jump: Jump::By(-DAY), across_a_restart: false },
    Try { jump: Jump::By(DAY), across_a_restart: true },
    Try { jump: Jump::To((1 << 31) - 2), across_a_restart: false },
    Try { jump: Jump::To(1), across_a_restart: true },
    Try { jump: Jump::By(HOUR), across_a_restart: true },
    Try { jump: Jump::By(-HOUR), across_a_restart: true },
];

#[test]
fn a_clock_that_jumps_neither_hurries_nor_stalls_anything() {
    let mut row = Row::new("jumps of the wall clock");
    let library = tempfile::tempdir().unwrap();
    let Some(library) = compile(library.path()) else {
        eprintln!("shift.c can't be compiled here; the clock is left alone");
        row.note("not tried: no C compiler");
        return row.finish();
    };
    let number = times("clock", 4, 50);
    let tries: Vec<Try> = TRIES.into_iter().cycle().take(number).collect();
    for some in tries.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let running: Vec<_> = some
                .iter()
                .map(|one| scope.spawn(|| jump(&library, *one)))
                .collect();
            for one in running {
                row.tried(one.join().expect("a round that comes to its end"));
            }
        });
    }
    row.finish();
}

fn compile(folder: &Path) -> Option<PathBuf> {
    let library = folder.join("shift.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/torture/clock/shift.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source);
    let built = cc.status().is_ok_and(|status| status.success());
    built.then_some(library)
}

/// A root whose daemon and commands see a clock that can be set.
struct Shifted<'a> {
    root: Root,
    library: &'a Path,
}

impl Shifted<'_> {
    fn on(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", self.library)
            .env("CLOCK_SHIFT", self.root.path("shift"));
    }

    fn start(&self) -> Daemon {
        Daemon::start_with(&self.root, |command| self.on(command))
    }

    /// Sets it; all that run see it at once.
    fn shift(&self, seconds: i64) {
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.root.path("shift"))
            .unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &seconds.to_ne_bytes(), 0).unwrap();
    }

    /// What a command says that must not fail.
    fn cli(&self, args: &[&str], broken: &mut Vec<String>) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handoffd"));
        command.args(args).arg("--root").arg(self.root.dir());
        self.on(&mut command);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let talk = String::from_utf8_lossy(&output.stderr);
            broken.push(format!("{args:?}: {} {said} {talk}", output.status));
        }
        said
    }

    /// When, on the clock that does not jump, an attempt left this mark.
    fn second(&self, mark: &str) -> f64 {
        let seconds = self.root.mark(mark);
        seconds.lines().next_back().unwrap().parse().unwrap()
    }
}

/// Words of an attempt: the seconds since the boot, into a mark.
const TELL: &str =
    "tell() { read s rest </proc/uptime; echo $s >>$HANDOFF_ROOT/marks/$HANDOFF_ID.$1; }";

fn told(sh: &str) -> Value {
    orders(&format!("{TELL}; {sh}"))
}

/// What waits, and for what, before the clock jumps.
const WAITING: [&str; 8] = [
    "again", "later", "gated", "after", "far", "asks", "alone", "held",
];

fn drop_all(root: &Root) {
    let now = Clock::System.now().wall;
    root.drop_request(
        "runs",
        &with(told("tell up; await go"), json!({ "timeout_seconds": 90 })),
    );
    root.mark("runs.up");
    let twice = "tell at; [ $HANDOFF_ATTEMPT -ge 2 ]";
    let soon = json!({ "retry_policy": { "retry_delay_seconds": 4, "max_retries": 3 } });
    root.drop_request("again", &with(told(twice), soon));
    let at = |ms: i64| json!({ "not_before": now.plus_ms(ms).to_string() });
    root.drop_request("later", &with(told("tell at"), at(6000)));
    root.drop_request("far", &with(told("tell at"), at(HOUR * 1000)));
    let gate = |deadline: &str| json!({ "gate": { "deadline": deadline, "on_expiry": "approve" } });
    root.drop_request("gated", &with(told("tell at"), gate("4s")));
    root.drop_request("asks", &with(ask("@fake"), gate("1h")));
    root.drop_request(
        "after",
        &with(told("tell at"), json!({ "depends_on": ["runs"] })),
    );
    root.drop_request(
        "alone",
        &with(told("tell at"), json!({ "depends_on": ["nobody"] })),
    );
    // A quota: its specialist is held for that long.
    let quota = "[ $HANDOFF_ATTEMPT -ge 2 ] || result '{\"retry_after_seconds\": 4}'";
    root.drop_request(
        "held",
        &with(
            ask("@held"),
            json!({ "input": { "data": { "sh": quota } } }),
        ),
    );
}

/// One jump; what it broke.
fn jump(library: &Path, one: Try) -> Vec<String> {
    let fake = crate::common::FAKE;
    let root = Root::with(&format!(
        "daemon.max_concurrent = 8\nspecialists.'@held'.command = ['sh', '{fake}']"
    ));
    let it = Shifted { root, library };
    it.shift(0);
    let mut daemon = it.start();
    let dropped = Clock::System.now().boot_ms;
    drop_all(&it.root);
    for id in WAITING {
        // On a machine that is busy enough its wait is over before it is looked at.
        wait_until(&format!("{id} waits"), || {
            let been = it.root.state("completed", id).exists();
            (been || it.root.record_in("waiting", id).is_some()).then_some(())
        });
    }
    let before = Clock::System.now().wall;
    let seconds = match one.jump {
        Jump::By(seconds) => seconds,
        Jump::To(second) => second - before.0 / 1000,
    };
    if one.across_a_restart {
        daemon.kill();
        it.shift(seconds);
        daemon = it.start();
    } else {
        it.shift(seconds);
    }
    let mut broken = after_the_jump(&it, dropped, before.plus_ms(seconds * 1000));
    // And back again.
    it.shift(0);
    it.root.assert_works("back");
    if daemon.terminate() != Some(0) {
        broken.push("the daemon did not leave in peace".to_owned());
    }
    let found = handoffd::inspect::deep::examine_root(it.root.dir()).unwrap();
    broken.extend(found.breaches.iter().map(|breach| format!("{breach:?}")));
    it.root.assert_audit_is_sound();
    broken
        .iter()
        .map(|what| format!("{one:?}: {what}"))
        .collect()
}

fn after_the_jump(it: &Shifted, dropped: u64, there: Wall) -> Vec<String> {
    let (root, mut broken) = (&it.root, Vec::new());
    root.assert_works("at-once");
    let seen = root.completed("at-once");
    let wall = Wall::parse(&text(&seen["completed_at"])).unwrap();
    if !(0..HOUR * 500).contains(&(wall.0 - there.0)) {
        broken.push(format!("at {there} a record says {wall}"));
    }
    // Waits come to their end, and not before.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a machine is not up for that long"
    )]
    let dropped = dropped as f64 / 1000.0;
    for (id, least) in [("again", 4.0), ("later", 5.5), ("gated", 4.0)] {
        root.completed(id);
        let waited = it.second(&format!("{id}.at")) - dropped;
        if waited < least {
            broken.push(format!("{id} ran after {waited} s, not {least}"));
        }
    }
    for (id, expected) in [
        ("again", ["failed", "completed"]),
        ("held", ["held", "completed"]),
    ] {
        let found = outcomes(&root.completed(id));
        if found != expected {
            broken.push(format!("{id} went {found:?}"));
        }
    }
    // What has long to go is where it was: no time-out, no expiry.
    for (id, state) in [
        ("runs", "in-progress"),
        ("after", "waiting"),
        ("far", "waiting"),
        ("asks", "waiting"),
        ("alone", "waiting"),
    ] {
        if root.states_of(id) != [state] {
            broken.push(format!(
                "{id} is in {:?}, not in {state}",
                root.states_of(id)
            ));
        }
    }
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["list"],
        &["list", "--json"],
    ] {
        it.cli(args, &mut broken);
    }
    for id in WAITING.into_iter().chain(["runs"]) {
        for command in ["explain", "show", "chain", "audit"] {
            it.cli(&[command, id], &mut broken);
        }
    }
    root.allow("go");
    for id in ["runs", "after"] {
        let record = root.completed(id);
        let took = record["execution_time_seconds"].as_f64().unwrap_or(-1.0);
        if !(0.0..Duration::from_secs(90).as_secs_f64()).contains(&took) {
            broken.push(format!("{id} took {took} s"));
        }
        if outcomes(&record) != ["completed"] {
            broken.push(format!("{id} went {:?}", outcomes(&record)));
        }
    }
    broken
}
