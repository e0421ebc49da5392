//! What a chain carries: the first request, and what was decided, made and left open on the way.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, ask, child, children, outcomes, text, with};

const STEPS: &str = "workflows.w.steps = [{ phase = 'a', agent = '@one' }, \
                     { phase = 'b', agent = '@two' }, { phase = 'c', agent = '@three' }, \
                     { phase = 'd', agent = '@four' }]";

/// Decides something, makes a file, and names the next agent.
fn works(name: &str, next: &str) -> String {
    format!(
        r#"cat >"marks/{name}.stdin"; echo >>"marks/{name}.stdin"
        mkdir -p artifacts; echo {name} >"artifacts/{name}.md"
        echo '{{"status": "complete", "phase": "{name}", "summary": "{name} is done",
        "decisions": ["{name} decided"], "artifacts": ["artifacts/{name}.md"],
        "handoff": {{"next_agent": {next}, "context": "from {name}"}}}}'"#
    )
}

/// Keeps what it read.
const LAST: &str = r#"cat >marks/four.stdin; echo >>marks/four.stdin
    echo '{"status": "complete", "summary": "all of it was there"}'"#;

fn package() -> Value {
    json!({ "handoff": {
        "from": {"agent": "client"}, "to": {"agent": "@one"},
        "context": {
            "summary": "3 user stories are specified and approved",
            "decisions": [{"id": "D-1", "decision": "one table", "rationale": "r"}, "no cache"],
            "artifacts": [{"path": "spec.md", "type": "spec"}],
            "open_questions": [{"question": "how many users?", "priority": "high"}, "which region?"],
        },
        "expectations": {"deliverable": "a design with 2 diagrams", "constraints": ["no new table"]},
    }})
}

fn team(config: &str, specialists: &[(&str, &str)]) -> Root {
    let root = Root::team(config, specialists);
    fs::write(root.path("spec.md"), "3 stories").unwrap();
    root
}

fn read(root: &Root, name: &str) -> Value {
    serde_json::from_str(&root.mark(&format!("{name}.stdin"))).unwrap()
}

/// The entries of a list, as `what@handoff`.
fn entries(data: &Value, list: &str, field: &str) -> Vec<String> {
    let entries = data[list].as_array();
    entries
        .into_iter()
        .flatten()
        .map(|it| format!("{}@{}", text(&it[field]), text(&it["handoff_id"])))
        .collect()
}

/// All that the package `p` brought is there, whole.
fn assert_has_the_package(data: &Value) {
    let first = package();
    assert_eq!(
        data["origin"],
        json!({"handoff_id": "p", "context": first["handoff"]["context"],
               "expectations": first["handoff"]["expectations"]}),
        "{data:#}"
    );
    assert_eq!(
        entries(data, "decisions", "decision")[..2],
        ["one table@p", "no cache@p"],
        "{data:#}"
    );
    assert_eq!(data["decisions"][0]["rationale"], "r");
    assert_eq!(data["artifacts"][0]["type"], "spec");
    assert_eq!(entries(data, "artifacts", "path")[0], "spec.md@p");
    assert_eq!(
        entries(data, "open_questions", "question"),
        ["how many users?@p", "which region?@p"]
    );
    assert_eq!(data["open_questions"][0]["priority"], "high");
}

