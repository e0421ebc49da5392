//! Writing the journal: two files that take turns, because one could never be shortened.
//!
//! A file is emptied, in place, when everything that was started in it is forgotten and the
//! other is full. It keeps its inode, since minders hold appending descriptors to it. All that
//! concerns an attempt is in the file it was started in or in the one that came after, and that
//! one can't be emptied before it. Where an attempt stays for so long that the other file has
//! become many times as large as it should, what is known of it is written there once more. That
//! is not done for one that has a minder, which writes to the file by itself.
//!
//! Two kinds of lines wait for the next one, and are written together with it: that an attempt is
//! gone, and that it is forgotten. Whoever misses them finds its cgroup empty, or its minder gone,
//! and is told again what to forget. Because they come before whatever is started next, in the
//! same write, a cgroup that is used again never stands in the journal for two.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::{Entry, Held, Line, NAMES, VERSION, append, append_bytes, encode, lines, number, read};
use crate::durable::{self, Durability};
use crate::keeper::wire::Key;

/// A file that has grown past this is left for the other as soon as that is free.
const LIMIT: u64 = 1 << 20;
/// How many times as large it becomes before the other is made free.
const MUCH: u64 = 4;

/// The journal, for the one keeper that writes it.
#[derive(Debug)]
pub struct Journal {
    run_dir: PathBuf,
    files: [File; 2],
    current: usize,
    number: u64,
    limit: u64,
    /// The file in which each attempt that is not forgotten was started.
    started: HashMap<Key, usize>,
    /// Which files have lines that [`Journal::sync`] has not seen yet.
    unsynced: [bool; 2],
    /// Lines that wait for the next one.
    unwritten: Vec<u8>,
    /// What was written since the last look at the file's size, to which minders add, too.
    unlooked: u64,
}

impl Journal {
    pub fn open(run_dir: &Path) -> io::Result<(Self, Vec<Entry>)> {
        Self::open_with(run_dir, LIMIT)
    }

    fn open_with(run_dir: &Path, limit: u64) -> io::Result<(Self, Vec<Entry>)> {
        let files = [
            open_file(&run_dir.join(NAMES[0]))?,
            open_file(&run_dir.join(NAMES[1]))?,
        ];
        durable::sync_dir(&File::open(run_dir)?, Durability::Full)?;
        let entries = read(run_dir)?;
        let mut started = HashMap::new();
        let mut numbers = [0; 2];
        for (at, name) in NAMES.into_iter().enumerate() {
            let lines = lines(&std::fs::read(run_dir.join(name))?);
            numbers[at] = number(&lines);
            for line in lines {
                if let Line::Start { key, .. } = line {
                    started.insert(key, at);
                }
            }
        }
        let known: HashSet<&Key> = entries.iter().map(|entry| &entry.key).collect();
        started.retain(|key, _| known.contains(key));
        let current = usize::from(numbers[1] > numbers[0]);
        let mut journal = Self {
            run_dir: run_dir.to_owned(),
            files,
            current,
            number: numbers[current],
            limit,
            started,
            unsynced: [false; 2],
            unwritten: Vec::new(),
            unlooked: limit,
        };
        if journal.number == 0 && journal.started.is_empty() {
            journal.begin(current)?;
        }
        Ok((journal, entries))
    }

    /// The file that lines go to now; a minder inherits it.
    pub fn file(&self) -> &File {
        &self.files[self.current]
    }

    pub fn append(&mut self, line: &Line) -> io::Result<()> {
        match line {
            Line::Start { key, .. } => {
                self.rotate()?;
                self.write(line)?;
                self.started.insert(key.clone(), self.current);
            }
            Line::Forget { key } => {
                self.write(line)?;
                self.started.remove(key);
            }
            _ => self.write(line)?,
        }
        Ok(())
    }

    /// Appends a line with the next one, or with [`Journal::flush`].
    pub fn append_later(&mut self, line: &Line) -> io::Result<()> {
        encode(line, &mut self.unwritten)?;
        if let Line::Forget { key } = line {
            self.started.remove(key);
        }
        // Whoever keeps many attempts ends many at once.
        if self.unwritten.len() > 4096 {
            return self.flush();
        }
        Ok(())
    }

