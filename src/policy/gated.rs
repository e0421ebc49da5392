//! Approved work whose quality gate fails: it goes back with the reason, and the answer stays.
//!
//! A person answers a question; a gate guards a phase. One never replaces the other, so work that a
//! person approved and a gate refuses is neither completed nor handed on: its specialist runs again
//! and finds the answer and the gate's reason in its record. Work that no specialist of this
//! handoff did (a person's own answer, a dropped report) fails.

use serde_json::Value;

use crate::policy::complete::warn;
use crate::policy::human::asked_by;
use crate::policy::judge::Failure;
use crate::policy::next::{Decision, Facts, digest, failed};
use crate::protocol::attempt::AttemptError;
use crate::protocol::record::Record;

/// Decides a record that waits for a person and got the answer `answer`, which approves it, when
/// `told` says which gate refused the work.
pub fn send_back(
    record: &mut Record,
    answer: Option<Value>,
    mut told: Failure,
    facts: &Facts<'_>,
) -> Decision {
    let who = answer
        .as_ref()
        .and_then(|answer| answer.get("by")?.as_str())
        .unwrap_or("a human")
        .to_owned();
    told.retryable &= asked_by(record).is_none();
    // What was found out before the question gives way to what the gates found out.
    record.meta.lifted.retain(|key| key != "validation");
    record.doc.shift_remove("validation");
    if let Some(last) = record.meta.attempts.last_mut() {
        last.outcome = Some(told.outcome);
        last.error.get_or_insert_with(|| AttemptError {
            code: told.code.to_string(),
            message: digest(&told.message),
            fields: told.fields.clone(),
        });
    }
    let warning = format!("approved by {who}, but {}", told.message);
    told.message.clone_from(&warning);
    let decision = failed(record, &told, facts);
    if let Some(answer) = answer {
        record.set("answer", answer);
    }
    warn(record, vec![warning]);
    decision
}

#[cfg(test)]
#[path = "gated_tests.rs"]
mod tests;
