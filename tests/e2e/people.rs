//! People in the loop: reviews, gates, tasks for a person, choices, deadlines.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, ask, child, children, outcomes, text, wait_until, with};

/// Asks for a review, and hands on to `@next` once it is approved.
const REVIEWED: &str = r#"cat >"marks/stdin.$HANDOFF_ATTEMPT"; echo >>"marks/stdin.$HANDOFF_ATTEMPT"
echo '{"status": "needs_review", "phase": "testing", "summary": "all green",
"handoff": {"next_agent": "@next", "context": "ship it"}}'"#;

fn team(config: &str) -> Root {
    let next = r#"mark ran; echo '{"summary": "next"}'"#;
    Root::team(
        config,
        &[("rev", REVIEWED), ("next", next), ("plain", "mark ran")],
    )
}

fn read(root: &Root, name: &str) -> Value {
    serde_json::from_str(&root.mark(name)).unwrap()
}

/// Waits until a command was refused, and returns the reason.
fn refused(root: &Root, name: &str) -> String {
    let path = root.path(&format!("handoffs/control/rejected/{name}.reason.json"));
    let reason: Value = wait_until(&format!("the refusal of {name}"), || {
        serde_json::from_slice(&fs::read(&path).ok()?).ok()
    });
    text(&reason["reason"])
}

fn waits_for_a_person(root: &Root, id: &str, attempts: usize) -> Value {
    root.record_that("waiting", id, |record| {
        record["waiting"]["on"] == "human" && outcomes(record).len() == attempts
    })
}

#[test]
fn a_review_is_approved_rejected_or_asked_about() {
    let root = team("");
    let daemon = Daemon::start(&root);
    for id in ["yes", "no"] {
        root.drop_request(id, &ask("@rev"));
        let record = waits_for_a_person(&root, id, 1);
        assert_eq!(record["waiting"]["done"], "all green");
        assert!(
            record["waiting"]["options"]["approve"].is_string(),
            "{record:#}"
        );
        assert!(
            children(&record).is_empty(),
            "nothing follows before the answer"
        );
    }
    daemon.kill();
    let _daemon = Daemon::start(&root);
    root.answer("ask", "yes", json!({ "comment": "and on Windows?" }));
    waits_for_a_person(&root, "yes", 2);
    let asked = read(&root, "stdin.2");
    assert_eq!(asked["answer"]["action"], "ask");
    assert_eq!(asked["answer"]["comment"], "and on Windows?");
    root.answer("approve", "yes", json!({ "comment": "good" }));
    let record = root.completed("yes");
    assert_eq!(outcomes(&record), ["needs_review", "needs_review"]);
    let answer = &record["answer"];
    assert_eq!(
        (&answer["action"], &answer["by"]),
        (&json!("approve"), &json!("ann"))
    );
    assert!(answer["at"].is_string() && answer["choice"].is_null());
    let next = root.completed(&child(&record));
    assert_eq!(next["input"]["data"]["context"], "ship it");
    root.answer("reject", "no", json!({ "comment": "too slow" }));
    let (record, code) = root.failed("no");
    assert_eq!(code, "REJECTED");
    let message = text(&record["error"]["message"]);
    assert!(
        message.contains("ann") && message.contains("too slow"),
        "{message}"
    );
    assert_eq!(record["retry_available"], false);
    assert!(children(&record).is_empty());
    // What has ended can't be answered any more.
    root.answer("approve", "no", json!({}));
    assert!(refused(&root, "approve-no.json").contains("failed"));
    root.assert_audit_is_sound();
}

#[test]
fn a_gate_holds_a_request_before_its_first_attempt() {
    let root = team("");
    let daemon = Daemon::start(&root);
    let gate = json!({
        "gate": { "type": "blocking", "name": "budget", "step": 2 },
        "validation_request": { "items": ["the price"] },
    });
    for id in ["yes", "no"] {
        root.drop_request(id, &with(ask("@plain"), gate.clone()));
        let record = root.waiting(id);
        assert_eq!(record["waiting"]["on"], "human");
        assert_eq!(record["waiting"]["gate"], "budget");
        assert_eq!(record["waiting"]["items"], json!(["the price"]));
    }
    daemon.kill();
    let _daemon = Daemon::start(&root);
    root.assert_works("meanwhile");
    assert!(root.names("marks").is_empty());
    root.answer("ask", "yes", json!({ "comment": "why?" }));
    assert!(refused(&root, "ask-yes.json").contains("approve or reject"));
    root.answer("approve", "yes", json!({}));
    assert_eq!(outcomes(&root.completed("yes")), ["completed"]);
    root.answer("reject", "no", json!({}));
    let (record, code) = root.failed("no");
    assert_eq!(code, "REJECTED");
    assert!(outcomes(&record).is_empty());
    // Run again by hand, it is held again.
    root.command("r.json", &json!({ "action": "retry", "handoff_id": "no" }));
    waits_for_a_person(&root, "no", 0);
    assert_eq!(root.names("marks"), ["yes.ran"]);
}

