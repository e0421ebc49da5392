//! Bit rot: every byte of what is stored flipped, every truncation. Whatever is damaged is seen,
//! set aside or passed over; nothing crashes, nothing is guessed, and nobody else is lost.
//!
//! A root that has some of everything is made by a real daemon. Each damage is then given to
//! the very functions that a start reads that file with; a sample goes to real daemons.
//!
//! What can't be told: records carry no checksum, since people may edit a wait. A flip that
//! leaves a whole record is believed like an edit. How many those are stands in the row's note.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use handoffd::clock::Wall;
use handoffd::durable::Durability;
use handoffd::inspect::daemon::Daemon as Shown;
use handoffd::keeper::journal;
use handoffd::protocol::document;
use handoffd::protocol::lifecycle::State;
use handoffd::protocol::name::Ext;
use handoffd::protocol::record::Record;
use handoffd::spool::layout::Layout;
use handoffd::spool::recover::{Action, Attempt, Stands, decide};
use handoffd::store::artifacts::Artifacts;
use handoffd::store::audit::{self, AuditLog};
use handoffd::store::tasks::Store;
use serde_json::{Value, json};

use crate::common::{Daemon, Dice, Root, kill_keeper, orders, wait_until, with};
use crate::report::{Row, is_full, times};

/// How many files are damaged.
const FILES: usize = 50;

/// How many lines of the audit log are.
const LINES: usize = 12;

#[test]
fn every_byte_and_every_truncation_of_fifty_files_is_survived() {
    let mut row = Row::new("every byte of fifty stored files flipped, every truncation");
    let root = some_of_everything();
    let files = stored(&root);
    assert!(
        files.len() >= FILES,
        "only {} files: {files:?}",
        files.len()
    );
    // Short runs take every so many bytes, and other ones each time.
    let stride = if is_full() {
        1
    } else {
        times("bit_rot_stride", 41, 1)
    };
    let start = usize::try_from(std::process::id()).unwrap_or(0) % stride;
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut tally = Tally::default();
    for file in &files {
        let mut bytes = fs::read(root.path(file)).unwrap();
        if file.starts_with("audit/") {
            // The beginning of a log is a log; all of it would take most of the time.
            bytes = bytes
                .split_inclusive(|byte| *byte == b'\n')
                .take(LINES)
                .flatten()
                .copied()
                .collect();
        }
        for at in (start..bytes.len()).step_by(stride) {
            for flip in [0x01, 0x20, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                tally.judge(file, &bytes, &damaged, &format!("byte {at} ^ {flip:#x}"));
            }
            tally.judge(file, &bytes, &bytes[..at], &format!("cut at {at}"));
        }
    }
    std::panic::set_hook(quiet);
    row.tried_many(tally.tried);
    row.note(format!(
        "{} files; damages that leave a whole file which says something else, and can't be told \
         from an edit: {:?}",
        files.len(),
        tally.believed
    ));
    row.broke(tally.broken);
    row.finish();
}

#[test]
fn daemons_start_on_damaged_roots_and_lose_nobody_else() {
    let mut row = Row::new("a daemon on a root with a damaged file");
    let mut dice = Dice::thrown();
    for _ in 0..times("bit_rot", 5, 300) {
        row.tried(one_daemon(&mut dice));
    }
    row.finish();
}

/// A root with records in all folders, YAML, refusals, a task, artifacts, and attempts that
/// were running when the daemon was killed.
fn some_of_everything() -> Root {
    let root = Root::with("daemon.max_concurrent = 40\ndefaults.retry.max_retries = 1");
    let daemon = Daemon::start(&root);
    for n in 0..6 {
        let context = json!({ "context": { "task_id": format!("T-{n}"), "task_title": "Login" } });
        root.drop_request(&format!("task{n}"), &with(orders("exit 0"), context));
        let output = json!({ "expected_output": {
            "destination": format!("artifacts/a{n}.json"), "artifact_type": "source" } });
        let sh = "echo '{\"artifact\": {\"a\": 1}}'";
        root.drop_request(&format!("made{n}"), &with(orders(sh), output));
        root.drop_request(&format!("bad{n}"), &orders("echo sorry >&2; exit 64"));
        root.drop_bytes(&format!("broken{n}.json"), b"{\"target\": ");
        let yaml = format!("target:\n  agent_id: fake\ninput:\n  data:\n    sh: exit 0\nn: {n}\n");
        root.drop_bytes(&format!("yaml{n}.yaml"), yaml.as_bytes());
        let later = json!({ "not_before": "2999-01-01T00:00:00Z" });
        root.drop_request(&format!("later{n}"), &with(orders("mark ran"), later));
        let after = json!({ "depends_on": [format!("later{n}")] });
        root.drop_request(&format!("after{n}"), &with(orders("mark ran"), after));
        root.drop_request(&format!("busy{n}"), &orders("mark up; await go"));
    }
    for n in 0..6 {
        root.mark(&format!("busy{n}.up"));
        for id in ["task", "made", "yaml"] {
            root.completed(&format!("{id}{n}"));
        }
        for id in ["bad", "broken"] {
            root.failed(&format!("{id}{n}"));
        }
        for id in ["later", "after"] {
            root.record("waiting", &format!("{id}{n}"));
        }
    }
    wait_until("all is settled", || {
        root.names(".handoffd/tmp").is_empty().then_some(())
    });
    daemon.kill();
    root
}