#[test]
fn a_package_reaches_the_fourth_agent_whole() {
    let root = team(
        "",
        &[
            ("one", &works("one", "\"two\"")),
            ("two", &works("two", "\"three\"")),
            ("three", &works("three", "\"four\"")),
            ("four", LAST),
        ],
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("p", &package());
    let two = child(&root.completed("p"));
    let three = child(&root.completed(&two));
    let four = child(&root.completed(&three));
    root.completed(&four);
    let data = &read(&root, "four")["input"]["data"];
    assert_has_the_package(data);
    assert_eq!(
        entries(data, "decisions", "decision")[2..],
        [
            "one decided@p".to_owned(),
            format!("two decided@{two}"),
            format!("three decided@{three}")
        ]
    );
    assert_eq!(
        entries(data, "artifacts", "path")[1..],
        [
            "artifacts/one.md@p".to_owned(),
            format!("artifacts/two.md@{two}"),
            format!("artifacts/three.md@{three}")
        ]
    );
    assert_eq!(data["context"], "from three");
    assert_eq!(data["summary"], "three is done");
    assert!(data["expectations"].is_null(), "they were for the first");
    for name in ["two", "three"] {
        assert_has_the_package(&read(&root, name)["input"]["data"]);
    }
}

#[test]
fn a_requests_input_is_the_origin_as_it_was_written() {
    let asks = works("one", "\"two\"").replace(
        "\"decisions\"",
        "\"open_questions\": [\"q\"], \"decisions\"",
    );
    let answers = works("two", "\"four\"").replace(
        "\"decisions\": [\"two decided\"]",
        "\"open_questions\": [\"left\"]",
    );
    let root = team("", &[("one", &asks), ("two", &answers), ("four", LAST)]);
    let _daemon = Daemon::start(&root);
    let request = r#"{"target": {"agent_id": "@one"},
        "input": {"note": "kept", "data": {"n": 1.10, "big": 12345678901234567890123}}}"#;
    root.drop_bytes("x.json", request.as_bytes());
    let two = child(&root.completed("x"));
    let four = child(&root.completed(&two));
    let record = root.completed(&four);
    let data = &record["input"]["data"];
    assert_eq!(data["origin"]["handoff_id"], "x");
    assert_eq!(data["origin"]["input"]["note"], "kept");
    let bytes = fs::read_to_string(root.state("completed", &four)).unwrap();
    for number in ["1.10", "12345678901234567890123"] {
        assert!(bytes.contains(number), "{bytes}");
    }
    assert_eq!(
        entries(data, "open_questions", "question"),
        [format!("left@{two}")],
        "a new list takes the place of the old one"
    );
    assert_eq!(
        entries(data, "artifacts", "path"),
        [
            "artifacts/one.md@x".to_owned(),
            format!("artifacts/two.md@{two}")
        ]
    );
}

#[test]
fn a_dropped_report_begins_a_chain_as_well() {
    let root = team("", &[("one", &works("one", "\"four\"")), ("four", LAST)]);
    let _daemon = Daemon::start(&root);
    let report = |next: Value| {
        json!({"status": "complete", "phase": "design", "agent": "@arch", "summary": "2 tables",
               "decisions": ["two tables"], "open_questions": ["which region?"],
               "handoff": {"next_agent": next, "context": "begin with users"}})
    };
    root.drop_request("r", &report("@one".into()));
    let four = child(&root.completed("r"));
    let record = root.completed(&four);
    let data = &record["input"]["data"];
    let origin = json!({"handoff_id": "r", "context": "begin with users"});
    assert_eq!(data["origin"], origin);
    assert_eq!(
        entries(data, "decisions", "decision"),
        ["two tables@r", "one decided@r"]
    );
    assert_eq!(
        entries(data, "open_questions", "question"),
        ["which region?@r"]
    );
}

#[test]
fn a_workflow_shows_each_step_what_was_asked_first() {
    let root = team(
        STEPS,
        &[
            ("one", &works("one", "null")),
            ("two", &works("two", "null")),
            ("three", &works("three", "null")),
            ("four", LAST),
        ],
    );
    let _daemon = Daemon::start(&root);
    let mut first = package();
    first["handoff"]["workflow_state"] = json!({"name": "w", "current_step": 1});
    root.drop_request("p", &first);
    let mut id = "p".to_owned();
    for _ in 0..3 {
        id = child(&root.completed(&id));
    }
    root.completed(&id);
    for name in ["two", "three", "four"] {
        assert_has_the_package(&read(&root, name)["input"]["data"]);
    }
}

