//! Any other agent, described by a page of TOML: how it is called, and where in its stream its
//! session, words, figures and errors are found.
//!
//! `agents/NAME.toml` below the root describes an agent of the user's own; the files of this
//! crate's `agents/` folder are built in.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::adapter::{Adapter, Call, Denied, Ended, Ending, Exit, Figures, Said, Turn, one_line};
use crate::session::Start;
use crate::trouble::{Kind, Trouble, is_quota, kind_of};
use crate::usage::Usage;

/// The agents that are described in files and come with the program.
const BUILT_IN: &[(&str, &str)] = &[
    ("gemini", include_str!("../agents/gemini.toml")),
    ("opencode", include_str!("../agents/opencode.toml")),
];

/// A description that comes with the program.
pub fn built_in(name: &str) -> Option<&'static str> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text)
}

/// The names of all agents that come as descriptions.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// How an agent is called and understood.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The command; the prompt goes to its stdin. `{schema_file}` is a file with the schema of the
    /// report; without it, the prompt asks for the report.
    pub command: Vec<String>,
    /// Arguments for a new session; `{session}` is its id, for agents that take one.
    #[serde(default)]
    pub new: Vec<String>,
    /// Arguments for going on with one; without them, every attempt begins anew.
    #[serde(default)]
    pub resume: Vec<String>,
    /// Arguments for each permission that a person gave; `{permission}` is what the stream had in
    /// `denied`. Without them, a person has to permit it in the agent's own settings.
    #[serde(default)]
    pub allow: Vec<String>,
    /// The command that takes a session over by hand.
    #[serde(default)]
    pub takeover: Option<String>,
    #[serde(default)]
    pub stream: Stream,
    /// Exit codes that mean something of their own.
    #[serde(default)]
    pub exit: BTreeMap<String, Meaning>,
    /// Texts that mark a session that is not there any more.
    #[serde(default)]
    pub no_session: Vec<String>,
    /// Texts that mark a session that is there already, though a new one was to begin.
    #[serde(default)]
    pub session_exists: Vec<String>,
}

/// What an exit code means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meaning {
    Quota,
    NotLoggedIn,
    LimitReached,
    TooOld,
}

/// Where things are found in the stream. Without any of it, all that is printed is the answer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stream {
    pub session: Vec<Place>,
    pub model: Vec<Place>,
    /// The answer. Several that match are joined; `last = true` keeps only the last one.
    pub text: Vec<Place>,
    /// What it was not permitted to do. The first one in an event counts.
    pub denied: Vec<Place>,
    /// Why it failed. Several in one event are joined.
    pub error: Vec<Place>,
    pub input_tokens: Vec<Place>,
    pub output_tokens: Vec<Place>,
    pub cost_usd: Vec<Place>,
    /// The figures are sums over the session, not of one call.
    pub figures_of_session: bool,
}

/// A value in an event: `when` says in which events, `at` is the way to it, with dots.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    #[serde(default)]
    pub when: BTreeMap<String, String>,
    pub at: String,
    #[serde(default)]
    pub last: bool,
}

impl Place {
    fn find<'v>(&self, event: &'v Value) -> Option<&'v Value> {
        let holds = |(way, value): (&String, &String)| {
            at(event, way).and_then(Value::as_str) == Some(value)
        };
        if !self.when.iter().all(holds) {
            return None;
        }
        at(event, &self.at).filter(|value| !value.is_null())
    }
}

fn at<'v>(event: &'v Value, way: &str) -> Option<&'v Value> {
    way.split('.').try_fold(event, |value, key| match value {
        Value::Array(list) => list.get(key.parse::<usize>().ok()?),
        other => other.get(key),
    })
}

impl Description {
    /// Reads a description; the error names what is wrong, with its line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let description: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map(|before| before.matches('\n').count() + 1);
            let line = line.map_or_else(String::new, |line| format!("line {line}: "));
            format!("{line}{}", error.message())
        })?;
        if description.command.is_empty() {
            return Err("`command` is empty: it names the program".to_owned());
        }
        Ok(description)
    }

    fn is_stream(&self) -> bool {
        self.stream != Stream::default()
    }
}

/// The state of one call.
#[derive(Debug)]
pub struct Generic {
    description: Description,
    state: State,
}

#[derive(Debug, Default)]
struct State {
    session: Option<String>,
    model: Option<String>,
    text: String,
    error: Option<String>,
    denied: BTreeSet<Denied>,
    sums: Usage,
    events: u64,
}

impl Generic {
    pub fn new(description: Description) -> Self {
        Self {
            description,
            state: State::default(),
        }
    }
}

impl Adapter for Generic {
    fn program(&self) -> &str {
        &self.description.command[0]
    }

    fn takes_session_id(&self) -> bool {
        let takes = |argument: &String| argument.contains("{session}");
        self.description.new.iter().any(takes)
    }

    fn takes_schema(&self) -> bool {
        let takes = |argument: &String| argument.contains("{schema_file}");
        self.description.command.iter().any(takes)
    }

    fn permits(&self) -> bool {
        !self.description.allow.is_empty()
    }

    fn resumes(&self) -> bool {
        !self.description.resume.is_empty()
    }

