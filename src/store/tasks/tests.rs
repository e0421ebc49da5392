//! The store by itself: what it refuses, what it leaves alone, what it says.

use std::os::unix::fs::symlink;
use std::time::Instant;

use serde_json::json;

use super::*;

fn setup() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path(), Durability::Relaxed);
    (dir, store)
}

fn task(name: &str) -> TaskId {
    TaskId::parse(name).unwrap()
}

fn state(name: &str, version: u64) -> TaskState {
    let Value::Object(doc) = json!({"task_id": name, "version": version, "note": "n"}) else {
        panic!()
    };
    TaskState::from_document(doc).unwrap()
}

fn versions(error: StoreError) -> (Option<u64>, u64) {
    match error {
        StoreError::Conflict {
            stored, brought, ..
        } => (stored, brought),
        other => panic!("{other}"),
    }
}

#[test]
fn a_state_is_saved_and_comes_back() {
    let (_dir, store) = setup();
    let x = task("x");
    assert!(store.load(&x).unwrap().is_none());
    for version in 1..=3 {
        store.save(&state("x", version)).unwrap();
        assert_eq!(store.load(&x).unwrap().unwrap(), state("x", version));
    }
    assert_eq!(store.tasks().unwrap(), [x]);
}

#[test]
fn only_the_next_version_is_taken() {
    let (_dir, store) = setup();
    assert_eq!(versions(store.save(&state("x", 2)).unwrap_err()), (None, 2));
    assert!(!store.lock_path(&task("x")).exists());
    assert!(store.load(&task("x")).unwrap().is_none());
    store.save(&state("x", 1)).unwrap();
    let before = fs::read(store.path(&task("x"))).unwrap();
    for brought in [1, 3, u64::MAX] {
        let error = store.save(&state("x", brought)).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("version 1") && said.contains(&brought.to_string()),
            "{said}"
        );
        assert_eq!(versions(error), (Some(1), brought));
    }
    assert_eq!(fs::read(store.path(&task("x"))).unwrap(), before);
    assert_eq!(store.history(&task("x")).unwrap().len(), 1);
}

#[test]
fn what_is_no_file_is_neither_followed_nor_waited_for() {
    let (dir, store) = setup();
    let folder = dir.path().join(FOLDER);
    fs::create_dir_all(&folder).unwrap();
    fs::write(
        dir.path().join("elsewhere"),
        r#"{"task_id":"link","version":1}"#,
    )
    .unwrap();
    symlink("../../elsewhere", folder.join("link.json")).unwrap();
    symlink("nowhere", folder.join("dangling.json")).unwrap();
    fs::create_dir(folder.join("folder.json")).unwrap();
    let mode = 0o600.into();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, folder.join("pipe.json"), fifo, mode, 0).unwrap();
    for (name, word) in [
        ("link", "symbolic link"),
        ("dangling", "symbolic link"),
        ("folder", "folder"),
        ("pipe", "pipe"),
    ] {
        let error = store.load(&task(name)).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        let error = store.save(&state(name, 1)).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    symlink("../../elsewhere", folder.join("locked.lock")).unwrap();
    assert!(store.save(&state("locked", 1)).is_err());
    symlink("../../elsewhere", folder.join("past.history.jsonl")).unwrap();
    assert!(store.save(&state("past", 1)).is_err());
    assert!(store.load(&task("past")).unwrap().is_none());
}

