//! Looks at the rights of the configuration and of the programs it names, with the folders they lie in.
//!
//! [`policy::rights`](crate::policy::rights) says what is refused. A start and a reload look at all of
//! it, and an attempt at what it is about to run, because a mode may change at any time.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::config::{Config, Specialist};
use crate::engine::event::Event;
use crate::engine::{Engine, rights, users};
use crate::policy::rights::{Found, Runs, Wrong, refuse};
use crate::protocol::agent::AgentName;
use crate::runner::agents;
use crate::runner::launch::working_dir;

/// Everything that is wrong with a configuration file and what it names, each once.
pub fn all(root: &Path, file: &Path, config: &Config) -> Vec<Wrong> {
    all_for(me(), root, file, config)
}

/// The same for a daemon that runs as this user.
pub fn all_for(daemon: u32, root: &Path, file: &Path, config: &Config) -> Vec<Wrong> {
    let mut wrong: Vec<Wrong> = configuration(daemon, root, file).into_iter().collect();
    for specialist in config.specialists.values() {
        wrong.extend(specialist_for(daemon, root, specialist));
    }
    let notify = &config.notify;
    let commands = [&notify.failed, &notify.waiting_human, &notify.completed];
    let gates = config.gates.iter().map(|gate| &gate.command);
    for argv in commands.into_iter().flatten().chain(gates) {
        wrong.extend(command_for(daemon, root, argv));
    }
    let mut seen = BTreeSet::new();
    wrong.retain(|wrong| seen.insert(wrong.what.clone()));
    wrong
}

/// What is wrong with the folders above the root. It is said and not refused: what lies in the root is
/// closed all the same, until somebody exchanges the whole root between two starts.
pub fn above(daemon: u32, root: &Path) -> Option<Wrong> {
    let mut looked = Looked::new(daemon, root, None);
    for folder in root.canonicalize().ok()?.ancestors().skip(1) {
        looked.look(folder, false);
    }
    let wrong = looked.wrong()?;
    Some(Wrong {
        what: format!("{}: everybody may put another root in place", wrong.what),
        advice: wrong.advice,
    })
}

fn configuration(daemon: u32, root: &Path, file: &Path) -> Option<Wrong> {
    let mut looked = Looked::new(daemon, root, None);
    if daemon == 0 {
        // The owner of the root decides which file is called handoffd.toml.
        looked.own(root);
    }
    looked.own(file);
    looked.with_folders(file);
    looked.wrong()
}

/// What is wrong with what an attempt of a specialist runs, the gates that judge it included.
pub fn attempt(root: &Path, config: &Config, specialist: &Specialist) -> Option<Wrong> {
    let gates = || config.gates.iter();
    self::specialist(root, specialist)
        .or_else(|| gates().find_map(|gate| command(root, &gate.command)))
}

/// What is wrong with its command, and the one that verifies its work.
pub fn specialist(root: &Path, specialist: &Specialist) -> Option<Wrong> {
    specialist_for(me(), root, specialist)
}

fn specialist_for(daemon: u32, root: &Path, specialist: &Specialist) -> Option<Wrong> {
    let user = specialist.user.as_ref();
    let user = user.and_then(|user| users::account(user).ok());
    let mut looked = Looked::new(daemon, root, user.map(|user| user.uid));
    let folder = working_dir(specialist, root);
    let path = specialist.env.get("PATH").map(OsString::from);
    let setup = specialist.workspace.as_ref().map(|it| &it.setup);
    for argv in [Some(&specialist.command), specialist.verify.as_ref(), setup] {
        looked.command(argv.into_iter().flatten(), &folder, path.as_deref());
    }
    if let Some(agent) = &specialist.agent {
        let program = agents::program(agent, root).ok();
        let argv = program.iter().chain(&agent.args);
        looked.command(argv, &folder, path.as_deref());
        // Whoever can rewrite its prompt decides what it does.
        for file in agents::files(agent, root) {
            looked.with_folders(&file);
        }
    }
    looked.wrong()
}

/// What is wrong with a command that runs beside the attempts: a gate, or one that tells people.
pub fn command(root: &Path, argv: &[String]) -> Option<Wrong> {
    command_for(me(), root, argv)
}

fn command_for(daemon: u32, root: &Path, argv: &[String]) -> Option<Wrong> {
    let mut looked = Looked::new(daemon, root, None);
    looked.command(argv.iter(), root, None);
    looked.wrong()
}

/// The user that this process runs as.
/// The user that this process runs as.
pub fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// What was looked at, up to the first thing that is wrong.
struct Looked<'a> {
    root: &'a Path,
    runs: Runs,
    seen: BTreeSet<PathBuf>,
    wrong: Option<Wrong>,
}

impl<'a> Looked<'a> {
    fn new(daemon: u32, root: &'a Path, command: Option<u32>) -> Self {
        Self {
            root,
            runs: Runs { daemon, command },
            seen: BTreeSet::new(),
            wrong: None,
        }
    }

