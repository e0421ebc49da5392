//! The lines of outcomes, looked for where their times say.
//!
//! Lines stand in the order of their times, nearly. So a line is found by halving a file, and what
//! lies around it is read. Outcomes of one time share what is read: thousands may end at once, and
//! to read the same minute again for each of them would take minutes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::Path;

use super::files::DayFile;
use super::line::Line;
use super::outcome::Outcome;
use crate::clock::Wall;

/// Lines may be out of order by less than this, and a record's time differs from its line's by
/// less.
pub(super) const NEAR_MS: i64 = 60_000;

/// Files up to this size are read from their beginning.
const SMALL: u64 = 64 * 1024;

/// The numbers of the outcomes' lines, as far as these stand where their times say.
pub(super) fn near_their_times(
    files: &[DayFile],
    told: &[Outcome],
) -> io::Result<Vec<Option<u64>>> {
    let mut search = Search {
        told,
        found: vec![None; told.len()],
        read: 0,
    };
    for group in of_one_time(told) {
        search.look(files, &group)?;
    }
    Ok(search.found)
}

/// Outcomes with a time, by their places, so that those of one group are near to each other.
fn of_one_time(told: &[Outcome]) -> Vec<Vec<(usize, Wall)>> {
    let timed = told.iter().enumerate();
    let mut timed: Vec<(usize, Wall)> = timed.filter_map(|(n, it)| Some((n, it.at?))).collect();
    timed.sort_by_key(|(_, at)| *at);
    let near = |a: &(usize, Wall), b: &(usize, Wall)| b.1 <= a.1.plus_ms(2 * NEAR_MS);
    timed.chunk_by(near).map(<[_]>::to_vec).collect()
}

struct Search<'a> {
    told: &'a [Outcome],
    found: Vec<Option<u64>>,
    /// How many lines were read.
    read: usize,
}

impl Search<'_> {
    /// Looks for the lines of one group, which is in the order of its times.
    fn look(&mut self, files: &[DayFile], group: &[(usize, Wall)]) -> io::Result<()> {
        let (Some((_, first)), Some((_, last))) = (group.first(), group.last()) else {
            return Ok(());
        };
        let place = |at: &Wall| {
            let day = at.day();
            files.partition_point(|file| file.day < day)
        };
        let mut by_id: HashMap<&str, Vec<usize>> = HashMap::new();
        for (n, _) in group {
            by_id.entry(&self.told[*n].id).or_default().push(*n);
        }
        // A line goes to the file of its day, or to the newest one; or it was written before midnight.
        let (begin, end) = (place(first).saturating_sub(1), place(last) + 2);
        for file in files.iter().take(end).skip(begin) {
            let times = (first.plus_ms(-NEAR_MS), last.plus_ms(NEAR_MS));
            for (n, seq) in self.in_file(&file.path, times, &by_id)? {
                self.found[n].get_or_insert(seq);
            }
        }
        Ok(())
    }

    /// The last lines of these outcomes among those of a file that were written in this time.
    fn in_file(
        &mut self,
        path: &Path,
        (from, until): (Wall, Wall),
        by_id: &HashMap<&str, Vec<usize>>,
    ) -> io::Result<HashMap<usize, u64>> {
        let mut here = HashMap::new();
        each_line(path, first_since(path, from)?, |line| {
            self.read += 1;
            let id = line.handoff_id.as_deref().unwrap_or_default();
            for n in by_id.get(id).into_iter().flatten() {
                if self.told[*n].is_told_by(&line) {
                    here.insert(*n, line.seq);
                }
            }
            if line.at > until {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        Ok(here)
    }
}

/// A place in the file that lies before all lines of this time, and not far.
fn first_since(path: &Path, since: Wall) -> io::Result<u64> {
    let (mut low, mut high) = (0, std::fs::metadata(path)?.len());
    while high - low > SMALL {
        let middle = low + (high - low) / 2;
        let mut is_before = false;
        each_line(path, middle, |line| {
            is_before = line.at < since;
            ControlFlow::Break(())
        })?;
        if is_before {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// Hands over the whole lines that begin at this place or behind it.
pub(super) fn each_line(
    path: &Path,
    from: u64,
    mut each: impl FnMut(Line) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from.saturating_sub(1)))?;
    let mut lines = BufReader::new(file);
    let mut bytes = Vec::new();
    if from > 0 {
        lines.read_until(b'\n', &mut bytes)?;
    }
    loop {
        bytes.clear();
        if lines.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(());
        }
        if let Some(line) = Line::parse(bytes.trim_ascii_end())
            && each(line).is_break()
        {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::super::files;
    use super::*;
    use crate::protocol::lifecycle::State;

    const DAY: i64 = 1_700_006_400_000;

    fn told(id: usize, at: i64) -> Outcome {
        Outcome {
            id: format!("n-{id}"),
            state: State::Failed,
            revision: Some(2),
            at: Some(Wall(at)),
        }
    }

    /// A line each ten milliseconds, from shortly before midnight on.
    fn log(lines: usize) -> (tempfile::TempDir, Vec<Outcome>) {
        let dir = tempfile::tempdir().unwrap();
        let mut texts = [String::new(), String::new()];
        let mut all = Vec::new();
        for n in 0..lines {
            let at = DAY + 86_400_000 - 5_000 + i64::try_from(n).unwrap() * 10;
            let file = &mut texts[usize::from(at >= DAY + 86_400_000)];
            writeln!(
                file,
                "{{\"seq\":{n},\"at\":\"{}\",\"event\":\"e\",\"handoff_id\":\"n-{n}\",\
                 \"to\":\"failed\",\"revision\":2,\"prev\":\"{}\"}}",
                Wall(at),
                "0".repeat(64)
            )
            .unwrap();
            all.push(told(n, at));
        }
        for (day, text) in texts.iter().enumerate() {
            let at = Wall(DAY + i64::try_from(day).unwrap() * 86_400_000);
            std::fs::write(dir.path().join(files::name_of(&at.day())), text).unwrap();
        }
        (dir, all)
    }

    #[test]
    fn thousands_that_ended_at_one_time_cost_one_reading() {
        const LINES: usize = 3_000;
        let (dir, all) = log(LINES);
        let files = files::list(dir.path()).unwrap();
        let mut search = Search {
            told: &all,
            found: vec![None; LINES],
            read: 0,
        };
        for group in of_one_time(&all) {
            search.look(&files, &group).unwrap();
        }
        let expected: Vec<Option<u64>> = (0..LINES as u64).map(Some).collect();
        assert_eq!(search.found, expected);
        assert!(search.read <= LINES, "{} lines were read", search.read);
    }

    #[test]
    fn outcomes_that_are_far_apart_are_looked_for_apart_and_none_is_found_elsewhere() {
        let (dir, mut all) = log(100);
        let files = files::list(dir.path()).unwrap();
        all.truncate(2);
        all.extend([told(1, DAY), told(7_000, DAY + 86_400_000)]);
        all.push(Outcome {
            at: None,
            ..told(3, 0)
        });
        assert_eq!(of_one_time(&all).len(), 2);
        let found = near_their_times(&files, &all).unwrap();
        assert_eq!(found, [Some(0), Some(1), None, None, None]);
        assert_eq!(near_their_times(&[], &all).unwrap(), [None; 5]);
    }
}
