//! Rows 22 and 50: an audit log whose end is torn, or that lost lines before others that it kept.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use handoffd::clock::Wall;
use handoffd::durable::Durability;
use handoffd::inspect::deep::examine_root;
use handoffd::store::audit::{self, AuditLog, Event, Line, Verdict};

use crate::root::{Root, request, running};

fn verdict(root: &Root) -> Verdict {
    audit::verify(&root.path("audit")).unwrap()
}

fn log(root: &Root) -> Vec<Line> {
    audit::recent(&root.path("audit"), u64::MAX).unwrap()
}

/// The newest file of the log.
fn newest(root: &Root) -> PathBuf {
    let files = fs::read_dir(root.path("audit")).unwrap();
    files.map(|file| file.unwrap().path()).max().unwrap()
}

/// Zeros in place of these lines, counted from 1: what a lost block leaves.
fn blot(path: &PathBuf, which: RangeInclusive<usize>) {
    let mut bytes = fs::read(path).unwrap();
    let mut line = 1;
    for byte in &mut bytes {
        let ends = *byte == b'\n';
        if which.contains(&line) {
            *byte = 0;
        }
        line += usize::from(ends);
    }
    fs::write(path, bytes).unwrap();
}

fn told(id: &str, event: &'static str, from: &str, to: &str, revision: u64) -> Event {
    let at = Wall::parse("2026-01-01T00:00:00Z").unwrap();
    let event = Event::new(at, event).about(id).with("from", from);
    event.with("to", to).with("revision", revision)
}

#[test]
fn row_22_a_torn_last_line_is_closed() {
    let root = Root::new();
    root.put("handoffs/pending/x.json", &request());
    root.recover();
    let mut file = OpenOptions::new().append(true).open(newest(&root)).unwrap();
    file.write_all(b"{\"seq\":").unwrap();
    drop(file);
    root.recover();
    assert_eq!(verdict(&root).torn, 1);
    assert_eq!(log(&root).last().unwrap().event, "torn_line");
}

/// A batch that was being synced: of it, the line of the claim is lost and that of the outcome is
/// kept. The outcome itself never came into place.
#[test]
fn row_50_lines_lost_before_lines_that_were_kept_are_told_and_the_handoff_goes_on() {
    let root = Root::new();
    let (mut open, _) = AuditLog::open(&root.path("audit"), Durability::Full, Wall(0)).unwrap();
    let refused = told("old", "refused", "pending", "failed", 1);
    open.append(&[refused]).unwrap();
    open.sync().unwrap();
    open.append(&[
        told("x", "started", "pending", "in_progress", 1),
        told("y", "refused", "pending", "failed", 1),
        told("x", "completed", "in_progress", "completed", 2),
    ])
    .unwrap();
    drop(open);
    blot(&newest(&root), 2..=2);
    assert!(!verdict(&root).is_sound());
    let lost = running("another boot").to_string();
    root.put("handoffs/in-progress/x.json", &lost);
    root.recover();
    root.expect_completed("x", 1);
    let verdict = verdict(&root);
    // The refusal of y has no beginning any more.
    assert_eq!(verdict.torn, 2);
    let lines = log(&root);
    let holes = lines.iter().filter(|line| line.event == "torn_line");
    let holes: Vec<_> = holes.collect();
    assert_eq!(holes.len(), 1, "it is told once");
    assert_eq!(holes[0].detail["first"], 2);
    assert_eq!(holes[0].detail["last"], 3);
    let of_x = lines
        .iter()
        .filter(|line| line.handoff_id.as_deref() == Some("x"));
    let of_x: Vec<_> = of_x.collect();
    assert_eq!(of_x[1].detail["recovered"], true, "the lost one is added");
    assert_eq!(
        of_x[2].detail["again"], true,
        "the kept one did not come true"
    );
    assert_eq!(of_x.last().unwrap().detail["to"], "completed");
    let breaches = examine_root(root.dir.path()).unwrap().breaches;
    assert!(breaches.is_empty(), "{breaches:?}");
}

#[test]
fn row_50_what_was_on_disk_is_not_excused() {
    let root = Root::new();
    for id in ["a", "b", "c"] {
        root.put(&format!("handoffs/pending/{id}.json"), &request());
        root.recover();
    }
    let sound = verdict(&root);
    assert!(sound.lines > 5, "{sound:?}");
    blot(&newest(&root), 2..=2);
    root.recover_once();
    root.put("handoffs/pending/d.json", &request());
    root.recover_once();
    let verdict = verdict(&root);
    assert!(!verdict.is_sound());
    assert_eq!(verdict.torn, 0);
}
