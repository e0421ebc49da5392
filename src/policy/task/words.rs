//! Text of agents inside text of ours: one line, a bounded length, nothing hidden.
//!
//! A summary is read line by line, by models that believe what lines say. So no text that came
//! from outside may begin a line, and nothing that is not seen may stand in one.

/// How far to look for characters worth showing, in multiples of those wanted.
const LOOK: usize = 8;

/// At most `most` characters of `text` on one line; what was cut ends in `…`.
pub fn one_line(text: &str, most: usize) -> String {
    let far = most.saturating_mul(LOOK).max(64);
    let mut shown = String::new();
    let (mut count, mut gap) = (0, false);
    for (looked, character) in text.chars().enumerate() {
        if looked >= far {
            return ended(shown, most);
        }
        if is_blank(character) {
            gap = count > 0;
        } else if !is_hidden(character) {
            if count + usize::from(gap) >= most {
                return ended(shown, most);
            }
            if gap {
                shown.push(' ');
            }
            shown.push(character);
            count += 1 + usize::from(gap);
            gap = false;
        }
    }
    shown
}

/// `text` with `…` behind it, in at most `most` characters.
fn ended(mut text: String, most: usize) -> String {
    while text.chars().count() >= most.max(1) {
        text.pop();
    }
    text.truncate(text.trim_end().len());
    if most > 0 {
        text.push('…');
    }
    text
}

/// The longest beginning of a line that `fits`, with `…` where something is missing.
pub(super) fn longest(line: &str, fits: impl Fn(&str) -> bool) -> Option<String> {
    if fits(line) {
        return Some(line.to_owned());
    }
    let ends: Vec<usize> = line.char_indices().map(|(at, _)| at).collect();
    let cut = |count: usize| format!("{}…", line[..ends[count]].trim_end());
    // How long a beginning may be is found by halving. Longer ones need not cost more in every
    // single case, so the answer is checked, not computed.
    let (mut good, mut bad) = (0, ends.len());
    while bad - good > 1 {
        let middle = usize::midpoint(good, bad);
        if fits(&cut(middle)) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    (good > 0).then(|| cut(good))
}

fn is_blank(character: char) -> bool {
    character.is_whitespace() || character.is_control()
}

/// Characters that are not seen, or that change how others are: joiners, marks of direction,
/// variation selectors, tags, private fillers.
fn is_hidden(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_single_short_and_plain() {
        for (text, most, shown) in [
            ("plain", 10, "plain"),
            ("  two\n\nlines\t", 20, "two lines"),
            ("exactly", 7, "exactly"),
            ("exactly  \n ", 7, "exactly"),
            ("too long", 7, "too lo…"),
            ("one two three", 5, "one…"),
            ("a\u{2028}b\u{85}c\u{b}d\u{0}e", 20, "a b c d e"),
            ("\u{202e}dne\u{200b}x\u{e0041}", 20, "dnex"),
            ("日本語です", 3, "日本…"),
            ("abc", 1, "…"),
            ("abc", 0, ""),
            ("", 5, ""),
        ] {
            assert_eq!(one_line(text, most), shown, "{text:?} in {most}");
        }
    }

    #[test]
    fn a_long_nothing_is_not_searched_to_its_end() {
        let text = "\u{200b}".repeat(8 << 20) + "x";
        assert_eq!(one_line(&text, 100), "…");
    }

    #[test]
    fn the_longest_beginning_is_found() {
        let most = |n: usize| move |text: &str| text.len() <= n;
        assert_eq!(longest("abc", most(3)), Some("abc".to_owned()));
        assert_eq!(longest("abcdefg", most(6)), Some("abc…".to_owned()));
        assert_eq!(longest("ab cdefg", most(6)), Some("ab…".to_owned()));
        assert_eq!(longest("éé", most(3)), None);
        assert_eq!(longest("", most(0)), Some(String::new()));
    }
}
