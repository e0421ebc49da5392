//! `handoffd init --agents`: a root for the coding agents that are installed.
//!
//! The configuration is written for the agents and the repository that were found, so that nothing is left
//! to fill in before the first task.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use handoffd_agents::workspace::git::Repository;
use toml::Value;

/// An agent that a root can be made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agent {
    /// Its name in `agent = "…"`, which is its program too.
    pub name: &'static str,
    /// The package of npm that has it.
    pub package: &'static str,
    /// Flags with which it may change files.
    writes: &'static [&'static str],
    /// The variables that its key may be in.
    keys: &'static [&'static str],
}

/// All of them. The first one that is installed gets the workflow.
pub const AGENTS: [Agent; 4] = [
    Agent {
        name: "claude",
        package: "@anthropic-ai/claude-code",
        writes: &["--permission-mode", "acceptEdits"],
        keys: &["ANTHROPIC_API_KEY"],
    },
    Agent {
        name: "codex",
        package: "@openai/codex",
        writes: &["-s", "workspace-write"],
        keys: &["OPENAI_API_KEY"],
    },
    Agent {
        name: "gemini",
        package: "@google/gemini-cli",
        writes: &["--approval-mode", "auto_edit"],
        keys: &["GEMINI_API_KEY"],
    },
    Agent {
        name: "opencode",
        package: "opencode-ai",
        writes: &["--auto"],
        keys: &[],
    },
];

/// How the tests of a repository are run, by a file in it.
const TESTS: [(&str, &[&str]); 6] = [
    ("package.json", &["npm", "test"]),
    ("Cargo.toml", &["cargo", "test"]),
    ("go.mod", &["go", "test", "./..."]),
    ("pyproject.toml", &["python3", "-m", "pytest"]),
    ("mix.exs", &["mix", "test"]),
    ("Makefile", &["make", "test"]),
];

/// Files of the new root, beside its configuration.
pub const FILES: [(&str, &str); 4] = [
    ("prompts/planner.md", include_str!("agents/planner.md")),
    ("prompts/coder.md", include_str!("agents/coder.md")),
    ("prompts/tester.md", include_str!("agents/tester.md")),
    ("examples/feature.json", include_str!("agents/feature.json")),
];

/// What a root is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub agents: Vec<Agent>,
    /// The work tree of the repository, and the commit that work begins at.
    pub repository: Option<PathBuf>,
    tests: Option<&'static [&'static str]>,
    setup: Option<&'static [&'static str]>,
}

