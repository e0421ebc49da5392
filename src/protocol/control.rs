//! Commands: what people and scripts drop into `control/`.
//!
//! A command names a handoff and what to do with it. Whether that can be done now is the
//! caller's question; here it is only read. Unknown keys are ignored, so that a newer script
//! can talk to an older daemon.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::field::FieldError;
use super::id::HandoffId;
use super::shape::{COUNT, Field, Shape, check_fields, field, needed};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Cancel,
    Retry,
    Approve,
    Reject,
    #[serde(alias = "question")]
    Ask,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::Ask => "ask",
        }
    }

    /// `question` is another word for `ask`.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "cancel" => Self::Cancel,
            "retry" => Self::Retry,
            "approve" => Self::Approve,
            "reject" => Self::Reject,
            "ask" | "question" => Self::Ask,
            _ => return None,
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub action: Action,
    pub handoff_id: HandoffId,
    pub by: Option<String>,
    pub comment: Option<String>,
    pub choice: Option<String>,
    /// The revision of the record that this command answers, if the sender cares.
    pub revision: Option<u64>,
}

impl Command {
    /// Reads a command. All errors are given, not the first.
    pub fn from_document(map: &Map<String, Value>) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        check_fields(COMMAND, map, "", &mut errors);
        let text = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
        let action = text("action").as_deref().and_then(Action::parse);
        let handoff_id = text("handoff_id").and_then(|id| HandoffId::parse_made(&id).ok());
        match (action, handoff_id) {
            (Some(action), Some(handoff_id)) if errors.is_empty() => Ok(Self {
                action,
                handoff_id,
                by: text("by"),
                comment: text("comment"),
                choice: text("choice"),
                revision: map.get("revision").and_then(Value::as_f64).map(whole),
            }),
            _ => Err(errors),
        }
    }
}

/// A number that was checked to be whole, however it is written: 7, 7.0 or 7e0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole and in range"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

/// The fields of a command.
pub const COMMAND: &[Field] = &[
    needed(
        "action",
        Shape::Word(&["cancel", "retry", "approve", "reject", "ask", "question"]),
        "What to do; question means the same as ask",
        "expected cancel, retry, approve, reject or ask",
    ),
    needed(
        "handoff_id",
        Shape::Id,
        "The id of the handoff",
        "the id of the handoff",
    ),
    field("by", Shape::Text, "Who gives the command"),
    field("comment", Shape::Text, "Why"),
    field("choice", Shape::Text, "The option that the human chose"),
    field(
        "revision",
        COUNT,
        "The revision of the record that this command answers",
    ),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(document: &Value) -> Result<Command, Vec<FieldError>> {
        Command::from_document(document.as_object().unwrap())
    }

    #[test]
    fn every_action_is_read() {
        for (word, action) in [
            ("cancel", Action::Cancel),
            ("retry", Action::Retry),
            ("approve", Action::Approve),
            ("reject", Action::Reject),
            ("ask", Action::Ask),
            ("question", Action::Ask),
        ] {
            let command = read(&json!({"action": word, "handoff_id": "x~2", "new": 1})).unwrap();
            assert_eq!(command.action, action);
            assert_eq!(command.handoff_id.as_str(), "x~2");
            assert_eq!(
                serde_json::from_value::<Action>(json!(word)).unwrap(),
                action
            );
            assert_eq!(serde_json::to_value(action).unwrap(), action.as_str());
        }
    }

    #[test]
    fn the_rest_is_optional() {
        let command = read(&json!({
            "action": "approve", "handoff_id": "x", "by": "ann", "comment": null,
            "choice": "b", "revision": 7,
        }))
        .unwrap();
        assert_eq!(command.by.as_deref(), Some("ann"));
        assert_eq!(command.comment, None);
        assert_eq!(command.choice.as_deref(), Some("b"));
        assert_eq!(command.revision, Some(7));
        let command = read(&json!({"action": "retry", "handoff_id": "x", "revision": 7.0}));
        assert_eq!(command.unwrap().revision, Some(7));
    }

    #[test]
    fn every_mistake_is_named() {
        for (document, expected) in [
            (json!({}), &["action: missing", "handoff_id: missing"][..]),
            (
                json!({"action": "stop", "handoff_id": 5, "by": [], "revision": -1}),
                &[
                    r#"action: expected cancel, retry, approve, reject, ask or question, found the string "stop""#,
                    "handoff_id: expected a string, found the number 5",
                    "by: expected a string, found an array",
                    "revision: expected a whole number that is not negative, found the number -1",
                ],
            ),
            (
                json!({"action": "ask", "handoff_id": "../x"}),
                &["handoff_id: an id must not start with a dot"],
            ),
        ] {
            let errors = read(&document).unwrap_err();
            assert_eq!(errors.len(), expected.len(), "{errors:?}");
            for (error, start) in errors.iter().zip(expected) {
                assert!(error.to_string().starts_with(start), "{error}");
            }
        }
    }
}
