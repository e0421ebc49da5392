//! What a daemon is doing when a fault falls, and what must have come of it in the end.
//!
//! The roots lie in memory, where syncs are quick; they are made all the same. Waits are short,
//! so that thousands of faults can be tried.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Root, attempts, kill, orders, with};
use crate::tracer::{self, Deed, Ended, Fault, Kind};

/// The keeper leaves a root that has nothing for it after one second.
const LEAVING: Duration = Duration::from_millis(1300);
/// How long a daemon without faults may take. What is killed for this is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = "
daemon.max_concurrent = 2
daemon.rescan = '200ms'
daemon.settle = '5ms'
defaults.kill_grace = '20ms'
defaults.retry.delay = '5ms'
defaults.retry.max_retries = 1
defaults.timeout = '30s'
routes.blocked.unknown = '@guard'
specialists.'@guard'.command = ['sh', 'guard.sh']
";

/// The helper of whoever is blocked; it takes the same notes.
const GUARD: &str = r#"note=marks/$HANDOFF_ID.notes
echo "start $HANDOFF_ATTEMPT" >>"$note"
echo '{"status": "complete", "summary": "ask again"}'
"#;

/// Fails when it is run first, whatever the number of that attempt is.
const SECOND_TIME: &str = "if [ -e $HANDOFF_ROOT/marks/$HANDOFF_ID.once ]; then alone true; \
                           else alone mark once; exit 1; fi";

/// Is blocked when it is run first.
const BLOCKED: &str = "if [ -e $HANDOFF_ROOT/marks/$HANDOFF_ID.once ]; then alone true; \
                       else alone mark once; cat $HANDOFF_ROOT/blocked.json; exit 1; fi";
const REPORT: &str = r#"{"status": "blocked", "blocked_reason": "unknown", "phase": "p",
    "attempted": ["a"], "summary": "s", "handoff": {"next_agent": null, "context": "c",
    "blockers": [{"description": "d"}]}}"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// An artifact, a request in YAML, and a file that is refused.
    Success,
    Retry,
    Timeout,
    BlockedAndReturn,
    /// A start after a crash in the middle of all of it.
    Recovery,
}

pub const ALL: [Scenario; 5] = [
    Scenario::Success,
    Scenario::Retry,
    Scenario::Timeout,
    Scenario::BlockedAndReturn,
    Scenario::Recovery,
];

/// What must have become of one id.
struct Expected {
    id: &'static str,
    folder: &'static str,
    /// The attempts' outcomes, without those that never began.
    outcomes: &'static [&'static str],
    code: Option<&'static str>,
}

const ARTIFACT: Expected = Expected {
    id: "a",
    folder: "completed",
    outcomes: &["completed"],
    code: None,
};
const YAML: Expected = Expected {
    id: "y",
    ..ARTIFACT
};
const REFUSED: Expected = Expected {
    id: "b",
    folder: "failed",
    outcomes: &[],
    code: Some("SCHEMA_VALIDATION_FAILED"),
};
const RETRIED: Expected = Expected {
    id: "r",
    folder: "completed",
    outcomes: &["failed", "completed"],
    code: None,
};
const TIMED_OUT: Expected = Expected {
    id: "t",
    folder: "failed",
    outcomes: &["timeout", "timeout"],
    code: Some("TIMEOUT"),
};
const HELPED: Expected = Expected {
    id: "x",
    folder: "completed",
    outcomes: &["blocked", "completed"],
    code: None,
};

impl Scenario {
    fn expected(self) -> &'static [Expected] {
        match self {
            Self::Success => &[ARTIFACT, YAML, REFUSED],
            Self::Retry => &[RETRIED],
            Self::Timeout => &[TIMED_OUT],
            Self::BlockedAndReturn => &[HELPED],
            Self::Recovery => &[ARTIFACT, REFUSED, RETRIED, HELPED],
        }
    }

    /// A root with the scenario's requests in it, and the crash where that is part of it.
    pub fn root(self) -> Root {
        let root = Root::within(&memory(), CONFIG);
        fs::write(root.path("guard.sh"), GUARD).unwrap();
        fs::write(root.path("blocked.json"), REPORT).unwrap();
        for expected in self.expected() {
            submit(&root, expected.id);
        }
        if self == Self::Recovery {
            // Where all four are on their way; the exact state differs from time to time.
            let fault = Fault {
                deed: Deed::KillBefore,
                at: 9,
                stretch: 1,
                falls_on: |call| call.kind == Kind::Move,
            };
            let ended = traced(&root, fault);
            assert!(ended.struck.is_some(), "the crash before did not come");
        }
        root
    }
}

