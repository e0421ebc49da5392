//! SECURITY.md names tests: each exists, and each boundary has some.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("SECURITY.md");
    fs::read_to_string(path).unwrap()
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn is_file(word: &str) -> bool {
    Path::new(word).extension().is_some_and(|end| end == "rs")
}

/// Tests have names of several words, settings at most two.
fn is_test(word: &str) -> bool {
    let is_name = word
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    is_name && word.matches('_').count() >= 2
}

fn has_test(source: &str, name: &str) -> bool {
    let mut above = Vec::new();
    let head = format!("fn {name}(");
    for line in source.lines().map(str::trim) {
        if line.starts_with(&head) {
            return above.contains(&"#[test]");
        }
        if line.starts_with("#[") {
            above.push(line);
        } else {
            above.clear();
        }
    }
    false
}

#[test]
fn the_tests_that_it_names_exist() {
    let text = page();
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    let mut file = None;
    let (mut count, mut missing) = (0, Vec::new());
    for word in quoted(&text) {
        if is_file(word) {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(word);
            let read = || fs::read_to_string(path).unwrap_or_default();
            let source = files.entry(word).or_insert_with(read);
            if !source.contains("#[test]") {
                missing.push(word.to_owned());
            }
            file = Some(word);
        } else if is_test(word) {
            count += 1;
            let source = file.and_then(|file| files.get(file));
            if !source.is_some_and(|source| has_test(source, word)) {
                missing.push(format!("{}: {word}", file.unwrap_or_default()));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "no such test:\n  {}",
        missing.join("\n  ")
    );
    assert!(count > 50, "only {count} tests are named");
}

#[test]
fn whatever_a_side_may_not_do_was_tried() {
    let text = page();
    let mut untried = Vec::new();
    let mut tried = 0;
    for list in text.split("\nMay not").skip(1) {
        let list = list.split("\n\n").nth(1).unwrap_or_default();
        for point in list.split("\n- ").filter(|point| !point.is_empty()) {
            tried += 1;
            if !quoted(point).any(is_test) {
                untried.push(point.to_owned());
            }
        }
    }
    assert!(untried.is_empty(), "without a test: {untried:#?}");
    assert!(tried > 20, "only {tried} points");
}
