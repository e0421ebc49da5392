//! The table of plans, and how settings are laid over each other.

use super::*;
use crate::clock::Wall;
use crate::protocol::document;
use crate::protocol::id::HandoffId;
use crate::protocol::name::Ext;

const NOW: Now = Now {
    wall: Wall(1_000_000),
    boot_ms: 0,
};

fn config(text: &str) -> Config {
    Config::parse(text, std::path::Path::new("t.toml")).unwrap()
}

fn request(fields: &str) -> Request {
    let text = format!(r#"{{"target":{{"agent_id":"@a"}}{fields}}}"#);
    let document = document::parse(text.as_bytes(), Ext::Json).unwrap();
    Request::from_document(&document.map, &HandoffId::parse("x").unwrap()).unwrap()
}

const ONE: &str =
    "[specialists.a]\ncommand = [\"true\"]\ntimeout = \"2m\"\nretry = { delay = \"5s\" }\n";

fn word(plan: &Plan) -> String {
    match plan {
        Plan::Run => "run".to_owned(),
        Plan::WaitForTime { length_ms } => format!("time {length_ms}"),
        Plan::WaitForDependencies { ids, artifacts } => {
            format!("dependencies {}{}", ids.join(","), artifacts.join(","))
        }
        Plan::Complete => "complete".to_owned(),
        Plan::WaitForHuman(_) => "human".to_owned(),
        Plan::Help => "help".to_owned(),
        Plan::Refuse(told) => told.code.to_string(),
    }
}

#[test]
fn plans() {
    use Dependency::{Completed, Failed, Live, Missing};
    let cases: &[(&str, &[Dependency], &str)] = &[
        ("", &[], "run"),
        (r#","timeout_seconds":86400"#, &[], "run"),
        (
            r#","timeout_seconds":86401"#,
            &[],
            "SCHEMA_VALIDATION_FAILED",
        ),
        (r#","not_before":"1970-01-01T00:16:41Z""#, &[], "time 1000"),
        (r#","not_before":"1970-01-01T00:16:40Z""#, &[], "run"),
        (r#","depends_on":["p","q"]"#, &[Completed, Completed], "run"),
        (
            r#","depends_on":["p","q"]"#,
            &[Completed, Live],
            "dependencies q",
        ),
        (
            r#","depends_on":["p","q"]"#,
            &[Missing, Live],
            "dependencies p,q",
        ),
        (
            r#","depends_on":["p","q"]"#,
            &[Missing, Failed],
            "DEPENDENCY_MISSING",
        ),
        (r#","depends_on":["x"]"#, &[Live], "DEPENDENCY_MISSING"),
    ];
    for (fields, dependencies, expected) in cases {
        let needs = Needs {
            dependencies: dependencies.to_vec(),
            missing_artifacts: Vec::new(),
        };
        let plan = plan(&request(fields), &config(ONE), &needs, NOW);
        assert_eq!(word(&plan), *expected, "{fields}");
    }
}

#[test]
fn nobody_is_told_to_retry_what_would_meet_itself_again() {
    let itself = request(r#","depends_on":["x"]"#);
    let Plan::Refuse(told) = plan(&itself, &config(ONE), &Needs::default(), NOW) else {
        panic!()
    };
    assert!(told.message.contains("depends on itself"));
    assert_eq!(
        told.actions,
        [
            "Remove x from depends_on in handoffs/failed/x.json",
            "Then move the file back to handoffs/pending/"
        ]
    );
    let circle = dependency_cycle(&["a", "b", "a"].map(str::to_owned));
    assert!(circle.actions[0].contains("move that file back to handoffs/pending/"));
}

#[test]
fn an_unknown_agent_is_told_who_is_known() {
    let config = config("[specialists.b]\ncommand = [\"true\"]\n");
    let Plan::Refuse(told) = plan(&request(""), &config, &Needs::default(), NOW) else {
        panic!()
    };
    assert_eq!(told.code, ErrorCode::UnknownAgent);
    assert_eq!(told.message, "unknown agent @a; configured are @b");
}

#[test]
fn each_value_comes_from_the_request_else_the_specialist_else_the_defaults() {
    let config = config(ONE);
    let asked = request(r#","retry_policy":{"max_retries":1}"#);
    let terms = Terms::of(&asked, config.specialist(&asked.agent), &config);
    assert_eq!(terms.timeout, Duration::from_secs(120));
    assert_eq!(terms.retry.max_retries, 1);
    assert_eq!(terms.retry.delay, Duration::from_secs(5));
    assert!((terms.retry.multiplier - 2.0).abs() < f64::EPSILON);
    let own = request(r#","timeout_seconds":1.5"#);
    let terms = Terms::of(&own, config.specialist(&own.agent), &config);
    assert_eq!(terms.timeout, Duration::from_millis(1500));
    assert_eq!(terms.retry.max_retries, 3);
}
