//! The harness: a root of its own for each test, a daemon that is gone when the test is, and
//! waiting for what must become true instead of sleeping.

mod chaos;
mod daemon;
mod needs;
mod processes;
mod team;

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

pub use chaos::{Dice, ended, kill_all, kill_keeper, kill_keeper_at};
pub use daemon::{Daemon, program_for};
pub use needs::skip;
pub use processes::{attempts, find_keeper, is_alive, keeper, keepers, kill};
pub use team::{ask, child, children};

/// How long anything may take before it counts as hanging. Generous: machines are loaded. Where
/// it is meant to hang, `TORTURE_PATIENCE` says for how many seconds.
fn patience() -> Duration {
    let told = std::env::var("TORTURE_PATIENCE").ok();
    Duration::from_secs(told.and_then(|told| told.parse().ok()).unwrap_or(60))
}

pub const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/fake.sh");
const STATES: [&str; 5] = ["pending", "in-progress", "waiting", "completed", "failed"];

/// What every root has unless the test says otherwise.
const BASE: [(&str, &str); 5] = [
    ("daemon.settle", "'50ms'"),
    ("daemon.rescan", "'1s'"),
    ("defaults.kill_grace", "'500ms'"),
    ("defaults.retry.delay", "'50ms'"),
    ("defaults.timeout", "'2m'"),
];

/// Waits until `look` finds something.
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < patience(), "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A request that gives the fake specialist its orders.
pub fn orders(sh: &str) -> Value {
    json!({ "target": { "agent_id": "@fake" }, "input": { "data": { "sh": sh } } })
}

/// Lays the fields of `over` on a request.
pub fn with(mut request: Value, over: Value) -> Value {
    let (Value::Object(map), Value::Object(over)) = (&mut request, over) else {
        panic!("not objects")
    };
    map.extend(over);
    request
}

pub struct Root {
    dir: PathBuf,
    /// Removed with the root, where the folder is its own.
    _own: Option<TempDir>,
}

impl Root {
    pub fn new() -> Self {
        Self::with("")
    }

    /// A root whose configuration has these lines (`daemon.max_concurrent = 1`) besides the
    /// usual ones.
    pub fn with(config: &str) -> Self {
        Self::within(&std::env::temp_dir(), config)
    }

    /// Like [`with`](Self::with), in a folder of the test's choice.
    pub fn within(folder: &Path, config: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("handoffd-e2e-")
            .tempdir_in(folder)
            .unwrap();
        Self::make(dir.path().to_owned(), Some(dir), config)
    }

    /// The same in a folder that is there, such as a disk of the test's own.
    pub fn at(dir: &Path, config: &str) -> Self {
        Self::make(dir.to_owned(), None, config)
    }

    fn make(dir: PathBuf, own: Option<TempDir>, config: &str) -> Self {
        let root = Self { dir, _own: own };
        root.configure(config);
        for folder in ["handoffs/pending", "handoffs/control", "marks"] {
            fs::create_dir_all(root.path(folder)).unwrap();
        }
        root
    }

    pub fn configure(&self, config: &str) {
        let mut text = String::new();
        for (key, value) in BASE {
            if !config.contains(key) {
                writeln!(text, "{key} = {value}").unwrap();
            }
        }
        writeln!(text, "specialists.'@fake'.command = ['sh', '{FAKE}']").unwrap();
        fs::write(self.path("handoffd.toml"), text + config + "\n").unwrap();
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.join(below)
    }

    pub fn pending(&self, name: &str) -> PathBuf {
        self.path("handoffs/pending").join(name)
    }

    pub fn state(&self, state: &str, id: &str) -> PathBuf {
        self.path(&format!("handoffs/{state}/{id}.json"))
    }

