//! Chains and questions, as people see them.

use std::fs;

use serde_json::{Value, json};

use crate::{Root, base, completed, waiting, without_ages};

/// A workflow: the developer was helped once, and the tester's result waits for a person.
fn with_chain() -> Root {
    let root = Root::new();
    let record = |id: &str, agent: &str, minute: u32, links: Value| {
        let mut record = base(id);
        record["target"]["agent_id"] = agent.into();
        record["handoffd"]["attempts"] = json!([{
            "number": 1, "started_at": format!("2025-10-09T08:{minute:02}:00.000Z"),
            "ended_at": format!("2025-10-09T08:{:02}:30.000Z", minute + 1),
            "outcome": "completed", "milliseconds": 90_000,
        }]);
        for (key, value) in links.as_object().unwrap() {
            record["handoffd"][key] = value.clone();
        }
        record
    };
    let ended = |mut record: Value, minute: u32, summary: &str| {
        record["status"] = "completed".into();
        record["completed_at"] = format!("2025-10-09T08:{:02}:30.000Z", minute + 1).into();
        record["result"] = json!({"status": "complete", "summary": summary});
        record
    };
    let first = record(
        "feature",
        "@architect",
        0,
        json!({"children": ["feature.1-0a0a0a0a"]}),
    );
    root.put(
        "completed",
        "feature",
        1,
        &ended(first, 0, "two \u{1b}[31mtables"),
    );
    let second = record(
        "feature.1-0a0a0a0a",
        "@developer",
        2,
        json!({
            "chain": "feature", "hop": 1, "parent": "feature",
            "children": ["feature.2-0b0b0b0b", "feature.2-0c0c0c0c", "feature.2-0d0d0d0d"],
            "returns": [
                {"id": "feature.2-0b0b0b0b", "agent": "@security", "status": "completed"},
            ],
        }),
    );
    root.put(
        "completed",
        "feature.1-0a0a0a0a",
        5,
        &ended(second, 4, "it builds"),
    );
    let helper = record(
        "feature.2-0b0b0b0b",
        "@security",
        3,
        json!({
            "chain": "feature", "hop": 2, "parent": "feature.1-0a0a0a0a",
        }),
    );
    root.put(
        "completed",
        "feature.2-0b0b0b0b",
        4,
        &ended(helper, 3, "no secrets in it"),
    );
    let mut third = record(
        "feature.2-0c0c0c0c",
        "@tester",
        6,
        json!({
            "chain": "feature", "hop": 2, "parent": "feature.1-0a0a0a0a",
        }),
    );
    third["status"] = "waiting".into();
    third["validation_request"] = json!({
        "items": ["the coverage"], "options": {"ship": "to all", "stage": "to a few"},
    });
    third["waiting"] = json!({
        "on": "human", "kind": "review", "gate": "release\u{1b}[2K",
        "reason": "the result needs review", "until": "2035-01-01T00:00:00.000Z",
        "done": "all tests pass\nbut one is slow", "items": ["the coverage", {"name": "the cost"}],
        "options": {"ship": "to all", "stage": "to a few"},
    });
    root.put("waiting", "feature.2-0c0c0c0c", 7, &third);
    root
}

#[test]
fn a_chain_is_drawn_from_any_of_its_handoffs() {
    let root = with_chain();
    let drawn = without_ages(&root.see(&["chain", "feature"]));
    for id in [
        "feature.1-0a0a0a0a",
        "feature.2-0b0b0b0b",
        "feature.2-0c0c0c0c",
    ] {
        assert_eq!(without_ages(&root.see(&["chain", id])), drawn);
    }
    insta::assert_snapshot!(drawn);
    let output = root.run(&["chain", "feature", "--json"]);
    let nested: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(nested["handoffs"], 5);
    assert_eq!(nested["steps"][1]["helpers"][0]["agent"], "@security");
    assert_eq!(nested["steps"][3]["state"], "missing");
}

#[test]
fn a_question_is_shown_with_how_to_answer_it() {
    insta::assert_snapshot!(with_chain().see(&["show", "feature.2-0c0c0c0c"]));
}

#[test]
fn show_names_who_helped_and_who_goes_on() {
    insta::assert_snapshot!(with_chain().see(&["show", "feature.1-0a0a0a0a"]));
}

