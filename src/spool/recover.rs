//! What a restart does with a file that it finds in `in-progress/` or `waiting/`.
//!
//! A pure table: every combination that a crash can leave behind, and what follows. Its rows
//! are those of `docs/crash-table.md`, and its tests carry their names. Files in `completed/`
//! and `failed/` are never read here, and nothing in `pending/` is believed.

use crate::protocol::lifecycle::State;
use crate::protocol::record::{Record, RecordError};

/// What stands in the folder under this id.
#[derive(Debug, Clone, PartialEq)]
pub enum Stands {
    /// A record that the daemon wrote.
    Ours(Box<Record>),
    /// The producer's own bytes: the claim had moved them but not rewritten them.
    Raw,
    /// A whole document, but not a record: somebody else put it here.
    Foreign,
    /// Not a whole document.
    Torn,
    /// A record of a newer format.
    Newer(u64),
}

impl Stands {
    /// Tells what a parsed document is. `known`: the log or the keeper knows a handoff of this
    /// name, so a document that speaks of itself as one of ours, and lacks our part, is damaged
    /// and not somebody's new request.
    pub fn of(parsed: Option<serde_json::Map<String, serde_json::Value>>, known: bool) -> Self {
        let Some(doc) = parsed else { return Self::Torn };
        let status = doc.get("status").and_then(serde_json::Value::as_str);
        let was_ours = known && status.is_some_and(|status| State::STATUSES.contains(&status));
        match Record::from_document(doc) {
            Ok(record) => Self::Ours(Box::new(record)),
            Err(RecordError::Newer(format)) => Self::Newer(format),
            Err(RecordError::NoMeta) if !was_ours => Self::Foreign,
            // Running it anew would be a guess: what is left of it need not be what was asked.
            Err(_) => Self::Torn,
        }
    }
}

/// What is known of the attempt that the record lists as running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The keeper runs it.
    Running,
    /// It is over; its exit, where it was kept, is known.
    Ended,
    /// The keeper never heard of it, and it kept its memory since the claim.
    NeverStarted,
    /// Nothing is known: the machine went down, or the keeper's memory is gone.
    Lost,
    /// The record lists no running attempt.
    None,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The decision stands in the record: make the move.
    MoveOn(State),
    Adopt,
    Judge,
    /// The attempt was lost; it runs again, and that is counted.
    Interrupted,
    /// The attempt never began; it runs again, and that is not counted.
    NotBegun,
    /// A timer, a dependency or a person ends this wait.
    Park,
    /// Make a record of it and let it run.
    Readmit,
    /// Put back the bytes that the claim had set apart, then look again.
    Restore,
    /// Set it aside in `failed/` and say so.
    Reject,
    /// Leave it for the version that wrote it.
    LeaveAlone(u64),
}

