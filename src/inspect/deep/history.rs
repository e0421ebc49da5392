//! The audit log against the folders: unbroken, one outcome for each budget, and its last word
//! on each handoff is where that handoff stands. And the other way: each outcome and each wait has its
//! line, which is on disk before the record.

use std::collections::{HashMap, HashSet};
use std::io;

use super::gather::{Seen, Standing};
use super::{Breach, Fault, Invariant, Report};
use crate::protocol::lifecycle::State;
use crate::protocol::shown::word;
use crate::spool::layout::Layout;
use crate::store::audit::{self, Line, TORN_LINE, Word};

const BY_HAND: &str = "if nobody moved it by hand, something is wrong: see its lines with \
handoffd audit ID";

/// What the log says of one handoff.
#[derive(Debug)]
struct Told {
    /// Where it went last, by which revision, and in which line.
    to: State,
    revision: u64,
    /// The last revision that was ever told.
    highest: u64,
    seq: u64,
    /// The outcome of the present budget, and its line.
    outcome: Option<(u64, u64)>,
    /// Somebody deleted it, and the daemon knows.
    gone: bool,
}

pub fn check(layout: &Layout, seen: &mut Seen, works: bool, report: &mut Report) -> io::Result<()> {
    let mut told: HashMap<String, Told> = HashMap::new();
    let mut twice: Vec<(String, u64, u64)> = Vec::new();
    let mut outcomes: HashSet<(String, State, Option<u64>)> = HashSet::new();
    let mut first = None;
    let mut torn_at = 0;
    let dir = layout.audit();
    if !dir.is_dir() {
        return Ok(());
    }
    let verdict = audit::verify_each(&dir, |line| {
        first.get_or_insert(line.seq);
        if line.event == TORN_LINE {
            torn_at = line.seq;
        }
        if let Some((id, state, revision)) = audit::Outcome::key_of(line)
            && seen.ids.contains_key(id)
        {
            outcomes.insert((id.to_owned(), state, revision));
        }
        if let Some(id) = &line.handoff_id {
            note(&mut told, &mut twice, id, line, torn_at);
        }
    })?;
    report.examined.audit_lines += verdict.lines;
    for problem in &verdict.problems {
        let fault = Fault::new(
            Invariant::Audit,
            format!("line {}: {}", problem.line, problem.fault),
            "if the log was archived or edited on purpose, ignore this; else compare it with a \
             backup",
        );
        let path = layout.relative(&dir.join(&problem.file));
        report.breaches.push(fault.at(path, None));
    }
    if verdict.problem_count > verdict.problems.len() as u64 {
        let more = verdict.problem_count - verdict.problems.len() as u64;
        let fault = Fault::new(
            Invariant::Audit,
            format!("{more} more lines were changed after they were written"),
            "see all of it: handoffd audit --verify",
        );
        report.breaches.push(fault.at(layout.relative(&dir), None));
    }
    seen.log_is_complete = first.is_none_or(|first| first == 1);
    for (id, before, again) in twice {
        let fault = Fault::new(
            Invariant::Outcome,
            format!("{id} ended twice without a new start: lines {before} and {again} of the log"),
            format!("see them: handoffd audit {id}"),
        );
        report.breaches.push(fault.at(layout.relative(&dir), None));
    }
    compare(layout, seen, &told, works, report);
    without_line(layout, seen, &told, &outcomes, report)?;
    seen.audited = told.into_keys().collect();
    Ok(())
}

/// Records that the log knows nothing of: somebody else made or edited them.
fn without_line(
    layout: &Layout,
    seen: &Seen,
    told: &HashMap<String, Told>,
    outcomes: &HashSet<(String, State, Option<u64>)>,
    report: &mut Report,
) -> io::Result<()> {
    let mut asked = Vec::new();
    let mut places = Vec::new();
    for (id, standings) in &seen.ids {
        for standing in standings {
            let Some(record) = &standing.record else {
                continue;
            };
            if let Some(outcome) = &record.outcome
                && !outcomes.contains(&(id.clone(), standing.state, outcome.revision))
            {
                asked.push(outcome.clone());
                places.push(standing);
            }
            let is_wait = standing.state == State::Waiting && seen.log_is_complete;
            if is_wait && !told.contains_key(id) {
                report.breaches.push(no_line(standing, "it waits", id));
            }
        }
    }
    if asked.is_empty() {
        return Ok(());
    }
    // The log may begin after they ended.
    let words = audit::outcomes(&layout.audit(), &asked)?;
    let never = |(word, standing)| (word == Word::Never).then_some(standing);
    for standing in words.into_iter().zip(places).filter_map(never) {
        let id = standing.path.rsplit('/').next().unwrap_or_default();
        let id = id.strip_suffix(".json").unwrap_or(id);
        report
            .breaches
            .push(no_line(standing, "it has an outcome", id));
    }
    Ok(())
}

