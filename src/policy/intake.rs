//! What to do with a submission that was read: run it, park it, or refuse it.

use std::time::Duration;

use crate::clock::Now;
use crate::config::{Config, Specialist};
use crate::policy::human::Kind;
use crate::policy::judge::Failure;
use crate::policy::next::refusal;
use crate::policy::retry::RetryPolicy;
use crate::protocol::error::ErrorCode;
use crate::protocol::field::{FieldError, quoted};
use crate::protocol::nearest::nearest;
use crate::protocol::request::{Finished, GateKind, Request};

/// What holds for one handoff: the request, else its specialist, else the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    pub timeout: Duration,
    pub stall_timeout: Option<Duration>,
    pub kill_grace: Duration,
    pub linger: Duration,
    pub retry: RetryPolicy,
}

impl Terms {
    pub fn of(request: &Request, specialist: Option<&Specialist>, config: &Config) -> Self {
        let defaults = &config.defaults;
        let own = specialist
            .map(|specialist| specialist.retry)
            .unwrap_or_default();
        let asked = &request.retry;
        Self {
            timeout: request
                .timeout_ms
                .map(Duration::from_millis)
                .or_else(|| specialist?.timeout)
                .unwrap_or(defaults.timeout),
            stall_timeout: specialist.and_then(|specialist| specialist.stall_timeout),
            kill_grace: specialist
                .and_then(|s| s.kill_grace)
                .unwrap_or(defaults.kill_grace),
            linger: specialist.and_then(|s| s.linger).unwrap_or(defaults.linger),
            retry: RetryPolicy {
                max_retries: asked
                    .max_retries
                    .or(own.max_retries)
                    .unwrap_or(defaults.retry.max_retries),
                delay: asked
                    .delay_ms
                    .map(Duration::from_millis)
                    .or(own.delay)
                    .unwrap_or(defaults.retry.delay),
                multiplier: asked
                    .multiplier
                    .or(own.multiplier)
                    .unwrap_or(defaults.retry.multiplier),
                max_delay: own.max_delay.unwrap_or(defaults.retry.max_delay),
                jitter: own.jitter.unwrap_or(defaults.retry.jitter),
            },
        }
    }
}

/// How a handoff that another one depends on stands, read from the folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependency {
    Completed,
    Failed,
    /// Somewhere on its way.
    Live,
    /// No such id yet.
    Missing,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    Run,
    WaitForTime {
        length_ms: u64,
    },
    /// Handoffs that are not completed, artifacts that are not there.
    WaitForDependencies {
        ids: Vec<String>,
        artifacts: Vec<String>,
    },
    /// A person has to answer first: in which role.
    WaitForHuman(Kind),
    /// A report that ends its work.
    Complete,
    /// A report that is blocked: whoever the routes name is asked.
    Help,
    Refuse(Failure),
}

/// What a request needs and how that stands, read from the folders.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Needs {
    /// In the request's order.
    pub dependencies: Vec<Dependency>,
    /// Of `requires_artifacts`, those that are not there.
    pub missing_artifacts: Vec<String>,
}

/// Decides for a request that is well-formed.
pub fn plan(request: &Request, config: &Config, needs: &Needs, now: Now) -> Plan {
    let Needs {
        dependencies,
        missing_artifacts,
    } = needs;
    if let Some(asked) = request.timeout_ms
        && Duration::from_millis(asked) > config.defaults.max_timeout
    {
        let most = humantime::format_duration(config.defaults.max_timeout);
        return Plan::Refuse(refused_fields(&[FieldError::new(
            "timeout_seconds",
            format!("is above the configured defaults.max_timeout of {most}"),
        )]));
    }
    let runs = matches!(request.finished, None | Some(Finished::HandedOn));
    if runs && !request.agent.is_human() && config.specialist(&request.agent).is_none() {
        return Plan::Refuse(unknown_agent(request, config));
    }
    if let Some(wrong) = unknown_workflow(request, config) {
        return Plan::Refuse(refused_fields(&[wrong]));
    }
    if request.depends_on.contains(&request.id) {
        return Plan::Refuse(depends_on_itself(request.id.as_str()));
    }
    if let Some(at) = dependencies
        .iter()
        .position(|state| *state == Dependency::Failed)
    {
        return Plan::Refuse(dependency_failed(request.depends_on[at].as_ref()));
    }
    let unmet: Vec<String> = request
        .depends_on
        .iter()
        .zip(dependencies)
        .filter(|(_, state)| **state != Dependency::Completed)
        .map(|(id, _)| id.to_string())
        .collect();
    if !unmet.is_empty() || !missing_artifacts.is_empty() {
        return Plan::WaitForDependencies {
            ids: unmet,
            artifacts: missing_artifacts.clone(),
        };
    }
    if let Some(not_before) = request.not_before
        && not_before > now.wall
    {
        let length = not_before.0.saturating_sub(now.wall.0);
        return Plan::WaitForTime {
            length_ms: u64::try_from(length).unwrap_or(0),
        };
    }
    match request.finished {
        Some(Finished::Complete) => Plan::Complete,
        Some(Finished::NeedsReview) => Plan::WaitForHuman(Kind::Review),
        Some(Finished::Blocked) => Plan::Help,
        None | Some(Finished::HandedOn) if request.agent.is_human() => {
            Plan::WaitForHuman(Kind::Task)
        }
        None | Some(Finished::HandedOn) if request.gate == Some(GateKind::Blocking) => {
            Plan::WaitForHuman(Kind::Gate)
        }
        None | Some(Finished::HandedOn) => Plan::Run,
    }
}

