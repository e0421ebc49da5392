//! How things look to a person: colours only on a terminal, control characters never.

mod table;
pub mod width;

use std::io::IsTerminal;
use std::time::Duration;

use chrono::{DateTime, Local};

use crate::clock::Wall;
use crate::protocol::lifecycle::State;
pub use crate::protocol::shown::{is_hostile, safe};
pub use table::{columns, columns_within, facts};

/// One line of at most `most` characters.
pub fn line(text: &str, most: usize) -> String {
    let text = safe(text.trim(), false);
    if text.chars().count() <= most {
        return text;
    }
    text.chars()
        .take(most.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// A terminal of fewer columns gets short times.
const NARROW: usize = 100;

/// The words at the end of a row: as many as a terminal may have room for, `most` elsewhere.
pub fn words(text: &str, most: usize) -> String {
    line(
        text,
        width::of_terminal().map_or(most, |room| room.max(most)),
    )
}

#[derive(Debug, Clone, Copy)]
pub enum Ink {
    Good,
    Bad,
    Busy,
    Dim,
    Bold,
}

/// Colours `text` where stdout is a terminal and nobody asked for none.
pub fn ink(text: &str, ink: Ink) -> String {
    if !colours() {
        return text.to_owned();
    }
    let code = match ink {
        Ink::Good => "32",
        Ink::Bad => "31",
        Ink::Busy => "33",
        Ink::Dim => "2",
        Ink::Bold => "1",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

pub fn colours() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

pub fn state(state: State) -> String {
    let tone = match state {
        State::Completed => Ink::Good,
        State::Failed => Ink::Bad,
        State::InProgress => Ink::Busy,
        State::Pending | State::Waiting => Ink::Dim,
    };
    ink(state.status(), tone)
}

/// A moment in local time, for people.
pub fn local(at: Wall) -> String {
    DateTime::from_timestamp_millis(at.0).map_or_else(
        || at.to_string(),
        |utc| {
            utc.with_timezone(&Local)
                .format("%Y-%m-%d %H:%M:%S")
                .to_string()
        },
    )
}

/// A moment in a table: without year and seconds where the terminal is narrow.
pub fn moment(at: Wall) -> String {
    moment_within(at, width::of_terminal())
}

/// The same for a table of this width.
pub fn moment_within(at: Wall, most: Option<usize>) -> String {
    let whole = local(at);
    match most {
        Some(..NARROW) => whole.get(5..16).unwrap_or(&whole).to_owned(),
        _ => whole,
    }
}

/// A duration as a person says it: two units, no milliseconds beyond the first second.
pub fn span(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        return format!("{}ms", duration.as_millis());
    }
    let text = humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut() {
        assert_eq!(line("abcdef", 4), "abc…");
        assert_eq!(line("abcd", 4), "abcd");
    }

    #[test]
    fn spans_have_two_units_at_most() {
        assert_eq!(span(Duration::from_millis(250)), "250ms");
        assert_eq!(span(Duration::from_millis(90_500)), "1m 30s");
        assert_eq!(span(Duration::from_secs(90_061)), "1day 1h");
    }
}