    /// Writes what waits.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        append_bytes(self.file(), &self.unwritten)?;
        self.unlooked += self.unwritten.len() as u64;
        self.unwritten.clear();
        self.unsynced[self.current] = true;
        Ok(())
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        let waiting = self.unwritten.len();
        encode(line, &mut self.unwritten)?;
        // A line that can't be written is its caller's to say again; those that wait stay.
        self.flush()
            .inspect_err(|_| self.unwritten.truncate(waiting))
    }

    /// Returns once all lines so far would survive a power cut.
    pub fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        for (file, unsynced) in self.files.iter().zip(&mut self.unsynced) {
            if std::mem::take(unsynced) {
                durable::sync_file(file, Durability::Full)?;
            }
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.unlooked < self.limit / 16 {
            return Ok(());
        }
        self.unlooked = 0;
        let other = 1 - self.current;
        let length = self.file().metadata()?.len();
        if length > self.limit * MUCH && self.started.values().any(|&at| at == other) {
            self.carry_over(other)?;
        }
        if length > self.limit && !self.started.values().any(|&at| at == other) {
            // What waits belongs to the file that is left.
            self.flush()?;
            self.begin(other)?;
        }
        Ok(())
    }

    /// Writes what is known of the attempts that keep the other file from being emptied.
    fn carry_over(&mut self, other: usize) -> io::Result<()> {
        self.flush()?;
        let entries = read(&self.run_dir)?;
        let of_other = |entry: &&Entry| self.started.get(&entry.key) == Some(&other);
        let entries: Vec<&Entry> = entries.iter().filter(of_other).collect();
        if entries.iter().any(|entry| entry.held == Held::Minder) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for line in entries.iter().flat_map(|entry| entry.lines()) {
            encode(&line, &mut bytes)?;
        }
        append_bytes(self.file(), &bytes)?;
        self.unsynced[self.current] = true;
        for at in self.started.values_mut() {
            *at = self.current;
        }
        Ok(())
    }

    fn begin(&mut self, at: usize) -> io::Result<()> {
        self.files[at].set_len(0)?;
        let line = Line::File {
            version: VERSION,
            number: self.number + 1,
        };
        append(&self.files[at], &line)?;
        self.number += 1;
        self.current = at;
        Ok(())
    }
}

