use std::path::PathBuf;

use super::*;

fn exit(code: i32, stderr: &str) -> Exit {
    Exit {
        code: Some(code),
        stderr: stderr.to_owned(),
    }
}

fn ending(stream: &str, exit: &Exit) -> Ending {
    let mut codex = Codex::default();
    for line in stream.lines() {
        codex.line(line);
    }
    codex.ending(exit)
}

macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../tests/streams/codex-0.169.0-", $name, ".jsonl"))
    };
}

#[test]
fn a_recorded_answer_is_read_and_a_warning_is_no_error() {
    let ending = ending(recorded!("plain"), &exit(0, ""));
    assert_eq!(ending.ended, Ended::Through);
    assert_eq!(ending.text.as_deref(), Some("Hello from the stub."));
    assert!(ending.session.is_some());
    let sums = Usage {
        input_tokens: 100,
        output_tokens: 20,
        cost_usd: None,
    };
    assert_eq!(ending.figures, Figures::OfSession(sums));
}

#[test]
fn recorded_failures_are_told_apart() {
    let quota = ending(recorded!("429"), &exit(1, ""));
    assert!(matches!(quota.ended, Ended::Quota { .. }), "{quota:?}");
    let login = ending(recorded!("401"), &exit(1, ""));
    assert!(
        matches!(&login.ended, Ended::Trouble(it) if it.kind == Kind::NotLoggedIn),
        "{login:?}"
    );
    let gone = "Error: thread/resume: thread/resume failed: no rollout found for thread id x";
    assert_eq!(ending("", &exit(1, gone)).ended, Ended::NoSession);
    let begun = recorded!("plain").lines().next().unwrap();
    let cut = ending(begun, &exit(1, ""));
    assert!(
        matches!(&cut.ended, Ended::Trouble(it) if it.kind == Kind::CutOff),
        "{cut:?}"
    );
}

#[test]
fn a_last_message_that_is_an_object_is_the_report() {
    let report = serde_json::json!({"status": "complete", "summary": "s"}).to_string();
    let message = serde_json::json!({
        "type": "item.completed", "item": {"type": "agent_message", "text": report},
    });
    let stream = format!("{message}\n{{\"type\":\"turn.completed\"}}");
    let ending = ending(&stream, &exit(0, ""));
    assert_eq!(ending.report.unwrap()["summary"], "s");
    assert_eq!(ending.text, None);
}

#[test]
fn the_prompt_comes_on_stdin_and_a_session_is_resumed_by_its_id() {
    let turn = |start: &Start| {
        let args = ["-s".to_owned(), "workspace-write".to_owned()];
        let turn = Turn {
            start,
            folder: std::path::Path::new("/nowhere"),
            schema_file: PathBuf::from("/tmp/s"),
            schema: "{}",
            granted: &[],
            max_usd: None,
            args: &args,
            program: Some("/opt/codex"),
            mcp: None,
        };
        let call = Codex::default().call(&turn);
        format!("{} {}", call.program, call.args.join(" "))
    };
    let common = "--json --skip-git-repo-check --output-schema /tmp/s -s workspace-write";
    assert_eq!(
        turn(&Start::New("unused".to_owned())),
        format!("/opt/codex exec {common} -")
    );
    assert_eq!(
        turn(&Start::Resume("ID".to_owned())),
        format!("/opt/codex exec {common} resume ID -")
    );
}

#[test]
fn a_recorded_limit_names_its_end_and_a_recorded_command_is_one_line_of_log() {
    let limit = ending(recorded!("usage-limit"), &exit(1, ""));
    let Ended::Quota { said, .. } = limit.ended else {
        panic!("{limit:?}")
    };
    assert!(
        crate::until::until(&said, std::time::SystemTime::UNIX_EPOCH).is_some(),
        "{said}"
    );
    let mut codex = Codex::default();
    let log: Vec<String> = recorded!("tool")
        .lines()
        .filter_map(|line| codex.line(line).log)
        .collect();
    assert!(
        log.contains(&"→ run: /bin/bash -lc 'echo made > made.txt'".to_owned()),
        "{log:?}"
    );
    assert_eq!(log.last().unwrap(), "Done");
}
