//! What an attempt is given: its command, its environment, its working folder.
//!
//! Nothing from a request reaches a shell or the argument list; a request speaks to its
//! specialist through stdin and a closed list of variables.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::Specialist;
use crate::protocol::name::below;
use crate::spool::look::names::Names;

/// Of the daemon's own environment, what every specialist may see.
pub(super) const PASSED: [&str; 7] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "SHELL"];

/// The variable that says until when an attempt may run.
pub const DEADLINE: &str = "HANDOFF_DEADLINE";

const RESULT: &str = ".result";
const BEAT: &str = ".beat";
const REPORT: &str = ".report";
const LOG: &str = ".log";

/// Where an attempt's files stand, by id and attempt. Most of them are never there, so their paths
/// are put together when they are asked for.
#[derive(Debug, Clone)]
pub struct AttemptPaths {
    run: Arc<Names>,
    logs: Arc<Names>,
    /// `<id>.<attempt>`.
    name: String,
    /// The attempt's own folder, where it has one.
    pub home: Option<PathBuf>,
}

impl AttemptPaths {
    pub fn new((run, logs): (&Arc<Names>, &Arc<Names>), id: &str, attempt: u32) -> Self {
        Self {
            run: Arc::clone(run),
            logs: Arc::clone(logs),
            name: format!("{id}.{attempt}"),
            home: None,
        }
    }

    /// The same for an attempt that has a folder of its own.
    #[must_use]
    pub fn at_home(self, home: PathBuf) -> Self {
        Self {
            home: Some(home),
            ..self
        }
    }

    pub fn result(&self) -> PathBuf {
        match &self.home {
            Some(home) => home.join("result"),
            None => below(self.run.folder(), &[&self.name, RESULT]),
        }
    }

    pub fn heartbeat(&self) -> PathBuf {
        match &self.home {
            Some(home) => home.join("heartbeat"),
            None => below(self.run.folder(), &[&self.name, BEAT]),
        }
    }

    /// What its report file said, while its work is verified.
    pub fn report(&self) -> PathBuf {
        below(self.run.folder(), &[&self.name, REPORT])
    }

    pub fn log(&self) -> PathBuf {
        below(self.logs.folder(), &[&self.name, LOG])
    }

    pub fn kept_stdout(&self) -> PathBuf {
        below(self.logs.folder(), &[&self.name, ".out"])
    }

    /// Whether it surely has neither a result file nor a heartbeat, nor a report that is kept.
    pub fn left_nothing(&self) -> bool {
        let [result, beat, report] = [RESULT, BEAT, REPORT].map(|ext| [&self.name, ext].concat());
        self.home.is_none() && self.run.lack(&[&result, &beat, &report])
    }

    /// Whether surely no log of it was put away.
    pub fn has_no_log(&self) -> bool {
        self.logs.lack(&[&[&self.name, LOG].concat()])
    }
}

/// What the variables of one attempt say.
#[derive(Debug)]
pub struct Briefing<'a> {
    pub id: &'a str,
    /// What the keeper knows it by, where that is not the id.
    pub key: Option<&'a str>,
    pub attempt: u32,
    pub max_attempts: u32,
    pub deadline: String,
    pub record: PathBuf,
    pub root: &'a Path,
    pub context: PathBuf,
    pub state_file: Option<PathBuf>,
    /// Where its artifact goes.
    pub artifact: Option<PathBuf>,
    /// Its task, in short.
    pub summary: Option<String>,
    pub last_error: Option<String>,
    pub paths: &'a AttemptPaths,
}

/// The whole environment of an attempt; `inherited` looks into the daemon's own.
pub fn environment(
    briefing: &Briefing<'_>,
    specialist: &Specialist,
    inherited: impl Fn(&str) -> Option<OsString>,
) -> Vec<(OsString, OsString)> {
    let mut env = lasting(briefing.root, &briefing.context, specialist, inherited);
    set(&mut env, "HANDOFF_ID", briefing.id);
    set(&mut env, "HANDOFF_FILE", &briefing.record);
    set(&mut env, "HANDOFF_ATTEMPT", briefing.attempt.to_string());
    set(
        &mut env,
        "HANDOFF_MAX_ATTEMPTS",
        briefing.max_attempts.to_string(),
    );
    set(&mut env, DEADLINE, &briefing.deadline);
    set(&mut env, "HANDOFF_RESULT", briefing.paths.result());
    set(&mut env, "HANDOFF_HEARTBEAT", briefing.paths.heartbeat());
    if let Some(key) = briefing.key {
        set(&mut env, "HANDOFFD_KEY", key);
    }
    if let Some(artifact) = &briefing.artifact {
        set(&mut env, "HANDOFF_ARTIFACT", artifact);
    }
    if let Some(state) = &briefing.state_file {
        set(&mut env, "HANDOFF_STATE_FILE", state);
    }
    if let Some(summary) = &briefing.summary {
        set(
            &mut env,
            "HANDOFF_SUMMARY",
            summary.replace('\0', "\u{fffd}"),
        );
    }
    if let Some(last) = &briefing.last_error {
        set(&mut env, "HANDOFF_LAST_ERROR", last);
    }
    env
}

