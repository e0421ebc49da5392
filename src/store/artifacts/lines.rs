//! Reading the registry's lines, from either end, without ever holding more than one.
//!
//! Only what ends in a newline is a line: what follows the last one is being written right now,
//! or was torn by a crash and will be closed by the next writer. A line that can't be read is
//! passed over and counted.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use super::entry::{Entry, MOST_BYTES, NoLine};

const BLOCK: u64 = 64 * 1024;

/// Lines that were passed over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// The beginning of a line, as a crash leaves it. What it was to say is said again later.
    pub torn: u64,
    /// No line at all: somebody or something damaged it.
    pub broken: u64,
    /// Of the first broken one, from 1; only where reading began at the first line.
    pub first_broken_line: Option<u64>,
}

impl Skipped {
    pub(super) fn count(&mut self, why: NoLine) {
        match why {
            NoLine::Torn => self.torn += 1,
            NoLine::Broken => self.broken += 1,
        }
    }
}

/// A file from some offset on, without moving anybody's cursor.
struct At<'f> {
    file: &'f File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(block, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// Whole lines, in order.
pub(super) struct Lines<'f> {
    reader: BufReader<At<'f>>,
    /// Where the next line begins, or would.
    pub offset: u64,
    line: Vec<u8>,
}

impl<'f> Lines<'f> {
    pub fn from(file: &'f File, offset: u64) -> Self {
        Self {
            reader: BufReader::with_capacity(64 * 1024, At { file, at: offset }),
            offset,
            line: Vec::new(),
        }
    }

    /// The next line without its newline, and where it begins. One that is too long to be
    /// anything is a single NUL.
    pub fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        self.line.clear();
        let most = MOST_BYTES as u64;
        let mut read = (&mut self.reader)
            .take(most)
            .read_until(b'\n', &mut self.line)? as u64;
        let mut whole = self.line.ends_with(b"\n");
        if !whole && read == most {
            self.line.clear();
            self.line.push(0);
            let (rest, ended) = skip_line(&mut self.reader)?;
            read += rest;
            whole = ended;
        }
        if !whole {
            return Ok(None);
        }
        let began = self.offset;
        self.offset += read;
        Ok(Some((began, self.line.trim_ascii_end())))
    }
}

fn skip_line(reader: &mut impl BufRead) -> io::Result<(u64, bool)> {
    let mut skipped = 0;
    loop {
        let block = reader.fill_buf()?;
        if block.is_empty() {
            return Ok((skipped, false));
        }
        let end = block.iter().position(|byte| *byte == b'\n');
        let n = end.map_or(block.len(), |end| end + 1);
        reader.consume(n);
        skipped += n as u64;
        if end.is_some() {
            return Ok((skipped, true));
        }
    }
}

/// The line that begins at `offset`, if one does.
pub(super) fn entry_at(file: &File, offset: u64) -> io::Result<Option<Entry>> {
    let mut reader = BufReader::with_capacity(1024, At { file, at: offset }).take(BLOCK * 16);
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    Ok(match line.strip_suffix(b"\n") {
        Some(line) => Entry::parse(line).ok(),
        None => None,
    })
}

pub(super) fn oldest_first(file: &File, mut each: impl FnMut(Entry)) -> io::Result<Skipped> {
    let mut skipped = Skipped::default();
    let mut lines = Lines::from(file, 0);
    let mut number = 0;
    while let Some((_, line)) = lines.next()? {
        number += 1;
        if line.is_empty() {
            continue;
        }
        match Entry::parse(line) {
            Ok(entry) => each(entry),
            Err(why) => {
                skipped.count(why);
                if why == NoLine::Broken {
                    skipped.first_broken_line.get_or_insert(number);
                }
            }
        }
    }
    Ok(skipped)
}

pub(super) fn newest_first(
    file: &File,
    mut each: impl FnMut(Entry) -> ControlFlow<()>,
) -> io::Result<Skipped> {
    let mut skipped = Skipped::default();
    let mut at = file.metadata()?.len();
    // What was read and not yet told: it begins in the middle of a line, unless `at` is 0, and
    // ends where a line does, once there has been a newline at all.
    let mut held: Vec<u8> = Vec::new();
    let mut seen_newline = false;
    let mut too_long = false;
    while at > 0 {
        let block = at.min(BLOCK);
        at -= block;
        let mut bytes = Vec::new();
        let read = At { file, at }.take(block).read_to_end(&mut bytes)? as u64;
        if read < block && seen_newline {
            return Err(io::Error::other(
                "it was truncated while the daemon read it",
            ));
        }
        bytes.append(&mut held);
        held = bytes;
        if !seen_newline {
            let end = held.iter().rposition(|byte| *byte == b'\n');
            held.truncate(end.map_or(0, |end| end + 1));
            seen_newline = end.is_some();
            if !seen_newline {
                continue;
            }
        }
        let last = held.len().saturating_sub(1);
        let first = match held[..last].iter().position(|byte| *byte == b'\n') {
            Some(newline) => newline + 1,
            None if at > 0 => {
                // Still the same line. Of one that is too long, its end is enough.
                too_long |= held.len() > MOST_BYTES;
                if too_long {
                    held = vec![b'\n'];
                }
                continue;
            }
            None => 0,
        };
        let first = if at == 0 { 0 } else { first };
        let mut lines: Vec<&[u8]> = held[first..last].split(|byte| *byte == b'\n').collect();
        if too_long && lines.pop().is_some() {
            skipped.broken += 1;
            too_long = false;
        }
        for line in lines.into_iter().rev().filter(|line| !line.is_empty()) {
            match Entry::parse(line) {
                Ok(entry) => {
                    if each(entry).is_break() {
                        return Ok(skipped);
                    }
                }
                Err(why) => skipped.count(why),
            }
        }
        held.truncate(first);
    }
    Ok(skipped)
}
