//! The rules of quality, in one table: what a report, a result and a package must say, and which
//! of the rules only count to the letter.
//!
//! A rule that counts to the letter is a warning, and an error with `intake.strict`. A rule that
//! must be kept is always an error. The shapes of fields that the daemon acts on are no rules of
//! quality: they stand in [`crate::protocol::fields`] and [`crate::protocol::result_fields`].

use serde_json::{Map, Value};

use crate::protocol::field::{FieldError, present};

/// What it means to break a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// An error, always.
    Must,
    /// A warning, and an error with `intake.strict`.
    Letter,
    /// The rule is not about documents of this kind.
    None,
}

/// The kinds of documents that have rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A report that was dropped.
    Report,
    /// The result of an attempt.
    Result,
    Package,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    pub name: &'static str,
    /// What the rule asks for.
    pub says: &'static str,
    report: Weight,
    result: Weight,
    package: Weight,
}

impl Rule {
    pub fn weight(&self, kind: Kind) -> Weight {
        match kind {
            Kind::Report => self.report,
            Kind::Result => self.result,
            Kind::Package => self.package,
        }
    }
}

macro_rules! rules {
    ($($id:ident $name:literal $report:ident $result:ident $package:ident $says:literal;)*) => {
        $(pub static $id: Rule = Rule {
            name: $name,
            says: $says,
            report: Weight::$report,
            result: Weight::$result,
            package: Weight::$package,
        };)*
        pub static RULES: &[&Rule] = &[$(&$id),*];
    };
}

#[rustfmt::skip]
rules! {
    // rule          name                     report result package
    STATUS           "report-status"          Must   Letter None   "a report has one of the listed statuses";
    PHASE            "report-phase"           Letter Letter None   "a report has a phase (a \
    dropped report may have output_type instead)";
    SUMMARY          "report-summary"         Letter Letter None   "a report has a summary (a \
    dropped report may have handoff.context instead)";
    CONTEXT          "report-context"         Letter Letter None   "a report has handoff.context \
    for the next agent, unless next_phase is complete (a dropped report that is not blocked must \
    have it)";
    BLOCKERS         "report-blockers"        Letter Letter None   "a blocked report, and only a \
    blocked one, has handoff.blockers";
    BLOCKED_REASON   "blocked-reason"         Must   Must   None   "a blocked report has a blocked_reason";
    LISTED_REASON    "listed-blocked-reason"  Must   Letter None   "blocked_reason is one of the \
    listed reasons";
    ATTEMPTED        "blocked-attempted"      Must   Must   None   "a blocked report has attempted";
    BLOCKED_BY       "blocked-by"             Must   Must   None   "a blocked report has handoff.blockers or handoff.context";
    BLOCKED_NEXT     "blocked-next-agent"     Must   Must   None   "handoff.next_agent is null in a blocked report";
    FIELD_TYPES      "report-field-types"     Must   Letter None   "the fields of a report have \
    the right types";
    CONSISTENT       "consistent"             Letter Letter None   "complete work has no false \
    verification flag and no failed quality gate";
    RELATIVE_FILES   "relative-files"         Letter Letter None   "files_modified has paths relative to the root";
    TELLING_SUMMARY  "telling-summary"        Letter Letter Letter "a summary says what was \
    done, with names and figures";
    MEASURABLE       "measurable"             Letter Letter Letter "criteria and constraints can be measured";
    PRIORITY         "question-priority"      Letter Letter Letter "the priority of an open question is high, medium or low";
    SEVERITY         "issue-severity"         Letter Letter None   "the severity of a blocking \
    issue is blocker, high, medium or low";
    CONTENT_HASH     "content-hash"           Letter Letter Letter "content_hash and sha256 are \
    SHA-256 hashes of 64 hexadecimal digits";
    ARTIFACT_PATH    "artifact-path"          Letter Must   Letter "an artifact has a path";
    ARTIFACT_EXISTS  "artifact-exists"        Letter Must   Must   "an artifact is there, inside the root";
    ARTIFACT_TYPE    "artifact-type"          None   None   Letter "the type of an artifact is spec, code, doc or config";
    HANDOFF_TYPE     "handoff-type"           None   None   Letter "the type of a handoff is sequential, delegation, escalation or return";
    PACKAGE_SUMMARY  "package-summary"        None   None   Must   "a package has context.summary";
    DELIVERABLE      "package-deliverable"    None   None   Must   "expectations have a deliverable";
}

/// A rule that a document breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub rule: &'static Rule,
    /// Where, and how; the text names the rule.
    pub error: FieldError,
}

impl Finding {
    pub fn new(rule: &'static Rule, field: impl Into<String>, why: impl std::fmt::Display) -> Self {
        let why = format!("{why} (rule {})", rule.name);
        Self {
            rule,
            error: FieldError::new(field, why),
        }
    }
}

/// What is to be made of findings: errors, and warnings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sorted {
    pub errors: Vec<FieldError>,
    pub warnings: Vec<FieldError>,
}