/// The files that are damaged, from the root, some of each kind.
fn stored(root: &Root) -> Vec<String> {
    let mut files = Vec::new();
    let folders = [
        ("handoffs/in-progress", 6),
        ("handoffs/waiting", 10),
        ("handoffs/completed", 8),
        ("handoffs/failed", 10),
        (".handoffd/originals", 4),
        (".handoffd/run", 4),
        ("audit", 1),
        ("artifacts", 1),
        ("context/state", 12),
    ];
    for (folder, most) in folders {
        let kept = |name: &String| match folder {
            ".handoffd/run" => name.starts_with("attempts."),
            "artifacts" => name == "registry.jsonl",
            "context/state" => !name.starts_with('.') && name.rsplit('.').next() != Some("lock"),
            "audit" => name.starts_with("events-"),
            _ => true,
        };
        let names = root.names(folder).into_iter().filter(kept).take(most);
        files.extend(names.map(|name| format!("{folder}/{name}")));
    }
    files.push(".handoffd/daemon.json".to_owned());
    files.push("handoffd.toml".to_owned());
    files
}

#[derive(Default)]
struct Tally {
    tried: usize,
    /// Damages that leave something whole with another meaning.
    believed: BTreeMap<String, usize>,
    broken: Vec<String>,
}

impl Tally {
    fn judge(&mut self, file: &str, whole: &[u8], damaged: &[u8], how: &str) {
        self.tried += 1;
        match catch_unwind(AssertUnwindSafe(|| read(file, whole, damaged))) {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => {
                let folder = file.rsplit_once('/').map_or(file, |(folder, _)| folder);
                *self.believed.entry(folder.to_owned()).or_default() += 1;
            }
            Ok(Err(why)) => self.broken.push(format!("{file}, {how}: {why}")),
            Err(_) => self
                .broken
                .push(format!("{file}, {how}: a reader panicked")),
        }
    }
}

/// Reads a damaged file as a start does. `true` if the damage was seen or changes nothing,
/// `false` if another meaning is believed, an error if something was guessed.
fn read(file: &str, whole: &[u8], damaged: &[u8]) -> Result<bool, String> {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    match folder {
        "handoffs/in-progress" => Ok(record(State::InProgress, whole, damaged)?),
        "handoffs/waiting" => Ok(record(State::Waiting, whole, damaged)?),
        "handoffs/completed" | "handoffs/failed" => {
            let read = |bytes| Record::read(bytes).ok();
            Ok(read(damaged).is_none_or(|read_now| Some(read_now) == read(whole)))
        }
        ".handoffd/originals" => {
            // Kept for people, never read by a start.
            let _ = document::parse(damaged, Ext::Yaml);
            Ok(true)
        }
        "" => {
            // A configuration that can't be read is refused with its place.
            let _ = std::str::from_utf8(damaged).map(handoffd_config);
            Ok(true)
        }
        _ => in_place(folder, name, damaged),
    }
}

fn handoffd_config(text: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("handoffd.toml");
    fs::write(&path, text).unwrap();
    let _ = handoffd::config::Config::load(&path, true, dir.path());
}

fn record(folder: State, whole: &[u8], damaged: &[u8]) -> Result<bool, String> {
    let before = Stands::of(Record::document(whole), true);
    let stands = Stands::of(Record::document(damaged), true);
    let action = decide(folder, &stands, Attempt::Lost, false);
    match (&stands, action) {
        (_, Action::Reject | Action::LeaveAlone(_)) => Ok(true),
        (Stands::Ours(_), _) => Ok(stands == before),
        // What runs it as a new request guesses, unless it never said that it was ours.
        (Stands::Foreign, _) => match Record::document(damaged) {
            Some(doc) if doc.get("handoffd").is_none() && !has_status(&doc) => Ok(false),
            _ => Err("it would be run as a new request".to_owned()),
        },
        (_, action) => Err(format!("it would be dealt with as {action:?}")),
    }
}

fn has_status(doc: &serde_json::Map<String, Value>) -> bool {
    let status = doc.get("status").and_then(Value::as_str);
    status.is_some_and(|status| State::STATUSES.contains(&status))
}

