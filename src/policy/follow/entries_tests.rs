//! The lists that grow over a chain: what an entry becomes, and whose it is.

use serde_json::json;

use super::*;

fn map(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// The lists after these handoffs have said these things, one after the other.
fn after(said: &[(&str, Value)]) -> Value {
    let mut entries = Entries::default();
    let mut written = Map::new();
    for (id, result) in said {
        written = entries.add(id, Said::of_result(&map(result)), Questions::Replace);
    }
    let mut data = Map::new();
    entries.put_into(&mut data, &written);
    Value::Object(data)
}

#[test]
fn every_entry_is_an_object_that_names_its_handoff() {
    let cases = [
        (
            json!({"decisions": "d"}),
            json!({"decisions": [{"decision": "d", "handoff_id": "x"}]}),
        ),
        (
            json!({"decisions": ["d", null, " ", 7, {"decision": "e", "why": 1.0}]}),
            json!({"decisions": [{"decision": "d", "handoff_id": "x"},
                {"decision": 7, "handoff_id": "x"},
                {"decision": "e", "why": 1.0, "handoff_id": "x"}]}),
        ),
        (
            json!({"artifacts": ["a", {"path": "b", "type": "doc"}]}),
            json!({"artifacts": [{"path": "a", "handoff_id": "x"},
                {"path": "b", "type": "doc", "handoff_id": "x"}]}),
        ),
        (
            json!({"handoff": {"open_questions": ["q"]}, "open_questions": ["other"]}),
            json!({"open_questions": [{"question": "q", "handoff_id": "x"}]}),
        ),
        (
            json!({"decisions": [{"decision": "d", "handoff_id": "forged"}]}),
            json!({"decisions": [{"decision": "d", "handoff_id": "x"}]}),
        ),
        (json!({"decisions": []}), json!({"decisions": []})),
        (json!({"decisions": null}), json!({})),
    ];
    for (result, expected) in cases {
        assert_eq!(after(&[("x", result.clone())]), expected, "{result}");
    }
}

#[test]
fn lists_grow_and_the_latest_of_a_path_counts() {
    let grown = after(&[
        (
            "x",
            json!({"decisions": ["d"], "artifacts": ["a", "./b/"], "open_questions": ["q", "r"]}),
        ),
        (
            "y",
            json!({"decisions": ["d"], "artifacts": [{"path": "b", "n": 2}]}),
        ),
        ("z", json!({"open_questions": ["r", "s"]})),
    ]);
    assert_eq!(
        grown,
        json!({
            "decisions": [{"decision": "d", "handoff_id": "x"}, {"decision": "d", "handoff_id": "y"}],
            "artifacts": [{"path": "a", "handoff_id": "x"}, {"path": "b", "n": 2, "handoff_id": "y"}],
            // A question that is named again is still the first one's.
            "open_questions": [{"question": "r", "handoff_id": "x"}, {"question": "s", "handoff_id": "z"}],
        })
    );
    let none = after(&[
        ("x", json!({"open_questions": ["q"]})),
        ("y", json!({"open_questions": []})),
    ]);
    assert_eq!(none, json!({"open_questions": []}));
}

#[test]
fn what_an_agent_repeats_keeps_its_name_and_counts_as_written() {
    let mut entries = Entries::default();
    let first = map(&json!({"decisions": ["d", "e"], "artifacts": ["a"]}));
    entries.add("x", Said::of_result(&first), Questions::Replace);
    let again = map(&json!({"decisions": [{"decision": "d", "handoff_id": "x"}, "f", "f"]}));
    let written = entries.add("y", Said::of_result(&again), Questions::Replace);
    assert_eq!(Value::Object(written), json!({"decisions": 2}));
    let mut data = Map::new();
    entries.put_into(&mut data, &Map::new());
    assert_eq!(
        data["decisions"],
        json!([{"decision": "e", "handoff_id": "x"}, {"decision": "d", "handoff_id": "x"},
               {"decision": "f", "handoff_id": "y"}])
    );
}

#[test]
fn earlier_results_and_helpers_are_gathered() {
    let package = json!({"handoff": {"from": {"agent": "a"}, "to": {"agent": "b"},
        "context": {"summary": "s", "decisions": ["p"], "open_questions": ["q"]}}});
    let mut record = Record::admit(map(&package), "x", None);
    let mut say = |from: &str, result: Value, questions| {
        gather(
            &mut record,
            "x",
            from,
            Said::of_result(&map(&result)),
            questions,
        );
    };
    say("x", json!({"decisions": ["first"]}), Questions::Replace);
    say(
        "kid",
        json!({"decisions": ["k"], "open_questions": ["k?"]}),
        Questions::Add,
    );
    let mut data = Map::new();
    Entries::known(&record, "x", Author::Specialist).put_into(&mut data, &Map::new());
    assert_eq!(
        Value::Object(data),
        json!({
            "decisions": [{"decision": "p", "handoff_id": "x"}, {"decision": "first", "handoff_id": "x"},
                          {"decision": "k", "handoff_id": "kid"}],
            "open_questions": [{"question": "q", "handoff_id": "x"}, {"question": "k?", "handoff_id": "kid"}],
        })
    );
    gather(
        &mut record,
        "x",
        "x",
        Said::of_result(&map(&json!({"open_questions": []}))),
        Questions::Replace,
    );
    let mut data = Map::new();
    Entries::known(&record, "x", Author::Specialist).put_into(&mut data, &Map::new());
    assert_eq!(data.get("open_questions"), None, "none is left");
}
