//! Documents: bytes that a producer wrote, turned into one JSON object.
//!
//! The syntax is told from the content, and the name only says what else is tried: a `.json`
//! that starts with `{` is JSON or broken, so that a trailing comma is reported where it
//! stands and not quietly read as YAML. Errors carry the line and column of the whole file,
//! because that is what their reader has open.
//!
//! What a document *means* is not asked here; see [`super::request`] and [`super::control`].

use std::fmt;

use serde_json::{Map, Value};

use super::name::Ext;
use super::{json, markdown, yaml};

/// How deep a dropped document may nest. `serde_json` reads 127 levels; the rest is room for the
/// record in which the daemon wraps what it was given.
pub const MAX_LEVELS: usize = 120;

/// How many values a document may have. Each takes many times its bytes in memory: without a limit,
/// 8 MiB of empty objects would become 200 MB.
pub const MAX_VALUES: usize = 500_000;

/// What is said of a document with more.
pub(super) fn too_many_values() -> String {
    format!(
        "too many values: at most {MAX_VALUES} in a document; put large data into a file below \
         artifacts/ and name the file"
    )
}

/// `serde_json` passes numbers around as an object with this one key. A producer who writes the
/// key would have it read back as a number, so it is refused.
pub(super) const RESERVED_KEY: &str = "$serde_json::private::Number";

#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub map: Map<String, Value>,
    pub syntax: Syntax,
}

/// What the content turned out to be, whatever the name said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Syntax {
    Json,
    Yaml,
    Markdown,
}

/// Why bytes are not a document. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct DocumentError {
    pub message: String,
    pub line: Option<usize>,
    pub column: Option<usize>,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    NotUtf8,
    Empty,
    Syntax,
    NotAnObject,
    /// Markdown without a fenced `json` block.
    NoBlock,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(f, " (line {line}, column {column})"),
            (Some(line), None) => write!(f, " (line {line})"),
            _ => Ok(()),
        }
    }
}

impl DocumentError {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            line: None,
            column: None,
            kind,
        }
    }

    pub(super) fn at(mut self, (line, column): (usize, usize)) -> Self {
        (self.line, self.column) = (Some(line), Some(column));
        self
    }

    fn not_an_object(found: &Value) -> Self {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "text",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        };
        Self::new(
            Kind::NotAnObject,
            format!("expected a JSON object, found {found}"),
        )
    }
}

/// Reads a document from the whole content of a file.
pub fn parse(bytes: &[u8], ext: Ext) -> Result<Document, DocumentError> {
    let text = text(bytes)?;
    let content = text.trim_start();
    if content.is_empty() {
        return Err(DocumentError::new(Kind::Empty, "it is empty"));
    }
    let braced = content.starts_with('{');
    let (value, syntax) = match ext {
        Ext::Json | Ext::Markdown if braced => (json::parse(text)?, Syntax::Json),
        Ext::Json => json_or_yaml(text)?,
        Ext::Markdown => (in_markdown(text)?, Syntax::Markdown),
        Ext::Yaml | Ext::Yml => match braced.then(|| json::parse(text)) {
            Some(Ok(value)) => (value, Syntax::Json),
            _ => (yaml::parse(text)?, Syntax::Yaml),
        },
    };
    match value {
        Value::Object(map) => Ok(Document { map, syntax }),
        other => Err(DocumentError::not_an_object(&other)),
    }
}

/// A `.json` that does not start with a brace: most likely not JSON at all.
fn json_or_yaml(text: &str) -> Result<(Value, Syntax), DocumentError> {
    let broken = match json::parse(text) {
        Ok(value) => return Ok((value, Syntax::Json)),
        Err(error) => error,
    };
    match yaml::parse(text) {
        Ok(value) => Ok((value, Syntax::Yaml)),
        // These open a JSON value, so the writer meant JSON.
        Err(_) if text.trim_start().starts_with(['[', '"']) => Err(broken),
        Err(mut error) => {
            error.message = format!(
                "expected a JSON object, and it is not YAML either: {}",
                error.message
            );
            Err(error)
        }
    }
}

fn in_markdown(text: &str) -> Result<Value, DocumentError> {
    let block = markdown::last_json_block(text).ok_or_else(|| {
        DocumentError::new(
            Kind::NoBlock,
            "the Markdown has no fenced block tagged `json`",
        )
    })?;
    let shifted = |mut error: DocumentError| {
        error.line = Some(error.line.unwrap_or(1) + block.line - 1);
        error
    };
    if block.json.trim().is_empty() {
        let error = DocumentError::new(Kind::Empty, "the fenced `json` block is empty");
        return Err(shifted(error));
    }
    match json::parse(block.json).map_err(shifted)? {
        value @ Value::Object(_) => Ok(value),
        other => Err(shifted(DocumentError::not_an_object(&other))),
    }
}

/// The bytes without the mark that some editors and shells put before UTF-8.
pub fn unmarked(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// The bytes as text, without a byte order mark.
fn text(bytes: &[u8]) -> Result<&str, DocumentError> {
    let bytes = unmarked(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let good = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
        DocumentError::new(Kind::NotUtf8, "the text is not UTF-8").at(place(good, good.len()))
    })
}

/// Line and column of a byte offset, both from 1, the column in characters.
pub(super) fn place(text: &str, offset: usize) -> (usize, usize) {
    let (mut line, mut column) = (1, 1);
    let whole = |&(at, c): &(usize, char)| at + c.len_utf8() <= offset;
    for (_, c) in text.char_indices().take_while(whole) {
        if c == '\n' {
            (line, column) = (line + 1, 1);
        } else {
            column += 1;
        }
    }
    (line, column)
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
