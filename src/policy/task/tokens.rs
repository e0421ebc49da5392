//! Counting tokens as models do (`o200k_base`), and not counting where bytes already tell.
//!
//! The table takes a fifth of a second and tens of megabytes to load, so it is loaded by the
//! first text that needs it. A token is one byte at least: text with no more bytes than tokens
//! are allowed needs no table.

/// How many tokens `text` has.
pub fn count(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton().count_ordinary(text)
}

/// Whether `text` has at most `most` tokens.
pub(super) fn fits(text: &str, most: usize) -> bool {
    text.len() <= most || count(text) <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_byte_at_least() {
        for text in [
            "",
            "a",
            "hello world",
            "日本語",
            "🦀🦀",
            "a\u{0}b",
            "\u{e000}\u{10ffff}",
        ] {
            assert!(count(text) <= text.len(), "{text:?}");
            assert!(fits(text, text.len()));
        }
        assert_eq!(count("hello world"), 2);
        assert!(fits("hello world", 2) && !fits("hello world", 1));
    }
}
