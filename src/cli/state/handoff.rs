//! `handoffd state handoff`: an agent hands its task on.
//!
//! What it brings comes from flags, from a document, or from both; gates are asked, commands run,
//! and only then is anything saved. What is printed is the command for the next agent.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::{Desk, invalid, read_document, store_failed};
use crate::cli::{Failed, Outcome, complete, out};
use crate::clock::{Clock, Wall};
use crate::config::Gate;
use crate::policy::task::{
    Delta, Draft, GateResult, Limits, MAX_SUMMARY_TOKENS, Refusal, Step, command, draft, settle,
};
use crate::protocol::task::TaskState;
use crate::runner::gate::{self, Terms};
use crate::store::tasks::StoreError;

#[derive(Debug, Args)]
#[command(
    after_help = "Adds artifacts and decisions, and replaces blocking issues. The document has the fields of a result: artifacts, decisions, blocking_issues, warnings, quality_gates, and phase, from, to.\n\nExit code 1: a gate failed, a human must decide, or the task is unknown.\n\nExample:\n  \
                        handoffd state handoff T --from coder --to tester --phase testing \
                        --artifact source=src/login.rs --decision 'JWT' --because 'stateless'"
)]
pub struct Options {
    #[arg(value_name = "TASK", add = complete::tasks())]
    task: String,
    /// A document with the work, or `-` for stdin
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The agent that hands on [default: the agent that has the task]
    #[arg(long, value_name = "AGENT")]
    from: Option<String>,
    /// Who goes on
    #[arg(long, value_name = "AGENT")]
    to: Option<String>,
    /// The phase that begins
    #[arg(long, value_name = "PHASE")]
    phase: Option<String>,
    /// A decision; each needs a --because
    #[arg(long, value_name = "TEXT")]
    decision: Vec<String>,
    /// Why
    #[arg(long, value_name = "TEXT")]
    because: Vec<String>,
    /// A decision with all its fields
    #[arg(long, value_name = "JSON")]
    decision_json: Vec<String>,
    /// A file below the root, with its type, as in source=src/a.rs
    #[arg(long, value_name = "TYPE=PATH")]
    artifact: Vec<String>,
    /// An artifact with all its fields
    #[arg(long, value_name = "JSON")]
    artifact_json: Vec<String>,
    /// An issue that blocks the task
    #[arg(long, value_name = "TEXT")]
    blocking: Vec<String>,
    /// An issue that only a human can decide
    #[arg(long, value_name = "TEXT")]
    needs_human: Vec<String>,
    /// An issue with all its fields
    #[arg(long, value_name = "JSON")]
    blocking_json: Vec<String>,
    /// Keep the blocking issues
    #[arg(long, conflicts_with_all = ["blocking", "needs_human", "blocking_json"])]
    keep_blocking: bool,
    /// The human who approves it
    #[arg(long, value_name = "NAME")]
    approved_by: Option<String>,
    /// A key for this handoff: each key is applied once
    #[arg(long, value_name = "KEY")]
    once: Option<String>,
    /// The most tokens of the summary, below 500
    #[arg(long, value_name = "N", default_value_t = MAX_SUMMARY_TOKENS)]
    max_tokens: usize,
}

/// How it ended, with the state from before.
enum Ended {
    Already { state: TaskState, held: bool },
    Now { before: TaskState, step: Step },
}

