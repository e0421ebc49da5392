//! `handoffd wait`: blocks until handoffs have ended, woken by the folders themselves.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::Access;
use serde_json::Value;

use crate::cli::{Failed, Global, Outcome, access, complete, duration, known, out, style, wake};
use crate::durable::{self, Durability};
use crate::inspect::daemon::Daemon;
use crate::protocol::id::HandoffId;
use crate::protocol::json;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::protocol::shown;
use crate::spool::foreign::{own_states, why_not_believed};
use crate::spool::layout::Layout;
use crate::spool::look::{Identity, open_quietly};
use crate::store::archive::Archive;

/// Looked at even if no event came: a folder may be on a file system that sends none.
const LOOK_ANYWAY: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
#[command(
    after_help = "Prints one record as JSON; several as one line each, in the order given.\n\
                        Exit code: 0 all completed, 1 one failed or is unknown, 124 timed out."
)]
pub struct Options {
    #[arg(required = true, value_name = "ID", add = complete::ids())]
    ids: Vec<String>,
    /// Give up after this time
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
}

pub fn wait(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    let mut ids = Vec::new();
    for id in &options.ids {
        // It may have been on its way back: a second look tells.
        ids.push(if is_known(&layout, id) || is_known(&layout, id) {
            id.clone()
        } else {
            known(&layout, id)?.id
        });
    }
    until_ended(&layout, &ids, options.timeout, Form::Record)
}

/// Looks at every place where it may stand, in the order in which it passes them.
fn is_known(layout: &Layout, id: &str) -> bool {
    HandoffId::parse_made(id).is_ok()
        && (layout.submission(id).is_some()
            || layout.is_being_refused(id)
            || !layout.states_of(id).is_empty()
            || layout.archived(id).is_some())
}

/// An error if outcomes could not be seen: that would be waiting for ever.
pub fn may_wait(layout: &Layout) -> Result<(), Failed> {
    for state in [State::Completed, State::Failed] {
        let wanted = Access::READ_OK | Access::EXEC_OK;
        access::allowed(layout.state(state), wanted, "read")?;
    }
    Ok(())
}

/// How outcomes are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The whole record, as JSON.
    Record,
    /// One line for a person.
    Line,
}

/// Waits for all of them and prints how they ended.
pub fn until_ended(
    layout: &Layout,
    ids: &[String],
    timeout: Option<Duration>,
    form: Form,
) -> Outcome {
    may_wait(layout)?;
    // One that is too far away never comes.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let folders = [State::Completed, State::Failed].map(|state| layout.state(state).to_owned());
    let (_watcher, told) = wake::on_changes(&folders)?;
    let mut any_failed = false;
    let mut waits = false;
    for id in ids {
        let mut disbelieved = None;
        let (state, bytes) = loop {
            if let Some(ended) = ended(layout, id, &mut disbelieved)? {
                // It may have been moved this very moment. Whoever is told may rely on it, so it
                // must not be gone after a power cut.
                let folder = Layout::open_dir(layout.state(ended.0))?;
                durable::sync_dir(&folder, Durability::Full)?;
                break ended;
            }
            if let Some(packed) = packed(layout, id) {
                break packed;
            }
            refuse_stranger(layout, id, &mut disbelieved)?;
            if !waits {
                waits = true;
                tell_if_idle(layout);
            }
            let left = deadline.map_or(LOOK_ANYWAY, |at| {
                at.saturating_duration_since(Instant::now())
            });
            match told.recv_timeout(left.min(LOOK_ANYWAY)) {
                Ok(()) => while told.try_recv().is_ok() {},
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    if deadline.is_some_and(|at| Instant::now() >= at) {
                        return Err(Failed {
                            exit: 124,
                            ..Failed::thing("TIMED_OUT", anyhow::anyhow!("{id} has not ended yet"))
                        });
                    }
                }
            }
        };
        any_failed |= state == State::Failed;
        match form {
            Form::Record => print(&bytes, ids.len() > 1)?,
            Form::Line => out::tell(in_a_line(id, state, &bytes))?,
        }
    }
    if any_failed && form == Form::Line {
        out::talk!("for what to do about a failure: handoffd show ID");
    }
    Ok(u8::from(any_failed))
}

/// Whoever waits should know that nobody works.
pub fn tell_if_idle(layout: &Layout) {
    let daemon = Daemon::of(layout);
    if !daemon.may_run() {
        let root = layout.root().display();
        out::talk!("no daemon runs on {root}; waiting for one");
    }
    tell_if_stopping(layout, &daemon);
}

/// What is dropped now would otherwise seem to be taken up at once.
pub fn tell_if_stopping(layout: &Layout, daemon: &Daemon) {
    if daemon.stopping {
        out::talk!(
            "the daemon on {} is stopping: handoffs that have not started wait for the next daemon",
            layout.root().display()
        );
    }
}

