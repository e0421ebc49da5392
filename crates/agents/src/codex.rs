//! Codex: `codex exec --json` with its stream of JSON lines.
//!
//! Known of its stream (version 0.169): `thread.started` names the session, `item.completed` brings
//! messages, commands and changed files, `turn.completed` has the sums of the whole thread, and
//! `turn.failed` says in words what went wrong. An item of type `error` may be a mere warning.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::adapter::{Adapter, Call, Ended, Ending, Exit, Figures, Said, Turn, one_line};
use crate::codex_permission::{granting, refused};
use crate::session::Start;
use crate::trouble::{Kind, Trouble, is_quota, kind_of};
use crate::usage::Usage;

/// The state of one call.
#[derive(Debug, Default)]
pub struct Codex {
    session: Option<String>,
    last_message: Option<String>,
    failed: Option<String>,
    completed: bool,
    turns: u64,
    sums: Usage,
}

impl Adapter for Codex {
    fn program(&self) -> &'static str {
        "codex"
    }

    fn takes_session_id(&self) -> bool {
        false
    }

    fn call(&self, turn: &Turn<'_>) -> Call {
        let mut args = vec!["exec".to_owned()];
        args.extend([
            "--json".to_owned(),
            "--skip-git-repo-check".to_owned(),
            "--output-schema".to_owned(),
            turn.schema_file.display().to_string(),
        ]);
        if let Some(server) = turn.mcp {
            let list: Vec<Value> = server.args.iter().cloned().map(Value::String).collect();
            args.extend([
                "-c".to_owned(),
                format!(
                    "mcp_servers.handoffd.command={}",
                    Value::String(server.command.clone())
                ),
                "-c".to_owned(),
                format!("mcp_servers.handoffd.args={}", Value::Array(list)),
            ]);
        }
        args.extend(own_args(turn));
        // `resume` comes last: it knows fewer flags than `exec`, such as no sandbox.
        if let Start::Resume(id) = turn.start {
            args.extend(["resume".to_owned(), id.clone()]);
        }
        // The prompt comes on stdin.
        args.push("-".to_owned());
        Call {
            program: turn.program.unwrap_or(self.program()).to_owned(),
            args,
        }
    }

    fn line(&mut self, line: &str) -> Said {
        let Ok(Value::Object(event)) = serde_json::from_str::<Value>(line) else {
            return Said {
                log: Some(one_line(line)).filter(|line| !line.is_empty()),
                session: None,
            };
        };
        let mut said = Said::default();
        match text(&event, "type").unwrap_or_default() {
            "thread.started" => {
                self.session = text(&event, "thread_id").map(str::to_owned);
                said.session.clone_from(&self.session);
                said.log = self.session.as_ref().map(|id| format!("session {id}"));
            }
            "item.started" | "item.completed" => {
                let ended = text(&event, "type") == Some("item.completed");
                if let Some(Value::Object(item)) = event.get("item") {
                    said.log = self.item(item, ended);
                }
            }
            "turn.completed" => {
                self.completed = true;
                self.turns += 1;
                self.sums = sums(event.get("usage"));
            }
            "turn.failed" => {
                let error = event.get("error").and_then(Value::as_object);
                let message = error.and_then(|error| text(error, "message"));
                self.failed = Some(message.unwrap_or("no reason given").to_owned());
            }
            "error" => {
                let message = text(&event, "message").unwrap_or("no reason given");
                said.log = Some(one_line(message));
                self.failed.get_or_insert_with(|| message.to_owned());
            }
            _ => {}
        }
        said
    }

    fn ending(&mut self, exit: &Exit) -> Ending {
        let state = std::mem::take(self);
        let denied = state.session.as_deref().map_or_else(BTreeSet::new, refused);
        let ended = if state.completed && exit.code == Some(0) {
            Ended::Through
        } else {
            how(state.failed.as_deref(), exit)
        };
        let report =
            state
                .last_message
                .as_deref()
                .and_then(|text| match serde_json::from_str(text) {
                    Ok(Value::Object(report)) => Some(report),
                    _ => None,
                });
        Ending {
            ended,
            session: state.session,
            model: None,
            turns: (state.turns > 0).then_some(state.turns),
            figures: Figures::OfSession(state.sums),
            text: state.last_message.filter(|_| report.is_none()),
            report,
            denied,
            warnings: Vec::new(),
        }
    }

    fn takeover(&self, program: &str, session: &str) -> Option<String> {
        Some(format!("{program} resume {session}"))
    }
}

impl Codex {
    fn item(&mut self, item: &Map<String, Value>, ended: bool) -> Option<String> {
        match text(item, "type")? {
            "agent_message" if ended => {
                let message = text(item, "text")?;
                self.last_message = Some(message.to_owned());
                Some(one_line(message))
            }
            "command_execution" if !ended => {
                let command = text(item, "command").unwrap_or_default();
                Some(format!("→ run: {}", one_line(command)))
            }
            "command_execution" => {
                let code = item.get("exit_code").and_then(Value::as_i64)?;
                (code != 0).then(|| format!("← exit {code}"))
            }
            "file_change" if ended => {
                let changes = item.get("changes").and_then(Value::as_array)?;
                let paths: Vec<&str> = changes
                    .iter()
                    .filter_map(|change| change.get("path")?.as_str())
                    .collect();
                Some(format!("→ write {}", one_line(&paths.join(", "))))
            }
            "error" if ended => text(item, "message").map(one_line),
            _ => None,
        }
    }
}

/// The flags of the settings, with what a person permitted.
fn own_args(turn: &Turn<'_>) -> Vec<String> {
    let granting = || granting(turn.granted, turn.args, turn.folder);
    let granting = (!turn.granted.is_empty()).then(granting);
    match granting {
        None => turn.args.to_vec(),
        Some(Ok(args)) => args,
        Some(Err(error)) => {
            // Codex is refused again, and a person asked again.
            eprintln!("(can't pass the permission on: {error})");
            turn.args.to_vec()
        }
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key).and_then(Value::as_str)
}

fn how(failed: Option<&str>, exit: &Exit) -> Ended {
    let stderr = exit.stderr.trim();
    let said = failed.unwrap_or(stderr);
    if stderr.contains("no rollout found") || said.contains("no rollout found") {
        return Ended::NoSession;
    }
    if kind_of(said) != Kind::NotLoggedIn && is_quota(said) {
        return Ended::Quota {
            until: None,
            said: said.to_owned(),
        };
    }
    match (kind_of(said), failed) {
        (Kind::Other, None) => Ended::Trouble(Trouble::new(Kind::CutOff, one_line(said))),
        (kind, _) => Ended::Trouble(Trouble::new(kind, one_line(said))),
    }
}

fn sums(usage: Option<&Value>) -> Usage {
    let count = |key: &str| usage.and_then(|usage| usage.get(key)?.as_u64());
    Usage {
        input_tokens: count("input_tokens").unwrap_or(0),
        output_tokens: count("output_tokens").unwrap_or(0),
        cost_usd: None,
    }
}

#[cfg(test)]
#[path = "codex_tests.rs"]
mod tests;
