//! Receiving a task: what its next agent would find wrong before it begins.

use super::gates::{Found, newest, pre_handoff};
use super::words::one_line;
use crate::protocol::task::{TaskState, digest};

/// The artifacts whose content has to be known.
pub fn to_check(state: &TaskState) -> Vec<String> {
    let mut paths: Vec<String> = newest(state).into_keys().map(str::to_owned).collect();
    paths.sort();
    paths
}

/// What is wrong, each in a sentence; nothing if the agent can begin.
pub fn problems(state: &TaskState, agent: Option<&str>, found: &Found) -> Vec<String> {
    let bare = |name: &str| name.strip_prefix('@').unwrap_or(name).to_owned();
    let mut problems = Vec::new();
    if let Some(agent) = agent
        && bare(agent) != bare(state.target_agent())
    {
        let target = match state.target_agent() {
            "" => "nobody".to_owned(),
            target => one_line(target, 80),
        };
        problems.push(format!(
            "the task is for {target}, not for {}",
            one_line(agent, 80)
        ));
    }
    let complete = pre_handoff(state, 0, true);
    if !complete.passed {
        problems.push(complete.reason);
    }
    let mut artifacts: Vec<(&str, (&str, &str))> = newest(state).into_iter().collect();
    artifacts.sort_unstable();
    for (path, (_, hash)) in artifacts {
        let shown = one_line(path, 120);
        match (found.get(path), digest(hash)) {
            (Some(Err(why)), _) => problems.push(format!("{shown}: {why}")),
            (Some(Ok(real)), Some(said)) if *real != said => {
                problems.push(format!("{shown} does not match its content_hash"));
            }
            _ => {}
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_agent_hears_what_is_wrong_before_it_begins() {
        let (one, two) = ("1".repeat(64), "2".repeat(64));
        let Value::Object(doc) = json!({
            "task_id": "t", "task_title": "T", "phase": "p", "source_agent": "a", "version": 1,
            "target_agent": "@tester", "artifacts": [
                {"path": "good", "content_hash": one}, {"path": "stale", "content_hash": two},
                {"path": "gone", "content_hash": one}, {"path": "unsaid"},
                {"path": "stale", "content_hash": one},
            ],
        }) else {
            panic!()
        };
        let state = TaskState::from_document(doc).unwrap();
        assert_eq!(to_check(&state), ["gone", "good", "stale", "unsaid"]);
        let mut found: Found = to_check(&state)
            .into_iter()
            .map(|path| (path, Ok(one.clone())))
            .collect();
        assert!(problems(&state, Some("tester"), &found).is_empty());
        found.insert("stale".to_owned(), Ok(two));
        found.insert("gone".to_owned(), Err("the file does not exist".to_owned()));
        let want = [
            "the task is for @tester, not for coder",
            "gone: the file does not exist",
            "stale does not match its content_hash",
        ];
        assert_eq!(problems(&state, Some("coder"), &found), want);
    }
}
