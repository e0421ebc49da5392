//! Attempts that run away, that are only claimed to be ours, and that leave half a result.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use handoffd::clock;
use handoffd::keeper::journal::{self, Held, Line};
use handoffd::keeper::wire::Key;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Daemon, Root, attempts, is_alive, kill, kill_all, orders, wait_until, with};
use crate::report::{Row, times};

/// How to leave something behind, and the marks that say what.
const ESCAPES: [(&str, &[&str]); 4] = [
    ("away far; exit 0", &["far"]),
    ("away far; child near; forever", &["far", "near"]),
    ("stubborn; child near; forever", &["near"]),
    (
        "away far; kill -STOP $(cat $HANDOFF_ROOT/marks/$HANDOFF_ID.far); forever",
        &["far"],
    ),
];

#[test]
fn nothing_of_an_attempt_outlives_it() {
    escapes("processes that leave their group and parent", Daemon::start);
}

#[test]
fn nothing_of_an_attempt_outlives_it_without_cgroups() {
    escapes(
        "processes that leave, without control groups",
        Daemon::start_without_cgroups,
    );
}

fn escapes(fault: &'static str, start: fn(&Root) -> Daemon) {
    let mut row = Row::new(fault);
    let root = Root::with("defaults.kill_grace = '100ms'\ndefaults.retry.max_retries = 0");
    let daemon = start(&root);
    for round in 0..times("escapes", 1, 200) {
        let id = |n: usize| format!("e{round}-{n}");
        for (n, (sh, _)) in ESCAPES.iter().enumerate() {
            let limit = json!({ "timeout_seconds": 2 });
            root.drop_request(&id(n), &with(orders(sh), limit));
        }
        for (n, (_, marks)) in ESCAPES.iter().enumerate() {
            let id = id(n);
            wait_until(&format!("the end of {id}"), || {
                let mut ends = ["completed", "failed"].into_iter();
                ends.find_map(|end| root.record_in(end, &id))
            });
            let alive = marks.iter().filter_map(|mark| {
                let pid = root.pid_mark(&format!("{id}.{mark}"));
                is_alive(pid).then(|| format!("{mark} of {id} outlived it: {pid}"))
            });
            row.tried(alive);
        }
    }
    daemon.terminate();
    row.finish();
}

/// A process that is none of ours, and the leader of its session as attempts are.
struct Innocent(Child);

impl Innocent {
    fn new() -> Self {
        let mut command = Command::new("sleep");
        command.arg("600");
        // SAFETY: only a system call between fork and exec.
        unsafe {
            command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?));
        }
        Self(command.spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }
}

impl Drop for Innocent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The keeper's journal names somebody else's process: by a pid that was given away since, or of
/// another boot. Nobody is signalled for that, and the handoff runs again.
#[test]
fn a_process_that_the_journal_names_and_that_is_not_ours_lives_on() {
    let mut row = Row::new("process records of somebody else's process");
    for (n, (what, forge)) in FORGERIES.into_iter().enumerate() {
        let root = Root::new();
        let daemon = Daemon::start(&root);
        root.drop_request("x", &orders("mark up; await go"));
        root.mark("x.up");
        kill_all(&root, daemon);
        for pid in attempts(root.dir()) {
            kill(pid, Signal::KILL);
        }
        let innocent = Innocent::new();
        let path = root.path(".handoffd/run/attempts.0.jsonl");
        let file = File::options().append(true).open(path).unwrap();
        for line in forge(innocent.pid()) {
            journal::append(&file, &line).unwrap();
        }
        root.allow("go");
        let daemon = Daemon::start(&root);
        let record = wait_until("the end of x", || {
            let mut ends = ["completed", "failed"].into_iter();
            ends.find_map(|end| root.record_in(end, "x"))
        });
        let mut broken = Vec::new();
        if !is_alive(innocent.pid()) {
            broken.push(format!("{n}, {what}: an innocent process was ended"));
        }
        if record["status"] != "completed" {
            broken.push(format!("{n}, {what}: {}", record["error"]));
        }
        let is_broken = !broken.is_empty();
        row.tried(broken);
        if is_broken {
            // Whoever believes one may wait for the next for ever.
            break;
        }
        daemon.terminate();
    }
    row.finish();
}

type Forge = fn(i32) -> Vec<Line>;

const FORGERIES: [(&str, Forge); 3] = [
    ("a pid that was given away since", |pid| {
        vec![start(clock::boot_id()), main(pid, 1)]
    }),
    ("a minder's pid that was given away since", |pid| {
        let minder = Line::Minder {
            key: Key::new("x", 1),
            pid,
            starttime: 1,
        };
        vec![start(clock::boot_id()), minder, main(pid, 1)]
    }),
    ("a process of another boot", |pid| {
        let started = handoffd::keeper::start_time(pid).unwrap();
        vec![start("another"), main(pid, started)]
    }),
];

/// Its deadline has long passed, so that whoever believes it ends it at once.
fn start(boot: &str) -> Line {
    Line::Start {
        key: Key::new("x", 1),
        note: Value::Null,
        deadline_boot_ms: 0,
        grace_ms: 0,
        boot: boot.to_owned(),
        held: Held::Minder,
        user: None,
    }
}

fn main(pid: i32, starttime: u64) -> Line {
    Line::Pid {
        key: Key::new("x", 1),
        pid,
        starttime,
    }
}

/// A specialist whose disk is full leaves the beginning of its result, and may exit with 0.
#[test]
fn a_result_that_was_cut_short_is_never_taken() {
    let mut row = Row::new("results cut short at every byte");
    let root = Root::with("daemon.max_concurrent = 4\ndefaults.retry.max_retries = 0");
    let daemon = Daemon::start(&root);
    let whole = r#"{"status": "complete", "output": {"all": [1, 2]}}"#;
    let stride = times("cut_short_stride", 3, 1);
    let cuts: Vec<usize> = (1..whole.len()).step_by(stride).collect();
    for at in &cuts {
        let sh = format!("printf '%s' '{}' >$HANDOFF_RESULT; exit 0", &whole[..*at]);
        root.drop_request(&format!("c{at}"), &orders(&sh));
    }
    root.drop_request("whole", &orders(&format!("result '{whole}'")));
    for at in &cuts {
        let id = format!("c{at}");
        let record = wait_until(&format!("the end of {id}"), || {
            let mut ends = ["completed", "failed"].into_iter();
            ends.find_map(|end| root.record_in(end, &id))
        });
        let taken = record["status"] != "failed" || record["error"]["code"] != "VALIDATION_FAILED";
        row.tried(taken.then(|| format!("cut at {at}: {}, {}", record["status"], record["error"])));
    }
    root.completed("whole");
    daemon.terminate();
    row.finish();
}
