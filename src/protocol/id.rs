//! Handoff ids: the names that stand in file names, records and commands.
//!
//! An id becomes a file name without any escaping, so its alphabet is closed and a leading dot
//! is refused. `~` is the daemon's own mark: a producer can't write it, which is why an id that
//! the daemon made (`x~2`) never collides with one that was dropped.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest id, in characters (all of them ASCII).
pub const MAX_LENGTH: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandoffId(Box<str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("an id must not be empty")]
    Empty,
    #[error("an id may have at most {MAX_LENGTH} characters; this one has {length}")]
    TooLong { length: usize },
    #[error("an id must not start with a dot")]
    LeadingDot,
    #[error(
        "{character:?} at position {position} is not allowed in an id: \
         use A-Z a-z 0-9 . _ @ -"
    )]
    Character {
        character: char,
        /// Counted in characters, from 1.
        position: usize,
    },
}

impl HandoffId {
    /// Reads an id as producers may write it.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        Self::check(text, |c| c != '~')
    }

    /// Reads an id that the daemon may have made: `~` is allowed too.
    pub fn parse_made(text: &str) -> Result<Self, IdError> {
        Self::check(text, |_| true)
    }

    fn check(text: &str, allowed: impl Fn(char) -> bool) -> Result<Self, IdError> {
        if text.is_empty() {
            return Err(IdError::Empty);
        }
        if text.starts_with('.') {
            return Err(IdError::LeadingDot);
        }
        let good = |c: char| c.is_ascii_alphanumeric() || "._@-~".contains(c) && allowed(c);
        if let Some((at, character)) = text.chars().enumerate().find(|&(_, c)| !good(c)) {
            return Err(IdError::Character {
                character,
                position: at + 1,
            });
        }
        if text.len() > MAX_LENGTH {
            return Err(IdError::TooLong { length: text.len() });
        }
        Ok(Self(text.into()))
    }

    /// An id that is right by construction: the caller gives only the alphabet above.
    pub(super) fn made(text: String) -> Self {
        debug_assert!(Self::parse_made(&text).is_ok());
        Self(text.into_boxed_str())
    }

    /// `x~2` for `x`: the daemon's name for another handoff that wanted this id. A base that
    /// leaves no room for the number is cut.
    #[must_use]
    pub fn numbered(&self, n: u64) -> Self {
        let suffix = format!("~{n}");
        let base = &self.0[..self.0.len().min(MAX_LENGTH - suffix.len())];
        Self::made(format!("{base}{suffix}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HandoffId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for HandoffId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Serialize for HandoffId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// What is stored may be an id that the daemon made.
impl<'de> Deserialize<'de> for HandoffId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse_made(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_producers_may_write() {
        for good in ["x", "A.b_c@d-9", "a..b", "-rf", "@x", &"x".repeat(200)] {
            assert_eq!(HandoffId::parse(good).unwrap().as_str(), good);
        }
        let wrong = |character, position| IdError::Character {
            character,
            position,
        };
        for (bad, error) in [
            ("", IdError::Empty),
            (".x", IdError::LeadingDot),
            ("..", IdError::LeadingDot),
            ("a/b", wrong('/', 2)),
            ("a b", wrong(' ', 2)),
            ("aé", wrong('é', 2)),
            ("éé/", wrong('é', 1)),
            ("x~2", wrong('~', 2)),
            ("x\0", wrong('\0', 2)),
            (&"x".repeat(201), IdError::TooLong { length: 201 }),
        ] {
            assert_eq!(HandoffId::parse(bad), Err(error), "{bad:?}");
        }
    }

    #[test]
    fn an_error_shows_the_character_and_where() {
        let error = HandoffId::parse("a\nb").unwrap_err().to_string();
        assert!(error.starts_with(r"'\n' at position 2"), "{error}");
    }

    #[test]
    fn the_daemon_numbers_what_it_makes() {
        for (base, n, made) in [
            ("x".to_owned(), 2, "x~2".to_owned()),
            ("y".repeat(200), 2, format!("{}~2", "y".repeat(198))),
            (
                "y".repeat(199),
                u64::MAX,
                format!("{}~{}", "y".repeat(179), u64::MAX),
            ),
        ] {
            let id = HandoffId::parse(&base).unwrap().numbered(n);
            assert_eq!(id.as_str(), made);
            assert_eq!(HandoffId::parse_made(&made), Ok(id));
        }
    }

    #[test]
    fn ids_pass_through_json() {
        let id: HandoffId = serde_json::from_str(r#""x~2""#).unwrap();
        assert_eq!(serde_json::to_string(&id).unwrap(), r#""x~2""#);
        assert!(serde_json::from_str::<HandoffId>(r#""../x""#).is_err());
    }
}