fn no_line(standing: &Standing, what: &str, id: &str) -> Breach {
    let fault = Fault::new(
        Invariant::Audit,
        format!("{what}, and the audit log has no line of it: somebody else made or edited it"),
        format!(
            "don't believe it; move it away: mv {} {}",
            word(&standing.path),
            word(&format!("{id}.json"))
        ),
    );
    fault.at(standing.path.clone(), standing.identity)
}

/// Takes in one line about a handoff; one without a revision is about a file, or a command.
fn note(
    told: &mut HashMap<String, Told>,
    twice: &mut Vec<(String, u64, u64)>,
    id: &str,
    line: &Line,
    torn_at: u64,
) {
    if line.event == "record_gone" {
        if let Some(told) = told.get_mut(id) {
            told.gone = true;
        }
        return;
    }
    let text = |key: &str| line.detail.get(key).and_then(|value| value.as_str());
    let state = |word: Option<&str>| {
        State::ALL
            .into_iter()
            .find(|state| Some(state.status()) == word)
    };
    let (Some(to), Some(revision)) = (
        state(text("to")),
        line.detail
            .get("revision")
            .and_then(serde_json::Value::as_u64),
    ) else {
        return;
    };
    let seq = line.seq;
    let before = told.get(id);
    let mut outcome = before.and_then(|before| before.outcome);
    // A new budget: dropped again, retried by somebody, or put back by hand.
    let anew = state(text("from")).is_some_and(|from| from.is_final() || from == State::Pending)
        || line.event == "recovered";
    // The daemon ended between the line and its record: what it says now is what came true. A
    // power cut may have taken revisions before that one too, which were then told anew.
    let highest = before.map_or(0, |before| before.highest);
    let again = line.detail.get("again") == Some(&true.into()) && revision <= highest;
    if anew || again {
        outcome = None;
    }
    if to.is_final() {
        if let Some((of, at)) = outcome {
            // A write that was cut off says its lines again; a torn line in between shows that.
            if of != revision || torn_at < at {
                twice.push((id.to_owned(), at, seq));
            }
        }
        outcome = Some((revision, seq));
    }
    let now = Told {
        to,
        revision,
        highest: highest.max(revision),
        seq,
        outcome,
        gone: false,
    };
    match told.get_mut(id) {
        Some(before) => *before = now,
        None => drop(told.insert(id.to_owned(), now)),
    }
}

fn compare(
    layout: &Layout,
    seen: &Seen,
    told: &HashMap<String, Told>,
    works: bool,
    report: &mut Report,
) {
    for (id, told) in told {
        let Some(standing) = seen.of(id) else {
            let stands =
                seen.exists(id) || seen.ids.contains_key(id) || !layout.states_of(id).is_empty();
            if !told.to.is_final() && !told.gone && !stands {
                let fault = Fault::new(
                    Invariant::OneFolder,
                    format!(
                        "{id} went to {}/ (line {} of the log), and is in no folder now",
                        told.to.folder(),
                        told.seq
                    ),
                    format!(
                        "if nobody deleted it, look for it in .handoffd/; to drop its request \
                         again, see: handoffd audit {id}"
                    ),
                );
                report
                    .breaches
                    .push(fault.at(layout.relative(layout.handoffs()), None));
            }
            continue;
        };
        let Some(record) = &standing.record else {
            continue;
        };
        // The line is written before the move, and with the decision.
        let carried_on = works && record.to == Some(told.to);
        if told.to == standing.state || carried_on {
            continue;
        }
        // Decided and not moved is a breach of its own.
        if record.to == Some(told.to) && record.revision == told.revision {
            continue;
        }
        let fault = Fault::new(
            Invariant::Audit,
            format!(
                "it is in {}/, but its last line in the audit log ({}) says {}",
                standing.state.folder(),
                told.seq,
                told.to.status()
            ),
            BY_HAND.replace("ID", id),
        );
        report
            .breaches
            .push(fault.at(standing.path.clone(), standing.identity));
    }
}
