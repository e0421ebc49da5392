//! How things look to a person: colours only on a terminal, control characters never.

use std::io::IsTerminal;
use std::time::Duration;

use chrono::{DateTime, Local};

use crate::clock::Wall;
use crate::protocol::lifecycle::State;
pub use crate::protocol::shown::{is_hostile, safe};

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

/// A duration as a person says it: two units, no milliseconds beyond the first second.
pub fn span(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        return format!("{}ms", duration.as_millis());
    }
    let text = humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Rows in columns as wide as their widest cell. Colours don't count as width.
pub fn columns(rows: &[Vec<String>]) -> String {
    let width = |text: &str| {
        let mut visible = 0;
        let mut escape = false;
        for character in text.chars() {
            match (escape, character) {
                (false, '\u{1b}') => escape = true,
                (true, 'm') => escape = false,
                (false, _) => visible += 1,
                (true, _) => {}
            }
        }
        visible
    };
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest: Vec<usize> = (0..count)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|c| width(c))
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut shown = String::new();
        for (cell, most) in row.iter().zip(&widest) {
            shown.push_str(cell);
            shown.extend(std::iter::repeat_n(
                ' ',
                most.saturating_sub(width(cell)) + 2,
            ));
        }
        text.push_str(shown.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_and_columns_line_up() {
        assert_eq!(line("abcdef", 4), "abc…");
        assert_eq!(line("abcd", 4), "abcd");
        let rows = [
            vec!["a".into(), "b".into()],
            vec!["long".into(), "c".into()],
        ];
        assert_eq!(columns(&rows), "a     b\nlong  c\n");
    }

    #[test]
    fn spans_have_two_units_at_most() {
        assert_eq!(span(Duration::from_millis(250)), "250ms");
        assert_eq!(span(Duration::from_millis(90_500)), "1m 30s");
        assert_eq!(span(Duration::from_secs(90_061)), "1day 1h");
    }
}
