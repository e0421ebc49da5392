//! Crashes, full disks, failed syncs and other people's hands.

#![expect(
    clippy::disallowed_methods,
    reason = "somebody else moves the log's files"
)]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::*;
use crate::store::audit::disk::Disk;
use crate::store::audit::line::{hash, no_line};
use crate::store::audit::{Altered, verify};

#[test]
fn a_log_cut_off_at_any_byte_is_closed_and_stays_sound() {
    let (_dir, a, _) = two_days();
    let whole = fs::read(&a).unwrap();
    let last_line = whole[..whole.len() - 1]
        .iter()
        .rposition(|&b| b == b'\n')
        .unwrap()
        + 1;
    for cut in last_line..=whole.len() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(DAY_1), &whole[..cut]).unwrap();
        // Half of them are only found on the next day.
        let now = if cut % 2 == 0 { noon() } else { tomorrow() };
        let (mut log, opened) = AuditLog::open(dir.path(), Durability::Relaxed, now).unwrap();
        let torn = opened.torn.map(|torn| (torn.file, torn.bytes));
        let all_there = cut == whole.len();
        let expected = (cut - last_line) as u64;
        assert_eq!(
            torn,
            (cut > last_line && !all_there).then(|| (DAY_1.to_owned(), expected))
        );
        log.append(&[done("next")]).unwrap();
        let verdict = verify(dir.path()).unwrap();
        assert!(verdict.is_sound(), "cut at {cut}: {:?}", verdict.problems);
        let whole_but_open = cut == whole.len() - 1;
        assert_eq!(verdict.torn, u64::from(torn.is_some() && !whole_but_open));
        assert!(
            fs::read(dir.path().join(DAY_1))
                .unwrap()
                .starts_with(&whole[..cut])
        );
        // Closing it happens once.
        let (_, again) = AuditLog::open(dir.path(), Durability::Relaxed, now).unwrap();
        assert_eq!((again.torn, again.last_seq), (None, log.last_seq()));
    }
}

#[test]
fn holes_left_by_a_power_cut_are_one_torn_end() {
    let (dir, _, b) = two_days();
    let mut bytes = fs::read(&b).unwrap();
    bytes.extend_from_slice(b"{\"seq\":9\n");
    bytes.resize(bytes.len() + 100_000, 0);
    fs::write(&b, &bytes).unwrap();
    let unclosed = verify(dir.path()).unwrap();
    assert_eq!(unclosed.problems[1].fault, Fault::Torn);
    let (log, opened) = AuditLog::open(dir.path(), Durability::Full, noon()).unwrap();
    let torn = opened.torn.unwrap();
    assert_eq!((torn.bytes, torn.lines, log.last_seq()), (100_008, 2, 9));
    let verdict = verify(dir.path()).unwrap();
    assert!(verdict.is_sound(), "{:?}", verdict.problems);
    assert_eq!(verdict.torn, 2);
}

/// A disk that is full after so many bytes, and can refuse everything else too.
#[derive(Default)]
struct Faulty {
    room: usize,
    keep_half_lines: bool,
    no_sync: bool,
    written: Vec<(u64, usize)>,
}

impl Disk for Arc<Mutex<Faulty>> {
    fn write_at(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut disk = self.lock().unwrap();
        let fits = bytes.len().min(disk.room);
        disk.room -= fits;
        disk.written.push((offset, fits));
        file.write_all_at(&bytes[..fits], offset)?;
        if fits < bytes.len() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        Ok(())
    }

    fn truncate(&mut self, file: &File, len: u64) -> io::Result<()> {
        if self.lock().unwrap().keep_half_lines {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        file.set_len(len)
    }

    fn sync(&mut self, _: &File, _: Durability) -> io::Result<()> {
        if self.lock().unwrap().no_sync {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        Ok(())
    }
}

fn faulty(dir: &Path) -> (AuditLog, Arc<Mutex<Faulty>>) {
    let (mut log, _) = AuditLog::open(dir, Durability::Full, noon()).unwrap();
    let disk = Arc::new(Mutex::new(Faulty {
        room: usize::MAX,
        ..Faulty::default()
    }));
    log.disk = Box::new(Arc::clone(&disk));
    (log, disk)
}

#[test]
fn a_full_disk_leaves_no_half_line_at_any_byte() {
    let mut next = done("y");
    next.at = tomorrow();
    let batch = [done("x"), next];
    for room in (0..400).step_by(7) {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, disk) = faulty(dir.path());
        log.append(&[done("first")]).unwrap();
        let before = fs::read(dir.path().join(DAY_1)).unwrap();
        disk.lock().unwrap().room = room;
        let full = log.append(&batch).is_err();
        if full {
            assert_eq!(fs::read(dir.path().join(DAY_1)).unwrap(), before, "{room}");
            assert_eq!(log.last_seq(), 1);
            assert!(verify(dir.path()).unwrap().is_sound());
            disk.lock().unwrap().room = usize::MAX;
            log.append(&batch).unwrap();
        }
        let verdict = verify(dir.path()).unwrap();
        assert!(verdict.is_sound(), "{room}: {:?}", verdict.problems);
        assert_eq!((verdict.lines, verdict.torn, log.last_seq()), (3, 0, 3));
    }
}

#[test]
fn a_half_line_that_cannot_be_cut_off_is_closed_before_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, disk) = faulty(dir.path());
    log.append(&[done("first")]).unwrap();
    {
        let mut disk = disk.lock().unwrap();
        disk.room = 50;
        disk.keep_half_lines = true;
    }
    log.append(&[done("x")]).unwrap_err();
    log.append(&[done("x")]).unwrap_err();
    disk.lock().unwrap().room = usize::MAX;
    log.append(&[done("x")]).unwrap();
    let verdict = verify(dir.path()).unwrap();
    assert!(verdict.is_sound(), "{:?}", verdict.problems);
    assert_eq!((verdict.torn, log.last_seq()), (1, 3));
}

