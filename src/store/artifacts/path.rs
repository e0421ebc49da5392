//! Paths as requests and results name them: relative to the root, and nothing clever.
//!
//! A [`RelPath`] says only that the text can't lead out by itself. What a symlink does with it is
//! seen when it is opened, by [`super::beneath`].

use std::fmt;
use std::path::Path;

/// Where artifacts and their registry stand.
pub(super) const FOLDER: &str = "artifacts";

/// What the daemon keeps, and what it says of each: it changes, and is nobody's artifact.
const OWN: [(&str, &str); 6] = [
    (
        "handoffs",
        "is among the daemon's own records, which move and change",
    ),
    (".handoffd", "is in the daemon's own folder"),
    ("audit", "is part of the audit log, which grows"),
    (
        "context/state",
        "is among the states of tasks, which change with every outcome",
    ),
    (
        "context/phase-status.json",
        "is the daemon's own board, which it rewrites",
    ),
    ("artifacts/registry.jsonl", "is the registry of artifacts"),
];

const MOST_BYTES: usize = 4096;
const MOST_OF_PART: usize = 255;

/// A path relative to the root, without `..`, empty or control parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelPath(String);

impl RelPath {
    /// Checks `text`; what is wrong with it is said as the end of a sentence: "is absolute".
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty".to_owned());
        }
        if text.len() > MOST_BYTES {
            return Err(format!("is longer than {MOST_BYTES} bytes"));
        }
        if text.contains('\0') {
            return Err("contains a NUL".to_owned());
        }
        if text.chars().any(char::is_control) {
            return Err("contains a control character".to_owned());
        }
        if text.starts_with('/') {
            return Err("is absolute, and must be relative to the root".to_owned());
        }
        for part in text.split('/') {
            match part {
                "" => return Err("has an empty part".to_owned()),
                "." => return Err("has a part that is `.`".to_owned()),
                ".." => return Err("has a part that is `..`".to_owned()),
                long if long.len() > MOST_OF_PART => {
                    return Err(format!(
                        "has a part that is longer than {MOST_OF_PART} bytes"
                    ));
                }
                _ => {}
            }
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it names something in `artifacts/`.
    pub fn is_below_artifacts(&self) -> bool {
        self.0
            .strip_prefix(FOLDER)
            .is_some_and(|rest| rest.starts_with('/'))
    }

    /// What it is of the daemon's own, if it is: the end of a sentence.
    pub fn daemons_own(&self) -> Option<&'static str> {
        let within = |own: &str| {
            // On some file systems these are the same name.
            self.0
                .get(..own.len())
                .is_some_and(|begins| begins.eq_ignore_ascii_case(own))
                && matches!(self.0.as_bytes().get(own.len()), None | Some(b'/'))
        };
        OWN.iter()
            .find_map(|(own, what)| within(own).then_some(*what))
    }

    /// The folder that it stands in, empty for the root, and its name there.
    pub fn file_name(&self) -> &str {
        self.split().1
    }

    pub(super) fn split(&self) -> (&str, &str) {
        self.0.rsplit_once('/').unwrap_or(("", &self.0))
    }

    /// The name without its extension.
    pub(super) fn stem(&self) -> &str {
        let (_, name) = self.split();
        Path::new(name)
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or(name)
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_relative_paths_pass() {
        let long_part = "x".repeat(256);
        let long = format!("a/{}", "x/".repeat(2048));
        for (text, why) in [
            ("", "empty"),
            ("/etc/passwd", "absolute"),
            ("..", "`..`"),
            ("artifacts/../x", "`..`"),
            ("artifacts/..", "`..`"),
            ("./x", "`.`"),
            ("a//b", "empty part"),
            ("a/", "empty part"),
            ("a\0b", "NUL"),
            ("a\nb", "control"),
            ("a\u{1b}[31m", "control"),
            ("a\u{85}b", "control"),
            (&long_part, "255"),
            (&long, "4096"),
        ] {
            let said = RelPath::parse(text).unwrap_err();
            assert!(said.contains(why), "{text:?}: {said}");
        }
        for text in ["a", "a/b.c", "..a/b..", "...", "é/日本", "a b", "~"] {
            assert_eq!(RelPath::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn below_artifacts_needs_more_than_the_folder() {
        let below = |text: &str| RelPath::parse(text).unwrap().is_below_artifacts();
        assert!(below("artifacts/x"));
        assert!(!below("artifacts"));
        assert!(!below("artifactsx/y"));
        assert!(!below("context/artifacts/x"));
    }

    #[test]
    fn what_the_daemon_keeps_is_told_by_its_path() {
        let own = |text: &str| RelPath::parse(text).unwrap().daemons_own();
        for (text, what) in [
            ("handoffs/in-progress/x.json", "records"),
            (".handoffd/run/x.1.result", "own folder"),
            ("Audit/events-2026-01-01.jsonl", "audit log"),
            ("context/state/T-1.json", "states of tasks"),
            ("context/phase-status.json", "board"),
            ("artifacts/Registry.jsonl", "registry"),
        ] {
            assert!(own(text).unwrap().contains(what), "{text}");
        }
        for text in [
            "artifacts/x",
            "artifacts/registry.jsonl.md",
            "artifacts/handoffs/x",
            "handoffs.md",
            "context/tech-stack.json",
            "audité",
            "src/a.rs",
        ] {
            assert_eq!(own(text), None, "{text}");
        }
    }

    #[test]
    fn stems_are_names_without_their_last_extension() {
        for (text, stem) in [
            ("artifacts/a/report.md", "report"),
            ("artifacts/a.tar.gz", "a.tar"),
            ("artifacts/.hidden", ".hidden"),
            ("plain", "plain"),
        ] {
            assert_eq!(RelPath::parse(text).unwrap().stem(), stem);
        }
    }
}
