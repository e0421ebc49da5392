//! Fenced blocks in Markdown: the part of a report that a machine reads.
//!
//! Only as much of `CommonMark` as is needed to find a fence and not be fooled by one inside
//! another. A fence that is never closed runs to the end of the text, as `CommonMark` has it: a
//! report that was cut off must not fall back to an example further up.

/// A fenced block tagged `json`, cut out of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<'t> {
    /// Everything above the opening fence.
    pub text_before: &'t str,
    /// What stands between the fences, untouched.
    pub json: &'t str,
    /// The line of the whole text on which `json` starts, from 1.
    pub line: usize,
}

/// The last block tagged `json`, whatever follows it.
pub fn last_json_block(text: &str) -> Option<Block<'_>> {
    let mut found = None;
    let mut open: Option<(Fence<'_>, usize, usize, usize)> = None;
    let mut offset = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let start = offset;
        offset += line.len();
        let Some(fence) = fence(line) else { continue };
        match &open {
            None => open = Some((fence, start, offset, index + 2)),
            Some((opening, above, inside, first_line)) => {
                let closes = fence.mark == opening.mark
                    && fence.length >= opening.length
                    && fence.info.is_empty();
                if closes {
                    if is_json(opening.info) {
                        let block = Block {
                            text_before: &text[..*above],
                            json: &text[*inside..start],
                            line: *first_line,
                        };
                        found = Some(block);
                    }
                    open = None;
                }
            }
        }
    }
    match open {
        Some((opening, above, inside, line)) if is_json(opening.info) => {
            let block = Block {
                text_before: &text[..above],
                json: &text[inside..],
                line,
            };
            Some(block)
        }
        _ => found,
    }
}

pub(super) struct Fence<'t> {
    pub mark: char,
    pub length: usize,
    pub info: &'t str,
}

/// The fence that a line is, if it is one.
pub(super) fn fence(line: &str) -> Option<Fence<'_>> {
    let line = line.trim_end_matches(['\n', '\r']);
    let bare = line.trim_start_matches(' ');
    if line.len() - bare.len() > 3 {
        return None;
    }
    let mark = bare.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let info = bare.trim_start_matches(mark);
    let length = bare.len() - info.len();
    // A back-tick in the info string makes it inline code.
    if length < 3 || mark == '`' && info.contains('`') {
        return None;
    }
    Some(Fence {
        mark,
        length,
        info: info.trim(),
    })
}

/// Whether the first word of an info string is `json`.
pub(super) fn is_json(info: &str) -> bool {
    let word = info.split(|c: char| !c.is_ascii_alphanumeric()).next();
    word.is_some_and(|word| word.eq_ignore_ascii_case("json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_json_block_is_found() {
        for (text, json, line) in [
            ("```json\n1\n```\n", Some("1\n"), 2),
            ("a\n\n```JSON title=x\r\n1\r\n```\r\nb", Some("1\r\n"), 4),
            ("~~~~ json\n```\n~~~\n~~~~", Some("```\n~~~\n"), 2),
            ("```json\n1\n```\n```json\n2\n```", Some("2\n"), 5),
            ("```json\n1\n```\n```text\n2\n```", Some("1\n"), 2),
            ("   ```json\n   1\n  `````", Some("   1\n"), 2),
            ("````text\n```json\n1\n```\n````", None, 0),
            ("```json\n1\n```\n```json\n{\"cut", Some("{\"cut"), 5),
            ("```json", Some(""), 2),
            ("```json\n```", Some(""), 2),
            ("    ```json\n1\n    ```", None, 0),
            ("``json\n1\n``", None, 0),
            ("```json `x`\n1\n```", None, 0),
            ("```jsonl\n1\n```", None, 0),
            ("```\n1\n```", None, 0),
            ("```json\n1\n``` json\n2\n```", Some("1\n``` json\n2\n"), 2),
            ("", None, 0),
        ] {
            let block = last_json_block(text);
            assert_eq!(block.map(|b| b.json), json, "{text:?}");
            assert_eq!(block.map_or(0, |b| b.line), line, "{text:?}");
        }
    }
}