#[test]
fn an_advisory_gate_tells_people_and_holds_nothing() {
    let root = Root::team(
        "notify.waiting_human = ['sh', 'tell.sh']",
        &[
            ("plain", "[ $HANDOFF_ATTEMPT = 2 ] || exit 1"),
            ("tell", ":"),
        ],
    );
    let tell = "cat >marks/$HANDOFF_ID.$HANDOFF_EVENT; echo >>marks/$HANDOFF_ID.$HANDOFF_EVENT";
    fs::write(root.path("tell.sh"), tell).unwrap();
    let _daemon = Daemon::start(&root);
    let gate = |kind: Value| {
        let gate = json!({ "type": kind, "name": "budget", "deadline": "1s" });
        with(ask("@plain"), json!({ "gate": gate }))
    };
    root.drop_request("x", &gate("advisory".into()));
    let record = root.completed("x");
    assert_eq!(outcomes(&record), ["failed", "completed"]);
    assert!(record["answer"].is_null(), "nobody was waited for");
    assert_eq!(read(&root, "x.advisory_gate")["gate"]["name"], "budget");
    assert_eq!(root.told("x", "advisory_gate"), 1, "not with every attempt");
    for (id, kind) in [("blocking", json!("blocking")), ("default", Value::Null)] {
        root.drop_request(id, &gate(kind));
        waits_for_a_person(&root, id, 0);
        assert_eq!(root.told(id, "advisory_gate"), 0);
    }
    root.drop_request("wrong", &gate("optional".into()));
    let (record, code) = root.failed("wrong");
    assert_eq!(code, "SCHEMA_VALIDATION_FAILED");
    let message = text(&record["error"]["message"]);
    for word in ["gate.type", "blocking", "advisory", "optional"] {
        assert!(message.contains(word), "{message}");
    }
    // A person who is asked is asked, whatever the gate is called.
    let asked = json!({ "gate": { "type": "advisory" } });
    root.drop_request("human", &with(ask("human"), asked));
    root.waiting("human");
    root.assert_audit_is_sound();
}

