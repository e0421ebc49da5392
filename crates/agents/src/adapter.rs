//! What differs from agent to agent: how it is called, what its stream says, how it ended.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::session::Start;
use crate::trouble::Trouble;
use crate::usage::Usage;

/// What one call of the agent is to do.
#[derive(Debug, Clone)]
pub struct Turn<'a> {
    pub start: &'a Start,
    /// A folder for the files of this call.
    pub folder: &'a Path,
    /// The JSON Schema of the report, as a file and as text.
    pub schema_file: PathBuf,
    pub schema: &'a str,
    /// Permissions that a person gave, as the agent's own rules.
    pub granted: &'a [String],
    pub max_usd: Option<f64>,
    /// The flags of the specialist's own settings.
    pub args: &'a [String],
    /// The program that stands in the settings, in place of the adapter's own.
    pub program: Option<&'a str>,
    /// A file that configures the MCP server, where the agent is to have it.
    pub mcp: Option<&'a McpServer>,
}

/// The MCP server that an agent is given: a command line.
#[derive(Debug, Clone)]
pub struct McpServer {
    pub command: String,
    pub args: Vec<String>,
    /// The same as a file in the form that most agents read.
    pub file: PathBuf,
}

/// A command line. The prompt goes to stdin, never into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub program: String,
    pub args: Vec<String>,
}

/// What one line of the stream means to whoever watches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// One readable line for the log.
    pub log: Option<String>,
    /// The session's id, as soon as the agent names it.
    pub session: Option<String>,
}

/// Something that the agent was not permitted to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Denied {
    /// For a person: what it wanted to do.
    pub what: String,
    /// The rule that allows just that, in the agent's own words.
    pub rule: String,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// The agent says that it is through.
    Through,
    /// A quota is used up; it is back at `until`, where the agent says when.
    Quota {
        until: Option<SystemTime>,
        said: String,
    },
    Trouble(Trouble),
    /// There is no session of that id (any more).
    NoSession,
    /// There is one already, though a new one was asked for.
    SessionExists,
}

/// Whether the agent's figures are of this call or of the whole session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figures {
    OfCall(Usage),
    OfSession(Usage),
}

/// All that a stream said.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    pub ended: Ended,
    pub session: Option<String>,
    pub model: Option<String>,
    pub turns: Option<u64>,
    pub figures: Figures,
    /// The report that the agent made by the schema.
    pub report: Option<Map<String, Value>>,
    /// The agent's last words.
    pub text: Option<String>,
    pub denied: BTreeSet<Denied>,
    pub warnings: Vec<String>,
}

impl Ending {
    /// One of which nothing is known but how it ended.
    pub fn of(ended: Ended) -> Self {
        Self {
            ended,
            session: None,
            model: None,
            turns: None,
            figures: Figures::OfCall(Usage::default()),
            report: None,
            text: None,
            denied: BTreeSet::new(),
            warnings: Vec::new(),
        }
    }
}

/// How the process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code; none where a signal ended it.
    pub code: Option<i32>,
    /// The last lines that it wrote to stderr.
    pub stderr: String,
}

/// One agent's ways.
pub trait Adapter {
    /// The program, where the settings name no other.
    fn program(&self) -> &str;

    /// Whether the agent takes an id for a new session.
    fn takes_session_id(&self) -> bool;

    /// Whether a session can be resumed. Where not, every call begins one, with the whole prompt.
    fn resumes(&self) -> bool {
        true
    }

    /// Whether a person's permission can be passed on to the agent.
    fn permits(&self) -> bool {
        true
    }

    /// Whether the agent takes the schema of the report. Where not, the prompt has it.
    fn takes_schema(&self) -> bool {
        true
    }

    /// The command line for a turn.
    fn call(&self, turn: &Turn<'_>) -> Call;

    /// Takes in one line of the stream.
    fn line(&mut self, line: &str) -> Said;

    /// What it all meant, once the process is gone. Leaves the adapter ready for another call.
    fn ending(&mut self, exit: &Exit) -> Ending;

    /// The command by which a person takes the session over in a terminal.
    fn takeover(&self, program: &str, session: &str) -> Option<String>;
}

/// A text on one line, cut to a length that fits a log.
pub fn one_line(text: &str) -> String {
    const MOST: usize = 300;
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((at, _)) = line.char_indices().nth(MOST) {
        line.truncate(at);
        line.push('…');
    }
    line
}
