//! What was taken out of a record before an agent was handed it.

use std::fs;

use serde_json::{Value, json};

use crate::root::{Root, parked};

const FILE: &str = ".handoffd/context/x.json";

fn returned(n: usize) -> Value {
    let text = "one two three four ".repeat(n);
    json!({"id": format!("c{n}"), "agent": "@h", "status": "completed", "result": {"text": text}})
}

/// A root whose agents are handed few tokens, with a record that waits and this file beside it.
fn furnished(handoffd: &Value, file: &Value) -> Root {
    let root = Root::new();
    let config = fs::read_to_string(root.path("handoffd.toml")).unwrap();
    root.put(
        "handoffd.toml",
        &format!("{config}[context]\nwindow_tokens = 8000\n"),
    );
    fs::create_dir(root.path(".handoffd/context")).unwrap();
    root.put(FILE, &file.to_string());
    let mut record = parked("returned");
    for (key, value) in handoffd.as_object().unwrap() {
        record["handoffd"][key] = value.clone();
    }
    root.put("handoffs/waiting/x.json", &record.to_string());
    root
}

fn kept(root: &Root) -> Value {
    serde_json::from_slice(&fs::read(root.path(FILE)).unwrap()).unwrap()
}

#[test]
fn row_80_parts_that_the_record_still_has_are_written_once_more() {
    let root = furnished(
        &json!({"returns": [returned(10), returned(1000)]}),
        &json!({"handoff_id": "x", "handoffd.returns": [returned(1000)],
                "handoffd.previous": [{"status": "failed"}]}),
    );
    root.recover();
    let record = root.expect_completed("x", 1);
    let notes = json!([{"part": "handoffd.returns", "count": 1, "ref": FILE}]);
    assert_eq!(record["handoffd"]["compacted"], notes);
    assert_eq!(record["handoffd"]["returns"][1], returned(10));
    let expected = json!({"handoff_id": "x", "handoffd.returns": [returned(1000)]});
    assert_eq!(kept(&root), expected);
}

#[test]
fn row_81_parts_that_the_record_lists_stay_and_others_join_them() {
    let reference = json!({"count": 1, "summary": "1 return: c900 (@h, completed)", "ref": FILE});
    let notes = json!([{"part": "handoffd.returns", "count": 1, "ref": FILE}]);
    let root = furnished(
        &json!({"returns": [reference, returned(10)], "compacted": notes}),
        &json!({"handoff_id": "x", "handoffd.returns": [returned(900), returned(800)]}),
    );
    let before = kept(&root);
    root.recover();
    let record = root.expect_completed("x", 1);
    assert_eq!(record["handoffd"]["compacted"], notes);
    assert_eq!(
        record["handoffd"]["returns"],
        json!([reference, returned(10)])
    );
    assert_eq!(kept(&root), before);

    let root = furnished(
        &json!({"returns": [reference, returned(1000)], "compacted": notes}),
        &before,
    );
    root.recover();
    let record = root.expect_completed("x", 1);
    assert_eq!(record["handoffd"]["returns"][0]["count"], 2);
    assert_eq!(record["handoffd"]["returns"].as_array().unwrap().len(), 1);
    assert_eq!(
        kept(&root)["handoffd.returns"],
        json!([returned(900), returned(1000)])
    );
}