/// The record of one that has ended. A file that somebody else put among the outcomes is not
/// believed; why stays in `disbelieved` with the file, so that the log is not asked again for it.
fn ended(
    layout: &Layout,
    id: &str,
    disbelieved: &mut Option<(Identity, String)>,
) -> io::Result<Option<(State, Vec<u8>)>> {
    let own = own_states(layout, id).into_iter();
    for state in own.filter(|state| state.is_final()) {
        let path = layout.record(state, id);
        let identity = Identity::at(&path).ok();
        if disbelieved.as_ref().map(|(it, _)| *it) == identity && identity.is_some() {
            continue;
        }
        // Whatever a stranger put there, nobody is waited for: a pipe would never be done.
        let read = open_quietly(&path).and_then(|mut file| {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map(|_| bytes)
        });
        let bytes = match read {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(durable::at(&path, &error));
            }
            read => read.unwrap_or_default(),
        };
        let status = Record::document(&bytes).and_then(|mut doc| doc.remove("status"));
        let has_status = status.is_some_and(|status| status == state.status());
        match why_not_believed(layout, state, id, &bytes) {
            Some(why) => *disbelieved = identity.map(|identity| (identity, why)),
            // On its way to another folder.
            None if !has_status => {}
            None => return Ok(Some((state, bytes))),
        }
    }
    Ok(None)
}

/// An error if nothing but a file that somebody put among the outcomes bears the id: it says of no
/// handoff how it ended, and never will.
fn refuse_stranger(
    layout: &Layout,
    id: &str,
    disbelieved: &mut Option<(Identity, String)>,
) -> Result<(), Failed> {
    let states = layout.states_of(id);
    let is_outcome = |state: &State| matches!(state, State::Completed | State::Failed);
    let Some(state) = states.first().filter(|_| states.iter().all(is_outcome)) else {
        return Ok(());
    };
    let path = layout.record(*state, id);
    let is_coming = layout.submission(id).is_some() || layout.is_being_refused(id);
    // It may have ended, or been moved back, since it was looked at.
    if is_coming
        || ended(layout, id, disbelieved)?.is_some()
        || fs::symlink_metadata(&path).is_err()
    {
        return Ok(());
    }
    let why = disbelieved
        .as_ref()
        .map_or_else(|| "it is not a record".to_owned(), |(_, why)| why.clone());
    let text = format!(
        "{} is not the outcome of {id}: {why}. Somebody else put the file there or edited it. Move it away, like: mv {} .",
        path.display(),
        shown::word(&layout.relative(&path))
    );
    Err(Failed::thing("NO_RECORD", anyhow::anyhow!(text)))
}

/// The record of one that is packed, and was synced with its pack.
fn packed(layout: &Layout, id: &str) -> Option<(State, Vec<u8>)> {
    let is_back = !layout.states_of(id).is_empty() || layout.submission(id).is_some();
    let packed = Archive::new(&layout.archive()).find(id).ok()?;
    let packed = packed.filter(|_| !is_back)?;
    Some((packed.state, packed.record))
}

/// An outcome as a person reads it: what came of it, how long it took, and what was said.
fn in_a_line(id: &str, state: State, bytes: &[u8]) -> String {
    let doc = Record::document(bytes).unwrap_or_default();
    let field = |path: [&str; 2]| doc.get(path[0])?.get(path[1])?.as_str();
    let words = match state {
        State::Failed => {
            let [code, message] = ["code", "message"].map(|key| field(["error", key]));
            format!("{}: {}", code.unwrap_or("?"), message.unwrap_or_default())
        }
        _ => field(["result", "summary"])
            .or_else(|| field(["output", "text"]))
            .map(str::to_owned)
            .or_else(|| doc.get("output").map(ToString::to_string))
            .unwrap_or_default(),
    };
    let took = doc.get("execution_time_seconds").and_then(Value::as_f64);
    let took = took.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let row = vec![
        style::state(state),
        style::safe(id, false),
        took.map(style::span).unwrap_or_default(),
        style::words(&words, 200),
    ];
    style::columns(&[row]).trim_end().to_owned()
}

fn print(bytes: &[u8], compact: bool) -> Result<(), Failed> {
    use std::io::Write;
    let mut out = out::lock();
    let on_terminal = io::stdout().is_terminal();
    if compact {
        let value = json::parse_own(std::str::from_utf8(bytes)?)?;
        let line = value.to_string();
        writeln!(
            out,
            "{}",
            if on_terminal {
                shown::json(&line)
            } else {
                line
            }
        )?;
    } else if on_terminal {
        // The same document, and nothing in it moves the cursor.
        out.write_all(shown::json(&String::from_utf8_lossy(bytes)).as_bytes())?;
    } else {
        out.write_all(bytes)?;
    }
    Ok(())
}
