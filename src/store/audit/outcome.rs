//! Whether the log has the line of one outcome.
//!
//! The line of an outcome is in the log before its record stands in `completed/` or `failed/`. So a
//! record without such a line was put there by somebody else.
//!
//! The line of a genuine outcome is found by its time, with a few reads, however long the log is.
//! Only for a record that has no line near its time the whole log is read: a clock may have jumped.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use super::files::{self, Backwards};
use super::line::Line;
use super::near::{NEAR_MS, each_line, near_their_times};
use crate::clock::Wall;
use crate::protocol::lifecycle::State;

/// An outcome as its record tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub id: String,
    pub state: State,
    /// None for the notice beside bytes that were refused: its line has no revision.
    pub revision: Option<u64>,
    pub at: Option<Wall>,
}

impl Outcome {
    /// The same with its time as the record has it.
    pub fn told(id: &str, state: State, revision: Option<u64>, at: Option<&str>) -> Self {
        Self {
            id: id.to_owned(),
            state,
            revision,
            at: at.and_then(Wall::parse),
        }
    }

    /// What decides whether a line is the one of an outcome. Absent for a line of anything else.
    pub fn key_of(line: &Line) -> Option<(&str, State, Option<u64>)> {
        let word = line.detail.get("to")?.as_str()?;
        let finals = [State::Completed, State::Failed];
        let state = finals.into_iter().find(|state| state.status() == word)?;
        let revision = line.detail.get("revision");
        let revision = revision.and_then(serde_json::Value::as_u64);
        Some((line.handoff_id.as_deref()?, state, revision))
    }

    pub(super) fn is_told_by(&self, line: &Line) -> bool {
        Self::key_of(line) == Some((&*self.id, self.state, self.revision))
    }
}

/// What the log says of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It has the line of it, with this number.
    Decided(u64),
    /// It would have a line of it, and has none.
    Never,
    /// It does not go back that far.
    Unknown,
}

/// Looks for the lines of outcomes; what the log says of each, in their order. The whole log is
/// read once at most.
pub fn outcomes(dir: &Path, told: &[Outcome]) -> io::Result<Vec<Word>> {
    let mut words = vec![Word::Unknown; told.len()];
    let files = match files::list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(words),
        listed => listed?,
    };
    let Some(first) = files.first() else {
        return Ok(words);
    };
    let mut open: HashMap<&str, Vec<usize>> = HashMap::new();
    let near = near_their_times(&files, told)?;
    for (n, (told, seq)) in told.iter().zip(near).enumerate() {
        match seq {
            Some(seq) => words[n] = Word::Decided(seq),
            None => open.entry(&told.id).or_default().push(n),
        }
    }
    // Where the log's own beginning is missing, no line is no answer.
    let Some((1, since)) = beginning(&first.path)? else {
        return Ok(words);
    };
    // What began after the log did can't have ended before it.
    let mut known: HashSet<&str> = HashSet::new();
    for file in files.iter().rev().take_while(|_| !open.is_empty()) {
        let mut lines = Backwards::open(&file.path)?;
        while let Some(raw) = lines.next()? {
            let Some((id, numbers)) = id_in(&raw.bytes).and_then(|id| open.get_key_value(id))
            else {
                continue;
            };
            known.insert(*id);
            let Some(line) = Line::parse(&raw.bytes) else {
                continue;
            };
            for n in numbers {
                if words[*n] == Word::Unknown && told[*n].is_told_by(&line) {
                    words[*n] = Word::Decided(line.seq);
                }
            }
        }
    }
    for n in open.into_values().flatten() {
        let is_older = told[n].at.is_some_and(|at| at.plus_ms(NEAR_MS) < since);
        if words[n] == Word::Unknown && (!is_older || known.contains(&*told[n].id)) {
            words[n] = Word::Never;
        }
    }
    Ok(words)
}

