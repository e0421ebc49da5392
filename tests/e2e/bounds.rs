//! What stops a chain: too many hops, circles, too many children; and what does not.

use std::fmt::Write as _;

use serde_json::json;

use crate::common::{Daemon, Root, ask, child, children, outcomes, text, wait_until, with};

/// Hands on to this agent, with a context that is the same each time, or not.
fn hands_on(agent: &str, context: &str) -> String {
    format!(
        r#"printf '{{"status": "complete", "phase": "p", "handoff": {{"next_agent": "{agent}", "context": "%s"}}}}' "{context}""#
    )
}

/// The chain's last handoff, by following the only child of each.
fn last(root: &Root, first: &str) -> (usize, serde_json::Value) {
    let mut id = first.to_owned();
    for hop in 0.. {
        let record = wait_until(&id, || {
            ["completed", "failed"]
                .iter()
                .find_map(|state| root.record_in(state, &id))
        });
        if children(&record).is_empty() {
            return (hop, record);
        }
        id = child(&record);
    }
    unreachable!()
}

#[test]
fn a_ping_pong_with_the_same_words_is_a_circle() {
    let root = Root::team(
        "",
        &[
            ("ping", &hands_on("@pong", "ball")),
            ("pong", &hands_on("@ping", "ball")),
        ],
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("game", &ask("@ping"));
    let (hops, record) = last(&root, "game");
    assert_eq!(record["status"], "failed");
    assert_eq!(record["error"]["code"], "BLOCKED");
    let message = text(&record["error"]["message"]);
    for part in ["game", "circle", "@pong", "@ping"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(hops, 3);
    assert!(outcomes(&record).is_empty(), "it never ran");
    assert_eq!(root.names("handoffs/failed").len(), 1);
}

#[test]
fn a_ping_pong_with_new_words_each_time_is_stopped_by_max_hops() {
    let first = hands_on("@pong", "$HANDOFF_ID");
    let second = hands_on("@ping", "$HANDOFF_ID");
    let root = Root::team(
        "daemon.max_hops = 5",
        &[("ping", &first), ("pong", &second)],
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("game", &ask("@ping"));
    let (hops, record) = last(&root, "game");
    assert_eq!(record["error"]["code"], "BLOCKED");
    let message = text(&record["error"]["message"]);
    assert!(
        message.contains("game") && message.contains("max_hops is 5"),
        "{message}"
    );
    assert!(message.contains("@pong → @ping"), "{message}");
    assert_eq!(hops, 6);
}

#[test]
fn who_asks_for_the_same_help_again_and_again_is_stopped() {
    let stuck = |context: &str| {
        format!(
            r#"printf '{{"status": "blocked", "blocked_reason": "unknown", "phase": "p",
            "attempted": ["a"], "handoff": {{"context": "%s"}}}}' "{context}""#
        )
    };
    let root = Root::team(
        "daemon.max_hops = 4\nroutes.blocked.unknown = '@help'",
        &[
            ("same", &stuck("x")),
            ("new", &stuck("$HANDOFF_ATTEMPT")),
            ("help", ":"),
        ],
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("circle", &ask("@same"));
    root.drop_request("long", &ask("@new"));
    for (id, word, attempts) in [("circle", "circle", 2), ("long", "max_hops", 5)] {
        let (record, code) = root.failed(id);
        assert_eq!(code, "BLOCKED");
        let message = text(&record["error"]["message"]);
        assert!(message.contains(word) && message.contains(id), "{message}");
        assert_eq!(outcomes(&record), vec!["blocked"; attempts]);
        // The one too many stands in failed/ too.
        let kids = children(&record);
        assert_eq!(kids.len(), attempts);
        let (last, code) = root.failed(&kids[attempts - 1]);
        assert_eq!(code, "BLOCKED");
        assert!(text(&last["error"]["message"]).contains(id));
    }
}

#[test]
fn a_chain_that_branches_at_every_hop_is_stopped_by_max_chain() {
    let branches = r#"printf '{"status": "delegate", "handoff": {"children": [
        {"agent": "@tree", "input": {"n": "%s-1"}}, {"agent": "@tree", "input": {"n": "%s-2"}},
        {"agent": "@tree", "input": {"n": "%s-3"}}]}}' $HANDOFF_ID $HANDOFF_ID $HANDOFF_ID"#;
    let root = Root::team(
        "daemon.max_chain = 20\ndaemon.max_hops = 10\ndaemon.max_concurrent = 1",
        &[("tree", branches)],
    );
    let daemon = Daemon::start(&root);
    root.drop_request("tree", &ask("@tree"));
    // The count survives the daemon.
    wait_until("some branches", || {
        (root.names("handoffs/waiting").len() >= 4).then_some(())
    });
    daemon.kill();
    let _daemon = Daemon::start(&root);
    wait_until("a refusal", || {
        let failed = root.names("handoffs/failed");
        let refused = |name: &String| {
            let record = root.record_in("failed", name.trim_end_matches(".json"));
            record.is_some_and(|it| text(&it["error"]["message"]).contains("max_chain is 20"))
        };
        failed.iter().any(refused).then_some(())
    });
    let cancel = json!({ "action": "cancel", "handoff_id": "tree" });
    root.command("stop.json", &cancel);
    root.failed("tree");
    let count = |state: &str| root.names(&format!("handoffs/{state}")).len();
    wait_until("the end of all branches", || {
        let under_way = ["pending", "in-progress", "waiting"];
        (under_way.into_iter().map(count).sum::<usize>() == 0).then_some(())
    });
    let all = count("completed") + count("failed");
    // Those that were refused have records too, and attempts that were cut off may count twice.
    assert!((10..60).contains(&all), "{all}");
    let (_, code) = root.failed("tree");
    assert_eq!(code, "CANCELLED");
}

