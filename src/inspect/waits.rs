//! What a handoff in `waiting/` waits for, in sentences: who wakes it, and when at the latest.

use std::time::Duration;

use crate::inspect::explain::short;
use crate::inspect::question::Question;

/// How many helpers are named one by one.
const NAMED: usize = 10;

/// A wait, and what was found out about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wait {
    pub on: String,
    pub until: Option<String>,
    pub left: Option<Duration>,
    /// For how long it has waited.
    pub since: Option<Duration>,
    pub ids: Vec<String>,
    /// Those of `ids` that are helpers, and where each stands.
    pub helpers: Vec<(String, String)>,
    pub reason: String,
    pub question: Option<Question>,
}

impl Wait {
    fn when(&self) -> Option<String> {
        let until = self.until.as_ref()?;
        Some(match self.left {
            Some(left) => format!("until {until} (in {})", short(left)),
            None => format!("until {until}"),
        })
    }

    fn so_far(&self) -> String {
        let since = self.since.filter(|since| !since.is_zero());
        since
            .map(|since| {
                let units = short(since);
                let units: Vec<&str> = units.split(' ').take(2).collect();
                format!(", for {} now", units.join(" "))
            })
            .unwrap_or_default()
    }
}

pub fn sentences(id: &str, wait: &Wait) -> Vec<String> {
    match wait.on.as_str() {
        "human" => person(id, wait),
        "handoff" => helpers(id, wait),
        _ => other(id, wait),
    }
}

fn person(id: &str, wait: &Wait) -> Vec<String> {
    let question = wait.question.clone().unwrap_or_default();
    let who = question.escalated_to.as_deref().unwrap_or("a human");
    // A question has its own end.
    let end = if wait.reason.ends_with(['?', '!']) {
        ""
    } else {
        "."
    };
    let mut told = vec![format!(
        "{id} waits for {who}{}: {}{end}",
        wait.so_far(),
        wait.reason
    )];
    told.push(match wait.when() {
        Some(when) => {
            let then = &question.on_expiry;
            format!("It waits {when}; without an answer by then, {then}.")
        }
        None => "There is no deadline: it waits until somebody answers.".to_owned(),
    });
    told.push(format!("To see the question: handoffd show {id}"));
    let verbs = if question.may_ask() {
        "approve, reject or ask"
    } else {
        "approve or reject"
    };
    told.push(format!(
        "To answer: handoffd {verbs} {id}; approving {}. To give up: handoffd cancel {id}",
        question.approving()
    ));
    told
}

fn helpers(id: &str, wait: &Wait) -> Vec<String> {
    let mut told = vec![format!(
        "{id} waits for its helpers {}{}.",
        listed(&wait.ids),
        wait.so_far()
    )];
    told.extend(
        wait.helpers
            .iter()
            .take(NAMED)
            .map(|(helper, stands)| format!("{helper} is {stands}.")),
    );
    if wait.helpers.len() > NAMED {
        let more = wait.helpers.len() - NAMED;
        told.push(format!("And {more} others: handoffd chain {id}"));
    }
    told.push("It runs again when they have ended, whatever their outcome.".to_owned());
    told
}

fn other(id: &str, wait: &Wait) -> Vec<String> {
    let Wait {
        on, ids, reason, ..
    } = wait;
    let when = wait
        .when()
        .unwrap_or_else(|| "until somebody retries it".to_owned());
    let first = match on.as_str() {
        "retry" => format!("{id} waits for its next attempt, {when}: {reason}."),
        "time" => format!("{id} waits for a time, {when}: {reason}."),
        // The reason names artifacts, which have no ids.
        "dependency" if ids.is_empty() || reason.contains("; ") => format!("{id} {reason}."),
        "dependency" => format!("{id} waits for {} to complete.", listed(ids)),
        other => format!("{id} waits ({other}): {reason}."),
    };
    let second = match on.as_str() {
        "retry" | "time" => format!("To run it at once: handoffd retry {id}"),
        "dependency" => match &wait.until {
            Some(until) if ids.is_empty() => {
                format!(
                    "It continues when the artifact exists. If it is still missing at \
                {until}, {id} fails."
                )
            }
            Some(until) => format!(
                "It waits for an existing handoff as long as necessary, and for a missing one \
                 until {until}. If one fails, {id} fails too."
            ),
            None => format!("It continues when they complete; if one fails, {id} fails too."),
        },
        _ => format!("To give up: handoffd cancel {id}"),
    };
    vec![first, second]
}

fn listed(ids: &[String]) -> String {
    match ids {
        [] => "other handoffs".to_owned(),
        [one] => one.clone(),
        [rest @ .., last] if ids.len() <= 5 => format!("{} and {last}", rest.join(", ")),
        _ => format!("{} and {} others", ids[..4].join(", "), ids.len() - 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_that_is_waited_for_is_named() {
        let wait = Wait {
            on: "dependency".to_owned(),
            until: Some("noon".to_owned()),
            reason: "waits for the artifact plan".to_owned(),
            ..Wait::default()
        };
        let expected = [
            "x waits for the artifact plan.",
            "It continues when the artifact exists. If it is still missing at noon, x fails.",
        ];
        assert_eq!(sentences("x", &wait), expected);
    }

    #[test]
    fn a_person_is_named_with_how_long_and_until_when() {
        let wait = Wait {
            on: "human".to_owned(),
            until: Some("noon".to_owned()),
            left: Some(Duration::from_secs(60)),
            since: Some(Duration::from_secs(3600)),
            reason: "two ways are open".to_owned(),
            question: Some(Question {
                kind: "gate".to_owned(),
                ..Question::default()
            }),
            ..Wait::default()
        };
        let told = sentences("x", &wait).join(" ");
        for part in [
            "for 1h now",
            "until noon (in 1m)",
            "approve or reject x; approving lets it run",
        ] {
            assert!(told.contains(part), "{part} in {told}");
        }
    }

    #[test]
    fn helpers_are_named_with_where_they_stand() {
        let ids: Vec<String> = (0..12).map(|n| format!("h{n}")).collect();
        let wait = Wait {
            on: "handoff".to_owned(),
            helpers: ids
                .iter()
                .map(|id| (id.clone(), "running".to_owned()))
                .collect(),
            ids,
            ..Wait::default()
        };
        let told = sentences("x", &wait).join(" ");
        assert!(told.contains("h0, h1, h2, h3 and 8 others"), "{told}");
        assert!(told.contains("h9 is running."), "{told}");
        assert!(told.contains("And 2 others: handoffd chain x"), "{told}");
    }
}
