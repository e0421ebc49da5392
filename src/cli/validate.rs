//! `handoffd validate`: what the receiver would say of a request, without running anything.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::style::safe;
use crate::cli::submit;
use crate::cli::{Failed, Global, Outcome, out};
use crate::clock::Clock;
use crate::config::Config;
use crate::engine::receive::{Desk, needs, receipt};
use crate::policy::intake::{Plan, plan};
use crate::policy::judge::Failure;
use crate::policy::receive::Receipt;
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::links::Links;
use crate::protocol::name::{Name, classify};
use crate::protocol::request::{Finished, Request};
use crate::protocol::view::View;
use crate::spool::layout::Layout;
use crate::spool::look::Identity;
use crate::store::artifacts::{Artifacts, Presence, RelPath};
use crate::store::schemas::Schemas;

#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 valid, 1 the daemon would refuse it.")]
pub struct Options {
    /// A request, a package or a report, or `-` for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// All that is known of a request before it is dropped.
pub struct Examined {
    pub request: Request,
    pub planned: Plan,
    pub receipt: Receipt,
}

/// Looks at a request as intake would. What it refers to is looked for only where it would run
/// at once.
pub fn examine(
    layout: &Layout,
    config: &Config,
    doc: &Map<String, Value>,
    request: Request,
) -> Examined {
    let schemas = Schemas::new(&layout.schemas());
    let artifacts = Artifacts::for_reading(layout.root());
    let desk = Desk {
        layout,
        config: Arc::new(config.clone()),
        schemas: &schemas,
        artifacts: &artifacts,
    };
    let now = Clock::System.now();
    let planned = plan(&request, config, &needs(&desk, &request), now);
    let runs = !matches!(
        planned,
        Plan::WaitForDependencies { .. } | Plan::WaitForTime { .. }
    );
    let mut receipt = receipt(
        &desk,
        &View::of_document(doc),
        // A file that is only looked at is nobody's follow-up.
        Links::default,
        &request,
        runs,
    );
    if receipt.refusal.is_none()
        && let Some(Ok(path)) = request.destination(now.wall)
        && let Ok(path) = RelPath::parse(&path)
        && !matches!(artifacts.presence(&path), Presence::Missing)
    {
        let field = "expected_output.destination";
        let why = format!(
            "{} already exists; the daemon would not overwrite it",
            path.as_str()
        );
        receipt.warnings.push(FieldError::new(field, why));
    }
    Examined {
        request,
        planned,
        receipt,
    }
}

impl Examined {
    /// Why it would be refused, if it would.
    pub fn refusal(&self, global: &Global) -> Option<Failure> {
        let ((Plan::Refuse(told), _) | (_, Some(told))) = (&self.planned, &self.receipt.refusal)
        else {
            return None;
        };
        let mut told = told.clone();
        if told.code == ErrorCode::UnknownAgent && !global.config_path().ok()?.exists() {
            let agent = &self.request.agent;
            told.message = format!(
                "the root has no handoffd.toml, so it has no specialist {agent}; choose another root with --root DIR, or create a configuration: handoffd init"
            );
        }
        Some(told)
    }
}

/// What dropping the file itself would do otherwise than `submit`, which only looks at the document.
fn dropped_by_hand(file: &Path, written: Option<&str>) -> Option<FieldError> {
    let right = written.unwrap_or("<id>");
    let rename = format!("rename it to {right}.json, .yaml, .yml or .md");
    let why = match classify(file.file_name()?.as_bytes()) {
        Name::Submission { id, .. } if written.is_none_or(|it| it == id.as_str()) => return None,
        Name::Submission { id, .. } => {
            format!("submit takes the id {right}, but in pending/ the name gives the id {id}")
        }
        Name::Bad { why, .. } => format!("submit takes it, but in pending/ it is refused: {why}"),
        Name::Temporary => {
            "submit takes it, but in pending/ the daemon ignores such a name".to_owned()
        }
    };
    Some(FieldError::new("file name", format!("{why}; {rename}")))
}

/// Refuses more bytes than intake reads.
pub fn fits(config: &Config, from: &Path, bytes: &[u8]) -> Result<(), Failed> {
    let (most, size) = (config.daemon.max_request_size, bytes.len());
    if size as u64 <= most {
        return Ok(());
    }
    let why = format!("{size} bytes; daemon.max_request_size allows {most}");
    let code = ErrorCode::SchemaValidationFailed.as_str();
    Err(submit::refuse(from, code, &why))
}

/// Where an id is that something else has already. A handoff may move while it is looked for, so the
/// places are looked at twice.
pub fn taken(layout: &Layout, from: &Path, id: &HandoffId) -> Option<&'static str> {
    let same = |dropped: PathBuf| Identity::at(&dropped).ok() == Identity::at(from).ok();
    let is_dropped = || {
        let dropped = layout.submission(id.as_str());
        dropped.is_some_and(|it| !same(it))
    };
    (0..2).find_map(|_| {
        if is_dropped() {
            return Some(State::Pending.status());
        }
        let states = layout.states_of(id.as_str());
        if let Some(state) = states.first() {
            return Some(state.status());
        }
        if layout.is_being_refused(id.as_str()) {
            return Some(State::Failed.status());
        }
        match layout.archived(id.as_str()) {
            Some(_) => Some("archived"),
            None => layout
                .is_taken(id.as_str())
                .then_some(State::Failed.status()),
        }
    })
}

