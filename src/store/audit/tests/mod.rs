//! The chain holds over days, restarts and full disks, and shows whatever breaks it.

mod chain;
mod damage;
mod holes;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{AuditLog, Event, Fault, Verdict};
use crate::clock::Wall;
use crate::durable::Durability;

const DAY_1: &str = "events-2026-01-13.jsonl";
const DAY_2: &str = "events-2026-01-14.jsonl";

fn at(text: &str) -> Wall {
    Wall::parse(text).unwrap()
}

fn noon() -> Wall {
    at("2026-01-13T12:00:00Z")
}

fn tomorrow() -> Wall {
    at("2026-01-14T00:00:00Z")
}

fn open(dir: &Path) -> AuditLog {
    let (log, opened) = AuditLog::open(dir, Durability::Relaxed, noon()).unwrap();
    assert_eq!(opened.torn, None);
    log
}

fn done(id: impl std::fmt::Display + Copy) -> Event {
    Event::new(noon(), "completed").about(id.to_string())
}

/// Five lines on the first day, three on the second.
fn two_days() -> (TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    for n in 1..=8 {
        let mut event = done(n).with("attempt", n);
        if n > 5 {
            event.at = tomorrow();
        }
        log.append(&[event]).unwrap();
    }
    let (a, b) = (dir.path().join(DAY_1), dir.path().join(DAY_2));
    (dir, a, b)
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn faults(verdict: &Verdict) -> Vec<(&str, u64, Fault)> {
    verdict
        .problems
        .iter()
        .map(|p| (p.file.as_str(), p.line, p.fault.clone()))
        .collect()
}

fn gap(expected: u64, found: u64) -> Fault {
    Fault::Gap { expected, found }
}
