//! Where the two streams of an attempt stand: in the files of its slot while it runs and until it is
//! judged, under its own name afterwards, and stdout that was the result in the record.
//!
//! The files of a slot are used again. What was read from them counts only if the slot was still this
//! attempt's after the reading.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use serde_json::Value;

use crate::inspect::summary::Place;
use crate::keeper::journal::{self, Entry};
use crate::keeper::wire::Key;
use crate::protocol::record::Record;
use crate::runner::launch::AttemptPaths;
use crate::runner::slots::Slots;
use crate::spool::layout::Layout;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    /// How the file ends under which it is kept.
    pub fn kept_as(self) -> &'static str {
        match self {
            Self::Stdout => "out",
            Self::Stderr => "log",
        }
    }
}

/// How far one stream is. The last in this order decides how far the attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// All of it was read.
    Over,
    /// The attempt runs.
    Runs,
    /// Nobody knows of the attempt: it has not begun, or a resident process does it.
    Unknown,
}

/// One stream of one attempt, read as far as it goes.
pub struct Reader<'a> {
    layout: &'a Layout,
    /// The handoff; the key is another where it is about the verify command.
    id: &'a str,
    key: Key,
    stream: Stream,
    file: Option<File>,
    /// How far it was read.
    position: u64,
    /// A log that was cut has a hole at its head, which is left out.
    is_past_head: bool,
}

impl<'a> Reader<'a> {
    pub fn new(layout: &'a Layout, id: &'a str, key: Key, stream: Stream) -> Self {
        Self {
            layout,
            id,
            key,
            stream,
            file: None,
            position: 0,
            is_past_head: false,
        }
    }

    /// Hands on what is new since the last step.
    pub fn step(
        &mut self,
        mut give: impl FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> io::Result<Step> {
        if self.is_judged() || self.was_put_away() {
            return self.rest(give).map(|()| Step::Over);
        }
        // Asked first: what was written before the end is read after it.
        let Some((slot, is_gone)) = self.slot() else {
            return Ok(Step::Unknown);
        };
        let bytes = self.read_slot(slot).unwrap_or_default();
        let is_own = self.slot().is_some_and(|(now, _)| now == slot);
        if !is_own || self.was_put_away() || self.is_judged() {
            self.file = None;
            return self.rest(give).map(|()| Step::Over);
        }
        self.hand_on(&bytes, &mut give)?;
        Ok(if is_gone { Step::Over } else { Step::Runs })
    }

    fn hand_on(
        &mut self,
        bytes: &[u8],
        give: &mut impl FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.position += bytes.len() as u64;
        let mut text = bytes;
        if !self.is_past_head {
            let start = text.iter().position(|byte| *byte != 0);
            self.is_past_head = start.is_some();
            text = &text[start.unwrap_or(text.len())..];
        }
        if text.is_empty() {
            return Ok(());
        }
        give(self.stream, text)
    }

    /// The slot that is the attempt's, and whether its tree is gone.
    fn slot(&self) -> Option<(u32, bool)> {
        let known = journal::read(self.layout.run()).unwrap_or_default();
        let own = known.iter().find(|entry| entry.key == self.key)?;
        slot_of(&known, &self.key).map(|slot| (slot, own.gone))
    }

    fn is_judged(&self) -> bool {
        let place = Place::find(self.layout, self.id);
        let record = place.and_then(|place| place.read()?.1);
        record.is_some_and(|record| {
            let mut attempts = record.meta.attempts.iter();
            attempts.any(|it| it.number == self.key.attempt && it.ended_at.is_some())
        })
    }

    fn read_slot(&mut self, slot: u32) -> io::Result<Vec<u8>> {
        let slots = Slots::new(self.layout.run());
        let path = match self.stream {
            Stream::Stdout => slots.stdout_path(slot),
            Stream::Stderr => slots.stderr_path(slot),
        };
        if self.file.is_none() {
            self.file = Some(File::open(path)?);
        }
        self.read_on()
    }

    /// What stands in the open file behind what was read.
    fn read_on(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(self.position))?;
            file.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }

    fn kept_path(&self) -> PathBuf {
        let Key { id, attempt } = &self.key;
        let paths = AttemptPaths::new(self.layout.left_behind(), id, *attempt);
        match self.stream {
            Stream::Stdout => paths.kept_stdout(),
            Stream::Stderr => paths.log(),
        }
    }

    /// Whether there is a file of it: the record is about to say that it was judged, or came back
    /// by hand and says so no longer.
    fn was_put_away(&self) -> bool {
        self.kept_path().exists()
    }

