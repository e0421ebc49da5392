//! How much is tried, and the table of what was tried and what broke.
//!
//! Every harness asks [`times`] how often, and ends with a [`Row`]. Rows gather in
//! `target/torture/rows.jsonl`, one run after the other; `table.md` beside it shows the latest
//! of each fault.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

/// How often to try: `short` within `cargo test`, `full` where `TORTURE=full`, and whatever
/// `TORTURE_<NAME>` says before both.
pub fn times(name: &str, short: usize, full: usize) -> usize {
    let own = std::env::var(format!("TORTURE_{}", name.to_uppercase()));
    if let Ok(text) = own {
        return text.parse().expect("a number of rounds");
    }
    if is_full() { full } else { short }
}

pub fn is_full() -> bool {
    std::env::var("TORTURE").is_ok_and(|value| value == "full")
}

/// One line of the table, in the making: what is tried, how often it was, and what broke.
pub struct Row {
    fault: &'static str,
    begun: Instant,
    tried: usize,
    broken: Vec<String>,
    note: String,
}

impl Row {
    pub fn new(fault: &'static str) -> Self {
        Self {
            fault,
            begun: Instant::now(),
            tried: 0,
            broken: Vec::new(),
            note: String::new(),
        }
    }

    /// One more was tried, and this is what broke, if anything.
    pub fn tried(&mut self, broke: impl IntoIterator<Item = String>) {
        self.tried += 1;
        self.broken.extend(broke);
    }

    /// Many were tried at once.
    #[allow(dead_code, reason = "for harnesses that count in millions")]
    pub fn tried_many(&mut self, count: usize) {
        self.tried += count;
    }

    /// What broke among many.
    #[allow(dead_code, reason = "for harnesses that count in millions")]
    pub fn broke(&mut self, broke: impl IntoIterator<Item = String>) {
        self.broken.extend(broke);
    }

    /// What a reader of the table should know besides.
    #[allow(dead_code, reason = "most have nothing to add")]
    pub fn note(&mut self, note: impl Into<String>) {
        self.note = note.into();
    }

    /// Writes the line; panics if anything broke.
    pub fn finish(self) {
        let line = json!({
            "fault": self.fault,
            "tried": self.tried,
            "broke": self.broken.len(),
            "seconds": self.begun.elapsed().as_secs(),
            "full": is_full(),
            "note": self.note,
        });
        keep(&line);
        assert!(
            self.broken.is_empty(),
            "{}: {} of {} broke\n{}",
            self.fault,
            self.broken.len(),
            self.tried,
            self.broken[..self.broken.len().min(20)].join("\n")
        );
    }
}

fn folder() -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    tests.parent().unwrap_or(&tests).join("torture")
}

fn keep(line: &Value) {
    let folder = folder();
    fs::create_dir_all(&folder).unwrap();
    let rows = folder.join("rows.jsonl");
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&rows)
        .unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
    fs::write(
        folder.join("table.md"),
        table(&fs::read_to_string(rows).unwrap()),
    )
    .unwrap();
}

/// The latest line of each fault, as a table.
fn table(rows: &str) -> String {
    let mut latest: BTreeMap<String, Value> = BTreeMap::new();
    for line in rows.lines() {
        let row: Value = serde_json::from_str(line).unwrap_or_default();
        latest.insert(row["fault"].as_str().unwrap_or_default().to_owned(), row);
    }
    let mut text =
        String::from("| fault | tried | broke | seconds | |\n| --- | ---: | ---: | ---: | --- |\n");
    for (fault, row) in latest {
        writeln!(
            text,
            "| {fault} | {} | {} | {} | {} |",
            row["tried"],
            row["broke"],
            row["seconds"],
            row["note"].as_str().unwrap_or_default()
        )
        .unwrap();
    }
    text
}

#[test]
fn the_table_shows_the_latest_of_each_fault() {
    let rows = r#"{"fault":"a","tried":1,"broke":1,"seconds":2,"note":""}
{"fault":"b","tried":7,"broke":0,"seconds":3,"note":"no containers here"}
{"fault":"a","tried":5,"broke":0,"seconds":4,"note":""}
"#;
    let text = table(rows);
    assert!(text.contains("| a | 5 | 0 | 4 |  |"), "{text}");
    assert!(
        text.contains("| b | 7 | 0 | 3 | no containers here |"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 4);
}
