//! Claude Code: `claude -p` with its stream of JSON lines.
//!
//! Known of its stream (version 2.1): `system/init` names session and model; `system/api_retry` announces
//! that a refused request is tried again, and when; `rate_limit_event` says when a quota is back;
//! `result` ends it. A used-up quota comes as `subtype: "success"` with `is_error: true`, so `subtype`
//! alone decides nothing. `total_cost_usd` and `modelUsage` are sums over a resumed session.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use crate::adapter::{Adapter, Call, Denied, Ended, Ending, Exit, Figures, Said, Turn, one_line};
use crate::claude_permission::{granting, permission};
use crate::session::Start;
use crate::trouble::{Kind, Trouble, is_quota, kind_of};
use crate::usage::Usage;

/// The state of one call.
#[derive(Debug, Default)]
pub struct Claude {
    session: Option<String>,
    model: Option<String>,
    quota_until: Option<SystemTime>,
    /// The end of a pause that the model asked for.
    pause_until: Option<SystemTime>,
    result: Option<Map<String, Value>>,
}

impl Adapter for Claude {
    fn program(&self) -> &'static str {
        "claude"
    }

    fn takes_session_id(&self) -> bool {
        true
    }

    fn call(&self, turn: &Turn<'_>) -> Call {
        let mut args: Vec<String> = [
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--permission-prompts",
            "none",
            "--json-schema",
            turn.schema,
        ]
        .map(str::to_owned)
        .to_vec();
        let (flag, id) = match turn.start {
            Start::New(id) => ("--session-id", id),
            Start::Resume(id) => ("--resume", id),
        };
        args.extend([flag.to_owned(), id.clone()]);
        if let Some(most) = turn.max_usd {
            args.extend(["--max-budget-usd".to_owned(), most.to_string()]);
        }
        if let Some(server) = turn.mcp {
            let file = server.file.display().to_string();
            args.extend(["--mcp-config".to_owned(), file]);
            args.push("--allowedTools=mcp__handoffd".to_owned());
        }
        args.extend(granting(turn));
        args.extend(turn.args.iter().cloned());
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
        let text = |key: &str| event.get(key).and_then(Value::as_str);
        let named = text("session_id").map(str::to_owned);
        let session = named.filter(|id| self.session.as_ref() != Some(id));
        if session.is_some() {
            self.session.clone_from(&session);
        }
        let log = match (text("type").unwrap_or_default(), text("subtype")) {
            ("system", Some("init")) => {
                self.model = text("model").map(str::to_owned);
                Some(format!(
                    "session {} with {}",
                    text("session_id").unwrap_or("?"),
                    text("model").unwrap_or("an unnamed model")
                ))
            }
            ("system", Some("api_retry")) => {
                let said = text("error").unwrap_or("no reason given").to_owned();
                self.note_delay(&event);
                Some(format!(
                    "the model refused a request ({said}); trying again"
                ))
            }
            ("system", Some("permission_denied")) => Some(format!(
                "not permitted: {}",
                text("tool_name").unwrap_or("a tool")
            )),
            ("rate_limit_event", _) => self.rate_limit(&event),
            ("assistant", _) => content(&event, assistant_part),
            ("user", _) => content(&event, tool_part),
            ("result", _) => {
                let words = text("result").map(one_line);
                self.result = Some(event);
                words
            }
            _ => None,
        };
        Said { log, session }
    }

    fn ending(&mut self, exit: &Exit) -> Ending {
        let Self {
            session,
            model,
            quota_until,
            pause_until,
            result,
        } = std::mem::take(self);
        let quota_until = quota_until.or(pause_until);
        let Some(result) = result else {
            return Ending {
                session,
                model,
                ..Ending::of(without_result(exit, quota_until))
            };
        };
        let mut ending = Ending {
            turns: result.get("num_turns").and_then(Value::as_u64),
            figures: Figures::OfSession(usage(&result)),
            report: result
                .get("structured_output")
                .and_then(Value::as_object)
                .cloned(),
            text: result
                .get("result")
                .and_then(Value::as_str)
                .map(str::to_owned),
            denied: denied(&result),
            ..Ending::of(how(&result, exit, quota_until))
        };
        ending.model = used_model(&result).or(model);
        ending.session = session;
        ending
    }

    fn takeover(&self, program: &str, session: &str) -> Option<String> {
        Some(format!("{program} --resume {session}"))
    }
}

/// A shorter delay before a request is tried again says nothing of a quota.
const LONG_DELAY: Duration = Duration::from_secs(60);

impl Claude {
    /// The model asks for a long pause where its quota is used up.
    fn note_delay(&mut self, event: &Map<String, Value>) {
        let delay = event.get("retry_delay_ms").and_then(Value::as_u64);
        let delay = delay.map(Duration::from_millis);
        if let Some(delay) = delay.filter(|delay| *delay >= LONG_DELAY) {
            self.pause_until = crate::clock::now().checked_add(delay);
        }
    }

