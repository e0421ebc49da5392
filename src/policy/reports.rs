//! Results that are reports: the rules that they must keep to, and what a blocked one says.
//!
//! Work that was paid for is not thrown away over bookkeeping: what can be filled in is filled in,
//! with a warning.

use serde_json::{Map, Value};

use crate::policy::judge::{Failure, MEND, failure};
use crate::policy::lint::{is_vague, says_nothing};
use crate::policy::rules::{
    self, ATTEMPTED, BLOCKED_BY, BLOCKED_NEXT, BLOCKED_REASON, BLOCKERS, CONTEXT, FIELD_TYPES,
    Finding, Kind, LISTED_REASON, MEASURABLE, PHASE, STATUS, SUMMARY, TELLING_SUMMARY,
};
use crate::protocol::attempt::AttemptOutcome;
use crate::protocol::error::ErrorCode;
use crate::protocol::field::{FieldError, present};
use crate::protocol::fields::{BLOCKED_REASONS, REPORT};
use crate::protocol::report::{ends, says};
use crate::protocol::result::{Claim, SYNONYMS};
use crate::protocol::shape::{check_fields, join};

/// A receiver that asks back is blocked, whatever else its result says.
pub(super) fn asks_for_clarification(result: &Map<String, Value>) -> bool {
    let action = result
        .get("acknowledgment")
        .and_then(|it| it.get("action")?.as_str());
    action == Some("request_clarification")
}

/// Why a result is blocked. A reason that is not of the list is not known.
pub fn blocked_reason(result: &Map<String, Value>) -> &str {
    let named = result.get("blocked_reason").and_then(Value::as_str);
    match named {
        Some(named) if BLOCKED_REASONS.contains(&named) => named,
        None if asks_for_clarification(result) => "missing_requirements",
        _ => "unknown",
    }
}

/// The end of an attempt that its result says nothing of.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known<'a> {
    pub phase: Option<&'a str>,
    /// The text beside the result.
    pub text: Option<&'a str>,
    pub strict: bool,
}

/// Holds a result that says how it ended against the rules, and fills in what it lacks. Returns
/// warnings, or the failure of a result that breaks a rule; its specialist can fix that.
pub(super) fn check(
    claimed: Option<Claim>,
    result: &mut Map<String, Value>,
    known: Known<'_>,
) -> Result<Vec<String>, Box<Failure>> {
    let mut sorted = rules::sort(findings(claimed, result), Kind::Result, known.strict);
    sorted.warnings = rules::bounded(sorted.warnings);
    if !sorted.errors.is_empty() {
        return Err(Box::new(broken(sorted.errors, result)));
    }
    let filled = if is_report(claimed, result) {
        fill_in(claimed, result, known)
    } else {
        Vec::new()
    };
    let told = |warning: &FieldError| {
        let note = filled.iter().find(|(field, _)| *field == warning.field);
        match note {
            Some((_, note)) => format!("{warning}; {note}"),
            None => warning.to_string(),
        }
    };
    Ok(sorted.warnings.iter().map(told).collect())
}

fn broken(fields: Vec<FieldError>, result: &Map<String, Value>) -> Failure {
    let list: Vec<String> = fields.iter().map(ToString::to_string).collect();
    let mut told = failure(
        ErrorCode::ValidationFailed,
        format!(
            "the result breaks the rules for reports: {}",
            list.join("; ")
        ),
        vec![MEND.to_owned()],
    );
    told.fields = fields;
    told.result = Some(result.clone());
    told
}

/// Whether a result is a report: it has a `handoff`, or is blocked, or asks for a review. One that
/// asks back, and one that delegates, need not be.
fn is_report(claimed: Option<Claim>, result: &Map<String, Value>) -> bool {
    match claimed {
        Some(Claim::Blocked) => !asks_for_clarification(result),
        Some(Claim::NeedsReview) => true,
        Some(Claim::Delegate | Claim::Failed) => false,
        Some(Claim::Complete) | None => present(result, "handoff").is_some(),
    }
}

