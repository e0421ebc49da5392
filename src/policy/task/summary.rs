//! The summary for the next agent: what it must know, in fewer tokens than it is allowed.
//!
//! Lines are put down in the order of their worth while there is room: where the rest stands and
//! whose task it is, the phase, the counts, what blocks or waits for a human, the latest decisions
//! with their reasons, then milder issues. They are shown in an order that reads well. Each
//! text of an agent's has a share of its own, so that one long title can't push out the rest.
//!
//! First everything is laid out by bytes alone: where those are few enough, no tokens are counted
//! at all. Otherwise lines are measured one by one, and since tokens of lines don't add up to
//! those of a page, the page is measured at the end and loses its least line until it fits.

use std::collections::BTreeMap;

use super::tokens;
use super::words::{longest, one_line};
use crate::config::Context;
use crate::protocol::task::{Issue, Severity, TaskState};

/// A summary has fewer tokens than this.
pub const MAX_SUMMARY_TOKENS: usize = 500;
pub const MAX_SUMMARY_CHARS: usize = 2000;

const DECISIONS: usize = 5;
const PRESSING: usize = 8;
const MILD: usize = 3;
const KINDS: usize = 4;
const GATES: usize = 3;

/// How many artifacts that are too large to be read whole are named.
const LARGE: usize = 3;

/// The fewest tokens in which an issue can be told.
const ISSUE: usize = 12;

/// The fewest characters of a text that was cut which still say something.
const TELLING: usize = 6;

/// What a summary is made for.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// It has fewer tokens than this.
    pub tokens: usize,
    /// An artifact with more bytes is too large to be read whole.
    pub read_whole: u64,
}

impl Limits {
    /// The limits for agents with this window.
    pub fn of(context: &Context) -> Self {
        Self {
            tokens: MAX_SUMMARY_TOKENS,
            read_whole: context.most_bytes(),
        }
    }
}

/// A summary within `limits`, and never beyond the limits above. With very little room, lines are
/// missing; with none, all of them.
pub fn summary(state: &TaskState, limits: Limits) -> String {
    let most = limits.tokens.min(MAX_SUMMARY_TOKENS).saturating_sub(1);
    let mut page = Page::new(most, Unit::Bytes);
    page.lay_out(state, limits.read_whole);
    if page.overflowed {
        page = Page::new(most, Unit::Tokens);
        page.lay_out(state, limits.read_whole);
    }
    page.fitted()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Tokens,
}

/// Where a line stands on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Task,
    Phase,
    Artifacts,
    Large,
    Decisions,
    Decision,
    Blocking,
    Issue,
    Gates,
    StateFile,
}

struct Page {
    unit: Unit,
    most: usize,
    left: usize,
    chars_left: usize,
    /// In the order of their worth.
    lines: Vec<(Place, String)>,
    overflowed: bool,
}

impl Page {
    fn new(most: usize, unit: Unit) -> Self {
        Self {
            unit,
            most,
            left: most,
            chars_left: MAX_SUMMARY_CHARS,
            lines: Vec::new(),
            overflowed: false,
        }
    }

    fn lay_out(&mut self, state: &TaskState, read_whole: u64) {
        self.whole(
            Place::StateFile,
            format!("State file: {}", state.task().state_file()),
        );
        // A long id leaves little; then the fixed lines make do with less, for what blocks.
        let room = self.left;
        let id = self.share(state.task().as_str(), 200, (room / 8).min(64));
        let title = self.share(state.title(), 160, (room / 8).min(64));
        let dash = if title.is_empty() { "" } else { " - " };
        self.put(Place::Task, &format!("Task: {id}{dash}{title}"));
        let phase = |phase: Option<_>, none: &str| phase.unwrap_or_else(|| none.to_owned());
        let now = phase(state.phase().map(|phase| phase.name()), "none");
        let from = phase(state.previous_phase().map(|phase| phase.name()), "start");
        let now = self.share(&now, 60, room / 20);
        let from = self.share(&from, 60, room / 20);
        self.put(Place::Phase, &format!("Phase: {now} (from {from})"));
        let (pressing, mild) = sorted_issues(state);
        self.put(Place::Blocking, &blocking(state));
        let gates = self.gates(state, room / 50);
        self.put(Place::Gates, &gates);
        let artifacts = self.artifacts(state, room / 50);
        self.put(Place::Artifacts, &artifacts);
        let decisions = match state.decisions().len() {
            0 => "Decisions: none".to_owned(),
            1 => "Decisions: 1".to_owned(),
            count => format!("Decisions: {count}, newest first"),
        };
        self.put(Place::Decisions, &decisions);
        self.issues(&pressing, PRESSING);
        self.large(state, read_whole);
        self.decisions(state);
        self.issues(&mild, MILD);
    }