#[test]
fn after_a_failed_sync_the_same_bytes_are_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, disk) = faulty(dir.path());
    log.append(&[done("x")]).unwrap();
    log.sync().unwrap();
    disk.lock().unwrap().no_sync = true;
    log.append(&[done("y")]).unwrap();
    log.sync().unwrap_err();
    log.append(&[done("z")]).unwrap();
    let written = std::mem::take(&mut disk.lock().unwrap().written);
    disk.lock().unwrap().no_sync = false;
    log.sync().unwrap();
    assert_eq!(disk.lock().unwrap().written, written[1..], "y and z, not x");
    log.sync().unwrap();
    assert_eq!(disk.lock().unwrap().written.len(), 2, "once");
    assert!(verify(dir.path()).unwrap().is_sound());
}

/// A log of three lines, open, and how often it says that somebody changed it.
fn three_lines() -> (TempDir, AuditLog, Arc<Mutex<Vec<Altered>>>) {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    log.on_altered(move |altered| tell.lock().unwrap().push(altered));
    for id in ["x", "y", "z"] {
        log.append(&[done(id)]).unwrap();
    }
    (dir, log, told)
}

/// The lines again with another id in the last ones, linked as they should be.
fn rewritten(path: &Path, from: usize) -> String {
    let mut prev = no_line();
    let mut text = String::new();
    for (at, line) in lines(path).iter().enumerate() {
        let mut doc: serde_json::Value = serde_json::from_str(line).unwrap();
        doc["prev"] = prev.clone().into();
        if at >= from {
            doc["handoff_id"] = "w".into();
        }
        let line = doc.to_string();
        prev = hash(line.as_bytes());
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[test]
fn what_others_do_to_the_open_log_is_told_and_never_taken_for_its_own() {
    type Attack = fn(&Path);
    let attacks: [(&str, Attack, u64); 8] = [
        (
            "the last line, as long as before",
            |path| {
                fs::write(path, rewritten(path, 2)).unwrap();
            },
            3,
        ),
        (
            "the last two lines, linked, in a file of another inode",
            |path| {
                let other = path.with_extension("new");
                fs::write(&other, rewritten(path, 1)).unwrap();
                fs::rename(other, path).unwrap();
            },
            3,
        ),
        (
            "the last line cut off",
            |path| {
                let text = lines(path)[..2].join("\n") + "\n";
                fs::write(path, text).unwrap();
            },
            2,
        ),
        ("all cut off", |path| fs::write(path, "").unwrap(), 0),
        ("the file deleted", |path| fs::remove_file(path).unwrap(), 0),
        (
            "the folder deleted",
            |path| {
                fs::remove_dir_all(path.parent().unwrap()).unwrap();
            },
            0,
        ),
        (
            "a line added, linked",
            |path| {
                let prev = hash(lines(path)[2].as_bytes());
                let at = noon();
                let line = format!(
                    "{{\"seq\":4,\"at\":\"{at}\",\"event\":\"forged\",\"prev\":\"{prev}\"}}\n"
                );
                fs::write(path, fs::read_to_string(path).unwrap() + &line).unwrap();
            },
            4,
        ),
        (
            "half a line added",
            |path| {
                fs::write(path, fs::read_to_string(path).unwrap() + "hello").unwrap();
            },
            3,
        ),
    ];
    for (what, attack, found) in attacks {
        let (dir, mut log, told) = three_lines();
        attack(&dir.path().join(DAY_1));
        log.append(&[done("next")]).unwrap();
        log.append(&[done("more")]).unwrap();
        let told = told.lock().unwrap();
        let [altered] = told.as_slice() else {
            panic!("{what}: {told:?}")
        };
        assert_eq!(
            (altered.expected.seq, altered.found.seq),
            (3, found),
            "{what}"
        );
        assert!(altered.to_string().contains("audit --verify"));
        let events = log.recent(10_000).unwrap();
        let last: Vec<_> = events.iter().rev().take(3).rev().collect();
        let words: Vec<_> = last.iter().map(|l| (l.seq, l.event.as_str())).collect();
        let due = [(4, "audit_altered"), (5, "completed"), (6, "completed")];
        assert_eq!(words, due, "{what}");
        assert_eq!(last[0].detail["expected"], 3, "{what}");
        assert!(!verify(dir.path()).unwrap().is_sound(), "{what}");
        // The next daemon has no other word than the log's, which shows it still.
        drop(log);
        AuditLog::open(dir.path(), Durability::Relaxed, noon()).unwrap();
        assert!(!verify(dir.path()).unwrap().is_sound(), "{what}");
    }
}

#[test]
fn a_log_that_was_only_copied_or_touched_is_as_it_was() {
    let (dir, mut log, told) = three_lines();
    let (path, copy) = (dir.path().join(DAY_1), dir.path().join("copy"));
    fs::copy(&path, &copy).unwrap();
    fs::rename(&copy, &path).unwrap();
    log.append(&[done("next")]).unwrap();
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&path, mode).unwrap();
    log.append(&[done("more")]).unwrap();
    assert_eq!(*told.lock().unwrap(), []);
    let verdict = verify(dir.path()).unwrap();
    assert!(verdict.is_sound(), "{:?}", verdict.problems);
    assert_eq!(verdict.lines, 5);
}
