//! Quality of what is handed over: words that leave the receiver guessing.
//!
//! These are hints by rule of thumb, so they err on the side of silence: a summary is only
//! called empty if hardly a word in it says anything, a criterion only vague if it leans on a
//! word of taste and names nothing that could be looked up or counted.

/// Words that a summary can have without saying anything.
const FILLER: [&str; 64] = [
    "a",
    "about",
    "added",
    "all",
    "also",
    "and",
    "are",
    "as",
    "at",
    "been",
    "changed",
    "changes",
    "code",
    "complete",
    "completed",
    "created",
    "did",
    "done",
    "everything",
    "finished",
    "fixed",
    "for",
    "good",
    "has",
    "have",
    "i",
    "implemented",
    "in",
    "is",
    "it",
    "its",
    "it's",
    "job",
    "made",
    "my",
    "new",
    "now",
    "of",
    "ok",
    "on",
    "part",
    "ready",
    "some",
    "something",
    "stuff",
    "task",
    "test",
    "tests",
    "that",
    "the",
    "thing",
    "things",
    "this",
    "to",
    "up",
    "updated",
    "was",
    "we",
    "well",
    "were",
    "with",
    "work",
    "works",
    "wrote",
];

/// Words of taste: everybody agrees with them and nobody can check them.
const TASTE: [&str; 42] = [
    "adequate",
    "appropriate",
    "appropriately",
    "asap",
    "beautiful",
    "best",
    "better",
    "clean",
    "cleanly",
    "decent",
    "easily",
    "easy",
    "efficient",
    "efficiently",
    "elegant",
    "fast",
    "fine",
    "good",
    "great",
    "intuitive",
    "maintainable",
    "modern",
    "nice",
    "nicely",
    "optimal",
    "perfect",
    "performant",
    "properly",
    "quick",
    "quickly",
    "readable",
    "reasonable",
    "robust",
    "scalable",
    "simple",
    "smooth",
    "solid",
    "soon",
    "sufficient",
    "suitable",
    "well",
    "user-friendly",
];

/// Words that name something that can be looked up.
const CHECKABLE: [&str; 30] = [
    "all", "any", "below", "build", "builds", "compile", "compiles", "each", "equal", "every",
    "exactly", "exist", "exists", "exit", "least", "most", "must", "never", "no", "none", "only",
    "pass", "passes", "passing", "returns", "under", "valid", "within", "without", "zero",
];

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '-' || c == '’'))
        .map(|word| {
            word.trim_matches(['\'', '-'])
                .replace('’', "'")
                .to_lowercase()
        })
        .filter(|word| !word.is_empty())
}

fn has_figures(text: &str) -> bool {
    text.contains(|c: char| c.is_numeric() || "<>≤≥=%".contains(c))
}

/// Whether a summary tells the next agent next to nothing.
pub fn says_nothing(summary: &str) -> bool {
    if has_figures(summary) {
        return false;
    }
    let mut weight = 0;
    let mut filled = false;
    for word in words(summary) {
        if FILLER.contains(&word.as_str()) {
            filled = true;
            continue;
        }
        // Scripts that don't put spaces between words say more in one of them.
        weight += if word.is_ascii() {
            1
        } else {
            word.chars().count().div_ceil(4)
        };
    }
    // One word alone may be a name, which says enough to those who know it.
    weight == 0 || weight < 2 && filled
}

/// Whether a criterion or a constraint can't be measured.
pub fn is_vague(criterion: &str) -> bool {
    if has_figures(criterion) {
        return false;
    }
    let mut tasteful = false;
    let mut any = false;
    for word in words(criterion) {
        any = true;
        if CHECKABLE.contains(&word.as_str()) {
            return false;
        }
        tasteful |= TASTE.contains(&word.as_str());
    }
    tasteful || !any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_that_say_nothing() {
        for summary in [
            "It's done",
            "Completed the architecture",
            "Wrote some code",
            "Added tests",
            "",
            "  …",
            "ok",
        ] {
            assert!(says_nothing(summary), "{summary}");
        }
        for summary in [
            "User stories defined and validated by client",
            "API architecture defined, needs security review",
            "Two possible approaches with significant trade-offs",
            "2 risks identified, recommendations provided",
            "Created 12 unit tests and 3 E2E tests",
            "Designed component hierarchy using compound pattern",
            "実装が完了しました。テストは全部通過。",
            "Схема базы готова",
            "dashboard",
        ] {
            assert!(!says_nothing(summary), "{summary}");
        }
    }

    #[test]
    fn criteria_that_nobody_can_check() {
        for criterion in ["Write good code", "quickly", "Make it user-friendly", " "] {
            assert!(is_vague(criterion), "{criterion}");
        }
        for criterion in [
            "Unit tests > 80% coverage",
            "No OWASP Top 10 vulnerabilities",
            "Build passes in CI",
            "No unaddressed critical risks",
            "Focus on authentication and sensitive data",
            "A fast path that returns within a second",
        ] {
            assert!(!is_vague(criterion), "{criterion}");
        }
    }
}
