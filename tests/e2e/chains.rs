//! Sequential chains: the next agent that a result names, and the steps of a workflow.

use std::fs;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::common::{Daemon, Root, ask, child, children, outcomes, text, with};

const WORKFLOW: &str = "workflows.feature.steps = [{ phase = 'architecture', agent = '@a' }, \
                        { phase = 'building', agent = '@b' }, { phase = 'testing', agent = '@c' }]";

/// Completes and hands on to nobody.
const ENDS: &str = r#"echo '{"status": "complete", "summary": "done"}'"#;

/// What the specialist read, left by `cat >marks/NAME`.
fn read(root: &Root, name: &str) -> Value {
    serde_json::from_str(&root.mark(name)).unwrap()
}

#[test]
fn a_result_names_the_next_agent_who_gets_all_that_it_said() {
    let root = Root::team(
        "",
        &[
            (
                "a",
                r#"mkdir -p artifacts; echo plan >artifacts/plan.md
                echo '{"status": "complete", "phase": "architecture", "summary": "designed",
                "files_modified": ["a.rs"], "verification": {"build_success": true},
                "decisions": [{"decision": "d", "rationale": "r"}], "artifacts": ["artifacts/plan.md"],
                "handoff": {"next_agent": "b", "next_phase": "building", "context": "use d",
                "open_questions": ["q"], "expectations": {"deliverable": "code"}}}'"#,
            ),
            ("b", r#"cat >"marks/b.stdin"; echo >>marks/b.stdin"#),
        ],
    );
    let _daemon = Daemon::start(&root);
    let over = json!({ "context": { "task_id": "T-1", "mine": 1.0 }, "priority": "high" });
    root.drop_request("first", &with(ask("@a"), over));
    let first = root.completed("first");
    let id = child(&first);
    let next = root.completed(&id);
    assert_eq!(
        next["target"],
        json!({"agent_id": "@b", "phase": "building"})
    );
    assert_eq!(next["source"]["agent_id"], "@a");
    assert_eq!(next["context"], json!({"task_id": "T-1", "mine": 1.0}));
    assert_eq!(next["priority"], "high");
    let data = &next["input"]["data"];
    assert_eq!(data["context"], "use d");
    assert_eq!(data["summary"], "designed");
    assert_eq!(data["phase"], "architecture");
    assert_eq!(data["files_modified"], json!(["a.rs"]));
    assert_eq!(data["verification"]["build_success"], true);
    assert_eq!(
        data["decisions"],
        json!([{"decision": "d", "rationale": "r", "handoff_id": "first"}])
    );
    assert_eq!(data["artifacts"][0]["path"], "artifacts/plan.md");
    assert_eq!(
        data["open_questions"],
        json!([{"question": "q", "handoff_id": "first"}])
    );
    assert_eq!(data["expectations"]["deliverable"], "code");
    let own = &next["handoffd"];
    assert_eq!(own["chain"], "first");
    assert_eq!(
        (own["hop"].as_u64(), &own["parent"]),
        (Some(1), &json!("first"))
    );
    assert_eq!(read(&root, "b.stdin")["input"]["data"], *data);
    // The id is derived: chain, hop, and eight digits of a hash.
    let hash = id.strip_prefix("first.1-").expect(&id);
    assert!(
        hash.len() == 8 && hash.chars().all(|c| c.is_ascii_hexdigit()),
        "{id}"
    );
    let begun = text(&first["handoffd"]["attempts"][0]["started_at"]);
    let digest = Sha256::digest(format!("first\x001\x00{begun}\x000"));
    // Nobody without the root's key can compute it.
    assert_ne!(
        hash,
        format!(
            "{:02x}{:02x}{:02x}{:02x}",
            digest[0], digest[1], digest[2], digest[3]
        )
    );
    assert!(children(&next).is_empty());
    assert_eq!(root.names("handoffs/completed").len(), 2);
    root.assert_audit_is_sound();
}

