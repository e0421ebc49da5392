//! Commands: files in `control/` that say cancel, retry, approve, reject or ask.
//!
//! A command that was carried out is deleted; one that can't be is moved to `rejected/` with
//! the reason beside it. The record remembers what was carried out on it, so that a crash
//! between the two does not carry it out again.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use crate::durable;
use crate::engine::again::retry;
use crate::engine::attempt::shown;
use crate::engine::chains::{answer_record, cancel_below};
use crate::engine::divert::{Destination, divert};
use crate::engine::event::Event;
use crate::engine::intake::{Seen, look_at};
use crate::engine::moves::{fail_parked, load, remember, write};
use crate::engine::world::World;
use crate::policy::next;
use crate::protocol::control::{Action, Command};
use crate::protocol::document::{self, Syntax};
use crate::protocol::lifecycle::State;
use crate::protocol::name::Ext;
use crate::spool::change::Change;
use crate::spool::look::{Identity, Looked, Writer, look};
use crate::spool::reject::drop_again;
use crate::store::audit;

/// The largest command that is read.
const MAX_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub enum CommandFile {
    Nothing,
    Changing,
    Broken {
        identity: Identity,
        reason: String,
        writer: Writer,
        may_mend: bool,
    },
    Whole(WholeCommand),
}

#[derive(Debug)]
pub struct WholeCommand {
    pub identity: Identity,
    pub command: Command,
    /// Names this very command, to know it again.
    pub key: String,
    pub syntax: Syntax,
    pub writer: Writer,
}

/// The extension of a file in `control/`; others are commands nobody can read.
fn extension(name: &[u8]) -> Option<Ext> {
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    Ext::parse(std::str::from_utf8(&name[dot + 1..]).ok()?)
}

fn is_temporary(name: &[u8]) -> bool {
    name.starts_with(b".")
        || [&b".tmp"[..], b".part", b".swp", b"~"]
            .iter()
            .any(|end| name.ends_with(end))
}

/// Reads one name in `control/`.
pub fn read(world: &World, name: &OsStr) -> CommandFile {
    if is_temporary(name.as_bytes()) || name == "rejected" {
        return CommandFile::Nothing;
    }
    let broken = |identity, reason: String, writer, may_mend| CommandFile::Broken {
        identity,
        reason,
        writer,
        may_mend,
    };
    let ext = extension(name.as_bytes());
    match look(&world.layout.control().join(name), MAX_BYTES) {
        Looked::Gone | Looked::Folder => CommandFile::Nothing,
        Looked::Changing => CommandFile::Changing,
        Looked::NotAFile { what, identity } => broken(
            identity,
            format!("not a file but {what}"),
            Writer::Closed,
            false,
        ),
        Looked::TooLarge { identity } => {
            let reason = format!("larger than {MAX_BYTES} bytes");
            broken(identity, reason, Writer::Unknown, true)
        }
        Looked::Unreadable { error, identity } => broken(
            identity,
            format!("it can't be read: {error}"),
            Writer::Unknown,
            true,
        ),
        Looked::Bytes {
            bytes,
            identity,
            writer,
            ..
        } => {
            let Some(ext) = ext else {
                let reason = "a command is named <anything>.json".to_owned();
                return broken(identity, reason, writer, true);
            };
            let document = match document::parse(&bytes, ext) {
                Ok(document) => document,
                Err(error) => return broken(identity, error.to_string(), writer, true),
            };
            match Command::from_document(&document.map) {
                Err(errors) => {
                    let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
                    broken(
                        identity,
                        list.join("; "),
                        writer,
                        document.syntax != Syntax::Json,
                    )
                }
                Ok(command) => {
                    CommandFile::Whole(WholeCommand {
                        identity,
                        command,
                        // The same words dropped again are another command.
                        key: format!(
                            "{}:{}:{}",
                            name.to_string_lossy(),
                            identity.inode,
                            identity.modified_ns
                        ),
                        syntax: document.syntax,
                        writer,
                    })
                }
            }
        }
    }
}

/// The right to delete a command's file, once what it asked for is on disk.
#[derive(Debug)]
pub struct Dismissal {
    path: PathBuf,
    name: OsString,
    identity: Identity,
    events: UnboundedSender<Event>,
}

impl Dismissal {
    pub fn new(world: &World, name: &OsStr, identity: Identity) -> Self {
        Self {
            path: world.layout.control().join(name),
            name: name.to_owned(),
            identity,
            events: world.events.clone(),
        }
    }

