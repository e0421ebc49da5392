//! The command of an attempt, where `agent` or `workspace` are short for one.
//!
//! Both are commands of this program (`handoffd agent`, `handoffd workspace`), so an attempt is a
//! process as any other, and nothing of an agent's ways is known here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use handoffd_agents::Settings;
pub use handoffd_agents::outcome::NO_REPORT;
use handoffd_agents::run::adapter;
use handoffd_agents::workspace::names::encode;

use crate::config::{CodingAgent, Specialist, Workspace};
use crate::runner::launch::{command_line, working_dir};

/// This program, as the system knew it when the daemon started. An upgrade puts another file in its
/// place, which understands the same commands; where there is none any more, the running program is
/// still to be had.
fn own_program() -> PathBuf {
    static AT_START: OnceLock<Option<PathBuf>> = OnceLock::new();
    let at_start = AT_START.get_or_init(|| std::env::current_exe().ok());
    let there = at_start.as_ref().filter(|program| program.is_file());
    there.map_or_else(|| PathBuf::from("/proc/self/exe"), Clone::clone)
}

/// Looks where this program is. To be called before it can be replaced.
pub fn remember_own_program() {
    let _ = own_program();
}

/// The program that a coding agent is, or why it can't be told.
pub fn program(agent: &CodingAgent, root: &Path) -> Result<String, String> {
    let settings = Settings {
        agent: agent.name.clone(),
        program: None,
        args: agent.args.clone(),
        prompt: None,
        require_report: false,
        max_usd: None,
        mcp: None,
        find_report: |_| None,
    };
    let adapter = adapter(&settings, Some(root)).map_err(|trouble| trouble.said)?;
    Ok(adapter.program().to_owned())
}

/// The files that decide what an agent is told and how it is called: templates of its prompt, and
/// its description. Not all of them need be there.
pub fn files(agent: &CodingAgent, root: &Path) -> Vec<PathBuf> {
    let mut files = templates(agent, root);
    files.push(description(agent, root));
    files
}

/// The templates of the prompt: for a new session, and for one that goes on, where that is there.
pub fn templates(agent: &CodingAgent, root: &Path) -> Vec<PathBuf> {
    let Some(prompt) = &agent.prompt else {
        return Vec::new();
    };
    let new = root.join(prompt);
    let resume = new.with_extension("resume.md");
    let resume = Some(resume).filter(|path| path.exists());
    [new].into_iter().chain(resume).collect()
}

/// Where the user describes an agent.
pub fn description(agent: &CodingAgent, root: &Path) -> PathBuf {
    root.join("agents").join(format!("{}.toml", agent.name))
}

/// The command line of an attempt.
pub fn work(specialist: &Specialist, root: &Path) -> Vec<OsString> {
    let own = own_program();
    let work = match &specialist.agent {
        Some(agent) => of_agent(agent, &own),
        None => command_line(&specialist.command, root),
    };
    match &specialist.workspace {
        Some(workspace) => in_workspace(workspace, &own, work, false),
        None => work,
    }
}

/// The working folder of an attempt; `line` is the line of handoffs that it belongs to.
pub fn work_folder(specialist: &Specialist, root: &Path, line: &str) -> PathBuf {
    match &specialist.workspace {
        Some(_) => root.join("worktrees").join(encode(line)),
        None => working_dir(specialist, root),
    }
}

/// The command line that verifies the work of an attempt.
pub fn verification(specialist: &Specialist, command: &[String], root: &Path) -> Vec<OsString> {
    let command = command_line(command, root);
    match &specialist.workspace {
        Some(workspace) => in_workspace(workspace, &own_program(), command, true),
        None => command,
    }
}

fn of_agent(agent: &CodingAgent, own: &Path) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec![own.into(), "agent".into(), agent.name.as_str().into()];
    if let Some(prompt) = &agent.prompt {
        line.push(joined("--prompt", prompt));
    }
    if agent.require_report {
        line.push("--require-report".into());
    }
    if let Some(most) = agent.max_usd {
        line.push(joined("--max-usd", most.to_string()));
    }
    line.push("--".into());
    line.extend(agent.args.iter().map(OsString::from));
    line
}

fn in_workspace(
    workspace: &Workspace,
    own: &Path,
    command: Vec<OsString>,
    plain: bool,
) -> Vec<OsString> {
    let mut line: Vec<OsString> = vec![own.into(), "workspace".into()];
    line.push(joined("--repository", &workspace.repository));
    if let Some(base) = &workspace.base {
        line.push(joined("--base", base));
    }
    line.extend(workspace.copy.iter().map(|file| joined("--copy", file)));
    if !workspace.setup.is_empty() {
        let list = serde_json::to_string(&workspace.setup).unwrap_or_default();
        line.push(joined("--setup", list));
    }
    if plain {
        line.push("--plain".into());
    }
    line.push("--".into());
    line.extend(command);
    line
}

/// A flag and its value in one word, so that no value is taken for a flag.
fn joined(flag: &str, value: impl Into<OsString>) -> OsString {
    let mut word = OsString::from(format!("{flag}="));
    word.push(value.into());
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[OsString]) -> Vec<&str> {
        line.iter().map(|word| word.to_str().unwrap()).collect()
    }

    #[test]
    fn an_agent_is_a_command_of_this_program() {
        let agent = CodingAgent {
            name: "claude".to_owned(),
            args: vec!["--model".to_owned(), "opus".to_owned()],
            prompt: Some("prompts/coder.md".into()),
            require_report: true,
            max_usd: Some(2.5),
        };
        assert_eq!(
            words(&of_agent(&agent, Path::new("/h"))),
            [
                "/h",
                "agent",
                "claude",
                "--prompt=prompts/coder.md",
                "--require-report",
                "--max-usd=2.5",
                "--",
                "--model",
                "opus"
            ]
        );
    }

    #[test]
    fn a_workspace_is_around_the_command_and_what_verifies_it() {
        let specialist = Specialist {
            command: vec!["specialists/x.sh".to_owned(), "-y".to_owned()],
            workspace: Some(Workspace {
                repository: "/src/shop".into(),
                base: Some("main".to_owned()),
                copy: vec![".env".to_owned(), "-odd".to_owned()],
                setup: vec!["npm".to_owned(), "ci".to_owned()],
            }),
            ..Specialist::default()
        };
        let root = Path::new("/r");
        let around = [
            "workspace",
            "--repository=/src/shop",
            "--base=main",
            "--copy=.env",
            "--copy=-odd",
            "--setup=[\"npm\",\"ci\"]",
        ];
        let line = work(&specialist, root);
        let expected = [&around[..], &["--", "/r/specialists/x.sh", "-y"]].concat();
        assert_eq!(words(&line)[1..], expected);
        let verify = verification(&specialist, &["npm".to_owned(), "test".to_owned()], root);
        let expected = [&around[..], &["--plain", "--", "npm", "test"]].concat();
        assert_eq!(words(&verify)[1..], expected);
        assert!(Path::new(&line[0]).is_absolute());
    }
}
