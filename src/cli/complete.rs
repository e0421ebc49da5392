//! Shell completion, live ids included: the shell asks this program as it completes.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::EnvCompleter;

use crate::cli::{Cli, Global, Outcome, out, root};
use crate::config::Config;
use crate::durable::Durability;
use crate::inspect::artifacts;
use crate::inspect::list::{Filter, rows};
use crate::inspect::newest;
use crate::protocol::agent::AgentName;
use crate::protocol::error::ErrorCode;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;
use crate::store::tasks::Store;

/// The most ids that a shell is given.
const MOST: usize = 200;

#[derive(Debug, Args)]
#[command(after_help = "Install:\n  bash        handoffd completions bash > \
                        ~/.local/share/bash-completion/completions/handoffd\n  zsh         handoffd \
                        completions zsh > ~/.zfunc/_handoffd\n  fish        handoffd completions fish \
                        > ~/.config/fish/completions/handoffd.fish\n  PowerShell  handoffd \
                        completions powershell >> $PROFILE")]
pub struct Options {
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    #[value(name = "powershell")]
    Power,
}

pub fn completions(_global: &Global, options: &Options) -> Outcome {
    use clap_complete::env::{Bash, Fish, Powershell, Zsh};
    let shell: &dyn EnvCompleter = match options.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
        Shell::Power => &Powershell,
    };
    let mut script = Vec::new();
    shell.write_registration("COMPLETE", "handoffd", "handoffd", "handoffd", &mut script)?;
    out::put(script)?;
    Ok(0)
}

/// Answers a shell that is completing, and ends the program then.
pub fn answer_shell() {
    clap_complete::CompleteEnv::with_factory(Cli::command).complete();
}

/// The ids of all handoffs, newest first.
pub fn ids() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(&State::ALL))
}

pub fn failed_ids() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(&[State::Failed, State::Waiting]))
}

/// Those that wait for a person.
pub fn asked_ids() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let filter = Filter {
            states: vec![State::Waiting],
            waiting: Some("human".to_owned()),
            ..Filter::default()
        };
        let layout = Layout::new(&root());
        let Ok(places) = newest::all(&layout, &filter) else {
            return Vec::new();
        };
        rows(&layout, places, &filter)
            .take(MOST)
            .map(|(_, row)| CompletionCandidate::new(row.id).help(row.agent.map(Into::into)))
            .collect()
    })
}

pub fn live_ids() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(&[State::Pending, State::InProgress, State::Waiting]))
}

/// The specialists of the configuration, and `human`.
pub fn agents() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let root = root();
        let config = Config::load(&root.join("handoffd.toml"), false, &root);
        let specialists = config.map(|config| config.specialists).unwrap_or_default();
        let names = specialists.into_keys().filter(|name| !name.is_wildcard());
        names
            .chain([AgentName::human()])
            .map(|name| CompletionCandidate::new(name.bare()))
            .collect()
    })
}

pub fn codes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let codes = ErrorCode::ALL.iter();
        codes
            .map(|code| CompletionCandidate::new(code.as_str()))
            .collect()
    })
}

/// The ids of artifacts, newest first.
pub fn artifact_ids() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let mut offered = Vec::new();
        let all = artifacts::Filter::default();
        // A shell has no use for what went wrong.
        let _ = artifacts::newest(&artifacts::of(&root()), &all, |entry| {
            let path = entry.path.into();
            offered.push(CompletionCandidate::new(entry.artifact_id).help(Some(path)));
            if offered.len() < MOST {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        offered
    })
}

/// Every task that has a state.
pub fn tasks() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let tasks = Store::new(&root(), Durability::Full).tasks();
        tasks
            .unwrap_or_default()
            .into_iter()
            .take(MOST)
            .map(|task| CompletionCandidate::new(task.as_str()))
            .collect()
    })
}

/// The root that the line names which is being completed, or the one of the environment.
fn root() -> PathBuf {
    let home = std::env::var_os("HOME");
    named_root(std::env::args_os(), home.as_deref())
        .or_else(|| std::env::var_os("HANDOFFD_ROOT").map(PathBuf::from))
        .or_else(root::nearest)
        .unwrap_or_else(|| PathBuf::from("."))
}

/// A shell hands the line over behind `--`, word by word and as it was typed.
fn named_root(words: impl Iterator<Item = OsString>, home: Option<&OsStr>) -> Option<PathBuf> {
    let mut line = words.skip_while(|word| word != "--").skip(1);
    let mut named = None;
    while let Some(word) = line.next().filter(|word| word != "--") {
        if word == "--root" {
            named = line.next();
        } else if let Some(value) = word.to_str().and_then(|it| it.strip_prefix("--root=")) {
            named = Some(value.into());
        }
    }
    let named = named.filter(|root| !root.is_empty())?;
    match (named.to_str().and_then(|it| it.strip_prefix("~/")), home) {
        (Some(below), Some(home)) => Some(Path::new(home).join(below)),
        _ => Some(named.into()),
    }
}

fn candidates(states: &[State]) -> Vec<CompletionCandidate> {
    let filter = Filter {
        states: states.to_vec(),
        ..Filter::default()
    };
    newest::first(&Layout::new(&root()), &filter, newest::MANY)
        .into_iter()
        .flatten()
        .take(MOST)
        .map(|place| CompletionCandidate::new(place.id).help(Some(place.state.status().into())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_which_root_is_meant() {
        for (line, root) in [
            ("handoffd -- handoffd show x", None),
            ("handoffd -- handoffd --root q show x", Some("q")),
            ("handoffd -- handoffd show --root=q x", Some("q")),
            ("handoffd -- handoffd --root ~/q show x", Some("/home/me/q")),
            ("handoffd -- handoffd show -- --root q", None),
            ("handoffd -- handoffd --root", None),
        ] {
            let words = line.split(' ').map(OsString::from);
            let found = named_root(words, Some(OsStr::new("/home/me")));
            assert_eq!(found.as_deref(), root.map(Path::new), "{line}");
        }
    }
}
