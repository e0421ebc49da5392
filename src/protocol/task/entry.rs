//! The entries of a state's lists, as views of what stands there.

use serde_json::Value;

fn text<'v>(entry: &'v Value, key: &str) -> &'v str {
    entry.get(key).and_then(Value::as_str).unwrap_or("")
}

/// A file that an agent made.
#[derive(Debug, Clone, Copy)]
pub struct Artifact<'v>(pub &'v Value);

impl<'v> Artifact<'v> {
    pub fn path(&self) -> &'v str {
        text(self.0, "path")
    }

    /// `code` is another word for `source`.
    pub fn kind(&self) -> &'v str {
        match text(self.0, "artifact_type") {
            "code" => "source",
            other => other,
        }
    }

    pub fn content_hash(&self) -> &'v str {
        text(self.0, "content_hash")
    }

    pub fn size_bytes(&self) -> Option<u64> {
        self.0.get("size_bytes")?.as_u64()
    }
}

/// The bare hex digits of a SHA-256, in whichever of the usual ways it was written.
pub fn digest(hash: &str) -> Option<String> {
    let hex = hash.trim().to_ascii_lowercase();
    let hex = hex
        .strip_prefix("sha256:")
        .or_else(|| hex.strip_prefix("sha-256:"))
        .unwrap_or(&hex);
    let good = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    good.then(|| hex.to_owned())
}

/// What was decided, and why.
#[derive(Debug, Clone, Copy)]
pub struct Decision<'v>(pub &'v Value);

impl<'v> Decision<'v> {
    pub fn what(&self) -> &'v str {
        text(self.0, "decision")
    }

    pub fn why(&self) -> &'v str {
        text(self.0, "rationale")
    }

    pub fn agent(&self) -> &'v str {
        text(self.0, "agent")
    }

    pub fn timestamp(&self) -> &'v str {
        text(self.0, "timestamp")
    }
}

/// How much an issue holds up, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Blocker,
    High,
    Medium,
    Low,
}

impl Severity {
    pub const ALL: [Self; 4] = [Self::Blocker, Self::High, Self::Medium, Self::Low];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|severity| severity.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blocker => "blocker",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// What stands in the way.
#[derive(Debug, Clone, Copy)]
pub struct Issue<'v>(pub &'v Value);

impl<'v> Issue<'v> {
    pub fn what(&self) -> &'v str {
        text(self.0, "issue")
    }

    /// An issue that does not say is taken seriously.
    pub fn severity(&self) -> Severity {
        Severity::parse(text(self.0, "severity")).unwrap_or(Severity::Blocker)
    }

    pub fn suggested_action(&self) -> &'v str {
        text(self.0, "suggested_action")
    }

    pub fn requires_human(&self) -> bool {
        self.0
            .get("requires_human")
            .and_then(Value::as_bool)
            .unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_told_from_what_only_looks_like_one() {
        let hex = "ab".repeat(32);
        for good in [
            hex.clone(),
            hex.to_uppercase(),
            format!("sha256:{hex}"),
            format!(" SHA-256:{hex}\n"),
        ] {
            assert_eq!(digest(&good), Some(hex.clone()), "{good}");
        }
        for bad in ["", "abc123", &"g".repeat(64), &"a".repeat(63)] {
            assert_eq!(digest(bad), None, "{bad}");
        }
    }
}
