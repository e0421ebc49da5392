//! One attempt, from the record on stdin to the result.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::adapter::{Adapter, Ended, Ending, Figures, McpServer, Turn};
use crate::changes::Snapshot;
use crate::claude::Claude;
use crate::codex::Codex;
use crate::generic::{Description, Generic, built_in, built_in_names};
use crate::outcome::{Facts, result};
use crate::process;
use crate::prompt::{self, fill, value};
use crate::record::{Record, Surroundings};
use crate::report::{self, schema};
use crate::scratch::Scratch;
use crate::session::{self, Session, Start, derived};
use crate::trouble::{Kind, Trouble};
use crate::usage::Usage;

/// How often the agent is called again in one attempt, at most.
const MOST_CALLS: u32 = 3;

/// What a specialist's configuration says of its agent.
#[derive(Debug, Clone)]
pub struct Settings {
    pub agent: String,
    /// The program, where it is not the agent's usual one.
    pub program: Option<String>,
    pub args: Vec<String>,
    /// A template of the user's own, in place of the built-in one.
    pub prompt: Option<PathBuf>,
    pub require_report: bool,
    pub max_usd: Option<f64>,
    /// The command line of the MCP server that the agent is given.
    pub mcp: Option<Vec<String>>,
    /// The report at the end of a text, by the rules of the queue.
    pub find_report: fn(&str) -> Option<Map<String, Value>>,
}

/// The agents that need no description of the user's own.
pub fn known_agents() -> Vec<&'static str> {
    ["claude", "codex", "generic"]
        .into_iter()
        .chain(built_in_names())
        .collect()
}

/// Finds the adapter for an agent: in code, in `agents/NAME.toml` below the root, or built in.
pub fn adapter(settings: &Settings, root: Option<&Path>) -> Result<Box<dyn Adapter>, Trouble> {
    let wrong = |why: String| Trouble::new(Kind::Settings, why);
    let name = settings.agent.as_str();
    match name {
        "claude" => return Ok(Box::new(Claude::default())),
        "codex" => return Ok(Box::new(Codex::default())),
        "generic" => {
            let command = match &settings.program {
                Some(program) => vec![program.clone()],
                None => settings.args.iter().take(1).cloned().collect(),
            };
            if command.is_empty() {
                return Err(wrong(
                    "the agent `generic` has no command: add it to `args`".to_owned(),
                ));
            }
            return Ok(Box::new(Generic::new(Description {
                command,
                new: Vec::new(),
                resume: Vec::new(),
                allow: Vec::new(),
                takeover: None,
                stream: crate::generic::Stream::default(),
                exit: std::collections::BTreeMap::new(),
                no_session: Vec::new(),
                session_exists: Vec::new(),
            })));
        }
        _ => {}
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(fits) {
        return Err(wrong(format!("{name:?} is not a valid name for an agent")));
    }
    let file = root.map(|root| root.join("agents").join(format!("{name}.toml")));
    let own = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
    let text = match (&own, built_in(name)) {
        (Some(text), _) => text.as_str(),
        (None, Some(text)) => text,
        (None, None) => {
            return Err(wrong(format!(
                "unknown agent {name:?}; known are: {}. To add one, describe it in \
                 agents/{name}.toml",
                known_agents().join(", ")
            )));
        }
    };
    let description =
        Description::parse(text).map_err(|why| wrong(format!("agents/{name}.toml: {why}")))?;
    Ok(Box::new(Generic::new(description)))
}

/// Runs the agent on a record and says what came of it.
pub fn run(settings: &Settings, record: &[u8]) -> Map<String, Value> {
    let around = Surroundings::of_environment();
    let program = |adapter: &dyn Adapter| {
        let own = settings.program.clone();
        own.unwrap_or_else(|| adapter.program().to_owned())
    };
    let Ok(Value::Object(doc)) = serde_json::from_slice(record) else {
        return Trouble::new(Kind::Other, "what it was given is not a record")
            .result(&settings.agent, &settings.agent);
    };
    let mut adapter = match adapter(settings, around.root.as_deref()) {
        Ok(adapter) => adapter,
        Err(trouble) => return trouble.result(&settings.agent, &settings.agent),
    };
    let program = program(adapter.as_ref());
    let attempt = Attempt {
        settings,
        around: &around,
        record: Record { doc },
        program: program.clone(),
    };
    match attempt.run(adapter.as_mut()) {
        Ok(result) => result,
        Err(trouble) => trouble.result(&settings.agent, &program),
    }
}

fn failed(what: &str, error: &io::Error) -> Trouble {
    Trouble::new(Kind::Other, format!("{what}: {error}"))
}

struct Attempt<'a> {
    settings: &'a Settings,
    around: &'a Surroundings,
    record: Record,
    program: String,
}

