//! What a specialist gives back, read from what it printed or left in its result file.
//!
//! Nothing is judged here: this only says what was found. The verdict is
//! [`crate::policy::judge`]'s.

use serde_json::{Map, Value};

use crate::mutant;
use crate::protocol::document::{self, Kind};
use crate::protocol::field::{FieldError, expected, present};
use crate::protocol::name::Ext;
use crate::protocol::quoted::{OwnBlock, own_json_blocks};
use crate::protocol::result_fields::{RESULT, RESULT_HANDOFF, RESULT_STATUSES};
use crate::protocol::shape::check_fields;

/// A block that text follows is a result only if it has one of these, besides a status of the list.
const REPORTING: [&str; 7] = [
    "summary",
    "phase",
    "output_type",
    "agent",
    "handoff",
    "blocked_reason",
    "retry_after_seconds",
];

/// The content of one of the places where a result may be.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    Nothing,
    /// A JSON object, or the block of a Markdown text that reports, with that text.
    Result {
        result: Map<String, Value>,
        text: Option<String>,
        /// Why somebody should look whether this is the result.
        remark: Option<String>,
    },
    Text(String),
    /// A text with a block that looks like a report and is not taken as the result.
    Unreported {
        why: String,
        text: String,
    },
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
        let text = || String::from_utf8_lossy(bytes);
        if bytes[start] != b'{' {
            let text = text();
            return of_text(&text).unwrap_or_else(|| Self::Text(text.into_owned()));
        }
        match document::parse(bytes, Ext::Json) {
            Ok(document) => Self::whole(document.map),
            Err(_) if mutant::is("result-cut-short") => Self::Text(text().into_owned()),
            // A text may begin with a brace, too.
            Err(error) => match of_text(&text()) {
                Some(found @ Self::Result { .. }) => found,
                _ => Self::Broken {
                    why: error.to_string(),
                    text: text().into_owned(),
                },
            },
        }
    }

    /// Whether a record that has the result, or the text as its output, has all that was printed.
    pub fn is_whole(&self) -> bool {
        matches!(
            self,
            Self::Nothing | Self::Text(_) | Self::Result { text: None, .. }
        )
    }

    /// A result that is all there is.
    pub fn whole(result: Map<String, Value>) -> Self {
        Self::Result {
            result,
            text: None,
            remark: None,
        }
    }
}

/// Looks for the block in a text that is the result: the last one that has a status. None if no
/// block of the text's own reports anything.
fn of_text(text: &str) -> Option<Output> {
    let mut why = None;
    for (from_the_end, block) in own_json_blocks(text).into_iter().rev().enumerate() {
        match document::parse(block.json.as_bytes(), Ext::Json) {
            Ok(document) if present(&document.map, "status").is_some() => {
                return Some(reported(document.map, &block, text));
            }
            Ok(document) if reports(&document.map) => {
                let no_status = "the json block looks like a report but has no status; kept \
                everything as text";
                why.get_or_insert_with(|| no_status.to_owned());
            }
            Err(error) if error.kind == Kind::NotAnObject => {}
            // One that was cut off does not make an example above it the result.
            Err(error) if !block.closed => return Some(broken(&error, text)),
            Err(error) if from_the_end == 0 && block.after.trim().is_empty() => {
                why = Some(format!("the json block at the end: {error}"));
            }
            Ok(_) | Err(_) => {}
        }
    }
    why.map(|why| Output::Unreported {
        why,
        text: text.to_owned(),
    })
}

fn broken(error: &document::DocumentError, text: &str) -> Output {
    Output::Broken {
        why: format!("the json block at the end: {error}"),
        text: text.to_owned(),
    }
}

/// A block with a status: at the end of its text it is the result, whatever the status is. Where
/// more text follows, it must be surer.
fn reported(result: Map<String, Value>, block: &OwnBlock<'_>, whole: &str) -> Output {
    let (before, after) = (block.before.trim_end(), block.after.trim());
    if after.is_empty() {
        return Output::Result {
            result,
            text: Some(before.to_owned()).filter(|text| !text.is_empty()),
            remark: None,
        };
    }
    if is_listed(&result) && reports(&result) {
        return Output::Result {
            result,
            text: Some(format!("{before}\n\n{after}").trim_start().to_owned()),
            remark: Some(
                "text follows the json block with the result: make the specialist end its output \
                 with that block"
                    .to_owned(),
            ),
        };
    }
    let why = if is_listed(&result) {
        format!(
            "text follows a json block that has a status but none of {}: the block is not the \
             result; kept everything as text",
            REPORTING.join(", ")
        )
    } else {
        "text follows a json block with an unknown status: the block is not the result; kept \
         everything as text"
            .to_owned()
    };
    Output::Unreported {
        why,
        text: whole.to_owned(),
    }
}

fn reports(block: &Map<String, Value>) -> bool {
    REPORTING.iter().any(|key| present(block, key).is_some())
}