#[test]
fn a_person_is_asked_asks_back_and_decides() {
    let steps = "workflows.w.steps = [{ phase = 'a', agent = '@plain' }, \
                 { phase = 'b', agent = 'human' }, { phase = 'c', agent = '@next' }]";
    let root = Root::team(
        steps,
        &[
            ("plain", r#"echo "{\"summary\": \"said $HANDOFF_ID\"}""#),
            ("next", ":"),
        ],
    );
    let daemon = Daemon::start(&root);
    let state = json!({ "workflow_state": { "name": "w" } });
    root.drop_request("x", &with(ask("@plain"), state));
    let id = child(&root.completed("x"));
    for (n, question) in ["how much?", "how long?"].into_iter().enumerate() {
        let record = root.record_that("waiting", &id, |record| {
            record["waiting"]["on"] == "human" && children(record).len() == n
        });
        assert!(record["waiting"]["options"]["approve"].is_string());
        let ask = json!({ "action": "ask", "handoff_id": id, "by": "ann", "comment": question });
        root.command(&format!("ask{n}.json"), &ask);
        let asked = root.record_that("waiting", &id, |record| children(record).len() == n + 1);
        let kid = children(&asked).pop().unwrap();
        let answered = root.completed(&kid);
        let data = &answered["input"]["data"];
        assert_eq!(
            (&data["question"], &data["about"]),
            (&question.into(), &json!(id))
        );
        assert_eq!(data["origin"]["handoff_id"], "x");
        assert_eq!(answered["target"]["agent_id"], "@plain");
    }
    let record = root.record_that("waiting", &id, |record| {
        record["waiting"]["on"] == "human"
            && record["handoffd"]["returns"].as_array().map(Vec::len) == Some(2)
    });
    let said = text(&record["handoffd"]["returns"][1]["result"]["summary"]);
    assert_eq!(said, format!("said {}", children(&record)[1]));
    daemon.kill();
    let _daemon = Daemon::start(&root);
    let yes = json!({ "action": "approve", "handoff_id": id, "by": "ann", "comment": "cheap" });
    root.command("yes.json", &yes);
    let decided = root.completed(&id);
    assert_eq!(decided["result"]["summary"], "cheap");
    assert_eq!(decided["result"]["decided_by"], "ann");
    let next = children(&decided).pop().unwrap();
    let next = root.completed(&next);
    assert_eq!(next["target"]["agent_id"], "@next");
    assert_eq!(next["input"]["data"]["summary"], "cheap");
    assert_eq!(next["workflow_state"]["current_step"], 3);
}

#[test]
fn nobody_to_ask_is_said_and_a_choice_must_be_an_option() {
    let root = team("");
    let _daemon = Daemon::start(&root);
    let request = json!({
        "handoff": {
            "from": { "agent": "stranger" }, "to": { "agent": "human", "reason": "choose" },
            "context": { "summary": "two ways lead there" },
            "validation_request": { "items": ["cost"], "options": { "fast": "debt", "good": "long" } },
        },
    });
    root.drop_request("x", &request);
    let record = root.waiting("x");
    assert_eq!(
        record["waiting"]["options"],
        json!({"fast": "debt", "good": "long"})
    );
    assert_eq!(record["waiting"]["done"], "two ways lead there");
    root.answer("ask", "x", json!({ "comment": "which?" }));
    assert!(refused(&root, "ask-x.json").contains("not a configured specialist"));
    root.answer("approve", "x", json!({ "choice": "cheap" }));
    let why = refused(&root, "approve-x.json");
    assert!(why.contains("cheap") && why.contains("fast, good"), "{why}");
    let stale = record["handoffd"]["revision"].as_u64().unwrap() - 1;
    root.answer("reject", "x", json!({ "revision": stale }));
    assert!(refused(&root, "reject-x.json").contains("revision"));
    assert_eq!(root.states_of("x"), ["waiting"]);
    let revision = record["handoffd"]["revision"].clone();
    let yes =
        json!({ "action": "approve", "handoff_id": "x", "choice": "good", "revision": revision });
    root.command("good.json", &yes);
    let record = root.completed("x");
    assert_eq!(record["answer"]["choice"], "good");
    assert_eq!(record["result"]["choice"], "good");
    root.drop_request("no", &ask("human"));
    root.waiting("no");
    root.answer("reject", "no", json!({}));
    assert_eq!(root.failed("no").1, "REJECTED");
}

#[test]
fn a_blocking_issue_that_needs_a_person_waits_for_one() {
    let issue = r#""blocking_issues": [{"issue": "whose licence?", "requires_human": true}]"#;
    let done = format!(
        r#"echo '{{"status": "complete", "phase": "p", {issue},
        "handoff": {{"next_agent": "@next", "context": "c"}}}}'"#
    );
    let stuck = format!(
        r#"[ $HANDOFF_ATTEMPT = 1 ] || exit 0
        echo '{{"status": "blocked", "blocked_reason": "unknown", "phase": "p", {issue},
        "attempted": ["a"], "handoff": {{"context": "c"}}}}'"#
    );
    let root = Root::team("", &[("done", &done), ("stuck", &stuck), ("next", ":")]);
    let _daemon = Daemon::start(&root);
    root.drop_request("d", &ask("@done"));
    root.drop_request("s", &ask("@stuck"));
    let report = json!({
        "status": "complete", "phase": "p", "agent": "@done",
        "blocking_issues": [{"issue": "whose licence?", "requires_human": true}],
        "handoff": {"next_agent": "@next", "context": "c"},
    });
    root.drop_request("r", &report);
    for id in ["d", "s", "r"] {
        let record = root.waiting(id);
        assert_eq!(record["waiting"]["on"], "human", "{record:#}");
        root.answer("approve", id, json!({}));
    }
    root.completed("s");
    for id in ["d", "r"] {
        let next = root.completed(&child(&root.completed(id)));
        assert_eq!(next["source"]["agent_id"], "@done");
    }
}

#[test]
fn a_rejection_may_mean_once_more() {
    let root = team("");
    let _daemon = Daemon::start(&root);
    let gate = json!({ "gate": { "on_reject": "rerun" } });
    // A gate holds it first.
    root.drop_request("x", &with(ask("@rev"), gate));
    waits_for_a_person(&root, "x", 0);
    root.answer("approve", "x", json!({}));
    waits_for_a_person(&root, "x", 1);
    root.answer("reject", "x", json!({ "comment": "add a test" }));
    let record = waits_for_a_person(&root, "x", 2);
    assert_eq!(record["answer"]["comment"], "add a test");
    assert_eq!(read(&root, "stdin.2")["answer"]["comment"], "add a test");
    assert!(record["handoffd"]["retries"].is_null(), "{record:#}");
}