fn submit(root: &Root, id: &str) {
    match id {
        "a" => {
            let sh = r#"alone true; echo '{"artifact": {"made": "whole"}}'"#;
            let destination = json!({ "destination": "artifacts/{handoff_id}.json" });
            let request = with(orders(sh), json!({ "expected_output": destination }));
            root.drop_request(id, &request);
        }
        "y" => root.drop_bytes(
            "y.yaml",
            b"target: {agent_id: '@fake'}\ninput: {data: {sh: alone true}}\n",
        ),
        "b" => root.drop_bytes("b.json", b"{ \"broken\": "),
        "r" => root.drop_request(id, &orders(SECOND_TIME)),
        "t" => {
            let limits = json!({ "timeout_seconds": 0.1 });
            root.drop_request(id, &with(orders("alone forever"), limits));
        }
        "x" => root.drop_request(id, &orders(BLOCKED)),
        other => panic!("no request {other}"),
    }
}

/// A folder in memory, or the usual one where there is none.
fn memory() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        shared.to_owned()
    } else {
        std::env::temp_dir()
    }
}

fn daemon(root: &Root, more: &[&str]) -> Command {
    let logs = root.path("daemon-log");
    fs::create_dir_all(&logs).unwrap();
    let number = fs::read_dir(&logs).unwrap().count();
    let log = File::create(logs.join(format!("{number:02}.log"))).unwrap();
    // A full run may name a daemon that was built for speed.
    let program = std::env::var_os("TORTURE_DAEMON");
    let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_handoffd").into());
    let mut command = Command::new(program);
    command
        .args(["run", "--root"])
        .arg(root.dir())
        .args(more)
        .env("HANDOFFD_LOG", "debug")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command
}

/// A daemon that works off what is there, with a fault in it.
pub fn traced(root: &Root, fault: Fault) -> Ended {
    tracer::run(&mut daemon(root, &["--drain"]), root.dir(), fault).unwrap()
}

/// A daemon with a fault in it that is stopped when all has ended, and must come to that by
/// itself.
pub fn traced_to_the_end(root: &Root, scenario: Scenario, fault: Fault) -> Ended {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = |pid: i32| {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) && !has_ended(root, scenario) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                if !over.load(Ordering::Relaxed) {
                    kill(pid, Signal::TERM);
                }
            });
        };
        let ended = tracer::run_watched(&mut daemon(root, &[]), root.dir(), fault, watch);
        over.store(true, Ordering::Relaxed);
        ended.unwrap()
    })
}

fn has_ended(root: &Root, scenario: Scenario) -> bool {
    let is_empty = |folder: &str| {
        let entries = fs::read_dir(root.path("handoffs").join(folder));
        entries.is_ok_and(|mut entries| entries.next().is_none())
    };
    let ends = |expected: &Expected| {
        let ends = ["completed", "failed"];
        ends.iter().any(|end| root.state(end, expected.id).exists())
    };
    scenario.expected().iter().all(ends)
        && ["pending", "in-progress", "waiting"]
            .into_iter()
            .all(is_empty)
        && fs::read_dir(root.path(".handoffd/rejecting"))
            .is_ok_and(|mut entries| entries.next().is_none())
}

/// A daemon that works off what is there, undisturbed. What is wrong with how it ended.
pub fn undisturbed(root: &Root) -> Option<String> {
    let mut child = daemon(root, &["--drain"]).spawn().unwrap();
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (!status.success()).then(|| format!("the next daemon ended with {status}"));
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            return Some("the next daemon came to no end".to_owned());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(8));
    }
}

/// How exact the end has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strict {
    /// Nothing but the daemon was disturbed: what came out is what would have anyway.
    Exactly,
    /// An error may have cost an attempt, or even the handoff; but it says so.
    Honestly,
}

