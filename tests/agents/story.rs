//! `examples/coding-agents/` from one dropped file to a tested branch, by the real claude: through a
//! used-up quota and a kill of the daemon, shown to a person and sent back once.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::claude::tree_of;
use crate::common::{Daemon, outcomes, text, wait_until};
use crate::desk::{Desk, has, usage};
use crate::sessions::{SUBSCRIBED, session, used_up};
use crate::stub::{Answer, Asked, Stub, report_with};

const DISCOUNTED: &str = "#!/bin/sh\nprice=$(($1 * $2))\n\
                          [ \"$1\" -ge 10 ] && price=$((price * 9 / 10))\necho $price\n";

/// A model that plans, codes and listens. It waits for `go` in the middle of its coding.
fn model(go: mpsc::Receiver<()>) -> impl Fn(&Asked) -> Answer + Send + Sync {
    let go = Mutex::new(go);
    let turns = Arc::new(Mutex::new((0, 0)));
    move |asked| {
        let conversation = asked.conversation();
        let mut turns = turns.lock().unwrap();
        if conversation.contains("You plan one change") {
            turns.0 += 1;
            return match turns.0 {
                1 => used_up(8),
                _ => report_with(&json!({
                    "status": "complete", "summary": "Lower the price in price.sh from 10 pieces on",
                    "context": "PLAN: multiply by 9 and divide by 10.",
                    "decisions": [{"decision": "whole cents", "rationale": "the request says so"}],
                })),
            };
        }
        assert!(
            conversation.contains("You make one change"),
            "{conversation}"
        );
        assert!(
            conversation.contains("PLAN: multiply by 9"),
            "{conversation}"
        );
        assert!(
            conversation.contains("Give a discount of 10 %"),
            "{conversation}"
        );
        turns.1 += 1;
        let file = |name: &str| format!("{}/{name}", tree_of(&asked.body.to_string()));
        let write = |name: &str, content: &str| {
            Answer::Tool(
                "Write",
                json!({"file_path": file(name), "content": content}),
            )
        };
        match turns.1 {
            1 => Answer::Tool("Read", json!({"file_path": file("price.sh")})),
            2 => write("price.sh", DISCOUNTED),
            3 => {
                go.lock().unwrap().recv().unwrap();
                Answer::Tool(
                    "Bash",
                    json!({"command": "sh test.sh", "description": "run the tests"}),
                )
            }
            4 => report_with(&json!({
                "status": "needs_review", "summary": "Orders of 10 pieces or more cost 10 % less",
                "files_modified": ["price.sh"], "question": "price.sh has the discount. May it be tested?",
                "verification": {"tests_passed": true, "build_success": null, "lint_passed": null,
                    "command_output": "all prices are right"},
            })),
            5 => Answer::Tool("Read", json!({"file_path": file("README.md")})),
            6 => write(
                "README.md",
                "# A small shop\n\nFrom 10 pieces on, 10 % less.\n",
            ),
            _ => report_with(&json!({
                "status": "needs_review", "summary": "The README names the discount",
                "files_modified": ["README.md"], "question": "Now?",
            })),
        }
    }
}

/// The example as a user copies it, with the test's own model for its agents.
fn copy_example(desk: &Desk) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/coding-agents");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(example.join("."))
        .arg(desk.root.dir())
        .status();
    assert!(copied.unwrap().success());
    let path = desk.root.path("handoffd.toml");
    let config = fs::read_to_string(&path).unwrap();
    let agent = "agent = \"claude\"";
    assert_eq!(config.matches(agent).count(), 2);
    let ours = format!("{agent}\nenv = {{ {} }}", desk.variables(SUBSCRIBED));
    fs::write(&path, config.replace(agent, &ours)).unwrap();
    desk.make_repository();
}

