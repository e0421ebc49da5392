//! Files and folders that are exchanged for links while the daemon opens them.
//!
//! A thread of each kind swaps without rest; producers drop requests that lead there all the
//! while. What is outside must neither change nor show up in the root, whoever was faster.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use crate::canary::Outside;
use crate::common::{Daemon, Root, orders, wait_until, with};
use crate::report::{Row, times};

/// One place that is now this, now that.
struct Swap {
    place: PathBuf,
    other: PathBuf,
}

impl Swap {
    /// The two are at the place in turns.
    fn new(place: PathBuf, make: impl FnOnce(&Path), target: &Path) -> Self {
        make(&place);
        let mut other = place.clone().into_os_string();
        other.push(".swap.tmp");
        let name = Path::new(&other).file_name().unwrap();
        let other = place.with_file_name(format!(".{}", name.to_string_lossy()));
        symlink(target, &other).unwrap();
        Self { place, other }
    }

    /// False if somebody took one of the two away.
    fn once(&self) -> bool {
        renameat_with(CWD, &self.place, CWD, &self.other, RenameFlags::EXCHANGE).is_ok()
    }
}

/// Swaps what is handed over, round and round, until it is enough.
fn swap_until(swaps: &[Swap], done: &AtomicBool, count: &AtomicUsize) {
    while !done.load(Ordering::SeqCst) {
        for swap in swaps {
            if swap.once() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
        std::thread::yield_now();
    }
}

/// A file in `pending/` or `control/` that is now a request of its own, now a link to one
/// outside; again and again, since the daemon takes it away.
fn swap_drops(folder: &Path, target: &Path, done: &AtomicBool, count: &AtomicUsize) {
    let mut number = 0;
    while !done.load(Ordering::SeqCst) {
        number += 1;
        let place = folder.join(format!("swap-{number}.json"));
        let other = folder.join(format!(".swap-{number}.json.tmp"));
        symlink(target, &other).unwrap();
        fs::write(&place, orders("exit 0").to_string()).unwrap();
        while renameat_with(CWD, &other, CWD, &place, RenameFlags::EXCHANGE).is_ok() {
            count.fetch_add(1, Ordering::SeqCst);
            if done.load(Ordering::SeqCst) {
                break;
            }
        }
        let _ = fs::remove_file(other);
    }
}

fn write(bytes: &'static str) -> impl FnOnce(&Path) {
    move |path| fs::write(path, bytes).unwrap()
}

fn folder(path: &Path) {
    fs::create_dir_all(path).unwrap();
}

/// What is swapped where requests lead to.
fn targets(root: &Root, outside: &Outside) -> Vec<Swap> {
    for made in [
        "schemas/deep",
        "artifacts",
        "context/state",
        "handoffs/waiting",
    ] {
        folder(&root.path(made));
    }
    let at = |below: &str| root.path(below);
    let out = |name: &str| outside.path(name);
    let state = r#"{"task_id": "swapped"}"#;
    vec![
        Swap::new(at("schemas/s.json"), write("{}"), &out("schema.json")),
        Swap::new(
            at("schemas/dir"),
            |path| {
                folder(path);
                fs::write(path.join("schema.json"), "{}").unwrap();
            },
            outside.dir(),
        ),
        Swap::new(at("artifacts/dest"), folder, &out("folder")),
        Swap::new(
            at("artifacts/outer"),
            |path| folder(&path.join("folder")),
            outside.dir(),
        ),
        Swap::new(
            at("artifacts/needed.txt"),
            write("inside"),
            &out("secret.txt"),
        ),
        Swap::new(
            at("artifacts/told"),
            |path| {
                folder(path);
                fs::write(path.join("secret.txt"), "inside").unwrap();
            },
            outside.dir(),
        ),
        Swap::new(
            at("context/state/swapped.json"),
            write(state),
            &out("state.json"),
        ),
        Swap::new(
            at("context/project-context.json"),
            write("{}"),
            &out("state.json"),
        ),
    ]
}

fn request(number: usize) -> Value {
    let write = orders("echo text > \"$HANDOFF_ARTIFACT.x\" 2>/dev/null; exit 0");
    let text = |path: String| {
        let made = "result '{\"status\": \"complete\", \"artifact\": \"inside\"}'";
        with(
            orders(made),
            json!({ "expected_output": { "destination": path } }),
        )
    };
    match number % 8 {
        0 => with(
            orders("exit 0"),
            json!({ "input": { "schema": "s.json", "data": { "sh": "exit 0" } } }),
        ),
        1 => with(
            orders("exit 0"),
            json!({ "input": { "schema": "dir/schema.json", "data": { "sh": "exit 0" } } }),
        ),
        2 => text(format!("artifacts/dest/{number}.txt")),
        3 => text(format!("artifacts/outer/folder/{number}.txt")),
        4 => with(
            orders("exit 0"),
            json!({ "requires_artifacts": ["artifacts/needed.txt"] }),
        ),
        5 => orders(
            "result '{\"status\": \"complete\", \"artifacts\": [\"artifacts/told/secret.txt\"]}'",
        ),
        6 => with(
            orders("exit 0"),
            json!({ "context": { "task_id": "swapped" } }),
        ),
        _ => write,
    }
}

#[test]
fn links_that_are_put_in_place_meanwhile_lead_nowhere() {
    let mut row = Row::new("swaps of files for links");
    let enough = times("swaps", 20_000, 1_000_000);
    let config = "defaults.dependency_wait = '50ms'\ndefaults.retry.max_retries = 0\n\
                  daemon.settle = '1ms'";
    let (root, outside) = (Root::with(config), Outside::new());
    let swaps = targets(&root, &outside);
    let daemon = Daemon::start(&root);
    let (done, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut dropped = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| swap_until(&swaps, &done, &count));
        let pending = root.path("handoffs/pending");
        let (request, control) = (outside.path("request.json"), root.path("handoffs/control"));
        let (done, count) = (&done, &count);
        scope.spawn(move || swap_drops(&pending, &request, done, count));
        let request = outside.path("request.json");
        scope.spawn(move || swap_drops(&control, &request, done, count));
        // As many at once as find room, for as long as it is not enough.
        while count.load(Ordering::SeqCst) < enough || dropped < 64 {
            root.drop_request(&format!("r{dropped}"), &self::request(dropped));
            dropped += 1;
            if dropped % 32 == 0 {
                root.assert_works(&format!("good-{dropped}"));
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    let mut completed = 0;
    for number in 0..dropped {
        let id = format!("r{number}");
        let state = wait_until(&format!("{id} to end"), || {
            let ended = ["completed", "failed"];
            ended
                .into_iter()
                .find(|state| root.record_in(state, &id).is_some())
        });
        completed += usize::from(state == "completed");
    }
    wait_until("pending/ to be empty", || {
        let left = root.names("handoffs/pending");
        left.iter().all(|name| name.starts_with('.')).then_some(())
    });
    row.tried_many(count.load(Ordering::SeqCst));
    row.note(format!(
        "{dropped} requests meanwhile, {completed} completed"
    ));
    // Else one side of the swaps was never there.
    assert!(
        (1..dropped).contains(&completed),
        "{completed} of {dropped}"
    );
    row.tried(outside.broken(root.dir(), &[]));
    root.assert_works("after");
    daemon.terminate();
    row.finish();
}