#[test]
fn a_result_that_asks_for_a_hold_of_centuries_gets_max_hold() {
    let script = r#"[ $HANDOFF_ATTEMPT = 2 ] || echo '{"retry_after_seconds": 9e9}'"#;
    let config = "defaults.max_hold = '1s'";
    let root = Root::team(config, &[("x", script), ("y", "exit 0")]);
    let daemon = Daemon::start(&root);
    root.drop_request("a", &ask("@x"));
    let record = root.completed("a");
    assert_eq!(outcomes(&record), ["held", "completed"]);
    // Without the key a hold takes a day at most.
    root.configure("specialists.'@x'.command = ['sh', 'x.sh']");
    daemon.signal(rustix::process::Signal::HUP);
    root.drop_request("b", &ask("@x"));
    let record = root.record_that("waiting", "b", |record| record["waiting"].is_object());
    let at = |key: &str, record: &serde_json::Value| {
        let text = text(&record[key]);
        humantime::parse_rfc3339(&text).unwrap()
    };
    let began = at("started_at", &record);
    let until = at("until", &record["waiting"]);
    let hold = until.duration_since(began).unwrap().as_secs();
    assert!((86_400..90_000).contains(&hold), "{hold}");
}

#[test]
fn many_children_are_one_hop_and_too_many_are_a_mistake() {
    let many = |count: usize| {
        let kids = vec!["{\"agent\": \"@kid\"}"; count].join(",");
        let mut sh = String::new();
        writeln!(sh, "if [ $HANDOFF_ATTEMPT = 1 ]; then cat <<'END'").unwrap();
        writeln!(
            sh,
            "{{\"status\": \"delegate\", \"handoff\": {{\"children\": [{kids}]}}}}\nEND"
        )
        .unwrap();
        writeln!(sh, "exit; fi").unwrap();
        sh + &hands_on("@kid", "on")
    };
    let root = Root::team(
        "daemon.max_hops = 3\ndefaults.retry.max_retries = 0",
        &[("some", &many(20)), ("crowd", &many(1001)), ("kid", ":")],
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@some"));
    let record = root.completed("x");
    let kids = children(&record);
    assert_eq!(kids.len(), 21, "twenty helpers, and the next agent");
    root.completed(&kids[20]);
    let over = json!({ "input": { "data": {} } });
    root.drop_request("y", &with(ask("@crowd"), over));
    let (record, code) = root.failed("y");
    assert_eq!(code, "VALIDATION_FAILED");
    let message = text(&record["error"]["message"]);
    assert!(
        message.contains("handoff.children") && message.contains("1001"),
        "{message}"
    );
    assert!(children(&record).is_empty());
}

/// How many steps and children: fewer than promised where the machine is busy.
fn count() -> usize {
    let asked = std::env::var("E2E_CHAIN").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(300)
}

#[test]
fn a_workflow_of_many_steps_runs_to_its_end() {
    let count = count();
    let mut steps = String::from("daemon.durability = 'relaxed'\nworkflows.long.steps = [");
    for n in 0..count {
        write!(steps, "{{ phase = 'p{n}', agent = '@step' }},").unwrap();
    }
    steps.push_str("]\nspecialists.'@step'.command = ['/bin/true']");
    let root = Root::with(&steps);
    let _daemon = Daemon::start(&root);
    let state = json!({ "workflow_state": { "name": "long", "current_step": 1 } });
    root.drop_request("w", &with(ask("@step"), state));
    let (hops, record) = last(&root, "w");
    assert_eq!((hops, &record["status"]), (count - 1, &json!("completed")));
    assert_eq!(record["workflow_state"]["current_step"], count);
    assert_eq!(root.names("handoffs/completed").len(), count);
    assert!(root.names("handoffs/failed").is_empty());
}

#[test]
fn a_wide_fan_out_returns_whole() {
    let count = count();
    let kids = vec!["{\"agent\": \"@kid\"}"; count].join(",");
    let sh = format!(
        "[ $HANDOFF_ATTEMPT = 1 ] || exit 0\ncat <<'END'\n\
         {{\"status\": \"delegate\", \"handoff\": {{\"children\": [{kids}]}}}}\nEND"
    );
    let root = Root::team(
        "daemon.durability = 'relaxed'\ndaemon.max_concurrent = 8\n\
         specialists.'@kid'.command = ['/bin/true']",
        &[("boss", &sh)],
    );
    let mut daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@boss"));
    for share in [0, 1, 2] {
        // The first of these may well come while the children are being made.
        wait_until("some of them", || {
            let names = root.names("handoffs/completed");
            (names.len() > share * count / 4
                || share == 0 && !root.names("handoffs/pending").is_empty())
            .then_some(())
        });
        daemon.kill();
        daemon = Daemon::start(&root);
    }
    let record = root.completed("x");
    assert_eq!(
        record["handoffd"]["returns"].as_array().unwrap().len(),
        count
    );
    assert_eq!(root.names("handoffs/completed").len(), count + 1);
}