fn is_listed(block: &Map<String, Value>) -> bool {
    let status = block.get("status").and_then(Value::as_str);
    status.is_some_and(|status| RESULT_STATUSES.contains(&status))
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

/// Words that are read as `complete`.
pub const SYNONYMS: [&str; 3] = ["done", "success", "ok"];

/// The `status` that a result claims, if it is one of the list.
pub fn claim(result: &Map<String, Value>) -> Option<Claim> {
    match result.get("status")?.as_str()? {
        "complete" | "completed" => Some(Claim::Complete),
        word if SYNONYMS.contains(&word) => Some(Claim::Complete),
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
        let Output::Result { result, text, .. } = Output::read(markdown) else {
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

    /// What becomes of a text: the summary of its result, with `!` where there is a remark; `text`,
    /// with `!` where there is a warning; or `broken`.
    fn word(text: &str) -> String {
        match Output::read(text.as_bytes()) {
            Output::Result { result, remark, .. } => {
                let remark = if remark.is_some() { "!" } else { "" };
                let said = result
                    .get("summary")
                    .or_else(|| result.get("status"))
                    .unwrap();
                format!("{}{remark}", said.as_str().unwrap_or("?"))
            }
            Output::Text(kept) => {
                assert_eq!(kept, text);
                "text".to_owned()
            }
            Output::Unreported { text: kept, .. } => {
                assert_eq!(kept, text);
                "text!".to_owned()
            }
            Output::Broken { .. } => "broken".to_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_block_that_reports_is_the_result() {
        const BLOCKED: &str = "```json\n{\"status\":\"blocked\",\"summary\":\"B\"}\n```\n";
        const EXAMPLE: &str = "```json\n{\"status\":\"complete\",\"summary\":\"E\"}\n```\n";
        let quoted = |block: &str, by: &str| -> String {
            let lines = block.lines().flat_map(|line| [by, line, "\n"]);
            lines.collect()
        };
        for (text, expected) in [
            (format!("# A\n\n{BLOCKED}"), "B"),
            (format!("# A\n\n{BLOCKED}\n \n\t\n"), "B"),
            (BLOCKED.replace('\n', "\r\n"), "B"),
            (format!("{BLOCKED}\nLet me know.\n"), "B!"),
            (
                format!("{BLOCKED}\nLet me know.\n").replace('\n', "\r\n"),
                "B!",
            ),
            (BLOCKED.replace("```", "~~~~"), "B"),
            (BLOCKED.replace("json", "JSON title=\"x\""), "B"),
            (BLOCKED.trim_end_matches("```\n").to_owned(), "B"),
            // The last one with a status counts.
            (format!("{EXAMPLE}\n{BLOCKED}"), "B"),
            (format!("{BLOCKED}\n{EXAMPLE}"), "E"),
            (format!("{BLOCKED}\n```json\n{{\"port\":1}}\n```\n"), "B!"),
            (format!("{BLOCKED}\n```json\n[1]\n```\n"), "B!"),
            (format!("{BLOCKED}\n```json\n{{,}}\n```\n"), "B!"),
            (format!("{BLOCKED}\n```sh\nls\n```\n"), "B!"),
            (format!("{{braces}}\n{BLOCKED}"), "B"),
            // Any status counts at the end, and a synonym in the middle.
            ("```json\n{\"status\":\"odd\"}\n```".to_owned(), "odd"),
            ("```json\n{\"status\":7}\n```".to_owned(), "?"),
            (
                "```json\n{\"status\":\"ok\",\"summary\":\"S\"}\n```\nx".to_owned(),
                "S!",
            ),
            // What is not sure enough.
            (
                "```json\n{\"status\":\"odd\",\"summary\":\"S\"}\n```\nx".to_owned(),
                "text!",
            ),
            ("```json\n{\"status\":\"ok\"}\n```\nx".to_owned(), "text!"),
            ("```json\n{\"summary\":\"S\"}\n```\n".to_owned(), "text!"),
            (
                "```json\n{\"status\":null,\"x\":1}\n```\n".to_owned(),
                "text",
            ),
            ("```json\n{\"x\":1}\n```\n".to_owned(), "text"),
            ("```json\n[1]\n```\n".to_owned(), "text"),
            ("```json\n{,}\n```\n".to_owned(), "text!"),
            (format!("{EXAMPLE}\n```json\n{{\"status\":\"blo"), "broken"),
            // What is only quoted.
            (format!("````markdown\n{BLOCKED}````\n"), "text"),
            (format!("````\n{BLOCKED}````\n\n{EXAMPLE}"), "E"),
            (format!("{EXAMPLE}\n````\n{BLOCKED}````\n"), "E!"),
            (format!("~~~\n{BLOCKED}~~~\n"), "text"),
            (format!("```text\n{BLOCKED}"), "text"),
            (BLOCKED.replace("json", "yaml"), "text"),
            (quoted(BLOCKED, " "), "text"),
            (quoted(BLOCKED, "    "), "text"),
            (quoted(BLOCKED, "> "), "text"),
            (format!("- so:\n\n{}", quoted(BLOCKED, "  ")), "text"),
            (
                format!("- so:\n\n{}\n{BLOCKED}", quoted(EXAMPLE, "  ")),
                "B",
            ),
        ] {
            assert_eq!(word(&text), expected, "{text}");
        }
    }

    #[test]
    fn the_text_around_a_block_is_kept() {
        let text = "# A\n\n```json\n{\"status\":\"ok\",\"phase\":1}\n```\n\nB\n";
        let Output::Result { text, .. } = Output::read(text.as_bytes()) else {
            panic!()
        };
        assert_eq!(text.as_deref(), Some("# A\n\nB"));
    }

    #[test]
    fn what_is_acted_on_must_be_right() {
        for (text, expected) in [
            (
                r#"{"status":"dunno"}"#,
                r#"status: expected complete, completed, blocked, needs_review, delegate, failed, done, success or ok, found the string "dunno""#,
            ),
            (
                r#"{"status":3}"#,
                "status: expected complete, completed, blocked, needs_review, delegate, failed, done, success or ok, found the number 3",
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
                "artifacts[0].path: missing: the path of the file",
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
                "handoff.children[0].agent: missing: the agent for this child",
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
