//! Delegation and return: helpers for whoever is blocked, sub-tasks, and cancelling all of it.

use serde_json::{Value, json};

use crate::common::{
    Daemon, Root, ask, child, children, is_alive, outcomes, text, wait_until, with,
};

const ROUTES: &str = "routes.blocked.security_concern = '@guard'\n\
                      routes.blocked.missing_requirements = 'human'";

/// Blocked at first, done once somebody has helped; keeps what it read.
const STUCK: &str = r#"cat >"marks/stdin.$HANDOFF_ATTEMPT"; echo >>"marks/stdin.$HANDOFF_ATTEMPT"
if [ $HANDOFF_ATTEMPT = 1 ]; then
    echo '{"status": "blocked", "blocked_reason": "security_concern", "phase": "building",
    "attempted": ["reading"], "summary": "is this safe?",
    "handoff": {"next_agent": null, "context": "a token in a URL",
    "blockers": [{"description": "d"}]}}'
    exit 1
fi
echo '{"status": "complete", "summary": "safe now"}'"#;

fn read(root: &Root, name: &str) -> Value {
    serde_json::from_str(&root.mark(name)).unwrap()
}

/// A result that asks for these children, at the first attempt.
fn delegates(children: &Value) -> String {
    format!(
        r#"cat >"marks/stdin.$HANDOFF_ATTEMPT"; echo >>"marks/stdin.$HANDOFF_ATTEMPT"
        if [ $HANDOFF_ATTEMPT = 1 ]; then
        echo '{{"status": "delegate", "handoff": {{"children": {children}}}}}'; fi"#
    )
}

#[test]
fn who_is_blocked_waits_for_help_and_runs_again_with_it() {
    let helps = r#"echo '{"status": "complete", "summary": "use a header"}'"#;
    let root = Root::team(ROUTES, &[("dev", STUCK), ("guard", helps)]);
    let _daemon = Daemon::start(&root);
    let over = json!({ "context": { "task_id": "T" }, "input": { "data": { "own": 1 } } });
    root.drop_request("x", &with(ask("@dev"), over));
    let record = root.completed("x");
    assert_eq!(outcomes(&record), ["blocked", "completed"]);
    let kid = child(&record);
    let returned = json!([{
        "id": kid, "agent": "@guard", "status": "completed",
        "result": {"status": "complete", "summary": "use a header"},
    }]);
    assert_eq!(record["handoffd"]["returns"], returned);
    let second = read(&root, "stdin.2");
    assert_eq!(second["handoffd"]["returns"], returned, "in its input");
    assert_eq!(second["handoffd"]["attempts"][1]["number"], 2);
    assert!(
        record["handoffd"]["retries"].is_null(),
        "a return is no retry"
    );
    let helper = root.completed(&kid);
    assert_eq!(helper["source"]["agent_id"], "@dev");
    assert_eq!(helper["context"]["task_id"], "T");
    let data = &helper["input"]["data"];
    assert_eq!(data["blocked_reason"], "security_concern");
    assert_eq!(data["context"], "a token in a URL");
    assert_eq!(data["blockers"][0]["description"], "d");
    assert_eq!(helper["handoffd"]["parent"], "x");
    assert_eq!(root.names("handoffs/completed").len(), 2);
    root.assert_audit_is_sound();
}

#[test]
fn a_helper_that_fails_returns_its_failure() {
    let root = Root::team(ROUTES, &[("dev", STUCK), ("guard", "echo no >&2; exit 64")]);
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@dev"));
    let record = root.completed("x");
    let returned = &record["handoffd"]["returns"][0];
    assert_eq!(returned["status"], "failed");
    assert_eq!(returned["result"]["error"]["code"], "PROCESSING_ERROR");
    assert_eq!(root.failed(&child(&record)).1, "PROCESSING_ERROR");
}

#[test]
fn nobody_to_help_is_a_failure_and_a_person_may_be_the_one() {
    let blocked = |reason: &str| {
        format!(
            r#"cat >"marks/stdin.$HANDOFF_ATTEMPT"; echo >>"marks/stdin.$HANDOFF_ATTEMPT"
            [ $HANDOFF_ATTEMPT = 1 ] || exit 0
            echo '{{"status": "blocked", "blocked_reason": "{reason}", "phase": 2,
            "attempted": ["all"], "handoff": {{"context": "which colour?"}}}}'"#
        )
    };
    let agents = [
        ("lost", blocked("out_of_scope")),
        ("dev", blocked("missing_requirements")),
    ];
    let agents = agents.each_ref().map(|(name, sh)| (*name, sh.as_str()));
    let root = Root::team(ROUTES, &agents);
    let daemon = Daemon::start(&root);
    root.drop_request("none", &ask("@lost"));
    let (record, code) = root.failed("none");
    assert_eq!(code, "BLOCKED");
    assert_eq!(outcomes(&record), ["blocked"]);
    assert!(text(&record["error"]["message"]).contains("which colour?"));
    root.drop_request("x", &ask("@dev"));
    let record = root.waiting("x");
    assert_eq!(record["waiting"]["on"], "human");
    assert!(text(&record["waiting"]["reason"]).contains("which colour?"));
    daemon.kill();
    let _daemon = Daemon::start(&root);
    root.answer("approve", "x", json!({ "comment": "red" }));
    let record = root.completed("x");
    assert_eq!(record["answer"]["comment"], "red");
    assert_eq!(read(&root, "stdin.2")["answer"]["comment"], "red");
    assert_eq!(outcomes(&record), ["blocked", "completed"]);
}