#[test]
fn a_person_in_the_middle_hands_on_what_came_before() {
    let steps = STEPS.replace("@two", "human");
    let one = works("one", "null").replace(
        "\"decisions\"",
        "\"verification\": {\"tests_passed\": true}, \"files_modified\": [\"a.rs\"], \"decisions\"",
    );
    let root = team(
        &steps,
        &[
            ("one", &one),
            ("three", &works("three", "null")),
            ("four", LAST),
        ],
    );
    let daemon = Daemon::start(&root);
    let mut first = package();
    first["handoff"]["workflow_state"] = json!({"name": "w", "current_step": 1});
    root.drop_request("p", &first);
    let person = child(&root.completed("p"));
    root.waiting(&person);
    daemon.kill();
    let _daemon = Daemon::start(&root);
    root.answer(
        "approve",
        &person,
        json!({"choice": "fast", "comment": "in March"}),
    );
    let record = root.completed(&person);
    let three = child(&record);
    let four = child(&root.completed(&three));
    root.completed(&four);
    let data = &read(&root, "three")["input"]["data"];
    assert_has_the_package(data);
    assert_eq!(data["answer"], record["answer"]);
    assert_eq!(data["answer"]["action"], "approve");
    assert_eq!(data["answer"]["choice"], "fast");
    assert_eq!(data["answer"]["by"], "ann");
    assert!(data["answer"]["at"].is_string());
    assert_eq!(data["summary"], "in March");
    assert_eq!(data["context"], "from one");
    assert_eq!(data["verification"]["tests_passed"], true);
    assert_eq!(data["files_modified"], json!(["a.rs"]));
    assert_eq!(
        entries(data, "decisions", "decision")[2..],
        ["one decided@p"]
    );
    let data = &read(&root, "four")["input"]["data"];
    assert_has_the_package(data);
    assert!(data["answer"].is_null(), "that was for the one before");
}

#[test]
fn a_package_to_a_person_hands_on_its_work_and_the_answer() {
    let steps = STEPS.replace("@one", "human");
    let root = team(&steps, &[("two", &works("two", "null"))]);
    let _daemon = Daemon::start(&root);
    let mut first = package();
    first["handoff"]["to"]["agent"] = "human".into();
    first["handoff"]["workflow_state"] = json!({"name": "w", "current_step": 1});
    root.drop_request("p", &first);
    root.waiting("p");
    root.answer("approve", "p", json!({}));
    root.completed(&child(&root.completed("p")));
    let data = &read(&root, "two")["input"]["data"];
    assert_has_the_package(data);
    assert_eq!(data["answer"]["action"], "approve");
    assert_eq!(data["summary"], first["handoff"]["context"]["summary"]);
    assert_eq!(data["context"], first["handoff"]["context"]);
}

#[test]
fn a_review_hands_on_the_work_and_the_answer() {
    let reviewed = works("one", "\"two\"").replace("complete", "needs_review");
    let root = team("", &[("one", &reviewed), ("two", &works("two", "null"))]);
    let _daemon = Daemon::start(&root);
    root.drop_request("p", &package());
    root.waiting("p");
    root.answer("approve", "p", json!({"comment": "but use UTC"}));
    root.completed(&child(&root.completed("p")));
    let data = &read(&root, "two")["input"]["data"];
    assert_has_the_package(data);
    assert_eq!(data["answer"]["comment"], "but use UTC");
    assert_eq!(data["summary"], "one is done");
    assert_eq!(data["artifacts"][1]["path"], "artifacts/one.md");
}

