//! Many processes that change one state, some of which are killed.
//!
//! A writer is this very program, called again for its `writer` test. How many rounds each of
//! the two hundred makes is set by `TASKS_ROUNDS`; 50 is what the store promises, and fewer are
//! the habit, because a test must not take a minute.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use handoffd::durable::Durability;
use handoffd::protocol::task::{TaskId, TaskState};
use handoffd::store::tasks::{Store, StoreError};
use serde_json::{Map, Value, json};

use crate::Root;

const WRITERS: usize = 200;
const FEW_ROUNDS: u64 = 5;

fn store(root: &Path) -> Store {
    // Two hundred want one lock, on any machine: the last of them may wait longer than usual.
    Store::new(root, Durability::Relaxed).waiting(Duration::from_secs(120))
}

fn task() -> TaskId {
    TaskId::parse("shared").unwrap()
}

fn begin(root: &Root) -> Store {
    let Value::Object(doc) = json!({"task_id": "shared", "version": 1, "counts": {}}) else {
        panic!()
    };
    let store = store(root.dir());
    store.save(&TaskState::from_document(doc).unwrap()).unwrap();
    store
}

/// The state with one more in `name`'s place.
fn counted(mut state: TaskState, name: &str) -> TaskState {
    let mut counts = counts(&state).clone();
    let count = counts.get(name).and_then(Value::as_u64).unwrap_or(0);
    counts.insert(name.to_owned(), (count + 1).into());
    state.set("counts", counts);
    state.raise_version();
    state
}

/// One read, one change, one save; again if somebody else was faster.
fn count_one_up(store: &Store, name: &str) {
    let next = |state: Option<TaskState>| Ok::<_, StoreError>(Some(counted(state.unwrap(), name)));
    store.update(&task(), next).unwrap();
}

/// The same with nothing but loads and saves, as an agent would do it.
fn count_one_up_plainly(store: &Store, name: &str) {
    loop {
        let state = store.load(&task()).unwrap().unwrap();
        match store.save(&counted(state, name)) {
            Ok(_) => return,
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn counts(state: &TaskState) -> &Map<String, Value> {
    state.document()["counts"].as_object().unwrap()
}

/// Not a test but the other processes of the tests below: without their variables it does nothing.
#[test]
fn writer() {
    let Some(root) = std::env::var_os("TASKS_WRITER_ROOT") else {
        return;
    };
    let name = std::env::var("TASKS_WRITER").unwrap();
    let rounds: u64 = std::env::var("TASKS_WRITER_ROUNDS")
        .unwrap()
        .parse()
        .unwrap();
    let root = Path::new(&root);
    let mut saved = OpenOptions::new()
        .create(true)
        .append(true)
        .open(root.join(format!("{name}.saved")))
        .unwrap();
    let store = store(root);
    for _ in 0..rounds {
        if name.starts_with("plain") {
            count_one_up_plainly(&store, &name);
        } else {
            count_one_up(&store, &name);
        }
        saved.write_all(b".").unwrap();
    }
}

fn start(root: &Root, name: &str, rounds: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "race::writer", "--quiet"])
        .env("TASKS_WRITER_ROOT", root.dir())
        .env("TASKS_WRITER", name)
        .env("TASKS_WRITER_ROUNDS", rounds.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Reads the file again and again until told to stop: it must always be whole, and its version
/// never less than it was. Gives the number of looks.
fn watch(root: &Root, stop: &AtomicBool) -> u64 {
    let path = root.path("context/state/shared.json");
    let (mut looks, mut newest) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let bytes = fs::read(&path).unwrap();
        let doc: Value = serde_json::from_slice(&bytes).expect("a whole document");
        let version = doc["version"].as_u64().unwrap();
        assert!(version >= newest, "{version} after {newest}");
        let counts = doc["counts"].as_object().unwrap().values();
        let sum: u64 = counts.map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(version, sum + 1, "a version is one change");
        newest = version;
        looks += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    looks
}

/// Runs `work` while somebody reads.
fn while_watched(root: &Root, work: impl FnOnce()) -> u64 {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| watch(root, &stop));
        let stopping = Stop(&stop);
        work();
        drop(stopping);
        reader.join().unwrap()
    })
}

