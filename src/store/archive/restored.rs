//! What was put back: a handoff that has left the archive for its folder.
//!
//! A packed file is never changed, and the index can be made anew from the packed files alone. So it
//! is written down beside them, in `archive/restored`, a line for each: the number of the packed file
//! and the id. One that is packed again stands in a later file, and the line no longer means it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::durable::{self, Durability};

/// Whether this id was put back from that packed file. What can't be read says nothing.
pub fn has(path: &Path, file: u32, id: &str) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    // A line that a crash has cut short is none: it may be the beginning of another id.
    let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
    let wanted = line(file, id);
    whole.lines().any(|line| line == wanted)
}

/// Writes down that this id was put back from that packed file.
pub fn add(path: &Path, file: u32, id: &str) -> io::Result<()> {
    let is_torn = fs::read(path).is_ok_and(|bytes| bytes.last().is_some_and(|it| *it != b'\n'));
    // No id has a space in it: with this end it means nobody.
    let torn_end = if is_torn { " (cut short)\n" } else { "" };
    durable::owner::make_missing(path)?;
    let mut restored = File::options().create(true).append(true).open(path)?;
    restored.write_all(format!("{torn_end}{}\n", line(file, id)).as_bytes())?;
    durable::sync_file(&restored, Durability::Full)
}

fn line(file: u32, id: &str) -> String {
    format!("{file} {id}")
}
