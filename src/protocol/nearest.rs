//! The known word that was probably meant by an unknown one.

/// The nearest known word, if one is near: at most a third of it differs.
pub fn nearest<'k>(unknown: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    nearest_within(unknown, known, usize::MAX)
}

/// The same, if no more than `most` edits lie between.
pub fn nearest_within<'k>(
    unknown: &str,
    known: impl IntoIterator<Item = &'k str>,
    most: usize,
) -> Option<&'k str> {
    let distances = known
        .into_iter()
        .map(|word| (distance(unknown, word), word));
    let (distance, word) = distances.min()?;
    (distance <= (word.chars().count() / 3).clamp(1, most.max(1))).then_some(word)
}

/// How many edits lie between two words: a character more, less or another, or two neighbours that
/// changed places.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let substituted = above[j] + usize::from(a[i] != b[j]);
            let mut least = substituted.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                let swapped: &Vec<usize> = &before;
                least = least.min(swapped[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
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
            ("hotifx", Some("hotfix")),
            ("", None),
            ("release", None),
        ] {
            assert_eq!(nearest(unknown, known), expected, "{unknown}");
        }
        assert_eq!(nearest("x", []), None);
        assert_eq!(nearest_within("faetuer", known, 2), Some("feature"));
        assert_eq!(nearest_within("faetuer", known, 1), None);
    }
}
