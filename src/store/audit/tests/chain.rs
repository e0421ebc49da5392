//! What is written, and what a check of it finds.

use std::fs::{self, File};
use std::path::Path;

use serde_json::json;

use super::*;
use crate::store::audit::{Line, line, verify};

fn order(expected: u64, found: u64) -> Fault {
    Fault::Order { expected, found }
}

#[test]
fn a_line_has_its_keys_in_order_and_keeps_every_detail() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let event = done("x")
        .with("seq", 7)
        .with("why", json!({"a": [1, "é\n"]}));
    log.append(&[event, Event::new(noon(), "started")]).unwrap();
    let found = lines(&dir.path().join(DAY_1));
    let zeros = "0".repeat(64);
    let first = format!(
        r#"{{"seq":1,"at":"2026-01-13T12:00:00.000Z","event":"completed","handoff_id":"x","seq_":7,"why":{{"a":[1,"é\n"]}},"prev":"{zeros}"}}"#
    );
    assert_eq!(found[0], first);
    let second = format!(
        r#"{{"seq":2,"at":"2026-01-13T12:00:00.000Z","event":"started","prev":"{}"}}"#,
        line::hash(first.as_bytes())
    );
    assert_eq!(found[1], second);
    let read = Line::parse(found[0].as_bytes()).unwrap();
    assert_eq!((read.seq, read.handoff_id.as_deref()), (1, Some("x")));
    assert_eq!(read.detail["seq_"].as_u64(), Some(7));
}

#[test]
fn the_chain_goes_on_over_days_and_restarts_and_never_back() {
    let (dir, a, b) = two_days();
    let mut log = open(dir.path());
    assert_eq!(log.last_seq(), 8);
    // The clock jumped back a day; then one batch lies around midnight.
    log.append(&[done("late")]).unwrap();
    let mut next = done("next");
    next.at = at("2026-01-15T00:00:00Z");
    log.append(&[done("later"), next]).unwrap();
    log.sync().unwrap();
    let third = dir.path().join("events-2026-01-15.jsonl");
    assert_eq!(
        (lines(&a).len(), lines(&b).len(), lines(&third).len()),
        (5, 5, 1)
    );
    let verdict = verify(dir.path()).unwrap();
    assert!(verdict.is_sound(), "{:?}", verdict.problems);
    assert_eq!(
        (verdict.files, verdict.lines, verdict.last_seq),
        (3, 11, 11)
    );
}

#[test]
fn an_empty_newest_file_and_foreign_names_do_not_restart_the_numbers() {
    let (dir, ..) = two_days();
    for name in [
        "events-2026-01-15.jsonl",
        "events-old.jsonl",
        "events-2026-01-99.jsonl.gz",
    ] {
        File::create(dir.path().join(name)).unwrap();
    }
    fs::create_dir(dir.path().join("events-2026-01-16.jsonl")).unwrap();
    let mut log = open(dir.path());
    assert_eq!(log.last_seq(), 8);
    log.append(&[done("x")]).unwrap();
    assert_eq!(lines(&dir.path().join("events-2026-01-15.jsonl")).len(), 1);
    assert!(verify(dir.path()).unwrap().is_sound());
}

#[test]
fn what_was_done_to_the_log_is_found() {
    type Case = (
        &'static str,
        fn(&Path, &Path),
        Vec<(&'static str, u64, Fault)>,
    );
    let cases: [Case; 7] = [
        (
            "a changed byte",
            |a, _| {
                edit(a, |lines| {
                    lines[2] = lines[2].replace("completed", "completee");
                });
            },
            vec![(DAY_1, 3, Fault::Changed)],
        ),
        (
            "a changed byte that breaks the JSON",
            |a, _| edit(a, |lines| lines[2] = lines[2].replacen('{', "[", 1)),
            vec![(DAY_1, 3, Fault::Unreadable)],
        ),
        (
            "a changed last line of a day",
            |a, _| {
                edit(a, |lines| {
                    lines[4] = lines[4]
                        .replace(":5", ":6")
                        .replace("\"seq\":6", "\"seq\":5");
                });
            },
            vec![(DAY_1, 5, Fault::Changed)],
        ),
        (
            "a removed line",
            |a, _| edit(a, |lines| drop(lines.remove(1))),
            vec![(DAY_1, 2, gap(2, 3))],
        ),
        (
            "a removed first line",
            |a, _| edit(a, |lines| drop(lines.remove(0))),
            vec![(DAY_1, 1, gap(1, 2))],
        ),
        (
            "a removed file",
            |a, _| fs::remove_file(a).unwrap(),
            vec![(DAY_2, 1, gap(1, 6))],
        ),
        (
            "swapped lines",
            |_, b| edit(b, |lines| lines.swap(0, 1)),
            vec![
                (DAY_2, 1, gap(6, 7)),
                (DAY_2, 2, order(8, 6)),
                (DAY_2, 3, gap(7, 8)),
            ],
        ),
    ];
    for (what, harm, expected) in cases {
        let (dir, a, b) = two_days();
        harm(&a, &b);
        let verdict = verify(dir.path()).unwrap();
        assert_eq!(faults(&verdict), expected, "{what}");
    }
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<String>)) {
    let mut found = lines(path);
    let before = found.clone();
    change(&mut found);
    assert_ne!(found, before);
    fs::write(path, found.join("\n") + "\n").unwrap();
}

#[test]
fn recent_lines_come_from_the_end_over_files() {
    let (dir, ..) = two_days();
    let log = open(dir.path());
    let all = log.recent(u64::MAX).unwrap();
    let seqs: Vec<_> = all.iter().map(|line| line.seq).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6, 7, 8]);
    let length = lines(&dir.path().join(DAY_2))[0].len() as u64 + 1;
    let few = log.recent(4 * length).unwrap();
    assert_eq!(few, all[4..]);
    assert_eq!(log.recent(length - 1).unwrap(), []);
}

#[test]
fn ten_thousand_lines_are_checked_and_reopened_quickly() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    for batch in 0..100 {
        let events: Vec<_> = (0..100).map(|n| done(batch * 100 + n)).collect();
        log.append(&events).unwrap();
    }
    let start = std::time::Instant::now();
    let verdict = verify(dir.path()).unwrap();
    assert!(verdict.is_sound());
    assert_eq!(verdict.lines, 10_000);
    assert_eq!(open(dir.path()).last_seq(), 10_000);
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}
