//! Power cuts that take a block and keep a later one, and hands that do what looks like it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::*;
use crate::store::audit::{Line, Opened, verify};

/// Opens the log as a daemon does.
fn start(dir: &Path) -> (AuditLog, Opened) {
    AuditLog::open(dir, Durability::Full, noon()).unwrap()
}

/// Lines 1 to 5, which are on disk, and 6 to 45, which are not, and where the latter begin.
fn unsynced_batch() -> (TempDir, PathBuf, usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(DAY_1);
    let event = |n: usize| done(n).with("note", "n".repeat(n * 37 % 400));
    let (mut log, _) = start(dir.path());
    log.append(&(1..=5).map(event).collect::<Vec<_>>()).unwrap();
    log.sync().unwrap();
    let synced = fs::read(&path).unwrap().len();
    log.append(&(6..=45).map(event).collect::<Vec<_>>())
        .unwrap();
    (dir, path, synced)
}

fn whole(path: &Path) -> Vec<Line> {
    let bytes = fs::read(path).unwrap();
    let lines = bytes.split(|&byte| byte == b'\n');
    lines.filter_map(Line::parse).collect()
}

/// Overwrites these lines, counted from 1, without changing the length of anything.
fn blot(path: &Path, which: std::ops::RangeInclusive<usize>) {
    let mut bytes = fs::read(path).unwrap();
    let mut at = 1;
    for byte in &mut bytes {
        let ends = *byte == b'\n';
        if which.contains(&at) {
            *byte = 0;
        }
        at += usize::from(ends);
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn each_line_says_how_many_before_it_were_not_on_disk() {
    let (dir, path, _) = unsynced_batch();
    let said = |path: &Path| -> Vec<u64> { whole(path).iter().map(Line::unsynced).collect() };
    let expected: Vec<u64> = (0..5).chain(0..40).collect();
    assert_eq!(said(&path), expected);
    assert!(!lines(&path)[5].contains("unsynced"), "zero is left out");
    // A killed daemon's lines are on disk before the next one writes.
    let (mut log, _) = start(dir.path());
    log.append(&[done("x")]).unwrap();
    log.sync().unwrap();
    log.append(&[done("y"), done("z")]).unwrap();
    assert_eq!(said(&path)[45..], [0, 0, 1]);
    // Without syncs nothing is known, and nothing said.
    let mut log = open(dir.path());
    log.append(&[done("v"), done("w")]).unwrap();
    assert_eq!(said(&path)[48..], [0, 0]);
    assert!(verify(dir.path()).unwrap().is_sound());
}

#[test]
fn whichever_blocks_are_lost_the_log_is_sound_after_a_start() {
    let (_dir, path, synced) = unsynced_batch();
    let written = fs::read(&path).unwrap();
    let mut dice = 7_u64;
    let mut throw = |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (dice >> 33) % sides
    };
    let mut with_holes = 0;
    for round in 0..120 {
        let mut bytes = written.clone();
        let block = if round % 2 == 0 { 512 } else { 4096 };
        let stale: &[u8] = [&b"\0"[..], b"\xff\0\n", b"{\"seq\":7,\n"][round % 3];
        for begin in (0..bytes.len()).step_by(block) {
            let end = (begin + block).min(bytes.len());
            if end <= synced || throw(3) > 0 {
                continue;
            }
            for (at, byte) in bytes[begin.max(synced)..end].iter_mut().enumerate() {
                *byte = stale[at % stale.len()];
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(DAY_1);
        fs::write(&path, &bytes).unwrap();
        let kept: BTreeSet<u64> = whole(&path).iter().map(|line| line.seq).collect();
        let (mut log, opened) = start(dir.path());
        with_holes += usize::from(opened.holes.len() > 1);
        let missing = opened.holes.iter().flat_map(|hole| hole.missing.clone());
        let accounted: Vec<u64> = kept.iter().copied().chain(missing).collect();
        let all: BTreeSet<u64> = (1..=*kept.last().unwrap()).collect();
        assert_eq!(accounted.len(), all.len(), "round {round}");
        assert_eq!(BTreeSet::from_iter(accounted), all, "round {round}");
        let closed = verify(dir.path()).unwrap();
        assert!(closed.is_sound(), "round {round}: {:?}", closed.problems);
        // It is said once, also by a start that was cut off before its first sync.
        let before = fs::read(&path).unwrap();
        let (_, again) = start(dir.path());
        assert_eq!((again.torn, again.holes), (None, Vec::new()));
        assert_eq!(fs::read(&path).unwrap(), before);
        log.append(&[done("next")]).unwrap();
        let after = verify(dir.path()).unwrap();
        assert!(after.is_sound(), "round {round}: {:?}", after.problems);
        assert_eq!(after.torn, closed.torn);
        assert!(
            before.starts_with(&bytes[..synced]),
            "nothing that was told is touched"
        );
    }
    assert!(with_holes > 30, "{with_holes}");
}

#[test]
fn a_hole_is_told_with_its_numbers_and_counted() {
    let (dir, path, _) = unsynced_batch();
    blot(&path, 20..=20);
    blot(&path, 6..=8);
    let before = verify(dir.path()).unwrap();
    assert_eq!(before.problems[0].fault, Fault::Unreadable);
    let (log, opened) = start(dir.path());
    assert_eq!(
        (opened.torn, opened.last_seq, log.last_seq()),
        (None, 47, 47)
    );
    // The line that the zeros run into has no beginning any more.
    let missing: Vec<_> = opened
        .holes
        .iter()
        .map(|hole| hole.missing.clone())
        .collect();
    assert_eq!(missing, [6..=9, 20..=21]);
    let told = whole(&path).pop().unwrap();
    assert_eq!(told.event, "torn_line");
    assert_eq!(told.detail["first"], 20);
    assert_eq!(told.detail["last"], 21);
    assert_eq!(told.detail["lines"], 1);
    let verdict = verify(dir.path()).unwrap();
    assert!(verdict.is_sound(), "{:?}", verdict.problems);
    assert_eq!((verdict.torn, verdict.lines), (6, 41));
}

#[test]
fn a_second_cut_may_take_what_the_first_start_told() {
    for taken in [45..=45, 44..=44] {
        let (dir, path, _) = unsynced_batch();
        blot(&path, 20..=20);
        blot(&path, 10..=10);
        drop(start(dir.path()));
        // Each hole has taken a newline. Of two events, the last one is torn off, or the first
        // one is lost and the last one kept.
        assert!(lines(&path)[43].contains("\"first\":10"));
        if taken == (44..=44) {
            let mut bytes = fs::read(&path).unwrap();
            let begin = bytes.iter().rposition(|&byte| byte == b'{').unwrap();
            bytes[begin - 40..begin].fill(0);
            bytes[begin - 1] = b'\n';
            fs::write(&path, bytes).unwrap();
        } else {
            blot(&path, taken);
        }
        drop(start(dir.path()));
        let (mut log, opened) = start(dir.path());
        assert_eq!((opened.torn, opened.holes), (None, Vec::new()));
        log.append(&[done("next")]).unwrap();
        let verdict = verify(dir.path()).unwrap();
        assert!(verdict.is_sound(), "{:?}", verdict.problems);
        assert_eq!(verdict.torn, 5);
    }
}

#[test]
fn the_end_of_a_day_may_be_lost_with_its_length() {
    for synced in [0, 2] {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, _) = start(dir.path());
        for n in 0..synced {
            log.append(&[done(n)]).unwrap();
            log.sync().unwrap();
        }
        let path = dir.path().join(DAY_1);
        let kept = fs::read(&path).unwrap_or_default();
        let mut next = done("next");
        next.at = tomorrow();
        log.append(&[done("a"), done("b"), next]).unwrap();
        // With nothing in it, its name is lost too.
        if synced == 0 {
            fs::remove_file(&path).unwrap();
        } else {
            fs::write(&path, kept).unwrap();
        }
        assert!(!verify(dir.path()).unwrap().is_sound());
        let (_, opened) = start(dir.path());
        let hole = &opened.holes[0];
        assert_eq!((hole.bytes, hole.file.as_str()), (0, DAY_2));
        assert_eq!(hole.missing, synced + 1..=synced + 2);
        let verdict = verify(dir.path()).unwrap();
        assert!(verdict.is_sound(), "{:?}", verdict.problems);
        assert_eq!(verdict.torn, 2);
    }
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<String>)) {
    let mut found = lines(path);
    change(&mut found);
    fs::write(path, found.join("\n") + "\n").unwrap();
}

#[test]
fn what_a_hand_did_is_not_excused_by_a_start() {
    type Case = (&'static str, fn(&Path), (u64, Fault));
    let cases: [Case; 6] = [
        (
            "a line that was on disk is blotted out",
            |path| blot(path, 3..=3),
            (3, Fault::Unreadable),
        ),
        (
            "the last line that was on disk goes with the first that was not",
            |path| blot(path, 5..=6),
            (5, Fault::Unreadable),
        ),
        (
            "a line that was on disk is deleted",
            |path| edit(path, |lines| drop(lines.remove(2))),
            (3, gap(3, 4)),
        ),
        (
            "a line that was not is deleted, and its neighbours touch",
            |path| edit(path, |lines| drop(lines.remove(20))),
            (21, gap(21, 22)),
        ),
        (
            "something is put between two lines",
            |path| edit(path, |lines| lines.insert(20, "hello".to_owned())),
            (21, Fault::Unreadable),
        ),
        (
            "the last line claims that nothing was on disk",
            |path| {
                blot(path, 3..=3);
                edit(path, |lines| {
                    let last = lines.last_mut().unwrap();
                    *last = last.replace("\"unsynced\":39", "\"unsynced\":44");
                    assert!(last.contains(":44"));
                });
            },
            (3, Fault::Unreadable),
        ),
    ];
    for (what, harm, expected) in cases {
        let (dir, path, _) = unsynced_batch();
        harm(&path);
        let (mut log, opened) = start(dir.path());
        assert_eq!(opened.holes, [], "{what}");
        log.append(&[done("next")]).unwrap();
        let verdict = verify(dir.path()).unwrap();
        let (line, fault) = expected;
        let found = faults(&verdict);
        assert!(found.contains(&(DAY_1, line, fault)), "{what}: {found:?}");
    }
}

#[test]
fn a_batch_that_was_synced_is_not_excused_either() {
    let (dir, path, _) = unsynced_batch();
    let (mut log, _) = start(dir.path());
    log.sync().unwrap();
    log.append(&[done("x")]).unwrap();
    // Its lines were unsynced when they were written, and are not any more.
    blot(&path, 20..=20);
    let (mut log, opened) = start(dir.path());
    assert_eq!(opened.holes, []);
    log.append(&[done("y")]).unwrap();
    let found = verify(dir.path()).unwrap();
    assert_eq!(faults(&found)[0], (DAY_1, 20, Fault::Unreadable));
}

#[test]
fn nothing_around_a_hole_can_be_changed_once_it_is_told() {
    type Case = (&'static str, fn(&mut Vec<String>), (u64, Fault));
    let cases: [Case; 4] = [
        (
            "the line before it",
            |lines| lines[8] = lines[8].replace("completed", "completee"),
            (10, Fault::Unreadable),
        ),
        (
            "what lies in it",
            |lines| lines[9] = lines[9].replacen('\0', " ", 1),
            (10, Fault::Unreadable),
        ),
        (
            "the line after it goes too",
            |lines| drop(lines.remove(10)),
            (10, Fault::Unreadable),
        ),
        (
            "the event goes",
            |lines| drop(lines.remove(44)),
            (10, Fault::Unreadable),
        ),
    ];
    for (what, harm, (line, fault)) in cases {
        let (dir, path, _) = unsynced_batch();
        blot(&path, 10..=10);
        let (mut log, _) = start(dir.path());
        log.append(&[done("next")]).unwrap();
        log.sync().unwrap();
        log.append(&[done("last")]).unwrap();
        assert!(verify(dir.path()).unwrap().is_sound());
        edit(&path, harm);
        let (_, opened) = start(dir.path());
        assert_eq!(opened.holes, [], "{what}");
        let verdict = verify(dir.path()).unwrap();
        let found = faults(&verdict);
        assert!(found.contains(&(DAY_1, line, fault)), "{what}: {found:?}");
    }
}
