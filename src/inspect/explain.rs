//! Why a handoff is where it is, and what moves it next, in sentences for people.
//!
//! The sentences are a pure function of what was found out, so that a test can walk through
//! every state that can be reached and see that none is left without words.

use std::time::Duration;

use crate::inspect::waits::{self, Wait};
use crate::protocol::lifecycle::State;

/// What is known of a handoff, its surroundings and its daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Situation {
    pub id: String,
    pub agent: Option<String>,
    pub daemon_runs: bool,
    /// It waits for its last attempts and begins nothing new.
    pub daemon_stops: bool,
    /// What the daemon says is wrong.
    pub problems: Vec<String>,
    pub standing: Standing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// In `pending/`, but not (yet) a whole request.
    Unread {
        why: String,
    },
    /// In another folder, and no record that belongs there.
    Foreign {
        state: State,
        why: String,
    },
    /// Ready, in `pending/` or `waiting/`: only a place is missing.
    Queued(Queue),
    Running(Process),
    /// In `in-progress/`, with no process that anybody knows of.
    Interrupted,
    Waiting(Box<Wait>),
    Completed {
        at: Option<String>,
        seconds: Option<String>,
    },
    Failed {
        code: String,
        message: String,
        actions: Vec<String>,
        retry_available: bool,
        /// It stands in the archive, out of reach of a retry.
        packed: bool,
    },
}

impl Standing {
    /// Nobody moves it any more.
    fn is_final(&self) -> bool {
        match self {
            Self::Completed { .. } | Self::Failed { .. } => true,
            Self::Foreign { state, .. } => state.is_final(),
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    /// How many are ahead of it for the same specialist.
    pub ahead: usize,
    pub next: Option<String>,
    pub specialist_running: usize,
    pub specialist_limit: Option<usize>,
    pub all_running: usize,
    pub limit: usize,
    pub held: Option<Hold>,
    pub rate: Option<String>,
    pub configured: bool,
}

/// A specialist asked to be left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub until: String,
    /// The handoff that it asked in.
    pub id: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    pub attempt: u32,
    pub most: Option<u32>,
    pub pid: Option<i32>,
    /// One that stays and does others, too; which of them, only the daemon knows.
    pub resident: bool,
    pub deadline_in: Option<Duration>,
    pub ending: Option<String>,
}

pub(super) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let rounded = if seconds == 0 {
        duration
    } else {
        Duration::from_secs(seconds)
    };
    humantime::format_duration(rounded).to_string()
}

/// The sentences, the most important first. Never empty.
pub fn sentences(situation: &Situation) -> Vec<String> {
    let Situation {
        id,
        agent,
        standing,
        ..
    } = situation;
    let agent = agent.as_deref().unwrap_or("its specialist");
    let mut told = match standing {
        Standing::Unread { why } => vec![
            format!("{id} lies in pending/ and is not admitted yet: {why}."),
            "If nobody is writing it any more, it is judged within a moment and then stands in \
             failed/ with the reason."
                .to_owned(),
        ],
        Standing::Foreign { state, why } => foreign(id, *state, why),
        Standing::Queued(queue) => queued(id, agent, queue),
        Standing::Running(process) => running(id, agent, process),
        Standing::Interrupted => vec![
            format!("{id} is in in-progress/, but no process of it is known."),
            "The daemon finds that out by itself: it takes the result that was left, or runs it \
             again."
                .to_owned(),
        ],
        Standing::Waiting(wait) => waits::sentences(id, wait),
        Standing::Completed { at, seconds } => {
            let when = at
                .as_ref()
                .map(|at| format!(" at {at}"))
                .unwrap_or_default();
            let ran = seconds
                .as_ref()
                .map(|s| format!(", after {s} s of work"))
                .unwrap_or_default();
            vec![format!(
                "{id} completed{when}{ran}. Nothing more happens to it."
            )]
        }
        Standing::Failed {
            code,
            message,
            actions,
            retry_available,
            packed,
        } => {
            let mut told = failed(id, code, message, actions);
            if *packed {
                told.push(format!(
                    "It is packed. To put it back into failed/: handoffd archive --restore {id}"
                ));
            }
            // Where it is to be moved back, that is the retry.
            let is_moved = actions.iter().any(|it| it.contains("handoffs/pending/"));
            if *retry_available && !is_moved {
                told.push(format!("When that is done: handoffd retry {id}"));
            }
            told
        }
    };
    if !standing.is_final() {
        if !situation.daemon_runs {
            told.push(
                "No daemon runs on this root, so nothing moves until one is started: handoffd run"
                    .to_owned(),
            );
        }
        if situation.daemon_stops && !matches!(standing, Standing::Running(_)) {
            told.push(
                "The daemon is stopping: what has not begun waits for the next one.".to_owned(),
            );
        }
        for problem in &situation.problems {
            told.push(format!("The daemon reports: {problem}."));
        }
    }
    told
}