    /// Deletes a folder that the daemon may write into meanwhile.
    pub fn remove_folder(&self, below: &str) {
        let path = self.path(below);
        wait_until("the folder is deleted", || {
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => None,
                Err(error) if error.kind() != ErrorKind::NotFound => panic!("{below}: {error}"),
                _ => Some(()),
            }
        });
    }

    /// Drops a request as one should: under another name first.
    pub fn drop_request(&self, id: &str, request: &Value) {
        self.drop_bytes(&format!("{id}.json"), request.to_string().as_bytes());
    }

    pub fn drop_bytes(&self, name: &str, bytes: &[u8]) {
        let temporary = self.pending(&format!(".{name}.tmp"));
        fs::write(&temporary, bytes).unwrap();
        fs::rename(temporary, self.pending(name)).unwrap();
    }

    pub fn command(&self, name: &str, command: &Value) {
        let temporary = self.path(&format!("handoffs/control/.{name}.tmp"));
        fs::write(&temporary, command.to_string()).unwrap();
        fs::rename(temporary, self.path("handoffs/control").join(name)).unwrap();
    }

    /// The record of `id` in this folder, if it is there now.
    pub fn record_in(&self, state: &str, id: &str) -> Option<Value> {
        let bytes = fs::read(self.state(state, id)).ok()?;
        // On its way out of pending/, a submission passes through here as its producer wrote it.
        let ours = b"\"handoffd\": {";
        if state == "waiting" && !bytes.windows(ours.len()).any(|part| part == ours) {
            return None;
        }
        Some(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            panic!("{state}/{id}.json is not whole JSON ({error})");
        }))
    }

    /// Waits until the record stands in this folder. Ending anywhere else is a failure.
    pub fn record(&self, state: &str, id: &str) -> Value {
        wait_until(&format!("{id} in {state}/"), || {
            if let Some(record) = self.record_in(state, id) {
                return Some(record);
            }
            for end in ["completed", "failed"] {
                if let Some(record) = self.record_in(end, id) {
                    assert_eq!(end, state, "{id} ended as {record:#}");
                }
            }
            None
        })
    }

    pub fn completed(&self, id: &str) -> Value {
        self.record("completed", id)
    }

    /// The record in `failed/`, and its error's code.
    pub fn failed(&self, id: &str) -> (Value, String) {
        let record = self.record("failed", id);
        let code = text(&record["error"]["code"]);
        (record, code)
    }

    /// Waits for a record in this folder that `fits`.
    pub fn record_that(&self, state: &str, id: &str, fits: impl Fn(&Value) -> bool) -> Value {
        wait_until(&format!("{id} in {state}/ as wanted"), || {
            self.record_in(state, id).filter(|record| fits(record))
        })
    }

    /// The state folders that hold this id.
    pub fn states_of(&self, id: &str) -> Vec<&'static str> {
        STATES
            .into_iter()
            .filter(|state| self.state(state, id).exists())
            .collect()
    }

    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Waits for a mark that the specialist leaves, and reads it.
    pub fn mark(&self, name: &str) -> String {
        wait_until(&format!("the mark {name}"), || {
            fs::read_to_string(self.path("marks").join(name))
                .ok()
                .filter(|text| text.ends_with('\n'))
        })
    }

    /// Waits for a mark with a pid.
    pub fn pid_mark(&self, name: &str) -> i32 {
        self.mark(name).trim().parse().unwrap()
    }

    /// Lets attempts go on that await this mark.
    pub fn allow(&self, name: &str) {
        fs::write(self.path("marks").join(name), "").unwrap();
    }

    /// The daemon's problems, as it shows them.
    pub fn problems(&self) -> String {
        let bytes = fs::read(self.path(".handoffd/daemon.json")).unwrap_or_default();
        let shown: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        shown["problems"].to_string()
    }

    /// All that daemons on this root have logged.
    pub fn log(&self) -> String {
        let read = |name: String| fs::read_to_string(self.path("daemon-log").join(name)).unwrap();
        self.names("daemon-log").into_iter().map(read).collect()
    }

    /// How many lines of the audit log tell this event of this handoff.
    pub fn told(&self, id: &str, event: &str) -> usize {
        let lines = self.names("audit").into_iter().flat_map(|name| {
            let text = fs::read_to_string(self.path("audit").join(name)).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines
        });
        lines
            .filter_map(|line| serde_json::from_str::<Value>(&line).ok())
            .filter(|line| line["handoff_id"] == id && line["event"] == event)
            .count()
    }

    /// A small request, dropped now, is completed: the daemon is well.
    pub fn assert_works(&self, id: &str) {
        self.drop_request(id, &orders("exit 0"));
        self.completed(id);
    }

    pub fn assert_audit_is_sound(&self) {
        let verdict = handoffd::store::audit::verify(&self.path("audit")).unwrap();
        assert!(verdict.is_sound(), "{verdict:#?}");
        assert!(verdict.lines > 0);
    }

    /// Runs `handoffd` with these arguments on this root, to its end.
    pub fn cli(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_handoffd"))
            .args(args)
            .arg("--root")
            .arg(self.dir())
            .output()
            .unwrap()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for state in STATES {
                eprintln!("{state}/: {:?}", self.names_quietly(state));
            }
            for name in self.names_quietly("../daemon-log") {
                let log = fs::read_to_string(self.path("daemon-log").join(&name));
                eprintln!("--- {name}\n{}", log.unwrap_or_default());
            }
            // For a closer look at what a rare failure left: a folder to copy the root to.
            if let Some(keep) = std::env::var_os("E2E_KEEP") {
                let _ = Command::new("cp")
                    .arg("-a")
                    .arg(self.dir())
                    .arg(keep)
                    .status();
            }
        }
        processes::sweep(self.dir());
    }
}

impl Root {
    fn names_quietly(&self, state: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("handoffs").join(state)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .take(200)
            .collect();
        names.sort();
        names
    }
}

pub fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("no text: {value}"))
        .to_owned()
}

/// The outcomes of a record's attempts, in order.
pub fn outcomes(record: &Value) -> Vec<String> {
    let attempts = record["handoffd"]["attempts"].as_array().unwrap();
    attempts
        .iter()
        .map(|attempt| text(&attempt["outcome"]))
        .collect()
}
