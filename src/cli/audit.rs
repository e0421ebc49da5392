//! `handoffd audit`: the story of a handoff and its chain, or whether the log is whole; `handoffd tail`:
//! events as they happen.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::style::{Ink, columns, ink, line, moment, safe, width};
use crate::cli::{Failed, Global, Outcome, complete, known, out, wake};
use crate::inspect::chain::gather;
use crate::spool::layout::Layout;
use crate::store::audit::{self, Anchors, Line};

#[derive(Debug, Args)]
#[command(
    after_help = "Prints the events of the handoff's whole chain, in order.\n\nExit code of --verify: 0 the audit log is intact, 1 it is not.\n\nAnchors are sent where [audit] anchor says. From the journal: \
                  journalctl -t handoffd-anchor -o cat | handoffd audit --verify --anchor -"
)]
pub struct Options {
    #[arg(value_name = "ID", required_unless_present = "verify", add = complete::ids())]
    id: Option<String>,
    /// Only this handoff, not its chain
    #[arg(long, requires = "id")]
    alone: bool,
    /// Check the numbers and hashes of the whole audit log
    #[arg(long, conflicts_with = "id")]
    verify: bool,
    /// Hold the log against the anchors in this file, too (- is stdin); may be given several times
    #[arg(long, value_name = "FILE", requires = "verify")]
    anchor: Vec<PathBuf>,
    /// The root that the anchors name, where the log has been moved since
    #[arg(long, value_name = "DIR", requires = "anchor")]
    anchor_root: Option<PathBuf>,
}

pub fn audit(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    let Some(id) = &options.id else {
        return verify(global, &layout, options);
    };
    // The log also knows handoffs whose records are gone.
    let id = &known(&layout, id).map_or_else(|_| id.clone(), |place| place.id);
    let lines = recent(&layout, u64::MAX)?;
    let mut told_of = HashSet::from([id.clone()]);
    if !options.alone {
        let chain = gather(&layout, id);
        told_of.extend(chain.nodes().into_iter().map(|node| node.id.clone()));
    }
    let about = |line: &&Line| {
        let id = line.handoff_id.as_ref();
        id.is_some_and(|id| told_of.contains(id))
    };
    let told: Vec<&Line> = lines.iter().filter(about).collect();
    if global.json {
        for line in &told {
            out::tell(to_json(line))?;
        }
    } else {
        let rows: Vec<Vec<String>> = told.iter().map(|line| row(line)).collect();
        out::put(columns(&rows))?;
    }
    if !told.is_empty() {
        return Ok(0);
    }
    let text = format!("the audit log has no handoff with the id {id}");
    Err(Failed::thing("UNKNOWN_ID", anyhow::anyhow!(text)))
}

/// Before a daemon first runs on a root there is no log, which is as good as an empty one.
fn has_log(layout: &Layout) -> bool {
    layout.audit().is_dir()
}

fn recent(layout: &Layout, most_bytes: u64) -> io::Result<Vec<Line>> {
    if has_log(layout) {
        audit::recent(&layout.audit(), most_bytes)
    } else {
        Ok(Vec::new())
    }
}

/// The anchors of this root in all files.
fn anchors(layout: &Layout, options: &Options) -> Result<Anchors, Failed> {
    let mut anchors = Anchors::default();
    let root = options.anchor_root.as_deref().unwrap_or(layout.root());
    let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    let root = root.to_string_lossy();
    for file in &options.anchor {
        let name = file.display().to_string();
        let read = if name == "-" {
            anchors.read("stdin", io::stdin().lock(), &root)
        } else {
            File::open(file).and_then(|open| anchors.read(&name, BufReader::new(open), &root))
        };
        read.map_err(|error| Failed::usage("ANCHORS", anyhow::anyhow!("{name}: {error}")))?;
    }
    if !options.anchor.is_empty() && anchors.is_empty() && anchors.unreadable.is_empty() {
        let others = match anchors.of_other_roots {
            0 => "there are none".to_owned(),
            n => format!(
                "{n} of other roots; for a log that was moved, name its old root with --anchor-root"
            ),
        };
        let text = format!("no anchors of {root}: {others}");
        return Err(Failed::thing("NO_ANCHORS", anyhow::anyhow!(text)));
    }
    Ok(anchors)
}

fn verify(global: &Global, layout: &Layout, options: &Options) -> Outcome {
    let anchors = anchors(layout, options)?;
    let verdict = if has_log(layout) {
        audit::verify_against(&layout.audit(), &anchors)?
    } else {
        audit::verify_against_nothing(&anchors)
    };
    let sound = verdict.is_sound();
    if global.json {
        let problems: Vec<String> = verdict.problems.iter().map(ToString::to_string).collect();
        let text = json!({
            "sound": sound, "files": verdict.files, "lines": verdict.lines,
            "last_seq": verdict.last_seq, "torn": verdict.torn, "problems": problems,
            "anchors": verdict.anchored, "older_anchors": verdict.older,
        });
        out::tell(text)?;
        return Ok(u8::from(!sound));
    }
    for problem in &verdict.problems {
        out::tell(safe(&problem.to_string(), false))?;
    }
    let torn = match verdict.torn {
        0 => String::new(),
        n => format!(", {n} torn by a crash and closed"),
    };
    let held = match (options.anchor.is_empty(), verdict.older) {
        (true, _) => String::new(),
        (false, 0) => format!("; {} anchors were compared", verdict.anchored),
        (false, older) => format!(
            "; {} anchors were compared, {older} are of lines before the first",
            verdict.anchored
        ),
    };
    let what = if sound {
        "audit log intact"
    } else {
        "audit log DAMAGED"
    };
    let (lines, files) = (
        counted(verdict.lines, "line"),
        counted(verdict.files, "file"),
    );
    out::tell(format!("{what}: {lines}, {files}{torn}{held}"))?;
    Ok(u8::from(!sound))
}

