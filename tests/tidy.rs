//! The house rules that a compiler does not know, read off the sources.
//!
//! Rooms keep to their neighbours, files stay small and say why they exist, and only one room
//! moves and syncs files. The rules look at text, not at syntax: they are kept simple enough
//! for that to be right, and a doubtful line is better written another way.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What each room may use, besides itself. `room::part` allows only that part.
const EDGES: [(&str, &[&str]); 18] = [
    ("protocol", &["clock"]),
    ("policy", &["protocol", "clock", "config"]),
    ("clock", &[]),
    ("durable", &[]),
    ("mutant", &[]),
    ("json_text", &[]),
    ("config", &["protocol", "durable"]),
    (
        "spool",
        &["durable", "protocol", "store::audit", "store::archive"],
    ),
    ("store", &["durable", "protocol", "clock"]),
    ("watch", &[]),
    ("keeper", &["clock", "durable"]),
    ("runner", &["protocol", "config", "durable", "spool::look"]),
    ("figures", &["clock"]),
    (
        "retention",
        &["protocol", "clock", "durable", "spool", "store", "inspect"],
    ),
    ("service", &["engine", "clock", "protocol"]),
    (
        "inspect",
        &[
            "protocol", "policy", "clock", "config", "spool", "store", "keeper", "figures",
        ],
    ),
    (
        "engine",
        &[
            "protocol",
            "policy",
            "clock",
            "durable",
            "config",
            "spool",
            "store",
            "watch",
            "keeper",
            "runner",
            "figures",
            "retention",
        ],
    ),
    (
        "cli",
        &[
            "protocol",
            "policy",
            "clock",
            "durable",
            "config",
            "spool",
            "store",
            "watch",
            "keeper",
            "runner",
            "engine",
            "inspect",
            "service",
            "figures",
            "retention",
        ],
    ),
];

/// What all may use: where a defect can be switched on, and how JSON is written.
const EVERYBODYS: [&str; 2] = ["mutant", "json_text"];

const MOST_LINES: usize = 500;

/// Calls that only `durable.rs` may make.
const MOVES: [&str; 8] = [
    "fs::rename",
    "renameat",
    "hard_link",
    "fs::linkat",
    "sync_all",
    "sync_data",
    "fsync",
    "fdatasync",
];

const PANICS: [&str; 4] = [".unwrap()", ".expect(", "todo!", "unimplemented!"];

struct Source {
    /// From the repository's folder, like `src/engine/mod.rs`.
    name: String,
    text: String,
}

impl Source {
    fn room(&self) -> &str {
        let below = self.name.strip_prefix("src/").unwrap();
        below.split('/').next().unwrap().trim_end_matches(".rs")
    }

    fn is_test(&self) -> bool {
        let stem = self.name.trim_end_matches(".rs");
        stem.ends_with("_tests")
            || stem.split('/').any(|part| part == "tests")
            || stem == "src/config/broken"
    }

    /// The lines of code outside tests, numbered from 1, without their comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let most = if self.is_test() { 0 } else { usize::MAX };
        let tests = self
            .text
            .lines()
            .position(|line| line.starts_with("mod tests {"))
            .unwrap_or(usize::MAX);
        self.text
            .lines()
            .take(most.min(tests))
            .enumerate()
            .map(|(at, line)| (at + 1, line.split("//").next().unwrap_or("")))
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> = vec![root.join("src")];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                let text = fs::read_to_string(&path).unwrap();
                sources.push(Source { name, text });
            }
        }
    }
    assert!(sources.len() > 50, "the sources were not found");
    sources
}

/// Runs a rule over all sources and fails with everything it found.
fn hold(rule: &str, check: impl Fn(&Source, &mut Vec<String>)) {
    let mut found = Vec::new();
    for source in sources() {
        check(&source, &mut found);
    }
    found.sort();
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

#[test]
fn every_file_says_why_it_exists() {
    hold("must open with a //! header", |source, found| {
        if !source.text.starts_with("//! ") {
            found.push(source.name.clone());
        }
    });
}

#[test]
fn files_stay_small() {
    hold("too long", |source, found| {
        let lines = source.text.lines().count();
        if lines > MOST_LINES {
            found.push(format!(
                "{}: {lines} lines, {MOST_LINES} allowed",
                source.name
            ));
        }
    });
}

#[test]
fn every_room_is_in_the_table() {
    let rooms: BTreeSet<String> = sources()
        .iter()
        .map(|source| source.room().to_owned())
        .filter(|room| room != "lib" && room != "main")
        .collect();
    let table: BTreeSet<String> = EDGES.iter().map(|(room, _)| (*room).to_owned()).collect();
    assert_eq!(rooms, table);
}

#[test]
fn rooms_keep_to_their_neighbours() {
    hold("a room uses one that it may not", |source, found| {
        let room = source.room();
        let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == room) else {
            return;
        };
        for (line, code) in source.code() {
            for (at, _) in code.match_indices("crate::") {
                let used = &code[at + "crate::".len()..];
                let is_allowed = |edge: &str| {
                    used.strip_prefix(edge).is_some_and(|rest| {
                        !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_')
                    })
                };
                let shared = is_allowed(room) || EVERYBODYS.into_iter().any(is_allowed);
                if !shared && !allowed.iter().any(|edge| is_allowed(edge)) {
                    found.push(format!("{}:{line}: {}", source.name, code.trim()));
                }
            }
        }
    });
}

#[test]
fn one_room_moves_and_syncs_files() {
    hold("only durable.rs may do this", |source, found| {
        if source.name == "src/durable.rs" {
            return;
        }
        for (line, code) in source.code() {
            if MOVES.iter().any(|call| code.contains(call)) {
                found.push(format!("{}:{line}: {}", source.name, code.trim()));
            }
        }
    });
}

#[test]
fn nothing_panics_on_purpose() {
    hold(
        "no unwrap, expect or todo outside tests",
        |source, found| {
            for (line, code) in source.code() {
                if PANICS.iter().any(|call| code.contains(call)) {
                    found.push(format!("{}:{line}: {}", source.name, code.trim()));
                }
            }
        },
    );
}

#[test]
fn no_test_is_switched_off() {
    hold("an ignored test is no test", |source, found| {
        for (at, line) in source.text.lines().enumerate() {
            if line.trim_start().starts_with("#[ignore") {
                found.push(format!("{}:{}", source.name, at + 1));
            }
        }
    });
}

#[test]
fn messages_have_one_word_for_a_human() {
    hold("messages say `human`", |source, found| {
        for (line, code) in source.code() {
            // A text, and not a function or module of that name.
            let is_text = code.contains('"') && !code.contains("alias =");
            let said = ["a person", "A person", "the person", "one person"];
            if is_text && said.iter().any(|said| code.contains(said)) {
                found.push(format!("{}:{line}: {}", source.name, code.trim()));
            }
        }
    });
}
