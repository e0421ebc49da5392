//! `handoffd logs`: what an attempt wrote to stderr, also while it runs, and also where it ended
//! while no daemon ran.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::style::safe;
use crate::cli::{Failed, Global, Outcome, complete, find, out};
use crate::keeper::journal::{self, Entry};
use crate::runner::launch::AttemptPaths;
use crate::runner::slots::Slots;
use crate::spool::layout::Layout;
use crate::store::archive::packed::Packed;

#[derive(Debug, Args)]
pub struct Options {
    #[arg(value_name = "ID", add = complete::ids())]
    id: String,
    /// The attempt [default: the last one]
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// Follow the log until the attempt ends
    #[arg(short = 'f', long)]
    follow: bool,
}

pub fn logs(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    let place = find(&layout, &options.id)?;
    let id = &place.id;
    let listed = place.read().and_then(|(_, record)| record);
    let attempts = listed.map_or_else(Vec::new, |record| record.meta.attempts);
    let last = attempts.last().map(|attempt| attempt.number);
    let Some(attempt) = options.attempt.or(last) else {
        out::talk!("{id} has no attempt yet");
        return Ok(0);
    };
    let unknown = || {
        let text = format!("{id} has no attempt {attempt}");
        Failed::thing("UNKNOWN_ATTEMPT", anyhow::anyhow!(text))
    };
    let is_beyond = options.attempt.is_some_and(|wanted| Some(wanted) > last);
    // What is packed has all of its attempts in its record.
    if attempt == 0 || is_beyond && place.packed.is_some() {
        return Err(unknown());
    }
    if let Some(packed) = &place.packed {
        return packed_log(packed, attempt);
    }
    let is_judged = attempts
        .iter()
        .any(|it| it.number == attempt && it.ended_at.is_some());
    let mut file = match open(&layout, id, attempt, is_judged) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if is_beyond {
                return Err(unknown());
            }
            if is_judged {
                out::talk!("attempt {attempt} of {id} wrote nothing to stderr");
            } else {
                out::talk!(
                    "attempt {attempt} of {id} has no log yet (a resident specialist's log appears with its answer)"
                );
            }
            return Ok(0);
        }
        Err(error) => return Err(error.into()),
    };
    let mut out = out::lock();
    let mut copier = Copier::default();
    loop {
        // Asked first: what was written before the end is read after it.
        let live = is_live(&layout, id, attempt);
        copier.copy(&mut file, &mut out)?;
        out.flush()?;
        if !options.follow || !live {
            return Ok(0);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn packed_log(packed: &Packed, attempt: u32) -> Outcome {
    let name = format!("{}.{attempt}.log", packed.id);
    match packed.files.iter().find(|(it, _)| *it == name) {
        Some((_, bytes)) => Copier::default().copy(&mut &bytes[..], &mut out::lock())?,
        None => out::talk!("attempt {attempt} of {} wrote nothing to stderr", packed.id),
    }
    Ok(0)
}

/// Copies a log as it is, but for the hole at the head of one that was cut.
#[derive(Default)]
struct Copier {
    is_past_head: bool,
}

impl Copier {
    fn copy(&mut self, file: &mut impl Read, out: &mut impl Write) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            let mut text = &buffer[..read];
            if !self.is_past_head {
                let start = text.iter().position(|byte| *byte != 0);
                self.is_past_head = start.is_some();
                text = &text[start.unwrap_or(read)..];
            }
            if io::stdout().is_terminal() {
                // A log may hold anything; a terminal should not obey it.
                out.write_all(safe(&String::from_utf8_lossy(text), true).as_bytes())?;
            } else {
                out.write_all(text)?;
            }
        }
    }
}

fn is_live(layout: &Layout, id: &str, attempt: u32) -> bool {
    let known = journal::read(layout.run()).unwrap_or_default();
    let is_it = |entry: &Entry| entry.key.id == id && entry.key.attempt == attempt;
    known.iter().any(|entry| is_it(entry) && !entry.gone)
}

/// The log that was put away, or the file that the attempt writes to, or wrote to if no daemon has
/// judged it since.
fn open(layout: &Layout, id: &str, attempt: u32, is_judged: bool) -> io::Result<File> {
    let paths = AttemptPaths::new(layout.left_behind(), id, attempt);
    match File::open(paths.log()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::open(slot_path(layout, id, attempt, is_judged).ok_or(error)?)
        }
        opened => opened,
    }
}

fn slot_path(layout: &Layout, id: &str, attempt: u32, is_judged: bool) -> Option<PathBuf> {
    let known = journal::read(layout.run()).unwrap_or_default();
    let slot = slot_of(&known, id, attempt, is_judged)?;
    Some(Slots::new(layout.run()).stderr_path(slot))
}

/// The slot whose files are still this attempt's. One that was judged has given its slot back, and
/// the keeper may not have been told yet; what stands there then is another's.
fn slot_of(known: &[Entry], id: &str, attempt: u32, is_judged: bool) -> Option<u32> {
    let slot = |entry: &Entry| u32::try_from(entry.note.get("slot")?.as_u64()?).ok();
    let own = known
        .iter()
        .find(|entry| entry.key.id == id && entry.key.attempt == attempt)?;
    let is_taken = known
        .iter()
        .any(|other| other.key != own.key && !other.gone && slot(other) == slot(own));
    slot(own).filter(|_| !own.gone || !is_judged && !is_taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::journal::{Journal, Line};
    use crate::keeper::wire::Key;

    fn known(lines: &[&str]) -> Vec<Entry> {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path()).unwrap();
        for line in lines {
            let (word, id) = line.split_once(' ').unwrap();
            let key = Key::new(id, 1);
            let line = match word {
                "start" => Line::Start {
                    key,
                    note: serde_json::json!({"slot": 3}),
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
    fn a_log_is_copied_as_it_is_without_the_hole_at_its_head() {
        let hole = vec![0; 100_000];
        let cases: [(&[&[u8]], &[u8]); 3] = [
            (&[b"a\0b\0"], b"a\0b\0"),
            (&[&hole, b"a\0b"], b"a\0b"),
            (&[b"\0\0", b"\0a", b"\0b"], b"a\0b"),
        ];
        for (log, copied) in cases {
            let mut out = Vec::new();
            let mut copier = Copier::default();
            for mut part in log.iter().copied() {
                copier.copy(&mut part, &mut out).unwrap();
            }
            assert_eq!(out, copied);
        }
    }

    #[test]
    fn a_slot_belongs_to_an_attempt_until_it_is_judged() {
        for (lines, is_judged, slot) in [
            (&["start x"][..], false, Some(3)),
            (&["start x", "gone x"], false, Some(3)),
            (&["start x", "gone x"], true, None),
            (&["start x", "gone x", "start y"], false, None),
            (&["start y", "gone y", "start x"], false, Some(3)),
            (&["start y"], false, None),
        ] {
            let known = known(lines);
            assert_eq!(slot_of(&known, "x", 1, is_judged), slot, "{lines:?}");
        }
    }
}
