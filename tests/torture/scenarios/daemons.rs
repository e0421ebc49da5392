//! The daemons that work off a scenario, with a fault in them or undisturbed, and what becomes of
//! their roots.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Expected, Scenario};
use crate::common::{Root, kill};
use crate::tracer::{self, Ended, Fault};

/// The keeper leaves a root that has nothing for it after one second.
const LEAVING: Duration = Duration::from_millis(1300);
/// How long a daemon without faults may take. What is killed for this is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn daemon(root: &Root, more: &[&str]) -> Command {
    let logs = root.path("daemon-log");
    fs::create_dir_all(&logs).unwrap();
    let number = fs::read_dir(&logs).unwrap().count();
    let log = File::create(logs.join(format!("{number:02}.log"))).unwrap();
    // A full run may name a daemon that was built for speed.
    let program = std::env::var_os("TORTURE_DAEMON");
    let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_handoffd").into());
    let mut command = Command::new(program);
    command
        .args(["run", "--root"])
        .arg(root.dir())
        .args(more)
        .env("HANDOFFD_LOG", "debug")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command
}

/// A daemon that works off what is there, with a fault in it.
pub fn traced(root: &Root, fault: Fault) -> Ended {
    tracer::run(&mut daemon(root, &["--drain"]), root.dir(), fault).unwrap()
}

/// A daemon with a fault in it that is stopped when all has ended, and must come to that by
/// itself.
pub fn traced_to_the_end(root: &Root, scenario: Scenario, fault: Fault) -> Ended {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = |pid: i32| {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) && !has_ended(root, scenario) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                if !over.load(Ordering::Relaxed) {
                    kill(pid, Signal::TERM);
                }
            });
        };
        let ended = tracer::run_watched(&mut daemon(root, &[]), root.dir(), fault, watch);
        over.store(true, Ordering::Relaxed);
        ended.unwrap()
    })
}

fn has_ended(root: &Root, scenario: Scenario) -> bool {
    let is_empty = |folder: &str| {
        let entries = fs::read_dir(root.path("handoffs").join(folder));
        entries.is_ok_and(|mut entries| entries.next().is_none())
    };
    let ends = |expected: &Expected| {
        let ends = ["completed", "failed"];
        ends.iter().any(|end| root.state(end, expected.id).exists())
    };
    scenario.expected().iter().all(ends)
        && ["pending", "in-progress", "waiting"]
            .into_iter()
            .all(is_empty)
        && fs::read_dir(root.path(".handoffd/rejecting"))
            .is_ok_and(|mut entries| entries.next().is_none())
}

/// A daemon that works off what is there, undisturbed. What is wrong with how it ended.
pub fn undisturbed(root: &Root) -> Option<String> {
    let mut child = daemon(root, &["--drain"]).spawn().unwrap();
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (!status.success()).then(|| format!("the next daemon ended with {status}"));
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            return Some("the next daemon came to no end".to_owned());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(8));
    }
}

/// Roots that are done with, kept until their keepers have left.
#[derive(Default)]
pub struct Leaving(VecDeque<(Instant, Root)>);

impl Leaving {
    pub fn add(&mut self, root: Root) {
        self.0.push_back((Instant::now(), root));
        while self
            .0
            .front()
            .is_some_and(|(since, _)| since.elapsed() > LEAVING)
        {
            self.0.pop_front();
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some((since, _)) = self.0.back() {
            std::thread::sleep(LEAVING.saturating_sub(since.elapsed()));
        }
    }
}

/// For messages: the root of a failure is kept where `TORTURE_KEEP` names a folder.
pub fn keep(root: &Root, name: &str) {
    if let Some(folder) = std::env::var_os("TORTURE_KEEP") {
        let to = Path::new(&folder).join(name.replace([' ', '/'], "-"));
        let _ = Command::new("cp")
            .arg("-a")
            .arg(root.dir())
            .arg(to)
            .status();
    }
}