/// Opens for appending, and closes a torn last line.
fn open_file(path: &Path) -> io::Result<File> {
    let mut file = File::options()
        .read(true)
        .append(true)
        .create(true)
        .open(path)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    if text.last().is_some_and(|&byte| byte != b'\n') {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::journal::Held;
    use crate::keeper::wire::{Exit, Why};

    fn start(id: &str) -> Line {
        start_held(id, Held::Minder)
    }

    fn start_held(id: &str, held: Held) -> Line {
        Line::Start {
            key: Key::new(id, 1),
            note: serde_json::json!({"n": 1}),
            deadline_boot_ms: 5,
            grace_ms: 6,
            boot: "b".to_owned(),
            held,
            user: None,
        }
    }

    fn ids(dir: &Path) -> Vec<String> {
        let entries = read(dir).unwrap();
        entries.into_iter().map(|entry| entry.key.id).collect()
    }

    #[test]
    fn facts_are_kept_until_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), []);
        let (mut journal, _) = Journal::open(dir.path()).unwrap();
        let key = Key::new("x", 1);
        journal.append(&start("x")).unwrap();
        journal.append(&start("y")).unwrap();
        for line in [
            Line::Minder {
                key: key.clone(),
                pid: 6,
                starttime: 1,
            },
            Line::Pid {
                key: key.clone(),
                pid: 7,
                starttime: 2,
            },
            Line::Ending {
                key: key.clone(),
                why: Why::Cancelled,
            },
            Line::Ending {
                key: key.clone(),
                why: Why::Stop,
            },
            Line::Exit {
                key: key.clone(),
                exit: Exit::Signal(15),
            },
            Line::Gone { key: key.clone() },
            Line::Forget {
                key: Key::new("y", 1),
            },
        ] {
            journal.append(&line).unwrap();
        }
        let entries = read(dir.path()).unwrap();
        assert_eq!(entries.len(), 1);
        let entry = &entries[0];
        assert_eq!((entry.pid, entry.starttime), (Some(7), Some(2)));
        assert_eq!(entry.minder, Some((6, 1)));
        assert_eq!(entry.why, Some(Why::Cancelled), "the first reason sticks");
        assert_eq!((entry.exit, entry.gone), (Some(Exit::Signal(15)), true));
        let (_, again) = Journal::open(dir.path()).unwrap();
        assert_eq!(again, entries);
    }

    #[test]
    fn a_torn_last_line_is_closed_and_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path()).unwrap();
        journal.append(&start("x")).unwrap();
        journal
            .file()
            .write_all(br#"{"gone":{"key":{"id":"x"#)
            .unwrap();
        assert!(!read(dir.path()).unwrap()[0].gone);
        let (mut journal, _) = Journal::open(dir.path()).unwrap();
        journal.append(&start("y")).unwrap();
        assert_eq!(ids(dir.path()), ["x", "y"]);
    }

    #[test]
    fn files_take_turns_and_nothing_that_matters_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open_with(dir.path(), 2000).unwrap();
        journal.append(&start("long")).unwrap();
        let minder = journal.file().try_clone().unwrap();
        for at in 0..200 {
            journal.append(&start(&format!("x{at}"))).unwrap();
            let key = Key::new(format!("x{at}"), 1);
            journal.append(&Line::Forget { key }).unwrap();
            if at == 150 {
                // By then both files are long past the limit, and the first can't be emptied.
                let key = Key::new("long", 1);
                let exit = Exit::Code(3);
                append(&minder, &Line::Exit { key, exit }).unwrap();
                (journal, _) = Journal::open_with(dir.path(), 2000).unwrap();
            }
        }
        let entries = read(dir.path()).unwrap();
        assert_eq!(ids(dir.path()), ["long"]);
        assert_eq!(entries[0].exit, Some(Exit::Code(3)));
        let key = Key::new("long", 1);
        journal.append(&Line::Forget { key }).unwrap();
        for at in 0..40 {
            journal.append(&start(&format!("y{at}"))).unwrap();
            assert_eq!(ids(dir.path()), [format!("y{at}")]);
            let key = Key::new(format!("y{at}"), 1);
            journal.append(&Line::Forget { key }).unwrap();
        }
        let size = |name| dir.path().join(name).metadata().unwrap().len();
        assert!(size(NAMES[0]) < 3000 && size(NAMES[1]) < 3000);
    }

    #[test]
    fn a_newer_journal_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let text = "{\"file\":{\"version\":2,\"number\":1}}\n";
        std::fs::write(dir.path().join(NAMES[0]), text).unwrap();
        assert!(read(dir.path()).is_err());
        assert!(Journal::open(dir.path()).is_err());
        let kept = std::fs::read_to_string(dir.path().join(NAMES[0])).unwrap();
        assert_eq!(kept, text);
    }

    #[test]
    fn one_that_stays_does_not_let_a_file_grow_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open_with(dir.path(), 2000).unwrap();
        let stays = Key::new("stays", 1);
        let in_cgroup = |id: &str| start_held(id, Held::Cgroup("/c".into()));
        journal.append(&in_cgroup("stays")).unwrap();
        for line in [
            Line::Pid {
                key: stays.clone(),
                pid: 7,
                starttime: 2,
            },
            Line::Ending {
                key: stays.clone(),
                why: Why::Stop,
            },
        ] {
            journal.append(&line).unwrap();
        }
        let before = read(dir.path()).unwrap();
        for at in 0..1000 {
            let id = format!("x{at}");
            journal.append(&in_cgroup(&id)).unwrap();
            let key = Key::new(id, 1);
            journal.append_later(&Line::Forget { key }).unwrap();
        }
        journal.flush().unwrap();
        assert_eq!(read(dir.path()).unwrap(), before);
        for name in NAMES {
            let length = std::fs::metadata(dir.path().join(name)).unwrap().len();
            assert!(length < 2000 * MUCH + 1000, "{name}: {length}");
        }
        let exit = Exit::Code(3);
        let key = stays;
        journal.append(&Line::Exit { key, exit }).unwrap();
        let (_, again) = Journal::open_with(dir.path(), 2000).unwrap();
        assert_eq!(again[0].exit, Some(Exit::Code(3)));
    }
}
