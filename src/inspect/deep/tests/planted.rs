//! One breach of each kind, planted in a root that is sound otherwise.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};

use super::{AT, Invariant, Root, completed, failed, waiting};
use crate::inspect::deep::examine;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;

#[test]
fn an_id_in_two_folders_or_in_none_is_found() {
    let root = Root::sound();
    fs::copy(
        root.layout.record(State::Completed, "done"),
        root.layout.record(State::Failed, "done"),
    )
    .unwrap();
    let found = root.found();
    assert!(
        found
            .iter()
            .any(|(invariant, _, what)| *invariant == Invariant::OneFolder
                && what.contains("completed, failed")),
        "{found:#?}"
    );
    // Nothing but a person mends that; where one of the two is open, a start does.
    let advice = |root: &Root| {
        let breaches = examine(&root.layout).unwrap().breaches.into_iter();
        let mut found = breaches.filter(|it| it.invariant == Invariant::OneFolder);
        found.next().unwrap().do_this
    };
    assert!(advice(&root).contains("mv handoffs/failed/done.json"));
    let root = Root::sound();
    fs::copy(
        root.layout.record(State::Completed, "done"),
        root.layout.record(State::Waiting, "done"),
    )
    .unwrap();
    assert!(advice(&root).contains("restart the daemon"));
    let root = Root::sound();
    fs::remove_file(root.layout.record(State::Waiting, "asked")).unwrap();
    root.only(Invariant::OneFolder, "handoffs", "asked went to waiting/");
    let root = Root::sound();
    fs::remove_file(root.layout.record(State::Completed, "done")).unwrap();
    assert_eq!(root.found(), [], "what has ended may be deleted");
}

#[test]
fn a_record_that_is_not_whole_is_found() {
    let path = "handoffs/completed/done.json";
    let root = Root::sound();
    fs::write(
        root.layout.record(State::Completed, "done"),
        "{\"status\": ",
    )
    .unwrap();
    root.only(Invariant::WholeRecord, path, "not a complete JSON object");
    let breaches = examine(&root.layout).unwrap().breaches;
    let advice = &breaches[0].do_this;
    assert!(
        advice.contains("mv handoffs/completed/done.json"),
        "{advice}"
    );
    for (name, word) in [("notes.txt", "not <id>.json"), ("sub.json", "a folder")] {
        let root = Root::sound();
        fs::create_dir(root.layout.state(State::Completed).join(name)).unwrap();
        let path = format!("handoffs/completed/{name}");
        root.only(Invariant::WholeRecord, &path, word);
    }
    let root = Root::edited(State::Completed, "done", |doc| doc["handoffd"] = json!(3));
    root.only(
        Invariant::WholeRecord,
        path,
        "has an invalid `handoffd` block",
    );
    let root = Root::edited(State::Completed, "done", |doc| {
        doc["handoffd"]["format"] = json!(9);
    });
    root.only(Invariant::WholeRecord, path, "format 9");
    let root = Root::edited(State::Completed, "done", |doc| {
        doc["status"] = json!("failed");
    });
    root.only(Invariant::WholeRecord, path, "status is failed");
    let root = Root::edited(State::Completed, "done", |doc| {
        doc["handoff_id"] = json!("x");
    });
    root.only(Invariant::WholeRecord, path, "handoff_id");
    let root = Root::edited(State::Completed, "done", |doc| {
        doc["handoffd"]["revision"] = json!(0);
    });
    let found = root.found();
    let said = |(invariant, at, what): &(Invariant, String, String)| {
        *invariant == Invariant::WholeRecord && at == path && what.contains("revision")
    };
    assert!(found.iter().any(said), "{found:#?}");
    let root = Root::edited(State::Completed, "done", |doc| {
        doc["handoffd"]["spent"] = json!(4);
    });
    root.only(Invariant::WholeRecord, path, "earlier budgets");
    let root = Root::edited(State::Completed, "done", |doc| {
        doc["handoffd"]["request_sha256"] = json!("abc");
    });
    root.only(Invariant::WholeRecord, path, "request_sha256");
}

#[test]
fn an_outcome_that_lacks_something_is_found() {
    let path = "handoffs/completed/done.json";
    let root = Root::edited(State::Completed, "done", |doc| {
        doc["timestamp_completed"] = json!("2020-01-01T00:00:00Z");
    });
    root.only(Invariant::Outcome, path, "differ");
    let root = Root::edited(State::Completed, "done", |doc| doc["error"] = json!({}));
    root.only(Invariant::Outcome, path, "has an error");
    let path = "handoffs/failed/gone.json";
    let root = Root::edited(State::Failed, "gone", |doc| {
        doc["error"]["code"] = json!("OOPS");
    });
    root.only(Invariant::Outcome, path, "OOPS");
    let root = Root::edited(State::Failed, "gone", |doc| {
        doc["error"]["message"] = json!("");
    });
    root.only(Invariant::Outcome, path, "error.message");
    let root = Root::edited(State::Failed, "gone", |doc| doc["retry_count"] = json!(4));
    root.only(Invariant::Outcome, path, "retried 4 times");
    let root = Root::sound();
    fs::remove_file(root.layout.record(State::Failed, "refused")).unwrap();
    root.only(
        Invariant::Outcome,
        "handoffs/failed/refused.rejected",
        "the record with the reason is missing",
    );
}