    /// Hands on what is left of an attempt that was judged.
    fn rest(&mut self, mut give: impl FnMut(Stream, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let bytes = match File::open(self.kept_path()) {
            Ok(file) => {
                self.file = Some(file);
                self.read_on()?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let read = usize::try_from(self.position).unwrap_or(usize::MAX);
                let recorded = self.recorded().unwrap_or_default();
                recorded.get(read..).unwrap_or_default().to_vec()
            }
            Err(error) => return Err(error),
        };
        self.hand_on(&bytes, &mut give)
    }

    fn recorded(&self) -> Option<Vec<u8>> {
        if self.stream == Stream::Stderr || self.key.id != self.id {
            return None;
        }
        let (_, record) = Place::find(self.layout, self.id)?.read()?;
        recorded_stdout(&record?, self.key.attempt)
    }
}

/// What an attempt printed, where that became its result and no file was kept: a text as it was, a
/// result as the record has it.
pub fn recorded_stdout(record: &Record, attempt: u32) -> Option<Vec<u8>> {
    let last = &record.meta.last_result;
    let is_last = last.get("attempt").and_then(Value::as_u64) == Some(attempt.into());
    let result = if is_last && last.contains_key("result") {
        last.get("result")?
    } else {
        let ended = record.meta.attempts.last()?;
        let is_it = ended.number == attempt && ended.ended_at.is_some();
        record.doc.get("result").filter(|_| is_it)?
    };
    let result = result.as_object()?;
    if result.is_empty() {
        let text = record.doc.get("output")?.get("text")?.as_str()?;
        return Some(text.as_bytes().to_vec());
    }
    let mut line = serde_json::to_vec(result).ok()?;
    line.push(b'\n');
    Some(line)
}

/// The slot whose files are still those of an attempt that was not judged.
fn slot_of(known: &[Entry], key: &Key) -> Option<u32> {
    let slot = |entry: &Entry| u32::try_from(entry.note.get("slot")?.as_u64()?).ok();
    let own = known.iter().find(|entry| entry.key == *key)?;
    let is_taken = known
        .iter()
        .any(|other| other.key != own.key && !other.gone && slot(other) == slot(own));
    slot(own).filter(|_| !own.gone || !is_taken)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::keeper::journal::{Journal, Line};

    fn known(lines: &[&str]) -> Vec<Entry> {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path()).unwrap();
        for line in lines {
            let (word, id) = line.split_once(' ').unwrap();
            let key = Key::new(id, 1);
            let line = match word {
                "start" => Line::Start {
                    key,
                    note: json!({"slot": 3}),
                    deadline_boot_ms: 5,
                    grace_ms: 6,
                    boot: "b".to_owned(),
                    held: journal::Held::Minder,
                    user: None,
                },
                _ => Line::Gone { key },
            };
            journal.append(&line).unwrap();
        }
        journal::read(dir.path()).unwrap()
    }

    #[test]
    fn a_slot_belongs_to_an_attempt_until_another_has_it() {
        for (lines, slot) in [
            (&["start x"][..], Some(3)),
            (&["start x", "gone x"], Some(3)),
            (&["start x", "gone x", "start y"], None),
            (&["start y", "gone y", "start x"], Some(3)),
            (&["start y"], None),
        ] {
            let known = known(lines);
            assert_eq!(slot_of(&known, &Key::new("x", 1)), slot, "{lines:?}");
        }
    }

    #[test]
    fn the_hole_at_the_head_of_a_log_is_left_out() {
        let layout = Layout::new(std::path::Path::new("/nowhere"));
        let hole = vec![0; 100_000];
        let cases: [(&[&[u8]], &[u8]); 3] = [
            (&[b"a\0b\0"], b"a\0b\0"),
            (&[&hole, b"a\0b"], b"a\0b"),
            (&[b"\0\0", b"\0a", b"\0b"], b"a\0b"),
        ];
        for (log, copied) in cases {
            let mut out = Vec::new();
            let mut reader = Reader::new(&layout, "x", Key::new("x", 1), Stream::Stderr);
            for part in log {
                let give = |_, bytes: &[u8]| {
                    out.extend_from_slice(bytes);
                    Ok(())
                };
                reader.hand_on(part, &mut { give }).unwrap();
            }
            assert_eq!(out, copied);
        }
    }

    #[test]
    fn what_was_printed_is_read_off_the_record_where_it_became_the_result() {
        let ended = json!({"number": 2, "started_at": "2026-01-01T00:00:00.000Z",
            "ended_at": "2026-01-01T00:00:01.000Z", "outcome": "completed"});
        for (result, output, held, printed) in [
            (json!({"n": 1}), json!(null), json!({}), Some("{\"n\":1}\n")),
            (json!({}), json!({"text": "hi\n"}), json!({}), Some("hi\n")),
            (json!({}), json!(null), json!({}), None),
            (json!(null), json!(null), json!({}), None),
            (
                json!(null),
                json!(null),
                json!({"attempt": 2, "outcome": "held", "result": {"n": 2}}),
                Some("{\"n\":2}\n"),
            ),
        ] {
            let doc = json!({
                "handoff_id": "x", "target": {"agent_id": "a"}, "result": result, "output": output,
                "handoffd": {"format": 1, "revision": 1, "attempts": [ended], "last_result": held},
            });
            let record = Record::from_document(doc.as_object().unwrap().clone()).unwrap();
            let found = recorded_stdout(&record, 2).map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(found.as_deref(), printed, "{result} {output} {held}");
            assert_eq!(recorded_stdout(&record, 1), None);
        }
    }
}