/// How many of the things to mend are listed one by one.
pub const MOST_ACTIONS: usize = 5;

/// That there is more to mend than is listed.
pub fn left_out(all: usize) -> Option<String> {
    let more = all.checked_sub(MOST_ACTIONS).filter(|more| *more > 0)?;
    Some(format!("Fix the {more} more that validation.errors lists"))
}

/// A request whose fields are wrong, each of them named.
pub fn refused_fields(errors: &[FieldError]) -> Failure {
    let list: Vec<String> = errors
        .iter()
        .map(|error| format!("{}: {}", error.field, error.error))
        .collect();
    let actions = errors
        .iter()
        .map(|error| format!("Fix `{}`: {}", error.field, error.error))
        .take(MOST_ACTIONS)
        .chain(left_out(errors.len()))
        .chain(["Then move the file back to handoffs/pending/".to_owned()])
        .collect();
    let message = format!("invalid request: {}", list.join("; "));
    Failure {
        fields: errors.to_vec(),
        ..refusal(ErrorCode::SchemaValidationFailed, message, actions)
    }
}

/// A workflow that is not among those that are configured. Where none is, its name means something
/// to the agents only.
fn unknown_workflow(request: &Request, config: &Config) -> Option<FieldError> {
    let (field, name) = request.workflow.as_ref()?;
    if config.workflows.is_empty() || config.workflows.contains_key(name) {
        return None;
    }
    let known: Vec<&str> = config.workflows.keys().map(AsRef::as_ref).collect();
    let meant = nearest(name, known.iter().copied())
        .map(|near| format!("; did you mean {near}?"))
        .unwrap_or_default();
    let why = format!(
        "unknown workflow {}{meant} (known: {})",
        quoted(name),
        known.join(", ")
    );
    Some(FieldError::new(field, why))
}

/// A target that nobody answers to.
pub fn unknown_agent(request: &Request, config: &Config) -> Failure {
    let known: Vec<String> = config.specialists.keys().map(ToString::to_string).collect();
    let known = if known.is_empty() {
        "none is configured".to_owned()
    } else {
        format!("configured are {}", known.join(", "))
    };
    refusal(
        ErrorCode::UnknownAgent,
        format!("unknown agent {}; {known}", request.agent),
        vec![
            format!(
                "Add [specialists.\"{}\"] with a command to handoffd.toml and send the daemon \
                 SIGHUP, or correct target.agent_id",
                request.agent
            ),
            "Then move the file back to handoffs/pending/".to_owned(),
        ],
    )
}

/// A dependency that failed fails those who wait for it.
pub fn dependency_failed(id: &str) -> Failure {
    refusal(
        ErrorCode::DependencyMissing,
        format!("its dependency {id} failed"),
        vec![
            format!("Fix {id} as handoffs/failed/{id}.json says, until it completes"),
            "Then retry this handoff".to_owned(),
        ],
    )
}

/// Dependencies or artifacts that never came.
pub fn dependency_missing(ids: &[String], artifacts: &[String], waited: Duration) -> Failure {
    let waited = humantime::format_duration(waited);
    let mut missing = Vec::new();
    let mut actions = Vec::new();
    if !ids.is_empty() {
        let ids = ids.join(", ");
        missing.push(format!("missing dependency {ids}"));
        actions.push(format!(
            "Drop {ids} into handoffs/pending/, or correct depends_on"
        ));
    }
    if !artifacts.is_empty() {
        let artifacts = artifacts.join(", ");
        missing.push(format!("missing artifact {artifacts}"));
        actions.push(format!(
            "Produce {artifacts} first, or correct requires_artifacts"
        ));
    }
    actions.push("Then retry this handoff".to_owned());
    refusal(
        ErrorCode::DependencyMissing,
        format!("{}: did not appear within {waited}", missing.join("; ")),
        actions,
    )
}

/// One that would wait for its own end.
fn depends_on_itself(id: &str) -> Failure {
    refusal(
        ErrorCode::DependencyMissing,
        format!("{id} depends on itself: its own depends_on lists it"),
        vec![
            format!("Remove {id} from depends_on in handoffs/failed/{id}.json"),
            "Then move the file back to handoffs/pending/".to_owned(),
        ],
    )
}

/// Handoffs that wait for each other in a circle.
pub fn dependency_cycle(circle: &[String]) -> Failure {
    refusal(
        ErrorCode::DependencyMissing,
        format!("depends_on goes in a circle: {}", shortened(circle)),
        vec![
            // Dropped once more, it would only meet its own record here, as a duplicate.
            "Remove the next id from depends_on in one of their records in handoffs/failed/, and \
             move that file back to handoffs/pending/"
                .to_owned(),
            "When it completes, retry the handoff that depends on it, and so on".to_owned(),
        ],
    )
}

/// A long way, told by its beginning and its end.
fn shortened(ids: &[String]) -> String {
    const SHOWN: usize = 8;
    if ids.len() <= 2 * SHOWN {
        return ids.join(" → ");
    }
    let (start, end) = (&ids[..SHOWN], &ids[ids.len() - SHOWN..]);
    let left_out = ids.len() - 2 * SHOWN;
    format!(
        "{} → … {left_out} more … → {}",
        start.join(" → "),
        end.join(" → ")
    )
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
