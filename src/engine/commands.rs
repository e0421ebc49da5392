//! Commands: files in `control/` that say cancel, retry, approve, reject or ask.
//!
//! A command that was carried out is deleted; one that can't be is moved to `rejected/` with
//! the reason beside it. The record remembers what was carried out on it, so that a crash
//! between the two does not carry it out again.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, statat};
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;

use crate::durable;
use crate::engine::attempt::shown;
use crate::engine::event::Event;
use crate::engine::world::World;
use crate::protocol::control::{Action, Command};
use crate::protocol::document::{self, Syntax};
use crate::protocol::name::Ext;
use crate::spool::change::Change;
use crate::spool::layout::make_folder;
use crate::spool::look::{Identity, Looked, Writer, look};
use crate::spool::scan;
use crate::store::audit;

/// The largest command that is read.
pub const MAX_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub enum CommandFile {
    Nothing,
    Folder,
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
        Looked::Gone => CommandFile::Nothing,
        Looked::Folder => CommandFile::Folder,
        Looked::Changing => CommandFile::Changing,
        Looked::NotAFile { what, identity } => broken(
            identity,
            format!("{what}, not a file"),
            Writer::Closed,
            false,
        ),
        Looked::TooLarge { identity } => {
            let reason = format!("larger than {MAX_BYTES} bytes");
            broken(identity, reason, Writer::Unknown, true)
        }
        Looked::Unreadable { error, identity } => broken(
            identity,
            format!("can't read it: {error}"),
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
                let reason = "the name of a command must end in .json".to_owned();
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

/// The cancels that stand in `control/` and can be read.
pub fn cancels(world: &World) -> Vec<WholeCommand> {
    let mut found = Vec::new();
    let listed = scan::names(&world.layout.control(), |name| {
        if let CommandFile::Whole(whole) = read(world, &name)
            && whole.command.action == Action::Cancel
        {
            found.push(whole);
        }
    });
    if let Err(error) = listed {
        tracing::warn!("can't list handoffs/control: {error}");
    }
    found
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

    /// Whether it is for the very same file, and not for another that came under its name.
    pub fn is_same(&self, other: &Self) -> bool {
        self.is_for(&other.name) && self.identity == other.identity
    }

    pub fn carried_out(self) {
        if Identity::at(&self.path).is_ok_and(|now| now == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
        let _ = self.events.send(Event::CommandDone { name: self.name });
    }
}

/// Moves a command that can't be carried out to `rejected/`, and says why beside it. Where that
/// can't be done, the command stays, and the loop has it tried again.
pub fn refuse(world: &World, name: &OsStr, identity: Identity, reason: &str) {
    let path = world.layout.control().join(name);
    let owned = name.to_owned();
    if !Identity::at(&path).is_ok_and(|now| now == identity) {
        return world.tell(Event::CommandDone { name: owned });
    }
    if let Err(why) = set_aside(world, &path, name, reason) {
        return world.tell(Event::CommandStuck { name: owned, why });
    }
    let shown = shown(name);
    tracing::warn!(file = shown, "command refused: {reason}");
    let line = audit::Event::new(world.now().wall, "command_refused")
        .with("file", shown)
        .with("reason", reason);
    world.committer.submit(Change::Note, vec![line], |_| {});
    world.tell(Event::CommandDone { name: owned });
}

/// Whoever may write to `control/` may put something else in the place of `rejected/`. So it is
/// held open while it is used, and never reached through a link.
fn set_aside(world: &World, path: &Path, name: &OsStr, reason: &str) -> Result<(), String> {
    let folder = open_rejected(world)?;
    let (kept, now) = (free_name(&folder, name), world.now().wall);
    let text = json!({ "file": shown(name), "reason": reason, "timestamp": now.to_string() });
    let mut bytes = serde_json::to_vec_pretty(&text).unwrap_or_default();
    bytes.push(b'\n');
    let temp = format!("reason-{}", Identity::at(path).map_or(0, |it| it.inode));
    let temp = world.layout.tmp().join(temp);
    let durability = world.config().daemon.durability;
    durable::write_whole_in(&folder, &note_name(&kept), &temp, &bytes, durability)
        .and_then(|()| durable::move_no_replace_into(path, &folder, &kept))
        .map_err(|error| error.to_string())
}

fn open_rejected(world: &World) -> Result<File, String> {
    let path = world.layout.refused_control();
    let opened = match durable::open_folder(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_folder(&path).and_then(|()| durable::open_folder(&path))
        }
        opened => opened,
    };
    opened.map_err(|error| {
        let shown = world.layout.relative(&path);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => format!(
                "{shown} is a symlink, and the daemon writes through none; delete it: rm {shown}"
            ),
            Ok(found) if !found.is_dir() => {
                format!("{shown} is not a folder; move it away: mv {shown} {shown}.old.tmp")
            }
            _ => format!("{shown}: {error}"),
        }
    })
}

/// The name itself, or with a number before it where an earlier refusal has it.
fn free_name(folder: &File, name: &OsStr) -> OsString {
    let taken = |name: &OsStr| statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
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
