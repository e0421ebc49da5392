//! Text from outside, made harmless where it is shown: on a terminal, in a line of a log, on a
//! command line that somebody may paste.
//!
//! File names, producers' fields and specialists' words go through here and nowhere else.

use std::fmt::Write as _;
use std::path::Path;

/// Text that is safe to print: what could move the cursor or hide something is shown as an escape.
/// Line breaks stay only where `lines` allows them.
pub fn safe(text: &str, lines: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' if lines => shown.push('\n'),
            '\t' => shown.push_str("    "),
            hidden if is_hidden(hidden) => shown.extend(hidden.escape_default()),
            plain => shown.push(plain),
        }
    }
    shown
}

/// Whether there is something in it that [`safe`] shows as an escape.
pub fn is_hostile(text: &str) -> bool {
    text.chars().any(is_hidden)
}

/// A JSON document that is safe to print: what is hidden stands as JSON's own escape, so that it is
/// the same document.
pub fn json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character == '\n' || !is_hidden(character) {
            shown.push(character);
            continue;
        }
        let mut units = [0; 2];
        for unit in character.encode_utf16(&mut units) {
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

fn is_hidden(character: char) -> bool {
    character.is_control() || is_invisible(character)
}

/// Characters that change the direction or the presence of others.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// A text as a shell takes it for one word, whatever is in it. What [`safe`] would change is written
/// as bytes in `$'…'`, so that the word can be shown and pasted.
pub fn word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:@,".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    if !is_hostile(text) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut word = String::from("$'");
    for letter in text.chars() {
        match letter {
            '\'' | '\\' => word.extend(['\\', letter]),
            hidden if is_hidden(hidden) => {
                let mut bytes = [0; 4];
                for byte in hidden.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(word, "\\{byte:03o}");
                }
            }
            plain => word.push(plain),
        }
    }
    word.push('\'');
    word
}

/// A path as a shell takes it for one word.
pub fn path(path: &Path) -> String {
    word(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_a_record_reaches_the_terminal_raw() {
        assert_eq!(safe("a\u{1b}[31mb\r\0", false), "a\\u{1b}[31mb\\r\\u{0}");
        assert_eq!(safe("one\ntwo", false), "one\\ntwo");
        assert_eq!(safe("one\ntwo", true), "one\ntwo");
        assert_eq!(
            safe("a\u{2028}\u{61c}\u{e0041}\u{9b}", true),
            "a\\u{2028}\\u{61c}\\u{e0041}\\u{9b}"
        );
        assert_eq!(safe("left\u{202e}right", false), "left\\u{202e}right");
    }

    #[test]
    fn a_document_that_is_shown_is_the_same_document() {
        let value = serde_json::json!({ "a\u{202e}": "\u{9b}31m\u{7f}\u{e0041}\u{1b}[2J\n" });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let shown = json(&text);
        assert!(!is_hostile(&shown.replace('\n', "")), "{shown}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
            value
        );
    }

    #[test]
    fn a_path_is_one_word_to_a_shell() {
        for (text, shown) in [
            ("/srv/q", "/srv/q"),
            ("", "''"),
            ("/it's $x", "'/it'\\''s $x'"),
            ("$(touch X).json", "'$(touch X).json'"),
            ("a\nb", "$'a\\012b'"),
            ("it's\u{202e}\\", "$'it\\'s\\342\\200\\256\\\\'"),
        ] {
            assert_eq!(word(text), shown);
            assert!(!is_hostile(&word(text)), "{text:?}");
        }
    }

    #[test]
    fn bash_reads_back_what_was_written() {
        let texts = [
            "$(touch X)",
            "`id`",
            "a b",
            "'\"\\",
            "-rf",
            "~",
            "*",
            "a\u{1b}[2J\u{202e}\n!",
        ];
        for text in texts {
            let script = format!("printf %s {}", word(text));
            let Ok(output) = std::process::Command::new("bash")
                .args(["-c", &script])
                .output()
            else {
                return eprintln!("skipped: bash is not installed");
            };
            assert_eq!(String::from_utf8_lossy(&output.stdout), text);
        }
    }
}
