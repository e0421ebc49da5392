//! The watcher against the real kernel: what each way of putting a file there is told as, and
//! that a lost event or a lost watch ends in a rescan.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests play the producers, who rename and link as they like"
)]

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use handoffd::watch::{FolderKey, Hint, How, Mode, Watcher, filesystem};
use rustix::process::{Resource, Rlimit};
use tempfile::TempDir;

const PENDING: FolderKey = FolderKey(0);
const CONTROL: FolderKey = FolderKey(5);
const LONG: Duration = Duration::from_secs(20);

/// One at a time: threads are counted, and the kernel's queue is filled on purpose.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Root {
    dir: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Root {
    fn new() -> Self {
        let alone = alone();
        let dir = tempfile::tempdir().unwrap();
        for name in ["pending", "control"] {
            fs::create_dir_all(dir.path().join("handoffs").join(name)).unwrap();
        }
        Self { dir, _alone: alone }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("handoffs").join(name)
    }

    fn folders(&self) -> [(FolderKey, PathBuf); 2] {
        [
            (PENDING, self.path("pending")),
            (CONTROL, self.path("control")),
        ]
    }

    fn watch(&self) -> (Watcher, Receiver<Hint>) {
        let (send, hints) = mpsc::channel();
        let watcher = Watcher::new(&self.folders(), Mode::Inotify, LONG, move |hint| {
            let _ = send.send(hint);
        });
        (watcher.unwrap(), hints)
    }
}

fn seen(folder: FolderKey, name: &str, how: How) -> Hint {
    let name = name.into();
    Hint::Seen { folder, name, how }
}

fn rescan(folder: FolderKey) -> Hint {
    Hint::Rescan {
        folder: Some(folder),
    }
}

/// All hints up to the first that is `wanted`.
fn wait_for(hints: &Receiver<Hint>, wanted: &Hint) -> Vec<Hint> {
    let end = Instant::now() + LONG;
    let mut so_far = Vec::new();
    while let Ok(hint) = hints.recv_timeout(end.saturating_duration_since(Instant::now())) {
        so_far.push(hint);
        if so_far.last() == Some(wanted) {
            return so_far;
        }
    }
    panic!("{wanted:?} did not come, but {so_far:?}");
}

/// Makes a file whose hint shows that all earlier ones have come.
fn hints_until_mark(hints: &Receiver<Hint>, folder: &Path) -> Vec<Hint> {
    static MARKS: AtomicU32 = AtomicU32::new(0);
    let mark = format!("mark-{}", MARKS.fetch_add(1, Ordering::Relaxed));
    fs::create_dir(folder.join(&mark)).unwrap();
    let mut found = wait_for(hints, &seen(PENDING, &mark, How::Created));
    found.pop();
    found
}

