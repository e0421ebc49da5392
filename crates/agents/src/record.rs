//! What an adapter reads of a record, and of the environment of its attempt.
//!
//! Only names of the published formats are used here; a record of any dialect is read the same way.

use std::path::PathBuf;

use serde_json::{Map, Value};

/// The record that stands on stdin.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub doc: Map<String, Value>,
}

/// What the environment of an attempt says.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    pub id: String,
    pub attempt: u32,
    pub root: Option<PathBuf>,
    pub result: Option<PathBuf>,
    pub heartbeat: Option<PathBuf>,
    pub context_dir: Option<PathBuf>,
    pub summary: Option<String>,
    pub last_error: Option<String>,
}

/// What a human answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub action: String,
    pub choice: Option<String>,
    pub comment: Option<String>,
    pub by: Option<String>,
}

impl Surroundings {
    pub fn of_environment() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let path = |name: &str| {
            let value = std::env::var_os(name).filter(|value| !value.is_empty());
            value.map(PathBuf::from)
        };
        Self {
            id: text("HANDOFF_ID").unwrap_or_default(),
            attempt: text("HANDOFF_ATTEMPT")
                .and_then(|number| number.parse().ok())
                .unwrap_or(1),
            root: path("HANDOFF_ROOT"),
            result: path("HANDOFF_RESULT"),
            heartbeat: path("HANDOFF_HEARTBEAT"),
            context_dir: path("HANDOFF_CONTEXT_DIR"),
            summary: text("HANDOFF_SUMMARY"),
            last_error: text("HANDOFF_LAST_ERROR"),
        }
    }
}

impl Record {
    /// Follows keys into the document.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        let mut value = self.doc.get(*first)?;
        for key in rest {
            value = value.get(*key)?;
        }
        (!value.is_null()).then_some(value)
    }

    pub fn text(&self, path: &[&str]) -> Option<&str> {
        self.at(path)?.as_str()
    }

    /// A field of the work: in `input.data`, else in the package's or report's `handoff`, else at the top.
    pub fn work(&self, key: &str) -> Option<&Value> {
        self.at(&["input", "data", key])
            .or_else(|| self.at(&["handoff", "context", key]))
            .or_else(|| self.at(&["handoff", key]))
            .or_else(|| self.at(&[key]))
    }

    /// What names this run of the handoff for good, with its id: when the first attempt began (an id
    /// may be used again after its record was deleted), and how often it was submitted anew since.
    pub fn begun(&self) -> String {
        let first = self.at(&["handoffd", "attempts"]).and_then(|it| it.get(0));
        let begun = first.and_then(|attempt| attempt.get("started_at")?.as_str());
        let previous = self.at(&["handoffd", "previous"]).and_then(Value::as_array);
        // Outcomes that were taken out of the record are counted where they stood.
        let anew = previous.into_iter().flatten().map(|outcome| {
            let has_result = u64::from(outcome.get("last_result").is_some());
            let counted = outcome.get("resubmitted").and_then(Value::as_u64);
            has_result.max(counted.unwrap_or(0))
        });
        format!("{}#{}", begun.unwrap_or_default(), anew.sum::<u64>())
    }

    /// The result that the last attempt left, whatever became of it.
    pub fn last_result(&self) -> Option<&Map<String, Value>> {
        self.at(&["handoffd", "last_result", "result"])?.as_object()
    }

    pub fn answer(&self) -> Option<Answer> {
        let answer = self.at(&["answer"])?;
        let text = |key: &str| answer.get(key)?.as_str().map(str::to_owned);
        Some(Answer {
            action: text("action")?,
            choice: text("choice"),
            comment: text("comment"),
            by: text("by"),
        })
    }

    /// Whether the answer came after the attempt that left the last result. Times of records are in one
    /// form, so they compare as text.
    pub fn answers_last_result(&self) -> bool {
        let number = self.at(&["handoffd", "last_result", "attempt"]);
        let attempts = self.at(&["handoffd", "attempts"]).and_then(Value::as_array);
        let of_result = attempts
            .into_iter()
            .flatten()
            .find(|attempt| number.is_some() && attempt.get("number") == number);
        let ended = of_result.and_then(|attempt| attempt.get("ended_at")?.as_str());
        match (self.text(&["answer", "at"]), ended) {
            (Some(answered), Some(ended)) => answered >= ended,
            _ => true,
        }
    }

    /// How many attempts in a row, up to the present one, were held for a quota.
    pub fn holds_in_a_row(&self) -> u32 {
        let attempts = self.at(&["handoffd", "attempts"]).and_then(Value::as_array);
        let ended = attempts.into_iter().flatten().rev().filter_map(|attempt| {
            let outcome = attempt.get("outcome")?.as_str()?;
            Some((outcome, attempt.get("count").and_then(Value::as_u64)))
        });
        let held = ended.take_while(|(outcome, _)| *outcome == "held");
        let count = held.map(|(_, count)| count.unwrap_or(1)).sum::<u64>();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(value: Value) -> Record {
        let Value::Object(doc) = value else {
            panic!("not an object")
        };
        Record { doc }
    }

    #[test]
    fn the_work_is_found_in_every_dialect() {
        for document in [
            json!({"input": {"data": {"task": "t"}}}),
            json!({"handoff": {"context": {"task": "t"}}}),
            json!({"handoff": {"task": "t"}}),
            json!({"task": "t"}),
        ] {
            assert_eq!(record(document).work("task"), Some(&json!("t")));
        }
    }

    #[test]
    fn an_answer_is_to_the_question_before_it() {
        for (answered, ended, expected) in [
            ("2026-01-02T00:00:00.000Z", "2026-01-01T00:00:00.000Z", true),
            (
                "2026-01-01T00:00:00.000Z",
                "2026-01-02T00:00:00.000Z",
                false,
            ),
        ] {
            let record = record(json!({
                "answer": {"action": "approve", "at": answered},
                "handoffd": {
                    "attempts": [{"number": 1}, {"number": 2, "ended_at": ended}],
                    "last_result": {"attempt": 2, "result": {}},
                },
            }));
            assert_eq!(record.answers_last_result(), expected);
        }
        assert!(record(json!({"answer": {"action": "approve"}})).answers_last_result());
    }

    #[test]
    fn holds_are_counted_from_the_end() {
        let attempts = |list: Value| record(json!({"handoffd": {"attempts": list}}));
        for (list, expected) in [
            (json!([]), 0),
            (json!([{"outcome": null}]), 0),
            (json!([{"outcome": "held"}, {"outcome": null}]), 1),
            (
                json!([{"outcome": "held", "count": 12}, {"outcome": "held"}, {}]),
                13,
            ),
            (json!([{"outcome": "held"}, {"outcome": "failed"}, {}]), 0),
        ] {
            assert_eq!(attempts(list.clone()).holds_in_a_row(), expected, "{list}");
        }
    }
}
