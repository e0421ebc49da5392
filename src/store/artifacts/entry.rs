//! One line of the registry.
//!
//! Keys that are not known here are kept, in their order, behind the known ones. Two readings
//! agree on what a line is: the quick one, which the index is built with, and the whole one.

use std::borrow::Cow;
use std::io;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::clock::Wall;

/// The longest line that is written or read.
pub(super) const MOST_BYTES: usize = 1024 * 1024;

/// What is known of one artifact.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub artifact_id: String,
    /// Relative to the root. From a line that somebody edited it may be any text.
    pub path: String,
    /// As it was given; [`kind`](Self::kind) is what to compare.
    pub artifact_type: Option<String>,
    pub sha256: String,
    pub size_bytes: u64,
    pub handoff_id: String,
    pub created_at: Wall,
    /// Further keys of the line.
    pub extra: Map<String, Value>,
}

/// Why bytes are no line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoLine {
    /// The beginning of one, as a crash leaves it.
    Torn,
    Broken,
}

/// The quick reading: what the index needs, and proof that the rest is there.
#[derive(Deserialize)]
pub(super) struct Keys<'a> {
    #[serde(borrow)]
    pub artifact_id: Cow<'a, str>,
    #[serde(borrow)]
    pub path: Cow<'a, str>,
    #[serde(borrow)]
    pub handoff_id: Cow<'a, str>,
    #[serde(borrow)]
    sha256: Cow<'a, str>,
    size_bytes: u64,
    created_at: Wall,
}

impl<'a> Keys<'a> {
    pub fn parse(line: &'a [u8]) -> Result<Self, NoLine> {
        match serde_json::from_slice::<Self>(line) {
            Ok(keys) if keys.artifact_id.is_empty() || keys.path.is_empty() => Err(NoLine::Broken),
            Ok(keys) => Ok(keys),
            Err(error) if is_cut(line, &error) => Err(NoLine::Torn),
            // A power cut may keep a file's new length without its new bytes. A single NUL stands
            // for a line that is too long.
            Err(_) if line.len() > 1 && line.contains(&0) => Err(NoLine::Torn),
            Err(_) => Err(NoLine::Broken),
        }
    }
}

/// Whether nothing is wrong but that it ends too early. A number that ends at its point is a
/// mistake to the parser, not an early end.
fn is_cut(line: &[u8], error: &serde_json::Error) -> bool {
    let at_the_end = error.is_syntax() && error.column() >= line.len();
    error.is_eof() || (at_the_end && line.starts_with(b"{"))
}

impl Entry {
    pub(super) fn parse(line: &[u8]) -> Result<Self, NoLine> {
        let keys = Keys::parse(line)?;
        let mut extra: Map<String, Value> =
            serde_json::from_slice(line).map_err(|_| NoLine::Broken)?;
        for known in [
            "artifact_id",
            "path",
            "sha256",
            "size_bytes",
            "handoff_id",
            "created_at",
        ] {
            extra.shift_remove(known);
        }
        let mut text = |key: &str| {
            let found = extra.get(key)?.as_str()?.to_owned();
            extra.shift_remove(key);
            Some(found)
        };
        let artifact_type = text("artifact_type").or_else(|| text("type"));
        if extra.get("artifact_type").is_some_and(Value::is_null) {
            extra.shift_remove("artifact_type");
        }
        Ok(Self {
            artifact_id: keys.artifact_id.into_owned(),
            path: keys.path.into_owned(),
            artifact_type,
            sha256: keys.sha256.into_owned(),
            size_bytes: keys.size_bytes,
            handoff_id: keys.handoff_id.into_owned(),
            created_at: keys.created_at,
            extra,
        })
    }

    /// The type that counts: `code` is `source`.
    pub fn kind(&self) -> Option<&str> {
        self.artifact_type.as_deref().map(kind_of)
    }

    /// The line as an object.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut line = Map::with_capacity(self.extra.len() + 7);
        let mut put = |key: &str, value: Value| line.insert(key.to_owned(), value);
        put("artifact_id", self.artifact_id.as_str().into());
        put("path", self.path.as_str().into());
        put("artifact_type", self.artifact_type.as_deref().into());
        put("sha256", self.sha256.as_str().into());
        put("size_bytes", self.size_bytes.into());
        put("handoff_id", self.handoff_id.as_str().into());
        put("created_at", self.created_at.to_string().into());
        for (key, value) in &self.extra {
            if !line.contains_key(key) {
                line.insert(key.clone(), value.clone());
            }
        }
        line
    }

    /// The line's bytes, newline included. What could not be read back is refused.
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(&self.to_json())?;
        if line.len() >= MOST_BYTES || Keys::parse(&line).is_err() {
            let text = format!("can't write {} as a line of the registry", self.path);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        line.push(b'\n');
        Ok(line)
    }
}

/// The type that counts for what somebody wrote: `code` is `source`.
pub fn kind_of(artifact_type: &str) -> &str {
    match artifact_type {
        "code" => "source",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"artifact_id":"a","path":"artifacts/a.rs","type":"code","sha256":"00","size_bytes":3,"handoff_id":"h","created_at":"2026-01-13T10:00:00Z","by":{"whom":1.50}}"#;

    #[test]
    fn a_line_keeps_what_it_does_not_know() {
        let entry = Entry::parse(LINE.as_bytes()).unwrap();
        assert_eq!(entry.artifact_type.as_deref(), Some("code"));
        assert_eq!(entry.kind(), Some("source"));
        let bytes = entry.encode().unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.contains(r#""artifact_type":"code""#), "{text}");
        assert!(
            text.contains(r#""created_at":"2026-01-13T10:00:00.000Z""#),
            "{text}"
        );
        assert!(text.ends_with("\"by\":{\"whom\":1.50}}\n"), "{text}");
        assert_eq!(Entry::parse(bytes.trim_ascii_end()).unwrap(), entry);
    }

    #[test]
    fn what_a_crash_tore_is_told_from_what_is_broken() {
        for cut in 1..LINE.len() {
            let torn = Entry::parse(&LINE.as_bytes()[..cut]);
            assert_eq!(torn, Err(NoLine::Torn), "{cut}");
        }
        let holes = Entry::parse(b"\0\0\0\0");
        assert_eq!(holes, Err(NoLine::Torn), "a length without bytes");
        for broken in ["{}", "7", r#"{"artifact_id":1}"#, &LINE.replace('3', "-3")] {
            assert_eq!(Entry::parse(broken.as_bytes()), Err(NoLine::Broken));
        }
    }

    #[test]
    fn a_type_may_be_missing_or_given_twice() {
        let without = LINE.replace(r#""type":"code","#, "");
        assert_eq!(Entry::parse(without.as_bytes()).unwrap().kind(), None);
        let twice = LINE.replace(r#""type":"#, r#""artifact_type":"test","type":"#);
        let entry = Entry::parse(twice.as_bytes()).unwrap();
        assert_eq!(entry.kind(), Some("test"));
        assert_eq!(entry.extra["type"], "code");
    }
}
