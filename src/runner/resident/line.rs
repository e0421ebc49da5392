//! The lines: one JSON object for each handoff, and one for each answer.
//!
//! What a spawned specialist finds in its environment stands beside the record here, under the
//! same names without `HANDOFF_`. An answer is a result with the handoff's id in it.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::json_text;
use crate::protocol::document;
use crate::protocol::name::Ext;
use crate::protocol::record::Record;
use crate::runner::launch::Briefing;

/// How much of a line that makes no sense is quoted.
const QUOTED: usize = 80;

#[derive(Serialize)]
struct Given<'a, R> {
    handoff_id: &'a str,
    attempt: u32,
    max_attempts: u32,
    deadline: &'a str,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
    record: R,
}

/// The line that gives a process its next handoff, its end included.
pub fn handoff(briefing: &Briefing<'_>, record: &Record) -> Vec<u8> {
    let shown = |path: &std::path::PathBuf| path.to_string_lossy().into_owned();
    let line = Given {
        handoff_id: briefing.id,
        attempt: briefing.attempt,
        max_attempts: briefing.max_attempts,
        deadline: &briefing.deadline,
        file: shown(&briefing.record),
        artifact: briefing.artifact.as_ref().map(shown),
        state_file: briefing.state_file.as_ref().map(shown),
        summary: briefing.summary.as_deref(),
        last_error: briefing.last_error.as_deref(),
        record: record.as_document(),
    };
    // Strings of JSON have no raw line ends, so this is one line whatever the record holds.
    let mut bytes = Vec::with_capacity(4096);
    let _ = json_text::append(&mut bytes, &line);
    bytes.push(b'\n');
    bytes
}

/// What a line from a process says.
#[derive(Debug, Clone, PartialEq)]
pub enum Word {
    Nothing,
    Heartbeat {
        id: String,
    },
    Answer {
        id: String,
        /// Where it says which attempt it answers.
        attempt: Option<u64>,
        result: Map<String, Value>,
    },
    /// Not a line of these; what it did, to follow "the process".
    Wrong(String),
}

/// Reads a line, without its end.
pub fn read(bytes: &[u8]) -> Word {
    if bytes.trim_ascii().is_empty() {
        return Word::Nothing;
    }
    let wrong = |what: &str| Word::Wrong(format!("printed {what} ({})", quoted(bytes)));
    // What does not begin like an object would be read as YAML.
    let object = bytes.trim_ascii_start().starts_with(b"{");
    let parsed = object.then(|| document::parse(bytes, Ext::Json));
    let Some(Ok(document)) = parsed else {
        return wrong("something other than a line of JSON");
    };
    let mut map = document.map;
    let Some(Value::String(id)) = map.shift_remove("handoff_id") else {
        return wrong("a line without a handoff_id");
    };
    if map.get("heartbeat") == Some(&Value::Bool(true)) {
        return Word::Heartbeat { id };
    }
    let attempt = map.shift_remove("attempt").and_then(|it| it.as_u64());
    Word::Answer {
        id,
        attempt,
        result: map,
    }
}

/// The beginning of a line, fit for a message.
fn quoted(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(QUOTED)]);
    format!("{:?}", text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::launch::AttemptPaths;
    use crate::spool::look::names::Names;
    use serde_json::json;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    #[test]
    fn a_handoff_is_one_line_whatever_its_record_holds() {
        let doc = json!({"a": "two\nlines \u{2028}", "n": 1});
        let mut record = Record::admit(doc.as_object().unwrap().clone(), "x", None);
        record.doc.insert(
            "exact".to_owned(),
            serde_json::from_str("12345678901234567890123").unwrap(),
        );
        let names = Arc::new(Names::new("/r/.handoffd/run".into()));
        let paths = AttemptPaths::new((&names, &names), "x", 2);
        let briefing = Briefing {
            id: "x",
            key: None,
            attempt: 2,
            max_attempts: 4,
            deadline: "2026-01-01T00:00:00.000Z".to_owned(),
            record: PathBuf::from("/r/handoffs/in-progress/x.json"),
            root: Path::new("/r"),
            context: PathBuf::from("/r/context"),
            state_file: None,
            artifact: Some(PathBuf::from("/r/artifacts/x.md")),
            summary: None,
            last_error: Some("TIMEOUT: slow".to_owned()),
            paths: &paths,
        };
        let line = handoff(&briefing, &record);
        assert_eq!(
            line.iter().position(|byte| *byte == b'\n'),
            Some(line.len() - 1)
        );
        let read: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(read["handoff_id"], "x");
        assert_eq!(
            (&read["attempt"], &read["max_attempts"]),
            (&json!(2), &json!(4))
        );
        assert_eq!(read["artifact"], "/r/artifacts/x.md");
        assert_eq!(read["last_error"], "TIMEOUT: slow");
        assert_eq!(read["record"]["a"], "two\nlines \u{2028}");
        assert_eq!(
            read["record"]["exact"].to_string(),
            "12345678901234567890123"
        );
        assert_eq!(read["record"]["handoffd"]["format"], 1);
        assert!(read.get("summary").is_none());
    }

    #[test]
    fn what_a_line_says() {
        let answer = |id: &str, attempt, result: Value| Word::Answer {
            id: id.to_owned(),
            attempt,
            result: result.as_object().unwrap().clone(),
        };
        for (line, expected) in [
            ("", Word::Nothing),
            (" \r", Word::Nothing),
            (
                r#"{"handoff_id":"x","status":"complete"}"#,
                answer("x", None, json!({"status": "complete"})),
            ),
            (
                r#"{"handoff_id":"x","attempt":2}"#,
                answer("x", Some(2), json!({})),
            ),
            (
                r#"{"handoff_id":"x","heartbeat":true}"#,
                Word::Heartbeat { id: "x".to_owned() },
            ),
        ] {
            assert_eq!(read(line.as_bytes()), expected, "{line}");
        }
        for (line, what) in [
            (
                "Loading model...",
                "other than a line of JSON (\"Loading model...\")",
            ),
            ("[1]", "other than a line of JSON"),
            ("handoff_id: x", "other than a line of JSON"),
            (r#"{"handoff_id":"x""#, "other than a line of JSON"),
            (r#"{"status":"complete"}"#, "without a handoff_id"),
            (r#"{"handoff_id":7}"#, "without a handoff_id"),
        ] {
            let Word::Wrong(told) = read(line.as_bytes()) else {
                panic!("{line}")
            };
            assert!(told.contains(what), "{told}");
        }
    }
}
