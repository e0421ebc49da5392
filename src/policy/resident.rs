//! Resident processes: when another is started, when one is let go, how long to wait after a
//! death, and what a death means for the handoff that it came in.
//!
//! One process does one handoff at a time. It is let go between two of them only, and what kind
//! of process it was started as never changes under it.

use std::time::Duration;

use crate::policy::judge::{Exit, Failure, exit_words, failure, mend_cause, tail_of};
use crate::protocol::error::ErrorCode;
use crate::protocol::error::QUOTED;

/// The wait after the first death that came before any answer.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How much of its last words a failure quotes.
const LAST_WORDS: usize = 2000;

/// A process, as far as it matters who gets the next handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub number: u32,
    pub idle: bool,
    pub spent: bool,
}

/// Who gets a handoff that may start now.
#[derive(Debug, PartialEq, Eq)]
pub enum Assign {
    To(u32),
    StartAnother,
}

/// The first that is idle; one that was started earlier is warmer. That no more are started than
/// may run at once is the schedule's business: it gives out no more handoffs than that.
pub fn assign(processes: impl IntoIterator<Item = Candidate>) -> Assign {
    processes
        .into_iter()
        .filter(|process| process.idle && !process.spent)
        .map(|process| process.number)
        .min()
        .map_or(Assign::StartAnother, Assign::To)
}

/// How long a process may serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Service {
    pub max_handoffs: Option<u32>,
    pub max_age: Option<Duration>,
}

/// Whether a process has served its time. Asked between two handoffs.
pub fn is_spent(service: Service, given: u32, age_ms: u64, outdated: bool) -> bool {
    outdated
        || service.max_handoffs.is_some_and(|most| given >= most)
        || service
            .max_age
            .is_some_and(|most| u128::from(age_ms) >= most.as_millis())
}

/// What a death by itself means for the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Deaths in a row before any answer, over all processes of a specialist.
    pub streak: u32,
    /// How long nothing is started.
    pub wait: Duration,
}

/// A process that had answered something dies of a handoff, and the next one is started at
/// once. One that never did dies of itself, as far as can be told: then each start waits twice as
/// long as the one before, unless others of its kind are known to work.
pub fn after_death(streak: u32, answered: bool, others_work: bool) -> Backoff {
    if answered {
        return Backoff {
            streak: 0,
            wait: Duration::ZERO,
        };
    }
    let streak = streak.saturating_add(1);
    let doubled = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(streak - 1));
    Backoff {
        streak,
        wait: if others_work {
            Duration::ZERO
        } else {
            doubled.min(LONGEST_WAIT)
        },
    }
}

/// The failure of a handoff whose process died, or broke the rules and was ended.
pub fn died(exit: Exit, fault: Option<&str>, stderr_tail: &str) -> Failure {
    let said = tail_of(stderr_tail, LAST_WORDS);
    let (message, action) = match fault {
        Some(fault) => (
            format!("the resident process {fault}; the daemon ended it"),
            "Make the specialist answer each line on stdin with one line of JSON on stdout that \
             has the handoff_id, and print nothing else there"
                .to_owned(),
        ),
        None => (
            format!(
                "the resident process {} before it answered",
                exit_words(exit)
            ),
            mend_cause(&said),
        ),
    };
    let message = if said.is_empty() {
        message
    } else {
        format!("{message}{QUOTED}{said}")
    };
    failure(ErrorCode::ProcessingError, message, vec![action])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn who_gets_the_next_handoff() {
        let process = |number, idle, spent| Candidate {
            number,
            idle,
            spent,
        };
        for (processes, expected) in [
            (vec![], Assign::StartAnother),
            (vec![process(1, false, false)], Assign::StartAnother),
            (vec![process(1, true, true)], Assign::StartAnother),
            (
                vec![process(3, true, false), process(2, true, false)],
                Assign::To(2),
            ),
            (
                vec![process(1, false, false), process(2, true, false)],
                Assign::To(2),
            ),
        ] {
            assert_eq!(assign(processes.clone()), expected, "{processes:?}");
        }
    }

    #[test]
    fn when_a_process_has_served_its_time() {
        let no_limit = Service::default();
        let limits = Service {
            max_handoffs: Some(3),
            max_age: Some(seconds(10)),
        };
        for (service, given, age_ms, outdated, expected) in [
            (no_limit, u32::MAX, u64::MAX, false, false),
            (no_limit, 0, 0, true, true),
            (limits, 2, 9_999, false, false),
            (limits, 3, 0, false, true),
            (limits, 0, 10_000, false, true),
        ] {
            assert_eq!(
                is_spent(service, given, age_ms, outdated),
                expected,
                "{given} {age_ms}"
            );
        }
    }

    #[test]
    fn the_wait_after_a_death() {
        for (streak, answered, others, next, wait) in [
            (0, true, false, 0, 0),
            (7, true, false, 0, 0),
            (0, false, false, 1, 1),
            (1, false, false, 2, 2),
            (5, false, false, 6, 32),
            (6, false, false, 7, 60),
            (u32::MAX, false, false, u32::MAX, 60),
            (3, false, true, 4, 0),
        ] {
            let expected = Backoff {
                streak: next,
                wait: seconds(wait),
            };
            assert_eq!(after_death(streak, answered, others), expected, "{streak}");
        }
    }

    #[test]
    fn a_death_is_told_with_its_exit_and_its_last_words_and_is_tried_again() {
        for (exit, fault, tail, expected) in [
            (
                Exit::Code(0),
                None,
                "",
                "the resident process exited with 0 before it answered",
            ),
            (
                Exit::Signal(11),
                None,
                "boom\n",
                "the resident process was killed by signal 11 before it answered; its last \
                 words: boom",
            ),
            (
                Exit::Signal(15),
                Some("printed something that is not JSON"),
                "",
                "the resident process printed something that is not JSON; the daemon ended it",
            ),
        ] {
            let told = died(exit, fault, tail);
            assert_eq!(told.message, expected);
            assert!(told.retryable && told.code == ErrorCode::ProcessingError);
        }
        assert!(died(Exit::Code(78), None, "").retryable);
    }
}