#[test]
fn attempts_out_of_order_or_left_open_are_found() {
    let path = "handoffs/failed/gone.json";
    let again = |doc: &mut Value, number: u32| {
        let mut attempt = doc["handoffd"]["attempts"][0].clone();
        attempt["number"] = json!(number);
        doc["handoffd"]["attempts"]
            .as_array_mut()
            .unwrap()
            .push(attempt);
    };
    let root = Root::edited(State::Failed, "gone", |doc| again(doc, 1));
    root.only(
        Invariant::Attempts,
        path,
        "attempt 1 is listed after attempt 1",
    );
    let root = Root::edited(State::Failed, "gone", |doc| again(doc, 2));
    assert_eq!(root.found(), []);
    let root = Root::edited(State::Failed, "gone", |doc| {
        doc["handoffd"]["attempts"][0]["outcome"] = Value::Null;
    });
    root.only(Invariant::Attempts, path, "no outcome");
    let root = Root::sound();
    fs::write(root.layout.run().join("gone.1.result"), "{}").unwrap();
    root.only(Invariant::Attempts, ".handoffd/run/gone.1.result", "left");
}

#[test]
fn a_process_of_an_ended_handoff_is_found() {
    let root = Root::sound();
    let start = |id: &str| {
        Command::new("sleep")
            .arg("60")
            .env("HANDOFF_ROOT", root.dir.path())
            .env("HANDOFF_ID", id)
            .env("HANDOFF_ATTEMPT", "1")
            .spawn()
            .unwrap()
    };
    let mut fine = start("busy");
    assert_eq!(root.found(), []);
    let mut stray = start("done");
    root.only(
        Invariant::Attempts,
        "handoffs/completed/done.json",
        "still runs",
    );
    for child in [&mut fine, &mut stray] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn what_is_decided_and_not_carried_out_is_found() {
    let mut root = Root::sound();
    fs::write(
        root.layout.record(State::InProgress, "busy"),
        {
            let mut record = completed("busy");
            record.meta.revision = 2;
            record
        }
        .to_bytes(),
    )
    .unwrap();
    root.tell("busy", State::InProgress, State::Completed, 2);
    root.only(
        Invariant::Decided,
        "handoffs/in-progress/busy.json",
        "decided for completed/",
    );
}

#[test]
fn whoever_nobody_wakes_is_found() {
    let path = "handoffs/waiting/later.json";
    let root = Root::edited(State::Waiting, "later", |doc| {
        doc["handoffd"].as_object_mut().unwrap().remove("timer");
    });
    root.only(Invariant::Waker, path, "it waits for a time, but has none");
    let root = Root::edited(State::Waiting, "later", |doc| {
        doc["waiting"]["on"] = json!("rain");
    });
    root.only(Invariant::Waker, path, "rain");
    let path = "handoffs/waiting/asked.json";
    let helped = |ids: Value| json!({ "on": "handoff", "ids": ids });
    let root = Root::edited(State::Waiting, "asked", |doc| {
        doc["waiting"] = helped(json!(["no"]));
    });
    root.only(Invariant::Waker, path, "waits for no, ");
    let root = Root::edited(State::Waiting, "asked", |doc| {
        doc["waiting"] = helped(json!(["done", "new"]));
    });
    assert_eq!(root.found(), []);
    let root = Root::edited(State::Waiting, "asked", |doc| doc["target"] = json!({}));
    root.only(Invariant::Waker, path, "its target is missing");
    let root = Root::sound();
    fs::write(root.layout.run().join("attempts.0.jsonl"), "").unwrap();
    root.only(
        Invariant::Waker,
        "handoffs/in-progress/busy.json",
        "the keeper does not know",
    );
}

#[test]
fn children_that_are_missing_or_know_another_parent_are_found() {
    let path = "handoffs/completed/done.json";
    let with =
        |child: &'static str| move |doc: &mut Value| doc["handoffd"]["children"] = json!([child]);
    let root = Root::edited(State::Completed, "done", with("nobody"));
    root.only(Invariant::Chain, path, "its child nobody is in no folder");
    let root = Root::edited(State::Completed, "done", with("gone"));
    root.only(Invariant::Chain, path, "its child gone names None");
    let root = Root::edited(State::Completed, "done", with("new"));
    assert_eq!(root.found(), []);
    let root = Root::edited(State::Completed, "done", with("gone"));
    fs::remove_file(root.layout.record(State::Failed, "gone")).unwrap();
    assert_eq!(
        root.found(),
        [],
        "it may have been pruned: the log knows it"
    );
}

#[test]
fn a_log_that_was_changed_or_says_something_else_is_found() {
    let root = Root::sound();
    let name = format!("events-{}.jsonl", &AT[..10]);
    let path = root.layout.audit().join(&name);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"moved\"", "\"Moved\"", 1)).unwrap();
    root.only(Invariant::Audit, &format!("audit/{name}"), "changed");
    let mut root = Root::sound();
    root.tell("done", State::Completed, State::Waiting, 2);
    root.only(
        Invariant::Audit,
        "handoffs/completed/done.json",
        "says waiting",
    );
}

