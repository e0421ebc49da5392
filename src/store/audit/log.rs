//! Writing the log: append a batch, sync it, and stay right when the disk does not.
//!
//! [`AuditLog::append`] is all or nothing. If a write fails, the file is cut back to where it
//! was, at once or before the next append, and number and hash do not advance; the caller
//! appends the same events again. Only where the cut is refused too (an append-only attribute)
//! do the half-written bytes stay, closed by a `torn_line` event like those of a crash; whole
//! lines among them then count, and the caller's second try says them twice.
//!
//! [`AuditLog::sync`] that returns `Ok` means that every line appended so far is on disk, also
//! if an earlier sync failed. The kernel may drop what it failed to write and call it clean, so
//! after a failure all bytes since the last good sync are written again, in place, before the
//! next try. The caller does not append those events a second time. Until it is called, the
//! bytes are kept in memory for that purpose.
//!
//! Each line says how many of those before it were not on disk when it was written, so that a
//! start after a power cut knows which of them can have been lost ([`super::holes`]).
//!
//! One process writes; the lock that makes it so is held elsewhere.

use std::borrow::Borrow;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::altered::{Altered, Head};
use super::disk::{Chunk, Current, Disk, RealDisk, Unsynced};
use super::files::{self, DayFile};
use super::holes::{self, Hole};
use super::line::{Event, Line, TORN_LINE, hash, no_line};
use crate::clock::Wall;
use crate::durable::{self, Durability};
use crate::mutant;

/// What opening the log found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Of the last line now in the log; 0 in a new one.
    pub last_seq: u64,
    /// What was closed, if the last run was cut off within a line.
    pub torn: Option<Torn>,
    /// What a power cut took before lines that it kept, and the log did not tell of yet.
    pub holes: Vec<Hole>,
}

/// The unfinished end of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    pub file: String,
    pub bytes: u64,
    /// More than one only if a power cut left holes.
    pub lines: u64,
}

/// The log, open for writing.
pub struct AuditLog {
    dir: PathBuf,
    durability: Durability,
    pub(super) disk: Box<dyn Disk>,
    current: Option<Current>,
    seq: u64,
    prev: String,
    /// Of the last line, in bytes, without newline.
    last_len: u64,
    /// Up to this number all lines are on disk.
    synced: u64,
    /// Lengths to cut back to, for files that a failed append touched.
    undo: Vec<(Arc<File>, u64)>,
    /// What stands at the end of the log must be read before the next append.
    lost: bool,
    unsynced: Unsynced,
    /// A file was created whose name is not synced yet.
    new_name: bool,
    on_altered: Option<Tell<Altered>>,
    on_synced: Option<Tell<Head>>,
}

type Tell<T> = Box<dyn Fn(T) + Send>;

impl AuditLog {
    /// Opens the log in `dir`, making the folder if need be, closes a torn last line and tells of
    /// lines that a power cut took, with events dated `at`. All that stands there is then synced,
    /// if the disk lets it.
    pub fn open(dir: &Path, durability: Durability, at: Wall) -> io::Result<(Self, Opened)> {
        let mut log = Self {
            dir: dir.to_owned(),
            durability,
            disk: Box::new(RealDisk),
            current: None,
            seq: 0,
            prev: no_line(),
            last_len: 0,
            synced: 0,
            undo: Vec::new(),
            lost: false,
            unsynced: Unsynced::default(),
            new_name: false,
            on_altered: None,
            on_synced: None,
        };
        fs::create_dir_all(dir)?;
        // Only here: while a log is open there is no power cut, and whoever breaks it is not one.
        let holes = holes::find(dir)?;
        log.take_along()?;
        let torn = log.resume(at)?;
        let events: Vec<Event> = holes.iter().map(|hole| hole.event(at)).collect();
        log.write(&events)?;
        // Else the next line would have to say that all of this may not be on disk, and so would
        // the first of every run. A disk that refuses is tried again with that line.
        let _ = log.sync();
        let last_seq = log.seq;
        let opened = Opened {
            last_seq,
            torn,
            holes,
        };
        Ok((log, opened))
    }

