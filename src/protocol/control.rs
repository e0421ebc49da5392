//! Commands: what people and scripts drop into `control/`.
//!
//! A command names a handoff and what to do with it. Whether that can be done now is the
//! caller's question; here it is only read. Unknown keys are ignored, so that a newer script
//! can talk to an older daemon.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use super::field::{FieldError, Reader, present};
use super::id::HandoffId;

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
    /// The revision of the record that is being answered, if the sender cares.
    pub revision: Option<u64>,
}

impl Command {
    /// Reads a command. All errors are given, not the first.
    pub fn from_document(map: &Map<String, Value>) -> Result<Self, Vec<FieldError>> {
        const ACTIONS: &str = "cancel, retry, approve, reject or ask";
        let mut reader = Reader::default();
        let action = match present(map, "action") {
            None => {
                reader.wrong("action", format!("missing: expected {ACTIONS}"));
                None
            }
            Some(value) => {
                let action = value.as_str().and_then(Action::parse);
                if action.is_none() {
                    reader.expected("action", ACTIONS, value);
                }
                action
            }
        };
        let handoff_id = handoff_id(&mut reader, map);
        let mut text = |key| reader.string(map, key).map(str::to_owned);
        let (by, comment, choice) = (text("by"), text("comment"), text("choice"));
        let revision = revision(&mut reader, map);
        reader.finish(action.zip(handoff_id).map(|(action, handoff_id)| Self {
            action,
            handoff_id,
            by,
            comment,
            choice,
            revision,
        }))
    }
}

fn handoff_id(reader: &mut Reader, map: &Map<String, Value>) -> Option<HandoffId> {
    if present(map, "handoff_id").is_none() {
        reader.wrong("handoff_id", "missing: it says which handoff is meant");
    }
    match HandoffId::parse_made(reader.string(map, "handoff_id")?) {
        Ok(id) => Some(id),
        Err(error) => {
            reader.wrong("handoff_id", error);
            None
        }
    }
}

fn revision(reader: &mut Reader, map: &Map<String, Value>) -> Option<u64> {
    let value = present(map, "revision")?;
    let revision = value.as_number().and_then(Number::as_u64);
    if revision.is_none() {
        reader.expected("revision", "a whole number that is not negative", value);
    }
    revision
}

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
    }

    #[test]
    fn every_mistake_is_named() {
        for (document, expected) in [
            (json!({}), &["action: missing", "handoff_id: missing"][..]),
            (
                json!({"action": "stop", "handoff_id": 5, "by": [], "revision": -1}),
                &[
                    r#"action: expected cancel, retry, approve, reject or ask, found the string "stop""#,
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
