//! Which fenced blocks of a text are its own, and which are only quoted.
//!
//! A report that an agent prints ends in a `json` block. Texts quote such blocks too: inside a
//! longer fence, in a list, in a block quote. So this reads the containers of `CommonMark` (lists,
//! quotes, fences) as far as they decide where a block belongs. HTML blocks are not read.

use super::markdown::{self, Fence};

/// A `json` block that belongs to the text itself: its fence starts at the first column, outside
/// every list, quote and other fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnBlock<'t> {
    /// Everything above the opening fence.
    pub before: &'t str,
    pub json: &'t str,
    /// Everything below the closing fence.
    pub after: &'t str,
    /// The fence was closed. One that was not runs to the end of the text.
    pub closed: bool,
}

/// A fence that is open.
struct Open<'t> {
    fence: Fence<'t>,
    /// The column that the lines of its list item have at least; 0 outside of lists.
    item: usize,
    /// Where the block begins, if it is a `json` block of the text's own: the fence's line, and what
    /// follows it.
    own: Option<(usize, usize)>,
}

/// The text's own `json` blocks, in order.
pub fn own_json_blocks(text: &str) -> Vec<OwnBlock<'_>> {
    let mut found = Vec::new();
    let mut open: Option<Open<'_>> = None;
    // The columns at which the items of open lists have their text.
    let mut items: Vec<usize> = Vec::new();
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        let start = end;
        end += line.len();
        let blank = line.trim().is_empty();
        let (indent, _) = indentation(line, 0);
        if let Some(Open { fence, item, own }) = &open {
            if blank || indent >= *item {
                if closes(fence, *item, line) {
                    if let Some((above, inside)) = *own {
                        found.push(OwnBlock {
                            before: &text[..above],
                            json: &text[inside..start],
                            after: &text[end..],
                            closed: true,
                        });
                    }
                    open = None;
                }
                continue;
            }
            // The list item ends, and what is open in it.
            open = None;
        }
        if blank {
            continue;
        }
        while items.last().is_some_and(|item| indent < *item) {
            items.pop();
        }
        let (rest, column) = enter(line, &mut items);
        let item = items.last().copied().unwrap_or(0);
        if column >= item + 4 {
            // Indented code, or the rest of a paragraph.
            continue;
        }
        if let Some(fence) = markdown::fence(rest) {
            let own = items.is_empty() && column == 0 && markdown::is_json(fence.info);
            open = Some(Open {
                own: own.then_some((start, end)),
                fence,
                item,
            });
        }
    }
    if let Some(Open {
        own: Some((above, inside)),
        ..
    }) = open
    {
        found.push(OwnBlock {
            before: &text[..above],
            json: &text[inside..],
            after: "",
            closed: false,
        });
    }
    found
}

/// Whether a line closes an open fence whose list item has its text at `item`.
fn closes(fence: &Fence<'_>, item: usize, line: &str) -> bool {
    let (column, at) = indentation(line, 0);
    column < item + 4
        && markdown::fence(&line[at..]).is_some_and(|other| {
            other.mark == fence.mark && other.length >= fence.length && other.info.is_empty()
        })
}

/// The column of a line's first character that is no white space, and its place. `from` is the
/// column at which the line begins.
fn indentation(line: &str, from: usize) -> (usize, usize) {
    let mut column = from;
    for (at, c) in line.char_indices() {
        match c {
            ' ' => column += 1,
            '\t' => column += 4 - column % 4,
            _ => return (column, at),
        }
    }
    (column, line.len())
}

/// Goes into the list items that begin on a line: what is left of it, and the column of that.
fn enter<'t>(line: &'t str, items: &mut Vec<usize>) -> (&'t str, usize) {
    let (mut column, at) = indentation(line, 0);
    let mut rest = &line[at..];
    loop {
        let item = items.last().copied().unwrap_or(0);
        if column >= item + 4 {
            return (rest, column);
        }
        let Some(width) = list_marker(rest) else {
            return (rest, column);
        };
        let after = &rest[width..];
        let (next, at) = indentation(after, column + width);
        if after[at..].trim().is_empty() {
            items.push(column + width + 1);
            return ("", next);
        }
        if next == column + width {
            // No space: no marker.
            return (rest, column);
        }
        if next > column + width + 4 {
            // The item begins with indented code.
            items.push(column + width + 1);
            return ("", next);
        }
        items.push(next);
        rest = &after[at..];
        column = next;
    }
}