pub fn sort(findings: Vec<Finding>, kind: Kind, strict: bool) -> Sorted {
    let mut sorted = Sorted::default();
    for Finding { rule, error } in findings {
        match rule.weight(kind) {
            Weight::Must => sorted.errors.push(error),
            Weight::Letter if strict => sorted.errors.push(error),
            Weight::Letter => sorted.warnings.push(error),
            Weight::None => {}
        }
    }
    sorted
}

/// The most warnings of one document.
const MOST_WARNINGS: usize = 50;

/// The first warnings, and how many more there are: a document may break a rule in each of its values.
#[must_use]
pub fn bounded(mut warnings: Vec<FieldError>) -> Vec<FieldError> {
    let more = warnings.len().saturating_sub(MOST_WARNINGS);
    if more > 0 {
        warnings.truncate(MOST_WARNINGS);
        warnings.push(FieldError::new("warnings", format!("{more} more")));
    }
    warnings
}

/// Open questions whose priority is not of the list.
pub fn odd_priorities(questions: Option<&Value>, path: &str) -> Vec<Finding> {
    const PRIORITIES: [&str; 3] = ["high", "medium", "low"];
    odd_words(questions, path, "priority", &PRIORITIES, &PRIORITY)
}

/// Artifacts whose type is not of a package's list.
pub fn odd_types(artifacts: Option<&Value>, path: &str) -> Vec<Finding> {
    const TYPES: [&str; 4] = ["spec", "code", "doc", "config"];
    odd_words(artifacts, path, "type", &TYPES, &ARTIFACT_TYPE)
}

fn odd_words(
    list: Option<&Value>,
    path: &str,
    key: &str,
    words: &[&str],
    rule: &'static Rule,
) -> Vec<Finding> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    let odd = items.enumerate().filter_map(|(at, item)| {
        let word = present(item.as_object()?, key)?;
        let known = word.as_str().is_some_and(|word| words.contains(&word));
        (!known).then(|| {
            let why = format!("{word} is not one of {}", words.join(", "));
            Finding::new(rule, format!("{path}[{at}].{key}"), why)
        })
    });
    odd.collect()
}

/// Hashes of artifacts that are no SHA-256.
pub fn odd_hashes(artifacts: Option<&Value>, path: &str) -> Vec<Finding> {
    let items = artifacts.and_then(Value::as_array).into_iter().flatten();
    let mut found = Vec::new();
    for (at, item) in items.enumerate() {
        let Some(item) = item.as_object() else {
            continue;
        };
        for key in ["content_hash", "sha256"] {
            if let Some(hash) = present(item, key).filter(|hash| !is_sha256(hash)) {
                let why = format!("{hash} is not a SHA-256 hash (64 hexadecimal digits)");
                found.push(Finding::new(
                    &CONTENT_HASH,
                    format!("{path}[{at}].{key}"),
                    why,
                ));
            }
        }
    }
    found
}

