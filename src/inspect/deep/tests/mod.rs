//! A sound root has no breaches; one thing planted in it is found, and nothing else.

mod planted;

use std::fs;

use serde_json::{Map, Value, json};

use super::{Invariant, examine};
use crate::clock::{Now, Wall};
use crate::durable::Durability;
use crate::keeper::journal::{self, Held};
use crate::keeper::wire::Key;
use crate::protocol::attempt::{Attempt, AttemptOutcome};
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::task::{TaskId, TaskState};
use crate::protocol::timer::Timer;
use crate::spool::layout::Layout;
use crate::store::artifacts::{Artifacts, Entry, RelPath};
use crate::store::audit::{AuditLog, Event};
use crate::store::tasks::Store;

const AT: &str = "2026-11-16T08:00:00.000Z";

struct Root {
    dir: tempfile::TempDir,
    layout: Layout,
    log: AuditLog,
}

fn now() -> Wall {
    Wall::parse(AT).unwrap()
}

/// A request for somebody, with one attempt that ended like this.
fn record(id: &str, outcome: Option<AttemptOutcome>) -> Record {
    let request = json!({ "target": { "agent_id": "@a" } });
    let Value::Object(request) = request else {
        unreachable!()
    };
    let mut record = Record::admit(request, id, Some("0".repeat(64)));
    let mut attempt = Attempt::begun(1, now());
    attempt.outcome = outcome;
    record.meta.attempts.push(attempt);
    record
}

fn completed(id: &str) -> Record {
    let mut record = record(id, Some(AttemptOutcome::Completed));
    record.decide(State::Completed);
    record.set("completed_at", AT);
    record.set("timestamp_completed", AT);
    record.set("execution_time_seconds", 1);
    record
}

fn failed(id: &str) -> Record {
    let mut record = record(id, Some(AttemptOutcome::Failed));
    record.decide(State::Failed);
    record.set("failed_at", AT);
    record.set("timestamp_failed", AT);
    record.set("execution_time_seconds", 1);
    record.set("error", json!({ "code": "TIMEOUT", "message": "too slow" }));
    record.set("retry_available", true);
    record.set("retry_count", 0);
    record.set("max_retries", 3);
    record.set("recovery_actions", json!([]));
    record
}

fn waiting(id: &str, block: Value) -> Record {
    let mut record = record(id, Some(AttemptOutcome::Failed));
    record.decide(State::Waiting);
    if block.get("until").is_some() {
        let now = Now {
            wall: now(),
            boot_ms: 0,
        };
        record.meta.timer = Some(Timer::new(now, "a boot", 1000));
    }
    record.set("waiting", block);
    record
}

fn running(id: &str) -> Record {
    let mut record = record(id, None);
    record.decide(State::InProgress);
    record
}

impl Root {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        let (log, _) = AuditLog::open(&layout.audit(), Durability::Relaxed, now()).unwrap();
        Self { dir, layout, log }
    }

    /// One of everything, all of it well.
    fn sound() -> Self {
        let mut root = Self::new();
        root.put(State::Completed, "done", &completed("done"));
        root.put(State::Failed, "gone", &failed("gone"));
        root.put(State::Failed, "refused", &failed("refused"));
        fs::write(
            root.layout.state(State::Failed).join("refused.rejected"),
            "{",
        )
        .unwrap();
        root.put(
            State::Waiting,
            "later",
            &waiting("later", json!({ "on": "retry", "until": AT })),
        );
        root.put(
            State::Waiting,
            "asked",
            &waiting("asked", json!({ "on": "human" })),
        );
        root.put(State::InProgress, "busy", &running("busy"));
        root.begin("busy", 1);
        fs::write(root.layout.run().join("busy.1.beat"), "").unwrap();
        fs::write(root.layout.pending().join("new.json"), "{}").unwrap();
        fs::write(root.layout.tmp().join("left-behind"), "{").unwrap();
        root.artifact("artifacts/plan.md", "the plan");
        root.task("t-1");
        root
    }

    fn put(&mut self, state: State, id: &str, record: &Record) {
        fs::write(self.layout.record(state, id), record.to_bytes()).unwrap();
        self.tell(id, State::Pending, state, record.meta.revision);
    }

    fn tell(&mut self, id: &str, from: State, to: State, revision: u64) {
        let line = Self::line(id, from, to, revision);
        self.log.append(&[line]).unwrap();
    }

    fn line(id: &str, from: State, to: State, revision: u64) -> Event {
        Event::new(now(), "moved")
            .about(id)
            .with("from", from.status())
            .with("to", to.status())
            .with("revision", revision)
    }

    fn begin(&self, id: &str, attempt: u32) {
        let path = self.layout.run().join("attempts.0.jsonl");
        let file = fs::File::options()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        let line = journal::Line::Start {
            key: Key::new(id, attempt),
            note: Value::Null,
            deadline_boot_ms: 0,
            grace_ms: 0,
            boot: "a boot".to_owned(),
            held: Held::Minder,
            user: None,
        };
        journal::append(&file, &line).unwrap();
    }

    fn artifact(&self, path: &str, text: &str) {
        let artifacts = Artifacts::new(self.dir.path(), Durability::Relaxed);
        let at = RelPath::parse(path).unwrap();
        let measured = artifacts.write(&at, text.as_bytes(), true).unwrap();
        let entry = Entry {
            artifact_id: "plan".to_owned(),
            path: path.to_owned(),
            artifact_type: None,
            sha256: measured.sha256,
            size_bytes: measured.size_bytes,
            handoff_id: "done".to_owned(),
            created_at: now(),
            extra: Map::new(),
        };
        artifacts.register(&[entry]).unwrap();
    }

    fn task(&self, name: &str) {
        let store = Store::new(self.dir.path(), Durability::Relaxed);
        let task = TaskId::parse(name).unwrap();
        let mut state = TaskState::begin(task, "a task", now());
        for _ in 0..2 {
            state.raise_version();
            state = store.save(&state).unwrap();
        }
    }

    /// What is found, as words.
    fn found(&self) -> Vec<(Invariant, String, String)> {
        let report = examine(&self.layout).unwrap();
        report
            .breaches
            .into_iter()
            .map(|breach| (breach.invariant, breach.path, breach.what))
            .collect()
    }

    /// Exactly one breach, of this promise, at this file, told with this word.
    fn only(&self, invariant: Invariant, path: &str, word: &str) {
        let found = self.found();
        let [(broken, at, what)] = found.as_slice() else {
            panic!("{word}: {found:#?}")
        };
        assert_eq!((*broken, at.as_str()), (invariant, path), "{what}");
        assert!(what.contains(word), "{word} in {what}");
    }

    /// A sound root in which the record of `id` is changed like this.
    fn edited(state: State, id: &str, edit: impl FnOnce(&mut Value)) -> Self {
        let root = Self::sound();
        let path = root.layout.record(state, id);
        let mut doc: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        edit(&mut doc);
        fs::write(path, doc.to_string()).unwrap();
        root
    }
}

#[test]
fn a_sound_root_has_no_breaches_and_all_of_it_was_looked_at() {
    let root = Root::sound();
    let report = examine(&root.layout).unwrap();
    assert!(report.is_sound(), "{:#?}", report.breaches);
    let seen = report.examined;
    assert_eq!(
        (seen.records, seen.submissions, seen.audit_lines),
        (6, 1, 6)
    );
    assert_eq!((seen.artifacts, seen.tasks), (1, 1));
}