#[test]
fn the_inbox_has_one_line_for_each_question() {
    let root = with_chain();
    let told = root.see(&["list", "--waiting", "human"]);
    let words: Vec<&str> = told.split_whitespace().collect();
    let told = words.join(" ");
    assert!(
        told.contains("ID KIND AGENT WAITS DEADLINE QUESTION"),
        "{told}"
    );
    assert!(
        told.contains("2035-01-01 00:00:00 the result needs review"),
        "{told}"
    );
    assert!(told.contains("review release\\u{1b}[2K @tester"), "{told}");
    let row: Value =
        serde_json::from_slice(&root.run(&["list", "--waiting", "human", "--json"]).stdout)
            .unwrap();
    assert_eq!(row["waiting"]["question"]["options"]["stage"], "to a few");
}

#[test]
fn explain_names_the_person_and_the_helpers() {
    let root = with_chain();
    let mut parent = waiting("parent", "handoff", "delegated");
    parent["waiting"]["ids"] = json!(["done", "feature.2-0c0c0c0c", "nobody"]);
    root.put("waiting", "parent", 1, &parent);
    root.put("completed", "done", 4, &completed());
    let told = root.see(&["explain", "feature.2-0c0c0c0c"]) + &root.see(&["explain", "parent"]);
    insta::assert_snapshot!(without_ages(&told));
}

#[test]
fn an_answer_that_can_not_be_given_is_told_at_once() {
    let root = with_chain();
    root.put("completed", "done", 4, &completed());
    root.put("waiting", "later", 3, &waiting("later", "retry", "soon"));
    let told: Vec<String> = [
        &["approve", "feature.2-0c0c0c0c", "--choice", "sell"][..],
        &["ask", "feature.2-0c0c0c0c"],
        &["approve", "done"],
        &["reject", "later", "--json"],
        &["approve", "nobody"],
        &["list", "--waiting", "godot"],
    ]
    .iter()
    .map(|args| format!("$ handoffd {}\n{}", args.join(" "), root.see(args)))
    .collect();
    insta::assert_snapshot!(told.join("\n"));
    let control = || fs::read_dir(root.path("handoffs/control")).unwrap();
    assert_eq!(control().count(), 0);
    let output = root.run(&[
        "approve",
        "feature.2-0c0c0c0c",
        "--choice",
        "stage",
        "--by",
        "me",
    ]);
    assert!(output.status.success());
    let path = control().next().unwrap().unwrap().path();
    let command: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!(command["action"], "approve");
    assert_eq!(
        (&command["choice"], &command["by"]),
        (&json!("stage"), &json!("me"))
    );
}

#[test]
fn prune_spares_the_chain_of_one_that_is_on_its_way() {
    let root = with_chain();
    root.put("completed", "done", 4, &completed());
    root.run(&["prune", "--completed", "1d"]);
    for id in ["feature", "feature.1-0a0a0a0a", "feature.2-0b0b0b0b"] {
        assert!(
            root.path(&format!("handoffs/completed/{id}.json")).exists(),
            "{id}"
        );
    }
    assert!(!root.path("handoffs/completed/done.json").exists());
}

#[test]
fn audit_tells_the_story_of_a_chain() {
    let root = with_chain();
    fs::create_dir_all(root.path("audit")).unwrap();
    let line = |seq: u32, event: &str, id: &str, detail: Value| {
        let mut line = json!({
            "seq": seq, "at": format!("2025-10-09T08:0{seq}:00.000Z"), "event": event,
            "handoff_id": id,
        });
        let map = line.as_object_mut().unwrap();
        map.extend(detail.as_object().unwrap().clone());
        map.insert("prev".to_owned(), "0".repeat(64).into());
        format!("{line}\n")
    };
    let lines = [
        line(
            1,
            "completed",
            "feature",
            json!({"to": "completed", "agent": "@architect"}),
        ),
        line(2, "started", "other", json!({"agent": "@x"})),
        line(
            3,
            "blocked",
            "feature.1-0a0a0a0a",
            json!({"to": "waiting", "agent": "@developer",
            "waiting": {"on": "handoff", "reason": "blocked (security_concern): @security was asked for help"}}),
        ),
        line(
            4,
            "completed",
            "feature.2-0b0b0b0b",
            json!({"to": "completed", "agent": "@security"}),
        ),
        line(
            5,
            "command",
            "feature.2-0c0c0c0c",
            json!({"action": "approve", "choice": "ship", "by": "me"}),
        ),
    ];
    fs::write(root.path("audit/events-2025-10-09.jsonl"), lines.concat()).unwrap();
    let told = root.see(&["audit", "feature.2-0c0c0c0c"]);
    insta::assert_snapshot!(told);
    let alone = root.see(&["audit", "feature", "--alone"]);
    assert_eq!(alone.lines().count(), 2, "{alone}");
}