    fn issues(&mut self, issues: &[Issue<'_>], most: usize) {
        // Few that say something are better than many that don't.
        let room = match self.unit {
            Unit::Bytes => most,
            Unit::Tokens => self.left / ISSUE,
        };
        let shown = issues.len().min(most).min(room.max(1));
        for (at, issue) in issues.iter().take(shown).enumerate() {
            let fair = (self.left / (shown - at)).min(72);
            let who = if issue.requires_human() {
                ", human"
            } else {
                ""
            };
            let what = self.share(issue.what(), 160, fair.saturating_sub(8));
            if what == "…" {
                break;
            }
            let mut line = format!("- [{}{who}] {what}", issue.severity().as_str());
            let spent = if self.unit == Unit::Tokens {
                tokens::count(&line)
            } else {
                0
            };
            let action = self.share(
                issue.suggested_action(),
                100,
                fair.saturating_sub(spent + 3),
            );
            if !action.is_empty() && tells(&action) {
                line = format!("{line} -> {action}");
            }
            self.put(Place::Issue, &line);
        }
    }

    fn decisions(&mut self, state: &TaskState) {
        for (at, decision) in state.decisions().rev().take(DECISIONS).enumerate() {
            let fair = (self.left / (DECISIONS - at)).min(80);
            let what = self.share(decision.what(), 140, fair / 2);
            if !tells(&what) {
                break;
            }
            let why = self.share(decision.why(), 120, fair / 2);
            let mut line = format!("- {what}");
            if !why.is_empty() && tells(&why) {
                line = format!("{line}: {why}");
            }
            self.put(Place::Decision, &line);
        }
    }

    fn artifacts(&self, state: &TaskState, share: usize) -> String {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for artifact in state.artifacts() {
            *kinds.entry(artifact.kind()).or_default() += 1;
        }
        if kinds.is_empty() {
            return "Artifacts: none".to_owned();
        }
        let mut kinds: Vec<(&str, usize)> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let shown = kinds.iter().take(KINDS).map(|(kind, count)| {
            let kind = self.share(if kind.is_empty() { "untyped" } else { kind }, 30, share);
            format!("{count} {kind}")
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        let more = if kinds.len() > KINDS { ", …" } else { "" };
        let mut line = format!("Artifacts: {} ({shown}{more})", state.artifacts().len());
        let sizes = sizes(state);
        if !sizes.is_empty() {
            let total = sizes.values().copied().fold(0, u64::saturating_add);
            line = format!("{line}, {} in total", size(total));
        }
        line
    }

    /// The artifacts that are too large to be read whole, the largest first.
    fn large(&mut self, state: &TaskState, read_whole: u64) {
        let sizes = sizes(state);
        let mut large: Vec<(&str, u64)> = sizes
            .into_iter()
            .filter(|(_, size)| *size > read_whole)
            .collect();
        large.sort_by_key(|(path, size)| (std::cmp::Reverse(*size), *path));
        let more = large.len().saturating_sub(LARGE);
        for (path, bytes) in large.into_iter().take(LARGE) {
            let fair = (self.left / LARGE).min(48);
            let path = self.share(path, 120, fair.saturating_sub(16));
            self.put(
                Place::Large,
                &format!("- too large to read whole: {path}, {}", size(bytes)),
            );
        }
        if more > 0 {
            self.put(
                Place::Large,
                &format!("- too large to read whole: {more} more"),
            );
        }
    }

    fn gates(&self, state: &TaskState, share: usize) -> String {
        let (passed, failed) = (state.gates_passed().len(), state.gates_failed().len());
        let mut line = format!("Gates: {passed} passed, {failed} failed");
        if failed > 0 {
            let names = state.gates_failed().take(GATES);
            let names: Vec<String> = names.map(|name| self.share(name, 40, share)).collect();
            let more = if failed > GATES { ", …" } else { "" };
            line = format!("{line} ({}{more})", names.join(", "));
        }
        line
    }

    /// An agent's text on one line, in its share of characters and tokens.
    fn share(&self, text: &str, chars: usize, most: usize) -> String {
        let line = one_line(text, chars);
        match self.unit {
            Unit::Bytes => line,
            Unit::Tokens => {
                longest(&line, |cut| tokens::fits(cut, most)).unwrap_or_else(|| "…".to_owned())
            }
        }
    }

    /// Puts a line down, shortened if need be, unless there is no room for any of it.
    fn put(&mut self, place: Place, line: &str) {
        let (left, chars) = (
            self.left.saturating_sub(1),
            self.chars_left.saturating_sub(1),
        );
        let cut = match self.unit {
            Unit::Bytes => Some(line.to_owned()),
            Unit::Tokens => longest(line, |cut| {
                cut.chars().count() <= chars && tokens::fits(cut, left)
            }),
        };
        if let Some(cut) = cut {
            self.whole(place, cut);
        }
    }

    /// Puts a line down as it is, or not at all.
    fn whole(&mut self, place: Place, line: String) {
        let cost = 1 + match self.unit {
            Unit::Bytes => line.len(),
            Unit::Tokens => tokens::count(&line),
        };
        let chars = 1 + line.chars().count();
        // The last line has no end of line to pay for.
        if cost > self.left + 1 || chars > self.chars_left + 1 {
            self.overflowed = true;
            return;
        }
        self.left = self.left.saturating_sub(cost);
        self.chars_left = self.chars_left.saturating_sub(chars);
        self.lines.push((place, line));
    }

    fn shown(&self) -> String {
        let mut lines: Vec<&(Place, String)> = self.lines.iter().collect();
        // A stable sort: lines of one place stay in the order they came in.
        lines.sort_by_key(|(place, _)| *place);
        let lines: Vec<&str> = lines.into_iter().map(|(_, line)| line.as_str()).collect();
        lines.join("\n")
    }

    /// The page, without what is one too many.
    fn fitted(mut self) -> String {
        loop {
            let text = self.shown();
            if text.chars().count() <= MAX_SUMMARY_CHARS && tokens::fits(&text, self.most) {
                return text;
            }
            self.lines.pop();
        }
    }
}

/// The size of each file, where it is known: of several entries with a path the last one counts.
fn sizes(state: &TaskState) -> BTreeMap<&str, u64> {
    let artifacts = state.artifacts();
    artifacts
        .filter_map(|it| Some((it.path(), it.size_bytes()?)))
        .collect()
}

/// Bytes as they are, and in a larger unit where there are many.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 10 * 1024 {
        return format!("{bytes} bytes");
    }
    // In tenths, cut off.
    let (mut tenths, mut unit) = (u128::from(bytes) * 10 / 1024, 0);
    while tenths >= 10 * 1024 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!(
        "{bytes} bytes ({}.{} {})",
        tenths / 10,
        tenths % 10,
        UNITS[unit]
    )
}

/// Whether a text is whole, or long enough to be of use.
fn tells(text: &str) -> bool {
    !text.ends_with('…') || text.chars().count() >= TELLING
}

fn blocking(state: &TaskState) -> String {
    let count = state.issues().len();
    if count == 0 {
        return "Blocking: none".to_owned();
    }
    let is_blocker = |issue: &Issue<'_>| issue.severity() == Severity::Blocker;
    let blockers = state.issues().filter(is_blocker).count();
    let human = state.issues().filter(Issue::requires_human).count();
    format!("Blocking: {count} ({blockers} blockers, {human} for a human)")
}

/// What can't wait, questions to a human first; and the rest, the worst first.
fn sorted_issues(state: &TaskState) -> (Vec<Issue<'_>>, Vec<Issue<'_>>) {
    let (mut pressing, mut mild): (Vec<_>, Vec<_>) = state
        .issues()
        .partition(|issue| issue.requires_human() || issue.severity() == Severity::Blocker);
    pressing.sort_by_key(|issue| (!issue.requires_human(), issue.severity()));
    mild.sort_by_key(|issue: &Issue<'_>| issue.severity());
    (pressing, mild)
}