/// Everything that is wrong with a root on which a scenario has ended.
pub fn breaches(root: &Root, scenario: Scenario, strict: Strict) -> Vec<String> {
    let mut found = Vec::new();
    let mut ids: Vec<String> = Vec::new();
    for expected in scenario.expected() {
        ids.push(expected.id.to_owned());
        match record_of(root, expected.id) {
            Ok((folder, record)) => {
                found.extend(unlike(expected, folder, &record, strict));
                let children = record["handoffd"]["children"].as_array();
                let children = children.into_iter().flatten().filter_map(Value::as_str);
                for child in children {
                    ids.push(child.to_owned());
                    match record_of(root, child) {
                        Ok(("completed", _)) => {}
                        Ok((folder, record)) if strict == Strict::Exactly => {
                            found.push(format!("the helper {child} is in {folder}: {record}"));
                        }
                        Ok(_) => {}
                        Err(what) => found.push(what),
                    }
                }
            }
            Err(what) => found.push(what),
        }
        found.extend(notes(root, expected, strict));
    }
    found.extend(leftovers(root));
    found.extend(endings(root, &ids));
    found.extend(artifacts(root, scenario, strict));
    match handoffd::inspect::deep::examine_root(root.dir()) {
        Ok(report) => found.extend(report.breaches.iter().map(|breach| format!("{breach:?}"))),
        Err(error) => found.push(format!("check --deep: {error}")),
    }
    let alive = attempts(root.dir());
    if !alive.is_empty() {
        found.push(format!("processes of attempts are alive: {alive:?}"));
    }
    let panicked = root.names("daemon-log").iter().any(|name| {
        let log = fs::read_to_string(root.path("daemon-log").join(name));
        log.is_ok_and(|log| log.contains("panicked"))
    });
    if panicked {
        found.push("a thread of a daemon panicked".to_owned());
    }
    found
}

fn record_of(root: &Root, id: &str) -> Result<(&'static str, Value), String> {
    let states = root.states_of(id);
    let [state] = states[..] else {
        return Err(format!("{id} stands in {states:?}"));
    };
    let bytes = fs::read(root.state(state, id)).map_err(|error| format!("{id}: {error}"))?;
    match serde_json::from_slice(&bytes) {
        Ok(record) => Ok((state, record)),
        Err(error) => Err(format!("{state}/{id}.json is not whole: {error}")),
    }
}

fn unlike(expected: &Expected, folder: &str, record: &Value, strict: Strict) -> Vec<String> {
    let mut found = Vec::new();
    let id = expected.id;
    let outcomes = begun(record);
    let is_exact = folder == expected.folder && outcomes == expected.outcomes;
    let is_honest = match folder {
        "completed" => expected.folder == "completed",
        "failed" => {
            let message = record["error"]["message"].as_str();
            message.is_some_and(|message| !message.is_empty())
        }
        _ => false,
    };
    if !(is_exact || is_honest && strict == Strict::Honestly) {
        let error = &record["error"];
        found.push(format!("{id} is in {folder} after {outcomes:?}: {error}"));
    }
    let error = &record["error"];
    if strict == Strict::Exactly
        && let Some(code) = expected.code
        && error["code"] != code
    {
        found.push(format!("{id} failed otherwise: {error}"));
    }
    // Also where a refusal was cut in half, its notice has the place of the mistake.
    let reason = error["message"].as_str().unwrap_or_default();
    if strict == Strict::Exactly && id == REFUSED.id && !reason.contains("line 1, column") {
        found.push(format!("{id} has lost its reason: {error}"));
    }
    found
}

/// The outcomes of the attempts that began.
fn begun(record: &Value) -> Vec<&str> {
    let listed = record["handoffd"]["attempts"].as_array();
    let outcomes = listed
        .into_iter()
        .flatten()
        .map(|attempt| attempt["outcome"].as_str().unwrap_or("none"));
    outcomes
        .filter(|outcome| *outcome != "interrupted")
        .collect()
}

/// What the specialist saw of its attempts.
fn notes(root: &Root, expected: &Expected, strict: Strict) -> Vec<String> {
    let id = expected.id;
    let path = root.path("marks").join(format!("{id}.notes"));
    let notes = fs::read_to_string(path).unwrap_or_default();
    let mut found = Vec::new();
    if notes.contains("overlap") {
        found.push(format!("two attempts of {id} at once: {notes:?}"));
    }
    let starts = notes.lines().filter(|line| line.starts_with("start"));
    let (starts, wanted) = (starts.count(), expected.outcomes.len());
    // One that is ended early may not have got as far as to take notes.
    let fits = starts == wanted || expected.code == Some("TIMEOUT") && starts < wanted;
    if !fits && strict == Strict::Exactly {
        found.push(format!("{id} was begun {starts} times, not {wanted}"));
    }
    found
}

