//! What is wrong with a configuration, and where.
//!
//! A problem reads `file:line:column: key: what was found; what would be right`, with the line
//! itself and a caret below. Editors and terminals make the first part clickable.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::Utf8Error;

use crate::durable;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {}", file.display())]
    Read { file: PathBuf, source: io::Error },
    /// In the order of the file, and never empty.
    #[error("{}", render(file, problems))]
    Invalid {
        file: PathBuf,
        problems: Vec<Problem>,
    },
}

/// One thing that is wrong. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub line: usize,
    pub column: usize,
    /// The dotted key, empty where a syntax error belongs to none.
    pub key: String,
    /// What was found, and what would be right.
    pub message: String,
    source_line: String,
    width: usize,
}

impl ConfigError {
    /// What is wrong in the text, for callers that print places their own way.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Read { .. } => &[],
            Self::Invalid { problems, .. } => problems,
        }
    }

    /// Whether the file may be read later as it is.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Read { source, .. } => durable::is_passing(source),
            Self::Invalid { .. } => false,
        }
    }

    /// TOML's parser says what it expected; the key is ours to add.
    pub(super) fn syntax(file: &Path, text: &str, error: &toml::de::Error) -> Self {
        let span = error.span().unwrap_or(0..0);
        let mut problem = Problem::at(text, span.clone(), String::new(), String::new());
        let before: String = problem
            .source_line
            .chars()
            .take(problem.column - 1)
            .collect();
        let mut hint = "";
        if let Some((key, _)) = before.split_once('=') {
            key.trim().clone_into(&mut problem.key);
        } else if error.message() == "duplicate key" {
            text.get(span).unwrap_or("").clone_into(&mut problem.key);
            hint = "; keep one of them";
        }
        problem.message = format!("not valid TOML: {}{hint}", error.message().trim());
        Self::one(file, problem)
    }

    pub(super) fn not_utf8(file: &Path, bytes: &[u8], error: Utf8Error) -> Self {
        let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let message = format!(
            "the byte 0x{:02x} is not UTF-8; save the file as UTF-8",
            bytes[error.valid_up_to()]
        );
        let end = valid.len()..valid.len();
        Self::one(file, Problem::at(&valid, end, String::new(), message))
    }

    fn one(file: &Path, problem: Problem) -> Self {
        Self::Invalid {
            file: file.to_path_buf(),
            problems: vec![problem],
        }
    }
}

impl Problem {
    /// A problem with the bytes of `span`. A span of several lines is shown by its first.
    pub(super) fn at(text: &str, span: Range<usize>, key: String, message: String) -> Self {
        let start = boundary(text, span.start);
        let end = boundary(text, span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let rest = &text[line_start..];
        let source_line = rest
            .split('\n')
            .next()
            .unwrap_or(rest)
            .trim_end_matches('\r');
        let marked = text[start..end].lines().next().unwrap_or("");
        Self {
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            key,
            message,
            source_line: source_line.to_owned(),
            width: marked.chars().count().max(1),
        }
    }
}

/// The parser's places are trusted to be near, not to be exact: slicing must not panic.
fn boundary(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// One to three lines: the place and the message, then the source with a caret.
fn render(file: &Path, problems: &[Problem]) -> String {
    let shown: Vec<_> = problems
        .iter()
        .map(|problem| format!("{}:{problem}", file.display()))
        .collect();
    shown.join("\n")
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        if self.source_line.trim().is_empty() {
            return Ok(());
        }
        // Tabs are kept, so that the caret stands right at any tab width.
        let indent: String = self
            .source_line
            .chars()
            .take(self.column - 1)
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        write!(f, "\n    {}", self.source_line)?;
        write!(f, "\n    {indent}{}", "^".repeat(self.width))
    }
}
