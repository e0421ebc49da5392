//! How wide text is on a terminal, and text cut to a width. Colours have none; some letters have two.

/// The width of the terminal that stdout is, in columns; none where it is a file or a pipe.
pub fn of_terminal() -> Option<usize> {
    use std::io::IsTerminal;
    std::io::stdout()
        .is_terminal()
        .then(|| size_of_terminal().0)
}

/// Columns and lines of the terminal that stdout is. A terminal that doesn't tell has the usual 80
/// by 24, unless the environment knows better.
pub fn size_of_terminal() -> (usize, usize) {
    let told = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok();
    let or = |told: Option<u16>, name: &str, usual: usize| {
        let told = told.filter(|told| *told > 0).map(usize::from);
        let named = || std::env::var(name).ok()?.parse().ok();
        told.or_else(named)
            .filter(|count| *count > 0)
            .unwrap_or(usual)
    };
    (
        or(told.map(|size| size.ws_col), "COLUMNS", 80),
        or(told.map(|size| size.ws_row), "LINES", 24),
    )
}

/// The width of one character.
fn of_char(character: char) -> usize {
    match character as u32 {
        0x300..=0x36f | 0x1ab0..=0x1aff | 0x20d0..=0x20ff | 0xfe00..=0xfe0f | 0xfe20..=0xfe2f => 0,
        0x1100..=0x115f
        | 0x2e80..=0x303e
        | 0x3041..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f680..=0x1f6ff
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// The characters of a text, each with its width; those of an escape have none.
fn measured(text: &str) -> impl Iterator<Item = (char, usize)> + '_ {
    let mut escape = false;
    text.chars().map(move |character| {
        let of_escape = escape || character == '\u{1b}';
        escape = of_escape && character != 'm';
        let width = if of_escape { 0 } else { of_char(character) };
        (character, width)
    })
}

/// The width of a text on one line.
pub fn of(text: &str) -> usize {
    measured(text).map(|(_, width)| width).sum()
}

/// A text of at most `most` columns. One that is longer ends with `…`, and with no colour.
pub fn cut(text: &str, most: usize) -> String {
    if of(text) <= most {
        return text.to_owned();
    }
    if most == 0 {
        return String::new();
    }
    let mut kept = String::new();
    let mut used = 0;
    for (character, width) in measured(text) {
        if used + width > most - 1 {
            break;
        }
        used += width;
        kept.push(character);
    }
    kept.push('…');
    if kept.contains('\u{1b}') {
        kept.push_str("\u{1b}[0m");
    }
    kept
}

/// The same for one word, such as an id or a path: what is left out is in the middle, for the ends
/// are what tells it from others.
pub fn cut_word(word: &str, most: usize) -> String {
    if of(word) <= most || word.contains('\u{1b}') || word.contains(' ') || most < 3 {
        return cut(word, most);
    }
    let head: String = cut(word, most / 2);
    let mut tail = Vec::new();
    let mut used = of(&head);
    for character in word.chars().rev() {
        used += of_char(character);
        if used > most {
            break;
        }
        tail.push(character);
    }
    head.chars().chain(tail.into_iter().rev()).collect()
}

/// A text on lines of at most `most` columns, broken between words where that is possible.
pub fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && of(&line) + 1 + of(word) <= most {
            line.push(' ');
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        let mut used = 0;
        for (character, width) in measured(word) {
            if used + width > most {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            used += width;
            line.push(character);
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_have_no_width_and_wide_letters_have_two() {
        for (text, width) in [
            ("", 0),
            ("abc", 3),
            ("\u{1b}[31mabc\u{1b}[0m", 3),
            ("日本", 4),
            ("e\u{301}", 1),
            ("🚀", 2),
        ] {
            assert_eq!(of(text), width, "{text:?}");
        }
    }

    #[test]
    fn a_text_is_cut_at_the_width_and_not_within_a_colour() {
        for (text, most, shown) in [
            ("abcdef", 6, "abcdef"),
            ("abcdef", 4, "abc…"),
            ("abcdef", 1, "…"),
            ("abcdef", 0, ""),
            ("日本語", 4, "日…"),
            ("\u{1b}[31mabcdef\u{1b}[0m", 3, "\u{1b}[31mab…\u{1b}[0m"),
        ] {
            assert_eq!(cut(text, most), shown);
            assert!(of(shown) <= most);
        }
    }

    #[test]
    fn a_word_is_cut_in_its_middle() {
        for (word, most, shown) in [
            ("h-01a1f5c7d5b0", 14, "h-01a1f5c7d5b0"),
            ("h-01a1f5c7d5b0", 9, "h-0…7d5b0"),
            ("two words here", 9, "two word…"),
            ("日本語日本語", 7, "日…本語"),
            ("abcdef", 2, "a…"),
        ] {
            assert_eq!(cut_word(word, most), shown);
            assert!(of(shown) <= most.max(of(word)), "{shown}");
        }
    }

    #[test]
    fn a_text_is_broken_between_words_or_where_it_must_be() {
        for (text, most, lines) in [
            ("two ways are open", 9, &["two ways", "are open"][..]),
            ("open", 4, &["open"]),
            ("a/long/path is", 6, &["a/long", "/path", "is"]),
            ("", 4, &[""]),
        ] {
            assert_eq!(wrapped(text, most), lines, "{text}");
        }
    }
}
