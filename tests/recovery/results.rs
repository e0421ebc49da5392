//! Large results of earlier attempts, which stand in files beside their records.

use std::fs;

use serde_json::{Value, json};

use crate::root::{Root, parked, running};

const FILES: [&str; 2] = [".handoffd/results/x.1.json", ".handoffd/results/x.2.json"];

/// A root with both files, and a record that refers to the first.
fn furnished(folder: &str, mut record: Value) -> Root {
    let root = Root::new();
    fs::create_dir(root.path(".handoffd/results")).unwrap();
    for file in FILES {
        root.put(file, r#"{"session":"s"}"#);
    }
    record["handoffd"]["last_result"] = json!({"attempt": 1, "outcome": "failed", "ref": FILES[0]});
    root.put(&format!("handoffs/{folder}/x.json"), &record.to_string());
    root
}

#[test]
fn row_59_a_result_that_no_record_refers_to_goes_when_the_handoff_ends() {
    let root = furnished("in-progress", running("another boot"));
    root.recover();
    let record = root.expect_completed("x", 1);
    assert_eq!(record["handoffd"]["last_result"], Value::Null);
    for file in FILES {
        assert!(!root.path(file).exists(), "{file}");
    }
}

#[test]
fn row_60_the_result_that_a_record_refers_to_stays() {
    let mut record = parked("a person decides");
    record["waiting"]["on"] = "human".into();
    record["handoffd"].as_object_mut().unwrap().remove("timer");
    let root = furnished("waiting", record);
    root.recover();
    assert_eq!(root.folders_of("x"), ["waiting"]);
    let kept = root.record("waiting", "x")["handoffd"]["last_result"]["ref"].clone();
    assert_eq!(kept, FILES[0]);
    assert!(root.path(FILES[0]).exists());
}
