//! What a specialist gives back, read from what it printed or left in its result file.
//!
//! Nothing is judged here: this only says what was found. The verdict is
//! [`crate::policy::judge`]'s.

use serde_json::{Map, Value};

use crate::protocol::document;
use crate::protocol::markdown;
use crate::protocol::name::Ext;

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
}

impl Output {
    pub fn read(bytes: &[u8]) -> Self {
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

/// The `status` that a result claims; `Err` with what stood there if it is none of the list.
pub fn claim(result: &Map<String, Value>) -> Result<Option<Claim>, String> {
    match result.get("status") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(status)) => match status.as_str() {
            "complete" | "completed" => Ok(Some(Claim::Complete)),
            "blocked" => Ok(Some(Claim::Blocked)),
            "needs_review" => Ok(Some(Claim::NeedsReview)),
            "delegate" => Ok(Some(Claim::Delegate)),
            "failed" => Ok(Some(Claim::Failed)),
            other => Err(format!("{other:?}")),
        },
        Some(other) => Err(other.to_string()),
    }
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
        let markdown = b"# Done\n\nAll of it.\n\n```json\n{\"status\":\"complete\"}\n```\n";
        let Output::Result { result, text } = Output::read(markdown) else {
            panic!()
        };
        assert_eq!(result["status"], "complete");
        assert_eq!(text.as_deref(), Some("# Done\n\nAll of it."));
    }

    #[test]
    fn a_status_outside_the_list_is_named() {
        let result = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap();
        assert_eq!(
            claim(&result(r#"{"status":"completed"}"#)),
            Ok(Some(Claim::Complete))
        );
        assert_eq!(claim(&result("{}")), Ok(None));
        assert_eq!(
            claim(&result(r#"{"status":"done"}"#)),
            Err("\"done\"".to_owned())
        );
        assert_eq!(claim(&result(r#"{"status":3}"#)), Err("3".to_owned()));
    }
}