/// The stores that are read as files of a folder.
fn in_place(folder: &str, name: &str, damaged: &[u8]) -> Result<bool, String> {
    let dir = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let home = dir.path().join(folder);
    fs::create_dir_all(&home).unwrap();
    let path = home.join(name);
    fs::write(&path, damaged).unwrap();
    match folder {
        ".handoffd/run" => match journal::read(&home) {
            Ok(_) => Ok(true),
            // A digit of the version: never guessed at.
            Err(error) if error.to_string().contains("newer") => Ok(true),
            Err(error) => Err(error.to_string()),
        },
        "audit" => audit_log(&home),
        "artifacts" => registry(dir.path()),
        "context/state" => {
            let store = Store::new(dir.path(), Durability::Relaxed);
            for task in store.tasks().map_err(|error| error.to_string())? {
                let _ = store.load(&task);
                let _ = store.history(&task);
            }
            Ok(true)
        }
        ".handoffd" => {
            let _ = Shown::of(&Layout::new(dir.path()));
            Ok(true)
        }
        other => Err(format!("nobody reads {other}")),
    }
}

/// A damaged log is opened, goes on, and its new lines are whole.
fn audit_log(home: &Path) -> Result<bool, String> {
    let told = |error: std::io::Error| error.to_string();
    let before = audit::verify(home).map_err(told)?;
    let (mut log, _) = AuditLog::open(home, Durability::Relaxed, Wall(0)).map_err(told)?;
    let line = audit::Event::new(Wall(0), "after");
    log.append(std::slice::from_ref(&line)).map_err(told)?;
    let last = audit::recent(home, 4096).map_err(told)?;
    if last.last().is_none_or(|last| last.event != "after") {
        return Err("what was said after the damage can't be read".to_owned());
    }
    let after = audit::verify(home).map_err(told)?;
    Ok(!before.is_sound() || !after.is_sound() || after.torn > before.torn)
}

/// A damaged registry can be read and added to.
fn registry(root: &Path) -> Result<bool, String> {
    let artifacts = Artifacts::new(root, Durability::Relaxed);
    artifacts
        .for_each(|_| {})
        .map_err(|error| error.to_string())?;
    artifacts.find("a0").map_err(|error| error.to_string())?;
    Ok(true)
}

/// One damaged file, one daemon: it starts, works, and everybody whose file was not hit ends as
/// if nothing had been.
fn one_daemon(dice: &mut Dice) -> Vec<String> {
    let root = some_of_everything();
    if dice.below(2) == 0 {
        kill_keeper(&root);
    }
    let files = stored(&root);
    let pick = |dice: &mut Dice, most: usize| {
        usize::try_from(dice.below(u64::try_from(most).unwrap())).unwrap()
    };
    // The configuration is a person's, and a start may refuse it.
    let file = files[pick(dice, files.len() - 1)].clone();
    let path: PathBuf = root.path(&file);
    let mut bytes = fs::read(&path).unwrap();
    let at = pick(dice, bytes.len().max(1));
    if dice.below(2) == 0 {
        bytes.truncate(at);
    } else if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << dice.below(8);
    }
    fs::write(&path, bytes).unwrap();
    let what = format!("{file} at {at}");
    let mut broken = Vec::new();
    if file.starts_with(".handoffd/run") && journal::read(&root.path(".handoffd/run")).is_err() {
        // Taken for a newer version's: refused with words.
        return broken;
    }
    let daemon = Daemon::start(&root);
    root.assert_works("well");
    root.allow("go");
    for n in 0..6 {
        for (kind, state) in [
            ("busy", "completed"),
            ("later", "waiting"),
            ("after", "waiting"),
        ] {
            let id = format!("{kind}{n}");
            if file.contains(&format!("/{id}.")) {
                ends_somewhere(&root, &id, &what);
                continue;
            }
            // Who depends on what was damaged fails with it.
            let hit = kind == "after" && file.contains(&format!("/later{n}."));
            if !hit {
                root.record(state, &id);
            }
            if kind != "busy" && root.path(&format!("marks/{id}.ran")).exists() {
                broken.push(format!("{what}: {id} ran before its time"));
            }
        }
    }
    if daemon.terminate() != Some(0) {
        broken.push(format!("{what}: the daemon did not leave in peace"));
    }
    let logs = root.names("daemon-log");
    let log = logs
        .last()
        .map(|name| fs::read_to_string(root.path("daemon-log").join(name)));
    if log.is_some_and(|log| log.unwrap_or_default().contains("panicked")) {
        broken.push(format!("{what}: something panicked"));
    }
    broken
}

/// The damaged one stands in exactly one place, and what was refused is kept.
fn ends_somewhere(root: &Root, id: &str, what: &str) {
    wait_until(&format!("{id} stands somewhere ({what})"), || {
        (root.states_of(id).len() == 1).then_some(())
    });
    if root.states_of(id) == ["failed"] {
        wait_until("its bytes", || {
            let kept = root.path(&format!("handoffs/failed/{id}.rejected"));
            let record = root.record_in("failed", id)?;
            (kept.exists() || record.get("rejected_file").is_none()).then_some(())
        });
    }
}
