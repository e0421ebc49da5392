//! The demonstration in `examples/feature-workflow/`, run as its README says, and its adapter
//! for command-line agents with an agent that is none.

#![expect(
    clippy::disallowed_methods,
    reason = "these tests play producers, who rename as they like"
)]

#[expect(
    dead_code,
    unused_imports,
    reason = "the harness of the end-to-end tests; this needs little of it"
)]
mod common;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{Root, child, children, outcomes, text};
use serde_json::{Value, json};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/feature-workflow");

fn copied() -> Root {
    let root = Root::new();
    let from = Path::new(EXAMPLE).join(".");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(from)
        .arg(root.dir())
        .status();
    assert!(copied.unwrap().success());
    root
}

fn runs(root: &Root, args: &[&str]) -> Output {
    let output = root.cli(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    output
}

#[test]
fn a_feature_goes_from_its_design_to_a_persons_yes() {
    let root = copied();
    runs(&root, &["check"]);
    let file = root.path("login.json");
    let submitted = runs(&root, &["submit", file.to_str().unwrap()]);
    assert_eq!(submitted.stdout, b"login\n");
    runs(&root, &["run", "--drain"]);

    let design = root.completed("login");
    let built = root.completed(&child(&design));
    assert_eq!(built["target"]["agent_id"], "@developer");
    assert_eq!(outcomes(&built), ["blocked", "completed"]);
    assert_eq!(
        built["input"]["data"]["artifacts"][0]["path"],
        "artifacts/design/login.md"
    );
    let [help, tests] = children(&built).try_into().unwrap();
    let help = root.completed(&help);
    assert_eq!(help["target"]["agent_id"], "@security-reviewer");
    assert_eq!(help["input"]["data"]["blocked_reason"], "security_concern");
    assert_eq!(
        built["handoffd"]["returns"][0]["result"]["summary"],
        help["result"]["summary"]
    );
    let asked = root.record("waiting", &tests);
    let data = &asked["input"]["data"];
    assert_eq!(data["origin"]["handoff_id"], "login");
    assert_eq!(data["origin"]["input"], design["input"]);
    assert_eq!(data["artifacts"].as_array().unwrap().len(), 2, "{data:#}");
    assert_eq!(data["artifacts"][0]["path"], "artifacts/design/login.md");
    assert_eq!(asked["waiting"]["on"], "human");
    assert_eq!(asked["target"]["agent_id"], "@tester");
    assert_eq!(asked["waiting"]["done"], asked["result"]["summary"]);

    // A drain that finds nothing to do leaves the question where it is.
    runs(&root, &["run", "--drain"]);
    assert_eq!(root.states_of(&tests), ["waiting"]);
    root.answer("approve", &tests, json!({ "comment": "good" }));
    runs(&root, &["run", "--drain"]);
    let done = root.completed(&tests);
    assert_eq!(done["answer"]["comment"], "good");
    assert_eq!(
        done["workflow_state"]["completed_steps"],
        json!(["architecture", "implementation"])
    );
    assert!(children(&done).is_empty(), "the workflow ends here");
    assert_eq!(root.names("handoffs/completed").len(), 4);
    for record in [&built, &help, &done] {
        assert_eq!(record["handoffd"]["chain"], "login");
    }
    for folder in ["pending", "in-progress", "waiting", "failed"] {
        assert!(root.names(&format!("handoffs/{folder}")).is_empty());
    }
    runs(&root, &["artifacts", "verify"]);
    root.assert_audit_is_sound();
}

/// An agent that is none: it keeps its prompt, and says what it was told to say.
fn adapted(root: &Root, record: &Value, answer: &str, exit: i32) -> (Output, String) {
    fs::write(root.path("answer"), answer).unwrap();
    let agent = format!("cat >prompt; cat answer; exit {exit}\n");
    fs::write(root.path("some agent.sh"), agent).unwrap();
    let mut adapter = Command::new("python3")
        .arg("specialists/agent-adapter.py")
        .current_dir(root.dir())
        .env("AGENT_COMMAND", "sh 'some agent.sh'")
        .env("AGENT_ROLE", "You write small programs.")
        .env("HANDOFF_LAST_ERROR", "VALIDATION_FAILED: phase is missing")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = adapter.stdin.take();
    let bytes = record.to_string();
    stdin.unwrap().write_all(bytes.as_bytes()).unwrap();
    let output = adapter.wait_with_output().unwrap();
    let prompt = fs::read_to_string(root.path("prompt")).unwrap_or_default();
    (output, prompt)
}

fn python_is_here() -> bool {
    let here = Command::new("python3").arg("--version").output().is_ok();
    if !here {
        println!("python3 is not here: the adapter is left out");
    }
    here
}

#[test]
fn a_record_becomes_a_prompt_and_an_answer_a_result() {
    if !python_is_here() {
        return;
    }
    let root = copied();
    let record = json!({
        "target": {"agent_id": "@developer", "phase": "implementation"},
        "input": {"data": {"summary": "über $(touch evil) `x`"}},
        "context": {"task_id": "T-9"},
        "answer": {"action": "ask", "comment": "and on Windows?"},
        "handoffd": {"returns": [{"agent": "@security-reviewer", "status": "completed"}]},
    });
    let answer = "Done.\n\n```json\n{\"status\": \"blocked\"}\n```\n\nNo, better:\n\n\
                  ```json\n{\"status\": \"complete\", \"summary\": \"é\"}\n```\nBye.\n";
    let (output, prompt) = adapted(&root, &record, answer, 0);
    assert!(output.status.success(), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result, json!({"status": "complete", "summary": "é"}));
    for part in [
        "small programs",
        "implementation",
        "über $(touch evil) `x`",
        "T-9",
        "and on Windows?",
        "@security-reviewer",
        "phase is missing",
        "```json",
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert!(!root.path("evil").exists());

    let words = "I renamed\nthe function.\n\nAnd more.\n\n```json\nnot json\n```\n";
    let (output, _) = adapted(&root, &record, words, 0);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["status"], "complete");
    assert_eq!(result["summary"], "I renamed the function.");
    assert_eq!(result["output"]["text"], words.trim());

    let (output, _) = adapted(&root, &record, "quota", 7);
    assert_eq!(output.status.code(), Some(7));
    assert!(output.stdout.is_empty());
    assert_eq!(String::from_utf8_lossy(&output.stderr).trim(), "quota");
}

#[test]
fn a_real_agent_is_in_the_loop_by_setting_one_command() {
    if !python_is_here() {
        return;
    }
    let root = copied();
    let config = fs::read_to_string(root.path("handoffd.toml")).unwrap();
    let config = config.replace(
        "command = [\"sh\", \"specialists/tester.sh\"]",
        "command = [\"python3\", \"specialists/agent-adapter.py\"]\n\
         env = { AGENT_COMMAND = \"sh agent.sh\" }",
    );
    fs::write(root.path("handoffd.toml"), config).unwrap();
    let agent = "grep -q 'works once' && echo 'All 12 tests pass.'\n";
    fs::write(root.path("agent.sh"), agent).unwrap();
    let file = root.path("login.json");
    runs(&root, &["submit", file.to_str().unwrap()]);
    runs(&root, &["run", "--drain"]);
    let built = root.completed(&child(&root.completed("login")));
    let tested = root.completed(&children(&built)[1]);
    assert_eq!(text(&tested["result"]["summary"]), "All 12 tests pass.");
}