#[test]
fn an_id_that_is_used_again_has_followers_of_its_own() {
    let next = r#"echo '{"status": "complete", "phase": "p", "summary": "s",
        "handoff": {"next_agent": "b", "context": "go on"}}'"#;
    let root = Root::team("", &[("a", next), ("b", "echo ran")]);
    let _daemon = Daemon::start(&root);
    let mut followers = Vec::new();
    for _ in 0..2 {
        root.drop_request("again", &ask("@a"));
        let follower = child(&root.completed("again"));
        root.completed(&follower);
        followers.push(follower);
        fs::remove_file(root.path("handoffs/completed/again.json")).unwrap();
    }
    assert_ne!(followers[0], followers[1], "the second was not made");
}

#[test]
fn a_workflow_goes_on_by_itself_and_ends_with_its_last_step() {
    let named = r#"echo '{"status": "complete", "phase": "architecture", "summary": "s1",
        "handoff": {"next_agent": "@c", "context": "c1"}}'"#;
    let last = r#"echo '{"status": "complete", "phase": "testing", "summary": "s3",
        "handoff": {"next_agent": "@a", "context": "c3"}}'"#;
    let root = Root::team(WORKFLOW, &[("a", named), ("b", ENDS), ("c", last)]);
    let _daemon = Daemon::start(&root);
    let state = json!({ "workflow_state": { "name": "feature", "mine": "kept" },
                        "context": { "task_id": "T" } });
    root.drop_request("f", &with(ask("@a"), state));
    let one = root.completed("f");
    let warning = one["warnings"].to_string();
    assert!(
        warning.contains("@c") && warning.contains("@b"),
        "{warning}"
    );
    let two = root.completed(&child(&one));
    assert_eq!(
        two["target"],
        json!({"agent_id": "@b", "phase": "building"})
    );
    assert_eq!(
        two["workflow_state"],
        json!({"name": "feature", "mine": "kept", "current_step": 2,
               "completed_steps": ["architecture"], "remaining_steps": ["testing"]})
    );
    assert_eq!(two["input"]["data"]["context"], "c1");
    assert_eq!(two["warnings"], Value::Null);
    let three = root.completed(&child(&two));
    assert_eq!(three["workflow_state"]["current_step"], 3);
    assert_eq!(
        three["workflow_state"]["completed_steps"],
        json!(["architecture", "building"])
    );
    assert_eq!(three["workflow_state"]["remaining_steps"], json!([]));
    assert_eq!(three["source"]["agent_id"], "@b");
    assert_eq!(three["context"]["task_id"], "T");
    assert_eq!(three["handoffd"]["chain"], "f");
    assert_eq!(three["handoffd"]["hop"], 2);
    assert!(
        three["warnings"].to_string().contains("ends here"),
        "{three:#}"
    );
    assert!(children(&three).is_empty());
    assert_eq!(root.names("handoffs/completed").len(), 3);
}

#[test]
fn a_step_that_is_named_begins_there_and_an_unknown_workflow_is_refused() {
    let root = Root::team(WORKFLOW, &[("a", ENDS), ("b", ENDS), ("c", ENDS)]);
    let _daemon = Daemon::start(&root);
    let state = json!({ "workflow_state": { "name": "feature", "current_step": 2 } });
    root.drop_request("mid", &with(ask("b"), state));
    let mid = root.completed("mid");
    let end = root.completed(&child(&mid));
    assert_eq!(end["target"]["agent_id"], "@c");
    for (id, name, hint) in [
        ("near", "featur", "did you mean feature?"),
        ("far", "other", "known: feature"),
    ] {
        let state = json!({ "workflow_state": { "name": name, "current_step": 1 } });
        root.drop_request(id, &with(ask("@a"), state));
        let (record, code) = root.failed(id);
        assert_eq!(code, "SCHEMA_VALIDATION_FAILED");
        let message = text(&record["error"]["message"]);
        assert!(
            message.contains(name) && message.contains(hint),
            "{message}"
        );
        assert_eq!(
            record["validation"]["errors"][0]["field"],
            "workflow_state.name"
        );
        assert!(outcomes(&record).is_empty());
    }
    let package = json!({ "handoff": { "from": { "agent": "x" }, "to": { "agent": "@a" },
        "context": { "summary": "3 parts are specified" }, "workflow_state": { "name": "no" } } });
    root.drop_request("package", &package);
    let (record, _) = root.failed("package");
    assert_eq!(
        record["validation"]["errors"][0]["field"],
        "handoff.workflow_state.name"
    );
}