#[test]
fn a_deadline_rejects_approves_or_escalates() {
    let root = team("");
    let daemon = Daemon::start(&root);
    let soon = chrono::Utc::now() + chrono::Duration::seconds(2);
    let gate = |more: Value| {
        let deadline = json!({ "deadline": soon.to_rfc3339() });
        json!({ "gate": with(deadline, more) })
    };
    for (id, more) in [
        ("default", json!({})),
        (
            "approve",
            json!({ "on_expiry": "approve", "warn_before": "90s" }),
        ),
        (
            "escalate",
            json!({ "on_expiry": "escalate", "escalate_to": "the boss" }),
        ),
    ] {
        root.drop_request(id, &with(ask("@plain"), gate(more)));
        assert!(root.waiting(id)["waiting"]["until"].is_string());
    }
    let past = json!({ "deadline": "2020-01-01T00:00:00Z", "on_reject": "rerun" });
    let report = json!({ "status": "needs_review", "phase": "p", "summary": "s", "agent": "rev",
                         "handoff": { "context": "c", "gate": past } });
    root.drop_request("past", &report);
    let (record, code) = root.failed("past");
    assert_eq!(code, "REJECTED", "{record:#}");
    daemon.kill();
    let _daemon = Daemon::start(&root);
    let (record, code) = root.failed("default");
    assert_eq!(code, "REJECTED");
    assert!(text(&record["error"]["message"]).contains("deadline"));
    let record = root.completed("approve");
    assert_eq!(record["answer"]["by"], "the deadline");
    let told = root.names("audit").into_iter().any(|name| {
        let log = fs::read_to_string(root.path("audit").join(name));
        log.is_ok_and(|log| log.contains("deadline_near"))
    });
    assert!(told, "the warning before it");
    let record = root.record_that("waiting", "escalate", |record| {
        !record["waiting"]["escalated_to"].is_null()
    });
    assert_eq!(record["waiting"]["escalated_to"], "the boss");
    assert_eq!(record["waiting"]["on"], "human");
    assert!(record["waiting"]["until"].is_null());
    root.answer("approve", "escalate", json!({}));
    root.completed("escalate");
}

#[test]
fn a_dropped_report_for_review_goes_on_only_when_approved() {
    let root = team("");
    let _daemon = Daemon::start(&root);
    let report = |agent: &str| {
        json!({ "status": "needs_review", "phase": "building", "summary": "built", "agent": agent,
                "handoff": { "next_agent": "@next", "context": "c" } })
    };
    root.drop_request("x", &report("@plain"));
    root.waiting("x");
    root.answer("ask", "x", json!({ "comment": "sure?" }));
    let record = root.record_that("waiting", "x", |record| {
        record["waiting"]["on"] == "human" && !record["handoffd"]["returns"].is_null()
    });
    let kid = root.completed(&child(&record));
    assert_eq!(kid["target"]["agent_id"], "@plain");
    assert!(outcomes(&record).is_empty());
    root.answer("approve", "x", json!({}));
    let record = root.completed("x");
    let next = root.completed(&children(&record)[1]);
    assert_eq!(next["target"]["agent_id"], "@next");
    assert_eq!(
        next["source"],
        json!({"agent_id": "@plain", "phase": "building"})
    );
    assert_eq!(next["input"]["data"]["summary"], "built");
    root.drop_request("y", &report("stranger"));
    root.waiting("y");
    root.answer("ask", "y", json!({}));
    assert!(refused(&root, "ask-y.json").contains("not a configured specialist"));
}

#[test]
fn an_answer_counts_once_whenever_the_daemon_dies() {
    const EACH: usize = 30;
    let root = team("daemon.max_concurrent = 4");
    let mut daemon = Daemon::start(&root);
    let ids: Vec<String> = (0..EACH).map(|n| format!("h{n}")).collect();
    for id in &ids {
        root.drop_request(id, &ask("@rev"));
    }
    for id in &ids {
        waits_for_a_person(&root, id, 1);
    }
    for (n, id) in ids.iter().enumerate() {
        let action = if n % 3 == 0 { "ask" } else { "approve" };
        root.answer(action, id, json!({}));
        if n % 5 == 4 {
            daemon.kill();
            daemon = Daemon::spawn(&root, |_| {});
        }
    }
    for (n, id) in ids.iter().enumerate() {
        if n % 3 == 0 {
            waits_for_a_person(&root, id, 2);
        } else {
            let record = root.completed(id);
            let next = child(&record);
            root.completed(&next);
            assert_eq!(root.mark(&format!("{next}.ran")).lines().count(), 1);
        }
    }
    wait_until("the commands are gone", || {
        root.names("handoffs/control")
            .iter()
            .all(|name| name == "rejected")
            .then_some(())
    });
    assert!(root.names("handoffs/control/rejected").is_empty());
    assert!(root.names("handoffs/failed").is_empty());
    assert_eq!(daemon.terminate(), Some(0));
    root.assert_audit_is_sound();
}
