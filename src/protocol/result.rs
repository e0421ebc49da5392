//! What a specialist gives back, read from what it printed or left in its result file.
//!
//! Nothing is judged here: this only says what was found. The verdict is
//! [`crate::policy::judge`]'s.

use serde_json::{Map, Value};

use crate::mutant;
use crate::protocol::document;
use crate::protocol::field::{FieldError, expected, present};
use crate::protocol::markdown;
use crate::protocol::name::Ext;
use crate::protocol::result_fields::{RESULT, RESULT_HANDOFF};
use crate::protocol::shape::check_fields;

/// What stood in one of the two places where a result may be.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    Nothing,
    /// A JSON object, or the block at the end of a Markdown text, with that text.
    Result {
        result: Map<String, Value>,
        text: Option<String>,
    },
    Text(String),
    /// Began like a JSON object but is not one: cut short, or badly written.
    Broken {
        why: String,
        text: String,
    },
    /// More than is read, so nobody knows what it is.
    TooLarge,
}

impl Output {
    pub fn read(bytes: &[u8]) -> Self {
        let bytes = document::unmarked(bytes);
        let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
        let Some(start) = start else {
            return Self::Nothing;
        };
        if bytes[start] == b'{' {
            return match document::parse(bytes, Ext::Json) {
                Ok(document) => Self::Result {
                    result: document.map,
                    text: None,
                },
                Err(_) if mutant::is("result-cut-short") => {
                    Self::Text(String::from_utf8_lossy(bytes).into_owned())
                }
                Err(error) => Self::broken(error.to_string(), bytes),
            };
        }
        let text = String::from_utf8_lossy(bytes);
        if let Some(block) = markdown::trailing_json_block(&text) {
            return match document::parse(block.json.as_bytes(), Ext::Json) {
                Ok(document) => Self::Result {
                    result: document.map,
                    text: Some(block.text_before.trim_end().to_owned()),
                },
                Err(error) => Self::broken(format!("the json block at the end: {error}"), bytes),
            };
        }
        Self::Text(text.into_owned())
    }

    fn broken(why: String, bytes: &[u8]) -> Self {
        Self::Broken {
            why,
            text: String::from_utf8_lossy(bytes).into_owned(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    Complete,
    Blocked,
    NeedsReview,
    Delegate,
    Failed,
}

impl Claim {
    /// A claim that the exit code does not overrule.
    pub fn counts_at_any_exit(self) -> bool {
        matches!(self, Self::Blocked | Self::NeedsReview | Self::Failed)
    }
}

/// The `status` that a result claims, if it is one of the list.
pub fn claim(result: &Map<String, Value>) -> Option<Claim> {
    match result.get("status")?.as_str()? {
        "complete" | "completed" => Some(Claim::Complete),
        "blocked" => Some(Claim::Blocked),
        "needs_review" => Some(Claim::NeedsReview),
        "delegate" => Some(Claim::Delegate),
        "failed" => Some(Claim::Failed),
        _ => None,
    }
}

/// What is wrong with the fields that are acted on. The rest is carried, whatever it is.
pub fn wrong_fields(result: &Map<String, Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_fields(RESULT, result, "", &mut errors);
    match present(result, "handoff") {
        None => {}
        Some(Value::Object(handoff)) => {
            for fields in RESULT_HANDOFF {
                check_fields(fields, handoff, "handoff", &mut errors);
            }
        }
        Some(other) => errors.push(expected("handoff", "an object", other)),
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_told_by_content() {
        assert_eq!(Output::read(b""), Output::Nothing);
        assert_eq!(Output::read(b" \n\t"), Output::Nothing);
        assert!(matches!(
            Output::read(b" {\"a\":1}\n"),
            Output::Result { text: None, .. }
        ));
        assert!(matches!(
            Output::read(b"{\"status\":\"compl"),
            Output::Broken { .. }
        ));
        assert_eq!(Output::read(b"hello"), Output::Text("hello".to_owned()));
        assert_eq!(Output::read(b"\xef\xbb\xbf\n"), Output::Nothing);
        let markdown = b"# Done\n\nAll of it.\n\n```json\n{\"status\":\"complete\"}\n```\n";
        let Output::Result { result, text } = Output::read(markdown) else {
            panic!()
        };
        assert_eq!(result["status"], "complete");
        assert_eq!(text.as_deref(), Some("# Done\n\nAll of it."));
    }

    #[test]
    fn a_mark_at_the_beginning_changes_nothing() {
        for text in [
            "{\"status\":\"failed\"}",
            "{\"status\":",
            "```json\n{\"status\":\"failed\"}\n```\n",
            "# Failed\n\n```json\n\u{feff}{\"status\":\"failed\"}\n```\n",
            "hello",
        ] {
            let marked = format!("\u{feff}{text}");
            assert_eq!(
                Output::read(marked.as_bytes()),
                Output::read(text.as_bytes()),
                "{text}"
            );
        }
        let Output::Result { result, .. } = Output::read(b"\xef\xbb\xbf{\"status\":\"failed\"}")
        else {
            panic!()
        };
        assert_eq!(claim(&result), Some(Claim::Failed));
    }

    #[test]
    fn every_status_of_the_list_is_a_claim() {
        for status in crate::protocol::result_fields::RESULT_STATUSES {
            let result = Map::from_iter([("status".to_owned(), (*status).into())]);
            assert!(claim(&result).is_some(), "{status}");
            assert_eq!(wrong_fields(&result), []);
        }
        assert_eq!(claim(&Map::new()), None);
    }

    #[test]
    fn what_is_acted_on_must_be_right() {
        for (text, expected) in [
            (
                r#"{"status":"done"}"#,
                r#"status: expected complete, completed, blocked, needs_review, delegate or failed, found the string "done""#,
            ),
            (
                r#"{"status":3}"#,
                "status: expected complete, completed, blocked, needs_review, delegate or failed, found the number 3",
            ),
            (
                r#"{"retry_after_seconds":0}"#,
                "retry_after_seconds: expected a number greater than 0, found the number 0",
            ),
            (
                r#"{"error":{"retryable":"no"}}"#,
                r#"error.retryable: expected true or false, found the string "no""#,
            ),
            (
                r#"{"artifacts":[{"type":"x"}]}"#,
                "artifacts[0].path: missing: it says where the file is",
            ),
            (
                r#"{"handoff":[]}"#,
                "handoff: expected an object, found an array",
            ),
            (
                r#"{"handoff":{"next_agent":7}}"#,
                "handoff.next_agent: expected a string, found the number 7",
            ),
            (
                r#"{"handoff":{"children":[{}]}}"#,
                "handoff.children[0].agent: missing: it says who is to do it",
            ),
            (
                r#"{"blocking_issues":[{"requires_human":1}]}"#,
                "blocking_issues[0].requires_human: expected true or false, found the number 1",
            ),
        ] {
            let errors = wrong_fields(&serde_json::from_str(text).unwrap());
            let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(told, [expected], "{text}");
        }
        let fine = r#"{"status":null,"summary":[],"validation":7,"error":"e","artifacts":["a"],
            "decisions":["d",{"decision":1}],"handoff":{"next_agent":null,"id":3},"x":{}}"#;
        assert_eq!(wrong_fields(&serde_json::from_str(fine).unwrap()), []);
    }
}