/// An id is never given twice.
pub fn duplicate(id: &HandoffId, stands: &str) -> Failed {
    let stands = stands.replace('_', " ");
    let text = format!(
        "the id {id} exists already ({stands}); dropped nothing; to see it: handoffd show {id}"
    );
    Failed::thing(ErrorCode::DuplicateId.as_str(), anyhow::anyhow!(text))
}

/// Refuses an id that stands for something else already.
pub fn is_free(layout: &Layout, from: &Path, id: &HandoffId) -> Result<(), Failed> {
    match taken(layout, from, id) {
        Some(stands) => Err(duplicate(id, stands)),
        None => Ok(()),
    }
}

pub fn validate(global: &Global, options: &Options) -> Outcome {
    let file = &options.file;
    let layout = global.existing_layout()?;
    let config = global.load_config()?;
    let (bytes, ext) = submit::read(file)?;
    fits(&config, file, &bytes)?;
    let document = submit::parse(file, &bytes, ext)?;
    let written = View::of_document(&document.map).id().map(str::to_owned);
    let request = submit::request_in(&document, file, None)?;
    is_free(&layout, file, &request.id)?;
    let mut examined = examine(&layout, &config, &document.map, request);
    if file != Path::new("-") {
        let note = dropped_by_hand(file, written.as_deref());
        examined.receipt.warnings.extend(note);
    }
    if let Some(told) = examined.refusal(global) {
        return refuse(global, &examined, &told);
    }
    accept(global, &examined, written)?;
    Ok(0)
}

/// What to do about a file that was never dropped: nothing of it is to be moved back or retried.
fn advice(told: &Failure, id: &HandoffId) -> Vec<String> {
    let own_record = format!(" in handoffs/failed/{id}.json");
    let actions = told.actions.iter();
    actions
        .filter(|action| !action.starts_with("Then "))
        .map(|action| action.replace(&own_record, ""))
        .collect()
}

fn refuse(global: &Global, examined: &Examined, told: &Failure) -> Outcome {
    let actions = advice(told, &examined.request.id);
    if !global.json {
        for action in &actions {
            out::talk!("  → {}", safe(action, false));
        }
        return Err(Failed::thing(
            told.code.as_str(),
            anyhow::anyhow!("{}", told.message),
        ));
    }
    let mut error = json!({ "code": told.code.as_str(), "message": told.message });
    if let Some(first) = told.fields.first() {
        error["field"] = first.field.clone().into();
    }
    let text = json!({
        "valid": false,
        "error": error,
        "errors": told.fields,
        "warnings": examined.receipt.warnings,
        "acknowledgment": examined.receipt.acknowledgment,
        "recovery_actions": actions,
    });
    out::tell(text)?;
    Ok(1)
}

fn accept(global: &Global, examined: &Examined, id: Option<String>) -> Result<(), Failed> {
    let Examined {
        request,
        planned,
        receipt,
    } = examined;
    let next = next_step(planned);
    if global.json {
        let text = json!({
            "valid": true,
            "id": id,
            "dialect": request.dialect.to_string(),
            "agent": names_somebody(request).then(|| request.agent.to_string()),
            "priority": request.priority.as_str(),
            "next": next,
            "warnings": receipt.warnings,
            "acknowledgment": receipt.acknowledgment,
        });
        return out::tell(text);
    }
    let id = id.map_or_else(String::new, |id| format!(" {}", safe(&id, false)));
    let target = if names_somebody(request) {
        format!(" for {}", request.agent)
    } else {
        String::new()
    };
    out::tell(format!(
        "valid {}{id}{target}, {} priority; {next}",
        request.dialect,
        request.priority.as_str()
    ))?;
    let task = receipt
        .acknowledgment
        .get("understood")
        .and_then(|understood| understood.get("task")?.as_str());
    if let Some(task) = task {
        out::tell(format!("  understood as: {}", safe(task, false)))?;
    }
    for warning in &receipt.warnings {
        out::tell(format!("  warning: {}", safe(&warning.to_string(), false)))?;
    }
    Ok(())
}

/// A report that ends its work, is blocked or asks for a review names no agent.
fn names_somebody(request: &Request) -> bool {
    matches!(request.finished, None | Some(Finished::HandedOn))
}

/// What would become of it first.
fn next_step(planned: &Plan) -> String {
    match planned {
        Plan::Run => "starts when a slot is free".to_owned(),
        Plan::WaitForTime { .. } => "waits for its time".to_owned(),
        Plan::WaitForDependencies { ids, artifacts } => {
            let all: Vec<&str> = ids.iter().chain(artifacts).map(String::as_str).collect();
            format!("waits for {}", all.join(", "))
        }
        Plan::WaitForHuman(_) => "waits for a human".to_owned(),
        Plan::Help => "is blocked, and asks the helper that routes.blocked names".to_owned(),
        Plan::Complete => "completes at once: it ends its work".to_owned(),
        Plan::Refuse(told) => format!("is refused: {}", told.message),
    }
}
