//! Files as format 1 wrote them, held against the present code.
//!
//! `fixtures/format-1/` came out of a real run and is frozen: it is never edited to make a test
//! pass. A version that changes what is stored adds a folder of its own beside it and goes on
//! reading this one.

use std::fs;
use std::path::{Path, PathBuf};

use handoffd::durable::Durability;
use handoffd::keeper::journal::{self, Held};
use handoffd::keeper::wire::Why;
use handoffd::protocol::attempt::AttemptOutcome;
use handoffd::protocol::control::{Action, Command};
use handoffd::protocol::document::{self, Syntax};
use handoffd::protocol::id::HandoffId;
use handoffd::protocol::lifecycle::State;
use handoffd::protocol::name::Ext;
use handoffd::protocol::record::{Record, RecordError};
use handoffd::protocol::request::{Priority, Request};
use handoffd::protocol::task::TaskId;
use handoffd::store::audit;
use handoffd::store::tasks::Store;

/// Every record in the fixture: its file, and the state it stands for.
const RECORDS: [(&str, State); 9] = [
    ("in-progress/busy.json", State::InProgress),
    ("in-progress/stubborn.json", State::InProgress),
    ("waiting/again.json", State::Waiting),
    ("waiting/after.json", State::Waiting),
    ("waiting/later.json", State::Waiting),
    ("completed/done.json", State::Completed),
    ("failed/given-up.json", State::Failed),
    ("failed/absent.json", State::Failed),
    ("failed/broken.json", State::Failed),
];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1")
}