impl Attempt<'_> {
    fn run(&self, adapter: &mut dyn Adapter) -> Result<Map<String, Value>, Trouble> {
        let folder = std::env::current_dir().map_err(|error| failed("the folder", &error))?;
        let mut known = self.session();
        if self.take_answer(&mut known) {
            self.keep(&known);
        }
        let before = Snapshot::take(&folder);
        let mut warnings = Vec::new();
        let ending = self.talk(adapter, &mut known, &mut warnings)?;
        let after = before.as_ref().and_then(|_| Snapshot::take(&folder));
        let changed = match (&before, &after) {
            (Some(before), Some(after)) => {
                let changed = before.changed_until(after, &folder);
                match &self.around.root {
                    Some(root) => before.work_of_agents(changed, root),
                    None => changed,
                }
            }
            _ => Vec::new(),
        };
        let usage = match ending.figures {
            Figures::OfCall(usage) => usage,
            Figures::OfSession(sums) => {
                let usage = sums.since(known.spent);
                if sums != Usage::default() {
                    known.spent = sums;
                }
                usage
            }
        };
        let session = ending.session.clone().or_else(|| known.id.clone());
        known.id.clone_from(&session);
        known.folder = Some(folder.clone());
        self.keep(&known);
        let takeover = session
            .as_deref()
            .and_then(|session| adapter.takeover(&self.program, session));
        let facts = Facts {
            agent: &self.settings.agent,
            program: &self.program,
            session: session.as_deref(),
            folder: &folder,
            takeover,
            usage,
            changed,
            phase: &self.phase(),
            permits: adapter.permits(),
            refused: &known.refused,
            holds_before: self.record.holds_in_a_row(),
            now: crate::clock::now(),
            require_report: self.settings.require_report,
            find_report: self.settings.find_report,
            warnings,
        };
        Ok(result(&ending, &facts))
    }

    /// Calls the agent, and once more where its session turns out to be gone, or to be there already.
    fn talk(
        &self,
        adapter: &mut dyn Adapter,
        known: &mut Session,
        warnings: &mut Vec<String>,
    ) -> Result<Ending, Trouble> {
        let (new, resume) = self.templates()?;
        let scratch = Scratch::new().map_err(|error| failed("a folder for the schema", &error))?;
        let asking = report::request(&schema());
        let schema = schema().to_string();
        let schema_file = scratch
            .file("report.schema.json", schema.as_bytes())
            .map_err(|error| failed("the schema", &error))?;
        let mcp = self
            .mcp(&scratch)
            .map_err(|error| failed("the MCP settings", &error))?;
        let granted = known.granted.clone();
        if !adapter.resumes() {
            known.id = None;
            known.spent = Usage::default();
        }
        let ways = session::Ways {
            takes_id: adapter.takes_session_id(),
            resumes: adapter.resumes(),
        };
        let mut start = session::start(known, &self.around.id, self.around.attempt, ways);
        for call in 0.. {
            let template = match start {
                Start::New(_) => &new,
                Start::Resume(_) => &resume,
            };
            let turn = Turn {
                start: &start,
                folder: scratch.path(),
                schema_file: schema_file.clone(),
                schema: &schema,
                granted: &granted,
                max_usd: self.settings.max_usd,
                args: self.args(),
                program: self.settings.program.as_deref(),
                mcp: mcp.as_ref(),
            };
            let mut prompt = self.fill(template)?;
            if !adapter.takes_schema() {
                prompt.push_str(&asking);
            }
            let ending = self.call(adapter, &turn, &prompt, known)?;
            start = match (&ending.ended, start) {
                (Ended::NoSession, Start::Resume(id)) if call < MOST_CALLS => {
                    if known.id.is_some() {
                        warnings.push(format!(
                            "can't resume the session {id}; started a new one with the whole prompt"
                        ));
                    }
                    known.id = None;
                    known.spent = Usage::default();
                    Start::New(derived(&self.around.id, &known.begun, call))
                }
                (Ended::SessionExists, Start::New(id)) if call < MOST_CALLS => Start::Resume(id),
                _ => return Ok(ending),
            };
        }
        Err(Trouble::new(Kind::Other, "can't start its session"))
    }

    /// The phase that a report is of, where the agent names none.
    fn phase(&self) -> String {
        let phase = value("phase", &self.record, self.around);
        if phase.is_empty() {
            value("agent", &self.record, self.around)
        } else {
            phase
        }
    }

    /// The arguments that the specialist adds. For `generic`, the first one is the program.
    fn args(&self) -> &[String] {
        let args = &self.settings.args;
        let names_program = self.settings.agent == "generic" && self.settings.program.is_none();
        if names_program { &args[1..] } else { args }
    }

    /// The templates for a new session and for one that goes on.
    fn templates(&self) -> Result<(String, String), Trouble> {
        let Some(path) = &self.settings.prompt else {
            return Ok((prompt::NEW.to_owned(), prompt::RESUME.to_owned()));
        };
        let path = match &self.around.root {
            Some(root) => root.join(path),
            None => path.clone(),
        };
        let read = |path: &Path| {
            let text = fs::read_to_string(path);
            let text = text.map_err(|error| error.to_string())?;
            prompt::check(&text).map_err(|error| error.to_string())?;
            Ok::<_, String>(text)
        };
        let wrong = |path: &Path, why: String| {
            Trouble::new(
                Kind::Settings,
                format!("the prompt template {}: {why}", path.display()),
            )
        };
        let new = read(&path).map_err(|why| wrong(&path, why))?;
        // `coder.md` may have a `coder.resume.md` beside it.
        let beside = path.with_extension("resume.md");
        let resume = if beside.exists() {
            read(&beside).map_err(|why| wrong(&beside, why))?
        } else {
            prompt::RESUME.to_owned()
        };
        Ok((new, resume))
    }

    fn fill(&self, template: &str) -> Result<String, Trouble> {
        fill(template, &|name| value(name, &self.record, self.around))
            .map_err(|error| Trouble::new(Kind::Settings, error.to_string()))
    }

    fn session(&self) -> Session {
        let folder = self.around.context_dir.as_deref();
        session::load(folder, &self.around.id, &self.settings.agent, &self.record)
    }

    /// Keeps what is known of the session. It is a help, not a promise: where it can't be written,
    /// the last result still names the session.
    fn keep(&self, known: &Session) {
        let Some(folder) = &self.around.context_dir else {
            return;
        };
        if let Err(error) = session::save(folder, &self.around.id, known) {
            eprintln!("(can't keep the session: {error})");
        }
    }

    /// A person's answer to a question about permissions gives or refuses just those. Says whether it
    /// did.
    fn take_answer(&self, session: &mut Session) -> bool {
        let (Some(answer), Some(last)) = (self.record.answer(), self.record.last_result()) else {
            return false;
        };
        // An older answer is to another question.
        if !self.record.answers_last_result() {
            return false;
        }
        let asked = last.get("permissions").and_then(Value::as_array);
        let rules = asked
            .into_iter()
            .flatten()
            .filter_map(|asked| asked.get("rule")?.as_str());
        let decided = match answer.action.as_str() {
            "approve" => &mut session.granted,
            "reject" => &mut session.refused,
            _ => return false,
        };
        let before = decided.len();
        for rule in rules {
            if !decided.iter().any(|known| known == rule) {
                decided.push(rule.to_owned());
            }
        }
        decided.len() > before
    }

    fn mcp(&self, scratch: &Scratch) -> io::Result<Option<McpServer>> {
        let Some((command, args)) = self
            .settings
            .mcp
            .as_ref()
            .and_then(|line| line.split_first())
        else {
            return Ok(None);
        };
        let text = serde_json::json!({
            "mcpServers": {"handoffd": {"command": command, "args": args}}
        });
        Ok(Some(McpServer {
            command: command.clone(),
            args: args.to_vec(),
            file: scratch.file("mcp.json", text.to_string().as_bytes())?,
        }))
    }

    /// Calls the agent once.
    fn call(
        &self,
        adapter: &mut dyn Adapter,
        turn: &Turn<'_>,
        prompt: &str,
        known: &mut Session,
    ) -> Result<Ending, Trouble> {
        let call = adapter.call(turn);
        let exit = process::run(&call, prompt, &mut |line| {
            self.beat();
            let Some(line) = line else {
                return;
            };
            let said = adapter.line(line);
            if let Some(session) = said.session
                && known.id.as_deref() != Some(&session)
            {
                known.id = Some(session);
                self.keep(known);
            }
            if let Some(log) = said.log {
                eprintln!("{log}");
            }
        })?;
        Ok(adapter.ending(&exit))
    }

    /// Shows a sign of life. Nothing depends on a single one.
    fn beat(&self) {
        let Some(path) = &self.around.heartbeat else {
            return;
        };
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        if let Ok(file) = file {
            drop(file.set_modified(crate::clock::now()));
        }
    }
}