/// An error on the way to a save.
enum Trouble {
    Store(StoreError),
    Failed(Failed),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(super) fn handoff(desk: &Desk, options: &Options) -> Outcome {
    let task = Desk::task(&options.task)?;
    let now = Clock::System.now().wall;
    let document = options.document(desk)?;
    let mut ended = None;
    // If another writer is faster, this is done again; gates have said what they say by then.
    let mut said = Vec::new();
    let updated = desk.store.update(&task, |stored| {
        let before = stored.ok_or_else(|| Trouble::Failed(desk.unknown(&task)))?;
        let delta = options
            .delta(&document, &before, now)
            .map_err(Trouble::Failed)?;
        let drafted = draft(
            &before,
            &delta,
            options.once.as_deref(),
            &desk.config.phases,
            now,
        )
        .map_err(|refusal| Trouble::Failed(refused(refusal)))?;
        let new = match drafted {
            Draft::Already { held } => {
                ended = Some(Ended::Already {
                    state: before,
                    held,
                });
                return Ok(None);
            }
            Draft::New(new) => *new,
        };
        let asked = new.asked(&desk.config.phases, &desk.config.gates);
        run_gates(desk, &asked.commands, new.after(), &mut said).map_err(Trouble::Failed)?;
        let named =
            |result: &&GateResult| asked.commands.iter().any(|gate| gate.name == result.name);
        let commands = said.iter().filter(named).cloned().collect();
        let found = desk.look_at(asked.paths);
        let config = &desk.config;
        let step = settle(&new, &found, commands, &config.phases, &config.gates, now);
        let state = step.state().clone();
        ended = Some(Ended::Now { before, step });
        Ok(Some(state))
    });
    match updated {
        Err(Trouble::Store(error)) => Err(store_failed(error)),
        Err(Trouble::Failed(failed)) => Err(failed),
        Ok(_) => options.say(desk, ended),
    }
}

fn refused(refusal: Refusal) -> Failed {
    Failed {
        field: Some("phase".to_owned()),
        ..Failed::thing("PHASE_REFUSED", refusal)
    }
}

/// Asks the gates that have not said anything yet.
fn run_gates(
    desk: &Desk,
    gates: &[Gate],
    after: &TaskState,
    said: &mut Vec<GateResult>,
) -> Result<(), Failed> {
    let bytes = serde_json::to_vec_pretty(after.document())?;
    let terms = Terms {
        root: desk.layout.root(),
        task_id: after.task().as_str(),
        timeout: desk.config.defaults.timeout,
        kill_grace: desk.config.defaults.kill_grace,
    };
    for gate in gates {
        if said.iter().all(|result| result.name != gate.name) {
            let answer = gate::run(gate, &bytes, &terms);
            said.push(GateResult::new(&gate.name, answer.passed, answer.reason));
        }
    }
    Ok(())
}

impl Options {
    /// Everything that was brought, as one document in the form of a result.
    fn document(&self, desk: &Desk) -> Result<Map<String, Value>, Failed> {
        let mut document = match &self.file {
            Some(file) => read_document(file)?,
            None => Map::new(),
        };
        for (key, value) in [
            ("source_agent", &self.from),
            ("target_agent", &self.to),
            ("phase", &self.phase),
        ] {
            if let Some(value) = value {
                document.insert(key.to_owned(), value.as_str().into());
            }
        }
        if self.decision.len() != self.because.len() {
            let text = format!(
                "{} of --decision but {} of --because: every decision needs a reason",
                self.decision.len(),
                self.because.len()
            );
            return Err(Failed::usage("USAGE", anyhow::anyhow!(text)));
        }
        let mut decisions: Vec<Value> = self
            .decision
            .iter()
            .zip(&self.because)
            .map(|(what, why)| json!({ "decision": what, "rationale": why }))
            .collect();
        decisions.extend(parsed("--decision-json", &self.decision_json)?);
        extend(&mut document, ["decisions_made", "decisions"], decisions);
        let mut artifacts = Vec::new();
        for word in &self.artifact {
            artifacts.push(made(desk, word)?);
        }
        artifacts.extend(parsed("--artifact-json", &self.artifact_json)?);
        extend(&mut document, ["artifacts", "artifacts"], artifacts);
        let mut issues: Vec<Value> = self
            .blocking
            .iter()
            .map(|what| json!({ "issue": what }))
            .collect();
        let asks = |what| json!({ "issue": what, "requires_human": true });
        issues.extend(self.needs_human.iter().map(asks));
        issues.extend(parsed("--blocking-json", &self.blocking_json)?);
        extend(&mut document, ["blocking_issues", "blocking"], issues);
        Ok(document)
    }