fn leftovers(root: &Root) -> Vec<String> {
    let folders = [
        "handoffs/pending",
        "handoffs/in-progress",
        "handoffs/waiting",
        ".handoffd/tmp",
        ".handoffd/rejecting",
        ".handoffd/aside",
        ".handoffd/spares",
    ];
    let left = |folder: &&str| !root.names(folder).is_empty();
    let name = |folder: &str| format!("{folder} has {:?}", root.names(folder));
    folders.into_iter().filter(left).map(name).collect()
}

/// Each id has ended once, and the log of it has no gap.
fn endings(root: &Root, ids: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    match handoffd::store::audit::verify(&root.path("audit")) {
        Ok(verdict) if verdict.is_sound() => {}
        Ok(verdict) => found.push(format!("the audit log: {verdict:?}")),
        Err(error) => found.push(format!("the audit log: {error}")),
    }
    let mut lines: Vec<Value> = Vec::new();
    for name in root.names("audit") {
        let Ok(text) = fs::read_to_string(root.path("audit").join(name)) else {
            continue;
        };
        lines.extend(
            text.lines()
                .filter_map(|line| serde_json::from_str(line).ok()),
        );
    }
    for id in ids {
        let is_start =
            |line: &&Value| line["handoff_id"] == id.as_str() && line["event"] == "started";
        let starts = lines.iter().filter(is_start).count();
        let begun = record_of(root, id).map_or(0, |(_, record)| begun(&record).len());
        if starts < begun {
            found.push(format!(
                "{id} was begun {begun} times, and the log tells of {starts}"
            ));
        }
        let ends = lines.iter().filter(|line| {
            let to = line["to"].as_str();
            line["handoff_id"] == id.as_str() && matches!(to, Some("completed" | "failed"))
        });
        let ends: Vec<&Value> = ends.collect();
        if ends.len() != 1 {
            found.push(format!(
                "{id} ended {} times by the log: {ends:?}",
                ends.len()
            ));
        }
    }
    let ended: usize = ["completed", "failed"]
        .iter()
        .map(|end| root.names(&format!("handoffs/{end}")))
        .map(|names| {
            names
                .iter()
                .filter(|name| has_extension(name, "json"))
                .count()
        })
        .sum();
    if ended != ids.len() {
        found.push(format!("{ended} have ended, and {ids:?} were asked for"));
    }
    found
}

fn artifacts(root: &Root, scenario: Scenario, strict: Strict) -> Vec<String> {
    let has_one = scenario.expected().iter().any(|it| it.id == ARTIFACT.id);
    if !has_one || !root.state("completed", ARTIFACT.id).exists() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let registry = fs::read_to_string(root.path("artifacts/registry.jsonl")).unwrap_or_default();
    let whole = registry.lines().filter(|line| {
        serde_json::from_str::<Value>(line).is_ok_and(|line| line["path"].is_string())
    });
    if whole.count() != 1 {
        found.push(format!("the registry has {registry:?}"));
    }
    let bytes = fs::read(root.path("artifacts/a.json")).unwrap_or_default();
    let made: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if made != json!({ "made": "whole" }) {
        found.push(format!(
            "the artifact is {:?}",
            String::from_utf8_lossy(&bytes)
        ));
    }
    let mut names = root.names("artifacts");
    names.retain(|name| {
        name != "a.json" && name != "registry.jsonl" && !has_extension(name, "lock")
    });
    if !names.is_empty() && strict == Strict::Exactly {
        found.push(format!("artifacts/ has {names:?}"));
    }
    found
}

fn has_extension(name: &str, wanted: &str) -> bool {
    Path::new(name).extension().is_some_and(|ext| ext == wanted)
}

/// Roots that are done with, kept until their keepers have left.
#[derive(Default)]
pub struct Leaving(VecDeque<(Instant, Root)>);

impl Leaving {
    pub fn add(&mut self, root: Root) {
        self.0.push_back((Instant::now(), root));
        while self
            .0
            .front()
            .is_some_and(|(since, _)| since.elapsed() > LEAVING)
        {
            self.0.pop_front();
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some((since, _)) = self.0.back() {
            std::thread::sleep(LEAVING.saturating_sub(since.elapsed()));
        }
    }
}

/// For messages: the root of a failure is kept where `TORTURE_KEEP` names a folder.
pub fn keep(root: &Root, name: &str) {
    if let Some(folder) = std::env::var_os("TORTURE_KEEP") {
        let to = Path::new(&folder).join(name.replace([' ', '/'], "-"));
        let _ = Command::new("cp")
            .arg("-a")
            .arg(root.dir())
            .arg(to)
            .status();
    }
}
