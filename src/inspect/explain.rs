//! Why a handoff is where it is, and what moves it next, in sentences for people.
//!
//! The sentences are a pure function of what was found out, so that a test can walk through
//! every state that can be reached and see that none is left without words.

use std::time::Duration;

use crate::inspect::waits::{self, Wait};
use crate::protocol::lifecycle::State;
use crate::protocol::shown::word;

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
        warnings: Vec<String>,
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
    /// Where the rate is used up: when the next start may be.
    pub rate_until: Option<String>,
    pub configured: bool,
}

/// A specialist asked to be left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub until: String,
    /// The handoff that it asked in.
    pub id: String,
    /// The specialist that asked, and the account that it shares with this one.
    pub shared: Option<(String, String)>,
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

/// The first warnings of an outcome, each a sentence that is not too long.
fn warned(warnings: &[String]) -> Vec<String> {
    const SHOWN: usize = 5;
    const MOST_CHARS: usize = 400;
    let sentence = |warning: &String| {
        let warning = warning.trim_end_matches('.');
        let mut cut: String = warning.chars().take(MOST_CHARS).collect();
        if cut.len() < warning.len() {
            cut.push('…');
        }
        format!("Warning: {cut}.")
    };
    let mut told: Vec<String> = warnings.iter().take(SHOWN).map(sentence).collect();
    if warnings.len() > SHOWN {
        told.push(format!(
            "The record has {} more warnings.",
            warnings.len() - SHOWN
        ));
    }
    told
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
            format!("{id} is in pending/ and not admitted yet: {why}."),
            "If its producer has finished writing, the daemon moves it to failed/ with the \
             reason in a moment."
                .to_owned(),
        ],
        Standing::Foreign { state, why } => foreign(id, *state, why),
        Standing::Queued(queue) => queued(id, agent, queue),
        Standing::Running(process) => running(id, agent, process),
        Standing::Interrupted => vec![
            format!("{id} is in in-progress/, but none of its processes is known."),
            "The daemon notices this by itself: it takes the result that the attempt left, or \
             runs the handoff again."
                .to_owned(),
        ],
        Standing::Waiting(wait) => waits::sentences(id, wait),
        Standing::Completed {
            at,
            seconds,
            warnings,
        } => {
            let when = at
                .as_ref()
                .map(|at| format!(" at {at}"))
                .unwrap_or_default();
            let ran = seconds
                .as_ref()
                .map(|s| format!(", after {s} s of work"))
                .unwrap_or_default();
            let mut told = vec![format!(
                "{id} completed{when}{ran}. There is nothing left to do."
            )];
            told.extend(warned(warnings));
            told
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
                    "It is in the archive. To restore it to failed/: handoffd archive --restore \
                     {id}"
                ));
            }
            // Where it is to be moved back, that is the retry.
            let is_moved = actions.iter().any(|it| it.contains("handoffs/pending/"));
            if *retry_available && !is_moved {
                told.push(if code == "CANCELLED" {
                    format!("To retry it: handoffd retry {id}")
                } else {
                    format!("Then: handoffd retry {id}")
                });
            }
            told
        }
    };
    if !standing.is_final() {
        if !situation.daemon_runs {
            told.push("No daemon runs on this root. Start one: handoffd run".to_owned());
        }
        if situation.daemon_stops && !matches!(standing, Standing::Running(_)) {
            told.push(
                "The daemon is stopping: handoffs that have not started wait for the next \
                 daemon."
                    .to_owned(),
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
    let found = format!(
        "{id}.json is in {folder}/, but is not a record that belongs there: \
    {why}."
    );
    let then = if state.is_final() {
        format!(
            "The daemon ignores it. To move it away: mv {} {}",
            word(&format!("handoffs/{folder}/{id}.json")),
            word(&format!("{id}.json"))
        )
    } else {
        "The daemon handles it at the next rescan: it runs a request, and moves anything else to \
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
            format!("{id} is ready, behind {n} others in the queue of {agent}; {next} is first.")
        }
        (n, None) => format!("{id} is ready, behind {n} others in the queue of {agent}."),
    });
    if !queue.configured {
        told.push(format!(
            "No specialist is configured for {agent}, so the daemon will refuse it."
        ));
    }
    if let Some(limit) = queue.specialist_limit
        && queue.specialist_running >= limit
    {
        told.push(format!(
            "{agent} is at its max_concurrent of {limit}; one attempt must end first."
        ));
    } else if queue.all_running >= queue.limit {
        told.push(format!(
            "All {} slots (daemon.max_concurrent) are taken; one attempt must end first.",
            queue.limit
        ));
    }
    if let Some(Hold { until, id, shared }) = &queue.held {
        let other = shared.as_ref().filter(|(asked, _)| asked != agent);
        let who = match other {
            Some((asked, account)) => format!("{asked}, which shares the account {account},"),
            None => agent.to_owned(),
        };
        told.push(format!(
            "{who} asked to pause until {until}, while it worked on {id}. To continue now: \
             handoffd retry {id}"
        ));
    }
    if let Some(rate) = &queue.rate {
        let next = queue.rate_until.as_ref();
        let next = next.map(|until| format!("; the next may start at {until}"));
        let next = next.unwrap_or_default();
        told.push(format!("Starts of {agent} are limited to {rate}{next}."));
    }
    if told.len() == 1 {
        told.push("It starts in a moment.".to_owned());
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
        "{agent} runs attempt {}{most} of {id}{pid}.",
        process.attempt
    )];
    if let Some(why) = &process.ending {
        told.push(format!(
            "The daemon is ending it ({why}), with its whole process tree."
        ));
    } else if let Some(left) = process.deadline_in {
        told.push(format!("It times out in {}.", short(left)));
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
#[path = "explain_tests.rs"]
mod tests;