#[test]
fn two_hundred_writers_lose_nothing() {
    let rounds = std::env::var("TASKS_ROUNDS").map_or(FEW_ROUNDS, |text| text.parse().unwrap());
    let root = Root::new();
    let store = begin(&root);
    let begun = Instant::now();
    let looks = while_watched(&root, || {
        let mut writers: Vec<Child> = (0..WRITERS)
            .map(|n| start(&root, &format!("w{n}"), rounds))
            .collect();
        for writer in &mut writers {
            assert!(writer.wait().unwrap().success());
        }
    });
    let end = store.load(&task()).unwrap().unwrap();
    eprintln!(
        "version {} after {:?}, read {looks} times meanwhile",
        end.version(),
        begun.elapsed()
    );
    assert_eq!(end.version(), WRITERS as u64 * rounds + 1);
    assert_eq!(counts(&end).len(), WRITERS);
    assert!(
        counts(&end)
            .values()
            .all(|count| count.as_u64() == Some(rounds))
    );
    let history = store.history(&task()).unwrap();
    assert!(
        history
            .iter()
            .map(|line| line.version)
            .eq(1..=end.version())
    );
}

#[test]
fn writers_that_are_killed_leave_a_whole_state() {
    const KILLED: usize = 16;
    let name = |n: usize| match n % 2 {
        0 => format!("w{n}"),
        _ => format!("plain{n}"),
    };
    let root = Root::new();
    let store = begin(&root);
    let mut kills = vec![0; KILLED];
    while_watched(&root, || {
        let mut writers: Vec<Child> = (0..KILLED)
            .map(|n| start(&root, &name(n), u64::MAX))
            .collect();
        let begun = Instant::now();
        let mut seed = u64::from(std::process::id());
        while begun.elapsed() < Duration::from_secs(4) {
            // A small generator: the moments need to differ, not to be secret.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let victim = usize::try_from(seed >> 33).unwrap() % KILLED;
            std::thread::sleep(Duration::from_micros(seed >> 50));
            writers[victim].kill().unwrap();
            writers[victim].wait().unwrap();
            kills[victim] += 1;
            writers[victim] = start(&root, &name(victim), u64::MAX);
        }
        for (writer, kills) in writers.iter_mut().zip(&mut kills) {
            writer.kill().unwrap();
            writer.wait().unwrap();
            *kills += 1;
        }
    });
    let end = store.load(&task()).unwrap().unwrap();
    let mut sum = 0;
    for (n, kills) in kills.iter().enumerate() {
        let name = name(n);
        let told = fs::metadata(root.path(&format!("{name}.saved"))).map_or(0, |file| file.len());
        let count = counts(&end).get(&name).and_then(Value::as_u64).unwrap_or(0);
        // Each kill may have come between a save and its note.
        assert!(
            (told..=told + kills).contains(&count),
            "{name}: {count}, told {told}"
        );
        sum += count;
    }
    assert_eq!(end.version(), sum + 1);
    let kills: u64 = kills.iter().sum();
    eprintln!("version {} after {kills} kills", end.version());
    assert!(kills > KILLED as u64 && sum > 0);
    // Whatever they left, the next writer gets through.
    count_one_up(&store, "last");
    assert_eq!(store.load(&task()).unwrap().unwrap().version(), sum + 2);
    let history = store.history(&task()).unwrap();
    assert!(history.iter().map(|line| line.version).eq(1..=sum + 2));
    let left = fs::read_dir(root.path("context/state")).unwrap().count();
    assert_eq!(left, 3, "the state, its lock and its history");
}