    /// What the last daemon wrote may not be on disk, nor its file's name: the next sync takes it
    /// along, before anything is called synced. One batch is in two files at most.
    fn take_along(&mut self) -> io::Result<()> {
        for day in files::list(&self.dir)?.into_iter().rev().take(2) {
            self.new_name = true;
            self.keep(Chunk {
                file: Arc::new(File::open(&day.path)?),
                offset: 0,
                bytes: Vec::new(),
            });
        }
        Ok(())
    }

    /// The number of the last line.
    pub fn last_seq(&self) -> u64 {
        self.seq
    }

    /// Calls this whenever the end of the log is not as this log left it.
    pub fn on_altered(&mut self, tell: impl Fn(Altered) + Send + 'static) {
        self.on_altered = Some(Box::new(tell));
    }

    /// Calls this with the last line, now and after every good [`sync`](Self::sync).
    pub fn on_synced(&mut self, tell: impl Fn(Head) + Send + 'static) {
        tell(self.head());
        self.on_synced = Some(Box::new(tell));
    }

    fn head(&self) -> Head {
        Head {
            seq: self.seq,
            hash: self.prev.clone(),
        }
    }

    /// Adds the events in their order, all or none, with one write (two if midnight lies
    /// between them). They are on disk after the next good [`sync`](Self::sync).
    ///
    /// Lines go to the file of their UTC day, but never back to an older one: after a jump of
    /// the clock the newest file goes on.
    pub fn append<E: Borrow<Event>>(&mut self, events: &[E]) -> io::Result<()> {
        let Some(first) = events.first() else {
            return Ok(());
        };
        self.settle(first.borrow().at)?;
        self.write(events)
    }

    /// Returns once every line so far would survive a power cut; see the module's header for
    /// what holds after an error.
    pub fn sync(&mut self) -> io::Result<()> {
        self.unsynced.sync(self.disk.as_mut(), self.durability)?;
        if self.new_name {
            durable::sync_dir(&File::open(&self.dir)?, self.durability)?;
            self.new_name = false;
        }
        self.unsynced = Unsynced::default();
        self.synced = self.seq;
        if let Some(tell) = &self.on_synced {
            tell(self.head());
        }
        Ok(())
    }

    /// The last lines, oldest first, out of at most about `max_bytes` at the end of the log.
    /// Torn lines are left out.
    pub fn recent(&self, max_bytes: u64) -> io::Result<Vec<Line>> {
        files::recent(&self.dir, max_bytes)
    }

    /// Makes sure that the newest file is as this log left it.
    fn settle(&mut self, at: Wall) -> io::Result<()> {
        if self.roll_back().is_err() {
            self.undo.clear();
            self.lost = true;
        }
        if self.lost {
            self.resume(at)?;
            self.lost = false;
        } else if let Some(current) = &self.current
            && !current.ends_with(self.last_len, &self.prev)?
        {
            self.go_on_after_others(at)?;
        }
        Ok(())
    }

