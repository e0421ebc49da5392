//! The keeper's memory on disk: what was started, how it ended, and why.
//!
//! One JSON line per fact, appended and never changed, so that a kill at any instruction leaves
//! facts and at most one torn line. Order is the point: `start` is written before the clone,
//! `ending` is on disk before the first signal, `exit` is written before the child is reaped.
//! Whoever reads it later (the next keeper, or a daemon whose keeper was killed) can only know
//! too little, never something false.
//!
//! This half is the lines and what they add up to; `write.rs` is the keeper's own half.

mod write;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::wire::{Exit, Failure, Key, Why};
use crate::json_text;

pub use write::Journal;

const VERSION: u32 = 1;
const NAMES: [&str; 2] = ["attempts.0.jsonl", "attempts.1.jsonl"];

/// How the processes of an attempt are held together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    Cgroup(PathBuf),
    Minder,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first of each file. The file with the higher number is the newer.
    File {
        version: u32,
        number: u64,
    },
    Start {
        key: Key,
        note: Value,
        deadline_boot_ms: u64,
        grace_ms: u64,
        boot: String,
        held: Held,
        /// The user it runs as, where that is not the keeper's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<u32>,
    },
    Minder {
        key: Key,
        pid: i32,
        starttime: u64,
    },
    Pid {
        key: Key,
        pid: i32,
        starttime: u64,
    },
    Ending {
        key: Key,
        why: Why,
    },
    Exit {
        key: Key,
        exit: Exit,
    },
    Failed {
        key: Key,
        failure: Failure,
    },
    Gone {
        key: Key,
    },
    Forget {
        key: Key,
    },
}

/// All that is known of one attempt that is not forgotten.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: Key,
    pub note: Value,
    pub deadline_boot_ms: u64,
    pub grace_ms: u64,
    /// The boot in which it was started. Pids, start times and the deadline mean nothing in
    /// another.
    pub boot: String,
    pub held: Held,
    pub user: Option<u32>,
    pub minder: Option<(i32, u64)>,
    /// None if it was only about to be started.
    pub pid: Option<i32>,
    pub starttime: Option<u64>,
    pub why: Option<Why>,
    pub exit: Option<Exit>,
    pub failed: Option<Failure>,
    /// Nothing of its tree was alive when this was written.
    pub gone: bool,
}

impl Entry {
    /// The lines that add up to it.
    fn lines(&self) -> Vec<Line> {
        let key = || self.key.clone();
        let process = |(pid, starttime)| Line::Pid {
            key: key(),
            pid,
            starttime,
        };
        let minder = |(pid, starttime)| Line::Minder {
            key: key(),
            pid,
            starttime,
        };
        let mut lines = vec![Line::Start {
            key: key(),
            note: self.note.clone(),
            deadline_boot_ms: self.deadline_boot_ms,
            grace_ms: self.grace_ms,
            boot: self.boot.clone(),
            held: self.held.clone(),
            user: self.user,
        }];
        lines.extend(self.minder.map(minder));
        lines.extend(self.pid.zip(self.starttime).map(process));
        lines.extend(self.why.map(|why| Line::Ending { key: key(), why }));
        lines.extend(self.exit.map(|exit| Line::Exit { key: key(), exit }));
        let failed = self.failed.clone();
        lines.extend(failed.map(|failure| Line::Failed {
            key: key(),
            failure,
        }));
        lines.extend(self.gone.then(|| Line::Gone { key: key() }));
        lines
    }
}

/// What the journal in `run_dir` knows, by key. No journal is an empty one; a journal of a
/// newer version is an error.
pub fn read(run_dir: &Path) -> io::Result<Vec<Entry>> {
    let mut texts = Vec::new();
    for name in NAMES {
        match std::fs::read(run_dir.join(name)) {
            Ok(text) => texts.push(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let mut files: Vec<_> = texts.iter().map(|text| lines(text)).collect();
    files.sort_by_key(|lines| number(lines));
    let mut entries = BTreeMap::new();
    for line in files.into_iter().flatten() {
        apply(&mut entries, line)?;
    }
    Ok(entries.into_values().collect())
}

/// The users whom the journal names, also for attempts that are forgotten.
pub fn users(run_dir: &Path) -> Vec<u32> {
    let texts = NAMES
        .iter()
        .filter_map(|name| std::fs::read(run_dir.join(name)).ok());
    let user = |line| match line {
        Line::Start { user, .. } => user,
        _ => None,
    };
    texts
        .flat_map(|text| lines(&text))
        .filter_map(user)
        .collect()
}

/// The lines that can be read; a torn one, or what a power cut left, is passed over.
fn lines(text: &[u8]) -> Vec<Line> {
    text.split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

fn number(lines: &[Line]) -> u64 {
    match lines.first() {
        Some(Line::File { number, .. }) => *number,
        _ => 0,
    }
}

fn apply(entries: &mut BTreeMap<Key, Entry>, line: Line) -> io::Result<()> {
    match line {
        Line::File { version, .. } if version > VERSION => {
            let what = format!("the keeper's journal has version {version}, newer than {VERSION}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Line::File { .. } => {}
        Line::Start {
            key,
            note,
            deadline_boot_ms,
            grace_ms,
            boot,
            held,
            user,
        } => {
            let entry = Entry {
                key: key.clone(),
                note,
                deadline_boot_ms,
                grace_ms,
                boot,
                held,
                user,
                minder: None,
                pid: None,
                starttime: None,
                why: None,
                exit: None,
                failed: None,
                gone: false,
            };
            entries.insert(key, entry);
        }
        Line::Forget { key } => {
            entries.remove(&key);
        }
        Line::Minder { ref key, .. }
        | Line::Pid { ref key, .. }
        | Line::Ending { ref key, .. }
        | Line::Exit { ref key, .. }
        | Line::Failed { ref key, .. }
        | Line::Gone { ref key } => {
            if let Some(entry) = entries.get_mut(key) {
                add(entry, line);
            }
        }
    }
    Ok(())
}

fn add(entry: &mut Entry, line: Line) {
    match line {
        Line::Minder { pid, starttime, .. } => entry.minder = Some((pid, starttime)),
        Line::Pid { pid, starttime, .. } => {
            (entry.pid, entry.starttime) = (Some(pid), Some(starttime));
        }
        // The first reason sticks.
        Line::Ending { why, .. } => entry.why = entry.why.or(Some(why)),
        Line::Exit { exit, .. } => entry.exit = Some(exit),
        Line::Failed { failure, .. } => entry.failed = Some(failure),
        Line::Gone { .. } => entry.gone = true,
        Line::File { .. } | Line::Start { .. } | Line::Forget { .. } => {}
    }
}

/// Appends one line by one write, whoever else appends to the same file.
pub fn append(file: &File, line: &Line) -> io::Result<()> {
    let mut bytes = Vec::new();
    encode(line, &mut bytes)?;
    append_bytes(file, &bytes)
}

/// Adds a line, with its end.
pub fn encode(line: &Line, bytes: &mut Vec<u8>) -> io::Result<()> {
    json_text::append(bytes, line)?;
    bytes.push(b'\n');
    Ok(())
}

fn append_bytes(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    match file.write(bytes) {
        Ok(written) if written == bytes.len() => Ok(()),
        // A full disk took a part. What comes next must not be glued to it.
        Ok(written) => {
            if written > 0 {
                let _ = file.write(b"\n");
            }
            Err(io::ErrorKind::StorageFull.into())
        }
        Err(error) => Err(error),
    }
}
