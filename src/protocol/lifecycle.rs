//! The lifecycle: five states, five folders, and the moves between them.
//!
//! A folder is a state; there is no other truth. This table is the only place that says which
//! moves exist, so that a move that is not here can't be made by accident.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Pending,
    InProgress,
    Waiting,
    Completed,
    Failed,
}

impl State {
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::InProgress,
        Self::Waiting,
        Self::Completed,
        Self::Failed,
    ];

    pub const STATUSES: [&str; Self::ALL.len()] = {
        let mut words = [""; Self::ALL.len()];
        let mut at = 0;
        while at < words.len() {
            words[at] = Self::ALL[at].status();
            at += 1;
        }
        words
    };

    /// The folder below `handoffs/`.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in-progress",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    /// The word in a record's `status`.
    pub const fn status(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    /// Whether the daemon may move a record from here to there. `Failed` to `Waiting` is a
    /// person's `retry`.
    pub fn may_become(self, next: Self) -> bool {
        use State::{Completed, Failed, InProgress, Pending, Waiting};
        matches!(
            (self, next),
            (Pending, InProgress | Waiting | Failed)
                | (InProgress, Completed | Failed | Waiting)
                | (Waiting, InProgress | Completed | Failed)
                | (Failed, Waiting)
        )
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.status())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moves_are_exactly_these() {
        let allowed: Vec<String> = State::ALL
            .iter()
            .flat_map(|from| State::ALL.iter().map(move |to| (from, to)))
            .filter(|(from, to)| from.may_become(**to))
            .map(|(from, to)| format!("{from}>{to}"))
            .collect();
        assert_eq!(
            allowed,
            [
                "pending>in_progress",
                "pending>waiting",
                "pending>failed",
                "in_progress>waiting",
                "in_progress>completed",
                "in_progress>failed",
                "waiting>in_progress",
                "waiting>completed",
                "waiting>failed",
                "failed>waiting",
            ]
        );
    }

    #[test]
    fn nothing_leaves_completed_and_a_state_never_becomes_itself() {
        for state in State::ALL {
            assert!(!State::Completed.may_become(state));
            assert!(!state.may_become(state));
        }
    }
}
