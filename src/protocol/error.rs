//! Error codes: the closed list that a failed record may carry.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What stands in a message before the words of a program that failed.
pub const QUOTED: &str = "; its last words: ";
/// The same of a command that verifies.
pub const SAID: &str = "; it said: ";

/// A message without the words of a program, which may have printed a secret. The record keeps them;
/// the audit log, the daemon's log and packages go to more people.
pub fn without_words(message: &str) -> &str {
    let ends = [QUOTED, SAID].map(|mark| message.find(mark));
    let end = ends.into_iter().flatten().min();
    &message[..end.unwrap_or(message.len())]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    SchemaValidationFailed,
    ProcessingError,
    Timeout,
    DependencyMissing,
    ValidationFailed,
    UnknownAgent,
    DuplicateId,
    Blocked,
    Rejected,
    Cancelled,
    Interrupted,
}

impl ErrorCode {
    pub const ALL: [Self; 11] = [
        Self::SchemaValidationFailed,
        Self::ProcessingError,
        Self::Timeout,
        Self::DependencyMissing,
        Self::ValidationFailed,
        Self::UnknownAgent,
        Self::DuplicateId,
        Self::Blocked,
        Self::Rejected,
        Self::Cancelled,
        Self::Interrupted,
    ];

    pub const WORDS: [&str; Self::ALL.len()] = {
        let mut words = [""; Self::ALL.len()];
        let mut at = 0;
        while at < words.len() {
            words[at] = Self::ALL[at].as_str();
            at += 1;
        }
        words
    };

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SchemaValidationFailed => "SCHEMA_VALIDATION_FAILED",
            Self::ProcessingError => "PROCESSING_ERROR",
            Self::Timeout => "TIMEOUT",
            Self::DependencyMissing => "DEPENDENCY_MISSING",
            Self::ValidationFailed => "VALIDATION_FAILED",
            Self::UnknownAgent => "UNKNOWN_AGENT",
            Self::DuplicateId => "DUPLICATE_ID",
            Self::Blocked => "BLOCKED",
            Self::Rejected => "REJECTED",
            Self::Cancelled => "CANCELLED",
            Self::Interrupted => "INTERRUPTED",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }

    /// Whether the daemon tries again by itself after this failure.
    pub fn retries_by_itself(self) -> bool {
        matches!(
            self,
            Self::ProcessingError | Self::Timeout | Self::ValidationFailed
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_written_one_way() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::parse(code.as_str()), Some(code));
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
