//! Phases: free words or integers, compared by how they are written.

use std::fmt;

use serde_json::Value;

/// Where a task stands. The number 3 and the word "3" are the same phase.
#[derive(Debug, Clone)]
pub struct Phase(Value);

impl Phase {
    /// The end of every task.
    pub const COMPLETED: &'static str = "completed";

    /// A phase as a document has it; nothing for what is absent, empty or no phase at all.
    pub fn of(value: &Value) -> Option<Self> {
        let good = match value {
            Value::String(text) => !text.trim().is_empty(),
            Value::Number(number) => number.is_i64() || number.is_u64(),
            _ => false,
        };
        good.then(|| Self(value.clone()))
    }

    /// A phase that somebody asks for: `complete` says `completed`, and space around it nothing.
    pub fn asked(value: &Value) -> Option<Self> {
        let mut phase = Self::of(value)?;
        if let Value::String(text) = &mut phase.0 {
            *text = match text.trim() {
                "complete" => Self::COMPLETED.to_owned(),
                trimmed => trimmed.to_owned(),
            };
        }
        Some(phase)
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::asked(&Value::from(name))
    }

    pub fn name(&self) -> String {
        match &self.0 {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    pub fn is_completed(&self) -> bool {
        self.0.as_str() == Some(Self::COMPLETED)
    }

    pub fn value(&self) -> &Value {
        &self.0
    }
}

impl PartialEq for Phase {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl PartialEq<str> for Phase {
    fn eq(&self, other: &str) -> bool {
        self.name() == other
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_and_integers_are_phases() {
        assert_eq!(Phase::of(&json!(3)), Phase::of(&json!("3")));
        assert_eq!(Phase::of(&json!(3)).unwrap().value(), &json!(3));
        for no in [json!(null), json!(1.5), json!(""), json!(" "), json!([])] {
            assert!(Phase::of(&no).is_none(), "{no}");
        }
    }

    #[test]
    fn complete_means_completed_when_it_is_asked_for() {
        assert!(Phase::named(" complete ").unwrap().is_completed());
        assert!(Phase::named("completed").unwrap().is_completed());
        assert!(!Phase::of(&json!("complete")).unwrap().is_completed());
    }
}