#[test]
fn each_way_of_putting_a_file_there_is_told() {
    let root = Root::new();
    let (_watcher, hints) = root.watch();
    let pending = root.path("pending");
    let told = |names: &[(&str, How)]| {
        let expected: Vec<_> = names
            .iter()
            .map(|(n, how)| seen(PENDING, n, *how))
            .collect();
        assert_eq!(hints_until_mark(&hints, &pending), expected);
    };

    let mut file = File::create(pending.join("a.json")).unwrap();
    file.write_all(b"{}").unwrap();
    told(&[("a.json", How::Created), ("a.json", How::Changed)]);
    drop(file);
    told(&[("a.json", How::Closed)]);

    fs::read(pending.join("a.json")).unwrap();
    assert_eq!(fs::read_dir(&pending).unwrap().count(), 3);
    told(&[]);

    let outside = root.dir.path().join("outside");
    fs::write(&outside, b"{}").unwrap();
    fs::hard_link(&outside, pending.join("linked.json")).unwrap();
    told(&[("linked.json", How::Created)]);
    fs::rename(&outside, pending.join("moved.json")).unwrap();
    told(&[("moved.json", How::Renamed)]);
    fs::rename(pending.join("moved.json"), pending.join("again.json")).unwrap();
    told(&[("moved.json", How::Gone), ("again.json", How::Renamed)]);

    fs::set_permissions(
        pending.join("again.json"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    told(&[("again.json", How::Changed)]);
    fs::remove_file(pending.join("again.json")).unwrap();
    fs::rename(pending.join("a.json"), root.dir.path().join("away")).unwrap();
    told(&[("again.json", How::Gone), ("a.json", How::Gone)]);

    fs::rename(pending.join("linked.json"), root.path("control/c.json")).unwrap();
    wait_for(&hints, &seen(CONTROL, "c.json", How::Renamed));
}

#[test]
fn a_folder_made_again_is_watched_again() {
    let root = Root::new();
    let (watcher, hints) = root.watch();
    let pending = root.path("pending");
    for round in 0..5 {
        fs::remove_dir(&pending).unwrap();
        wait_for(&hints, &Hint::Replaced(PENDING));
        assert!(watcher.describe().contains("missing"));
        fs::create_dir(&pending).unwrap();
        wait_for(&hints, &rescan(PENDING));
        let name = format!("{round}.json");
        // Late news of the removal may cost a hint; a rescan then stands in for it.
        let is_seen = |_| {
            fs::write(pending.join(&name), b"{}").unwrap();
            let closed = seen(PENDING, &name, How::Closed);
            let mut news = std::iter::from_fn(|| hints.recv_timeout(LONG).ok());
            news.find(|hint| *hint == closed || *hint == rescan(PENDING)) == Some(closed)
        };
        assert!((0..10).any(is_seen));
        fs::remove_file(pending.join(&name)).unwrap();
    }
    assert_eq!(watcher.describe(), "inotify");
}

#[test]
fn a_folder_replaced_at_once_or_many_times_is_watched_in_the_end() {
    let root = Root::new();
    let (_watcher, hints) = root.watch();
    let pending = root.path("pending");
    for round in 0..50 {
        fs::remove_dir(&pending).unwrap();
        fs::create_dir(&pending).unwrap();
        if round % 10 == 0 {
            fs::rename(&pending, root.path(&format!("old-{round}"))).unwrap();
            fs::create_dir(&pending).unwrap();
        }
    }
    // Every hint that may still come is a rescan; after the last one the watch must stand.
    let probe = |n: u32| {
        let name = format!("{n}.json");
        fs::write(pending.join(&name), b"{}").unwrap();
        let wanted = seen(PENDING, &name, How::Closed);
        let mut last = Vec::new();
        while let Ok(hint) = hints.recv_timeout(Duration::from_millis(200)) {
            last.push(hint);
        }
        last == [
            seen(PENDING, &name, How::Created),
            seen(PENDING, &name, How::Changed),
            wanted,
        ]
    };
    assert!((0..100).any(probe));
}

#[test]
fn rearm_finds_what_no_event_told() {
    let root = Root::new();
    let (watcher, hints) = root.watch();
    assert_eq!(watcher.rearm(), []);
    // The whole tree is replaced from above, where nothing is watched.
    fs::rename(root.path(""), root.dir.path().join("old")).unwrap();
    for name in ["pending", "control"] {
        fs::create_dir_all(root.path(name)).unwrap();
    }
    let mut rearmed = watcher.rearm();
    // The parent's own watch may have told already, in part or in whole.
    while let Ok(hint) = hints.recv_timeout(Duration::from_millis(200)) {
        if let Hint::Rescan { folder: Some(key) } = hint {
            rearmed.push(key);
        }
    }
    rearmed.sort();
    rearmed.dedup();
    assert_eq!(rearmed, [PENDING, CONTROL]);
    assert_eq!(watcher.rearm(), []);
    fs::write(root.path("pending/x.json"), b"{}").unwrap();
    wait_for(&hints, &seen(PENDING, "x.json", How::Closed));
}

#[test]
fn an_overflow_ends_in_a_rescan_of_everything() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    if limit > 200_000 {
        return; // Too many files to make; `watch::translate` tests the meaning of one.
    }
    let root = Root::new();
    let gate = std::sync::Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let (send, hints) = mpsc::channel();
    let at_the_gate = std::sync::Arc::clone(&gate);
    let _watcher = Watcher::new(&root.folders(), Mode::Inotify, LONG, move |hint| {
        drop(at_the_gate.lock());
        let _ = send.send(hint);
    })
    .unwrap();
    // Two names by turns: equal events in a row would be one.
    let (a, b) = (root.path("pending/a"), root.path("pending/b"));
    File::create(&a).unwrap();
    for _ in 0..limit / 2 + 100 {
        fs::rename(&a, &b).unwrap();
        fs::rename(&b, &a).unwrap();
    }
    // The news of this is lost too, and the new folder often has the old one's inode number.
    fs::remove_file(&a).unwrap();
    fs::remove_dir(root.path("pending")).unwrap();
    fs::create_dir(root.path("pending")).unwrap();
    drop(closed);
    wait_for(&hints, &Hint::Rescan { folder: None });
    fs::write(root.path("pending/after"), b"{}").unwrap();
    wait_for(&hints, &seen(PENDING, "after", How::Closed));
}

#[test]
fn polling_says_look_again_and_why() {
    let root = Root::new();
    let (send, hints) = mpsc::channel();
    let every = Duration::from_millis(20);
    let watcher = Watcher::new(&root.folders(), Mode::Poll, every, move |hint| {
        let _ = send.send(hint);
    })
    .unwrap();
    assert_eq!(watcher.describe(), "polling every 20ms: as configured");
    assert!(watcher.is_polling());
    assert_eq!(watcher.rearm(), []);
    for _ in 0..3 {
        wait_for(&hints, &Hint::Rescan { folder: None });
    }
    drop(watcher);
    let end = Instant::now() + LONG;
    let ended = || loop {
        match hints.recv_timeout(LONG) {
            Err(error) => return error == mpsc::RecvTimeoutError::Disconnected,
            Ok(_) => assert!(Instant::now() < end),
        }
    };
    assert!(ended(), "the thread ends with its watcher");
}

#[test]
fn auto_follows_the_file_system_and_missing_folders_are_errors() {
    let root = Root::new();
    let auto = Watcher::new(&root.folders(), Mode::Auto, LONG, drop).unwrap();
    let kind = filesystem(root.dir.path()).unwrap();
    assert_eq!(auto.is_polling(), !kind.events);
    assert!(auto.describe().contains(&kind.name), "{}", auto.describe());
    let silent = [(PENDING, PathBuf::from("/proc/self"))];
    let poll = Watcher::new(&silent, Mode::Auto, LONG, drop).unwrap();
    assert!(poll.is_polling());
    assert!(poll.describe().contains("/proc/self"));

    let file = root.path("file");
    File::create(&file).unwrap();
    for (path, kind) in [
        (root.path("nowhere"), io::ErrorKind::NotFound),
        (file, io::ErrorKind::NotADirectory),
    ] {
        let text = path.display().to_string();
        let error = Watcher::new(&[(PENDING, path)], Mode::Inotify, LONG, drop).err();
        let error = error.unwrap();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(&text));
    }
}

