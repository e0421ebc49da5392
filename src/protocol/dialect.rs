//! Dialects: which of the three ways of asking a document follows.
//!
//! They are told apart by their keys alone. A document that fits two is refused instead of
//! being read one way or the other, since its writer can only have meant one.

use std::fmt;

use serde_json::{Map, Value};

use super::field::present;
use super::fields::STATUSES;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `target.agent_id`.
    Request,
    /// `handoff` with `from` and `to`.
    Package,
    /// `status` of a finished piece of work, and `handoff` without `from` and `to`.
    Report,
    /// Fits two; [`fits`] says which.
    Ambiguous,
    Unknown,
}

impl Dialect {
    /// What a document of this dialect is told by.
    pub(super) fn told_by(self) -> &'static str {
        match self {
            Self::Request => "`target.agent_id`",
            Self::Package => "`handoff` with `from` and `to`",
            Self::Report => {
                "`status` complete, blocked or needs_review, and `handoff` without `from` and `to`"
            }
            Self::Ambiguous | Self::Unknown => "nothing",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request",
            Self::Package => "package",
            Self::Report => "report",
            Self::Ambiguous => "ambiguous",
            Self::Unknown => "unknown",
        })
    }
}

/// The one dialect of a document, if it has one. `status` is what its producer wrote there.
pub(super) fn dialect_as(map: &Map<String, Value>, status: Option<&str>) -> Dialect {
    match fits(map, status)[..] {
        [] => Dialect::Unknown,
        [one] => one,
        _ => Dialect::Ambiguous,
    }
}

/// The one dialect of a document as a producer writes it.
pub fn dialect(map: &Map<String, Value>) -> Dialect {
    dialect_as(map, map.get("status").and_then(Value::as_str))
}

/// Every dialect that a document fits.
pub(super) fn fits(map: &Map<String, Value>, status: Option<&str>) -> Vec<Dialect> {
    let object = |key| present(map, key).and_then(Value::as_object);
    let mut fits = Vec::new();
    if object("target").is_some_and(|target| present(target, "agent_id").is_some()) {
        fits.push(Dialect::Request);
    }
    if let Some(handoff) = object("handoff") {
        let finished = status.is_some_and(|status| STATUSES.contains(&status));
        match (present(handoff, "from"), present(handoff, "to")) {
            (Some(_), Some(_)) => fits.push(Dialect::Package),
            (None, None) if finished => fits.push(Dialect::Report),
            _ => {}
        }
    }
    fits
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dialects_are_told_by_their_keys() {
        let handoff = json!({"next_agent": "@b"});
        let package = json!({"from": {}, "to": {}});
        for (document, expected) in [
            (json!({"target": {"agent_id": "@a"}}), Dialect::Request),
            (json!({"target": {"agent_id": 7}}), Dialect::Request),
            (json!({"handoff": package}), Dialect::Package),
            (
                json!({"handoff": package, "status": "complete"}),
                Dialect::Package,
            ),
            (
                json!({"handoff": handoff, "status": "blocked"}),
                Dialect::Report,
            ),
            (
                json!({"handoff": handoff, "status": "pending"}),
                Dialect::Unknown,
            ),
            (
                json!({"handoff": {"from": {}}, "status": "blocked"}),
                Dialect::Unknown,
            ),
            (json!({"status": "complete"}), Dialect::Unknown),
            (json!({"target": {"agent_id": null}}), Dialect::Unknown),
            (json!({"target": "@a"}), Dialect::Unknown),
            (json!({}), Dialect::Unknown),
            (
                json!({"target": {"agent_id": "@a"}, "handoff": package}),
                Dialect::Ambiguous,
            ),
            (
                json!({"target": {"agent_id": "@a"}, "handoff": handoff, "status": "complete"}),
                Dialect::Ambiguous,
            ),
        ] {
            let status = document.get("status").and_then(Value::as_str);
            assert_eq!(
                dialect_as(document.as_object().unwrap(), status),
                expected,
                "{document}"
            );
        }
    }
}