    fn call(&self, turn: &Turn<'_>) -> Call {
        let description = &self.description;
        let begins = match turn.start {
            Start::New(_) => &description.new,
            Start::Resume(_) => &description.resume,
        };
        let own = description.command[1..].iter().chain(begins);
        let schema = turn.schema_file.display().to_string();
        let own = own.map(|argument| {
            let argument = argument.replace("{session}", turn.start.id());
            argument.replace("{schema_file}", &schema)
        });
        let allowed = turn.granted.iter().flat_map(|permission| {
            let each = description.allow.iter();
            each.map(move |argument| argument.replace("{permission}", permission))
        });
        Call {
            program: turn.program.unwrap_or(self.program()).to_owned(),
            args: own
                .chain(allowed)
                .chain(turn.args.iter().cloned())
                .collect(),
        }
    }

    fn line(&mut self, line: &str) -> Said {
        let stream = &self.description.stream;
        let state = &mut self.state;
        if !self.description.is_stream() {
            state.text.push_str(line);
            state.text.push('\n');
            return Said {
                log: Some(one_line(line)).filter(|line| !line.is_empty()),
                session: None,
            };
        }
        let Ok(event @ Value::Object(_)) = serde_json::from_str::<Value>(line) else {
            return Said {
                log: Some(one_line(line)).filter(|line| !line.is_empty()),
                session: None,
            };
        };
        state.events += 1;
        let text = |places: &[Place]| {
            let found = places.iter().find_map(|place| place.find(&event))?;
            found.as_str().map(str::to_owned)
        };
        let mut said = Said::default();
        if state.session.is_none()
            && let Some(session) = text(&stream.session)
        {
            state.session = Some(session.clone());
            said.log = Some(format!("session {session}"));
            said.session = Some(session);
        }
        if let Some(model) = text(&stream.model) {
            state.model = Some(model);
        }
        if let Some(rule) = text(&stream.denied) {
            said.log = Some(format!("not permitted: {}", one_line(&rule)));
            state.denied.insert(Denied {
                what: format!("do this: {}", one_line(&rule)),
                rule,
            });
        }
        for place in &stream.text {
            if let Some(words) = place.find(&event).and_then(Value::as_str) {
                if place.last {
                    state.text.clear();
                }
                state.text.push_str(words);
                said.log = Some(one_line(words)).filter(|line| !line.is_empty());
            }
        }
        let found: Vec<String> = stream
            .error
            .iter()
            .filter_map(|place| place.find(&event))
            .map(|found| {
                found
                    .as_str()
                    .map_or_else(|| found.to_string(), str::to_owned)
            })
            .collect();
        if !found.is_empty() {
            let words = found.join(" ");
            said.log = Some(one_line(&words));
            state.error = Some(words);
        }
        let number =
            |places: &[Place]| places.iter().find_map(|place| place.find(&event)?.as_u64());
        let call = Usage {
            input_tokens: number(&stream.input_tokens).unwrap_or(0),
            output_tokens: number(&stream.output_tokens).unwrap_or(0),
            cost_usd: stream
                .cost_usd
                .iter()
                .find_map(|place| place.find(&event)?.as_f64()),
        };
        state.sums = if stream.figures_of_session && call != Usage::default() {
            call
        } else {
            state.sums.plus(call)
        };
        said
    }

    fn ending(&mut self, exit: &Exit) -> Ending {
        let state = std::mem::take(&mut self.state);
        let ended = self.how(&state, exit);
        let figures = if self.description.stream.figures_of_session {
            Figures::OfSession(state.sums)
        } else {
            Figures::OfCall(state.sums)
        };
        let text = state.text.trim();
        Ending {
            ended,
            session: state.session,
            model: state.model,
            turns: None,
            figures,
            report: whole_object(text),
            text: Some(text.to_owned()).filter(|text| !text.is_empty()),
            denied: state.denied,
            warnings: Vec::new(),
        }
    }

    fn takeover(&self, program: &str, session: &str) -> Option<String> {
        let command = self.description.takeover.as_ref()?;
        Some(
            command
                .replace("{program}", program)
                .replace("{session}", session),
        )
    }
}

impl Generic {
    fn how(&self, state: &State, exit: &Exit) -> Ended {
        let stderr = exit.stderr.trim();
        let said = state.error.clone().unwrap_or_else(|| one_line(stderr));
        if exit.code == Some(0) && state.error.is_none() {
            if self.description.is_stream() && state.events == 0 {
                return Ended::Trouble(Trouble::new(Kind::CutOff, said));
            }
            return Ended::Through;
        }
        let says = |mark: &String| stderr.contains(mark.as_str()) || said.contains(mark.as_str());
        if self.description.no_session.iter().any(says) {
            return Ended::NoSession;
        }
        if self.description.session_exists.iter().any(says) {
            return Ended::SessionExists;
        }
        let meaning = exit
            .code
            .and_then(|code| self.description.exit.get(&code.to_string()));
        let kind = match meaning {
            Some(Meaning::Quota) => return Ended::Quota { until: None, said },
            Some(Meaning::NotLoggedIn) => Kind::NotLoggedIn,
            Some(Meaning::LimitReached) => Kind::LimitReached,
            Some(Meaning::TooOld) => Kind::TooOld,
            None => kind_of(&said),
        };
        if kind == Kind::Other && is_quota(&said) {
            return Ended::Quota { until: None, said };
        }
        Ended::Trouble(Trouble::new(kind, said))
    }
}

/// A text that is one JSON object and nothing else.
fn whole_object(text: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

#[cfg(test)]
#[path = "generic_tests.rs"]
mod tests;
