//! One record by itself: whether what the daemon wrote into it fits together and fits the folder.

use super::{Fault, Invariant};
use crate::protocol::error::ErrorCode;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;

const COMPARE: &str = "compare it with its lines in the audit log (handoffd audit ID) and fix \
it, or move it away and drop the request again";

/// What is wrong with a record that stands in `state` under `id`.
pub fn check(record: &Record, id: &str, state: State, works: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let meta = &record.meta;
    let mut whole = |what: String| faults.push(Fault::new(Invariant::WholeRecord, what, COMPARE));
    let told = record.doc.get("handoff_id").and_then(|id| id.as_str());
    if told != Some(id) {
        whole(format!(
            "handoff_id is {told:?}, but the file is named {id}"
        ));
    }
    let to = meta.to.unwrap_or(state);
    let status = record.doc.get("status").and_then(|status| status.as_str());
    if status != Some(to.status()) {
        whole(format!(
            "status is {}; it should be {}",
            status.unwrap_or("missing"),
            to.status()
        ));
    }
    if meta.revision == 0 {
        whole("revision is 0; the first revision is 1".to_owned());
    }
    if meta.spent > meta.attempts.len() {
        whole(format!(
            "{} attempts of earlier budgets, but only {} attempts in all",
            meta.spent,
            meta.attempts.len()
        ));
    }
    if let Some(sha256) = &meta.request_sha256
        && (sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        whole("request_sha256 is not a SHA-256 hash".to_owned());
    }
    if to != State::Waiting && record.doc.contains_key("waiting") {
        whole(format!("it has a waiting block, but is {}", to.status()));
    }
    if to != state {
        faults.extend(decided(state, to, works));
    }
    attempts(record, to, &mut faults);
    faults
}

/// A record that says where it goes, and stands elsewhere.
fn decided(state: State, to: State, works: bool) -> Option<Fault> {
    let (from, next) = (state.folder(), to.folder());
    if !state.may_become(to) {
        let what = format!(
            "it is in {from}/ and is decided for {next}/, which is not a legal \
        move"
        );
        return Some(Fault::new(Invariant::Decided, what, COMPARE));
    }
    (!works).then(|| {
        let what = format!("it is decided for {next}/ but still in {from}/");
        let then = "start the daemon: it finishes the move";
        Fault::new(Invariant::Decided, what, then)
    })
}

/// Numbers rise, and only the last attempt may be open, while the record is in progress.
fn attempts(record: &Record, to: State, faults: &mut Vec<Fault>) {
    let mut wrong = |what: String| faults.push(Fault::new(Invariant::Attempts, what, COMPARE));
    let attempts = &record.meta.attempts;
    for pair in attempts.windows(2) {
        if pair[1].number <= pair[0].number {
            wrong(format!(
                "attempt {} is listed after attempt {}",
                pair[1].number, pair[0].number
            ));
        }
    }
    if attempts.first().is_some_and(|first| first.number == 0) {
        wrong("an attempt has the number 0".to_owned());
    }
    let open = |number: u32| format!("attempt {number} has no outcome, but is not running");
    if let Some((last, before)) = attempts.split_last() {
        for attempt in before.iter().filter(|attempt| attempt.outcome.is_none()) {
            wrong(open(attempt.number));
        }
        if last.outcome.is_none() && to != State::InProgress {
            wrong(open(last.number));
        }
    }
    if to == State::InProgress && record.running_attempt().is_none() {
        wrong("in progress, but no attempt runs".to_owned());
    }
    for attempt in attempts {
        if let Some(error) = &attempt.error
            && ErrorCode::parse(&error.code).is_none()
        {
            wrong(format!(
                "attempt {} failed with {}, which is not an error code",
                attempt.number, error.code
            ));
        }
    }
}
