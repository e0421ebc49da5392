//! Agent names: who a handoff is for.

use std::fmt;

/// An agent's name as look-ups see it: without the leading `@`, which makes no difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentName(Box<str>);

impl AgentName {
    /// Accepts what a producer or a configuration wrote. Empty names, over-long ones and ones
    /// with control characters are refused, with the reason.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let bare = text.strip_prefix('@').unwrap_or(text);
        if bare.is_empty() {
            return Err("an agent name must not be empty");
        }
        if bare.len() > 200 {
            return Err("an agent name may have at most 200 bytes");
        }
        if bare.chars().any(char::is_control) {
            return Err("an agent name must not contain control characters");
        }
        Ok(Self(bare.into()))
    }

    /// A person.
    pub fn human() -> Self {
        Self("human".into())
    }

    /// The name without `@`.
    pub fn bare(&self) -> &str {
        &self.0
    }

    /// `human` is reserved: no command answers for a person.
    pub fn is_human(&self) -> bool {
        &*self.0 == "human"
    }

    /// `*` in a configuration stands for every agent that has no entry of its own.
    pub fn is_wildcard(&self) -> bool {
        &*self.0 == "*"
    }
}

/// Shown the way people write them, with `@`; `human` and `*` stay bare.
impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_human() || self.is_wildcard() {
            f.write_str(&self.0)
        } else {
            write!(f, "@{}", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leading_at_makes_no_difference() {
        let with = AgentName::parse("@react").unwrap();
        assert_eq!(with, AgentName::parse("react").unwrap());
        assert_eq!(with.to_string(), "@react");
        assert!(AgentName::parse("@human").unwrap().is_human());
    }

    #[test]
    fn what_cannot_be_a_name_is_refused() {
        for bad in ["", "@", "a\nb", "a\0b", &"x".repeat(201)] {
            assert!(AgentName::parse(bad).is_err(), "{bad:?}");
        }
    }
}
