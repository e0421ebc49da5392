//! What a request itself brings to its task: the decisions and artifacts of a package.
//!
//! They were decided and made before the package was sent, so no gate asks its receiver for their
//! reasons, and they stay in the state where a gate refuses the receiver's work. Every outcome of the handoff
//! comes with them again (a retry, a return, a resubmission): what the state has, it does not get
//! twice.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::protocol::task::TaskState;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given {
    pub artifacts: Vec<Map<String, Value>>,
    pub decisions: Vec<Map<String, Value>>,
}

impl Given {
    pub fn is_empty(&self) -> bool {
        self.artifacts.is_empty() && self.decisions.is_empty()
    }

    /// Without what `state` has: a decision in the same words, an artifact with the same path.
    #[must_use]
    pub fn unknown_to(mut self, state: &TaskState) -> Self {
        let mut paths: HashSet<String> = state
            .artifacts()
            .map(|artifact| artifact.path().to_owned())
            .collect();
        let mut decided: HashSet<(String, String)> = state
            .decisions()
            .map(|decision| (decision.what().to_owned(), decision.why().to_owned()))
            .collect();
        let text = |entry: &Map<String, Value>, key: &str| {
            let text = entry.get(key).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        self.artifacts
            .retain(|entry| paths.insert(text(entry, "path")));
        self.decisions
            .retain(|entry| decided.insert((text(entry, "decision"), text(entry, "rationale"))));
        self
    }

    /// Adds all of it to a state.
    pub fn bring(self, state: &mut TaskState) {
        for (key, list) in [
            ("artifacts", self.artifacts),
            ("decisions_made", self.decisions),
        ] {
            if !list.is_empty() {
                state.append(key, list.into_iter().map(Value::Object));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::Wall;
    use crate::protocol::task::TaskId;

    fn object(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_a_state_has_it_does_not_get_twice() {
        let task = TaskId::parse("T").unwrap();
        let mut state = TaskState::begin(task, "t", Wall(0));
        let decision = |what: &str, why: &str| object(&json!({"decision": what, "rationale": why}));
        let artifact = |path: &str| object(&json!({"path": path, "artifact_type": "spec"}));
        let given = Given {
            artifacts: vec![artifact("a.md"), artifact("a.md"), artifact("b.md")],
            decisions: vec![decision("x", "y"), decision("x", "z"), decision("x", "y")],
        };
        let first = given.clone().unknown_to(&state);
        assert_eq!((first.artifacts.len(), first.decisions.len()), (2, 2));
        first.bring(&mut state);
        assert_eq!(state.decisions().len(), 2);
        assert!(given.unknown_to(&state).is_empty());
    }
}