#[test]
fn a_record_that_the_log_has_no_line_of_is_found() {
    let forged = |state: State, id: &str, record: &Record| {
        let root = Root::sound();
        fs::write(root.layout.record(state, id), record.to_bytes()).unwrap();
        root
    };
    let root = forged(State::Completed, "forged", &completed("forged"));
    let path = "handoffs/completed/forged.json";
    root.only(Invariant::Audit, path, "no line of it");
    let root = forged(State::Failed, "forged", &failed("forged"));
    let path = "handoffs/failed/forged.json";
    root.only(Invariant::Audit, path, "no line of it");
    let wait = waiting("forged", json!({ "on": "human" }));
    let root = forged(State::Waiting, "forged", &wait);
    let path = "handoffs/waiting/forged.json";
    root.only(Invariant::Audit, path, "no line of it");
    // Nor of what it says now.
    let root = Root::edited(State::Completed, "done", |doc| {
        doc["handoffd"]["revision"] = json!(7);
    });
    let path = "handoffs/completed/done.json";
    root.only(Invariant::Audit, path, "no line of it");
    // A log that was archived from its beginning on can't know.
    let root = forged(State::Completed, "forged", &completed("forged"));
    let name = format!("events-{}.jsonl", &AT[..10]);
    let log = root.layout.audit().join(&name);
    let text = fs::read_to_string(&log).unwrap();
    let (_, rest) = text.split_once('\n').unwrap();
    fs::write(&log, rest).unwrap();
    root.only(Invariant::Audit, &format!("audit/{name}"), "missing");
}

#[test]
fn a_second_outcome_without_a_new_start_is_found() {
    let mut root = Root::sound();
    root.tell("gone", State::Waiting, State::Failed, 3);
    root.only(Invariant::Outcome, "audit", "gone ended twice");
    let mut root = Root::sound();
    root.tell("gone", State::InProgress, State::Failed, 1);
    root.only(Invariant::Outcome, "audit", "gone ended twice");
    let mut root = Root::sound();
    let again = Root::line("gone", State::InProgress, State::Failed, 1);
    root.log.append(&[again.with("again", true)]).unwrap();
    assert_eq!(root.found(), [], "the first line's record never came");
    let mut root = Root::sound();
    root.tell("gone", State::Waiting, State::InProgress, 0);
    let again = Root::line("gone", State::InProgress, State::Failed, 1);
    root.log.append(&[again.with("again", true)]).unwrap();
    assert_eq!(root.found(), [], "nor did the record of its start");
    let mut root = Root::sound();
    root.tell("gone", State::Failed, State::Waiting, 2);
    root.tell("gone", State::InProgress, State::Failed, 3);
    assert_eq!(root.found(), [], "somebody retried it");
}

#[test]
fn artifacts_that_changed_or_are_gone_are_found() {
    let root = Root::sound();
    let plan = root.dir.path().join("artifacts/plan.md");
    fs::write(&plan, "another plan").unwrap();
    root.only(
        Invariant::Artifacts,
        "artifacts/plan.md",
        "has changed since",
    );
    fs::remove_file(plan).unwrap();
    root.only(Invariant::Artifacts, "artifacts/plan.md", "missing");
    let root = Root::sound();
    let registry = root.dir.path().join("artifacts/registry.jsonl");
    let mut text = fs::read_to_string(&registry).unwrap();
    text.push_str("not a line\n");
    fs::write(&registry, text).unwrap();
    root.only(
        Invariant::Artifacts,
        "artifacts/registry.jsonl",
        "can't read",
    );
}

#[test]
fn task_states_that_are_broken_or_lack_their_history_are_found() {
    let root = Root::sound();
    let state = root.dir.path().join("context/state/t-1.json");
    fs::write(&state, "{").unwrap();
    root.only(Invariant::Tasks, "context/state/t-1.json", "broken");
    let root = Root::sound();
    let history = root.dir.path().join("context/state/t-1.history.jsonl");
    let text = fs::read_to_string(&history).unwrap();
    fs::write(&history, text.lines().next().unwrap()).unwrap();
    root.only(Invariant::Tasks, "context/state/t-1.json", "version 2");
}

#[test]
fn folders_that_are_missing_or_everybody_s_are_found() {
    let root = Root::sound();
    fs::set_permissions(
        root.layout.state(State::Completed),
        fs::Permissions::from_mode(0o777),
    )
    .unwrap();
    root.only(Invariant::Folders, "handoffs/completed", "everybody");
    let root = Root::sound();
    fs::remove_dir_all(root.layout.control()).unwrap();
    root.only(
        Invariant::Folders,
        "handoffs/control",
        "can't read the folder",
    );
}