#[test]
fn a_delegation_in_the_middle_loses_nothing_and_brings_its_own() {
    let two = format!(
        r#"if [ $HANDOFF_ATTEMPT = 1 ]; then
        echo '{{"status": "delegate", "decisions": ["ask @kid"],
        "handoff": {{"children": [{{"agent": "@kid", "input": {{"n": 1}}}},
        {{"agent": "@kid", "input": {{"origin": "Paris", "decisions": [7]}}}}]}}}}'; exit 0; fi
        {}"#,
        works("two", "\"three\"")
    );
    let kid = r#"cat >"marks/$HANDOFF_ID.stdin"; echo >>"marks/$HANDOFF_ID.stdin"
        mkdir -p artifacts; echo kid >"artifacts/$HANDOFF_ID.md"
        echo '{"status": "complete", "summary": "s", "decisions": ["kid decided"]}'"#;
    let root = team(
        "",
        &[
            ("one", &works("one", "\"two\"")),
            ("two", &two),
            ("kid", kid),
            ("three", &works("three", "\"four\"")),
            ("four", LAST),
        ],
    );
    let daemon = Daemon::start(&root);
    root.drop_request("p", &package());
    let id = child(&root.completed("p"));
    let record = root.completed(&id);
    daemon.kill();
    let _daemon = Daemon::start(&root);
    assert_eq!(outcomes(&record), ["delegated", "completed"]);
    let [first, second, three] = children(&record).try_into().unwrap();
    let data = &read(&root, &first)["input"]["data"];
    assert_has_the_package(data);
    assert_eq!(data["n"], 1);
    let data = &read(&root, &second)["input"]["data"];
    assert_eq!(data["origin"], "Paris", "the result's own word stays");
    assert_eq!(data["decisions"], json!([7]));
    assert_eq!(
        read(&root, &second)["handoffd"]["carried"]["origin"]["handoff_id"],
        "p"
    );
    root.completed(&child(&root.completed(&three)));
    let data = &read(&root, "four")["input"]["data"];
    assert_has_the_package(data);
    assert_eq!(
        entries(data, "decisions", "decision")[2..],
        [
            "one decided@p".to_owned(),
            format!("ask @kid@{id}"),
            format!("kid decided@{first}"),
            format!("kid decided@{second}"),
            format!("two decided@{id}"),
            format!("three decided@{three}")
        ]
    );
}

#[test]
fn a_helper_is_shown_what_was_asked_first() {
    let stuck = format!(
        r#"if [ $HANDOFF_ATTEMPT = 1 ]; then
        echo '{{"status": "blocked", "blocked_reason": "unknown", "attempted": ["a"], "phase": "p",
        "handoff": {{"context": "which way?"}}}}'; exit 0; fi
        {}"#,
        works("two", "\"four\"")
    );
    let root = team(
        "routes.blocked.unknown = '@guard'",
        &[
            ("one", &works("one", "\"two\"")),
            ("two", &stuck),
            ("guard", &works("guard", "null")),
            ("four", LAST),
        ],
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("p", &package());
    let two = root.completed(&child(&root.completed("p")));
    root.completed(&children(&two)[1]);
    let data = &read(&root, "guard")["input"]["data"];
    assert_has_the_package(data);
    assert!(data["blocked_input"]["origin"].is_null(), "{data:#}");
    assert_eq!(data["blocked_input"]["summary"], "one is done");
    assert_has_the_package(&read(&root, "four")["input"]["data"]);
}

#[test]
fn a_kill_a_retry_and_a_resubmission_lose_nothing() {
    let fails = |name: &str, next: &str| {
        format!("[ -e marks/{name}.go ] || exit 64\n{}", works(name, next))
    };
    let slow = format!("mark up; await go\n{}", works("one", "\"two\""));
    let root = team(
        "",
        &[
            ("one", &slow),
            ("two", &fails("two", "\"three\"")),
            ("three", &fails("three", "\"four\"")),
            ("four", LAST),
        ],
    );
    let daemon = Daemon::start(&root);
    root.drop_request("p", &package());
    root.mark("p.up");
    daemon.kill();
    let daemon = Daemon::start(&root);
    root.allow("go");
    let two = child(&root.completed("p"));
    root.failed(&two);
    root.allow("two.go");
    root.command("r.json", &json!({"action": "retry", "handoff_id": two}));
    let three = child(&root.record_that("completed", &two, |_| true));
    root.failed(&three);
    daemon.kill();
    root.allow("three.go");
    fs::rename(
        root.state("failed", &three),
        root.pending(&format!("{three}.json")),
    )
    .unwrap();
    let _daemon = Daemon::start(&root);
    let record = root.record_that("completed", &three, |_| true);
    let four = child(&record);
    root.completed(&four);
    let data = &read(&root, "four")["input"]["data"];
    assert_has_the_package(data);
    assert_eq!(
        entries(data, "decisions", "decision")[2..],
        [
            "one decided@p".to_owned(),
            format!("two decided@{two}"),
            format!("three decided@{three}")
        ]
    );
}