    fn wrong(self) -> Option<Wrong> {
        self.wrong
    }

    /// Looks at a program and at every argument that names a file below the root.
    fn command<'w>(
        &mut self,
        argv: impl Iterator<Item = &'w String>,
        folder: &Path,
        path: Option<&OsStr>,
    ) {
        for (at, word) in argv.enumerate() {
            if at == 0 && word.contains('/') {
                self.with_folders(&self.root.join(word));
            } else if at == 0 {
                if let Some(program) = in_path(word, path) {
                    self.with_folders(&program);
                }
            } else {
                // `--settings=file` names one too.
                let value = word.split_once('=').map(|(_, value)| value);
                for name in [Some(word.as_str()), value].into_iter().flatten() {
                    let file = folder.join(name);
                    if !name.is_empty() && file.is_file() && self.is_below(&file) {
                        self.with_folders(&file);
                    }
                }
            }
        }
    }

    fn is_below(&self, file: &Path) -> bool {
        plain(file).starts_with(self.root)
            || matches!(
                (file.canonicalize(), self.root.canonicalize()),
                (Ok(file), Ok(root)) if file.starts_with(&root)
            )
    }

    /// Looks at a file and the folders on the way to it: up to the root, or to the top. Where links
    /// lead, that is looked at as well.
    fn with_folders(&mut self, file: &Path) {
        let file = plain(file);
        self.way_to(&file, self.root);
        if let (Ok(file), Ok(root)) = (file.canonicalize(), self.root.canonicalize()) {
            self.way_to(&file, &root);
        }
    }

    fn way_to(&mut self, file: &Path, root: &Path) {
        let is_ours = file.starts_with(root);
        for path in file.ancestors() {
            // The root itself is a matter of daemon.allow_shared.
            if (is_ours && path == root) || self.wrong.is_some() {
                return;
            }
            if self.seen.insert(path.to_owned()) {
                self.look(path, is_ours);
            }
        }
    }

    /// Looks at the owner of something that must be the daemon's wherever it lies.
    fn own(&mut self, path: &Path) {
        if self.runs.daemon == 0
            && self.wrong.is_none()
            && let Ok(found) = path.metadata()
        {
            // The mode of the root is looked at elsewhere.
            self.judge(path, &found, found.mode() & !0o002, true);
        }
    }

    fn look(&mut self, path: &Path, is_ours: bool) {
        // What is missing can't be run. Where a link leads is looked at by its own path.
        if let Ok(found) = path.symlink_metadata()
            && !found.is_symlink()
        {
            self.judge(path, &found, found.mode(), is_ours);
        }
    }

    fn judge(&mut self, path: &Path, found: &std::fs::Metadata, mode: u32, is_ours: bool) {
        let found = Found {
            path,
            is_folder: found.is_dir(),
            mode,
            owner: found.uid(),
            is_ours,
        };
        let wrong = refuse(found, self.runs, users::name);
        self.wrong = self.wrong.take().or(wrong);
    }
}

/// A path without `..`, which would hide where it leads.
fn plain(path: &Path) -> PathBuf {
    if path.components().any(|part| part == Component::ParentDir) {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    } else {
        path.components().collect()
    }
}

/// The program that this word means.
fn in_path(word: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    let own = std::env::var_os("PATH");
    let path = path.or(own.as_deref())?;
    let mut folders = path.as_bytes().split(|byte| *byte == b':');
    folders.find_map(|folder| {
        let program = Path::new(OsStr::from_bytes(folder)).join(word);
        program.is_file().then_some(program)
    })
}

impl Engine {
    /// A specialist's program may be rewritten by others: none of its attempts starts until that is
    /// over, which is looked at again at every rescan.
    pub(super) fn on_unsafe(&mut self, agent: &AgentName, found: Option<Wrong>) {
        let key = format!("unsafe {agent}");
        let before = self.unsafe_until.remove(agent);
        let Some(wrong) = found else {
            if let Some(until) = before {
                self.schedule.lift_hold_until(agent, until);
                self.problem(&key, None);
            }
            return;
        };
        let config = self.world.config();
        let until = self.now_ms() + super::attempt::ms(config.daemon.rescan);
        self.schedule
            .hold(agent, until, || Self::limits_of(&config, agent));
        self.unsafe_until.insert(agent.clone(), until);
        let text = format!("{agent} starts no attempts: {wrong}");
        self.problem(&key, Some(text));
    }

    /// Looks again at what was wrong.
    pub(super) fn look_at_unsafe(&self) {
        for agent in self.unsafe_until.keys().cloned() {
            self.readers.run(move |world| {
                let config = world.config();
                let specialist = config.specialist(&agent);
                let root = world.layout.root();
                let found = specialist.and_then(|it| rights::attempt(root, &config, it));
                world.tell(Event::Unsafe { agent, found });
            });
        }
    }
}
