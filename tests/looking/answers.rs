//! What people answered, and as whom they do it.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::{Root, completed, waiting};

#[test]
fn show_tells_what_was_answered_and_by_whom() {
    let root = Root::new();
    let mut record = completed();
    record["answer"] = json!({
        "action": "approve", "choice": "staged", "comment": "ship\u{1b}[2K it", "by": "ann",
        "at": "2025-10-09T08:00:30.000Z",
    });
    root.put("completed", "done", 1, &record);
    let told = root.see(&["show", "done"]);
    let fact = |name: &str| {
        let value = told.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap_or_else(|| panic!("{name}: {told}")).trim()
    };
    assert!(
        fact("answer").starts_with("approve (staged) by ann, 2025-10-09"),
        "{told}"
    );
    assert!(fact("comment").starts_with("ship"), "{told}");
    assert!(!told.contains('\u{1b}'), "{told:?}");
    record["answer"] = json!({ "action": "reject", "choice": null, "comment": null, "by": null });
    root.put("completed", "done", 1, &record);
    let told = root.see(&["show", "done"]);
    assert!(told.contains("reject by a human\n"), "{told}");
    assert!(!told.contains("comment"), "{told}");
}

#[test]
fn an_answer_has_a_name_even_where_the_session_says_none() {
    let root = Root::new();
    root.put(
        "waiting",
        "asked",
        1,
        &waiting("asked", "human", "two ways are open"),
    );
    let output = Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .args(["approve", "asked"])
        .env("HANDOFFD_ROOT", root.dir.path())
        .env_remove("USER")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut dropped = fs::read_dir(root.path("handoffs/control")).unwrap();
    let path = dropped.next().unwrap().unwrap().path();
    let command: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let by = command["by"].as_str().unwrap();
    let name = Command::new("id").arg("-un").output().unwrap();
    let name = String::from_utf8(name.stdout).unwrap();
    assert!(
        by == name.trim() || by.starts_with("uid "),
        "{by}, not {name}"
    );
}
