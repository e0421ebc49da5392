//! Rows in columns. On a terminal no row is wider than the terminal: what would be is cut, the last
//! column first, because that is where the words are.

use super::width;

/// The space between two columns.
const GAP: usize = 2;
/// What a column keeps as long as another has more.
const ENOUGH: usize = 12;
/// What a column keeps at the least, but for the last.
const LEAST: usize = 4;

/// Rows in columns as wide as their widest cell, or as the terminal lets them be.
pub fn columns(rows: &[Vec<String>]) -> String {
    columns_within(rows, width::of_terminal())
}

/// Rows in columns, together no wider than `most`. Colours don't count as width.
pub fn columns_within(rows: &[Vec<String>], most: Option<usize>) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..count)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| width::of(cell)).max().unwrap_or(0)
        })
        .collect();
    if let Some(most) = most {
        fit(&mut widths, most);
    }
    let mut text = String::new();
    for row in rows {
        let mut shown = String::new();
        for (cell, most) in row.iter().zip(&widths) {
            let cell = width::cut_word(cell, *most);
            let blanks = most.saturating_sub(width::of(&cell)) + GAP;
            shown.push_str(&cell);
            shown.extend(std::iter::repeat_n(' ', blanks));
        }
        text.push_str(shown.trim_end());
        text.push('\n');
    }
    text
}

/// Names with what each is. Nothing is cut: on a terminal, a value goes on below its beginning.
pub fn facts(rows: &[Vec<String>]) -> String {
    facts_within(rows, width::of_terminal())
}

fn facts_within(rows: &[Vec<String>], most: Option<usize>) -> String {
    let names = rows.iter().filter_map(|row| row.first());
    let indent = names.map(|name| width::of(name)).max().unwrap_or(0) + GAP;
    let room = most.map(|most| most.saturating_sub(indent).max(ENOUGH));
    let mut text = String::new();
    for row in rows {
        let [name, value] = &row[..] else { continue };
        text.push_str(name);
        text.extend(std::iter::repeat_n(' ', indent - width::of(name)));
        let lines = room.map_or_else(|| vec![value.clone()], |room| width::wrapped(value, room));
        text.push_str(&lines.join(&format!("\n{}", " ".repeat(indent))));
        text.push('\n');
    }
    text
}

/// Takes from the columns what is too much: from the last as long as it has enough, then from the
/// widest; where all have no more than enough, the last goes, and then the widest again.
fn fit(widths: &mut [usize], most: usize) {
    let Some(last) = widths.len().checked_sub(1) else {
        return;
    };
    loop {
        let gaps = GAP * widths[..last].iter().filter(|width| **width > 0).count();
        if widths.iter().sum::<usize>() + gaps <= most {
            return;
        }
        let widest = (0..=last).max_by_key(|at| widths[*at]).unwrap_or(last);
        let from = match widths[last] {
            words if words > ENOUGH => last,
            _ if widths[widest] > ENOUGH => widest,
            1.. => last,
            0 if widths[widest] > LEAST => widest,
            0 => return,
        };
        widths[from] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn columns_line_up() {
        let rows = [row(&["a", "b"]), row(&["long", "c"])];
        assert_eq!(columns_within(&rows, None), "a     b\nlong  c\n");
        let coloured = [
            row(&["\u{1b}[1mA\u{1b}[0m", "b"]),
            row(&["日本", "c"]),
            row(&["x"]),
        ];
        assert_eq!(
            columns_within(&coloured, None),
            "\u{1b}[1mA\u{1b}[0m     b\n日本  c\nx\n"
        );
    }

    #[test]
    fn the_words_at_the_end_are_cut_first_then_the_widest() {
        let rows = [
            row(&["ID", "STATE", ""]),
            row(&[
                "a-rather-long-name",
                "failed",
                "PROCESSING_ERROR: no such table",
            ]),
        ];
        for (most, shown) in [
            (
                58,
                "a-rather-long-name  failed  PROCESSING_ERROR: no such tab…",
            ),
            (40, "a-rather-long-name  failed  PROCESSING_…"),
            (36, "a-rath…ng-name  failed  PROCESSING_…"),
            (26, "a-rat…g-name  failed  PRO…"),
            (22, "a-rat…g-name  failed"),
            (16, "a-…ame  failed"),
        ] {
            let text = columns_within(&rows, Some(most));
            assert_eq!(text.lines().nth(1).unwrap(), shown, "{most}");
            assert!(text.lines().all(|line| width::of(line) <= most), "{text}");
        }
    }

    #[test]
    fn facts_go_on_below_their_beginning() {
        let rows = [
            row(&["for", "@coder"]),
            row(&["because", "two ways are open"]),
        ];
        assert_eq!(
            facts_within(&rows, None),
            "for      @coder\nbecause  two ways are open\n"
        );
        assert_eq!(
            facts_within(&rows, Some(21)),
            "for      @coder\nbecause  two ways are\n         open\n"
        );
    }

    #[test]
    fn rows_of_any_kind_fit_from_sixty_columns_on() {
        let long = "x".repeat(200);
        let cells = [&*long, "in_progress", &long, "12", "10-09 08:01", &long];
        for most in 60..200 {
            let text = columns_within(&[row(&cells)], Some(most));
            assert!(text.lines().all(|line| width::of(line) <= most), "{text}");
            assert!(text.contains("in_progress  "), "{text}");
        }
    }
}
