//! Coding agents of a specialist: `agent`, `workspace` and the keys that belong to them.
//!
//! Both are short for a command of this program; [`crate::runner::agents`] writes that command out.
//! Which agents there are is asked of the adapters and of the files below `agents/`, whose names the
//! reader is given, so that nothing here looks into a folder.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::reader::Section;
use super::types::Specialist;
use super::value::Value;
use crate::protocol::nearest::nearest;

/// The limit for one attempt of a coding agent where nothing else is set: a task takes an agent
/// longer than other programs.
const TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// The least and the most that an attempt may be allowed to cost.
pub(super) const LEAST_USD: f64 = 0.01;
pub(super) const MOST_USD: f64 = 1_000_000.0;

/// A coding agent that does the work, in place of a command.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CodingAgent {
    /// One that is built in, or that `agents/NAME.toml` describes.
    pub name: String,
    /// Flags for it.
    pub args: Vec<String>,
    /// A template for the prompt, relative to the root.
    pub prompt: Option<PathBuf>,
    /// A person looks where it leaves no report.
    pub require_report: bool,
    /// The most that one attempt may cost.
    pub max_usd: Option<f64>,
}

/// The git worktree that a command runs in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Workspace {
    /// What the worktrees are of; relative to the root.
    pub repository: PathBuf,
    pub base: Option<String>,
    /// Files that a new worktree gets from the repository.
    pub copy: Vec<String>,
    /// What prepares a new worktree.
    pub setup: Vec<String>,
}

/// Reads the keys. A specialist without `agent` needs its command.
pub(super) fn read(s: &Section<'_>, it: &mut Specialist, known: &[String], most: Duration) {
    if let Some(value) = s.get("agent") {
        it.agent = name(&value, known).map(|name| CodingAgent {
            name,
            ..CodingAgent::default()
        });
        settings(s, it.agent.get_or_insert_default());
        if s.has("command") {
            value.refuse_key(
                "`agent` is short for a command; keep `agent` or `command`, not both".to_owned(),
            );
        }
        if it.is_resident() {
            value.refuse_key(
                "a coding agent is started for each attempt; take out mode = \"resident\""
                    .to_owned(),
            );
        }
        it.timeout = it.timeout.or(Some(TIMEOUT.min(most)));
    } else {
        for key in ["args", "prompt", "require_report", "max_usd"] {
            if let Some(value) = s.get(key) {
                value.refuse_key("only with `agent`; put it into `command` instead".to_owned());
            }
        }
    }
    workspace(s, it);
    s.set_some("account", &mut it.account, Value::nonempty);
}

fn name(value: &Value<'_>, known: &[String]) -> Option<String> {
    let name = value.nonempty()?;
    if known.contains(&name) {
        return Some(name);
    }
    let near = nearest(&name, known.iter().map(String::as_str));
    let near = near.map_or_else(String::new, |near| format!("did you mean {near:?}? "));
    value.refuse(&format!(
        "{near}known: {}; describe another agent in agents/NAME.toml below the root",
        known.join(", ")
    ))
}

fn settings(s: &Section<'_>, it: &mut CodingAgent) {
    let args = s.get("args");
    if let Some(value) = &args {
        it.args = value.words().unwrap_or_default();
        if let Some(flag) = handoffd_agents::reserved::reserved(&it.name, &it.args) {
            value.refuse_key(format!("{flag} is set by handoffd itself; leave it out"));
        }
    }
    if it.name == "generic" && it.args.is_empty() {
        let hint = "the agent `generic` runs the command in `args`, such as args = [\"my-agent\"]";
        match args {
            Some(value) => value.refuse_key(hint.to_owned()),
            None => s.missing("args", hint),
        }
    }
    s.set_some("prompt", &mut it.prompt, |v| v.nonempty().map(Into::into));
    s.set("require_report", &mut it.require_report, Value::boolean);
    s.set_some("max_usd", &mut it.max_usd, |v| {
        v.float(LEAST_USD..=MOST_USD)
    });
}

/// `workspace`, and what belongs to it. With `"root"` the other keys may stay.
fn workspace(s: &Section<'_>, it: &mut Specialist) {
    let chosen = s.get("workspace");
    let mut of = Workspace::default();
    let mut seen = Vec::new();
    for key in ["repository", "base", "copy", "setup"] {
        let Some(value) = s.get(key) else { continue };
        match key {
            "repository" => of.repository = value.nonempty().map(Into::into).unwrap_or_default(),
            "base" => of.base = base(&value),
            "copy" => of.copy = copy(&value).unwrap_or_default(),
            _ => of.setup = value.command().unwrap_or_default(),
        }
        seen.push((key, value));
    }
    let Some(chosen) = chosen else {
        for (_, value) in seen {
            value.refuse_key("only with workspace = \"worktree\"".to_owned());
        }
        return;
    };
    if chosen.one_of(&[("root", false), ("worktree", true)]) != Some(true) {
        return;
    }
    if !seen.iter().any(|(key, _)| *key == "repository") {
        chosen.refuse_key(
            "a worktree needs its repository, such as repository = \"/srv/src/shop\"".to_owned(),
        );
    }
    if it.is_resident() {
        chosen.refuse_key(
            "a process that stays can't change its folder; take out mode = \"resident\"".to_owned(),
        );
    }
    if it.working_dir.is_some() {
        chosen.refuse_key("the worktree is the working folder; take out `working_dir`".to_owned());
    }
    it.workspace = Some(of);
}

/// A branch or a commit. Git would take a dash for a flag.
fn base(value: &Value<'_>) -> Option<String> {
    let base = value.nonempty()?;
    if base.starts_with('-') {
        return value.refuse("use the name of a branch or a commit");
    }
    Some(base)
}

/// Files of the repository.
fn copy(value: &Value<'_>) -> Option<Vec<String>> {
    let files = value.words()?;
    let is_inside = |file: &String| {
        let mut parts = Path::new(file).components();
        parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    };
    match files.iter().find(|file| !is_inside(file)) {
        Some(out) => value.refuse(&format!(
            "{out:?} is not inside the repository; use paths relative to it, without `..`"
        )),
        None => Some(files),
    }
}