/// The table. `has_leftover`: the bytes from before the claim still stand in `.handoffd/tmp/`.
pub fn decide(folder: State, stands: &Stands, attempt: Attempt, has_leftover: bool) -> Action {
    let record = match stands {
        Stands::Raw | Stands::Foreign => return Action::Readmit,
        Stands::Torn if has_leftover => return Action::Restore,
        Stands::Torn => return Action::Reject,
        Stands::Newer(format) => return Action::LeaveAlone(*format),
        Stands::Ours(record) => record,
    };
    match (folder, record.meta.to) {
        (_, Some(to)) if to != folder && folder.may_become(to) && to != State::InProgress => {
            Action::MoveOn(to)
        }
        // A claim from waiting/ that was written but not moved: the attempt can't have begun.
        (State::Waiting, Some(State::InProgress)) => Action::NotBegun,
        (State::Waiting, _) if record.doc.contains_key("waiting") => Action::Park,
        (State::Waiting, _) => Action::Readmit,
        _ => match attempt {
            Attempt::Running => Action::Adopt,
            Attempt::Ended => Action::Judge,
            Attempt::NeverStarted => Action::NotBegun,
            Attempt::Lost => Action::Interrupted,
            Attempt::None => Action::Readmit,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn ours(to: Option<State>, waiting: bool) -> Stands {
        let mut record = Record::admit(Map::new(), "x", None);
        record.meta.to = to;
        if waiting {
            record.set("waiting", json!({"on": "retry"}));
        }
        Stands::Ours(Box::new(record))
    }

    #[test]
    fn row_3_moved_but_not_rewritten_is_admitted_anew() {
        for folder in [State::InProgress, State::Waiting] {
            assert_eq!(
                decide(folder, &Stands::Raw, Attempt::None, true),
                Action::Readmit
            );
        }
    }

    #[test]
    fn row_4_rewritten_but_torn_is_restored_from_the_leftover() {
        for folder in [State::InProgress, State::Waiting] {
            assert_eq!(
                decide(folder, &Stands::Torn, Attempt::Lost, true),
                Action::Restore
            );
        }
    }

    #[test]
    fn row_5_torn_with_nothing_left_is_set_aside() {
        assert_eq!(
            decide(State::Waiting, &Stands::Torn, Attempt::None, false),
            Action::Reject
        );
    }

    #[test]
    fn rows_6_to_10_the_attempt_decides() {
        let stands = ours(Some(State::InProgress), false);
        for (attempt, action) in [
            (Attempt::Running, Action::Adopt),
            (Attempt::Ended, Action::Judge),
            (Attempt::Lost, Action::Interrupted),
            (Attempt::NeverStarted, Action::NotBegun),
            (Attempt::None, Action::Readmit),
        ] {
            assert_eq!(
                decide(State::InProgress, &stands, attempt, false),
                action,
                "{attempt:?}"
            );
        }
    }

    #[test]
    fn row_11_decided_in_progress_moves_on_whatever_the_attempt_says() {
        for to in [State::Completed, State::Failed, State::Waiting] {
            for attempt in [
                Attempt::Ended,
                Attempt::Lost,
                Attempt::None,
                Attempt::NeverStarted,
            ] {
                let stands = ours(Some(to), to == State::Waiting);
                assert_eq!(
                    decide(State::InProgress, &stands, attempt, false),
                    Action::MoveOn(to)
                );
            }
        }
    }

    #[test]
    fn row_12_a_claim_from_waiting_that_was_not_moved_has_not_begun() {
        let stands = ours(Some(State::InProgress), false);
        assert_eq!(
            decide(State::Waiting, &stands, Attempt::None, true),
            Action::NotBegun
        );
    }

    #[test]
    fn row_13_decided_in_waiting_moves_on() {
        for to in [State::Completed, State::Failed] {
            let stands = ours(Some(to), true);
            assert_eq!(
                decide(State::Waiting, &stands, Attempt::None, false),
                Action::MoveOn(to)
            );
        }
    }

    #[test]
    fn row_14_parked_stays_parked() {
        for to in [None, Some(State::Waiting)] {
            let stands = ours(to, true);
            assert_eq!(
                decide(State::Waiting, &stands, Attempt::None, false),
                Action::Park
            );
        }
    }

    #[test]
    fn a_foreign_file_runs_and_a_newer_one_is_left_alone() {
        for folder in [State::InProgress, State::Waiting] {
            assert_eq!(
                decide(folder, &Stands::Foreign, Attempt::None, false),
                Action::Readmit
            );
            assert_eq!(
                decide(folder, &Stands::Newer(2), Attempt::None, false),
                Action::LeaveAlone(2)
            );
        }
        assert_eq!(
            decide(State::Waiting, &ours(None, false), Attempt::None, false),
            Action::Readmit
        );
    }

    #[test]
    fn what_was_ours_and_is_damaged_is_not_taken_for_a_new_request() {
        let of = |doc: serde_json::Value, known| Stands::of(doc.as_object().cloned(), known);
        let request = json!({"target": {"agent_id": "a"}});
        assert_eq!(of(request.clone(), true), Stands::Foreign);
        let broken = json!({"status": "waiting", "handoffd": {"format": 1, "revision": "x"}});
        assert_eq!(of(broken, false), Stands::Torn);
        let lost = json!({"status": "waiting", "hbndoffd": {"format": 1}});
        assert_eq!(of(lost.clone(), true), Stands::Torn);
        assert_eq!(of(lost, false), Stands::Foreign, "nobody ever heard of it");
    }

    #[test]
    fn an_impossible_destination_is_not_believed() {
        let stands = ours(Some(State::Pending), true);
        assert_eq!(
            decide(State::Waiting, &stands, Attempt::None, false),
            Action::Park
        );
    }
}