#[test]
fn what_is_broken_or_newer_stays_as_it_is() {
    let (dir, store) = setup();
    fs::create_dir_all(dir.path().join(FOLDER)).unwrap();
    for (name, text, word) in [
        ("half", r#"{"task_id": "half", "versi"#, "line 1"),
        ("empty", "", "broken"),
        ("list", "[]", "object"),
        ("binary", "\u{0}", "broken"),
        (
            "wrong",
            r#"{"task_id": "wrong", "version": "one"}"#,
            "version",
        ),
        ("other", r#"{"task_id": "x", "version": 1}"#, "state of x"),
        (
            "newer",
            r#"{"format": 2, "task_id": "newer", "version": 1}"#,
            "format 2",
        ),
    ] {
        let path = store.path(&task(name));
        fs::write(&path, text).unwrap();
        let error = store.load(&task(name)).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        for version in [1, 2] {
            let error = store.save(&state(name, version)).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn a_state_that_grew_too_large_is_refused_and_the_old_one_stays() {
    let (_dir, store) = setup();
    let store = store.holding(1000);
    store.save(&state("x", 1)).unwrap();
    let mut next = state("x", 2);
    next.set("note", "n".repeat(1000));
    let error = store.save(&next).unwrap_err().to_string();
    assert!(error.contains("at most 1000"), "{error}");
    assert_eq!(store.load(&task("x")).unwrap().unwrap().version(), 1);
}

#[test]
fn who_waits_in_vain_is_told_for_whom() {
    let (dir, store) = setup();
    store.save(&state("x", 1)).unwrap();
    let lock = dir.path().join(FOLDER).join("x.lock");
    let held = lock::take(&lock, &task("x"), LOCK_WAIT, crate::clock::Wall(0), || {
        Ok(())
    })
    .unwrap();
    let store = store.waiting(Duration::from_millis(50));
    let begun = Instant::now();
    let error = store.save(&state("x", 2)).unwrap_err();
    assert!(begun.elapsed() >= Duration::from_millis(50));
    let said = error.to_string();
    assert!(said.contains(&std::process::id().to_string()), "{said}");
    assert!(matches!(
        error,
        StoreError::Locked { holder: Some(Held::ByUs(holder)), .. } if !holder.program.is_empty()
    ));
    // Readers don't care.
    assert_eq!(store.load(&task("x")).unwrap().unwrap().version(), 1);
    drop(held);
    store.save(&state("x", 2)).unwrap();
}

#[test]
fn a_lock_of_another_program_is_not_said_to_be_who_held_it_before() {
    if !Path::new("/proc/locks").exists() {
        eprintln!("nothing was tried: this system does not tell who holds a lock");
        return;
    }
    let (dir, store) = setup();
    store.save(&state("x", 1)).unwrap();
    let path = dir.path().join(FOLDER).join("x.lock");
    let before = r#"{"pid":999999999,"program":"earlier","since":"2026-11-19T08:00:00.000Z"}"#;
    fs::write(&path, before).unwrap();
    let file = fs::File::open(&path).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let error = store
        .waiting(Duration::from_millis(10))
        .save(&state("x", 2))
        .unwrap_err();
    let said = error.to_string();
    assert!(
        !said.contains("earlier") && !said.contains("999999999"),
        "{said}"
    );
    assert!(
        said.contains(&format!("process {} ", std::process::id())),
        "{said}"
    );
    assert!(said.contains("it is not handoffd"), "{said}");
    let own = std::process::id();
    assert!(matches!(
        error,
        StoreError::Locked { holder: Some(Held::ByOther { pid, program: Some(_) }), .. }
            if pid == own
    ));
}

#[test]
fn a_lock_whose_file_was_deleted_is_not_believed() {
    let (dir, store) = setup();
    store.save(&state("x", 1)).unwrap();
    let lock = dir.path().join(FOLDER).join("x.lock");
    let _old = lock::take(&lock, &task("x"), LOCK_WAIT, crate::clock::Wall(0), || {
        Ok(())
    })
    .unwrap();
    fs::remove_file(&lock).unwrap();
    let wait = Duration::from_millis(20);
    let _new = lock::take(&lock, &task("x"), wait, crate::clock::Wall(0), || Ok(())).unwrap();
    assert!(lock::take(&lock, &task("x"), wait, crate::clock::Wall(0), || Ok(())).is_err());
}

#[test]
fn what_was_applied_is_not_forgotten_by_an_agent_that_saves() {
    let (_dir, store) = setup();
    let mut first = state("x", 1);
    first.set("applied", vec!["a#1", "b#1"]);
    store.save(&first).unwrap();
    let saved = store.save(&state("x", 2)).unwrap();
    assert_eq!(saved.applied().collect::<Vec<_>>(), ["a#1", "b#1"]);
    let mut third = state("x", 3);
    let many: Vec<String> = (0..MAX_APPLIED).map(|n| format!("c#{n}")).collect();
    third.set("applied", many);
    let saved = store.save(&third).unwrap();
    assert_eq!(saved.applied().len(), MAX_APPLIED);
    assert_eq!(saved.applied().last(), Some("c#255"));
    assert_eq!(store.load(&task("x")).unwrap(), Some(saved));
}

#[test]
fn an_update_tries_again_after_a_conflict() {
    let (_dir, store) = setup();
    let mut calls = 0;
    let updated = store
        .update(&task("x"), |stored| {
            calls += 1;
            if calls == 1 {
                store.save(&state("x", 1))?;
            }
            let next = stored.map_or(1, |stored| stored.version() + 1);
            Ok::<_, StoreError>(Some(state("x", next)))
        })
        .unwrap();
    assert_eq!((calls, updated.unwrap().version()), (2, 2));
    let nothing = store.update(&task("x"), |_| Ok::<_, StoreError>(None));
    assert_eq!(nothing.unwrap(), None);
}

#[test]
fn history_has_each_version_once_whatever_a_crash_left() {
    let (dir, store) = setup();
    store.save(&state("x", 1)).unwrap();
    store.save(&state("x", 2)).unwrap();
    let path = dir.path().join(FOLDER).join("x.history.jsonl");
    // Two writers died before their version took its place, one of them in the middle of a line.
    let dead = change(None, &state("x", 3), crate::clock::Wall(0));
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str(&serde_json::to_string(&dead).unwrap());
    text.push_str("\n{\"format\": 1, \"version\": 3, \"at");
    fs::write(&path, text).unwrap();
    assert_eq!(store.history(&task("x")).unwrap().len(), 2);
    store.save(&state("x", 3)).unwrap();
    let lines = store.history(&task("x")).unwrap();
    let versions: Vec<u64> = lines.iter().map(|line| line.version).collect();
    assert_eq!(versions, [1, 2, 3]);
    assert_ne!(lines[2].at, dead.at);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text + "{\"format\": 2}\n").unwrap();
    let newer = store.history(&task("x")).unwrap_err();
    assert!(matches!(newer, StoreError::NewerFormat { .. }), "{newer}");
}

#[test]
fn numbers_and_strangers_survive_a_save() {
    let (_dir, store) = setup();
    let text = r#"{"format":1,"task_id":"x","version":1,"n":1e400,"m":1.50,"z":{"k":12345678901234567890123}}"#;
    let Value::Object(doc) = json::parse(text).unwrap() else {
        panic!()
    };
    store.save(&TaskState::from_document(doc).unwrap()).unwrap();
    let back = store.load(&task("x")).unwrap().unwrap().into_document();
    assert_eq!(Value::Object(back).to_string(), text);
}
