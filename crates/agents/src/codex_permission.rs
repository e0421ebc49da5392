//! What codex was refused, and how a person's approval reaches it.
//!
//! `codex exec` asks nobody: a command that wants to leave the sandbox is refused, and the stream does
//! not say so. The file of the session does, with the command.
//!
//! An approval is of one command. `--approve-for-me` makes codex ask, and a hook of this call alone
//! answers before codex' own reviewer: it allows the very commands that a person approved and refuses
//! all others. Codex runs a hook only if its hash is trusted; the hash comes on the same command line.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::adapter::{Denied, one_line};
use crate::permit;

/// What the hook says to codex; also how the refusal is found again in the session's file.
const REFUSED: &str = "a human has to permit this first";

/// What codex says of a command that was refused.
const MARKS: [&str; 3] = [
    "approval policy is Never; reject command",
    "rejected by user approval settings",
    REFUSED,
];

/// Seconds that codex gives the hook.
const TIMEOUT: u64 = 30;

/// The folders of sessions are by year, month and day.
const DEPTH: usize = 3;

/// Flags that choose the sandbox; with `--approve-for-me` codex chooses it.
const SANDBOX: [&str; 2] = ["-s", "--sandbox"];

/// Flags with which codex refuses nothing, or has somebody else to ask.
const OPEN: [&str; 2] = [
    "--dangerously-bypass-approvals-and-sandbox",
    "--approve-for-me",
];

/// The commands that were refused in the last turn of a session.
pub fn refused(session: &str) -> BTreeSet<Denied> {
    let home = std::env::var_os("CODEX_HOME").map(PathBuf::from);
    let own = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".codex"));
    let Some(sessions) = home.or_else(own).map(|home| home.join("sessions")) else {
        return BTreeSet::new();
    };
    let file = find(&sessions, &format!("-{session}.jsonl"), DEPTH);
    let file = file.and_then(|path| fs::File::open(path).ok());
    let lines = file.map(|file| BufReader::new(file).lines().map_while(Result::ok));
    lines.map_or_else(BTreeSet::new, in_last_turn)
}

fn find(folder: &Path, end: &str, depth: usize) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    // The newest are the likeliest.
    paths.sort();
    paths.into_iter().rev().find_map(|path| {
        if depth > 0 && path.is_dir() {
            return find(&path, end, depth - 1);
        }
        path.to_str()
            .is_some_and(|name| name.ends_with(end))
            .then_some(path)
    })
}

/// Calls and what they gave back, since the last message of the user.
fn in_last_turn(lines: impl Iterator<Item = String>) -> BTreeSet<Denied> {
    let mut calls: Vec<(String, String)> = Vec::new();
    let mut refused = BTreeSet::new();
    for line in lines {
        let Ok(event) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        if event["type"] != "response_item" {
            continue;
        }
        let item = &event["payload"];
        let id = item["call_id"].as_str().unwrap_or_default();
        match item["type"].as_str().unwrap_or_default() {
            "message" if item["role"] == "user" => {
                calls.clear();
                refused.clear();
            }
            "function_call" | "custom_tool_call" => {
                calls.extend(wanted(item).map(|command| (id.to_owned(), command)));
            }
            "function_call_output" | "custom_tool_call_output" => {
                let said = item["output"].to_string();
                let is_refusal = MARKS.iter().any(|mark| said.contains(mark));
                let call = calls.iter().find(|(call, _)| call == id);
                if let Some((_, command)) = call.filter(|_| is_refusal) {
                    refused.insert(Denied {
                        what: format!("run outside the sandbox: {}", one_line(command)),
                        rule: command.clone(),
                    });
                }
            }
            _ => {}
        }
    }
    refused
}

/// The command of a call: what the hook is shown, too.
fn wanted(item: &Value) -> Option<String> {
    if let Some(input) = item["input"].as_str() {
        return Some(input.to_owned());
    }
    let arguments: Value = serde_json::from_str(item["arguments"].as_str()?).ok()?;
    let command = ["cmd", "command"]
        .iter()
        .find_map(|key| arguments.get(*key));
    match command? {
        Value::String(command) => Some(command.clone()),
        other => Some(other.to_string()),
    }
}

/// Arguments for a call in which these commands, and no others, may leave the sandbox. `folder` is for
/// the files of the call.
pub fn granting(
    commands: &[String],
    args: &[String],
    folder: &Path,
) -> std::io::Result<Vec<String>> {
    if args.iter().any(|arg| OPEN.contains(&arg.as_str())) {
        return Ok(args.to_vec());
    }
    let answer = |decision: Value| {
        let event = "PermissionRequest";
        json!({"hookSpecificOutput": {"hookEventName": event, "decision": decision}})
    };
    let allow = answer(json!({"behavior": "allow"}));
    let deny = answer(json!({"behavior": "deny", "message": REFUSED}));
    let permitted: Vec<_> = commands.iter().map(|it| ("command", it.as_str())).collect();
    let command = permit::write(folder, &permitted, &allow, Some(&deny))?;
    let words = Value::String(command.clone());
    let hash = Value::String(trusted_hash(&command));
    let mut all = vec![
        "--approve-for-me".to_owned(),
        "-c".to_owned(),
        format!(
            "hooks.PermissionRequest=[{{hooks=[{{type=\"command\",command={words},timeout={TIMEOUT}}}]}}]"
        ),
        "-c".to_owned(),
        format!(
            "hooks.state={{\"/<session-flags>/config.toml:permission_request:0:0\"={{trusted_hash={hash}}}}}"
        ),
    ];
    all.extend(without_sandbox(args));
    Ok(all)
}

fn without_sandbox(args: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if SANDBOX.contains(&arg.as_str()) {
            args.next();
        } else if !arg.starts_with("--sandbox=") {
            kept.push(arg.clone());
        }
    }
    kept
}

/// The hash by which codex knows a hook: of its definition as JSON, keys in order.
fn trusted_hash(command: &str) -> String {
    // A map of this crate keeps the order in which keys come.
    let definition = json!({
        "event_name": "permission_request",
        "hooks": [{"async": false, "command": command, "timeout": TIMEOUT, "type": "command"}],
    });
    let mut said = "sha256:".to_owned();
    for byte in Sha256::digest(definition.to_string()) {
        _ = write!(said, "{byte:02x}");
    }
    said
}

#[cfg(test)]
#[path = "codex_permission_tests.rs"]
mod tests;