/// The agents in a PATH.
pub fn installed(path: &std::ffi::OsStr) -> Vec<Agent> {
    let is_there = |agent: &Agent| {
        std::env::split_paths(path).any(|folder| {
            let file = folder.join(agent.name);
            rustix::fs::access(&file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
        })
    };
    AGENTS.into_iter().filter(is_there).collect()
}

/// Looks at the repository, if there is one.
pub fn look(agents: Vec<Agent>, repository: Option<&Repository>) -> Found {
    let top = repository.map(|it| it.top.clone());
    let has = |name: &str| top.as_ref().is_some_and(|top| top.join(name).exists());
    let tests = TESTS.iter().find(|(file, _)| has(file));
    Found {
        tests: tests.map(|(_, command)| *command),
        setup: has("package-lock.json").then_some(&["npm", "ci"]),
        agents,
        repository: top,
    }
}

impl Found {
    /// The configuration.
    pub fn config(&self) -> String {
        let lead = self.agents.first().copied().unwrap_or(AGENTS[0]);
        let mut text = String::from(HEAD);
        let mut coder: Vec<String> = words(lead.writes);
        if let Some(tests) = self.tests.filter(|_| lead.name == "claude") {
            coder.push(format!("--allowedTools=Bash({})", tests.join(" ")));
        }
        self.specialist(&mut text, "@planner", lead, "planner", &[]);
        text.push_str(
            "\n# Shows its work to a human before it is completed: prompts/coder.md says so.\n",
        );
        self.specialist(&mut text, "@coder", lead, "coder", &coder);
        text.push_str("require_report = true         # without a report, a human looks\n");
        if let Some(tests) = self.tests {
            text.push_str("\n[specialists.\"@tester\"]\n");
            _ = writeln!(text, "command = {}", list(&words(tests)));
            self.workspace(&mut text);
        } else {
            text.push('\n');
            self.specialist(&mut text, "@tester", lead, "tester", &coder);
        }
        text.push_str(WORKFLOW);
        for agent in &self.agents {
            _ = write!(
                text,
                "\n# handoffd submit --to {} --input '{{\"task\": \"…\"}}'\n",
                agent.name
            );
            let name = format!("@{}", agent.name);
            self.specialist(&mut text, &name, *agent, "", &words(agent.writes));
        }
        text
    }

    fn specialist(
        &self,
        text: &mut String,
        name: &str,
        agent: Agent,
        prompt: &str,
        args: &[String],
    ) {
        _ = writeln!(text, "[specialists.\"{name}\"]\nagent = \"{}\"", agent.name);
        if !args.is_empty() {
            _ = writeln!(text, "args = {}", list(args));
        }
        if !prompt.is_empty() {
            _ = writeln!(text, "prompt = \"prompts/{prompt}.md\"");
        }
        if !agent.keys.is_empty() {
            _ = writeln!(text, "pass_env = {}", list(&words(agent.keys)));
        }
        _ = writeln!(text, "account = \"{}\"", agent.name);
        self.workspace(text);
    }

    fn workspace(&self, text: &mut String) {
        let Some(repository) = &self.repository else {
            text.push_str("# workspace = \"worktree\"      # a git worktree for each chain of tasks, of this:\n");
            text.push_str("# repository = \"/srv/src/shop\"\n");
            return;
        };
        let repository = Value::from(repository.display().to_string());
        _ = writeln!(text, "workspace = \"worktree\"\nrepository = {repository}");
        if let Some(setup) = self.setup {
            _ = writeln!(text, "setup = {}", list(&words(setup)));
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A list as TOML.
fn list(words: &[String]) -> String {
    let words: Vec<String> = words
        .iter()
        .map(|word| Value::from(word.as_str()).to_string())
        .collect();
    format!("[{}]", words.join(", "))
}

/// The folders that a queue keeps in a root which is inside of a repository, for git to leave alone.
pub const IGNORED: [&str; 6] = [
    "handoffs/",
    ".handoffd/",
    "audit/",
    "artifacts/",
    "context/",
    "worktrees/",
];

/// Tells git to leave the folders of a root inside of its repository alone, in the file that is no part of
/// the repository's content. `None` if the root is elsewhere.
pub fn ignore(repository: &Repository, root: &Path) -> std::io::Result<Option<PathBuf>> {
    let root = root.canonicalize()?;
    let Ok(below) = root.strip_prefix(repository.top.canonicalize()?) else {
        return Ok(None);
    };
    let info = repository.common.join("info");
    let file = info.join("exclude");
    let mut text = fs::read_to_string(&file).unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    for name in IGNORED {
        let line = format!("/{}", below.join(name).display());
        if !text.lines().any(|known| known == line) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    fs::create_dir_all(info)?;
    fs::write(&file, text)?;
    Ok(Some(file))
}

const HEAD: &str = include_str!("agents/head.toml");
const WORKFLOW: &str = include_str!("agents/workflow.toml");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::protocol::agent::AgentName;

    fn config(found: &Found) -> Config {
        let text = found.config();
        Config::parse(&text, Path::new("handoffd.toml"))
            .unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn every_agent_gets_a_configuration_that_is_right() {
        for agents in [
            vec![],
            vec![AGENTS[0]],
            AGENTS.to_vec(),
            vec![AGENTS[1]],
            vec![AGENTS[2], AGENTS[3]],
        ] {
            for repository in [None, Some(PathBuf::from("/srv/a \"shop\""))] {
                for tests in [None, Some(TESTS[0].1)] {
                    let found = Found {
                        agents: agents.clone(),
                        repository: repository.clone(),
                        tests,
                        setup: tests.map(|_| &["npm", "ci"][..]),
                    };
                    let config = config(&found);
                    let coder = &config.specialists[&AgentName::parse("@coder").unwrap()];
                    assert_eq!(coder.workspace.is_some(), repository.is_some());
                    assert_eq!(config.specialists.len(), 3 + agents.len());
                    assert_eq!(config.workflows["feature"].len(), 3);
                }
            }
        }
    }
}