/// What a result breaks of the rules.
fn findings(claimed: Option<Claim>, result: &Map<String, Value>) -> Vec<Finding> {
    let mut found = Vec::new();
    match present(result, "status").and_then(Value::as_str) {
        Some(word) if SYNONYMS.contains(&word) => {
            let why = format!("{word:?} is read as complete");
            found.push(Finding::new(&STATUS, "status", why));
        }
        _ => {}
    }
    if matches!(claimed, Some(Claim::Delegate | Claim::Failed)) {
        return found;
    }
    if is_report(claimed, result) {
        if claimed.is_none() {
            let why = "missing: a result with a handoff needs a status; read as complete";
            found.push(Finding::new(&STATUS, "status", why));
        }
        let mut wrong = Vec::new();
        check_fields(REPORT, result, "", &mut wrong);
        found.extend(wrong.into_iter().map(|error| {
            let rule = match error.field.as_str() {
                "blocked_reason" => &LISTED_REASON,
                _ => &FIELD_TYPES,
            };
            Finding::new(rule, error.field, error.error)
        }));
        if claimed == Some(Claim::Blocked) {
            blocked_findings(result, &mut found);
        }
        report_findings(result, claimed == Some(Claim::Blocked), &mut found);
    }
    if claimed.is_some() || is_report(claimed, result) {
        quality(result, &mut found);
    }
    if matches!(claimed, Some(Claim::Complete) | None) {
        found.extend(rules::contradictions(result));
    }
    found
}

/// What only a blocked report must have.
fn blocked_findings(result: &Map<String, Value>, found: &mut Vec<Finding>) {
    let none = Map::new();
    let handoff = result.get("handoff").and_then(Value::as_object);
    let handoff = handoff.unwrap_or(&none);
    let mut missing = |rule, field: &str, why: &str| found.push(Finding::new(rule, field, why));
    let names_reason = present(result, "blocked_reason").is_some_and(Value::is_string);
    if !names_reason || !says(result, "blocked_reason") {
        let why = "missing: a blocked report needs the reason";
        missing(&BLOCKED_REASON, "blocked_reason", why);
    }
    if !says(result, "attempted") {
        let why = "missing: a blocked report needs what was tried";
        missing(&ATTEMPTED, "attempted", why);
    }
    if !says(handoff, "blockers") && !says(handoff, "context") {
        let why = "missing: a blocked report needs handoff.blockers or handoff.context";
        missing(&BLOCKED_BY, "handoff.blockers", why);
    }
    if present(handoff, "next_agent").is_some() {
        let why = "must be null when blocked: routes.blocked decides who helps";
        missing(&BLOCKED_NEXT, "handoff.next_agent", why);
    }
}

/// What a report breaks of the rules to their letter.
fn report_findings(report: &Map<String, Value>, blocked: bool, found: &mut Vec<Finding>) {
    let none = Map::new();
    let handoff = report.get("handoff").and_then(Value::as_object);
    let handoff = handoff.unwrap_or(&none);
    let mut put = |rule, field: &str, why: &str| found.push(Finding::new(rule, field, why));
    if !says(report, "phase") {
        put(&PHASE, "phase", "missing: a report needs its phase");
    }
    if !says(report, "summary") {
        put(&SUMMARY, "summary", "missing: a report needs a summary");
    }
    if !says(handoff, "context") && !ends(handoff) {
        let why = "missing: the next agent needs it, unless handoff.next_phase is complete";
        put(&CONTEXT, "handoff.context", why);
    }
    let blockers = says(handoff, "blockers");
    let summary = present(report, "summary").and_then(Value::as_str);
    if let Some(summary) = summary.filter(|summary| !summary.trim().is_empty()) {
        found.extend(telling("summary", summary));
    }
    match (blocked, blockers) {
        (true, false) => {
            let why = "missing: a blocked report needs its blockers";
            found.push(Finding::new(&BLOCKERS, "handoff.blockers", why));
        }
        (false, true) => {
            let why = "only a blocked report may have blockers";
            found.push(Finding::new(&BLOCKERS, "handoff.blockers", why));
        }
        _ => {}
    }
}

/// What a report or a result breaks of the rules of quality.
fn quality(document: &Map<String, Value>, found: &mut Vec<Finding>) {
    found.extend(rules::foreign_files(document));
    found.extend(rules::odd_hashes(document.get("artifacts"), "artifacts"));
    found.extend(rules::odd_severities(document));
    let questions = document.get("open_questions");
    found.extend(rules::odd_priorities(questions, "open_questions"));
    let handoff = document.get("handoff").and_then(Value::as_object);
    if let Some(handoff) = handoff {
        let questions = handoff.get("open_questions");
        found.extend(rules::odd_priorities(questions, "handoff.open_questions"));
        found.extend(vague(handoff.get("expectations"), "handoff.expectations"));
    }
}

