//! Command gates: a program that looks at a task's state and says yes or no by its exit code.

use std::path::Path;
use std::time::Duration;

use crate::config::Gate;
use crate::runner::command::{self, Call};

/// How a gate is run.
#[derive(Debug, Clone)]
pub struct Terms<'a> {
    pub root: &'a Path,
    pub task_id: &'a str,
    pub timeout: Duration,
    pub kill_grace: Duration,
}

/// What a gate said.
pub use crate::runner::command::Ended as Said;

/// Runs a gate on a state. That it can't be run is a no, with the reason.
pub fn run(gate: &Gate, state: &[u8], terms: &Terms<'_>) -> Said {
    let call = Call {
        command: &gate.command,
        root: terms.root,
        env: &[
            ("HANDOFF_TASK_ID", terms.task_id),
            ("HANDOFF_GATE", &gate.name),
        ],
        input: state,
        timeout: terms.timeout,
        kill_grace: terms.kill_grace,
        give_up: None,
    };
    command::run(&call).unwrap_or_else(|error| {
        let program = gate.command.first().map_or("", String::as_str);
        let reason = format!("can't run {program:?}: {error}");
        let passed = false;
        Said { passed, reason }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn gate(words: &[&str]) -> Gate {
        Gate {
            name: "g".to_owned(),
            phases: vec!["p".to_owned()],
            command: words.iter().map(ToString::to_string).collect(),
        }
    }

    fn said(words: &[&str], state: &[u8], timeout_ms: u64) -> Said {
        let dir = tempfile::tempdir().unwrap();
        let terms = Terms {
            root: dir.path(),
            task_id: "t",
            timeout: Duration::from_millis(timeout_ms),
            kill_grace: Duration::from_millis(200),
        };
        run(&gate(words), state, &terms)
    }

    #[test]
    fn the_exit_code_decides() {
        assert!(said(&["true"], b"{}", 20_000).passed);
        let no = said(
            &["sh", "-c", "echo out; echo why >&2; exit 3"],
            b"{}",
            20_000,
        );
        assert!(!no.passed);
        assert_eq!(no.reason, "exited with 3; its last words: out\nwhy");
        let none = said(&["./none"], b"{}", 20_000);
        assert!(
            !none.passed && none.reason.contains("./none"),
            "{}",
            none.reason
        );
    }

    #[test]
    fn it_reads_the_state_and_may_leave_it() {
        let check = ["sh", "-c", "test \"$(wc -c)\" -eq 1000000"];
        assert!(said(&check, &vec![b' '; 1_000_000], 20_000).passed);
        assert!(said(&["true"], &vec![b' '; 1_000_000], 20_000).passed);
    }

    #[test]
    fn one_that_hangs_is_ended_with_its_group() {
        let begun = Instant::now();
        let no = said(
            &["sh", "-c", "trap '' TERM; sleep 60 & wait; sleep 60"],
            b"",
            50,
        );
        assert!(
            !no.passed && no.reason.contains("took longer than 50ms"),
            "{}",
            no.reason
        );
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn one_that_leaves_a_child_behind_is_not_waited_for() {
        let begun = Instant::now();
        assert!(said(&["sh", "-c", "setsid sleep 5 & exit 0"], b"", 20_000).passed);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn much_talk_is_cut_to_its_end() {
        let script = "yes word | head -c 100000; echo last; exit 1";
        let no = said(&["sh", "-c", script], b"", 20_000);
        assert!(no.reason.ends_with("last") && no.reason.len() < 2100);
    }
}