/// The same for one.
pub fn outcome(dir: &Path, told: Outcome) -> io::Result<Word> {
    Ok(outcomes(dir, &[told])?[0])
}

/// Whether the log has the lines of outcomes where their times say, which costs a few reads.
pub fn are_at_their_times(dir: &Path, told: &[Outcome]) -> io::Result<Vec<bool>> {
    let near = near_their_times(&files::list(dir)?, told)?;
    Ok(near.iter().map(Option::is_some).collect())
}

/// The id in a line, without reading all of it. Ids need no escapes.
fn id_in(line: &[u8]) -> Option<&str> {
    let (_, after) = std::str::from_utf8(line)
        .ok()?
        .split_once("\"handoff_id\":\"")?;
    Some(after.split_once('"')?.0)
}

/// Number and time of the first line.
fn beginning(path: &Path) -> io::Result<Option<(u64, Wall)>> {
    let mut found = None;
    each_line(path, 0, |line| {
        found = Some((line.seq, line.at));
        ControlFlow::Break(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn line(seq: u64, at: i64, id: &str, to: &str, revision: u64) -> String {
        format!(
            "{{\"seq\":{seq},\"at\":\"{}\",\"event\":\"e\",\"handoff_id\":\"{id}\",\"to\":\"{to}\",\
             \"revision\":{revision},\"prev\":\"{}\"}}\n",
            Wall(at),
            "0".repeat(64)
        )
    }

    /// Two days of one line a second, with `x` completed in the middle of the first.
    fn log(first: u64) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for day in 0..2_i64 {
            let mut text = String::new();
            for n in 0..5000_i64 {
                let at = DAY + day * 86_400_000 + n * 1000;
                let seq = first + u64::try_from(day * 5000 + n).unwrap();
                let named = if (day, n) == (0, 2500) { "x" } else { "other" };
                write!(text, "{}", line(seq, at, named, "completed", 2)).unwrap();
            }
            let name = files::name_of(&Wall(DAY + day * 86_400_000).day());
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    const DAY: i64 = 1_700_006_400_000;

    #[test]
    fn only_an_outcome_with_a_line_of_its_own_was_decided() {
        let dir = log(1);
        let then = DAY + 2_500_000;
        for (id, state, revision, at, word) in [
            ("x", State::Completed, 2, Some(then), Word::Decided(2501)),
            (
                "x",
                State::Completed,
                2,
                Some(then + 900),
                Word::Decided(2501),
            ),
            // The clock jumped, or the record does not say when.
            (
                "x",
                State::Completed,
                2,
                Some(DAY + 90_000_000),
                Word::Decided(2501),
            ),
            ("x", State::Completed, 2, None, Word::Decided(2501)),
            ("x", State::Completed, 3, Some(then), Word::Never),
            ("x", State::Failed, 2, Some(then), Word::Never),
            ("y", State::Completed, 2, Some(then), Word::Never),
            ("y", State::Completed, 2, None, Word::Never),
            // Older than the log.
            (
                "y",
                State::Completed,
                2,
                Some(DAY - 86_400_000),
                Word::Unknown,
            ),
            ("x", State::Failed, 2, Some(DAY - 86_400_000), Word::Never),
        ] {
            let told = Outcome {
                id: id.to_owned(),
                state,
                revision: Some(revision),
                at: at.map(Wall),
            };
            let said = outcome(dir.path(), told.clone()).unwrap();
            assert_eq!(said, word, "{told:?}");
        }
        let cut = log(1000);
        let told = Outcome {
            id: "y".to_owned(),
            state: State::Completed,
            revision: Some(2),
            at: Some(Wall(then)),
        };
        assert_eq!(outcome(cut.path(), told.clone()).unwrap(), Word::Unknown);
        let none = tempfile::tempdir().unwrap();
        let nowhere = none.path().join("audit");
        assert_eq!(outcome(&nowhere, told).unwrap(), Word::Unknown);
    }
}