    pub fn is_for(&self, name: &OsStr) -> bool {
        self.name == name
    }

    /// Whether it is for this very file, and not for another that came under its name.
    pub fn is_for_file(&self, name: &OsStr, identity: Identity) -> bool {
        self.is_for(name) && self.identity == identity
    }

    pub fn carried_out(self) {
        if Identity::at(&self.path).is_ok_and(|now| now == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
        let _ = self.events.send(Event::CommandDone { name: self.name });
    }
}

/// Moves a command that can't be carried out to `rejected/`, and says why beside it.
pub fn refuse(world: &World, name: &OsStr, identity: Identity, reason: &str) {
    let now = world.now();
    let path = world.layout.control().join(name);
    let folder = world.layout.refused_control();
    let shown = shown(name);
    if Identity::at(&path).is_ok_and(|now| now == identity) {
        let moved = fs::create_dir_all(&folder).and_then(|()| {
            let kept = free_name(&folder, name);
            let note = note_name(&kept);
            let text = json!({
                "file": shown, "reason": reason, "timestamp": now.wall.to_string(),
            });
            let mut bytes = serde_json::to_vec_pretty(&text).unwrap_or_default();
            bytes.push(b'\n');
            let durability = world.config().daemon.durability;
            let temp = world
                .layout
                .tmp()
                .join(format!("reason-{}", identity.inode));
            durable::write_whole(&folder.join(&note), &temp, &bytes, durability)?;
            durable::move_no_replace(&path, &folder.join(&kept))
        });
        if let Err(error) = moved {
            tracing::warn!(file = shown, "the command could not be set aside: {error}");
        }
        tracing::warn!(file = shown, "command refused: {reason}");
        let line = audit::Event::new(now.wall, "command_refused")
            .with("file", shown)
            .with("reason", reason);
        world.committer.submit(Change::Note, vec![line], |_| {});
    }
    world.tell(Event::CommandDone {
        name: name.to_owned(),
    });
}

/// The name itself, or with a number before it where an earlier refusal has it.
fn free_name(folder: &Path, name: &OsStr) -> OsString {
    let taken = |name: &OsStr| fs::symlink_metadata(folder.join(name)).is_ok();
    let numbered = |n: u32| {
        let mut numbered = OsString::from(format!("{n}-"));
        numbered.push(name);
        numbered
    };
    if taken(name) {
        (2..u32::MAX)
            .map(numbered)
            .find(|name| !taken(name))
            .unwrap_or_default()
    } else {
        name.to_owned()
    }
}

/// `<name>.reason.json`, cut where the file system would not take it.
fn note_name(name: &OsStr) -> OsString {
    const LONGEST: usize = 255;
    let ending = OsStr::new(".reason.json");
    let most = LONGEST - ending.len();
    let mut bytes = name.as_bytes()[..name.len().min(most)].to_vec();
    bytes.extend_from_slice(ending.as_bytes());
    OsString::from_vec(bytes)
}

/// The line that says who asked for what.
pub fn note(world: &World, command: &Command) {
    let mut line = audit::Event::new(world.now().wall, "command")
        .about(command.handoff_id.as_str())
        .with("action", command.action.as_str());
    for (key, value) in [
        ("choice", &command.choice),
        ("by", &command.by),
        ("comment", &command.comment),
    ] {
        if let Some(value) = value {
            line = line.with(key, value.clone());
        }
    }
    world.committer.submit(Change::Note, vec![line], |_| {});
}

/// Carries out a command on a handoff that no attempt is running for.
pub fn carry_out(world: &World, name: &OsStr, whole: WholeCommand) {
    let WholeCommand {
        identity,
        command,
        key,
        ..
    } = whole;
    let id = command.handoff_id.as_str().to_owned();
    let give_up = |reason: String| {
        refuse(world, name, identity, &reason);
        world.tell(Event::Unmoved { id: id.clone() });
    };
    let states = world.layout.states_of(&id);
    let Some(state) = states.first().copied() else {
        return match world.layout.submission(&id) {
            Some(path) => on_pending(world, name, identity, &command, &path, &id),
            None if world.layout.archived(&id).is_some() => give_up(format!(
                "{id} is packed in the archive; put it back with: handoffd archive --restore {id}"
            )),
            None => give_up(format!("no handoff is called {id}")),
        };
    };
    let Some(mut record) = load(world, state, &id) else {
        return give_up(format!("the record of {id} can't be read"));
    };
    if record.meta.applied.contains(&key) {
        if command.action == Action::Cancel {
            cancel_below(world, &record, &id, command.by.as_deref());
        }
        let done = Dismissal::new(world, name, identity);
        if state == State::Failed && record.meta.to == Some(State::Waiting) {
            // Decided before a crash, and not yet moved: nobody else looks into failed/.
            return write(world, &id, &record, state, "retry_asked", || {
                done.carried_out();
            });
        }
        done.carried_out();
        return world.tell(Event::Unmoved { id });
    }
    if let Some(wanted) = command.revision
        && wanted != record.meta.revision
    {
        return give_up(wrong_revision(wanted, record.meta.revision));
    }
    let code = record
        .doc
        .get("error")
        .and_then(|error| error.get("code")?.as_str());
    match (command.action, state) {
        (Action::Cancel, State::Waiting) => {
            note(world, &command);
            let told = next::cancelled(&by(&command, "while it waited"));
            remember(&mut record, key);
            if record.meta.links.children.is_empty() {
                let done = Dismissal::new(world, name, identity);
                return fail_parked(world, &id, record, &told, || done.carried_out());
            }
            // What it has set in motion is cancelled when this is read again: an end of those
            // that it waits for must not wake it.
            fail_parked(world, &id, record, &told, || {});
        }
        // Carried out before a crash, and not yet deleted.
        (Action::Cancel, State::Failed) if code == Some("CANCELLED") => {
            Dismissal::new(world, name, identity).carried_out();
            world.tell(Event::Unmoved { id });
        }
        // What it set in motion may still be on its way.
        (Action::Cancel, State::Completed | State::Failed)
            if cancel_below(world, &record, &id, command.by.as_deref()) > 0 =>
        {
            note(world, &command);
            Dismissal::new(world, name, identity).carried_out();
            world.tell(Event::Unmoved { id });
        }
        (Action::Approve | Action::Reject | Action::Ask, State::Waiting) => {
            match answer_record(world, &mut record, &id, &command) {
                Err(why) => give_up(why),
                Ok(event) => {
                    note(world, &command);
                    remember(&mut record, key);
                    let done = Dismissal::new(world, name, identity);
                    write(world, &id, &record, state, event, || done.carried_out());
                }
            }
        }
        (Action::Retry, State::Failed) if record.meta.rejected.is_some() => {
            let dropped_as = record.doc.get("dropped_as").and_then(Value::as_str);
            give_up(format!(
                "{id} was never a request: mend handoffs/failed/{id}.rejected, then {}",
                drop_again(&id, dropped_as)
            ));
        }
        (Action::Retry, State::Failed | State::Waiting) => {
            retry(world, name, identity, &command, state, record, key);
        }
        (action, state) => {
            give_up(format!("can't {} {id}: it is {state}", action.as_str()));
        }
    }
}

/// What a command is told that answers another revision than the record has now.
pub fn wrong_revision(wanted: u64, found: u64) -> String {
    format!("it answers revision {wanted}, but the record is at revision {found}")
}

fn by(command: &Command, when: &str) -> String {
    let mut text = when.to_owned();
    if let Some(by) = &command.by {
        text = format!("{text}, by {by}");
    }
    if let Some(comment) = &command.comment {
        text = format!("{text}: {comment}");
    }
    text
}

/// What a cancelled attempt's record says, in the same words.
pub fn cancel_words(command: &Command) -> String {
    by(command, "while it ran")
}

fn on_pending(
    world: &World,
    name: &OsStr,
    identity: Identity,
    command: &Command,
    path: &Path,
    id: &str,
) {
    let submitted = path.file_name().unwrap_or_default();
    match (command.action, look_at(world, submitted)) {
        (Action::Cancel, Seen::Submission(submission)) => {
            note(world, command);
            let told = next::cancelled(&by(command, "before it started"));
            let done = Dismissal::new(world, name, identity);
            divert(
                world,
                submitted,
                *submission,
                Destination::Fail(told),
                Some(done),
            );
        }
        (Action::Cancel, _) => {
            // Broken or still being written: intake will say so in failed/.
            refuse(
                world,
                name,
                identity,
                &format!("{id} in pending/ is not a whole request"),
            );
            world.tell(Event::Unmoved { id: id.to_owned() });
        }
        _ => {
            refuse(
                world,
                name,
                identity,
                &format!("{id} is in pending/ already"),
            );
            world.tell(Event::Unmoved { id: id.to_owned() });
        }
    }
}
