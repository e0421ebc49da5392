//! Both orders, held against each other.

use super::*;
use crate::durable::Durability;
use crate::store::audit::{AuditLog, Event};
use std::fs;
use std::time::{Duration, SystemTime};

fn root() -> (tempfile::TempDir, Layout) {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    layout.ensure().unwrap();
    (dir, layout)
}

fn put(layout: &Layout, state: State, name: &str, at_ms: u64) {
    let path = layout.state(state).join(name);
    fs::write(&path, "{}").unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

fn tell(layout: &Layout, lines: &[(i64, &str, &str)]) {
    let (mut log, _) = AuditLog::open(&layout.audit(), Durability::Relaxed, Wall(0)).unwrap();
    let events: Vec<Event> = lines
        .iter()
        .map(|(at, id, to)| {
            let line = Event::new(Wall(*at), "moved").about(*id);
            line.with("to", *to).with("agent", "@a").with("code", *to)
        })
        .collect();
    log.append(&events).unwrap();
    log.sync().unwrap();
}

fn ids(newest: Newest) -> Vec<String> {
    newest.map(|place| place.id).collect()
}

/// Six that the log knows in their last states, one that waits, one that somebody put there.
fn filled() -> (tempfile::TempDir, Layout) {
    let (dir, layout) = root();
    let mut lines = Vec::new();
    let names = ["a", "b", "c", "d", "e", "f"];
    for (n, id) in names.iter().enumerate() {
        let at = 10_000 + n as u64 * 1000;
        let (state, word) = match n % 2 {
            0 => (State::Completed, "completed"),
            _ => (State::Failed, "failed"),
        };
        put(&layout, state, &format!("{id}.json"), at);
        lines.push((at.cast_signed() - 500, *id, "in_progress"));
        lines.push((at.cast_signed(), *id, word));
    }
    tell(&layout, &lines);
    put(&layout, State::Waiting, "w.json", 13_500);
    (dir, layout)
}

#[test]
fn the_log_and_the_files_give_the_same_order() {
    let (_dir, layout) = filled();
    let expected = ["f", "e", "w", "d", "c", "b", "a"];
    let filter = Filter::default();
    assert_eq!(ids(all(&layout, &filter).unwrap()), expected);
    assert_eq!(ids(first(&layout, &filter, 1).unwrap()), expected);
    assert_eq!(ids(first(&layout, &filter, 100).unwrap()), expected);
}

#[test]
fn what_the_log_does_not_know_comes_last_and_nothing_comes_twice() {
    let (_dir, layout) = filled();
    put(&layout, State::Completed, "by-hand.json", 99_000);
    put(&layout, State::Completed, "no-record.txt", 99_000);
    fs::create_dir(layout.state(State::Failed).join("folder.json")).unwrap();
    fs::remove_file(layout.record(State::Failed, "d")).unwrap();
    let found = ids(first(&layout, &Filter::default(), 1).unwrap());
    assert_eq!(found, ["f", "e", "w", "c", "b", "a", "by-hand"]);
}

#[test]
fn a_first_page_reads_no_further_than_it_must() {
    let (_dir, layout) = filled();
    let mut newest = first(&layout, &Filter::default(), 1).unwrap();
    assert_eq!(newest.by_ref().take(2).count(), 2);
    assert!(newest.seen.len() <= 2, "{:?}", newest.seen);
    assert!(newest.rest.is_none());
}

#[test]
fn states_times_and_what_the_log_says_narrow_it() {
    let (_dir, layout) = filled();
    let failed = Filter {
        states: vec![State::Failed],
        ..Filter::default()
    };
    assert_eq!(ids(first(&layout, &failed, 1).unwrap()), ["f", "d", "b"]);
    let between = Filter {
        since: Some(Wall(11_000)),
        before: Some(Wall(14_000)),
        ..Filter::default()
    };
    for newest in [all(&layout, &between), first(&layout, &between, 1)] {
        assert_eq!(ids(newest.unwrap()), ["w", "d", "c", "b"]);
    }
    let other = Filter {
        states: vec![State::Failed],
        code: Some("TIMEOUT".to_owned()),
        ..Filter::default()
    };
    assert_eq!(ids(first(&layout, &other, 1).unwrap()), [""; 0]);
}

#[test]
fn bytes_that_were_refused_are_found_under_their_numbered_id() {
    let (_dir, layout) = root();
    for (n, id) in ["x", "x~2"].into_iter().enumerate() {
        put(
            &layout,
            State::Failed,
            &format!("{id}.json"),
            1000 + n as u64,
        );
    }
    let (mut log, _) = AuditLog::open(&layout.audit(), Durability::Relaxed, Wall(0)).unwrap();
    let refused = |at| {
        let line = Event::new(Wall(at), "refused").about("x");
        line.with("to", "failed").with("file", "x.json")
    };
    log.append(&[refused(1000), refused(1001)]).unwrap();
    log.sync().unwrap();
    let mut found = ids(first(&layout, &Filter::default(), 1).unwrap());
    found.sort();
    assert_eq!(found, ["x", "x~2"]);
}

#[test]
fn counting_stops_where_it_is_told_to() {
    let (_dir, layout) = filled();
    let completed = layout.state(State::Completed);
    assert_eq!(count(completed, State::Completed, usize::MAX).unwrap(), 3);
    assert_eq!(count(completed, State::Completed, 2).unwrap(), 2);
}
