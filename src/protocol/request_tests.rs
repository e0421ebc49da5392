//! Tables for [`super::Request`]: what is read, and what each mistake is told.

use serde_json::json;

use super::*;

fn read(text: &str) -> Result<Request, Vec<FieldError>> {
    let document = crate::protocol::json::parse(text).unwrap();
    let stem = HandoffId::parse("x").unwrap();
    Request::from_document(document.as_object().unwrap(), &stem)
}

/// A request that is right but for the given fields.
fn with(fields: &str) -> Result<Request, Vec<FieldError>> {
    read(&format!(r#"{{"target":{{"agent_id":"@a"}},{fields}}}"#))
}

#[test]
fn a_whole_request_is_read() {
    let request = read(
        r#"{
          "handoff_id": "x",
          "source": {"agent_id": "@s"}, "target": {"agent_id": "@react", "phase": 13},
          "timeout_seconds": 1.5, "priority": "high",
          "retry_policy": {"max_retries": 0, "retry_delay_seconds": 0.25, "backoff_multiplier": 1.0},
          "not_before": "2026-01-13T10:00:00Z",
          "depends_on": ["a", "b~2", "a"],
          "requires_artifacts": ["artifacts/a.json", "b"],
          "context": {"task_id": "T-1"}, "input": {"schema": "s", "data": [1]},
          "expected_output": {"destination": "artifacts/o.json"}, "anything": {"else": 1e400}
        }"#,
    )
    .unwrap();
    let id = |text| HandoffId::parse_made(text).unwrap();
    let expected = Request {
        id: id("x"),
        agent: AgentName::parse("react").unwrap(),
        dialect: Dialect::Request,
        timeout_ms: Some(1500),
        priority: Priority::High,
        retry: RetryAsked {
            max_retries: Some(0),
            delay_ms: Some(250),
            multiplier: Some(1.0),
        },
        not_before: Wall::parse("2026-01-13T10:00:00Z"),
        depends_on: vec![id("a"), id("b~2")],
        requires_artifacts: vec!["artifacts/a.json".to_owned(), "b".to_owned()],
        task_id: Some("T-1".to_owned()),
        phase: Some("13".to_owned()),
        input_schema: Some("s".to_owned()),
        output: Expected {
            destination: Some("artifacts/o.json".to_owned()),
            ..Expected::default()
        },
        finished: None,
        gate: None,
        workflow: None,
    };
    assert_eq!(request, expected);
}

#[test]
fn null_counts_as_absent() {
    let request = with(
        r#""handoff_id":null,"timeout_seconds":null,"priority":null,"retry_policy":null,
           "not_before":null,"depends_on":null,"requires_artifacts":null,"context":null,
           "input":null,"expected_output":{"schema":null},"source":null"#,
    )
    .unwrap();
    assert_eq!(request, read(r#"{"target":{"agent_id":"@a"}}"#).unwrap());
    assert_eq!(request.priority, Priority::Normal);
}

#[test]
fn timeouts_become_milliseconds() {
    for (written, ms) in [
        ("300", 300_000),
        ("0.0001", 1),
        ("1e300", u64::MAX),
        ("99999999999999999999", u64::MAX),
    ] {
        let request = with(&format!(r#""timeout_seconds":{written}"#)).unwrap();
        assert_eq!(request.timeout_ms, Some(ms), "{written}");
    }
}

#[test]
fn one_dependency_may_stand_alone() {
    let request = with(r#""depends_on":"a""#).unwrap();
    assert_eq!(request.depends_on, [HandoffId::parse("a").unwrap()]);
}

fn check_mistake(fields: &str, expected: &str) {
    let errors = with(fields).unwrap_err();
    assert_eq!(errors.len(), 1, "{fields}: {errors:?}");
    let error = errors[0].to_string();
    assert!(error.starts_with(expected), "{fields}: {error}");
}

#[test]
fn mistakes_in_numbers_and_words_are_told() {
    for (fields, expected) in [
        (
            r#""handoff_id":"y""#,
            r#"handoff_id: the document has the id "y", but its file is named x"#,
        ),
        (
            r#""handoff_id":5"#,
            "handoff_id: expected a string, found the number 5",
        ),
        (
            r#""timeout_seconds":"abc""#,
            r#"timeout_seconds: expected a number greater than 0, found the string "abc""#,
        ),
        (
            r#""timeout_seconds":0"#,
            "timeout_seconds: expected a number greater than 0, found the number 0",
        ),
        (
            r#""timeout_seconds":-1.5"#,
            "timeout_seconds: expected a number greater than 0, found the number -1.5",
        ),
        (
            r#""timeout_seconds":1e400"#,
            "timeout_seconds: the number 1e400 is out of range",
        ),
        (r#""timeout_seconds":1e-400"#, "timeout_seconds: expected"),
        (
            r#""priority":"urgent""#,
            r#"priority: expected critical, high, normal or low, found the string "urgent""#,
        ),
        (r#""priority":"HIGH""#, "priority: expected"),
        (
            r#""retry_policy":[]"#,
            "retry_policy: expected an object, found an array",
        ),
        (
            r#""retry_policy":{"max_retries":1.5}"#,
            "retry_policy.max_retries: expected a whole number",
        ),
        (
            r#""retry_policy":{"max_retries":1001}"#,
            "retry_policy.max_retries: expected",
        ),
        (
            r#""retry_policy":{"max_retries":-1}"#,
            "retry_policy.max_retries: expected",
        ),
        (
            r#""retry_policy":{"max_retries":"3"}"#,
            "retry_policy.max_retries: expected",
        ),
        (
            r#""retry_policy":{"retry_delay_seconds":-0.1}"#,
            "retry_policy.retry_delay_seconds: expected",
        ),
        (
            r#""retry_policy":{"backoff_multiplier":0.9}"#,
            "retry_policy.backoff_multiplier: expected",
        ),
        (
            r#""retry_policy":{"backoff_multiplier":1e9}"#,
            "retry_policy.backoff_multiplier: expected",
        ),
        (
            r#""not_before":"tomorrow""#,
            "not_before: expected an RFC 3339 instant",
        ),
        (
            r#""not_before":1700000000"#,
            "not_before: expected an RFC 3339 instant",
        ),
    ] {
        check_mistake(fields, expected);
    }
}

#[test]
fn mistakes_in_references_and_shapes_are_told() {
    let many = format!(r#""depends_on":{}"#, json!(vec!["a"; 1001]));
    for (fields, expected) in [
        (
            r#""depends_on":["a","b/c"]"#,
            "depends_on[1]: '/' at position 2",
        ),
        (
            r#""depends_on":["a",7]"#,
            "depends_on[1]: expected a string, found the number 7",
        ),
        (
            r#""depends_on":{"a":1}"#,
            "depends_on: expected an array of strings, found an object",
        ),
        (
            &many,
            "depends_on: expected at most 1000 entries, found 1001",
        ),
        (
            r#""requires_artifacts":"a""#,
            "requires_artifacts: expected an array of strings",
        ),
        (
            r#""requires_artifacts":[null]"#,
            "requires_artifacts[0]: expected a string, found null",
        ),
        (r#""context":"c""#, "context: expected an object"),
        (
            r#""context":{"task_id":"current"}"#,
            "context.task_id: `current` is reserved",
        ),
        (
            r#""context":{"task_id":"../x"}"#,
            "context.task_id: an id must not start with a dot",
        ),
        (
            r#""context":{"task_id":12}"#,
            "context.task_id: expected a string",
        ),
        (r#""input":"do it""#, "input: expected an object"),
        (
            r#""input":{"schema":{}}"#,
            "input.schema: expected a string, found an object",
        ),
        (
            r#""expected_output":1"#,
            "expected_output: expected an object",
        ),
        (
            r#""expected_output":{"destination":1}"#,
            "expected_output.destination: expected a string",
        ),
        (r#""source":"@s""#, "source: expected an object"),
        (
            r#""handoff":{"from":{},"to":{}}"#,
            "handoff: the document matches two dialects, a request (`target.agent_id`) and a package",
        ),
    ] {
        check_mistake(fields, expected);
    }
}

#[test]
fn a_missing_target_says_what_the_document_is_instead() {
    for (document, expected) in [
        ("{}", "target.agent_id: missing"),
        (r#"{"target":{}}"#, "target.agent_id: missing"),
        (
            r#"{"target":{"agent_id":null}}"#,
            "target.agent_id: missing",
        ),
        (
            r#"{"target":"@a"}"#,
            r#"target: expected an object, found the string "@a""#,
        ),
        (
            r#"{"target":{"agent_id":7}}"#,
            "target.agent_id: expected a string",
        ),
        (
            r#"{"target":{"agent_id":"@"}}"#,
            "target.agent_id: an agent name must not be empty",
        ),
        (
            r#"{"handoff":{"from":{},"to":{}}}"#,
            "handoff.to.agent: missing: the agent that the handoff is for",
        ),
        (
            r#"{"handoff":{"from":{},"to":{"agent":""}}}"#,
            "handoff.to.agent: an agent name must not be empty",
        ),
        (
            r#"{"status":"done","handoff":{}}"#,
            "target.agent_id: missing: the agent that the handoff is for (or write",
        ),
    ] {
        let errors = read(document).unwrap_err();
        assert_eq!(errors.len(), 1, "{document}: {errors:?}");
        let error = errors[0].to_string();
        assert!(error.starts_with(expected), "{document}: {error}");
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let errors = read(
        r#"{"handoff_id":"y","target":{},"timeout_seconds":0,"priority":1,
            "retry_policy":{"max_retries":-1,"backoff_multiplier":0},"depends_on":["x",3]}"#,
    )
    .unwrap_err();
    assert_eq!(errors.len(), 7, "{errors:?}");
}