#[test]
fn a_schema_is_held_against_what_the_result_wrote() {
    let root = team(
        "specialists.'@two'.input_schema = 'two.json'\n\
         specialists.'@three'.input_schema = 'strict.json'\n\
         specialists.'@four'.input_schema = 'strict.json'",
        &[
            ("one", &works("one", "\"two\"")),
            ("two", &works("two", "\"three\"")),
            (
                "three",
                r#"echo '{"status": "complete", "phase": "c", "summary": "s",
                "handoff": {"next_agent": "four", "context": "c"}}'"#,
            ),
            ("four", LAST),
        ],
    );
    fs::create_dir_all(root.path("schemas")).unwrap();
    // Texts, as the result wrote them.
    let two = json!({"type": "object", "additionalProperties": false,
        "required": ["context", "summary", "phase", "decisions", "artifacts"],
        "properties": {"context": {"type": "string"}, "summary": {}, "phase": {},
            "decisions": {"items": {"type": "string"}, "maxItems": 1},
            "artifacts": {"maxItems": 1}}});
    let strict = json!({"type": "object", "additionalProperties": false,
        "properties": {"context": {}, "summary": {}, "phase": {}, "artifacts": {"maxItems": 1},
            "decisions": {"maxItems": 1, "items": {"required": ["decision"]}}}});
    for (name, schema) in [("two", two), ("strict", strict)] {
        let path = root.path(&format!("schemas/{name}.json"));
        fs::write(path, schema.to_string()).unwrap();
    }
    let _daemon = Daemon::start(&root);
    root.drop_request("p", &package());
    let two = child(&root.completed("p"));
    let three = child(&root.completed(&two));
    let four = child(&root.completed(&three));
    root.completed(&four);
    assert_has_the_package(&read(&root, "four")["input"]["data"]);
    // A producer's own `origin` is its own, and a claim to be of a chain changes nothing.
    let forged = json!({"input": {"data": {"origin": 1}},
        "handoffd": {"format": 1, "attempts": [], "parent": "p", "chain": "p", "hop": 1}});
    for (id, over) in [
        ("own", json!({"input": {"data": {"origin": 1}}})),
        ("forged", forged),
    ] {
        root.drop_request(id, &with(ask("@four"), over));
        let (record, code) = root.failed(id);
        assert_eq!(code, "SCHEMA_VALIDATION_FAILED");
        assert!(record["error"]["message"].to_string().contains("origin"));
    }
}

#[test]
fn what_was_gathered_neither_hides_a_circle_nor_makes_one() {
    // Each says the very same every time, and the lists grow meanwhile.
    let ping = |next: &str| {
        format!(
            r#"echo '{{"status": "complete", "phase": "p", "summary": "s",
            "decisions": ["at '$HANDOFF_ID'"],
            "handoff": {{"next_agent": "{next}", "context": "the same"}}}}'"#
        )
    };
    let root = team("", &[("a", &ping("b")), ("b", &ping("a"))]);
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@a"));
    let b = child(&root.completed("x"));
    let a = child(&root.completed(&b));
    let refused = child(&root.completed(&a));
    let (record, code) = root.failed(&refused);
    assert_eq!(code, "BLOCKED");
    assert!(text(&record["error"]["message"]).contains("circle"));
}