fn is_sha256(hash: &Value) -> bool {
    let hash = hash.as_str().unwrap_or_default();
    let digits = hash.strip_prefix("sha256:").unwrap_or(hash);
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Work that is called complete and contradicts that.
pub fn contradictions(document: &Map<String, Value>) -> Vec<Finding> {
    let mut found = Vec::new();
    let flags = document.get("verification").and_then(Value::as_object);
    for (name, _) in flags
        .into_iter()
        .flatten()
        .filter(|(_, flag)| **flag == Value::Bool(false))
    {
        let why = "is false, but the status says the work is complete";
        found.push(Finding::new(
            &CONSISTENT,
            format!("verification.{name}"),
            why,
        ));
    }
    let failed = document
        .get("quality_gates")
        .and_then(|gates| gates.get("failed"));
    let names: Vec<String> = match failed {
        Some(Value::String(name)) if !name.is_empty() => vec![name.clone()],
        Some(Value::Array(names)) => names.iter().map(name_of).collect(),
        Some(Value::Object(names)) => names.keys().cloned().collect(),
        _ => Vec::new(),
    };
    if !names.is_empty() {
        let why = format!(
            "lists {}, but the status says the work is complete",
            names.join(", ")
        );
        found.push(Finding::new(&CONSISTENT, "quality_gates.failed", why));
    }
    found
}

fn name_of(gate: &Value) -> String {
    let named = gate.as_str().or_else(|| gate.get("name")?.as_str());
    named.map_or_else(|| gate.to_string(), str::to_owned)
}

/// Paths in `files_modified` that are not relative to the root.
pub fn foreign_files(document: &Map<String, Value>) -> Vec<Finding> {
    let files = document.get("files_modified").and_then(Value::as_array);
    let named = files.into_iter().flatten().enumerate();
    let foreign = named.filter_map(|(at, file)| {
        let path = file.as_str().filter(|path| !is_relative(path))?;
        let why = format!("{path:?} is not relative to the root");
        Some(Finding::new(
            &RELATIVE_FILES,
            format!("files_modified[{at}]"),
            why,
        ))
    });
    foreign.collect()
}

/// Whether a path can only be read as relative to the root, on any system.
fn is_relative(path: &str) -> bool {
    let has_drive = path.as_bytes().get(1) == Some(&b':')
        && path.starts_with(|first: char| first.is_ascii_alphabetic());
    let leads_out = path.starts_with(['/', '\\', '~']) || path.contains("://");
    let climbs = path.split(['/', '\\']).any(|part| part == "..");
    !(has_drive || leads_out || climbs)
}

/// Issues whose severity is not of the list.
pub fn odd_severities(document: &Map<String, Value>) -> Vec<Finding> {
    const SEVERITIES: [&str; 4] = ["blocker", "high", "medium", "low"];
    let issues = document.get("blocking_issues");
    odd_words(
        issues,
        "blocking_issues",
        "severity",
        &SEVERITIES,
        &SEVERITY,
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_rule_has_a_name_of_its_own_and_is_about_something() {
        let mut names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for rule in RULES {
            let kinds = [Kind::Report, Kind::Result, Kind::Package];
            assert!(kinds.iter().any(|kind| rule.weight(*kind) != Weight::None));
            assert!(!rule.says.is_empty());
        }
    }

    #[test]
    fn the_documentation_names_every_rule() {
        let page = include_str!("../../docs/dialects.md");
        for rule in RULES {
            assert!(page.contains(&format!("`{}`", rule.name)), "{}", rule.name);
        }
    }

    #[test]
    fn strict_makes_errors_of_what_counts_to_the_letter() {
        let found = || {
            vec![
                Finding::new(&PACKAGE_SUMMARY, "a", "w"),
                Finding::new(&MEASURABLE, "b", "w"),
                Finding::new(&STATUS, "c", "w"),
            ]
        };
        let fields = |errors: &[FieldError]| -> String {
            errors.iter().map(|error| error.field.as_str()).collect()
        };
        for (kind, strict, errors, warnings) in [
            (Kind::Package, false, "a", "b"),
            (Kind::Package, true, "ab", ""),
            (Kind::Result, false, "", "bc"),
            (Kind::Result, true, "bc", ""),
            (Kind::Report, false, "c", "b"),
        ] {
            let sorted = sort(found(), kind, strict);
            assert_eq!(fields(&sorted.errors), errors, "{kind:?} {strict}");
            assert_eq!(fields(&sorted.warnings), warnings, "{kind:?} {strict}");
        }
        let told = Finding::new(&MEASURABLE, "b", "w").error.to_string();
        assert_eq!(told, "b: w (rule measurable)");
    }

    #[test]
    fn what_breaks_a_rule_is_named_by_its_field() {
        let hash = "a".repeat(64);
        let document = json!({
            "verification": {"tests_passed": false, "lint_passed": true, "note": "false"},
            "quality_gates": {"passed": ["a"], "failed": ["b", {"name": "c"}]},
            "files_modified": [
                "src/a.rs", "/etc/x", "../y", "a/../b", "..c", 7, "C:\\x", "~/z", "file:///x", "a~b:c",
            ],
            "artifacts": [
                {"path": "a", "type": "code", "content_hash": hash},
                {"path": "b", "type": "source", "content_hash": "abc123"},
                {"path": "c", "type": null, "sha256": format!("sha256:{hash}")},
                "d",
            ],
            "open_questions": ["q", {"priority": "high"}, {"priority": "urgent"}, {"priority": 1}],
        });
        let map = document.as_object().unwrap();
        let fields = |found: Vec<Finding>| -> Vec<String> {
            found.into_iter().map(|one| one.error.field).collect()
        };
        assert_eq!(
            fields(contradictions(map)),
            ["verification.tests_passed", "quality_gates.failed"]
        );
        let all = [
            "files_modified[1]",
            "files_modified[2]",
            "files_modified[3]",
            "files_modified[6]",
            "files_modified[7]",
            "files_modified[8]",
        ];
        assert_eq!(fields(foreign_files(map)), all);
        let artifacts = map.get("artifacts");
        assert_eq!(fields(odd_hashes(artifacts, "a")), ["a[1].content_hash"]);
        assert_eq!(fields(odd_types(artifacts, "a")), ["a[1].type"]);
        let questions = map.get("open_questions");
        assert_eq!(
            fields(odd_priorities(questions, "q")),
            ["q[2].priority", "q[3].priority"]
        );
        let issues = json!({"blocking_issues": [
            "i", {"severity": "high"}, {"severity": "urgent"}, {"severity": 3}, {"severity": null},
        ]});
        assert_eq!(
            fields(odd_severities(issues.as_object().unwrap())),
            ["blocking_issues[2].severity", "blocking_issues[3].severity"]
        );
        let clean = json!({"quality_gates": {"failed": []}, "verification": {"a": null}});
        assert_eq!(contradictions(clean.as_object().unwrap()), []);
    }
}
