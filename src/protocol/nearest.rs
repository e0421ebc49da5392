//! The known word that was probably meant by an unknown one.

/// The nearest known word, if one is near: at most a third of it differs.
pub fn nearest<'k>(unknown: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let distances = known
        .into_iter()
        .map(|word| (distance(unknown, word), word));
    let (distance, word) = distances.min()?;
    (distance <= (word.chars().count() / 3).max(1)).then_some(word)
}

/// Levenshtein's: how many single-character edits lie between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_near_word_is_found() {
        let known = ["feature", "hotfix"];
        for (unknown, expected) in [
            ("featur", Some("feature")),
            ("fixture", Some("feature")),
            ("hot-fix", Some("hotfix")),
            ("", None),
            ("release", None),
        ] {
            assert_eq!(nearest(unknown, known), expected, "{unknown}");
        }
        assert_eq!(nearest("x", []), None);
    }
}