#[test]
fn without_workflows_any_name_is_carried() {
    let next = r#"echo '{"status": "complete", "phase": "p", "summary": "s",
        "handoff": {"next_agent": "b", "context": "go on"}}'"#;
    let root = Root::team("", &[("a", next), ("b", ENDS)]);
    let _daemon = Daemon::start(&root);
    let state = json!({ "workflow_state": { "name": "other", "current_step": 1 } });
    root.drop_request("x", &with(ask("@a"), state.clone()));
    let next = root.completed(&child(&root.completed("x")));
    assert_eq!(next["workflow_state"], state["workflow_state"]);
    assert!(children(&next).is_empty());
}

#[test]
fn a_dropped_report_is_a_step_of_its_workflow() {
    let root = Root::team(WORKFLOW, &[("a", ENDS), ("b", ENDS), ("c", ENDS)]);
    let _daemon = Daemon::start(&root);
    let report = |next: Value| {
        json!({
            "status": "complete", "phase": "architecture", "agent": "@a", "summary": "designed",
            "workflow_state": { "name": "feature", "current_step": 1 },
            "handoff": { "next_agent": next, "context": "c1" },
        })
    };
    // Without a next agent it is completed, and the workflow goes on.
    root.drop_request("done", &report(Value::Null));
    let done = root.completed("done");
    assert!(outcomes(&done).is_empty());
    let second = root.completed(&child(&done));
    assert_eq!(second["target"]["agent_id"], "@b");
    assert_eq!(second["source"]["agent_id"], "@a");
    assert_eq!(second["input"]["data"]["context"], "c1");
    let third = root.completed(&child(&second));
    assert_eq!(third["target"]["agent_id"], "@c");
    assert!(children(&third).is_empty());
    // With one it is that agent's, who then is not asked twice.
    root.drop_request("on", &report("@b".into()));
    let on = root.completed("on");
    assert_eq!(outcomes(&on), ["completed"]);
    let third = root.completed(&child(&on));
    assert_eq!(third["target"]["agent_id"], "@c");
    assert_eq!(third["workflow_state"]["current_step"], 3);
    assert!(children(&third).is_empty());
}

#[test]
fn a_failed_step_stops_the_later_ones_and_completed_ones_stay() {
    let root = Root::team(
        WORKFLOW,
        &[("a", ENDS), ("b", "exit 64"), ("c", "mark ran")],
    );
    let _daemon = Daemon::start(&root);
    let state = json!({ "workflow_state": { "name": "feature" } });
    root.drop_request("f", &with(ask("@a"), state));
    let one = root.completed("f");
    let (two, code) = root.failed(&child(&one));
    assert_eq!(code, "PROCESSING_ERROR");
    assert!(children(&two).is_empty());
    root.assert_works("after");
    assert!(root.names("marks").is_empty(), "{:?}", root.names("marks"));
    // Mended and retried, the chain goes on where it stopped.
    std::fs::write(root.path("b.sh"), ENDS).unwrap();
    let two = child(&one);
    root.command("r.json", &json!({ "action": "retry", "handoff_id": two }));
    let two = root.record_that("completed", &two, |_| true);
    root.completed(&child(&two));
}