/// One long id does not move all others to the right.
const MOST_ALIGNED: usize = 40;

/// A number with its noun: `1 file`, `1,132 lines`.
fn counted(count: u64, noun: &str) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    let plural = if count == 1 { "" } else { "s" };
    format!("{text} {noun}{plural}")
}

#[derive(Debug, Args)]
#[command(after_help = "Runs until interrupted. For other programs: tail -F audit/*.jsonl")]
pub struct TailOptions {
    /// Only failures
    #[arg(long)]
    failed: bool,
    /// How many past events to print first
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    lines: usize,
}

pub fn tail(global: &Global, options: &TailOptions) -> Outcome {
    let layout = global.existing_layout()?;
    let (_watcher, told) = wake::on_changes(&[layout.audit()])?;
    let wanted = |line: &Line| !options.failed || is_failure(line);
    let past = recent(&layout, 1024 * 1024)?;
    let mut ticker = Ticker::default();
    let mut seen = past.last().map_or(0, |line| line.seq);
    let past: Vec<&Line> = past.iter().filter(|line| wanted(line)).collect();
    for line in past.iter().skip(past.len().saturating_sub(options.lines)) {
        ticker.print(global, line)?;
    }
    loop {
        let _ = told.recv_timeout(Duration::from_secs(5));
        while told.try_recv().is_ok() {}
        for line in since(&layout, seen)? {
            seen = line.seq;
            if wanted(&line) {
                ticker.print(global, &line)?;
            }
        }
    }
}

/// The lines after `seen`, reading as far back as it takes.
fn since(layout: &Layout, seen: u64) -> Result<Vec<Line>, Failed> {
    let mut bytes = 64 * 1024;
    loop {
        let lines = recent(layout, bytes)?;
        let reaches_back = lines
            .first()
            .is_none_or(|line| line.seq <= seen.saturating_add(1));
        if reaches_back || bytes > 1024 * 1024 * 1024 {
            return Ok(lines.into_iter().filter(|line| line.seq > seen).collect());
        }
        bytes *= 8;
    }
}

fn is_failure(line: &Line) -> bool {
    line.detail.get("to").is_some_and(|to| to == "failed") || line.event == "refused"
}

/// Prints events as they come, in columns that are as wide as the widest so far.
#[derive(Debug, Default)]
struct Ticker {
    widths: [usize; 2],
}

impl Ticker {
    fn print(&mut self, global: &Global, told: &Line) -> Result<(), Failed> {
        if global.json {
            return out::tell(to_json(told));
        }
        let mut cells = row(told);
        for (cell, widest) in cells[1..].iter_mut().zip(&mut self.widths) {
            let width = width::of(cell);
            *widest = width.max(*widest).min(MOST_ALIGNED);
            cell.extend(std::iter::repeat_n(' ', widest.saturating_sub(width)));
        }
        let line = cells.join("  ");
        let line = line.trim_end();
        match width::of_terminal() {
            Some(most) => out::tell(width::cut(line, most)),
            None => out::tell(line),
        }
    }
}

fn to_json(told: &Line) -> Value {
    let mut map = Map::new();
    map.insert("seq".to_owned(), told.seq.into());
    map.insert("at".to_owned(), told.at.to_string().into());
    map.insert("event".to_owned(), told.event.clone().into());
    map.insert("handoff_id".to_owned(), told.handoff_id.clone().into());
    map.extend(told.detail.clone());
    Value::Object(map)
}

/// When, what, which handoff, and what else is known.
fn row(told: &Line) -> Vec<String> {
    let detail = |key: &str| told.detail.get(key);
    let text = |key: &str| detail(key).and_then(Value::as_str).unwrap_or_default();
    let tone = match text("to") {
        "failed" => Ink::Bad,
        "completed" => Ink::Good,
        _ => Ink::Dim,
    };
    let mut words: Vec<String> = Vec::new();
    if let Some(attempt) = detail("attempt") {
        words.push(format!("attempt {}", safe(&attempt.to_string(), false)));
    }
    for key in [
        "agent", "action", "choice", "by", "code", "message", "reason", "comment", "file",
    ] {
        let said = line(text(key), 100);
        match key {
            _ if said.is_empty() => {}
            "by" | "choice" => words.push(format!("{key} {said}")),
            _ => words.push(said),
        }
    }
    if let Some(waiting) = detail("waiting").and_then(|waiting| waiting.get("reason")?.as_str()) {
        words.push(line(waiting, 100));
    }
    vec![
        moment(told.at),
        ink(&safe(&told.event, false), tone),
        safe(told.handoff_id.as_deref().unwrap_or("-"), false),
        words.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_with_their_noun() {
        for (count, told) in [
            (0, "0 lines"),
            (1, "1 line"),
            (999, "999 lines"),
            (1132, "1,132 lines"),
            (1_234_567, "1,234,567 lines"),
        ] {
            assert_eq!(counted(count, "line"), told);
        }
    }
}