/// The whole environment of a resident process, which the keeper knows by `key` and `number`.
pub fn resident_environment(
    root: &Path,
    context: &Path,
    (key, number): (&str, u32),
    specialist: &Specialist,
    inherited: impl Fn(&str) -> Option<OsString>,
) -> Vec<(OsString, OsString)> {
    let mut env = lasting(root, context, specialist, inherited);
    set(&mut env, "HANDOFFD_KEY", key);
    set(&mut env, "HANDOFFD_ATTEMPT", number.to_string());
    env
}

/// What is the same for every attempt of a specialist.
fn lasting(
    root: &Path,
    context: &Path,
    specialist: &Specialist,
    inherited: impl Fn(&str) -> Option<OsString>,
) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = Vec::with_capacity(24);
    let passed = PASSED
        .iter()
        .copied()
        .chain(specialist.pass_env.iter().map(String::as_str));
    for name in passed {
        if let Some(value) = inherited(name) {
            set(&mut env, name, value);
        }
    }
    for (name, value) in &specialist.env {
        set(&mut env, name, value);
    }
    set(&mut env, "HANDOFF_ROOT", root);
    set(&mut env, "HANDOFF_CONTEXT_DIR", context);
    env
}

fn set(env: &mut Vec<(OsString, OsString)>, name: &str, value: impl Into<OsString>) {
    let value = value.into();
    match env.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => *old = value,
        None => env.push((name.into(), value)),
    }
}

/// The command as the system gets it: one with a slash is relative to the root, one without is
/// looked up in `PATH`.
pub fn command_line(command: &[String], root: &Path) -> Vec<OsString> {
    command
        .iter()
        .enumerate()
        .map(|(at, word)| match at {
            0 if word.contains('/') => root.join(word).into_os_string(),
            _ => word.into(),
        })
        .collect()
}

pub fn working_dir(specialist: &Specialist, root: &Path) -> PathBuf {
    specialist
        .working_dir
        .as_ref()
        .map_or_else(|| root.to_owned(), |folder| root.join(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn briefing<'a>(paths: &'a AttemptPaths, root: &'a Path) -> Briefing<'a> {
        Briefing {
            id: "x",
            attempt: 2,
            max_attempts: 4,
            deadline: "2026-01-01T00:00:00.000Z".to_owned(),
            record: root.join("handoffs/in-progress/x.json"),
            root,
            context: root.join("context"),
            state_file: None,
            key: None,
            artifact: None,
            summary: None,
            last_error: Some("TIMEOUT: slow".to_owned()),
            paths,
        }
    }

    #[test]
    fn only_what_is_named_is_passed_on() {
        let root = Path::new("/r");
        let [run, logs] = ["/r/run", "/r/logs"].map(|folder| Arc::new(Names::new(folder.into())));
        let paths = AttemptPaths::new((&run, &logs), "x", 2);
        let mut specialist = Specialist {
            pass_env: vec!["KEY".into()],
            ..Specialist::default()
        };
        specialist.env.insert("LANG".into(), "C".into());
        let env = environment(&briefing(&paths, root), &specialist, |name| {
            matches!(name, "PATH" | "LANG" | "KEY" | "SECRET").then(|| format!("own {name}").into())
        });
        let get = |name: &str| {
            env.iter()
                .find(|(known, _)| known == name)
                .map(|(_, v)| v.to_str().unwrap().to_owned())
        };
        assert_eq!(get("PATH").as_deref(), Some("own PATH"));
        assert_eq!(get("KEY").as_deref(), Some("own KEY"));
        assert_eq!(get("LANG").as_deref(), Some("C"), "the configuration wins");
        assert_eq!(get("SECRET"), None);
        assert_eq!(get("HANDOFF_ATTEMPT").as_deref(), Some("2"));
        assert_eq!(get("HANDOFF_RESULT").as_deref(), Some("/r/run/x.2.result"));
        assert_eq!(get("HANDOFF_LAST_ERROR").as_deref(), Some("TIMEOUT: slow"));
        assert_eq!(get("HANDOFF_STATE_FILE"), None);
    }

    #[test]
    fn a_command_with_a_slash_is_relative_to_the_root() {
        let with = |command: &[&str]| Specialist {
            command: command.iter().map(ToString::to_string).collect(),
            ..Specialist::default()
        };
        let root = Path::new("/r");
        assert_eq!(
            command_line(&with(&["specialists/a.sh", "b/c"]).command, root),
            ["/r/specialists/a.sh", "b/c"]
        );
        assert_eq!(
            command_line(&with(&["python3", "s/a.py"]).command, root),
            ["python3", "s/a.py"]
        );
        assert_eq!(
            command_line(&with(&["/bin/true"]).command, root),
            ["/bin/true"]
        );
        assert_eq!(working_dir(&with(&["x"]), root), root);
    }
}
