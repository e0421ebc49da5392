//! Packages that return to the agent that sent them.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, children, text, with};

/// Keeps what it read, and ends.
const CALLER: &str = r#"cat >"marks/$HANDOFF_ID.stdin"; echo >>"marks/$HANDOFF_ID.stdin"
    echo '{"status": "complete", "summary": "noted 2 risks"}'"#;

const GUARD: &str = r#"mkdir -p artifacts; echo risks >artifacts/review.md
    echo '{"status": "complete", "phase": "security", "summary": "2 risks found in the API",
    "decisions": [{"id": "SEC-1", "decision": "rotate tokens", "rationale": "r"}],
    "artifacts": ["artifacts/review.md"], "open_questions": ["who holds the key?"]}'"#;

fn package(over: Value) -> Value {
    let handoff = json!({
        "type": "delegation",
        "from": {"agent": "architect", "step": 3},
        "to": {"agent": "guard", "reason": "a security review"},
        "context": {"summary": "the API has 4 endpoints and one table", "task_id": "T",
                    "decisions": ["one table"], "open_questions": ["how many users?"]},
        "expectations": {"deliverable": "a list of 5 risks at most"},
    });
    json!({ "handoff": with(handoff, over) })
}

fn team(config: &str, guard: &str) -> Root {
    Root::team(config, &[("architect", CALLER), ("guard", guard)])
}

fn read(root: &Root, id: &str) -> Value {
    serde_json::from_str(&root.mark(&format!("{id}.stdin"))).unwrap()
}

/// The one handoff that came back, completed.
fn returned(root: &Root, record: &Value) -> Value {
    let ids = children(record);
    assert_eq!(ids.len(), 1, "{record:#}");
    root.completed(&ids[0])
}

#[test]
fn a_delegated_package_returns_once_as_a_package() {
    let root = team("", GUARD);
    let daemon = Daemon::start(&root);
    root.drop_request("p", &package(json!({})));
    let record = root.completed("p");
    let back = returned(&root, &record);
    daemon.kill();
    let _daemon = Daemon::start(&root);
    root.assert_works("later");
    let handoff = &back["handoff"];
    assert_eq!(handoff["type"], "return");
    assert_eq!(handoff["from"]["agent"], "guard");
    assert_eq!(handoff["to"]["agent"], "architect");
    assert!(handoff["to"]["reason"].is_string());
    let context = &handoff["context"];
    assert_eq!(context["status"], "completed");
    assert_eq!(context["summary"], "2 risks found in the API");
    assert_eq!(context["decisions"][0]["id"], "SEC-1");
    assert_eq!(context["artifacts"][0]["path"], "artifacts/review.md");
    assert_eq!(
        context["open_questions"][0]["question"],
        "who holds the key?"
    );
    assert!(context["error"].is_null());
    assert_eq!(context["task_id"], "T");
    let own = &back["handoffd"];
    assert_eq!(
        (&own["chain"], &own["hop"], &own["parent"], &own["asked"]),
        (&json!("p"), &json!(1), &json!("p"), &json!(1))
    );
    let data = &back["input"]["data"];
    assert_eq!(data["origin"]["handoff_id"], "p");
    assert_eq!(data["decisions"].as_array().unwrap().len(), 2, "{data:#}");
    assert_eq!(read(&root, &children(&record)[0])["handoff"], *handoff);
    assert!(children(&back).is_empty(), "a return never returns");
    assert_eq!(root.names("handoffs/completed").len(), 3);
    root.assert_audit_is_sound();
}

#[test]
fn a_failure_returns_with_its_error_and_a_retry_that_ends_otherwise_again() {
    let root = team("", "[ -e marks/go ] || exit 64");
    let _daemon = Daemon::start(&root);
    root.drop_request("p", &package(json!({})));
    let (record, _) = root.failed("p");
    let context = &returned(&root, &record)["handoff"]["context"];
    assert_eq!(context["status"], "failed");
    assert_eq!(context["error"]["code"], "PROCESSING_ERROR");
    assert!(!text(&context["summary"]).is_empty());
    for (file, state) in [("1.json", "failed"), ("2.json", "completed")] {
        let before = record["handoffd"]["attempts"].as_array().unwrap().len();
        root.command(file, &json!({"action": "retry", "handoff_id": "p"}));
        let more = if state == "failed" {
            before + 1
        } else {
            before + 2
        };
        let record = root.record_that(state, "p", |record| {
            record["handoffd"]["attempts"].as_array().unwrap().len() == more
        });
        if state == "failed" {
            assert_eq!(children(&record).len(), 1, "the same again is no news");
            root.allow("go");
        } else {
            let ids = children(&record);
            assert_eq!(ids.len(), 2);
            let context = &root.completed(&ids[1])["handoff"]["context"];
            assert_eq!(context["status"], "completed");
        }
    }
}

#[test]
fn a_question_to_a_person_returns_with_the_answer() {
    let root = team("", "exit 0");
    let _daemon = Daemon::start(&root);
    let to = json!({"to": {"agent": "human", "reason": "a decision"}, "type": null});
    for (id, action) in [("yes", "approve"), ("no", "reject"), ("off", "cancel")] {
        root.drop_request(id, &package(to.clone()));
        root.waiting(id);
        root.answer(
            action,
            id,
            json!({"choice": "b", "comment": "take B, it is robust"}),
        );
    }
    let back = returned(&root, &root.completed("yes"));
    assert_eq!(back["handoff"]["from"]["agent"], "human");
    let context = &back["handoff"]["context"];
    assert_eq!(context["status"], "completed");
    assert_eq!(context["summary"], "take B, it is robust");
    assert_eq!(context["answer"]["choice"], "b");
    let context = &returned(&root, &root.failed("no").0)["handoff"]["context"];
    assert_eq!(context["status"], "rejected");
    assert_eq!(context["error"]["code"], "REJECTED");
    assert!(text(&context["summary"]).contains("take B"));
    let (record, code) = root.failed("off");
    assert_eq!(code, "CANCELLED");
    assert!(children(&record).is_empty(), "{record:#}");
}

