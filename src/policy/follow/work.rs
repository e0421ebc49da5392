//! The work in an `input.data`: what is left without what the daemon added.
//!
//! Schemas are about the work. What a chain carries along must neither break a schema that was
//! written for one result, nor fulfil it.

use serde_json::{Map, Value};

use super::entries::{CAME_FROM, LISTS};
use crate::protocol::links::Links;

/// The keys that the daemon may add.
pub const ADDED: [&str; 5] = [
    "origin",
    "answer",
    "decisions",
    "artifacts",
    "open_questions",
];

/// The work of a handoff that the daemon made; `None` where the daemon added nothing.
pub fn work_in(data: &Value, links: &Links) -> Option<Map<String, Value>> {
    let data = data.as_object()?;
    let is_works_own = |key: &str| links.written.get(key) == Some(&Value::Bool(true));
    let is_added = |key: &str| data.contains_key(key) && !is_works_own(key);
    // Where the chain began with an older version, nothing says what is whose.
    let is_known = is_added("origin") || links.carried.contains_key("origin");
    if links.parent.is_none() || !is_known {
        return None;
    }
    let mut work = data.clone();
    for key in ADDED.into_iter().filter(|key| is_added(key)) {
        let count = links.written.get(key).and_then(Value::as_u64);
        let list = work.get_mut(key).and_then(Value::as_array_mut);
        match (count.and_then(|count| usize::try_from(count).ok()), list) {
            (Some(count), Some(list)) => {
                list.drain(..list.len().saturating_sub(count));
            }
            _ => {
                work.shift_remove(key);
            }
        }
    }
    Some(work)
}

/// The same as the result wrote it: entries without the handoff that they name, and texts as texts.
pub fn as_written(mut work: Map<String, Value>, links: &Links) -> Map<String, Value> {
    for (key, field) in LISTS {
        let is_counted = links.written.get(key).is_some_and(Value::is_u64);
        let list = work.get_mut(key).and_then(Value::as_array_mut);
        for entry in list.filter(|_| is_counted).into_iter().flatten() {
            let Value::Object(object) = entry else {
                continue;
            };
            object.shift_remove(CAME_FROM);
            if object.len() == 1
                && let Some(text) = object.get(field).cloned()
            {
                *entry = text;
            }
        }
    }
    work
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn links(written: Value, carried: Value) -> Links {
        let map = |value: Value| value.as_object().unwrap().clone();
        Links {
            parent: Some("p".to_owned()),
            written: map(written),
            carried: map(carried),
            ..Links::default()
        }
    }

    #[test]
    fn what_the_daemon_added_is_left_out_and_what_a_result_wrote_stays() {
        let known = json!({"decision": "old", "handoff_id": "p"});
        let own = json!({"decision": "new", "handoff_id": "q"});
        let origin = json!({"handoff_id": "p"});
        for (data, links, work, written) in [
            (
                json!({"n": 1, "origin": origin, "answer": {"action": "approve"},
                       "decisions": [known, own], "artifacts": [{"path": "a"}]}),
                links(json!({"decisions": 1}), json!({})),
                json!({"n": 1, "decisions": [own]}),
                json!({"n": 1, "decisions": ["new"]}),
            ),
            (
                // An empty list that a result wrote is there, and a count beyond a list is all of it.
                json!({"origin": origin, "decisions": [known], "artifacts": [own]}),
                links(json!({"decisions": 0, "artifacts": 9}), json!({})),
                json!({"decisions": [], "artifacts": [own]}),
                json!({"decisions": [], "artifacts": [{"decision": "new"}]}),
            ),
            (
                json!({"origin": "Paris", "answer": 42, "decisions": [{"decision": "d"}]}),
                links(
                    json!({"origin": true, "answer": true, "decisions": true}),
                    json!({"origin": origin}),
                ),
                json!({"origin": "Paris", "answer": 42, "decisions": [{"decision": "d"}]}),
                json!({"origin": "Paris", "answer": 42, "decisions": [{"decision": "d"}]}),
            ),
        ] {
            let found = work_in(&data, &links).unwrap();
            assert_eq!(Value::Object(found.clone()), work, "{data}");
            assert_eq!(Value::Object(as_written(found, &links)), written, "{data}");
        }
    }

    #[test]
    fn nothing_is_taken_from_what_the_daemon_did_not_make() {
        let data = json!({"origin": 1, "decisions": ["d"]});
        assert_eq!(work_in(&data, &Links::default()), None, "a first request");
        let follow_up = links(json!({}), json!({}));
        let older = json!({"decisions": ["d"]});
        assert_eq!(work_in(&older, &follow_up), None, "an older version's");
        assert_eq!(work_in(&json!("text"), &follow_up), None);
    }
}