    /// Somebody else touched the newest file. Number and hash go on from the last line that this
    /// log wrote, so that `verify` shows whatever was done.
    fn go_on_after_others(&mut self, at: Wall) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let tail = files::tail(&self.dir)?;
        let file = tail.newest.as_ref().map(|day| files::name_of(&day.day));
        self.current = tail.newest.map(Current::open).transpose()?;
        let found = tail.last.map(|last| Head {
            seq: last.seq,
            hash: last.hash,
        });
        let expected = self.head();
        if tail.torn.is_none() && found.as_ref() == Some(&expected) {
            // A copy of the file took its place.
            return Ok(());
        }
        if let Some(torn) = tail.torn.filter(|torn| !torn.closed) {
            self.close_line(&torn.path)?;
        }
        let altered = Altered {
            file,
            expected,
            found: found.unwrap_or(Head {
                seq: 0,
                hash: no_line(),
            }),
        };
        self.write(&[altered.event(at)])?;
        if let Some(tell) = &self.on_altered {
            tell(altered);
        }
        Ok(())
    }

    /// Learns from the files where the log stands, and closes a torn last line. Numbers never
    /// go back: what this log wrote and someone removed leaves a gap.
    fn resume(&mut self, at: Wall) -> io::Result<Option<Torn>> {
        fs::create_dir_all(&self.dir)?;
        let tail = files::tail(&self.dir)?;
        self.current = tail.newest.map(Current::open).transpose()?;
        if let Some(last) = tail.last
            && last.seq >= self.seq
        {
            self.seq = last.seq;
            self.prev = last.hash;
            self.last_len = last.len;
            self.synced = self.synced.max(last.synced);
        }
        let Some(torn) = tail.torn else {
            return Ok(None);
        };
        if !torn.closed {
            self.close_line(&torn.path)?;
        }
        self.prev = torn.hash;
        self.last_len = torn.len;
        let said = torn.said;
        let event = Event::new(at, TORN_LINE)
            .with("file", said.file.as_str())
            .with("bytes", said.bytes)
            .with("lines", said.lines);
        self.write(&[event])?;
        Ok(Some(said))
    }

    fn close_line(&mut self, path: &Path) -> io::Result<()> {
        let file = Arc::new(File::options().write(true).open(path)?);
        let offset = file.metadata()?.len();
        self.disk.write_at(&file, b"\n", offset)?;
        self.keep(Chunk {
            file,
            offset,
            bytes: b"\n".to_vec(),
        });
        // The torn file is nearly always the current one.
        if let Some(current) = &mut self.current {
            current.len = current.file.metadata()?.len();
        }
        Ok(())
    }

    fn write<E: Borrow<Event>>(&mut self, events: &[E]) -> io::Result<()> {
        let (mut seq, mut prev) = (self.seq, self.prev.clone());
        let mut last_len = self.last_len;
        let mut parts: Vec<(String, Vec<u8>)> = Vec::new();
        let mut day = self
            .current
            .as_ref()
            .map_or_else(|| "0000-00-00".to_owned(), |current| current.day.clone());
        for event in events.iter().map(Borrow::borrow) {
            let its = event.at.day();
            if its > day && files::is_day(&its) {
                day = its;
            }
            seq = seq.saturating_add(1);
            let line = event.encode(seq, self.unsynced_before(seq), &prev)?;
            if !mutant::is("audit-without-hash") {
                prev = hash(&line);
            }
            last_len = line.len() as u64;
            if parts.last().is_none_or(|part| part.0 != day) {
                parts.push((day.clone(), Vec::new()));
            }
            if let Some((_, bytes)) = parts.last_mut() {
                bytes.extend_from_slice(&line);
                bytes.push(b'\n');
            }
        }
        let mut written = Vec::with_capacity(parts.len());
        for (day, bytes) in parts {
            match self.write_part(&day, bytes) {
                Ok(chunk) => written.push(chunk),
                Err(error) => {
                    // If this fails as well, `settle` tries it again.
                    let _ = self.roll_back();
                    return Err(error);
                }
            }
        }
        self.undo.clear();
        for chunk in written {
            self.keep(chunk);
        }
        (self.seq, self.prev, self.last_len) = (seq, prev, last_len);
        Ok(())
    }

    /// Without syncs nobody knows what is on disk, so nothing is said of it.
    fn unsynced_before(&self, seq: u64) -> u64 {
        match self.durability {
            Durability::Full => seq.saturating_sub(self.synced.saturating_add(1)),
            Durability::Relaxed => 0,
        }
    }

    fn write_part(&mut self, day: &str, bytes: Vec<u8>) -> io::Result<Chunk> {
        let current = match self.current.take() {
            Some(current) if current.day == day => current,
            older => {
                // Kept while the new one can't be opened, so that nothing is forgotten.
                self.current = older;
                self.new_name = true;
                Current::open(DayFile {
                    day: day.to_owned(),
                    path: self.dir.join(files::name_of(day)),
                })?
            }
        };
        let current = self.current.insert(current);
        let (file, offset) = (Arc::clone(&current.file), current.len);
        self.undo.push((Arc::clone(&file), offset));
        self.disk.write_at(&file, &bytes, offset)?;
        current.len += bytes.len() as u64;
        Ok(Chunk {
            file,
            offset,
            bytes,
        })
    }

    fn roll_back(&mut self) -> io::Result<()> {
        while let Some((file, len)) = self.undo.last() {
            self.disk.truncate(file, *len)?;
            if let Some(current) = &mut self.current
                && Arc::ptr_eq(&current.file, file)
            {
                current.len = *len;
            }
            self.undo.pop();
        }
        Ok(())
    }

    fn keep(&mut self, chunk: Chunk) {
        if self.durability == Durability::Full {
            self.unsynced.keep(chunk);
        }
    }
}