fn handoffs(name: &str) -> Vec<u8> {
    let path = fixture().join("handoffs").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn record(name: &str) -> Record {
    Record::read(&handoffs(name)).unwrap_or_else(|error| panic!("{name} {error}"))
}

#[test]
fn every_record_is_read_and_knows_where_it_belongs() {
    for (name, state) in RECORDS {
        let record = record(name);
        assert_eq!(record.meta.to, Some(state), "{name}");
        assert_eq!(record.doc["status"], state.status(), "{name}");
    }
}

#[test]
fn writing_a_record_again_loses_nothing() {
    for (name, _) in RECORDS {
        let stored = handoffs(name);
        let written = record(name).to_bytes();
        assert_eq!(
            String::from_utf8_lossy(&written),
            String::from_utf8_lossy(&stored),
            "{name}"
        );
    }
}

#[test]
fn the_fixture_has_no_record_that_is_not_listed_here() {
    let mut found = 0;
    for folder in ["in-progress", "waiting", "completed", "failed"] {
        for entry in fs::read_dir(fixture().join("handoffs").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            found += usize::from(path.extension().is_some_and(|ext| ext == "json"));
        }
    }
    assert_eq!(found, RECORDS.len());
}

#[test]
fn what_a_record_says_is_understood() {
    let busy = record("in-progress/busy.json");
    assert_eq!(busy.running_attempt().unwrap().number, 1);
    assert!(busy.meta.boot.is_some());

    let again = record("waiting/again.json");
    assert_eq!(again.doc["waiting"]["on"], "retry");
    assert_eq!(again.meta.retries, 1);
    assert_eq!(again.meta.timer.as_ref().unwrap().length_ms, 3_600_000);
    let attempt = &again.meta.attempts[0];
    assert_eq!(attempt.outcome, Some(AttemptOutcome::Failed));
    assert_eq!(attempt.exit_code, Some(1));

    let after = record("waiting/after.json");
    assert_eq!(after.doc["waiting"]["on"], "dependency");
    assert_eq!(after.doc["waiting"]["ids"][0], "again");

    let done = record("completed/done.json");
    assert_eq!(done.meta.lifted, ["output", "validation"]);
    assert!(done.meta.request_sha256.is_some());
    assert!(fixture().join("originals/done.yaml").exists());

    let given_up = record("failed/given-up.json");
    assert_eq!(given_up.meta.next_attempt(), 3);
    assert_eq!(given_up.meta.current_attempts().len(), 1);
    assert_eq!(given_up.meta.previous.len(), 1);
    assert_eq!(given_up.meta.submitted["status"], "new");
    assert_eq!(given_up.meta.applied.len(), 1);
    let data = &given_up.doc["input"]["data"];
    assert_eq!(data["limit"].to_string(), "1e400");
    assert_eq!(data["serial"].to_string(), "12345678901234567890123");
}

#[test]
fn a_rejection_is_known_by_its_notice() {
    let notice = record("failed/broken.json");
    assert!(notice.meta.rejected.is_some());
    assert_eq!(
        notice.doc["rejected_file"],
        "handoffs/failed/broken.rejected"
    );
    let bytes = handoffs("failed/broken.rejected");
    let refused = document::parse(&bytes, Ext::Json).unwrap_err();
    let message = notice.doc["error"]["message"].as_str().unwrap();
    assert!(message.ends_with(&refused.to_string()), "{message}");
}

#[test]
fn a_submission_is_a_request() {
    let parsed = document::parse(&handoffs("pending/next.json"), Ext::Json).unwrap();
    assert_eq!(parsed.syntax, Syntax::Json);
    let request = Request::from_document(&parsed.map, &HandoffId::parse("next").unwrap()).unwrap();
    assert_eq!(request.agent.to_string(), "@slow");
    assert_eq!(request.priority, Priority::Low);
    assert_eq!(request.retry.max_retries, Some(0));
}

#[test]
fn a_command_is_obeyed_as_it_was_meant() {
    let parsed = document::parse(&handoffs("control/cancel-stubborn.json"), Ext::Json).unwrap();
    let command = Command::from_document(&parsed.map).unwrap();
    assert_eq!(command.action, Action::Cancel);
    assert_eq!(command.handoff_id.as_str(), "stubborn");
    assert_eq!(command.by.as_deref(), Some("anna"));
}

#[test]
fn the_audit_log_is_sound() {
    let verdict = audit::verify(&fixture().join("audit")).unwrap();
    assert!(verdict.is_sound(), "{:?}", verdict.problems);
    assert_eq!((verdict.files, verdict.torn), (1, 0));
    assert_eq!(verdict.lines, verdict.last_seq);
    assert!(verdict.lines > 10);
}

#[test]
fn the_keepers_journal_tells_what_ran() {
    let entries = journal::read(&fixture().join("run")).unwrap();
    let ids: Vec<&str> = entries.iter().map(|entry| entry.key.id.as_str()).collect();
    assert_eq!(ids, ["busy", "stubborn"], "the others are forgotten");
    for entry in &entries {
        assert_eq!(entry.held, Held::Minder);
        assert!(entry.minder.is_some() && entry.pid.is_some());
        assert!(entry.note["slot"].is_u64());
        assert_eq!((entry.exit, entry.gone), (None, false));
    }
    assert_eq!(entries[0].why, None);
    assert_eq!(entries[1].why, Some(Why::Cancelled));
}

#[test]
fn a_record_of_a_newer_format_is_refused() {
    let stored = String::from_utf8(handoffs("failed/given-up.json")).unwrap();
    let newer = stored.replacen("\"format\": 1", "\"format\": 2", 1);
    assert_ne!(newer, stored);
    assert_eq!(Record::read(newer.as_bytes()), Err(RecordError::Newer(2)));
}

#[test]
fn a_journal_of_a_newer_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let line = "{\"file\":{\"version\":2,\"number\":1}}\n";
    fs::write(dir.path().join("attempts.0.jsonl"), line).unwrap();
    assert!(journal::read(dir.path()).is_err());
}

#[test]
fn the_state_of_a_task_is_read_with_its_history() {
    let store = Store::new(&fixture(), Durability::Relaxed);
    let task = TaskId::parse("login").unwrap();
    let state = store.load(&task).unwrap().unwrap();
    assert_eq!(state.version(), 4);
    assert_eq!(state.phase().unwrap().name(), "testing");
    assert_eq!((state.artifacts().len(), state.decisions().len()), (1, 2));
    assert!(state.issues().next().unwrap().requires_human());
    assert_eq!(state.applied().len(), 2);
    let mut written = serde_json::to_string_pretty(state.document()).unwrap();
    written.push('\n');
    let stored = fs::read_to_string(store.path(&task)).unwrap();
    assert_eq!(written, stored);
    let history = store.history(&task).unwrap();
    assert!(history.iter().map(|line| line.version).eq(1..=4));
}