fn foreign(id: &str, state: State, why: &str) -> Vec<String> {
    let folder = state.folder();
    let found = format!("{id}.json lies in {folder}/, but is no record that belongs there: {why}.");
    let then = if state.is_final() {
        format!(
            "The daemon leaves it alone, and nothing happens to it. To move it away: mv \
             handoffs/{folder}/{id}.json {id}.json"
        )
    } else {
        "The daemon takes it up at its next rescan: a request runs, and anything else is set aside in \
         failed/ with the reason."
            .to_owned()
    };
    vec![found, then]
}

fn queued(id: &str, agent: &str, queue: &Queue) -> Vec<String> {
    let mut told = Vec::new();
    told.push(match (queue.ahead, &queue.next) {
        (0, _) => format!("{id} is ready and next in the queue of {agent}."),
        (1, Some(next)) => format!("{id} is ready, behind {next} in the queue of {agent}."),
        (n, Some(next)) => {
            format!("{id} is ready, behind {n} others in the queue of {agent}; first is {next}.")
        }
        (n, None) => format!("{id} is ready, behind {n} others in the queue of {agent}."),
    });
    if !queue.configured {
        told.push(format!(
            "No specialist is configured for {agent}, so it will be refused."
        ));
    }
    if let Some(limit) = queue.specialist_limit
        && queue.specialist_running >= limit
    {
        told.push(format!(
            "{agent} runs {} at once, which is its max_concurrent; one must end first.",
            queue.specialist_running
        ));
    } else if queue.all_running >= queue.limit {
        told.push(format!(
            "All {} places (daemon.max_concurrent) are taken; one must end first.",
            queue.limit
        ));
    }
    if let Some(Hold { until, id }) = &queue.held {
        told.push(format!(
            "{agent} asked to be left alone until {until}, when it had {id}; to go on now: handoffd \
             retry {id}"
        ));
    }
    if let Some(rate) = &queue.rate {
        told.push(format!("Starts of {agent} are limited to {rate}."));
    }
    if told.len() == 1 {
        told.push("It starts as soon as the daemon gets to it.".to_owned());
    }
    told
}

fn running(id: &str, agent: &str, process: &Process) -> Vec<String> {
    let most = process
        .most
        .map(|most| format!(" of at most {most}"))
        .unwrap_or_default();
    let pid = match process.pid {
        Some(pid) => format!(" as process {pid}"),
        None if process.resident => " in a resident process".to_owned(),
        None => String::new(),
    };
    let mut told = vec![format!(
        "Attempt {}{most} of {id} is run by {agent}{pid}.",
        process.attempt
    )];
    if let Some(why) = &process.ending {
        told.push(format!(
            "It is being ended ({why}); its whole process tree goes."
        ));
    } else if let Some(left) = process.deadline_in {
        told.push(format!("It has {} left before it times out.", short(left)));
    }
    told.push(format!("To stop it: handoffd cancel {id}"));
    told
}