/// The id of a step of the chain, once it is there.
fn step(desk: &Desk, number: usize) -> String {
    wait_until(&format!("step {number}"), || {
        ["pending", "in-progress", "waiting", "completed", "failed"]
            .iter()
            .flat_map(|state| desk.root.names(&format!("handoffs/{state}")))
            .find_map(|name| {
                let id = name.strip_suffix(".json")?;
                id.starts_with(&format!("discount.{number}-"))
                    .then(|| id.to_owned())
            })
    })
}

#[test]
fn a_feature_from_one_file_to_a_tested_branch() {
    if !has("claude") {
        return;
    }
    let (go, wait) = mpsc::channel();
    let desk = Desk::empty(Stub::start(model(wait)));
    copy_example(&desk);
    let daemon = Daemon::start(&desk.root);
    fs::copy(
        desk.root.path("discount.json"),
        desk.root.pending("discount.json"),
    )
    .unwrap();

    // Planned, after the quota is back.
    let plan = desk.root.completed("discount");
    assert_eq!(outcomes(&plan), ["held", "completed"]);
    assert_eq!(session(&plan, 1), session(&plan, 2));

    // Coded, while the daemon is killed and another one takes its place.
    let coder = step(&desk, 1);
    wait_until("the middle of the coding", || {
        let shown = desk.worktree("discount").join("price.sh");
        (fs::read_to_string(shown).ok()? == DISCOUNTED).then_some(())
    });
    daemon.kill();
    let _daemon = Daemon::start(&desk.root);
    go.send(()).unwrap();

    // Shown to a person, who sends it back once.
    let first = desk.asks(&coder);
    assert_eq!(
        outcomes(&first),
        ["needs_review"],
        "the attempt was taken over"
    );
    assert!(
        desk.says(&["show", &coder])
            .contains("price.sh has the discount. May it be tested?")
    );
    assert!(desk.says(&["diff", &coder]).contains("+[ \"$1\" -ge 10 ]"));
    let comment = "Say in the README from how many pieces the discount counts.";
    desk.answer("reject", &coder, &["--comment", comment]);

    // Resumed in the same session, and approved.
    let again = |record: &Value| record["waiting"]["on"] == "human" && outcomes(record).len() == 2;
    let second = desk.root.record_that("waiting", &coder, again);
    assert_eq!(session(&second, 1), session(&second, 2));
    let told = desk
        .stub
        .asked()
        .into_iter()
        .any(|asked| asked.last().contains(comment));
    assert!(told, "the comment is the next message of the session");
    desk.answer("approve", &coder, &["--comment", "good"]);

    // Tested and completed.
    let tested = desk.root.completed(&step(&desk, 2));
    assert_eq!(tested["output"]["branch"], "handoffd/discount");
    assert!(
        tested["output"]["text"]
            .as_str()
            .unwrap()
            .contains("all prices are right")
    );
    let result = desk.root.completed(&coder);
    assert_eq!(
        desk.on_branch("handoffd/discount", "price.sh"),
        DISCOUNTED.trim()
    );
    assert!(
        desk.on_branch("handoffd/discount", "README.md")
            .contains("From 10 pieces on")
    );
    assert_eq!(
        desk.on_branch("main", "price.sh").lines().count(),
        3,
        "main is as it was"
    );

    // The cost of every attempt is in its record.
    for (record, number, turns) in [(&plan, 2, 1), (&result, 1, 4), (&result, 2, 3)] {
        let cost = usage(record, number);
        assert_eq!(cost["input_tokens"], 100 * turns, "{cost}");
        assert_eq!(cost["output_tokens"], 20 * turns, "{cost}");
        assert!(cost["cost_usd"].as_f64().unwrap() > 0.0, "{cost}");
    }
    assert_eq!(
        usage(&plan, 1)["input_tokens"],
        0,
        "a held attempt cost nothing"
    );
    assert!(text(&result["metadata"]["takeover"]).contains("claude --resume"));
    desk.root.assert_audit_is_sound();
}