    fn rate_limit(&mut self, event: &Map<String, Value>) -> Option<String> {
        let info = event.get("rate_limit_info")?;
        let status = info.get("status").and_then(Value::as_str)?;
        if status != "rejected" {
            return None;
        }
        let at = info.get("resetsAt").and_then(Value::as_u64);
        self.quota_until =
            at.and_then(|at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(at)));
        Some("the quota is used up".to_owned())
    }
}

/// How a call ended that has a `result` event.
fn how(result: &Map<String, Value>, exit: &Exit, quota_until: Option<SystemTime>) -> Ended {
    let failed = result.get("is_error") == Some(&Value::Bool(true));
    let subtype = result
        .get("subtype")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let said = words(result, exit);
    if !failed && subtype == "success" {
        return Ended::Through;
    }
    if said.contains("No conversation found") {
        return Ended::NoSession;
    }
    let status = result.get("api_error_status").and_then(Value::as_u64);
    if matches!(status, Some(429 | 529)) || (status.is_none() && failed && is_quota(&said)) {
        return Ended::Quota {
            until: quota_until,
            said,
        };
    }
    Ended::Trouble(match subtype {
        "error_max_budget_usd" | "error_max_turns" => Trouble::new(Kind::LimitReached, said),
        _ => Trouble::of(said),
    })
}

fn words(result: &Map<String, Value>, exit: &Exit) -> String {
    let listed = result
        .get("errors")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join("; ");
    let said = result
        .get("result")
        .and_then(Value::as_str)
        .map(str::to_owned)
        .filter(|said| !said.is_empty());
    let subtype = result.get("subtype").and_then(Value::as_str);
    said.or(Some(listed).filter(|said| !said.is_empty()))
        .or_else(|| Some(exit.stderr.trim().to_owned()).filter(|said| !said.is_empty()))
        .unwrap_or_else(|| subtype.unwrap_or("no reason given").to_owned())
}

/// How a call ended whose stream has no `result` event.
fn without_result(exit: &Exit, quota_until: Option<SystemTime>) -> Ended {
    let said = exit.stderr.trim();
    if said.contains("already in use") {
        return Ended::SessionExists;
    }
    if said.contains("No conversation found") {
        return Ended::NoSession;
    }
    if quota_until.is_some() {
        return Ended::Quota {
            until: quota_until,
            said: said.to_owned(),
        };
    }
    let kind = match kind_of(said) {
        Kind::Other => Kind::CutOff,
        kind => kind,
    };
    Ended::Trouble(Trouble::new(kind, one_line(said)))
}

/// The sums of a session: of all its models, cached tokens counted as input.
fn usage(result: &Map<String, Value>) -> Usage {
    let models = result.get("modelUsage").and_then(Value::as_object);
    let count = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64).unwrap_or(0);
    let mut sum = Usage {
        cost_usd: result.get("total_cost_usd").and_then(Value::as_f64),
        ..Usage::default()
    };
    for model in models.into_iter().flat_map(Map::values) {
        sum.input_tokens += count(model, "inputTokens")
            + count(model, "cacheReadInputTokens")
            + count(model, "cacheCreationInputTokens");
        sum.output_tokens += count(model, "outputTokens");
    }
    sum
}

/// The model that wrote most.
fn used_model(result: &Map<String, Value>) -> Option<String> {
    let models = result.get("modelUsage")?.as_object()?;
    let written = |value: &Value| value.get("outputTokens").and_then(Value::as_u64);
    let (name, _) = models.iter().max_by_key(|(_, value)| written(value))?;
    Some(name.clone())
}

fn denied(result: &Map<String, Value>) -> BTreeSet<Denied> {
    let listed = result.get("permission_denials").and_then(Value::as_array);
    listed
        .into_iter()
        .flatten()
        .filter_map(|denial| {
            let tool = denial.get("tool_name")?.as_str()?;
            let input = denial.get("tool_input").cloned().unwrap_or_default();
            Some(permission(tool, &input))
        })
        .collect()
}

/// Readable words for the parts of a message.
fn content(
    event: &Map<String, Value>,
    words: fn(&Map<String, Value>) -> Option<String>,
) -> Option<String> {
    let parts = event.get("message")?.get("content")?.as_array()?;
    let said: Vec<String> = parts
        .iter()
        .filter_map(|part| words(part.as_object()?))
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

fn assistant_part(part: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| part.get(key).and_then(Value::as_str);
    match text("type")? {
        "text" => text("text").map(one_line).filter(|text| !text.is_empty()),
        "tool_use" => {
            let input = part.get("input").cloned().unwrap_or_default();
            let told = permission(text("name").unwrap_or("?"), &input);
            Some(format!("→ {}", told.what))
        }
        _ => None,
    }
}

fn tool_part(part: &Map<String, Value>) -> Option<String> {
    let failed = part.get("is_error") == Some(&Value::Bool(true));
    let text = part.get("content").and_then(Value::as_str)?;
    failed.then(|| format!("← {}", one_line(text)))
}

#[cfg(test)]
#[path = "claude_tests.rs"]
mod tests;