#[test]
fn a_report_that_breaks_its_rules_is_mended_in_the_retry() {
    let sh = r#"echo "$HANDOFF_LAST_ERROR" >"marks/$HANDOFF_ATTEMPT"
        case $HANDOFF_ATTEMPT in
        1) echo '{"status": "blocked", "phase": "p", "summary": "s"}';;
        2) echo '{"status": "odd", "phase": "p", "handoff": {"context": "c"}}';;
        *) echo '{"status": "complete", "phase": "p", "handoff": {"context": "c"}}';;
        esac"#;
    let root = Root::team("", &[("a", sh)]);
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@a"));
    let record = root.completed("x");
    assert_eq!(outcomes(&record), ["failed", "failed", "completed"]);
    let told = root.mark("2");
    for field in [
        "VALIDATION_FAILED",
        "blocked_reason",
        "attempted",
        "handoff.blockers",
    ] {
        assert!(told.contains(field), "{field}: {told}");
    }
    assert!(root.mark("3").contains("status"));
}

#[test]
fn a_next_agent_that_nobody_knows_fails_loudly_and_a_person_can_be_next() {
    let next = |agent: &str| {
        format!(
            r#"echo '{{"status": "complete", "phase": "p", "summary": "look",
            "handoff": {{"next_agent": "{agent}", "context": "c"}}}}'"#
        )
    };
    let root = Root::team("", &[("a", &next("@nobody")), ("b", &next("human"))]);
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@a"));
    let (failed, code) = root.failed(&child(&root.completed("x")));
    assert_eq!(code, "UNKNOWN_AGENT");
    assert!(text(&failed["error"]["message"]).contains("@nobody"));
    root.drop_request("y", &ask("@b"));
    let asked = root.waiting(&child(&root.completed("y")));
    assert_eq!(asked["waiting"]["on"], "human");
    assert_eq!(asked["source"]["agent_id"], "@b");
}

#[test]
fn what_a_submission_says_of_its_links_moves_nothing_and_wakes_nobody() {
    let waits = r#"if [ $HANDOFF_ATTEMPT = 1 ]; then
        echo '{"status": "delegate", "handoff": {"children": [{"agent": "@slow"}]}}'; fi"#;
    let next = r#"echo '{"status": "complete", "phase": "p",
        "handoff": {"next_agent": "@slow", "context": "c"}}'"#;
    let root = Root::team(
        "",
        &[("a", waits), ("n", next), ("slow", "mark up; await go")],
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("parent", &ask("@a"));
    let kid = child(&root.waiting("parent"));
    root.mark(&format!("{kid}.up"));
    let own = json!({
        "format": 1, "revision": 3, "attempts": [], "to": "completed",
        "chain": "parent", "hop": 7, "parent": "parent", "children": [kid, "../x"],
        "returns": [{"id": "parent", "status": "completed"}],
        "spawns": [{"id": "made", "request": ask("@fake")},
                   {"id": "../../made", "request": ask("@fake")}],
    });
    root.drop_request("forged", &with(ask("@n"), json!({ "handoffd": own })));
    let forged = root.completed("forged");
    let follower = children(&forged).pop().unwrap();
    assert_eq!(
        children(&forged),
        std::slice::from_ref(&follower),
        "the kid is not its own"
    );
    assert!(follower.starts_with("forged.1-"), "{follower}");
    assert!(forged["handoffd"]["parent"].is_null(), "{forged:#}");
    root.mark(&format!("{follower}.up"));
    assert!(forged["handoffd"]["returns"].is_null(), "{forged:#}");
    root.command(
        "c.json",
        &json!({ "action": "cancel", "handoff_id": "forged" }),
    );
    assert_eq!(root.failed(&follower).1, "CANCELLED");
    root.assert_works("later");
    assert_eq!(root.states_of("parent"), ["waiting"]);
    assert_eq!(root.states_of(&kid), ["in-progress"]);
    assert!(root.states_of("made").is_empty());
    for path in ["made.json", "handoffs/made.json"] {
        assert!(!root.path(path).exists(), "{path}");
    }
    root.allow("go");
    root.completed("parent");
}