#[test]
fn a_dropped_report_that_is_blocked_is_helped_and_its_author_runs() {
    let root = Root::team(
        ROUTES,
        &[
            ("dev", "cat >marks/dev; echo >>marks/dev"),
            ("guard", r#"echo '{"summary": "helped"}'"#),
        ],
    );
    let _daemon = Daemon::start(&root);
    let report = json!({
        "agent": "dev", "status": "blocked", "output_type": "implementation-blocked",
        "blocked_reason": "security_concern", "attempted": ["all"],
        "handoff": {"next_agent": null, "context": "is it safe?"},
    });
    root.drop_request("r", &report);
    let record = root.completed("r");
    assert_eq!(
        record["handoffd"]["returns"][0]["result"]["summary"],
        "helped"
    );
    let read = read(&root, "dev");
    assert_eq!(read["handoffd"]["returns"][0]["agent"], "@guard");
    assert_eq!(root.completed(&child(&record))["source"]["agent_id"], "dev");
    // The same without a route.
    let mut lost = report;
    lost["blocked_reason"] = "unknown".into();
    root.drop_request("lost", &lost);
    assert_eq!(root.failed("lost").1, "BLOCKED");
}

#[test]
fn sub_tasks_return_together_in_their_order() {
    let asked = json!([
        {"agent": "@kid", "input": {"n": 1}, "context": {"mine": true}},
        {"agent": "@nobody", "input": {"n": 2}},
        {"agent": "@kid", "context": "words", "phase": "p"},
    ]);
    let kid = r#"mark up; await go; echo '{"summary": "did it"}'"#;
    let root = Root::team("", &[("boss", &delegates(&asked)), ("kid", kid)]);
    let _daemon = Daemon::start(&root);
    let over = json!({ "context": { "task_id": "T" } });
    root.drop_request("x", &with(ask("@boss"), over));
    let waiting = root.waiting("x");
    assert_eq!(waiting["waiting"]["on"], "handoff");
    let ids = children(&waiting);
    assert_eq!(waiting["waiting"]["ids"], json!(ids));
    assert_eq!(root.failed(&ids[1]).1, "UNKNOWN_AGENT");
    for id in [&ids[0], &ids[2]] {
        root.mark(&format!("{id}.up"));
    }
    assert_eq!(root.states_of("x"), ["waiting"], "until all have ended");
    root.allow("go");
    let record = root.completed("x");
    assert_eq!(outcomes(&record), ["delegated", "completed"]);
    let returns = record["handoffd"]["returns"].as_array().unwrap();
    let ended: Vec<_> = returns.iter().map(|it| text(&it["status"])).collect();
    assert_eq!(ended, ["completed", "failed", "completed"]);
    assert_eq!(returns[1]["result"]["error"]["code"], "UNKNOWN_AGENT");
    assert_eq!(
        returns.iter().map(|it| text(&it["id"])).collect::<Vec<_>>(),
        ids
    );
    let first = root.completed(&ids[0]);
    let data = json!({"n": 1, "origin": {"handoff_id": "x"}});
    assert_eq!(first["input"]["data"], data);
    assert_eq!(first["context"], json!({"task_id": "T", "mine": true}));
    let third = root.completed(&ids[2]);
    assert_eq!(third["input"]["data"]["context"], "words");
    assert_eq!(third["target"]["phase"], "p");
    assert_eq!(
        read(&root, "stdin.2")["handoffd"]["returns"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn a_cancel_reaches_all_below_and_leaves_no_process() {
    let middle = json!([{"agent": "@leaf"}, {"agent": "human"}]);
    let top = json!([{"agent": "@middle"}, {"agent": "@leaf", "input": {"n": 2}},
                     {"agent": "@leaf", "input": {"n": 3}}]);
    let leaf = r#"sleep 600 & echo $! >"marks/$HANDOFF_ID.pid"; mark up; wait"#;
    let root = Root::team(
        "daemon.max_concurrent = 4\nspecialists.'@leaf'.max_concurrent = 2",
        &[
            ("top", &delegates(&top)),
            ("middle", &delegates(&middle)),
            ("leaf", leaf),
        ],
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@top"));
    let ids = children(&root.waiting("x"));
    let below = children(&root.waiting(&ids[0]));
    root.waiting(&below[1]);
    // Two of the three run, and one is still in pending/.
    wait_until("two leaves", || {
        let names = root.names("marks");
        (names.iter().filter(|it| it.contains(".up")).count() == 2).then_some(())
    });
    root.command(
        "c.json",
        &json!({ "action": "cancel", "handoff_id": "x", "by": "ann" }),
    );
    for id in ids.iter().chain(&below).chain([&"x".to_owned()]) {
        let (record, code) = root.failed(id);
        assert_eq!(code, "CANCELLED", "{id}");
        assert!(
            text(&record["error"]["message"]).contains("ann"),
            "{record:#}"
        );
    }
    for name in root.names("marks") {
        if name.contains(".pid") {
            assert!(!is_alive(root.pid_mark(&name)), "{name}");
        }
    }
    wait_until("all commands are done", || {
        (root.names("handoffs/control") == ["rejected"]
            || root.names("handoffs/control").is_empty())
        .then_some(())
    });
    root.assert_works("after");
    assert_eq!(
        outcomes(&root.failed("x").0),
        ["delegated"],
        "it did not run again"
    );
    for id in ids.iter().chain(&below) {
        assert_eq!(root.told(id, "command"), 1, "{id} is told once");
    }
}

#[test]
fn a_cancel_of_what_has_completed_reaches_what_it_set_in_motion() {
    let next = r#"echo '{"status": "complete", "phase": "p",
        "handoff": {"next_agent": "@slow", "context": "c"}}'"#;
    let root = Root::team("", &[("a", next), ("slow", "mark up; sleep 600")]);
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@a"));
    let next = child(&root.completed("x"));
    root.mark(&format!("{next}.up"));
    root.command("c.json", &json!({ "action": "cancel", "handoff_id": "x" }));
    assert_eq!(root.failed(&next).1, "CANCELLED");
    assert_eq!(root.states_of("x"), ["completed"]);
}

#[test]
fn an_id_that_is_used_again_is_not_given_what_an_earlier_helper_said() {
    let asks = delegates(&json!([{ "agent": "b", "input": {} }]));
    let root = Root::team(
        "",
        &[("a", &asks), ("b", r#"echo '{"status": "complete"}'"#)],
    );
    let _daemon = Daemon::start(&root);
    let mut helpers = Vec::new();
    for _ in 0..2 {
        root.drop_request("nightly", &ask("@a"));
        let record = root.completed("nightly");
        let helper = text(&record["handoffd"]["returns"][0]["id"]);
        root.completed(&helper);
        helpers.push(helper);
        std::fs::remove_file(root.path("handoffs/completed/nightly.json")).unwrap();
    }
    assert_ne!(helpers[0], helpers[1], "the second never ran");
}

#[test]
fn a_helper_that_somebody_deleted_is_lost_and_its_parent_is_told() {
    let asked = json!([{"agent": "human"}]);
    let root = Root::team("", &[("boss", &delegates(&asked))]);
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@boss"));
    let kid = child(&root.waiting("x"));
    root.waiting(&kid);
    std::fs::remove_file(root.state("waiting", &kid)).unwrap();
    let record = root.completed("x");
    let returned = &record["handoffd"]["returns"][0];
    assert_eq!(returned["id"], json!(kid));
    assert_eq!(returned["status"], "lost");
    let error = &returned["result"]["error"];
    assert_eq!(error["code"], "DEPENDENCY_MISSING");
    let message = text(&error["message"]);
    assert!(
        message.contains(&kid) && message.contains("deleted"),
        "{message}"
    );
    assert_eq!(read(&root, "stdin.2")["handoffd"]["returns"][0], *returned);
    let log = root.log();
    assert!(
        log.contains(&format!("its helper {kid} was deleted")),
        "{log}"
    );
    assert_eq!(root.told(&kid, "record_gone"), 1);
}

#[test]
fn a_retry_may_ask_for_the_same_help_again() {
    let blocked = r#"echo '{"status": "blocked", "blocked_reason": "security_concern",
        "phase": "p", "attempted": ["a"], "handoff": {"context": "c"}}'"#;
    let root = Root::team(ROUTES, &[("dev", blocked), ("guard", ":")]);
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@dev"));
    let (record, code) = root.failed("x");
    assert_eq!(code, "BLOCKED");
    assert_eq!(
        outcomes(&record),
        ["blocked", "blocked"],
        "asked twice: a circle"
    );
    root.command("r.json", &json!({ "action": "retry", "handoff_id": "x" }));
    let record = root.record_that("failed", "x", |it| outcomes(it).len() == 4);
    assert_eq!(children(&record).len(), 4);
    assert_eq!(root.names("handoffs/completed").len(), 2, "two were helped");
}