fn failed(id: &str, code: &str, message: &str, actions: &[String]) -> Vec<String> {
    let mut told = vec![format!("{id} failed with {code}: {message}.")];
    told.extend(
        actions
            .iter()
            .map(|action| format!("What to do: {action}.")),
    );
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(standing: Standing, daemon_runs: bool) -> Vec<String> {
        sentences(&Situation {
            id: "x".to_owned(),
            agent: Some("@coder".to_owned()),
            daemon_runs,
            daemon_stops: false,
            problems: Vec::new(),
            standing,
        })
    }

    /// One of each kind of standing, and of each kind of wait.
    fn every_standing() -> Vec<Standing> {
        let mut all = vec![
            Standing::Unread {
                why: "it is empty".to_owned(),
            },
            Standing::Queued(Queue {
                configured: true,
                limit: 4,
                ..Queue::default()
            }),
            Standing::Running(Process {
                attempt: 1,
                ..Process::default()
            }),
            Standing::Interrupted,
            Standing::Foreign {
                state: State::Completed,
                why: "it is a list".to_owned(),
            },
            Standing::Foreign {
                state: State::Waiting,
                why: "it is a list".to_owned(),
            },
            Standing::Completed {
                at: None,
                seconds: None,
            },
            Standing::Failed {
                code: "TIMEOUT".to_owned(),
                message: "slow".to_owned(),
                actions: Vec::new(),
                retry_available: true,
                packed: false,
            },
        ];
        all.extend(
            ["retry", "time", "dependency", "handoff", "human"].map(|on| {
                Standing::Waiting(Box::new(Wait {
                    on: on.to_owned(),
                    ids: vec!["p".to_owned()],
                    reason: "because".to_owned(),
                    ..Wait::default()
                }))
            }),
        );
        all
    }

    #[test]
    fn no_state_is_left_without_a_sentence() {
        for standing in every_standing() {
            let ended = standing.is_final();
            let told = about(standing.clone(), true);
            assert!(told[0].contains('x'), "{standing:?}");
            assert!(
                ended || told.len() >= 2,
                "{standing:?} names no waker: {told:?}"
            );
            let idle = about(standing.clone(), false);
            assert_eq!(
                idle.iter().any(|s| s.contains("No daemon runs")),
                !ended,
                "{standing:?}"
            );
        }
    }

    #[test]
    fn the_limit_that_holds_it_is_named() {
        let full = Queue {
            ahead: 3,
            next: Some("a".to_owned()),
            specialist_running: 2,
            specialist_limit: Some(2),
            limit: 4,
            configured: true,
            ..Queue::default()
        };
        let told = about(Standing::Queued(full.clone()), true).join(" ");
        assert!(told.contains("behind 3 others"), "{told}");
        assert!(told.contains("its max_concurrent"), "{told}");
        let all = Queue {
            specialist_limit: None,
            all_running: 4,
            ..full
        };
        assert!(
            about(Standing::Queued(all), true)
                .join(" ")
                .contains("All 4 places")
        );
    }

    #[test]
    fn what_lifts_a_hold_is_the_retry_of_who_asked_for_it() {
        let held = Queue {
            held: Some(Hold {
                until: "noon".to_owned(),
                id: "k1".to_owned(),
            }),
            limit: 4,
            configured: true,
            ..Queue::default()
        };
        let told = about(Standing::Queued(held), true).join(" ");
        assert!(told.contains("until noon, when it had k1"), "{told}");
        assert!(told.contains("handoffd retry k1"), "{told}");
    }

    #[test]
    fn a_stranger_in_a_final_folder_is_left_to_people() {
        let of = |state| {
            let why = "it is a list".to_owned();
            about(Standing::Foreign { state, why }, true).join(" ")
        };
        let told = of(State::Failed);
        assert!(told.contains("mv handoffs/failed/x.json"), "{told}");
        assert!(!told.contains("pending"), "{told}");
        assert!(of(State::Waiting).contains("next rescan"));
    }

    #[test]
    fn a_running_one_names_its_process_and_its_deadline() {
        let process = Process {
            attempt: 2,
            most: Some(4),
            pid: Some(77),
            resident: false,
            deadline_in: Some(Duration::from_millis(90_400)),
            ending: None,
        };
        let stays = Process {
            pid: None,
            resident: true,
            ..process.clone()
        };
        let told = about(Standing::Running(stays), true).join(" ");
        assert!(told.contains("in a resident process"), "{told}");
        let told = about(Standing::Running(process), true).join(" ");
        assert!(told.contains("Attempt 2 of at most 4"), "{told}");
        assert!(told.contains("process 77"), "{told}");
        assert!(told.contains("1m 30s left"), "{told}");
    }
}
