//! Approved work that a gate refuses: where it goes, and what stays in its record.

use serde_json::json;

use super::*;
use crate::clock::{Now, Wall};
use crate::config::Config;
use crate::policy::human::{Kind, ask_person};
use crate::policy::judge::{Exit, failure};
use crate::policy::retry::RetryPolicy;
use crate::protocol::attempt::{Attempt, AttemptOutcome};
use crate::protocol::error::ErrorCode;
use crate::protocol::lifecycle::State;

fn sent(document: &serde_json::Value, attempts: u32, max_retries: u32) -> Record {
    let now = Now {
        wall: Wall(1000),
        boot_ms: 1000,
    };
    let mut record = Record::admit(document.as_object().unwrap().clone(), "x", None);
    for number in 1..=attempts {
        let mut attempt = Attempt::begun(number, Wall(0));
        attempt.outcome = Some(AttemptOutcome::NeedsReview);
        record.meta.attempts.push(attempt);
    }
    record.set("result", json!({"summary": "s"}));
    record.lift("validation", json!({"status": "unchecked"}));
    ask_person(&mut record, Kind::Review, "look", now, "boot");
    let config = Config::default();
    let mut retry = RetryPolicy::of(&config.defaults.retry);
    retry.max_retries = max_retries;
    let facts = Facts {
        now,
        boot: "boot",
        retry,
        chance: 0.0,
        max_interruptions: 5,
        exit: Exit::Unknown,
        log: None,
        usage: None,
        ran_ms: 0,
        cancelled: "",
        id: "x",
        config: &config,
    };
    let told = failure(
        ErrorCode::ValidationFailed,
        "a quality gate failed: unit: exited with 1".to_owned(),
        Vec::new(),
    );
    let answer = json!({"action": "approve", "by": "ann"});
    send_back(&mut record, Some(answer), told, &facts);
    record
}

#[test]
fn work_goes_back_to_its_own_specialist_and_fails_where_there_is_none() {
    let request = json!({"target": {"agent_id": "@a"}});
    let human = json!({"target": {"agent_id": "human"}});
    for (document, attempts, retries, to) in [
        (&request, 1, 3, State::Waiting),
        (&request, 1, 0, State::Failed),
        (&human, 0, 3, State::Failed),
    ] {
        let record = sent(document, attempts, retries);
        assert_eq!(record.meta.to, Some(to), "{document} {retries}");
        assert_eq!(record.doc["answer"]["by"], "ann");
        assert_eq!(record.doc["result"]["summary"], "s");
        let warning = record.doc["warnings"][0].as_str().unwrap();
        assert_eq!(
            warning,
            "approved by ann, but a quality gate failed: unit: exited with 1"
        );
        if let Some(last) = record.meta.attempts.last() {
            assert_eq!(last.outcome, Some(AttemptOutcome::Failed));
            assert_eq!(last.error.as_ref().unwrap().code, "VALIDATION_FAILED");
        }
        if to == State::Failed {
            assert_eq!(record.doc["error"]["message"], warning);
            assert_eq!(record.doc["validation"]["status"], "failed");
        } else {
            assert_eq!(record.doc["waiting"]["on"], "retry");
            assert_eq!(record.meta.retries, 1);
        }
    }
}