/// What a dropped report breaks of the rules, besides those that it must keep to be one.
pub(super) fn dropped_findings(report: &Map<String, Value>, status: Option<&str>) -> Vec<Finding> {
    let mut found = Vec::new();
    report_findings(report, status == Some("blocked"), &mut found);
    quality(report, &mut found);
    if status == Some("complete") {
        found.extend(rules::contradictions(report));
    }
    found
}

/// A summary that says nothing.
pub(super) fn telling(field: &str, summary: &str) -> Option<Finding> {
    says_nothing(summary).then(|| {
        let why = format!(
            "{:?} is too vague: write what was done, with names and figures",
            short(summary)
        );
        Finding::new(&TELLING_SUMMARY, field, why)
    })
}

/// Criteria and constraints that nobody can check.
pub(super) fn vague(expectations: Option<&Value>, path: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for key in ["constraints", "success_criteria"] {
        let criteria = expectations.and_then(|it| it.get(key));
        for (at, criterion) in listed(criteria).into_iter().enumerate() {
            if is_vague(criterion) {
                let field = format!("{}[{at}]", join(path, key));
                let why = format!("{:?} can't be measured", short(criterion));
                found.push(Finding::new(&MEASURABLE, field, why));
            }
        }
    }
    found
}

/// Text, or a list of it.
pub(super) fn listed(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Fills in what a report lacks and others need, and says of each field where it is from.
fn fill_in(
    claimed: Option<Claim>,
    report: &mut Map<String, Value>,
    known: Known<'_>,
) -> Vec<(&'static str, String)> {
    let mut filled = Vec::new();
    if claimed.is_none() && present(report, "status").is_none() {
        report.insert("status".to_owned(), "complete".into());
    }
    if let Some(phase) = known.phase.filter(|_| !says(report, "phase")) {
        report.insert("phase".to_owned(), phase.into());
        filled.push(("phase", format!("filled in from the target: {phase:?}")));
    }
    if !says(report, "summary")
        && let Some(summary) = known.text.and_then(first_words)
    {
        report.insert("summary".to_owned(), summary.into());
        filled.push(("summary", "filled in from the text".to_owned()));
    }
    let summary = report
        .get("summary")
        .filter(|_| says(report, "summary"))
        .filter(|summary| summary.is_string())
        .cloned();
    if let (Some(summary), Some(Value::Object(handoff))) = (summary, report.get_mut("handoff"))
        && claimed != Some(Claim::Blocked)
        && !says(handoff, "context")
        && !ends(handoff)
    {
        handoff.insert("context".to_owned(), summary);
        filled.push(("handoff.context", "filled in from summary".to_owned()));
    }
    filled
}

/// The first paragraph of a text that is no heading, on one line and bounded.
fn first_words(text: &str) -> Option<String> {
    const MOST: usize = 300;
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .skip_while(|line| line.is_empty() || line.starts_with('#'))
        .take_while(|line| !line.is_empty())
        .collect();
    let heading = || {
        text.lines()
            .map(|line| line.trim_matches(['#', ' ', '\t', '\r']))
    };
    let words = match lines.join(" ") {
        words if words.is_empty() => heading().find(|line| !line.is_empty())?.to_owned(),
        words => words,
    };
    Some(match words.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", words[..at].trim_end()),
        None => words,
    })
}

/// What a blocked specialist is told where nobody can help it.
pub fn blocked(result: Map<String, Value>) -> Failure {
    let reason = blocked_reason(&result);
    let acknowledged = result.get("acknowledgment");
    let blockers = acknowledged
        .and_then(|it| it.get("blockers").or_else(|| it.get("questions")))
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect::<Vec<_>>())
        .filter(|list| !list.is_empty())
        .map(|list| list.join("; "));
    let said = result
        .get("summary")
        .or_else(|| {
            result
                .get("handoff")
                .and_then(|handoff| handoff.get("context"))
        })
        .and_then(Value::as_str)
        .or(blockers.as_deref());
    let message = match said {
        Some(said) => format!("the specialist is blocked ({reason}): {said}"),
        None => format!("the specialist is blocked ({reason})"),
    };
    let mut actions = vec![format!(
        "Resolve what blocks the specialist ({reason}), add the answer to the request and retry"
    )];
    if result.get("attempted").is_some_and(|it| !it.is_null()) {
        actions.push("result.attempted lists what the specialist tried".to_owned());
    }
    Failure {
        outcome: AttemptOutcome::Blocked,
        result: Some(result),
        ..failure(ErrorCode::Blocked, message, actions)
    }
}

#[cfg(test)]
#[path = "reports_tests.rs"]
mod tests;
