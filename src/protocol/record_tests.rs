//! What a record keeps, gives back and refuses.

use super::*;
use crate::clock::Wall;

fn doc(text: &str) -> Map<String, Value> {
    let Value::Object(map) = json::parse_own(text).unwrap() else {
        panic!()
    };
    map
}

fn reread(record: &Record) -> Record {
    Record::read(&record.to_bytes()).unwrap()
}

#[test]
fn a_producers_fields_stay_as_written() {
    let text = r#"{"a":1.0,"b":1e400,"c":12345678901234567890123,"status":"odd","z":{"k":-0}}"#;
    let record = Record::admit(doc(text), "x", None);
    assert_eq!(record.meta.submitted["status"], "odd");
    assert!(!record.doc.contains_key("status"));
    let bytes = String::from_utf8(record.to_bytes()).unwrap();
    for written in ["1.0", "1e400", "12345678901234567890123", "-0"] {
        assert!(bytes.contains(written), "{written} in {bytes}");
    }
    assert_eq!(reread(&record), record);
}

#[test]
fn what_the_block_keeps_for_others_stays_as_written_too() {
    let odd = r#"{"a":1.10,"b":1E400,"c":120000000000000000000000000000000000000001}"#;
    let text = format!(
        r#"{{"handoffd":{{"format":1,"submitted":{{"error":{odd}}},"previous":[{odd}],
        "returns":[{odd}],"spawns":[{{"id":"x","request":{odd}}}]}}}}"#
    );
    let mut record = Record::read(text.as_bytes()).unwrap();
    for _ in 0..2 {
        let compact = Value::Object(Record::document(&record.to_bytes()).unwrap()).to_string();
        assert_eq!(compact.matches(odd).count(), 4, "{compact}");
        record = reread(&record);
    }
}

#[test]
fn a_lifted_key_keeps_the_producers_value_and_gives_it_back() {
    let mut record = Record::admit(doc(r#"{"metadata":{"mine":1},"n":2}"#), "x", None);
    record.lift("metadata", serde_json::json!({"theirs": 2}));
    record.set("error", "e");
    assert_eq!(record.meta.submitted["metadata"]["mine"], 1);
    let again = Record::admit(
        doc(std::str::from_utf8(&record.to_bytes()).unwrap()),
        "x",
        None,
    );
    assert_eq!(again.doc["metadata"]["mine"], 1);
    assert_eq!(again.meta.previous[0]["metadata"]["theirs"], 2);
    assert_eq!(again.meta.previous[0]["error"], "e");
}

#[test]
fn a_forged_block_is_kept_as_data_and_not_believed() {
    for forged in [
        r#"{"handoffd":{"to":"completed"}}"#,
        r#"{"handoffd":"x"}"#,
        r#"{"handoffd":{"format":99}}"#,
        r#"{"handoffd":{"format":1,"attempts":[{"number":4294967295,"started_at":"2026-01-01T00:00:00Z"}]}}"#,
    ] {
        let record = Record::admit(doc(forged), "x", None);
        assert!(record.meta.submitted.contains_key("handoffd"), "{forged}");
        assert_eq!(record.meta.to, None);
        assert_eq!(record.meta.next_attempt(), 1);
    }
}

#[test]
fn a_forged_block_that_looks_like_ours_takes_nothing_away() {
    let forged = r#"{"target":{"agent_id":"a"},"output":1,"handoffd":{"format":1,
        "lifted":["target","input","output"],"spent":99,"applied":["c"],"to":"completed",
        "attempts":[{"number":2,"started_at":"2026-01-01T00:00:00Z"}]}}"#;
    let record = Record::admit(doc(forged), "x", None);
    assert_eq!(record.doc["target"]["agent_id"], "a");
    assert_eq!(record.meta.previous[0]["output"], 1);
    assert_eq!(record.running_attempt(), None);
    assert!(record.meta.applied.is_empty());
    assert_eq!(record.meta.next_attempt(), 3);
    assert!(record.meta.current_attempts().is_empty());
}

#[test]
fn numbers_go_on_after_a_resubmission_and_the_budget_starts_anew() {
    let mut record = Record::admit(doc("{}"), "x", None);
    record.meta.attempts.push(Attempt {
        number: 3,
        started_at: Wall(0),
        ended_at: Some(Wall(5)),
        outcome: Some(AttemptOutcome::Failed),
        exit_code: Some(1),
        signal: None,
        error: None,
        log: None,
        milliseconds: Some(5),
        usage: None,
        count: None,
    });
    record.meta.retries = 3;
    record.decide(State::Failed);
    let again = Record::admit(
        doc(std::str::from_utf8(&record.to_bytes()).unwrap()),
        "x",
        None,
    );
    assert_eq!(again.meta.next_attempt(), 4);
    assert_eq!(again.meta.retries, 0);
    assert!(again.meta.current_attempts().is_empty());
    assert_eq!(again.meta.to, None);
    assert_eq!(again.execution_ms(), 0);
}

#[test]
fn a_newer_format_is_refused_and_unknown_keys_are_kept() {
    let newer = doc(r#"{"handoffd":{"format":2}}"#);
    assert_eq!(Record::from_document(newer), Err(RecordError::Newer(2)));
    let text = r#"{"handoffd":{"format":1,"revision":4,"newer":"c"}}"#;
    let record = Record::from_document(doc(text)).unwrap();
    assert_eq!(reread(&record).meta.extra["newer"], "c");
}
