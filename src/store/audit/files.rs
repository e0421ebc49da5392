//! The log's files: which they are, and reading them from the end.
//!
//! A log may be years long, so starting up and looking back read only the newest bytes. Names
//! sort by day, and the order of the names is the order of the log.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::altered::Head;
use super::line::{Line, hash};
use super::log::Torn;
use crate::durable;

const CHUNK: u64 = 16 * 1024;

/// One day's file.
#[derive(Debug, Clone)]
pub(super) struct DayFile {
    pub day: String,
    pub path: PathBuf,
}

pub(super) fn name_of(day: &str) -> String {
    format!("events-{day}.jsonl")
}

pub(super) fn is_day(day: &str) -> bool {
    day.len() == 10
        && day.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

/// All files of the log, oldest first. Whatever else lies in the folder is not the log's.
pub(super) fn list(dir: &Path) -> io::Result<Vec<DayFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| durable::at(dir, &error))? {
        let entry = entry?;
        let name = entry.file_name();
        let day = name
            .to_str()
            .and_then(|name| name.strip_prefix("events-"))
            .and_then(|name| name.strip_suffix(".jsonl"))
            .filter(|day| is_day(day));
        if let Some(day) = day
            && entry.file_type()?.is_file()
        {
            files.push(DayFile {
                day: day.to_owned(),
                path: entry.path(),
            });
        }
    }
    files.sort_by(|a, b| a.day.cmp(&b.day));
    Ok(files)
}

/// The lines of one file, last one first.
pub(super) struct Backwards {
    file: File,
    /// Where `rest` begins in the file.
    start: u64,
    /// Bytes that were read and not yet given out; they end where the next line ends.
    rest: Vec<u8>,
    chunk: u64,
}

/// A line as it stands, without newline.
pub(super) struct RawLine {
    pub bytes: Vec<u8>,
    /// False for a last line without newline.
    pub closed: bool,
}

impl Backwards {
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path).map_err(|error| durable::at(path, &error))?;
        let start = file.metadata()?.len();
        Ok(Self {
            file,
            start,
            rest: Vec::new(),
            chunk: CHUNK,
        })
    }

    pub fn next(&mut self) -> io::Result<Option<RawLine>> {
        loop {
            let closed = self.rest.last() == Some(&b'\n');
            let end = self.rest.len() - usize::from(closed);
            let newline = self.rest[..end].iter().rposition(|&byte| byte == b'\n');
            if newline.is_none() && self.start > 0 {
                self.read_more()?;
                continue;
            }
            if self.rest.is_empty() {
                return Ok(None);
            }
            let begin = newline.map_or(0, |at| at + 1);
            let bytes = self.rest[begin..end].to_vec();
            self.rest.truncate(begin);
            return Ok(Some(RawLine { bytes, closed }));
        }
    }

    /// Reads further back, each time twice as much while no line begins, so that one huge line
    /// costs no more than a few passes over it.
    fn read_more(&mut self) -> io::Result<()> {
        if self.rest.is_empty() {
            self.chunk = CHUNK;
        }
        let size = self.chunk.min(self.start);
        self.chunk = self.chunk.saturating_mul(2);
        let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, self.start - size)?;
        bytes.append(&mut self.rest);
        self.rest = bytes;
        self.start -= size;
        Ok(())
    }
}

/// How the log ends.
pub(super) struct Tail {
    /// The newest file, even if it is empty.
    pub newest: Option<DayFile>,
    pub last: Option<Last>,
    pub torn: Option<TornTail>,
}

/// The last whole line.
pub(super) struct Last {
    pub seq: u64,
    pub hash: String,
    /// In bytes, without newline.
    pub len: u64,
    /// Up to this number, all lines were on disk when it was written.
    pub synced: u64,
}

pub(super) struct TornTail {
    pub said: Torn,
    pub path: PathBuf,
    pub closed: bool,
    /// Of the last line as it stands, like its length in bytes.
    pub hash: String,
    pub len: u64,
}

/// Reads from the end until the first line that is whole.
pub(super) fn tail(dir: &Path) -> io::Result<Tail> {
    let mut files = list(dir)?;
    let newest = files.last().cloned();
    let mut torn: Option<TornTail> = None;
    while let Some(day) = files.pop() {
        let mut lines = Backwards::open(&day.path)?;
        while let Some(RawLine { bytes, closed }) = lines.next()? {
            let line = Line::parse(&bytes);
            if line.is_none() || !closed {
                let torn = torn.get_or_insert_with(|| TornTail {
                    said: Torn {
                        file: name_of(&day.day),
                        bytes: 0,
                        lines: 0,
                    },
                    path: day.path.clone(),
                    closed,
                    hash: hash(&bytes),
                    len: bytes.len() as u64,
                });
                torn.said.bytes += bytes.len() as u64;
                torn.said.lines += 1;
            }
            if let Some(line) = line {
                let last = Some(Last {
                    seq: line.seq,
                    hash: hash(&bytes),
                    len: bytes.len() as u64,
                    synced: line.reach().saturating_sub(1),
                });
                return Ok(Tail { newest, last, torn });
            }
        }
    }
    let last = None;
    Ok(Tail { newest, last, torn })
}

/// The last whole lines, oldest first, out of at most about `max_bytes` of log.
pub fn recent(dir: &Path, max_bytes: u64) -> io::Result<Vec<Line>> {
    let mut files = list(dir)?;
    let mut found = Vec::new();
    let mut seen = 0_u64;
    'files: while let Some(day) = files.pop() {
        let mut lines = Backwards::open(&day.path)?;
        while let Some(raw) = lines.next()? {
            seen += raw.bytes.len() as u64 + 1;
            if seen > max_bytes {
                break 'files;
            }
            found.extend(Line::parse(&raw.bytes));
        }
    }
    found.reverse();
    Ok(found)
}

/// Whether the log has this very line.
pub fn has_line(dir: &Path, head: &Head) -> io::Result<bool> {
    let mut files = list(dir)?;
    while let Some(day) = files.pop() {
        let mut lines = Backwards::open(&day.path)?;
        while let Some(raw) = lines.next()? {
            let Some(line) = Line::parse(&raw.bytes) else {
                continue;
            };
            if line.seq == head.seq && hash(&raw.bytes) == head.hash {
                return Ok(true);
            }
            if line.seq < head.seq {
                return Ok(false);
            }
        }
    }
    Ok(false)
}

/// All whole lines, the last one first, read only as far as they are asked for.
pub fn newest_first(dir: &Path) -> io::Result<impl Iterator<Item = io::Result<Line>> + use<>> {
    // Without a folder there is no log yet.
    let mut files = match list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed?,
    };
    let mut open: Option<Backwards> = None;
    Ok(std::iter::from_fn(move || {
        loop {
            if open.is_none() {
                match Backwards::open(&files.pop()?.path) {
                    Ok(lines) => open = Some(lines),
                    Err(error) => return Some(Err(error)),
                }
            }
            match open.as_mut()?.next() {
                Ok(None) => open = None,
                Ok(Some(raw)) => {
                    if let Some(line) = Line::parse(&raw.bytes) {
                        return Some(Ok(line));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }))
}
