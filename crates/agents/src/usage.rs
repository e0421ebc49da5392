//! What an attempt cost.
//!
//! Agents report sums over a session that was resumed. What this attempt cost is the difference
//! from what the session had cost before it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Tokens and money, of an attempt or of a whole session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    #[serde(default)]
    pub input_tokens: u64,
    #[serde(default)]
    pub output_tokens: u64,
    /// Absent where the agent names no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl Usage {
    /// What came on top of `before`. A sum that is smaller than before is of a session that began
    /// anew, and counts whole.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let began_anew = self.input_tokens < before.input_tokens
            || self.output_tokens < before.output_tokens
            || matches!((self.cost_usd, before.cost_usd), (Some(now), Some(then)) if now + 1e-9 < then);
        if began_anew {
            return self;
        }
        Self {
            input_tokens: self.input_tokens - before.input_tokens,
            output_tokens: self.output_tokens - before.output_tokens,
            cost_usd: self
                .cost_usd
                .map(|now| (now - before.cost_usd.unwrap_or(0.0)).max(0.0)),
        }
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let cost_usd = match (self.cost_usd, other.cost_usd) {
            (None, None) => None,
            (one, two) => Some(one.unwrap_or(0.0) + two.unwrap_or(0.0)),
        };
        Self {
            input_tokens: self.input_tokens + other.input_tokens,
            output_tokens: self.output_tokens + other.output_tokens,
            cost_usd,
        }
    }
}

/// `metadata.usage` of a result.
pub fn shown(
    usage: Usage,
    turns: Option<u64>,
    model: Option<&str>,
    session: Option<&str>,
) -> Value {
    let mut map = Map::new();
    map.insert("input_tokens".to_owned(), usage.input_tokens.into());
    map.insert("output_tokens".to_owned(), usage.output_tokens.into());
    if let Some(cost) = usage.cost_usd {
        // A millionth of a dollar: the difference of two sums has no more digits than that.
        let rounded = (cost * 1e6).round() / 1e6;
        map.insert("cost_usd".to_owned(), rounded.into());
    }
    if let Some(turns) = turns {
        map.insert("turns".to_owned(), turns.into());
    }
    if let Some(model) = model {
        map.insert("model".to_owned(), model.into());
    }
    if let Some(session) = session {
        map.insert("session_id".to_owned(), session.into());
    }
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input_tokens: u64, output_tokens: u64, cost_usd: Option<f64>) -> Usage {
        Usage {
            input_tokens,
            output_tokens,
            cost_usd,
        }
    }

    #[test]
    fn an_attempt_costs_the_difference_of_two_sums() {
        for (now, before, expected) in [
            (
                usage(200, 40, Some(0.5)),
                usage(100, 20, Some(0.25)),
                usage(100, 20, Some(0.25)),
            ),
            (
                usage(200, 40, None),
                usage(100, 20, None),
                usage(100, 20, None),
            ),
            (
                usage(200, 40, Some(0.5)),
                Usage::default(),
                usage(200, 40, Some(0.5)),
            ),
            // The session began anew: its sums are smaller than those before.
            (
                usage(50, 5, Some(0.1)),
                usage(100, 20, Some(0.25)),
                usage(50, 5, Some(0.1)),
            ),
        ] {
            assert_eq!(now.since(before), expected);
        }
    }

    #[test]
    fn money_is_shown_to_a_millionth() {
        let shown = shown(usage(1, 2, Some(0.1 + 0.2)), Some(3), Some("m"), Some("s"));
        assert_eq!(shown["cost_usd"], serde_json::json!(0.3));
        assert_eq!(shown["session_id"], "s");
    }
}