/// How long the list marker is with which a text begins, if it begins with one.
fn list_marker(text: &str) -> Option<usize> {
    if text.starts_with(['-', '+', '*']) {
        return Some(1);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let delimiter = text.as_bytes().get(digits)?;
    ((1..=9).contains(&digits) && matches!(delimiter, b'.' | b')')).then_some(digits + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str) -> Vec<&str> {
        let own = own_json_blocks(text);
        own.iter().map(|block| block.json.trim_end()).collect()
    }

    #[test]
    fn a_block_at_the_first_column_is_the_texts_own() {
        for (text, json) in [
            ("```json\n1\n```\n", &["1"][..]),
            ("a\n```json\n1\n```\nb\n```JSON x\n2\n```", &["1", "2"]),
            ("```json\r\n1\r\n```\r\n", &["1"]),
            ("~~~json\n1\n~~~\n", &["1"]),
            ("~~~json\n```\n1\n~~~~\n", &["```\n1"]),
            ("- a\n- b\n```json\n1\n```\n", &["1"]),
            ("- a\n\n```json\n1\n```\n", &["1"]),
            ("> a\n```json\n1\n```\n", &["1"]),
            ("**bold**\n* * *\n---\n```json\n1\n```\n", &["1"]),
            ("2026. A year.\n```json\n1\n```\n", &["1"]),
            // A fence that was opened in a list or a quote ends with it.
            ("- ```json\n  1\n\nb\n\n```json\n2\n```\n", &["2"]),
            ("> ```json\n> 1\n\n```json\n2\n```\n", &["2"]),
            ("1. ```sh\n   ls\n   ```\n\n```json\n2\n```\n", &["2"]),
            ("- ```json\n  1\n  ```\n```json\n2\n```\n", &["2"]),
            ("-\n  ```json\n  1\n  ```\n\n```json\n2\n```\n", &["2"]),
            ("    ```\n```json\n2\n```\n", &["2"]),
            ("``` `json`\n```json\n2\n```\n", &["2"]),
        ] {
            assert_eq!(blocks(text), json, "{text:?}");
        }
    }

    #[test]
    fn a_quoted_block_is_not_the_texts_own() {
        for text in [
            "````\n```json\n1\n```\n````\n",
            "````markdown\n```json\n1\n```\n````\n",
            "~~~\n```json\n1\n```\n~~~\n",
            "```text\n```json\n1\n```\n",
            " ```json\n1\n ```\n",
            "   ```json\n1\n   ```\n",
            "    ```json\n    1\n    ```\n",
            "\t```json\n\t1\n\t```\n",
            "- ```json\n  1\n  ```\n",
            "- a\n  ```json\n  1\n  ```\n",
            "- a\n\n  ```json\n  1\n  ```\n",
            "10) a\n\n    ```json\n    1\n    ```\n",
            "- - ```json\n    1\n    ```\n",
            "-\t```json\n\t1\n\t```\n",
            "> ```json\n> 1\n> ```\n",
            "> - ```json\n>   1\n>   ```\n",
            "```json5\n1\n```\n",
            "```\n1\n```\n",
            "text ```json\n1\n",
            "",
        ] {
            assert_eq!(blocks(text), [""; 0], "{text:?}");
        }
    }

    #[test]
    fn what_stands_around_a_block_is_told() {
        let block = own_json_blocks("# A\n\n```json\n1\n```\n\nb\n")[0];
        assert_eq!((block.before, block.json), ("# A\n\n", "1\n"));
        assert_eq!((block.after, block.closed), ("\nb\n", true));
        let cut = own_json_blocks("a\n```json\n{\"status\"")[0];
        assert_eq!(
            (cut.json, cut.after, cut.closed),
            ("{\"status\"", "", false)
        );
    }
}
