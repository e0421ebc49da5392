//! What follows from results: steps, helpers, bounds.

use serde_json::json;

use super::*;
use crate::protocol::attempt::Attempt;

fn config() -> Config {
    let text = r#"
        [daemon]
        max_hops = 3
        [workflows.feature]
        steps = [
          { phase = "architecture", agent = "@architect" },
          { phase = "implementation", agent = "@developer" },
          { phase = "testing", agent = "@tester" },
        ]
    "#;
    Config::parse(text, std::path::Path::new("t.toml")).unwrap()
}

fn record(document: &Value) -> Record {
    Record::admit(document.as_object().unwrap().clone(), "x", None)
}

fn map(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn a_workflow_decides_and_a_difference_is_a_warning() {
    let request = json!({
        "target": {"agent_id": "@architect", "phase": "architecture"},
        "context": {"task_id": "T-1", "project_id": "p"}, "priority": "high",
        "workflow_state": {"name": "feature", "current_step": 1, "note": "kept"},
    });
    let result = map(&json!({
        "status": "complete", "summary": "s", "decisions": [{"decision": "d"}],
        "handoff": {"next_agent": "@somebody", "context": "c", "open_questions": ["q"]},
    }));
    let begun = |at| {
        let mut record = record(&request);
        record.meta.attempts.push(Attempt::begun(1, Wall(at)));
        record
    };
    let followed = after_success(
        &begun(0),
        "x",
        &result,
        Author::Specialist,
        &config(),
        Wall(1),
    );
    assert_eq!(followed.warnings.len(), 1);
    let spawn = followed.spawn.unwrap();
    assert!(
        spawn.id.starts_with("x.1-") && spawn.id.len() == 12,
        "{}",
        spawn.id
    );
    let child = Value::Object(spawn.request.clone());
    assert_eq!(child["source"]["agent_id"], "@architect");
    assert_eq!(
        child["target"],
        json!({"agent_id": "@developer", "phase": "implementation"})
    );
    assert_eq!(
        child["context"],
        json!({"task_id": "T-1", "project_id": "p"})
    );
    assert_eq!(child["priority"], "high");
    let data = &child["input"]["data"];
    assert_eq!(
        (&data["context"], &data["summary"]),
        (&json!("c"), &json!("s"))
    );
    assert_eq!(
        data["open_questions"],
        json!([{"question": "q", "handoff_id": "x"}])
    );
    assert_eq!(data["origin"], json!({"handoff_id": "x"}));
    assert_eq!(
        child["workflow_state"],
        json!({"name": "feature", "current_step": 2, "note": "kept",
               "completed_steps": ["architecture"], "remaining_steps": ["testing"]})
    );
    assert_eq!(child["handoffd"]["chain"], "x");
    assert_eq!(
        child["handoffd"]["asked"], 0,
        "steps of a workflow don't count"
    );
    let id_of = |record: Record| {
        let followed = after_success(
            &record,
            "x",
            &result,
            Author::Specialist,
            &config(),
            Wall(9),
        );
        followed.spawn.unwrap().id
    };
    assert_eq!(id_of(begun(0)), spawn.id, "the same outcome, the same id");
    assert_ne!(id_of(begun(2)), spawn.id, "another that was called x");

    let second = Record::admit(spawn.request, &spawn.id, None);
    let third = after_success(
        &second,
        &spawn.id,
        &result,
        Author::Specialist,
        &config(),
        Wall(0),
    )
    .spawn
    .unwrap();
    assert!(third.id.starts_with("x.2-"));
    let third_record = Record::admit(third.request, &third.id, None);
    let end = after_success(
        &third_record,
        &third.id,
        &result,
        Author::Specialist,
        &config(),
        Wall(0),
    );
    assert_eq!(end.spawn, None, "the workflow ends");
    assert_eq!(end.warnings.len(), 1);
}

#[test]
fn a_workflow_that_is_not_configured_is_carried_with_a_warning() {
    let request = json!({ "workflow_state": { "name": "typo", "current_step": 1 } });
    let of = |config: &Config| {
        after_success(
            &record(&request),
            "x",
            &Map::new(),
            Author::Specialist,
            config,
            Wall(0),
        )
    };
    let followed = of(&config());
    assert_eq!(followed.spawn, None);
    assert!(followed.warnings[0].contains("typo"), "{followed:?}");
    assert_eq!(
        of(&Config::default()).warnings,
        Vec::<String>::new(),
        "where there are none, nothing is mistaken"
    );
}

#[test]
fn without_a_workflow_the_result_names_who_comes_next() {
    let request = json!({"target": {"agent_id": "@a"}, "workflow_state": {"name": "unknown"}});
    let next = |result: Value| {
        after_success(
            &record(&request),
            "x",
            &map(&result),
            Author::Specialist,
            &config(),
            Wall(0),
        )
        .spawn
    };
    assert_eq!(next(json!({"summary": "s"})), None);
    assert_eq!(next(json!({"handoff": {"next_agent": null}})), None);
    let spawn = next(json!({"handoff": {"next_agent": "b", "next_phase": "testing"}})).unwrap();
    let child = Value::Object(spawn.request);
    assert_eq!(
        child["target"],
        json!({"agent_id": "@b", "phase": "testing"})
    );
    assert_eq!(
        child["workflow_state"]["name"], "unknown",
        "carried, not acted on"
    );
    assert_eq!(child["handoffd"]["asked"], 1);
}

#[test]
fn circles_and_long_chains_are_refused_by_name() {
    let ping = |n: usize| map(&json!({"handoff": {"next_agent": "@b", "context": format!("{n}")}}));
    let mut record = record(&json!({"target": {"agent_id": "@a"}}));
    let mut id = "x".to_owned();
    for n in 0..3 {
        let spawn = after_success(
            &record,
            &id,
            &ping(n),
            Author::Specialist,
            &config(),
            Wall(0),
        )
        .spawn
        .unwrap();
        assert_eq!(spawn.refused, None, "hop {n}");
        id.clone_from(&spawn.id);
        record = Record::admit(spawn.request, &id, None);
    }
    let spawn = after_success(
        &record,
        &id,
        &ping(3),
        Author::Specialist,
        &config(),
        Wall(0),
    )
    .spawn
    .unwrap();
    let why = spawn.refused.unwrap();
    assert!(
        why.contains("chain x is too long") && why.contains("@b → @b"),
        "{why}"
    );
    let spawn = after_success(
        &record,
        &id,
        &ping(1),
        Author::Specialist,
        &config(),
        Wall(0),
    )
    .spawn
    .unwrap();
    assert!(spawn.refused.unwrap().contains("chain x goes in a circle"));
}

#[test]
fn helpers_get_worktrees_of_their_own_where_there_are_worktrees() {
    let text = "[specialists.\"@coder\"]\ncommand = [\"c\"]\nworkspace = \"worktree\"\nrepository = \".\"\n";
    let with_trees = Config::parse(text, std::path::Path::new("t.toml")).unwrap();
    let asked = |id: &str| Asked {
        agent: AgentName::parse("@coder").unwrap(),
        phase: None,
        handed: Handed::default(),
        said: json!({ "for": id }),
        context: Map::new(),
        workflow_state: None,
        by_result: true,
    };
    let parent = record(&json!({"target": {"agent_id": "@lead"}}));
    let spawned = |record: &Record, id: &str, config: &Config| {
        let mut spawns = delegates(record, id, vec![asked(id)], config, Wall(1)).unwrap();
        spawns.remove(0)
    };
    let none = spawned(&parent, "x", &config());
    assert_eq!(none.request["handoffd"].get("worktree"), None);
    let helper = spawned(&parent, "x", &with_trees);
    let own = json!({"line": helper.id, "from": "x"});
    assert_eq!(helper.request["handoffd"]["worktree"], own);
    // What follows a helper goes on in its tree; a helper of a helper begins from there.
    let record = Record::admit(helper.request.clone(), &helper.id, None);
    let result =
        map(&json!({"status": "complete", "handoff": {"next_agent": "coder", "context": "c"}}));
    let next = after_success(
        &record,
        &helper.id,
        &result,
        Author::Specialist,
        &with_trees,
        Wall(2),
    );
    let next = next.spawn.unwrap();
    assert_eq!(next.request["handoffd"]["worktree"], own);
    let deeper = spawned(&record, &helper.id, &with_trees);
    assert_eq!(deeper.request["handoffd"]["worktree"]["from"], helper.id);
}