#[test]
fn an_answer_is_never_refused_for_its_style() {
    let root = team(
        "intake.strict = true",
        r#"echo '{"status": "complete", "summary": "done"}'"#,
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("p", &package(json!({})));
    let back = returned(&root, &root.completed("p"));
    let warnings = back["acknowledgment"]["warnings"].to_string();
    assert!(warnings.contains("rule telling-summary"), "{warnings}");
    root.drop_request(
        "q",
        &package(json!({ "to": { "agent": "human" }, "type": null })),
    );
    root.waiting("q");
    root.answer("approve", "q", json!({ "comment": "ok" }));
    let back = returned(&root, &root.completed("q"));
    assert_eq!(back["handoff"]["context"]["summary"], "ok");
    // Whoever writes such a package keeps to the letter.
    let forged = json!({ "handoff": with(back["handoff"].clone(), json!({ "id": "f" })),
                         "handoffd": back["handoffd"] });
    root.drop_request("f", &forged);
    assert_eq!(root.failed("f").1, "SCHEMA_VALIDATION_FAILED");
}

#[test]
fn nothing_returns_where_something_else_follows_or_nobody_is_meant() {
    let steps = "workflows.w.steps = [{ phase = 'a', agent = '@guard' }, \
                 { phase = 'b', agent = '@architect' }]\n\
                 specialists.'*'.command = ['true']";
    let root = team(steps, "[ $HANDOFF_ID != named ] || exec cat next.json");
    let next = json!({"status": "complete", "summary": "s", "phase": "p",
                      "handoff": {"next_agent": "architect", "context": "c"}});
    fs::write(root.path("next.json"), next.to_string()).unwrap();
    let _daemon = Daemon::start(&root);
    let step = json!({"workflow_state": {"name": "w", "current_step": 1}});
    for (id, over, follow) in [
        ("plain", json!({"type": null}), 0),
        ("sequential", json!({"type": "sequential"}), 0),
        ("back", json!({"type": "return"}), 0),
        ("stranger", json!({"from": {"agent": "somebody"}}), 0),
        ("all", json!({"from": {"agent": "*"}}), 0),
        ("step", step, 1),
        ("named", json!({}), 1),
    ] {
        root.drop_request(id, &package(over));
        let record = root.completed(id);
        let ids = children(&record);
        assert_eq!(ids.len(), follow, "{id}: {record:#}");
        for id in ids {
            assert_eq!(root.completed(&id)["handoff"], Value::Null, "no package");
        }
    }
    // `type` may stand at the top as well.
    let mut top = package(json!({"type": null}));
    top["type"] = "delegation".into();
    root.drop_request("top", &top);
    returned(&root, &root.completed("top"));
}

#[test]
fn a_package_that_is_refused_returns_why() {
    let root = team("", "exit 0");
    let _daemon = Daemon::start(&root);
    let missing = json!({"context": {"summary": "see the file, 3 pages", "artifacts": ["no.md"]}});
    root.drop_request("p", &package(missing));
    let (record, code) = root.failed("p");
    assert_eq!(code, "DEPENDENCY_MISSING");
    let context = &returned(&root, &record)["handoff"]["context"];
    assert_eq!(context["error"]["code"], "DEPENDENCY_MISSING");
    assert!(text(&context["summary"]).contains("no.md"));
    // What can't be read as a package has nobody to return to.
    root.drop_request("broken", &package(json!({"priority": 7})));
    assert!(children(&root.failed("broken").0).is_empty());
    // Nor has a second one with the same id, which is another's.
    root.drop_request("p", &package(json!({})));
    assert!(children(&root.failed("p~2").0).is_empty());
}

#[test]
fn a_return_counts_as_a_hop() {
    let root = team("daemon.max_hops = 1", "exit 0");
    let architect = r#"echo '{"status": "complete", "summary": "s", "phase": "p",
        "handoff": {"next_agent": "guard", "context": "c"}}'"#;
    fs::write(root.path("architect.sh"), architect).unwrap();
    let _daemon = Daemon::start(&root);
    root.drop_request("p", &package(json!({})));
    let back = returned(&root, &root.completed("p"));
    let (refused, code) = root.failed(&children(&back)[0]);
    assert_eq!(code, "BLOCKED");
    assert!(text(&refused["error"]["message"]).contains("max_hops"));
}

#[test]
fn a_return_is_made_once_whenever_the_daemon_dies() {
    const EACH: usize = 12;
    let root = team("daemon.max_concurrent = 4", GUARD);
    let mut daemon = Daemon::start(&root);
    for n in 0..EACH {
        let request = package(json!({"context": {"summary": format!("work number {n} of 12")}}));
        root.drop_request(&format!("p{n}"), &request);
        if n % 3 == 2 {
            daemon.kill();
            daemon = Daemon::spawn(&root, |_| {});
        }
    }
    for n in 0..EACH {
        returned(&root, &root.completed(&format!("p{n}")));
    }
    assert_eq!(root.names("handoffs/completed").len(), 2 * EACH);
    assert!(root.names("handoffs/failed").is_empty());
    drop(daemon);
}