    /// The document as a delta on this state, if nothing in it is wrong.
    fn delta(
        &self,
        document: &Map<String, Value>,
        before: &TaskState,
        now: Wall,
    ) -> Result<Delta, Failed> {
        let had = Some(before.target_agent()).filter(|agent| !agent.is_empty());
        let (mut delta, wrong) = Delta::read(document, had, now);
        if !wrong.is_empty() {
            return Err(invalid(&wrong));
        }
        delta.approved_by.clone_from(&self.approved_by);
        if self.keep_blocking {
            delta.blocking = None;
        } else {
            delta.blocking.get_or_insert_default();
        }
        Ok(delta)
    }

    fn say(&self, desk: &Desk, ended: Option<Ended>) -> Outcome {
        let asks = |reason: String| Failed::thing("HUMAN_REQUIRED", anyhow::anyhow!(reason));
        let limits = Limits {
            tokens: self.max_tokens,
            ..Limits::of(&desk.config.context)
        };
        let told = match ended {
            None => return Err(anyhow::anyhow!("the document is empty").into()),
            Some(Ended::Already { state, held: true }) => {
                let reason = state.gate_reason(crate::policy::task::HUMAN).unwrap_or("");
                return Err(asks(reason.to_owned()));
            }
            Some(Ended::Already { state, held: false }) => {
                out::talk!("handoffd: this handoff was already applied; changed nothing");
                command(Some(&state), &state, limits)
            }
            Some(Ended::Now { before, step }) => match step {
                Step::HandedOn(state) => command(Some(&before), &state, limits),
                Step::WaitsForHuman { reason, .. } => return Err(asks(reason)),
                Step::Failed { gates, .. } => return Err(failed(&gates)),
            },
        };
        if desk.json {
            out::tell(told)?;
        } else {
            out::tell(format!("{told:#}"))?;
        }
        Ok(0)
    }
}

fn failed(gates: &[GateResult]) -> Failed {
    let list = |gate: &GateResult| format!("the gate {:?} failed: {}", gate.name, gate.reason);
    let text: Vec<String> = gates.iter().map(list).collect();
    let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
    Failed {
        detail: vec![("gates", json!(names))],
        ..Failed::thing("GATE_FAILED", anyhow::anyhow!(text.join("; ")))
    }
}

/// Adds entries to whichever of two names of a list the document uses.
fn extend(document: &mut Map<String, Value>, names: [&str; 2], entries: Vec<Value>) {
    if entries.is_empty() {
        return;
    }
    let name = names.iter().find(|name| document.contains_key(**name));
    let slot = document
        .entry(*name.unwrap_or(&names[0]))
        .or_insert(json!([]));
    if let Value::Array(list) = slot {
        list.extend(entries);
    }
}

fn parsed(flag: &str, texts: &[String]) -> Result<Vec<Value>, Failed> {
    let parse = |text: &String| {
        crate::protocol::json::parse(text)
            .map_err(|error| Failed::usage("USAGE", anyhow::anyhow!("{flag} is not JSON: {error}")))
    };
    texts.iter().map(parse).collect()
}

/// The entry for a file that was made, as it is on disk.
fn made(desk: &Desk, word: &str) -> Result<Value, Failed> {
    let Some((kind, path)) = word.split_once('=').filter(|(kind, _)| !kind.is_empty()) else {
        let text = format!("--artifact {word}: use TYPE=PATH, like source=src/a.rs");
        return Err(Failed::usage("USAGE", anyhow::anyhow!(text)));
    };
    let found = desk
        .measure(path)
        .map_err(|why| Failed::thing("ARTIFACT", anyhow::anyhow!("{path}: {why}")))?;
    Ok(json!({
        "path": path, "artifact_type": kind, "content_hash": found.sha256,
        "size_bytes": found.size_bytes,
    }))
}
