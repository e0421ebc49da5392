//! Which names are taken for slips, and which are somebody's own.

use serde_json::{Value, json};

use super::*;

fn found(document: &Value) -> Vec<String> {
    let view = View::of_document(document.as_object().unwrap());
    misnamed(&view).iter().map(ToString::to_string).collect()
}

#[test]
fn a_name_that_is_nearly_right_is_reported_with_the_right_one() {
    for (written, meant) in [
        ("priorty", "priority"),
        ("prioirty", "priority"),
        ("depend_on", "depends_on"),
        ("dependsOn", "depends_on"),
        ("timeout", "timeout_seconds"),
        ("timeout_secs", ""),
        ("timeoutSeconds", "timeout_seconds"),
        ("retry", "retry_policy"),
        ("input_schema", "input.schema"),
        ("not-before", "not_before"),
        ("requires_artifact", "requires_artifacts"),
        ("inptu", "input"),
        ("gat", "gate"),
        // Somebody's own.
        ("date", ""),
        ("rate", ""),
        ("notes", ""),
        ("labels", ""),
        ("expected_input", ""),
        // Ours, although nobody acts on them in a request.
        ("status", ""),
        ("max_retries", ""),
        ("timestamp", ""),
    ] {
        let mut request = json!({"target": {"agent_id": "a"}});
        request[written] = json!(1);
        let expected: Vec<String> = match meant {
            "" => Vec::new(),
            meant => vec![format!("{written}: unknown field; did you mean `{meant}`?")],
        };
        assert_eq!(found(&request), expected, "{written}");
    }
}

#[test]
fn packages_and_reports_are_read_inside_handoff_too() {
    let package = json!({
        "prioritty": "high", "summary": "own",
        "handoff": {
            "from": {"agent": "a"}, "to": {"agent": "b"}, "type": "sequential",
            "contxt": {}, "priorty": "low",
        },
    });
    assert_eq!(
        found(&package),
        [
            "prioritty: unknown field; did you mean `priority`?",
            "handoff.contxt: unknown field; did you mean `context`?",
            "handoff.priorty: unknown field; did you mean `priority`?",
        ]
    );
    let report = json!({
        "status": "complete", "phase": 1, "sumary": "s",
        "handoff": {"next_agnet": "b", "context": "c", "next_phase": "x"},
    });
    assert_eq!(
        found(&report),
        [
            "sumary: unknown field; did you mean `summary`?",
            "handoff.next_agnet: unknown field; did you mean `next_agent`?",
        ]
    );
    assert_eq!(found(&json!({"priorty": 1})), Vec::<String>::new());
}

#[test]
fn a_hostile_document_costs_little_and_says_little() {
    let mut request = json!({"target": {"agent_id": "a"}});
    let map = request.as_object_mut().unwrap();
    for n in 0..100 {
        map.insert(format!("priorit{n:02}"), json!(1));
    }
    map.insert("p".repeat(4_000_000), json!(1));
    for n in 0..100_000 {
        map.insert(format!("own field {n}"), json!(1));
    }
    assert_eq!(found(&request).len(), 20);
}