#[test]
fn without_inotify_auto_polls_and_says_what_to_raise() {
    let root = Root::new();
    let folders = root.folders();
    // No further descriptor is to be had, which is how a lack of instances shows too.
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(3),
        ..limit
    };
    rustix::process::setrlimit(Resource::Nofile, none).unwrap();
    let auto = Watcher::new(&folders, Mode::Auto, LONG, drop);
    let forced = Watcher::new(&folders, Mode::Inotify, LONG, drop);
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    let (auto, forced) = (auto.unwrap(), forced.err().unwrap());
    assert!(auto.is_polling());
    for text in [auto.describe(), forced.to_string()] {
        assert!(text.contains("fs.inotify.max_user_instances"), "{text}");
    }
}

#[test]
fn an_idle_watcher_does_not_wake_up() {
    let root = Root::new();
    let before = wake_ups();
    let (_watcher, hints) = root.watch();
    let ours = || {
        let mut found = wake_ups();
        found.retain(|id, _| !before.contains_key(id));
        found
    };
    hints_until_mark(&hints, &root.path("pending"));
    // Both threads go to sleep, and then stay asleep.
    let stays = || {
        let first = ours();
        assert_eq!(hints.recv_timeout(Duration::from_millis(300)).ok(), None);
        // A new thread has its name only once it runs.
        first.len() == 2 && first == ours()
    };
    assert!((0..60).any(|_| stays()));
}

/// How often each of the watchers' threads went to sleep.
fn wake_ups() -> HashMap<String, String> {
    let mut found = HashMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let slept = status.lines().find(|l| l.starts_with("voluntary_ctxt"));
        if let Some(slept) = slept
            && (name.starts_with("notify-rs") || name.starts_with("handoffd-watch"))
        {
            let id = task.file_name().to_string_lossy().into_owned();
            found.insert(id, slept.to_owned());
        }
    }
    found
}
